"""The `stacks` profile: call stacks of Ceph's daemons, sampled by perf, for `cbt-tools flame`.

Samples arrive as monitors/stacks.<node>/<node>.jsonl; docs/RESOURCES.md has their form.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import List, Literal, Union

from pydantic import Field

from cbt_plugins import daemon_programs
from cbt_plugins.config.key_errors import Strict

from . import numbered_output
from .agent_monitor import AgentMonitor


class StacksProfile(Strict):
    """Call stacks of Ceph's daemons while a benchmark runs, by perf, as root; for `cbt-tools flame`."""

    interval: float = Field(30.0, ge=0, le=3600, description="Seconds from one look to the next; 0: all the time.")
    seconds: float = Field(5.0, ge=1, le=60, description="Seconds of a look.")
    hz: int = Field(49, ge=1, le=999, description="Samples a second of each busy processor.")
    calls: Literal["fp", "dwarf"] = Field(
        "fp", description="How perf finds the callers. dwarf needs debug symbols and much more CPU."
    )
    nodes: Union[str, List[str]] = Field(["osds", "rgws"], description="Keys of `cluster:` with nodes.")


class Stacks(AgentMonitor):
    """Call stacks of daemons. The keys are those of `StacksProfile`."""

    Section = StacksProfile
    _profile: StacksProfile
    NAME, AGENT, PARTS = "stacks", Path(__file__).parent / "stacks_agent.py", (daemon_programs, numbered_output)
    DEFAULT_NODES = ("osds", "rgws")
    PROGRAMS = ("perf",)

    def argument(self) -> str:
        return json.dumps(self._profile.model_dump(exclude={"nodes"}))
