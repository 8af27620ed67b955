"""What the charts of a run are drawn from: on the page and as figures alike."""

from __future__ import annotations

from typing import Any, Dict, Mapping

from cbt_plugins.report.curves import tails
from cbt_plugins.report.downsample import chart_data, cores_data, failure_data
from cbt_plugins.results.loader import measured


def drawing(summary: Mapping[str, Any]) -> Dict[str, Any]:
    """{"phases": [what report.downsample makes of each phase], "tails": as report.curves has them}."""
    timelines = (summary["failure"] or {"timelines": {}})["timelines"]
    resources = (summary.get("resources") or {"phases": {}})["phases"]
    phases = [
        {
            "name": phase["name"],
            "role": phase["role"],
            "window": phase["window"],
            "under_way": phase["under_way"],
            "failure": failure_data(timelines.get(phase["name"])),
            "cores": cores_data(resources.get(phase["name"])),
            **chart_data(phase["series"], window=phase["window"]),
        }
        for phase in summary["phases"]
    ]
    return {"phases": phases, "tails": tails(summary, measured(summary))}
