"""Classes that a CBT tree instantiates, and that delegate to our benchmarks and monitors."""

from __future__ import annotations

import copy
import logging
import sys
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Callable, ClassVar, Dict, Iterable, Iterator, List, Mapping, Optional, Tuple

from cbt_plugins.cbt import archive_layout, checkout
from cbt_plugins.cbt.cbt_session import monitors_of_tree, session
from cbt_plugins.cbt.compare_check import check_of
from cbt_plugins.cbt.execution import COMPLETE, execute_unless_complete
from cbt_plugins.cbt_run import CbtRun
from cbt_plugins.config.plan_preview import forecast
from cbt_plugins.config.section_to_plan import understand
from cbt_plugins.monitor import Monitor
from cbt_plugins.monitors import lifecycle

logger = logging.getLogger(__name__)


class Delegate:
    """Our side of a benchmark class of the tree, before the tree's own Benchmark in the method resolution order.

    run() does not call the base class's: that one removes a directory which all permutations share on every
    node, and writes a read-ahead into each OSD's /sys, also where nobody asked for one.
    """

    load: Callable[[], Any]
    archive_dir: str  # the tree's Benchmark sets these
    config: Dict[str, Any]
    acceptable: Mapping[str, Any]
    cluster: Any

    def exists(self, expect_exists: bool = False) -> bool:
        """Return whether the run exists, for compare.py; in cbt.py the session answers.

        Where a run does not exist compare.py ends the iteration and counts nothing, which then looks like success:
        so what is judged exists as soon as it has begun, and in the archive under test always.
        """
        directory = Path(self.archive_dir)
        if expect_exists and check_of(self.load()):
            settings: Any = sys.modules["settings"]
            return directory.is_dir() or Path(settings.cluster["archive_dir"]) in directory.parents
        return (directory / COMPLETE).exists()

    def initialize(self) -> None:
        """Build the cluster where a tree leaves that to its benchmarks (2021), which also remove tmp_dir everywhere."""
        settings: Any = sys.modules["settings"]
        if not hasattr(self, "prefill") and not settings.cluster.get("use_existing", True):
            self.cluster.initialize()

    def estimate_duration(self) -> int:
        """Return the seconds of all phases that have a duration, for CBT's progress bars; 0 for a complete run."""
        settings: Any = sys.modules["settings"]
        if (Path(self.archive_dir) / COMPLETE).exists():
            return 0
        plan, _ = understand(
            self.config["benchmark"], self.config, settings.cluster, settings.client_endpoints or {}
        )
        return round(forecast(plan).seconds) if plan else 0

    def run(self) -> str:
        """Run what is not complete yet; returns EXECUTED or EXISTING for the session, which cbt.py ignores."""
        return execute_unless_complete(self._cbt_run(), self.load)

    def evaluate(self, baseline: Any) -> List[Any]:
        """Return, for compare.py, how this run is judged beside the baseline, as the tree's Result objects."""
        check_run = check_of(self.load())
        own_folder, baseline_folder = Path(self.archive_dir), Path(baseline.archive_dir)
        judged = list(check_run(str(self), own_folder, baseline_folder, self.acceptable)) if check_run else []
        if not judged:
            text = "%s: no number is judged without `acceptable:`; see the reports of %s and %s"
            logger.info(text, self.config["benchmark"], own_folder, baseline_folder)
        result = sys.modules["benchmark.benchmark"].Result
        return [
            result(
                judgement.run, judgement.alias, judgement.result, judgement.baseline, judgement.stmt, judgement.accepted
            )
            for judgement in judged
        ]

    def __str__(self) -> str:
        return f"{self.config['benchmark']} {Path(self.archive_dir).name}"

    def _cbt_run(self) -> CbtRun:
        settings: Any = sys.modules["settings"]
        directory = Path(self.archive_dir)
        directory.mkdir(parents=True, exist_ok=True)
        benchmark = self.config["benchmark"]
        identity = archive_layout.begun_or_new(directory)
        run_dir = archive_layout.run_dir(settings.cluster["tmp_dir"], benchmark, directory, identity)
        common = getattr(settings, "common", None) or {}
        current = session()

        def monitors(
            local_dir: Path, *without: str, acting: Optional[bool] = None, reconnects: Optional[bool] = None
        ) -> AbstractContextManager[None]:
            def make() -> List[Any]:
                wanted = (monitor for monitor in monitors_of_tree() if getattr(monitor, "PROFILE", None) not in without)
                return lifecycle.select_monitors(wanted, acting, reconnects)

            return lifecycle.watch(make, settings.cluster, common, run_dir, local_dir)

        return CbtRun(
            benchmark=benchmark,
            config=dict(self.config),
            iteration=self.config["iteration"],
            archive_dir=directory,
            run_dir=run_dir,
            run_id=identity,
            cluster=dict(settings.cluster),
            common=dict(common),
            endpoints=dict(settings.client_endpoints or {}),
            config_file=current.config_file if current else None,
            checkout=checkout.describe(Path(settings.__file__).resolve().parent),
            monitors=monitors,
            profiles=dict(getattr(settings, "monitoring_profiles", None) or {}),
            config_text=current.config_text if current else None,
        )


#: (profile, directory) -> our object: CBT makes a new one for each start and each stop
_watching: Dict[Tuple[str, str], Monitor] = {}


def monitor_class(name: str, load: Callable[[], Any], base: type) -> type:
    """Return a subclass of the tree's Monitoring for one of our monitors, in both eras."""

    class PluginMonitoring(base):
        PROFILE: ClassVar[str] = name
        DEFAULT_NODES: ClassVar[List[str]] = list(load().DEFAULT_NODES)  # the package era asks for this ...
        INNERMOST: ClassVar[bool] = load().INNERMOST
        RECONNECTS: ClassVar[bool] = load().RECONNECTS

        def __init__(self, mconfig: Mapping[str, Any]) -> None:
            super().__init__(mconfig)
            self._config = mconfig
            self.only_ends = False
            self.failure: Optional[str] = None
            self.archive_folder: Optional[Path] = None

        @staticmethod
        def _get_default_nodes() -> List[str]:  # ... and the module era for this
            return PluginMonitoring.DEFAULT_NODES

        def start(self, directory: str) -> None:
            if self.only_ends:
                return
            settings: Any = sys.modules["settings"]
            monitor = load()(self._config, settings.cluster, getattr(settings, "common", None) or {})
            monitor.archive_folder = self.archive_folder
            _watching[name, directory] = monitor
            monitor.start(directory)
            self.failure = getattr(monitor, "failure", None)

        def stop(self, directory: Optional[str] = None) -> None:
            """Stop the monitor of a directory, or all of this profile; CBT also stops what it has not started."""
            for key in [key for key in _watching if key[0] == name and directory in (None, key[1])]:
                monitor = _watching.pop(key)
                monitor.stop(key[1])
                self.failure = getattr(monitor, "failure", None)

    PluginMonitoring.__name__ = f"Plugin_{name}"
    return PluginMonitoring


def around(monitors: Iterable[Any]) -> Iterator[Any]:
    """Yield monitors in an order in which those that are INNERMOST start last and stop first.

    CBT starts and stops its monitors in one order, so these come twice: the first only stops, the second starts.
    """
    all_monitors = list(monitors)
    inner = [monitor for monitor in all_monitors if getattr(monitor, "INNERMOST", False)]
    for monitor in inner:
        ending = copy.copy(monitor)
        ending.only_ends = True
        yield ending
    yield from (monitor for monitor in all_monitors if monitor not in inner)
    yield from inner
