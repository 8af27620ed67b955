"""The `perf_counters` profile: latencies, caches and fragmentation as OSDs and gateways count them themselves.

Samples arrive as monitors/perf_counters.<node>/<node>.jsonl; docs/RESOURCES.md has their form.
"""

from __future__ import annotations

from pathlib import Path
from typing import List, Union

from pydantic import Field

from cbt_plugins.config.key_errors import Strict

from . import numbered_output
from .agent_monitor import AgentMonitor


class PerfCountersProfile(Strict):
    """The counters of OSDs and gateways, by admin socket."""

    interval: float = Field(
        10.0, ge=1, le=600, description="Seconds between samples; ten times as long after 360 samples."
    )
    nodes: Union[str, List[str]] = Field(["osds", "rgws", "watched"], description="Keys of `cluster:` with nodes.")


class PerfCounters(AgentMonitor):
    """Counters of daemons. The keys are those of `PerfCountersProfile`."""

    Section = PerfCountersProfile
    _profile: PerfCountersProfile
    NAME, AGENT, PARTS = "perf_counters", Path(__file__).parent / "perf_counters_agent.py", (numbered_output,)
    DEFAULT_NODES = ("osds", "rgws", "watched")

    def argument(self) -> str:
        return f"{self._profile.interval:g}"
