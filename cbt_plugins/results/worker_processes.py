"""Processes that read parts of an archive, one for each processor. They end with the process that asked for them."""

from __future__ import annotations

import concurrent.futures
import contextlib
import multiprocessing
import os
import threading
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any, Callable, Dict, Hashable, Iterable, Iterator, List, Optional, Sequence, Set

from cbt_plugins.archive_files import Rules, obey, rules
from cbt_plugins.results.result_file import Unreadable

#: bytes of a block that each process gets and frees at its start. glibc then keeps smaller blocks that are freed
#: (mallopt(3)); else it returns them to the kernel, and each page of the next numpy array costs a page fault
_KEPT = 16 << 20
#: bytes of monitors' files from which on other processes are worth their start
MANY = 8 << 20


def most_workers() -> int:
    """Return the number of processors."""
    return os.cpu_count() or 1


@contextlib.contextmanager
def worker_processes(number: int, threads: bool = False) -> Iterator[concurrent.futures.Executor]:
    """Give up to so many processes, which are started when they get work. Raises Unreadable when one was killed.

    `threads`: this process has threads, as DuckDB makes them; a process that has threads must not fork.
    """
    context: Optional[multiprocessing.context.SpawnContext] = multiprocessing.get_context("spawn") if threads else None
    pool = concurrent.futures.ProcessPoolExecutor(number, context, initializer=_start, initargs=(rules(),))
    try:
        yield pool
    except BrokenProcessPool as e:
        raise Unreadable("a process that read a part of the archive was killed: is there enough memory?") from e
    finally:
        pool.shutdown(cancel_futures=True)


@contextlib.contextmanager
def mapping_of(files: Iterable[Path], tasks: int) -> Iterator[Callable[..., Iterator[Any]]]:
    """Give a `map` for so many tasks, which uses all processors when there is much to read."""
    if sum(path.stat().st_size for path in files if path.exists()) <= MANY:
        yield map
    else:
        with worker_processes(min(tasks, most_workers())) as pool:
            yield pool.map


def groups_of(keys: Sequence[Set[Hashable]]) -> List[List[int]]:
    """Return the numbers of things in groups: two things that have a key in common are in one group."""
    before = list(range(len(keys)))  # an earlier thing of the group; the first one has itself

    def first(number: int) -> int:
        while before[number] != number:
            number = before[number]
        return number

    thing_of_key: Dict[Hashable, int] = {}
    for number, keys_of_thing in enumerate(keys):
        for key in keys_of_thing:
            low, high = sorted((first(number), first(thing_of_key.setdefault(key, number))))
            before[high] = low
    groups: Dict[int, List[int]] = {}
    for number in range(len(keys)):
        groups.setdefault(first(number), []).append(number)
    return list(groups.values())


def _start(parents_rules: Rules) -> None:
    bytes(_KEPT)
    obey(parents_rules)  # only a process that was forked has them
    _end_with_parent()


def _end_with_parent() -> None:
    """End this process when its parent does: kill -9 of the parent would leave it waiting for work for ever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_wait_and_end, args=(parent,), daemon=True).start()


def _wait_and_end(parent: multiprocessing.process.BaseProcess) -> None:
    parent.join()
    os._exit(1)
