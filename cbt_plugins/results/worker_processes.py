"""Processes that read parts of an archive, one for each processor. They end with the process that asked for them."""

from __future__ import annotations

import concurrent.futures
import contextlib
import multiprocessing
import os
import threading
from concurrent.futures.process import BrokenProcessPool
from typing import Iterator, Optional

from cbt_plugins.results.result_file import Unreadable

#: bytes of a block that each process gets and frees at its start. glibc then keeps smaller blocks that are freed
#: (mallopt(3)); else it returns them to the kernel, and each page of the next numpy array costs a page fault
_KEPT = 16 << 20


def most_workers() -> int:
    """Return the number of processors."""
    return os.cpu_count() or 1


@contextlib.contextmanager
def worker_processes(number: int, threads: bool = False) -> Iterator[concurrent.futures.Executor]:
    """Give up to so many processes, which are started when they get work. Raises Unreadable when one was killed.

    `threads`: this process has threads, as DuckDB makes them; a process that has threads must not fork.
    """
    context: Optional[multiprocessing.context.SpawnContext] = multiprocessing.get_context("spawn") if threads else None
    pool = concurrent.futures.ProcessPoolExecutor(number, context, initializer=_start)
    try:
        yield pool
    except BrokenProcessPool as e:
        raise Unreadable("a process that read a part of the archive was killed: is there enough memory?") from e
    finally:
        pool.shutdown(cancel_futures=True)


def _start() -> None:
    bytes(_KEPT)
    _end_with_parent()


def _end_with_parent() -> None:
    """End this process when its parent does: kill -9 of the parent would leave it waiting for work for ever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_wait_and_end, args=(parent,), daemon=True).start()


def _wait_and_end(parent: multiprocessing.process.BaseProcess) -> None:
    parent.join()
    os._exit(1)
