"""Progress of a phase on stderr: one line that is rewritten, or plain lines without a terminal."""

from __future__ import annotations

import logging
import sys
import time
from dataclasses import dataclass, field
from typing import Dict, List, NamedTuple, Optional, Sequence, TextIO, Tuple

from cbt_plugins.config.spans import known_length
from cbt_plugins.formatting import CLEAR_LINE
from cbt_plugins.load.generator import Counts
from cbt_plugins.plan import Phase

log = logging.getLogger("cbt_plugins.progress")

#: seconds between plain lines, and how many a long phase has at most
PLAIN_EVERY = 10.0
PLAIN_MOST = 300
#: seconds that a rate is of, at least: counts come once a second, and a part of a second more or less late
RATE_SPAN = 5.0


class Rate(NamedTuple):
    """Successful requests of the last seconds."""

    objects_per_second: float = 0.0
    mib_per_second: float = 0.0


@dataclass
class RateMeter:
    """The rates of jobs, by their counts and the clocks that the counts were taken by."""

    _counts: Dict[str, List[Tuple[float, Counts]]] = field(default_factory=dict)  # by job, oldest first

    def take(self, job: str, at: float, counts: Counts) -> None:
        """Take the counts of a job at this time of its node's clock."""
        counted = self._counts.setdefault(job, [])
        if counted and at <= counted[-1][0]:
            return
        counted.append((at, counts))
        while len(counted) > 2 and counted[1][0] <= at - RATE_SPAN:
            del counted[0]

    def rate(self) -> Optional[Rate]:
        """Return the rate of all jobs over their last seconds; None until each has been counted for long enough."""
        spans = [(counts[0], counts[-1]) for counts in self._counts.values()]
        if not spans or any(last - first < RATE_SPAN for (first, _), (last, _) in spans):
            return None
        objects = sum((b.good - a.good) / (last - first) for (first, a), (last, b) in spans)
        size = sum((b.size - a.size) / (last - first) for (first, a), (last, b) in spans)
        return Rate(objects, size / (1 << 20))


class Remainder(NamedTuple):
    """The phases after this one."""

    seconds: float  # of those whose length is known
    exact: bool  # it is known of all
    any: bool = True

    @classmethod
    def of(cls, phases: Sequence[Phase]) -> Remainder:
        """Return the sum of these phases."""
        lengths = [known_length(phase) for phase in phases]
        finite = [length for length in lengths if length is not None]
        return cls(sum(finite), len(finite) == len(lengths), bool(phases))

    def text(self, left: Optional[float]) -> str:
        """Return the time left of the run, with that of its present phase; nothing in the last one."""
        if not self.any:
            return ""
        bound = "" if self.exact and left is not None else "more than "
        return f", {bound}{clock(self.seconds + (left or 0.0))} of the run"


NOTHING_AFTER = Remainder(0.0, True, False)


@dataclass(frozen=True)
class Now:
    """A phase at this moment, as its progress line shows it."""

    phase: str
    state: str  # what it is doing: listing, running, ending
    elapsed: float  # seconds since the load began
    left: Optional[float]  # seconds; None when unknown
    rate: Optional[Rate] = None  # None without load, and until it is known
    errors: int = 0
    not_clean: Optional[int] = None  # PGs; None when Ceph did not answer lately
    note: str = ""
    after: Remainder = NOTHING_AFTER

    def __str__(self) -> str:
        left = f"{clock(self.left)} left" if self.left is not None else self.state
        left += self.after.text(self.left)
        of = self.rate
        rates = f"{of.objects_per_second:,.0f} obj/s {of.mib_per_second:,.1f} MiB/s  " if of else ""
        pgs = "PGs ?" if self.not_clean is None else f"{self.not_clean} PGs not clean"
        note = f"  {self.note}" if self.note else ""
        return f"{self.phase}: {clock(self.elapsed)}, {left}  {rates}{self.errors} errors  {pgs}{note}"


def clock(seconds: float) -> str:
    """Return seconds as 1:02:03 or 2:03."""
    total = max(0, int(seconds))
    hours, remainder = divmod(total, 3600)
    return f"{hours}:{remainder // 60:02d}:{remainder % 60:02d}" if hours else f"{remainder // 60}:{remainder % 60:02d}"


class Progress:
    """The progress line of one phase."""

    def __init__(self, expected: Optional[float], out: TextIO = sys.stderr) -> None:
        self._out = out
        self._terminal = out.isatty()
        self._every = 1.0 if self._terminal else max(PLAIN_EVERY, (expected or 0.0) / PLAIN_MOST)
        self._next = 0.0
        self._shown = False

    def show(self, now: Now) -> None:
        """Show the line, unless it was shown just now."""
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + self._every
        if self._terminal:
            self._out.write(f"{CLEAR_LINE}{now}")
            self._out.flush()
            self._shown = True
        else:
            log.info("%s", now)

    def close(self) -> None:
        """Clear the line, so that a message can be printed."""
        if self._shown:
            self._out.write(CLEAR_LINE)
            self._out.flush()
            self._shown = False
