"""A phase at this moment, as a line of progress: its rate, what is left of it, what is wrong."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple

#: seconds that a rate is of, at least: counts come once a second, and a part of a second more or less late
RATE_SPAN = 5.0


class Rate(NamedTuple):
    """Successful requests of the last seconds."""

    objects_per_second: float = 0.0
    mib_per_second: float = 0.0


@dataclass
class RateMeter:
    """The rates of jobs, by their counts and the clocks that the counts were taken by."""

    _counts: Dict[str, List[Tuple[float, int, int]]] = field(default_factory=dict)  # by job, oldest first

    def take(self, job: str, at: float, objects: int, size: int) -> None:
        """Take the objects and bytes of a job until this time of its node's clock."""
        counted = self._counts.setdefault(job, [])
        if counted and at <= counted[-1][0]:
            return
        counted.append((at, objects, size))
        while len(counted) > 2 and counted[1][0] <= at - RATE_SPAN:
            del counted[0]

    def end(self, job: str) -> None:
        """Count a job no longer: it has ended."""
        self._counts.pop(job, None)

    def rate(self) -> Optional[Rate]:
        """Return the rate of all jobs over their last seconds; None until each has been counted for long enough."""
        spans = [(counts[0], counts[-1]) for counts in self._counts.values()]
        if not spans or any(last[0] - first[0] < RATE_SPAN for first, last in spans):
            return None
        objects = sum((last[1] - first[1]) / (last[0] - first[0]) for first, last in spans)
        size = sum((last[2] - first[2]) / (last[0] - first[0]) for first, last in spans)
        return Rate(objects, size / (1 << 20))


class Remainder(NamedTuple):
    """The phases after this one."""

    seconds: float  # of those whose length is known
    exact: bool  # it is known of all
    any: bool = True

    @classmethod
    def of(cls, lengths: Sequence[Optional[float]]) -> Remainder:
        """Return the sum of phases of these lengths; None: only the cluster can tell."""
        finite = [length for length in lengths if length is not None]
        return cls(sum(finite), len(finite) == len(lengths), bool(lengths))

    def text(self, left: Optional[float]) -> str:
        """Return the time left of the run, with that of its present phase; nothing in the last one."""
        if not self.any:
            return ""
        bound = "" if self.exact and left is not None else "more than "
        return f", {bound}{clock(self.seconds + (left or 0.0))} left in the run"


NOTHING_AFTER = Remainder(0.0, True, False)


@dataclass(frozen=True)
class Now:
    """A phase at this moment, as its progress line shows it."""

    phase: str
    state: str  # what it is doing: listing, running, ending
    elapsed: float  # seconds since the load began
    left: Optional[float]  # seconds; None when unknown
    rate: Optional[Rate] = None  # None without load, and until it is known
    errors: Optional[int] = 0  # None when unknown
    not_clean: Optional[int] = None  # PGs, or what is counted instead; None when Ceph did not answer lately
    note: str = ""
    after: Remainder = NOTHING_AFTER
    counted: str = "PGs not clean"

    def __str__(self) -> str:
        left = f"{clock(self.left)} left" if self.left is not None else self.state
        left += self.after.text(self.left)
        of = self.rate
        rates = f"{of.objects_per_second:,.0f} obj/s {of.mib_per_second:,.1f} MiB/s  " if of else ""
        pgs = "PGs ?" if self.counted == Now.counted else f"{self.counted} ?"
        pgs = pgs if self.not_clean is None else f"{self.not_clean} {self.counted}"
        errors = "errors ?" if self.errors is None else f"{self.errors} errors"
        note = f"  {self.note}" if self.note else ""
        return f"{self.phase}: {clock(self.elapsed)}, {left}  {rates}{errors}  {pgs}{note}"


def clock(seconds: float) -> str:
    """Return seconds as 1:02:03 or 2:03."""
    total = max(0, int(seconds))
    hours, remainder = divmod(total, 3600)
    return f"{hours}:{remainder // 60:02d}:{remainder % 60:02d}" if hours else f"{remainder // 60}:{remainder % 60:02d}"
