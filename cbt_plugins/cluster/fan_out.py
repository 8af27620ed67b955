"""Questions to many nodes at once: how many at a time, and how many files that takes."""

from __future__ import annotations

import os
import resource
import threading
import time
from functools import partial
from typing import Any, Callable, Dict, Generic, List, Mapping, Optional, TypeVar, cast

T = TypeVar("T")


class Pending(Generic[T]):
    """An answer that is waited for while other things go on: its question runs in a thread."""

    def __init__(self, question: Callable[[], T]) -> None:
        self._question = question
        self._answer: Optional[T] = None
        self._error: Optional[BaseException] = None
        self._thread = threading.Thread(target=self._ask, daemon=True)
        self._thread.start()

    def _ask(self) -> None:
        try:
            self._answer = self._question()
        except BaseException as error:
            self._error = error

    @property
    def is_done(self) -> bool:
        """Whether `get` would not wait."""
        return not self._thread.is_alive()

    def wait(self) -> None:
        """Wait for the answer, or its error."""
        self._thread.join()

    def get(self) -> T:
        """Wait for the answer, and return it or raise its error."""
        self.wait()
        if self._error is not None:
            raise self._error
        return cast(T, self._answer)


#: questions that begin within LOGIN seconds for many nodes: a login takes 0.06 to 0.08 s of CPU time here. Those that
#: are older are logged in, or wait for a dead node, and keep no other from beginning
AT_ONCE, LOGIN = 64 * len(os.sched_getaffinity(0)), 2.0


def ask_at_once(*questions: Callable[[], Any]) -> List[Any]:
    """Return the answers in the order of the questions; all are asked at once, but for AT_ONCE in LOGIN seconds.

    The first error is raised when all have ended.
    """
    if len(questions) == 1:
        return [questions[0]()]  # without a thread, which a signal could leave behind
    begun: Dict[int, float] = {}  # when each question that has not ended began
    change = threading.Condition()

    def ask(number: int) -> Any:
        try:
            return questions[number]()
        finally:
            with change:
                del begun[number]
                change.notify()

    pending = []
    for number in range(len(questions)):
        with change:
            _wait_for_a_login(begun, change)
            begun[number] = time.monotonic()
        pending.append(Pending(partial(ask, number)))
    for answer in pending:
        answer.wait()
    return [answer.get() for answer in pending]


def _wait_for_a_login(begun: Mapping[int, float], change: threading.Condition) -> None:
    while True:
        now = time.monotonic()
        logins = [t for t in begun.values() if now - t < LOGIN]
        if len(logins) < AT_ONCE:
            return
        change.wait(min(logins) + LOGIN - now)


#: descriptors of a connection that stays open: three pipes, and what waits for them
FILES_PER_CONNECTION = 4
#: most descriptors that this process and its children may have: pdsh closes all that it may have for each node
MOST_FILES = 16_384


def allow_files() -> int:
    """Let this process and its children open as many files as the hard limit allows; return how many that are.

    The usual soft limit of 1024 ends at 250 nodes.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, MOST_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return wanted
