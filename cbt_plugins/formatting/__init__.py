"""Numbers as people read them, in every form of output; a text for a value that is not there."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Optional, Sequence

NONE = "-"


def plain(value: Optional[float]) -> str:
    """Format a number: 0.0004 1.234 12.34 123.4 1234 12,345, by the printed form: 999.96 does not become 1000.0."""
    if value is None:
        return NONE
    if value == 0:
        return "0"
    if abs(value) < 0.0005:
        return f"{value:.1g}"
    for digits in (3, 2, 1):
        text = f"{value:.{digits}f}"
        if len(text.lstrip("-").replace(".", "")) <= 4:
            return text
    return f"{value:,.0f}" if abs(value) >= 9999.5 else f"{value:.0f}"


def count(value: Optional[int]) -> str:
    return NONE if value is None else f"{value:,}"


def several(n: int, noun: str) -> str:
    """Return a number of things: "1 worker", "2 workers"."""
    return f"{n:,} {noun}{'' if n == 1 else 's'}"


def first_texts(texts: Sequence[str], most: int, separator: str = ", ") -> str:
    """Return the first of many texts, and how many are left out: "a, b, c and 2 more"."""
    return separator.join(texts[:most]) + (f" and {len(texts) - most:,} more" if len(texts) > most else "")


def percent(share: Optional[float], form: str = ".1f") -> str:
    """Format a share: 0.123 -> 12.3 %. `form` is that of a number: ".0f" -> 12 %, "g" -> as many digits as needed."""
    return NONE if share is None else f"{in_percent(share, form)} %"


def in_percent(share: float, form: str = ".1f") -> str:
    """Format a share in front of another, in percent but without the sign: 0.123 -> 12.3."""
    return f"{100 * share:{form}}"


def short_percent(share: float) -> str:
    """Format a share: 0.123 -> 12.3 %; 0.12 -> 12 %."""
    return f"{in_percent(share).removesuffix('.0')} %"


def signed_percent(share: Optional[float], form: str = ".1f") -> str:
    """Format a change: 0.123 -> +12.3 %; a change that rounds to 0 has no sign."""
    return NONE if share is None else f"{signed_in_percent(share, form)} %"


def signed_in_percent(share: float, form: str = ".1f") -> str:
    """Format a change in front of another, in percent but without the sign of it: 0.123 -> +12.3."""
    text = in_percent(share, f"+{form}")
    return text if float(text) else text[1:]


def success(share: Optional[float]) -> str:
    """Format a success rate, 0..1, in percent; never 100 % when one request failed."""
    if share is None:
        return NONE
    if share == 1:
        return "100 %"
    return f"{min(100 * share, 99.999):.3f} %"


def seconds(value: Optional[float]) -> str:
    """Format a duration: 42.1 s, 12 min 5 s, 3 h 20 min."""
    if value is None:
        return NONE
    if value < 120:
        return f"{value:.1f} s"
    minutes, remainder = divmod(round(value), 60)
    if minutes < 120:
        return f"{minutes} min" + (f" {remainder} s" if remainder else "")
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h" + (f" {minutes} min" if minutes else "")


BINARY_UNITS = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40, "PiB": 1 << 50}
DECIMAL_UNITS = {"KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12, "PB": 10**15}


def size(value: float) -> str:
    """Format bytes exactly: 4096 -> 4 KiB, 4000 -> 4 KB, 4097 -> 4097 B. In files: config.units.format_size."""
    units = {**BINARY_UNITS, **DECIMAL_UNITS}
    exact = [(int(value // factor), unit) for unit, factor in units.items() if value and value % factor == 0]
    # 128000 bytes are 128 KB and 125 KiB; nobody asks for the latter
    exact.sort(key=lambda item: (item[0] & (item[0] - 1) != 0, item[0]))
    number, unit = exact[0] if exact else (value, "B")
    return f"{int(number)} {unit}"


def about_size(value: float) -> str:
    """Format bytes in three digits: 2097664000 -> 1.95 GiB."""
    for unit, factor in reversed(BINARY_UNITS.items()):
        if value >= 0.9995 * factor:
            number = value / factor
            return f"{number:.3g} {unit}" if number < 999.5 else f"{number:.0f} {unit}"
    return f"{value:.0f} B"


def size_range(smallest: int, largest: int) -> str:
    """Format a range: 4 KiB, or 4 KiB to 64 KiB."""
    return size(smallest) if smallest == largest else f"{size(smallest)} to {size(largest)}"


def size_class(smallest: int, largest: int) -> str:
    """Format a size class: 4 KiB for 4096 bytes alone; powers of two: 4 KiB to 8 KiB stands for 4096 to 8191 bytes."""
    return size_range(smallest, largest + (smallest < largest))


def when(epoch: Optional[float]) -> str:
    """Format a time in UTC, to the second; a time beyond the year 9999 is none."""
    if not epoch:
        return NONE
    try:
        return datetime.fromtimestamp(epoch, timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (ValueError, OverflowError, OSError):
        return NONE
