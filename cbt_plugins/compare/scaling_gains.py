"""Gains of a larger cluster: throughput for each node that was added, and the latency that a closed loop predicts."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import Iterator, Optional

from cbt_plugins.compare.comparable_runs import Runs
from cbt_plugins.compare.configuration_differences import Scale
from cbt_plugins.compare.table import Section
from cbt_plugins.metrics import TOTAL
from cbt_plugins.models.closed_loop import efficiency, relative_change
from cbt_plugins.results.run_record import Key


@dataclass(frozen=True)
class Gain:
    """The gain of a larger cluster in one phase and operation; shares, latencies as changes of the mean."""

    phase: str
    op: str
    gain: float
    efficiency: float  # gain / (nodes added / nodes there were): 1 is linear
    latency: Optional[float]
    predicted: Optional[float]


def takes(key: Key) -> bool:
    """Return whether the gains need a number."""
    return key[2] in ("obj_per_s", "mean_ms")


def gains(section: Section, scale: Scale) -> Iterator[Gain]:
    """Yield the gain of every throughput.

    In a closed loop with the same workers throughput x mean latency is constant (Little), so that a gain g of all
    operations predicts a latency of 1 / (1 + g). A latency far from that had another number of workers than it says.
    """
    pairs = dict.fromkeys((phase, op) for phase, op, metric in section.base[0].keys if metric == "obj_per_s")
    rows = {(row.phase, row.op) for row in section.rows}
    for phase, op in pairs:
        alone = op == TOTAL or sum(pair[0] == phase for pair in pairs) == 1
        if (phase, op) not in rows and not (alone and any(row.phase == phase for row in section.rows)):
            continue
        gain = _change_of(section, phase, op, "obj_per_s")
        if gain is None:
            continue
        latency = _change_of(section, phase, op, "mean_ms")
        closed = section.base[0].config.get(f"phase.{phase}.loop") != "open"
        predicted = 1 / (1 + gain) - 1 if alone and closed and latency is not None else None
        yield Gain(phase, op, gain, efficiency(gain, scale.base, scale.new), latency, predicted)


def _change_of(section: Section, phase: str, op: str, metric: str) -> Optional[float]:
    base, new = (_median_of(runs, phase, op, metric) for runs in (section.base, section.new))
    return relative_change(base, new) if base and new is not None else None


def _median_of(runs: Runs, phase: str, op: str, metric: str) -> Optional[float]:
    values = [
        m.value
        for run in runs
        for m in run.measurements
        if m.key == (phase, op, metric) and m.value is not None
    ]
    return median(values) if values else None
