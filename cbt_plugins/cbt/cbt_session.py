"""The session of one cbt.py: its file, the count of its runs, and how every tree is made to run them."""

from __future__ import annotations

import atexit
import contextlib
import functools
import logging
import os
import sys
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, Callable, List, Optional, Sequence, Set

from cbt_plugins import cbt_run
from cbt_plugins.cbt import archive_layout
from cbt_plugins.cbt.archive_layout import RequestedRun, planned
from cbt_plugins.cbt.execution import EXECUTED, EXISTING, FAILED, PLANNED, Ledger, cause_of
from cbt_plugins.cbt_run import NotTrusted, RunFailed
from cbt_plugins.config.yaml_source import masked_text

logger = logging.getLogger(__name__)

#: benchmarks of CBT that leave the standard output (hsbench: the files) of their load generator in the archive;
#: cosbench leaves its results on the controller, nullbench has none, elbencho fails where its load fails
_LEAVE_OUTPUT = frozenset(
    ("cephtestrados", "fio", "getput", "hsbench", "kvmrbdfio", "librbdfio", "radosbench", "rawfio", "rbdfio")
)
#: what else these benchmarks leave: the configuration, the cluster's state, standard error of `rados bench`, the keys
#: of getput, and the log of CBT's own recovery test; all of their results have `output` in their names
_NO_RESULTS = (
    *("benchmark_config.yaml*", "ceph_settings.out*", "historic_ops.out*", "pgautoscaler.log*", "objecter.*"),
    *("gw*.cred*", "recovery.log*", "recovery_stats.log*", "recovery_backfill_stats.log*"),
)
_MONITORS_OF_CBT = ("blktrace", "collectl", "perf", "top")
#: bytes of a file that says nothing: CBT makes `{}` of an empty output
_EMPTY = 2


class Session:
    """One execution of cbt.py: its file, the count of its runs, and the answers that make each tree run them.

    Until mid 2024 cbt.py skipped a benchmark whose exists() was true; since then its run loop skips those
    whose exists() is *false*, and leaves with status 0 (cbt.py 5823498). What runs on every tree: exists() is
    false and cluster.is_teuthology, which the same `if` asks next, is true. The key is there from exists()
    until the next call on any benchmark, because cosbench and others give it further meanings.
    """

    def __init__(self, settings: Any, config_file: Path) -> None:
        self.config_file = config_file
        self.config_text = masked_text(config_file)
        self._settings = settings
        self._forced = False
        self._requested: Set[str] = set()
        self.ledger = Ledger(planned(settings.benchmarks, settings.cluster.get("iterations", 0)))
        self._pid = os.getpid()
        atexit.register(self._end)
        logging.getLogger("cbt").addFilter(_is_news)

    def force(self) -> None:
        """Make the tree's run loop run the benchmark that it asks about next."""
        if "is_teuthology" not in self._settings.cluster:
            self._settings.cluster["is_teuthology"] = self._forced = True

    def unforce(self) -> None:
        """Revert `force`."""
        if self._forced:
            del self._settings.cluster["is_teuthology"]
            self._forced = False

    def is_done(self, run: RequestedRun, benchmark: Any) -> bool:
        """Return whether an earlier invocation left results of a benchmark of CBT (ours resume inside run()).

        CBT takes a directory for a result, and makes it before the run: so this is asked once, before
        anything of this invocation is there. A run that began without coming to its end has no result, nor has
        a run that left no result file.
        """
        again = self._settings.cluster.get("is_teuthology") or _unfinished(benchmark).exists()
        again = again or self._lacks_results(run, benchmark)
        if run.fingerprint not in self._requested and not again and benchmark.exists():
            self.ledger.set(run, EXISTING)
        self._requested.add(run.fingerprint)
        return self.ledger.state(run) == EXISTING

    def adopt(self, run: RequestedRun, benchmark: Any, of_cbt: bool) -> None:
        """Make a benchmark object run on every tree, and count it; CBT's own are marked as unfinished meanwhile."""
        execute = benchmark.run
        unfinished = _unfinished(benchmark)
        if of_cbt and self.ledger.state(run) == PLANNED:
            unfinished.parent.mkdir(parents=True, exist_ok=True)
            unfinished.touch()

        def exists(expect_exists: bool = False) -> bool:
            self.force()
            return False

        def counted_run() -> None:
            self.unforce()
            current = cbt_run.current = cbt_run.CurrentRun(Path(benchmark.archive_dir))
            try:
                state = execute()
            except BaseException as error:
                self.ledger.set(run, FAILED, cause_of(error))
                if isinstance(error, NotTrusted):
                    return
                raise
            finally:
                cbt_run.current = None
            if of_cbt and current.failure:
                self.ledger.set(run, FAILED, current.failure)
                return
            if of_cbt and self._lacks_results(run, benchmark):
                self.ledger.set(run, FAILED, _left_nothing(benchmark))
                return
            self.ledger.set(run, EXECUTED if of_cbt else state)
            if of_cbt:
                _finish(unfinished)

        benchmark.exists = exists
        benchmark.run = counted_run
        for name in ("initialize", "initialize_endpoints", "prefill"):  # a tree of 2021 has no prefill
            if hasattr(benchmark, name):
                setattr(benchmark, name, self._unforced(getattr(benchmark, name)))

    def _lacks_results(self, run: RequestedRun, benchmark: Any) -> bool:
        """Return whether a folder certainly has no result of its run: CBT ignores errors of programs on nodes."""
        folder = Path(benchmark.archive_dir)
        if run.benchmark not in _LEAVE_OUTPUT or not folder.is_dir():
            return False
        monitors = {*_MONITORS_OF_CBT, *(self._settings.monitoring_profiles or {})}
        return not any(_is_result(path.relative_to(folder), path, monitors) for path in folder.rglob("*"))

    def _unforced(self, method: Callable[[], Any]) -> Callable[[], Any]:
        @functools.wraps(method)
        def call() -> Any:
            self.unforce()
            return method()

        return call

    def _end(self) -> None:
        # cbt.py knows 0 and 1 only, and 0 also means "skipped everything". An exit handler sees every way out
        # of every tree: raising in the run loop instead would cost the runs that come after, and trees that
        # reuse the first loop's objects do not come back to the factory at all. Exit handlers cannot change
        # the status, os._exit can.
        if os.getpid() != self._pid:
            return
        self.unforce()
        for line in self.ledger.lines():
            logger.log(logging.INFO if self.ledger.fulfilled else logging.ERROR, "%s", line)
        if not self.ledger.fulfilled:
            logging.shutdown()
            for stream in filter(None, (sys.stdout, sys.stderr)):  # None: it was closed (`2>&-`)
                with contextlib.suppress(OSError):
                    stream.flush()
            os._exit(1)


def _is_news(record: logging.LogRecord) -> bool:
    """Drop the traceback that cbt.py logs for an error of which the ledger says all that is for users."""
    error = record.exc_info[1] if record.exc_info else None
    return not isinstance(error, (RunFailed, KeyboardInterrupt))


def _is_result(name: Path, path: Path, monitors: Set[str]) -> bool:
    """Return whether a file can be the result of a benchmark of CBT; when in doubt it can."""
    if not path.is_file() or path.stat().st_size <= _EMPTY:
        return False
    if "output" in name.name:  # also in a workload that has the name of a monitor
        return True
    of_monitor = any(part.split(".")[0] in monitors or "_monitoring" in part for part in name.parts[:-1])
    return not of_monitor and not any(fnmatch(name.name, pattern) for pattern in _NO_RESULTS)


def _left_nothing(benchmark: Any) -> str:
    return f"left no result file in {benchmark.archive_dir}: is its load generator installed on the clients?"


def _unfinished(benchmark: Any) -> Path:
    """Return the file that marks a run as unfinished; the run's own directory may not exist yet."""
    directory = Path(benchmark.archive_dir)
    return directory.parent.parent / ".unfinished" / f"{directory.parent.name}-{directory.name}"


def _finish(unfinished: Path) -> None:
    """Remove the mark of an unfinished run, and the folder of such marks with the last one."""
    unfinished.unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        unfinished.parent.rmdir()


_session: Optional[Session] = None
_every_file = False


def begin(settings: Any, config_file: Path) -> None:
    """Begin the session of this process."""
    global _session
    _session = Session(settings, config_file)


def session() -> Optional[Session]:
    """Return the session of this process; None in compare.py, in CBT's tools and tests, and for files without us."""
    return _session


def count_every_file() -> None:
    """Lead also a file that has nothing of ours: it was given to our own command."""
    global _every_file
    _every_file = True


def leads(config_file: Path) -> bool:
    """Return whether this process has a session for this file."""
    return _every_file or archive_layout.has_ours(config_file)


def monitors_of_tree() -> Sequence[Any]:
    """Return new monitor objects for all profiles of the file, in either era."""
    package = sys.modules.get("monitoring.monitoring_factory")
    if package:
        return list(package.MonitoringFactory.get_all())
    monitors: List[Any] = list(sys.modules["monitoring"].Monitoring._get_all())
    return monitors
