"""What all our benchmarks are: a plan made from their section, and the runner of that plan."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Type

from cbt_plugins.benchmarks.common_keys import BenchmarkSection
from cbt_plugins.cbt_run import CbtRun
from cbt_plugins.config.section_to_plan import plan_of

if TYPE_CHECKING:
    from cbt_plugins.run.plan_runner import PlanRunner


class CycleBenchmark:
    """A benchmark as the host sees it; `Section` is its YAML, whose `to_plan` makes the phases."""

    Section: ClassVar[Type[BenchmarkSection]]

    def __init__(self, host: CbtRun) -> None:
        self._host = host

    def run(self) -> None:
        """Run the cycle, or what is left of it. Raises RunFailed."""
        self._runner().execute()

    def check_complete(self) -> None:
        """Raise RunFailed where the run that is complete had another plan: ids know nothing of nodes and endpoints."""
        self._runner().check_complete()

    def _runner(self) -> PlanRunner:
        from cbt_plugins.run.plan_runner import PlanRunner  # only a run needs it, not the check of a file

        host = self._host
        return PlanRunner(host, plan_of(host.benchmark, host.config, host.cluster, host.endpoints))
