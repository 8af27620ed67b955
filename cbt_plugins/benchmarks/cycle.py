"""What all our benchmarks are: a plan made from their section, and the engine that runs it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, List, Mapping

from ..config.sections import plan_of
from ..cycle.engine import Engine
from ..host.run import HostRun


class CycleBenchmark:
    """A benchmark as the host sees it."""

    def __init__(self, host: HostRun) -> None:
        self._host = host

    def run(self) -> None:
        """Run the cycle, or what is left of it. Raises RunFailed."""
        host = self._host
        plan = plan_of(host.benchmark, host.config, host.cluster, host.endpoints)
        Engine(host, plan).execute()

    @staticmethod
    def evaluate(name: str, current: Path, baseline: Path, acceptable: Mapping[str, Any]) -> List[Any]:
        """For CBT's compare.py: Judgements of one run beside another one, by the section's `acceptable`."""
        from ..exports.acceptance import judge

        return list(judge(name, current, baseline, acceptable))
