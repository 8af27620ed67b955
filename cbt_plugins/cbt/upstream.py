"""What the import hook changes in CBT's modules, for every tree from early 2022 on."""

from __future__ import annotations

import atexit
import difflib
import functools
import logging
import os
import sys
from pathlib import Path
from types import FrameType
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Set

from cbt_plugins.cbt.layout import Planned, planned
from cbt_plugins.cbt.ledger import EXECUTED, EXISTING, FAILED, PLANNED, Ledger
from cbt_plugins.cbt.preconditions import FAULTS_STATUS, faults_of
from cbt_plugins.config import registry

logger = logging.getLogger(__name__)


class Session:
    """One execution of cbt.py: its file, its count of runs, and the answer that makes each tree run it.

    Until mid 2024 cbt.py skipped a benchmark whose exists() was true; since then its run loop skips those
    whose exists() is *false*, and leaves with status 0 (cbt.py 5823498). What runs on every tree: exists() is
    false and cluster.is_teuthology, which the same `if` asks next, is true. The key is there from exists()
    until the next call on any benchmark, because cosbench and others give it further meanings.
    """

    def __init__(self, settings: Any, config_file: Path) -> None:
        self.config_file = config_file
        self._settings = settings
        self._forced = False
        self._asked: Set[str] = set()
        self.ledger = Ledger(planned(settings.benchmarks, settings.cluster.get("iterations", 0)))
        self.running: Optional[Path] = None  # the archive directory of the run under way
        self.flaw: Optional[str] = None  # why it is none although it comes to its end
        self._pid = os.getpid()
        atexit.register(self._end)

    def force(self) -> None:
        if "is_teuthology" not in self._settings.cluster:
            self._settings.cluster["is_teuthology"] = self._forced = True

    def unforce(self) -> None:
        if self._forced:
            del self._settings.cluster["is_teuthology"]
            self._forced = False

    def is_done(self, run: Planned, benchmark: Any) -> bool:
        """CBT's own benchmarks: results of an earlier invocation exist (ours resume inside run()).

        CBT takes a directory for a result, and makes it before the run: so this is asked once, before
        anything of this invocation is there, and a run that began without coming to its end is none.
        """
        again = self._settings.cluster.get("is_teuthology") or _unfinished(benchmark).exists()
        if run.fingerprint not in self._asked and not again and benchmark.exists():
            self.ledger.set(run, EXISTING)
        self._asked.add(run.fingerprint)
        return self.ledger.state(run) == EXISTING

    def adopt(self, run: Planned, benchmark: Any, foreign: bool) -> None:
        """Let this object run on every tree, and count it; CBT's own is marked until it is through."""
        execute = benchmark.run
        unfinished = _unfinished(benchmark)
        if foreign and self.ledger.state(run) == PLANNED:
            unfinished.parent.mkdir(parents=True, exist_ok=True)
            unfinished.touch()

        def exists(expect_exists: bool = False) -> bool:
            self.force()
            return False

        def counted_run() -> None:
            self.unforce()
            self.running, self.flaw = Path(benchmark.archive_dir), None
            try:
                execute()
            except BaseException as error:
                self.ledger.set(run, FAILED, f"{type(error).__name__}: {error}".rstrip(": "))
                raise
            finally:
                self.running = None
            if foreign and self.flaw:
                self.ledger.set(run, FAILED, self.flaw)
                return
            self.ledger.set(run, EXECUTED)
            if unfinished.exists():
                unfinished.unlink()

        benchmark.exists = exists
        benchmark.run = counted_run
        for name in ("initialize", "initialize_endpoints", "prefill"):
            setattr(benchmark, name, self._unforced(getattr(benchmark, name)))

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
            for stream in (sys.stdout, sys.stderr):
                stream.flush()
            os._exit(1)


def _unfinished(benchmark: Any) -> Path:
    """Marks a run that has begun; beside the iterations: the run's own directory may not exist yet."""
    directory = Path(benchmark.archive_dir)
    return directory.parent.parent / ".unfinished" / f"{directory.parent.name}-{directory.name}"


#: the session of this process; None in compare.py and in CBT's tools and tests
_session: Optional[Session] = None


def session() -> Optional[Session]:
    return _session


def patch_settings(settings: Any) -> None:
    """Check the file before cbt.py reads it: a bad one has touched neither the cluster nor the archive."""
    initialize = settings.initialize

    @functools.wraps(initialize)
    def checked_initialize(ctx: Any) -> None:
        global _session
        if not _is_cbt_main(sys._getframe(1)):
            initialize(ctx)
            _share_handlers()
            return
        faults = faults_of(Path(ctx.config_file))
        if faults:
            print("\n".join(faults), file=sys.stderr)
            sys.exit(FAULTS_STATUS)
        initialize(ctx)
        _share_handlers()
        _warn_of_stale_config(settings, Path(ctx.config_file))
        _session = Session(settings, Path(ctx.config_file).resolve())

    settings.initialize = checked_initialize


def _is_cbt_main(caller: FrameType) -> bool:
    return os.path.basename(caller.f_code.co_filename) == "cbt.py" and caller.f_code.co_name == "main"


def _share_handlers() -> None:
    """What our modules log goes where CBT's log goes."""
    ours, theirs = logging.getLogger("cbt_plugins"), logging.getLogger("cbt")
    ours.setLevel(theirs.level)
    for handler in theirs.handlers:
        ours.addHandler(handler)


def _warn_of_stale_config(settings: Any, config_file: Path) -> None:
    """CBT keeps the results/cbt_config.yaml that an archive was started with; compare.py reads that one."""
    import yaml

    saved = Path(settings.cluster["archive_dir"]) / "results" / "cbt_config.yaml"
    if (yaml.safe_load(saved.read_text()) or {}).get("benchmarks") != settings.benchmarks:
        logger.warning(
            "%s has other benchmarks than %s: this archive was started with another file", saved, config_file
        )


def patch_benchmarkfactory(factory: Any) -> None:
    """Our names first: CBT's get_object makes None of every KeyError, also of one inside a constructor."""
    theirs: Callable[..., Any] = factory.get_object
    all_of: Callable[..., Iterator[Any]] = factory.get_all
    ours = registry.loaders(registry.BENCHMARKS)
    classes: Dict[str, type] = {}

    @functools.wraps(theirs)
    def get_object(archive: str, cluster: Any, benchmark: str, bconfig: Dict[str, Any]) -> Any:
        run = Planned(benchmark, bconfig.get("iteration", 0), dict(bconfig))  # constructors change bconfig
        if _session:
            _session.unforce()
        if benchmark in ours:
            if benchmark not in classes:
                classes[benchmark] = _benchmark_class(benchmark, ours[benchmark])
            made = classes[benchmark](archive, cluster, bconfig)
        else:
            made = theirs(archive, cluster, benchmark, bconfig)
        if made is None:
            raise ValueError(_unknown(benchmark, ours, Path(factory.__file__ or "").parent))
        made_for[id(made)] = (made, run)
        return made

    #: object -> the run it is for; the object itself keeps its id from being given to another one
    made_for: Dict[int, Any] = {}

    @functools.wraps(all_of)
    def get_all(archive: str, cluster: Any, iteration: int) -> Iterator[Any]:
        for made in all_of(archive, cluster, iteration):
            _, run = made_for.pop(id(made))
            if _session and _session.ledger.knows(run):
                foreign = run.benchmark not in ours
                if foreign and _session.is_done(run, made):
                    continue
                _session.adopt(run, made, foreign)
            yield made
            if _session:
                _session.unforce()

    factory.get_object = get_object
    factory.get_all = get_all


def _benchmark_class(name: str, load: Callable[[], Any]) -> type:
    """A subclass of this tree's own Benchmark: ids, directories and whatever cbt.py asks for are its own."""
    from cbt_plugins.cbt.delegate import Delegate

    base = sys.modules["benchmark.benchmark"].Benchmark
    # cbt.py initializes once per class *name*: it has to be unique.
    return type(f"Plugin_{name}", (Delegate, base), {"load": staticmethod(load)})


def _unknown(name: str, ours: Mapping[str, Any], tree: Path) -> str:
    known = sorted(
        set(ours)
        | {path.stem for path in (tree / "benchmark").glob("*.py")} - {"__init__", "benchmark", "lis"}
    )
    near = difflib.get_close_matches(name, known, 1)
    return (
        f"benchmarks: {name}: CBT does not know the name, or its constructor misses a key"
        + (f"; did you mean {near[0]}?" if near and near[0] != name else "")
        + f" Plug-ins here: {', '.join(sorted(ours))}"
    )


def patch_monitoring(module: Any) -> None:
    """The module era, until mid 2026; the later package has its factory in a module of its own."""
    if not hasattr(module, "Monitoring") or not hasattr(module.Monitoring, "_get_object"):
        return
    theirs: Callable[..., Any] = module.Monitoring._get_object
    ours = registry.loaders(registry.MONITORS)

    def _get_object(monitoring: str, mconfig: Optional[Mapping[str, Any]]) -> Any:
        made = _monitor_of(monitoring, mconfig, ours, module.Monitoring) or theirs(monitoring, mconfig or {})
        if made is None:
            raise ValueError(
                f"monitoring_profiles: {monitoring}: nobody knows this profile; "
                f"plug-ins here: {', '.join(sorted(ours)) or 'none'}"
            )
        return made

    all_of: Callable[[], Iterator[Any]] = module.Monitoring._get_all
    module.Monitoring._get_object = staticmethod(_get_object)
    module.Monitoring._get_all = staticmethod(lambda: _around(all_of()))


def patch_monitoring_factory(module: Any) -> None:
    """The package era: MonitoringFactory has get_object, and cbt.py calls the class."""
    factory = module.MonitoringFactory
    theirs: Callable[..., Any] = factory.get_object
    ours = registry.loaders(registry.MONITORS)

    def get_object(cls: type, name: str, mconfig: Optional[Mapping[str, Any]]) -> Any:
        return _monitor_of(name, mconfig, ours, module.Monitoring) or theirs(name, mconfig or {})

    all_of: Callable[[], Iterator[Any]] = factory.get_all
    factory.get_object = classmethod(get_object)
    factory.get_all = classmethod(lambda cls: _around(all_of()))


def _around(monitors: Iterator[Any]) -> Iterator[Any]:
    from cbt_plugins.cbt.delegate import around

    return around(monitors)


def _monitor_of(
    name: str, config: Optional[Mapping[str, Any]], ours: Mapping[str, Callable[[], Any]], base: type
) -> Any:
    if name not in ours:
        return None
    from cbt_plugins.cbt.delegate import monitor_class

    return monitor_class(name, ours[name], base)(config or {})


def monitors_of_tree() -> Sequence[Any]:
    """Fresh monitor objects for all profiles of the file, in either era."""
    package = sys.modules.get("monitoring.monitoring_factory")
    if package:
        return list(package.MonitoringFactory.get_all())
    made: List[Any] = list(sys.modules["monitoring"].Monitoring._get_all())
    return made
