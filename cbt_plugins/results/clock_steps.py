"""Steps of a node's clock, as the lines of its agent show them: no time comes twice where it is set back."""

from __future__ import annotations

from typing import NamedTuple, Sequence

#: steps that a warning names
_SHOWN = 5


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


def clock_text(steps: Sequence[float]) -> str:
    """Return the steps of a clock, and their meaning for its samples."""
    texts = [f"{step:+.0f} s" for step in steps]
    shown = ", ".join([*texts[:_SHOWN], *(["..."] if len(texts) > _SHOWN else [])])
    return f"its clock was set by {shown}, or it was paused: samples may be in another phase than theirs"
