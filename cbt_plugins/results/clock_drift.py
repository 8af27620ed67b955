"""Drift of a node's clock, by what a run has measured at the ends of its phases."""

from __future__ import annotations

import bisect
from dataclasses import dataclass
from typing import Any, Iterable, Mapping, Sequence, Tuple

from cbt_plugins.cluster_conditions import CLOCK

#: seconds that a clock may drift in a second (100 ppm: no quartz drifts faster); one that moved faster was set
_FASTEST = 1e-4


@dataclass(frozen=True)
class ClockDrift:
    """Seconds by which a clock has drifted from its first offset, at some times; linear between them."""

    points: Tuple[Tuple[float, float], ...] = ()  # time, seconds; by time

    @classmethod
    def of(
        cls, events: Iterable[Mapping[str, Any]], node: str, offset: float, set_at: Sequence[float] = ()
    ) -> ClockDrift:
        """Return the drift of a node by lines of events.jsonl; 0 where its offset was measured as `offset`.

        `set_at`: when the clock was set, as it showed before. No drift is known between two measurements around that:
        readers of samples take such a step off where it was (clock_steps).
        """
        lines = [event for event in events if event.get("event") == CLOCK and event.get("node") == node]
        measured = [(float(line["t"]), float(line["seconds"]), float(line["error"])) for line in lines]
        points, drifted, at_offset = [], 0.0, 0.0
        for number, (t, seconds, error) in enumerate(measured):
            before, earlier, earlier_error = measured[max(0, number - 1)]
            moved = seconds - earlier
            was_set = any(before <= shown - earlier <= t for shown in set_at)
            if not was_set and abs(moved) <= _FASTEST * max(0.0, t - before) + error + earlier_error:
                drifted += moved
            if seconds == offset:
                at_offset = drifted
            points.append((t, drifted))
        return cls(tuple(sorted((t, seconds - at_offset) for t, seconds in points)))

    def at(self, t: float) -> float:
        """Return the drift at a time; before the first and after the last measurement as it was then."""
        after = bisect.bisect(self.points, (t,))
        around = self.points[max(0, after - 1) : after + 1]
        if len(around) < 2 or not after:
            return around[0][1] if around else 0.0
        (begin, low), (end, high) = around
        return low + (high - low) * (t - begin) / (end - begin)


NO_DRIFT = ClockDrift()
