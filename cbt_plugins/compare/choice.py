"""Which rows a table has."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Optional, Protocol, Sequence, Tuple

from cbt_plugins.metrics import METRICS, TOTAL
from cbt_plugins.results.record import STATE

Key = Tuple[str, str, str]  # phase, op, metric


class Wanted(Protocol):
    """Which rows a table has."""

    def takes(self, key: Key) -> bool: ...

    def asks(self, metric: str) -> bool:
        """It was asked for by name: it is a row even where there is nothing to see."""

    def margin(self, key: Key) -> Optional[float]:
        """Its own one, where it has one."""


@dataclass(frozen=True)
class Choice:
    """By patterns of the shell; without any: what Metric.main says, no totals, no states."""

    phases: Tuple[str, ...] = ()
    ops: Tuple[str, ...] = ()
    metrics: Tuple[str, ...] = ()
    only: Tuple[Tuple[str, str], ...] = ()  # (operation, metric): these and no others

    def takes(self, key: Key) -> bool:
        phase, op, metric = key
        if self.only and (op, metric) not in self.only:
            return False
        if not (_any(self.phases, phase) if self.phases else STATE not in phase):
            return False
        if self.only:
            return True
        if not (_any(self.metrics, metric) if self.metrics else METRICS[metric].main):
            return False
        return _any(self.ops, op) if self.ops else op != TOTAL or METRICS[metric].total_only

    def asks(self, metric: str) -> bool:
        return bool(self.metrics)

    def margin(self, key: Key) -> Optional[float]:
        return None


#: what a table has without being asked
MAIN = Choice()


def _any(patterns: Sequence[str], name: str) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)
