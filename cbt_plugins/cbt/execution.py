"""Execution of runs, the same for both hosts: one run, and the count of all of them."""

from __future__ import annotations

import contextlib
import json
import logging
import threading
from collections import Counter
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, Iterator, List, Tuple

from cbt_plugins.cbt.archive_layout import RequestedRun, write_once
from cbt_plugins.cbt_run import CbtRun, NotTrusted, RunFailed
from cbt_plugins.journal import disk_full

logger = logging.getLogger(__name__)

COMPLETE = "complete"
#: seconds that a thread which the run has left behind gets to end
THREAD_TIMEOUT = 5.0

PLANNED, EXECUTED, EXISTING, FAILED = "not executed", "executed", "existing", "failed"


def execute_unless_complete(run: CbtRun, load: Callable[[], Any]) -> str:
    """Run `load()(run).run()` unless the archive says that this run is complete; returns EXECUTED or EXISTING.

    Raises RunFailed.
    """
    name = f"{run.benchmark} {run.archive_dir.parent.name}/{run.archive_dir.name}"
    # CBT asks "does the directory exist?", which is true for half a run as well: the marker is written last.
    if (run.archive_dir / COMPLETE).exists():
        check = getattr(load()(run), "check_complete", None)  # those of third parties may have none
        if check:
            with _full_disk_named(run.archive_dir):
                check()
        logger.info("%s: already complete, nothing to do", name)
        _complain_again(run.archive_dir / COMPLETE)
        return EXISTING
    before = set(threading.enumerate())
    try:
        with _full_disk_named(run.archive_dir):
            write_once(run.archive_dir / "benchmark_config.yaml", {"cluster": dict(run.config)})
            logger.info("%s: starting; results in %s", name, run.archive_dir)
            load()(run).run()
    except RunFailed:
        logger.info("%s: failed", name)  # the ledger says why, once, at the end
        raise
    finally:
        _warn_of_threads(name, before)
    logger.info("%s: done", name)
    return EXECUTED


@contextlib.contextmanager
def _full_disk_named(folder: Path) -> Iterator[None]:
    """Raise RunFailed with what to do where the disk under a folder is full."""
    try:
        yield
    except OSError as error:
        full = disk_full(error, folder)
        if full:
            raise RunFailed(full) from error
        raise


def cause_of(error: BaseException) -> str:
    """Return the reason why a run has no result, for people; a cause a line."""
    if isinstance(error, RunFailed):
        return str(error)
    if isinstance(error, KeyboardInterrupt):
        return "interrupted"
    return f"{type(error).__name__}: {error}".rstrip(": ")


def _complain_again(marker: Path) -> None:
    """Raise NotTrusted again for a run that is complete and not to be trusted."""
    try:
        degraded = json.loads(marker.read_text()).get("degraded")
    except (ValueError, AttributeError):
        return  # of a benchmark that writes something else there
    if degraded:
        raise NotTrusted(f"complete, but not to be trusted: {', '.join(map(str, degraded))} (see the report)")


def _warn_of_threads(name: str, before: set[threading.Thread]) -> None:
    # CBT's Ceph.wait_recovery_done waits until this process has one thread only: any other hangs it for ever.
    left = [thread for thread in threading.enumerate() if thread not in before]
    for thread in left:
        thread.join(timeout=THREAD_TIMEOUT)
    alive = [thread.name for thread in left if thread.is_alive()]
    if alive:
        logger.error("%s: left threads running, which can hang CBT's recovery tests: %s", name, ", ".join(alive))


class Ledger:
    """The state of every planned run. Equal permutations have one id and one directory: they are one run."""

    def __init__(self, runs: Iterable[RequestedRun]) -> None:
        self._runs: Dict[str, Tuple[RequestedRun, str]] = {run.fingerprint: (run, PLANNED) for run in runs}
        self._failures: Dict[str, str] = {}

    def knows(self, run: RequestedRun) -> bool:
        """Return whether the run is a planned one."""
        return run.fingerprint in self._runs

    def state(self, run: RequestedRun) -> str:
        """Return PLANNED, EXECUTED, EXISTING or FAILED."""
        return self._runs[run.fingerprint][1]

    def set(self, run: RequestedRun, state: str, why: str = "") -> None:
        """Set a run's state, and why it failed."""
        self._runs[run.fingerprint] = (run, state)
        if why:
            self._failures[run.fingerprint] = why

    @property
    def fulfilled(self) -> bool:
        """Whether every planned run has a result."""
        return all(state in (EXECUTED, EXISTING) for _, state in self._runs.values())

    def lines(self) -> List[str]:
        """Return the count for people: one line, then one line for each run without a result."""
        counts = Counter(state for _, state in self._runs.values())
        parts = [f"{counts[EXECUTED]} of {len(self._runs)} planned runs executed"]
        parts += [f"{counts[EXISTING]} skipped (their results exist)"] if counts[EXISTING] else []
        parts += [f"{counts[FAILED]} failed"] if counts[FAILED] else []
        waiting = " (nothing runs after a failure)" if counts[FAILED] else ""
        parts += [f"{counts[PLANNED]} not executed{waiting}"] if counts[PLANNED] else []
        lines = [", ".join(parts)]
        for fingerprint, (run, state) in self._runs.items():
            if state in (PLANNED, FAILED):
                keys = ", ".join(f"{key}={value}" for key, value in run.config.items() if not _is_long(key, value))
                lines.append(
                    f"{state}: {run.benchmark}, iteration {run.iteration}"
                    + (f" ({keys})" if keys else "")
                    + _indented(self._failures.get(fingerprint, ""))
                )
        return lines


def _indented(why: str) -> str:
    """Return one cause after a colon, several on lines of their own."""
    causes = why.splitlines()
    return "".join(f"\n  {cause}" for cause in causes) if len(causes) > 1 else f": {why}" if why else ""


def _is_long(key: str, value: object) -> bool:
    return key in ("benchmark", "iteration", "acceptable") or isinstance(value, (dict, list))
