"""Patches of CBT's modules by the import hook, for every tree from 2021 on.

A file that names no benchmark and no monitor of a plug-in has no session: CBT runs it as it would without us.
"""

from __future__ import annotations

import difflib
import functools
import logging
import os
import sys
from pathlib import Path
from types import FrameType
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional

from cbt_plugins.cbt.archive_layout import RequestedRun, errors_of, refuse, saved_file
from cbt_plugins.cbt.cbt_session import begin, leads, session
from cbt_plugins.cbt.delegate import Delegate, around, monitor_class
from cbt_plugins.cbt.unread_keys import unread_keys
from cbt_plugins.config import plugins
from cbt_plugins.config.yaml_source import read

logger = logging.getLogger(__name__)


#: why a tree cannot run what is ours; shown for files that ask for it only
_unpatched: List[str] = []


def patch(name: str, module: Any) -> None:
    """Call a patch of this module; a tree that it does not fit stays as it is."""
    try:
        globals()[name](module)
    except Exception as error:
        why = f"{type(error).__name__}: {error}"
        _unpatched.append(f"{module.__file__}: cbt-plugins does not fit this CBT tree ({why})")


def patch_settings(settings: Any) -> None:
    """Check the file before cbt.py reads it, so that an error changes neither the cluster nor the archive."""
    initialize = settings.initialize

    @functools.wraps(initialize)
    def checked_initialize(ctx: Any) -> None:
        _join_logs()
        if not _is_cbt_main(sys._getframe(1)) or not leads(Path(ctx.config_file)):
            initialize(ctx)
            return
        errors = errors_of(Path(ctx.config_file)) or _unpatched
        if errors:
            sys.exit(refuse(errors))
        initialize(ctx)
        _warn_of_stale_config(settings, Path(ctx.config_file))
        for warning in unread_keys(read(Path(ctx.config_file)), Path(settings.__file__).resolve().parent):
            logger.warning("%s", warning)
        begin(settings, Path(ctx.config_file).resolve())

    settings.initialize = checked_initialize


def _is_cbt_main(caller: FrameType) -> bool:
    return os.path.basename(caller.f_code.co_filename) == "cbt.py" and caller.f_code.co_name == "main"


def _join_logs() -> None:
    """Send the log of our modules where CBT's log goes, also to what CBT opens later (cbt.log in the archive)."""
    logging.getLogger("cbt_plugins").parent = logging.getLogger("cbt")


def _warn_of_stale_config(settings: Any, config_file: Path) -> None:
    """Warn of another file than the one that the archive was started with, which is what compare.py reads."""
    saved = Path(settings.cluster["archive_dir"]) / "results" / "cbt_config.yaml"
    if (saved_file(saved) or {}).get("benchmarks") != settings.benchmarks:
        logger.warning(
            "%s has other benchmarks than %s: this archive was started with another file", saved, config_file
        )


def patch_benchmarkfactory(factory: Any) -> None:
    """Look our benchmarks up first: CBT's get_object returns None for every KeyError, also of a constructor."""
    cbt_get_object: Callable[..., Any] = factory.get_object
    all_of: Callable[..., Iterator[Any]] = factory.get_all
    ours = plugins.loaders(plugins.BENCHMARKS)
    classes: Dict[str, type] = {}

    @functools.wraps(cbt_get_object)
    def get_object(archive: str, cluster: Any, benchmark: str, bconfig: Dict[str, Any]) -> Any:
        run = RequestedRun(benchmark, bconfig.get("iteration", 0), dict(bconfig))  # constructors change bconfig
        current = session()
        if current:
            current.unforce()
        elif benchmark not in ours and not difflib.get_close_matches(benchmark, ours, 1):
            return cbt_get_object(archive, cluster, benchmark, bconfig)
        if benchmark in ours:
            if benchmark not in classes:
                classes[benchmark] = _benchmark_class(benchmark, ours[benchmark])
            benchmark_object = classes[benchmark](archive, cluster, bconfig)
        else:
            benchmark_object = cbt_get_object(archive, cluster, benchmark, bconfig)
        if benchmark_object is None:
            raise ValueError(_unknown(benchmark, ours, Path(factory.__file__ or "").parent))
        if current:
            runs_by_id[id(benchmark_object)] = (benchmark_object, run)
        return benchmark_object

    #: object -> the run it is for; the object itself keeps its id from being given to another one
    runs_by_id: Dict[int, Any] = {}

    @functools.wraps(all_of)
    def get_all(archive: str, cluster: Any, iteration: int) -> Iterator[Any]:
        current = session()
        if not current:
            yield from all_of(archive, cluster, iteration)
            return
        for benchmark_object in all_of(archive, cluster, iteration):
            _, run = runs_by_id.pop(id(benchmark_object))
            if current.ledger.knows(run):
                of_cbt = run.benchmark not in ours
                if of_cbt and current.is_done(run, benchmark_object):
                    continue
                current.adopt(run, benchmark_object, of_cbt)
            yield benchmark_object
            current.unforce()

    factory.get_object = get_object
    factory.get_all = get_all


def _benchmark_class(name: str, load: Callable[[], Any]) -> type:
    """Return a subclass of this tree's own Benchmark: ids, directories and other answers to cbt.py are its own."""
    base = sys.modules["benchmark.benchmark"].Benchmark
    # cbt.py initializes once per class *name*: it has to be unique.
    return type(f"Plugin_{name}", (Delegate, base), {"load": staticmethod(load)})


def _unknown(name: str, ours: Mapping[str, Any], tree: Path) -> str:
    own = {path.stem for path in (tree / "benchmark").glob("*.py")} - {"__init__", "benchmark", "lis"}
    names = sorted(set(ours) | own)
    near = difflib.get_close_matches(name, names, 1)
    return (
        f"benchmarks: {name}: unknown to CBT, or its constructor misses a key"
        + (f"; did you mean {near[0]}?" if near and near[0] != name else "")
        + f"; plug-ins: {', '.join(sorted(ours))}"
    )


def patch_monitoring(module: Any) -> None:
    """Patch the module era, until mid 2026; in the later package the factory is a module of its own."""
    if not hasattr(module, "Monitoring") or not hasattr(module.Monitoring, "_get_object"):
        return
    cbt_get_object: Callable[..., Any] = module.Monitoring._get_object
    ours = plugins.loaders(plugins.MONITORS)

    def _get_object(monitoring: str, mconfig: Optional[Mapping[str, Any]]) -> Any:
        monitor = _monitor_of(monitoring, mconfig, ours, module.Monitoring) or cbt_get_object(
            monitoring, _filled(mconfig)
        )
        if monitor is None and session():
            raise ValueError(
                f"monitoring_profiles: {monitoring}: unknown profile; plug-ins: {', '.join(sorted(ours)) or 'none'}"
            )
        return monitor

    all_of: Callable[[], Iterator[Any]] = module.Monitoring._get_all
    module.Monitoring._get_object = staticmethod(_get_object)
    module.Monitoring._get_all = staticmethod(lambda: around(all_of()))


def patch_monitoring_factory(module: Any) -> None:
    """Patch the package era: MonitoringFactory has get_object, and cbt.py calls the class.

    Its registry has our profiles too, for what looks a name up there. Ours never reach the registry's own call, which
    takes every KeyError of a constructor for an unknown name.
    """
    factory = module.MonitoringFactory
    cbt_get_object: Callable[..., Any] = factory.get_object
    ours = plugins.loaders(plugins.MONITORS)

    def get_object(cls: type, name: str, mconfig: Optional[Mapping[str, Any]]) -> Any:
        return _monitor_of(name, mconfig, ours, module.Monitoring) or cbt_get_object(name, _filled(mconfig))

    registry_of_tree = getattr(factory, "_REGISTRY", {})
    for profile in ours:
        registry_of_tree[profile] = functools.partial(_monitor_of, profile, ours=ours, base=module.Monitoring)
    all_of: Callable[[], Iterator[Any]] = factory.get_all
    factory.get_object = classmethod(get_object)
    factory.get_all = classmethod(lambda cls: around(all_of()))


def _filled(config: Optional[Mapping[str, Any]]) -> Optional[Mapping[str, Any]]:
    """Return a profile of CBT's own: where we lead, one without a value is one without keys."""
    return config or {} if session() else config


def _monitor_of(
    name: str, config: Optional[Mapping[str, Any]], ours: Mapping[str, Callable[[], Any]], base: type
) -> Any:
    if name not in ours:
        return None
    return monitor_class(name, ours[name], base)(config or {})
