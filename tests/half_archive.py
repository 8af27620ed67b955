"""The recorded archive of a run that goes on (tests/data/live)."""

from __future__ import annotations

from pathlib import Path

HALF = Path(__file__).parent / "data" / "live" / "half"
#: when it was copied
COPIED = 1795614195.0
