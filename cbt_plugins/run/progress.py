"""Progress of a phase on stderr: one line that is rewritten, or plain lines without a terminal."""

from __future__ import annotations

import logging
import sys
import time
from dataclasses import dataclass
from typing import Optional, TextIO

from cbt_plugins.formatting import CLEAR_LINE

log = logging.getLogger("cbt_plugins.progress")

#: seconds between plain lines, and how many a long phase has at most
PLAIN_EVERY = 10.0
PLAIN_MOST = 300


@dataclass(frozen=True)
class Now:
    """A phase at this moment, as its progress line shows it."""

    phase: str
    state: str  # what it is doing: listing, running, ending
    elapsed: float  # seconds since the load began
    left: Optional[float]  # seconds; None when unknown
    objects_per_second: float = 0.0
    mib_per_second: float = 0.0
    errors: int = 0
    not_clean: Optional[int] = None  # PGs; None when Ceph did not answer lately
    note: str = ""

    def __str__(self) -> str:
        left = f"{clock(self.left)} left" if self.left is not None else self.state
        pgs = "PGs ?" if self.not_clean is None else f"{self.not_clean} PGs not clean"
        note = f"  {self.note}" if self.note else ""
        return (
            f"{self.phase}: {clock(self.elapsed)}, {left}  {self.objects_per_second:,.0f} obj/s "
            f"{self.mib_per_second:,.1f} MiB/s  {self.errors} errors  {pgs}{note}"
        )


def clock(seconds: float) -> str:
    """Return seconds as 1:02:03 or 2:03."""
    whole = max(0, int(seconds))
    hours, rest = divmod(whole, 3600)
    return f"{hours}:{rest // 60:02d}:{rest % 60:02d}" if hours else f"{rest // 60}:{rest % 60:02d}"


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
