"""Progress of a phase on stderr: one line that is rewritten, or plain lines without a terminal."""

from __future__ import annotations

import logging
import sys
import time
from typing import Optional, Sequence, TextIO

from cbt_plugins.config.fault_spans import known_length
from cbt_plugins.formatting.progress_line import Now, Remainder
from cbt_plugins.formatting.screen import CLEAR_LINE, cut_to_row, obeys_controls
from cbt_plugins.plan import Phase

log = logging.getLogger("cbt_plugins.progress")

#: seconds between plain lines, and how many a long phase has at most
PLAIN_EVERY = 10.0
PLAIN_MOST = 300


def remainder_of(phases: Sequence[Phase]) -> Remainder:
    """Return the remainder of a run that these phases are."""
    return Remainder.of([known_length(phase) for phase in phases])


class Progress:
    """The progress line of one phase."""

    def __init__(self, expected: Optional[float], out: TextIO = sys.stderr) -> None:
        self._out = out
        self._terminal = obeys_controls(out)
        self._every = 1.0 if self._terminal else max(PLAIN_EVERY, (expected or 0.0) / PLAIN_MOST)
        self._next = 0.0
        self._shown = False

    def show(self, now: Now) -> None:
        """Show the line, unless it was shown just now."""
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + self._every
        if self._terminal:
            self._out.write(f"{CLEAR_LINE}{cut_to_row(self._out, str(now))}")
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
