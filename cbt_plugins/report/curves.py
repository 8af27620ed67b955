"""Curves of latency over quantile, from merged histograms."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional, Sequence, Union

from cbt_plugins.report.downsample import short
from cbt_plugins.results.histogram import Histogram, tail_quantiles
from cbt_plugins.results.phase import rank

#: a line is dashed when it is a part of a phase: a state of the cluster, in the colour that the state has everywhere
_STATES = {"failing": ("bad", 2), "degraded": ("bad", 1), "recovering": ("warning", 1), "returning": ("warning", 2)}


def tails(summary: Mapping[str, Any], phases: Sequence[Mapping[str, Any]]) -> List[Dict[str, Any]]:
    """Per operation the curves of these phases over each other, and those of their failures' states.

    [{"op", "curves": [{"name", "colour": the phase's number or a name, "dash": 0 for a whole phase, "ms"}]}]: the k-th
    value of `ms` is that of the quantile 1 - 10^(-k/10), as analysis.tail has them.
    """
    impact = (summary["failure"] or {}).get("impact") or {"phases": ()}
    states = {line["phase"]: line["states"] for line in impact["phases"]}
    ops = sorted({op for phase in phases for op, line in phase["ops"].items() if line["requests"]}, key=rank)
    found = []
    for op in ops:
        curves: List[Dict[str, Any]] = []
        for number, phase in enumerate(phases):
            if op not in phase["ops"]:
                continue
            histogram = Histogram.from_json(phase["ops"][op]["histogram_ns"])
            curves += curve(phase["name"], milliseconds(histogram), number)
            for state in states.get(phase["name"], ()):
                # of a phase that has only one state, the curve is that of the phase
                if state["state"] in _STATES and len(states[phase["name"]]) > 1:
                    its = (state.get("ops") or {}).get(op) or {}
                    curves += curve(f"{phase['name']}: {state['state']}", its.get("tail_ms"), *_STATES[state["state"]])
        found.append({"op": op, "curves": curves})
    return found


def curve(
    name: str, ms: Optional[Sequence[Optional[float]]], colour: Union[int, str], dash: int = 0
) -> List[Dict[str, Any]]:
    """The curve as a list, empty when there is nothing to draw; four significant digits."""
    if not ms or len(ms) < 2:
        return []
    return [{"name": name, "colour": colour, "dash": dash, "ms": short(ms)}]


def milliseconds(histogram: Histogram) -> List[float]:
    """The latencies at its tail_quantiles; [] of an empty one."""
    return [histogram.quantile(q) / 1e6 for q in tail_quantiles(histogram.n)]
