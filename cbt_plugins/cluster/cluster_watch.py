"""The cluster's state over time: one agent on a node samples it, from a run's begin to its end, for whoever asks."""

from __future__ import annotations

import contextlib
import itertools
import json
import logging
import math
import queue
import shlex
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

from cbt_plugins.cluster import state_sampler_maps, state_sampler_sources
from cbt_plugins.cluster.ceph import Ceph, CephError, Status
from cbt_plugins.cluster.stream import NodeProgram, Stream
from cbt_plugins.journal import LineWriter, each_json_line

log = logging.getLogger(__name__)

#: what nodes run to sample; standard library only
AGENT, PARTS = Path(__file__).parent / "state_sampler_agent.py", (state_sampler_sources, state_sampler_maps)
#: questions of `ClusterWatch.ask`: who answers, and the command as librados takes it
QUESTIONS: Dict[str, Tuple[str, Dict[str, str]]] = {
    "df detail": ("mon", {"prefix": "df", "detail": "detail"}),
    "osd df": ("mgr", {"prefix": "osd df"}),
}
#: seconds for an answer over the connection, before the command is tried
_ANSWER = 10.0
#: seconds from one connection to the next
_REOPEN = 2.0
#: seconds after which the same warning is logged again: a head may be away for hours
_WARN_AGAIN = 600.0
#: seconds after which the thread looks whether it is to end
_LOOK = 0.2
#: of an OSD map against the one before
_OSD_CHANGES = ("down", "up")


def agent_settings(ceph: Ceph, interval: Optional[float], **settings: Any) -> Dict[str, Any]:
    """Return the agent's settings: how this cluster is asked, how often (None: as the source is able), and for what.

    `recovery`: follow the OSD maps and counters; `df`: ask for the space; `librados`: use it where it is; `timeout`.
    """
    programs = ceph.programs
    return {"interval": interval, "ceph": programs.ceph_there, "conf": programs.conf, **settings}


class StatusFeed:
    """The samples that one reader has not had yet: those that came since it was made."""

    def __init__(self, watch: ClusterWatch) -> None:
        self._watch = watch
        self._samples: queue.SimpleQueue[Tuple[float, Status]] = queue.SimpleQueue()

    @property
    def latest(self) -> Optional[Status]:
        """The newest state, also one from before this feed was made; None before the first answer."""
        return self._watch.latest

    @property
    def latest_at(self) -> float:
        """Return the `time.monotonic()` at which `latest` has arrived."""
        return self._watch.latest_at

    def put(self, at: float, status: Status) -> None:
        self._samples.put((at, status))

    def poll(self, timeout: float = 0.0) -> Iterator[Tuple[float, Status]]:
        """Yield (epoch seconds on our clock, status) as they come, for `timeout` seconds; 0: what is there."""
        until = time.monotonic() + timeout
        while True:
            try:
                left = until - time.monotonic()
                yield self._samples.get(timeout=left) if left > 0 else self._samples.get_nowait()
            except queue.Empty:
                return


@dataclass
class ClusterWatch:
    """The one sampler of a run: the agent's lines are in `file` as they come, also those of earlier invocations.

    Use as a context manager; `feed` gives samples to a reader. A thread reads the connection to `node`, and opens it
    again when it is lost. `offset` is the node's clock minus ours, in seconds, once it is known.
    """

    ceph: Ceph
    node: str
    file: Path
    settings: Dict[str, Any]
    offset: float = 0.0
    latest: Optional[Status] = None
    latest_at: float = 0.0  # time.monotonic() of its arrival here

    def __post_init__(self) -> None:
        self._feeds: List[StatusFeed] = []
        self._state: Dict[str, Any] = {}
        self._stream: Optional[Stream] = None
        self._question_numbers = itertools.count(1)
        self._answers: Dict[int, queue.SimpleQueue[Dict[str, Any]]] = {}
        self._ended = threading.Event()
        self._thread: Optional[threading.Thread] = None
        self._warned: Dict[str, float] = {}  # text -> time.monotonic() of its last warning, since the last sample

    def __enter__(self) -> ClusterWatch:
        for line in each_json_line(self.file):
            self._add(line)
        self._ended.clear()
        self._thread = threading.Thread(target=self._follow, name="cluster watch", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    @contextlib.contextmanager
    def feed(self) -> Iterator[StatusFeed]:
        """Give a reader all samples from now on, while the context is open."""
        feed = StatusFeed(self)
        self._feeds.append(feed)
        try:
            yield feed
        finally:
            self._feeds.remove(feed)

    def ask(self, commands: Sequence[str], timeout: float) -> List[Any]:
        """Return the replies to some of QUESTIONS, over the connection that is there, else by a `ceph` command.

        That costs half a second of a processor. Raises CephError.
        """
        number, answers = next(self._question_numbers), queue.SimpleQueue[Dict[str, Any]]()
        self._answers[number] = answers
        try:
            request = {"ask": number, "questions": [QUESTIONS[command] for command in commands]}
            if self._stream is not None and self.latest is not None:
                self._stream.send(json.dumps(request) + "\n")
                answer = answers.get(timeout=min(timeout, _ANSWER))
                if "replies" in answer:
                    return list(answer["replies"])
        except (OSError, ValueError, queue.Empty):
            pass  # the connection is lost, or was closed meanwhile
        finally:
            del self._answers[number]
        return self.ceph.json_all(commands, timeout)

    def _follow(self) -> None:
        while not self._ended.is_set():
            try:
                with contextlib.closing(LineWriter(self.file, append=True)) as writer:
                    while not self._ended.is_set():
                        self._connect(writer)
            except OSError as error:  # no space in the archive, or no process to connect by
                self._warn(f"{error}; trying again")
                self._ended.wait(_REOPEN)

    def _connect(self, writer: LineWriter) -> None:
        """Follow one connection to its end, and wait until it is time for the next."""
        opened = time.monotonic()
        with contextlib.closing(self._open()) as stream:
            self._stream = stream
            try:
                while stream.open and not self._ended.is_set():
                    for _, text in stream.lines(_LOOK):
                        self._take(text, writer)
            finally:
                self._stream = None
        if not self._ended.is_set():
            why = " | ".join(stream.messages[-2:]) or "the connection ended"
            self._warn(f"{why}; connecting again")
        self._ended.wait(max(0.0, opened + _REOPEN - time.monotonic()))

    def _warn(self, text: str) -> None:
        now = time.monotonic()
        if now - self._warned.get(text, -math.inf) >= _WARN_AGAIN:
            self._warned[text] = now
            log.warning("no samples of the cluster from %s: %s", self.node, text)

    def _open(self) -> Stream:
        """Connect; the agent tells what the OSD maps have done since the last it told, and how long no sample came."""
        agent = NodeProgram(AGENT, PARTS)
        last_state = (self.settings, self._reported_epoch(), self._state.get("t"))
        words = map(shlex.quote, agent.words(json.dumps(last_state)))
        stream = self.ceph.remote.stream([self.node], f"exec {self.ceph.programs.python} {' '.join(words)}")
        stream.send(agent.text)
        return stream

    def _reported_epoch(self) -> Optional[int]:
        """Return the newest OSD map whose changes an agent has told; None where none has."""
        epoch, unreported = self._state.get("epoch"), self._state.get("unreported", 0)  # earlier agents did not say
        if isinstance(epoch, int) and isinstance(unreported, int):
            return epoch - unreported or None
        return None

    def _take(self, text: str, writer: LineWriter) -> None:
        try:
            line = json.loads(text)
            t = float(line["t"])
        except (ValueError, KeyError, TypeError):
            return  # a shell's greeting
        if "ask" in line:
            if line["ask"] in self._answers:
                self._answers[line["ask"]].put(line)
            return
        writer.write(line)
        if not self._add(line):
            return
        try:
            # unlike the rest, these are of this sample alone
            status = Status.of_state({**self._state, "daemons": _changed(line)})
        except (KeyError, TypeError, IndexError):
            return
        self.latest, self.latest_at = status, time.monotonic()
        self._warned.clear()
        for feed in list(self._feeds):
            feed.put(t - self.offset, status)

    def _add(self, line: Dict[str, Any]) -> bool:
        """Add a line to the state; False for one that is no sample."""
        if not {"version", "event", "end"}.isdisjoint(line):
            return False
        self._state.update(line)
        return True


class NoWatch(ClusterWatch):
    """For a run without Ceph's commands: there are no samples."""

    def __enter__(self) -> NoWatch:
        return self

    def ask(self, commands: Sequence[str], timeout: float) -> List[Any]:
        raise CephError("admin: none")


def _changed(line: Mapping[str, Any]) -> List[str]:
    """Return the daemons that ended and started, as text."""
    maps = line.get("map") or ()
    osds = [f"osd.{osd} {how}" for change in maps for how in _OSD_CHANGES for osd in change.get(how, ())]
    return [*osds, *(line.get("daemons") or ())]
