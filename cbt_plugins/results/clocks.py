"""One clock for everything that nodes have written down: that of the machine which led the run."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Dict, Mapping

from cbt_plugins.results.archive import Run
from cbt_plugins.results.environment import environment, roles_of


@dataclass(frozen=True)
class Clocks:
    """Seconds that nodes' clocks are ahead of the leading machine's; 0 for what nobody has measured."""

    nodes: Mapping[str, float] = field(default_factory=dict)
    monitors: float = 0.0  # of Ceph's monitors, which stamp the OSD maps

    @classmethod
    def of(cls, run: Run) -> Clocks:
        """As they were measured before the run's first phase."""
        nodes: Dict[str, float] = {its["node"]: its["clock_offset"] or 0.0 for its in environment(run)["nodes"]}
        # which of them leads is written nowhere; where they differ, Ceph itself complains from 0.05 s on
        mons = [nodes[node] for node, roles in roles_of(run).items() if "mon" in roles and node in nodes]
        return cls(nodes, median(mons) if mons else 0.0)

    def of_file(self, path: Path) -> float:
        """Of the node whose monitor wrote a file: its folder is PROFILE.NODE."""
        return self.nodes.get(path.parent.name.partition(".")[2], 0.0)


UNMEASURED = Clocks()
