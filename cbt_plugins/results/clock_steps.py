"""Steps of a node's clock, as the lines of its agent show them: no time comes twice where it is set back."""

from __future__ import annotations

import math
from typing import Any, List, Mapping, NamedTuple, Sequence

#: steps that a warning names
_SHOWN = 5
#: seconds by which a node's clock and the time that passes may differ between two samples
STEP = 2.0


class ClockState(NamedTuple):
    """What the steps of a clock so far do to the times of later samples.

    A clock that is set back keeps the time before it, so that no time comes twice, until it is set forward again. What
    was set ahead before was wrong, and is only mended.
    """

    shift: float = 0.0  # seconds that are taken from times
    ahead: float = 0.0  # seconds that the clock was set ahead

    def after(self, step: float) -> ClockState:
        """Return the state behind another step."""
        if step > 0.0:
            mended = min(step, -self.shift)
            return ClockState(self.shift + mended, self.ahead + step - mended)
        returned = min(-step, self.ahead)
        return ClockState(self.shift + step + returned, self.ahead - returned)

    def jump(self, step: float) -> float:
        """Return the seconds by which times jump at such a step."""
        return max(0.0, step + self.shift) if step > 0.0 else -min(-step, self.ahead)


#: of a clock that was not set
NEVER_SET = ClockState()


class SampleTimes:
    """The times of the samples in one file, on the run's clock; no time comes twice where the node's clock is set back.
    """

    def __init__(self, offset: float) -> None:
        self._offset, self._clock = offset, NEVER_SET
        self._newest, self._follows = -math.inf, False  # the line before is the sample before
        self.steps: List[float] = []

    def lose(self) -> None:
        """Note that the time since the newest sample is unknown: lines are lost, or the agent is a new one."""
        self._follows = False

    def begin(self, header: Mapping[str, Any]) -> None:
        """Note a new agent. Where it begins behind the newest sample, its clock may be right again."""
        self.lose()
        t = header.get("t")
        if isinstance(t, (int, float)) and t - self._offset >= self._newest:
            self._clock = NEVER_SET

    def of(self, sample: Mapping[str, Any]) -> float:
        """Return the time of the next sample, whose `s` are the seconds since the one before it."""
        shown = float(sample["t"]) - self._offset
        if self._follows and isinstance(sample.get("s"), (int, float)):  # agents of earlier versions do not know it
            step = shown - self._clock.shift - self._newest - float(sample["s"])
            if STEP < abs(step) < math.inf:
                self._clock = self._clock.after(step)
                self.steps.append(step)
        self._newest, self._follows = shown - self._clock.shift, True
        return self._newest


def clock_text(steps: Sequence[float]) -> str:
    """Return the steps of a clock, and their meaning for its samples."""
    texts = [f"{step:+.0f} s" for step in steps]
    shown = ", ".join([*texts[:_SHOWN], *(["..."] if len(texts) > _SHOWN else [])])
    return f"its clock was set by {shown}, or it was paused: samples may be in another phase than theirs"
