"""Two sizes of a cluster: how much of what was added comes out at the other end."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import Iterator, Optional

from cbt_plugins.compare.differences import Scale
from cbt_plugins.compare.table import Runs, Section
from cbt_plugins.metrics import TOTAL
from cbt_plugins.models.closed_loop import change, efficiency


@dataclass(frozen=True)
class Gain:
    """One phase and operation. Shares; `latency` and `predicted` are changes of the mean latency."""

    phase: str
    op: str
    gain: float
    efficiency: float  # gain / (nodes added / nodes there were): 1 is linear
    latency: Optional[float]
    predicted: Optional[float]


def gains(section: Section, scale: Scale) -> Iterator[Gain]:
    """Of every throughput.

    In a closed loop with the same workers throughput x mean latency stays the same (Little), so that a gain g of all
    operations together means a latency of 1 / (1 + g): what is far from that has had other workers than it says.
    """
    pairs = dict.fromkeys((m.phase, m.op) for m in section.base[0].measurements if m.metric == "obj_per_s")
    rows = {(row.phase, row.op) for row in section.rows}
    for phase, op in pairs:
        together = op == TOTAL or sum(its[0] == phase for its in pairs) == 1
        if (phase, op) not in rows and not (together and any(row.phase == phase for row in section.rows)):
            continue
        gain = _change(section, phase, op, "obj_per_s")
        if gain is None:
            continue
        latency = _change(section, phase, op, "mean_ms")
        closed = section.base[0].config.get(f"phase.{phase}.loop") != "open"
        predicted = 1 / (1 + gain) - 1 if together and closed and latency is not None else None
        yield Gain(phase, op, gain, efficiency(gain, scale.base, scale.new), latency, predicted)


def _change(section: Section, phase: str, op: str, metric: str) -> Optional[float]:
    base, new = (_value(runs, phase, op, metric) for runs in (section.base, section.new))
    return change(base, new) if base and new is not None else None


def _value(runs: Runs, phase: str, op: str, metric: str) -> Optional[float]:
    values = [
        m.value
        for run in runs
        for m in run.measurements
        if (m.phase, m.op, m.metric) == (phase, op, metric) and m.value is not None
    ]
    return median(values) if values else None
