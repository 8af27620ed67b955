"""What `cbt-tools size` answers: for programs, and in words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, List, Sequence, Tuple

from cbt_plugins.config.units import about_size


@dataclass(frozen=True)
class Answer:
    """`data` in bytes, seconds and shares of 1; `lines` for people."""

    data: Dict[str, Any]
    lines: List[str]


def answer(data: Dict[str, Any], told: Sequence[Tuple[str, str]]) -> Answer:
    """Return data with (name, text) lines, the texts below each other."""
    width = max((len(name) for name, _ in told), default=0)
    return Answer(data, [f"{name:{width}}  {text}" for name, text in told])


def both(number: float) -> str:
    """Bytes in powers of two and of ten: 63498100 -> "60.6 MiB (63.5 MB)"."""
    for unit, factor in (("PB", 1e15), ("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if number >= factor:
            return f"{about_size(number)} ({number / factor:.4g} {unit})"
    return f"{number:.0f} B"


def percent(share: float) -> str:
    """0.5357 -> "53.6 %"."""
    return f"{100 * share:.1f} %"
