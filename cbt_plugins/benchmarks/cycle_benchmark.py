"""What all our benchmarks are: a plan made from their section, and the runner of that plan."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Type

from cbt_plugins.benchmarks.common_keys import BenchmarkSection
from cbt_plugins.cbt_run import CbtRun
from cbt_plugins.config.section_to_plan import plan_of

if TYPE_CHECKING:
    from cbt_plugins.run.plan_runner import PlanRunner


class CycleBenchmark:
    """A benchmark as CBT and the run loop see it; `Section` is its YAML, whose `to_plan` makes the phases."""

    Section: ClassVar[Type[BenchmarkSection]]

    def __init__(self, cbt_run: CbtRun) -> None:
        self._cbt_run = cbt_run

    def run(self) -> None:
        """Run the cycle, or what is left of it. Raises RunFailed."""
        self._runner().execute()

    def check_complete(self) -> None:
        """Raise RunFailed where the run that is complete had another plan: ids know nothing of nodes and endpoints."""
        self._runner().check_complete()

    def _runner(self) -> PlanRunner:
        from cbt_plugins.run.plan_runner import PlanRunner  # only a run needs it, not the check of a file

        cbt_run = self._cbt_run
        return PlanRunner(cbt_run, plan_of(cbt_run.benchmark, cbt_run.config, cbt_run.cluster, cbt_run.endpoints))
