"""Limits of rows on the scale of their comparison, and the rows that a choice takes only by name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Collection, Optional, Set

from cbt_plugins.metrics import METRICS, Metric, MetricSource
from cbt_plugins.results.run_record import Key


def latencies_of_failures(keys: Collection[Key]) -> Set[Key]:
    """Return the percentiles of failures and returns among the keys of a run, or of runs of one configuration.

    Each row that is judged makes all rows harder to decide, so a choice takes these only if it names them.
    """
    phases = {phase for phase, _, metric in keys if METRICS[metric].source is MetricSource.LOSS}
    return {key for key in keys if key[0] in phases and METRICS[key[2]].quantile is not None}


def names_phase(pattern: str) -> bool:
    """Return whether a shell pattern names a phase: `*` alone takes each phase, and names none."""
    return bool(pattern.strip("*?"))


@dataclass(frozen=True)
class Allowance:
    """How much worse a value may become: a share of the base, or a rise in the metric's unit; one of both is set."""

    share: Optional[float] = None
    rise: Optional[float] = None

    def of(self, metric: Metric, base: float) -> Optional[float]:
        """Return the limit on the scale of the row: in the unit of an additive metric, else as a share; None: no base.

        The share of an additive metric is its margin at least: counts near 0 are not judged by a share.
        """
        if metric.additive:
            return self.rise if self.rise is not None else max((self.share or 0.0) * base, metric.margin)
        return self.share if self.rise is None else self.rise / abs(base) if base else None

    def factor_of(self, metric: Metric, base: float) -> float:
        """Return the share by which the runs of the base are raised to the limit of an additive metric.

        So the limit scatters as the base does. 0: it is added to the runs, as a rise, or a margin.
        """
        share = self.share or 0.0
        return share if metric.additive and share * base > metric.margin else 0.0
