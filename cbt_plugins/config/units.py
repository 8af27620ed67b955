"""Sizes, durations, percentages and rates with explicit units, and `size:`: text -> number -> text."""

from __future__ import annotations

import math
import re
from decimal import Decimal
from typing import Annotated, Any, Dict, List, Sequence, Tuple

from pydantic import AfterValidator, BeforeValidator, WithJsonSchema

from cbt_plugins import formatting, plan
from cbt_plugins.config.errors import did_you_mean
from cbt_plugins.config.key_errors import UNIT_FORMATS, FieldError, FieldErrors
from cbt_plugins.formatting import BINARY_UNITS, DECIMAL_UNITS

_SIZE_UNITS = {"B": 1, "kB": 1000, **BINARY_UNITS, **DECIMAL_UNITS}
_TIME_UNITS = {"d": 86400, "h": 3600, "m": 60, "s": 1}
_TIME_WORDS = {"s": "sec second", "m": "min minute", "h": "hr hour", "d": "day"}

_RATE_UNITS = {"s": 1, "min": 60, "h": 3600, "day": 86400, "m": 60, "d": 86400}
_RATE_WORDS = {**{word: short for short, words in _TIME_WORDS.items() for word in words.split()}, "day": "day"}
_MULTIPLES = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9}

#: seconds, requests/s, and bytes of an object (S3's own limit): more are typing errors
_LONGEST, _FASTEST, _LARGEST = 366 * 86400, 1e9, 5 << 40

_NUMBER = r"[0-9]{1,20}(?:\.[0-9]{1,9})?"
_SIZE = re.compile(rf"({_NUMBER}) ?([A-Za-z]*)")
_TIME_PART = re.compile(rf"({_NUMBER}) ?([A-Za-z]+)")
_TIME = re.compile(rf"{_NUMBER} ?[A-Za-z]+(?: ?{_NUMBER} ?[A-Za-z]+)*")
_RATE = re.compile(rf"({_NUMBER}) ?([A-Za-z]?) ?/ ?([A-Za-z]+)")
_LINK = re.compile(rf"({_NUMBER}) ?([kMG])bit(?:/s)?")
_PERCENT = re.compile(rf"({_NUMBER}) ?%")


def _bare(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def parse_size(value: Any) -> int:
    """Return bytes for "4KiB", "4KB", "1.5MiB" or "4096B"; ValueError says what to write instead."""
    if _bare(value):
        raise ValueError(f"{value}: bytes? write {value}B")
    match = _SIZE.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None:
        raise ValueError("not a size; write for example 4KiB (4096 bytes) or 4KB (4000 bytes)")
    number, unit = match.groups()
    if not unit:
        raise ValueError(f"{number}: bytes? write {number}B")
    if unit.upper() in ("K", "M", "G", "T", "P"):
        letter = unit.upper()
        readings = [
            f"{number}{name} ({_plain(Decimal(number) * _SIZE_UNITS[name])} bytes)"
            for name in (f"{letter}iB", f"{letter}B")
        ]
        raise ValueError(f"{value.strip()}: {readings[0]} or {readings[1]}?")
    if unit not in _SIZE_UNITS:
        raise ValueError(f"unknown unit of size {unit!r}{did_you_mean(unit, _SIZE_UNITS)}")
    size = Decimal(number) * _SIZE_UNITS[unit]
    if size != size.to_integral_value():
        raise ValueError(f"{value.strip()} is not a whole number of bytes")
    return int(size)


def format_size(value: int) -> str:
    """Return the exact text for a file: 4096 -> "4KiB", 4000 -> "4KB", 4097 -> "4097B"."""
    return formatting.size(value).replace(" ", "")


def parse_duration(value: Any) -> float:
    """Return seconds for "30s", "5m", "1h30m" or "1d"; ValueError says what to write instead."""
    if _bare(value):
        raise ValueError(f"{value}: seconds? write {value}s")
    text = value.strip() if isinstance(value, str) else ""
    if text.startswith("-"):
        raise ValueError("a duration cannot be negative")
    if re.fullmatch(_NUMBER, text):
        raise ValueError(f"{text}: seconds? write {text}s")
    if not _TIME.fullmatch(text):
        raise ValueError("not a duration; write for example 30s, 5m, 1h30m or 1d")
    total, units_left = Decimal(0), list(_TIME_UNITS)
    for number, unit in _TIME_PART.findall(text):
        if unit not in _TIME_UNITS:
            word = unit.lower() if len(unit) < 3 else unit.lower().rstrip("s")
            hint = next(
                (short for short, words in _TIME_WORDS.items() if word in [short, *words.split()]), None
            )
            meant = f"did you mean '{number}{hint}'?" if hint else "use s, m, h or d"
            raise ValueError(f"unknown unit of time {unit!r}; {meant}")
        if unit not in units_left:
            raise ValueError("the parts of a duration go from long to short, each once: 1d2h3m4s")
        units_left = units_left[units_left.index(unit) + 1 :]
        total += Decimal(number) * _TIME_UNITS[unit]
    if total > _LONGEST:
        raise ValueError(f"more than {format_duration(_LONGEST)}, the longest duration")
    return float(total)


def parse_link(value: Any) -> float:
    """Return bytes/s of one direction for "25Gbit" or "1Gbit/s"; ValueError says what to write instead."""
    match = _LINK.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None:
        raise ValueError("not the speed of an interface; write for example 25Gbit (25 x 10^9 bits a second)")
    speed = float(Decimal(match.group(1)) * _MULTIPLES[match.group(2)] / 8)
    if not speed:
        raise ValueError("an interface needs a speed above 0")
    return speed


def about_link(speed: float) -> str:
    """Return the speed of an interface for people: 3.125e9 -> "25 Gbit/s"."""
    bits = 8 * speed
    factor, unit = next((f, u) for f, u in ((1e9, "G"), (1e6, "M"), (1e3, "k"), (0, "")) if bits >= f)
    return f"{bits / (factor or 1):.4g} {unit}bit/s"


def format_link(speed: float) -> str:
    """Return the text of a speed for a file, with four digits: 12.5e6 -> "100Mbit"."""
    return about_link(speed).replace(" ", "").partition("/")[0]


def format_duration(seconds: float) -> str:
    """Return the text, exact to the nanosecond: 5400 -> "1h30m", 0.5 -> "0.5s"."""
    seconds_left, text = Decimal(repr(round(seconds, 9))), ""
    for unit, factor in _TIME_UNITS.items():
        number = seconds_left if unit == "s" else seconds_left // factor
        seconds_left -= number * factor
        if number:
            text += f"{_plain(number)}{unit}"
    return text or "0s"


def parse_percent(value: Any) -> float:
    """Return a share 0..1 for "30%"; ValueError says what to write instead."""
    if _bare(value):
        raise ValueError(f"{value}: percent? write {value}%")
    match = _PERCENT.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None:
        raise ValueError("not a percentage; write for example 30%")
    share = Decimal(match.group(1)) / 100
    if share > 1:
        raise ValueError(f"{value.strip()} is more than 100%")
    return float(share)


def format_percent(share: float) -> str:
    """Return the text: 0.3 -> "30%", with as many digits as `parse_percent` takes."""
    return f"{_plain(Decimal(repr(round(share, 11))) * 100)}%"


def parse_rate(value: Any) -> float:
    """Return requests per second for 500, "500/s", "30000/h" or "5M/day"; ValueError says what to write instead."""
    if _bare(value):
        rate = float(value)  # at most 64 bits: the loader's limit
    else:
        match = _RATE.fullmatch(value.strip()) if isinstance(value, str) else None
        if match is None:
            raise ValueError("not a rate; write for example 500/s, 30000/h or 5M/day (requests of all drivers)")
        number, multiple, unit = match.groups()
        if multiple not in _MULTIPLES:
            near = next((candidate for candidate in _MULTIPLES if candidate.lower() == multiple.lower()), None)
            meant = f"did you mean '{number}{near}/{unit}'?" if near else "use k, M or G"
            raise ValueError(f"unknown multiple {multiple!r}; {meant}")
        if unit not in _RATE_UNITS:
            near = _RATE_WORDS.get(unit.lower().rstrip("s"))
            meant = f"did you mean '{number}{multiple}/{near}'?" if near else "use s, min, h or day"
            raise ValueError(f"unknown unit of time {unit!r}; {meant}")
        rate = float(Decimal(number) * _MULTIPLES[multiple] / _RATE_UNITS[unit])
    if not (rate > 0 and math.isfinite(rate)):
        raise ValueError("must be more than 0 requests")
    if rate > _FASTEST:
        raise ValueError(f"more than {_FASTEST:.0f} requests a second, the highest rate")
    return rate


def about_rate(rate: float) -> str:
    """Return a rate for people: 500.0 -> "500/s", 57.87037 -> "57.87/s"."""
    return f"{rate:.4g}/s" if rate < 1000 else f"{rate:.0f}/s"


def _plain(number: Decimal) -> str:
    text = f"{number:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _positive_duration(value: Any) -> float:
    seconds = parse_duration(value)
    if seconds == 0:
        raise ValueError("must be more than 0s")
    return seconds


def _positive_percent(value: Any) -> float:
    share = parse_percent(value)
    if share == 0:
        raise ValueError("must be more than 0%")
    return share


# Patterns for JSON Schema: an editor's check may be coarser than ours.
SIZE_PATTERN = r"^\s*[0-9]+(\.[0-9]+)? ?(B|kB|[KMGTP]i?B)\s*$"
PERCENT_PATTERN = r"^\s*[0-9]+(\.[0-9]+)? ?%\s*$"
RATE_PATTERN = r"^\s*[0-9]+(\.[0-9]+)? ?[kMG]? ?/ ?(s|min|m|h|day|d)\s*$"
LINK_PATTERN = r"^\s*[0-9]+(\.[0-9]+)? ?[kMG]bit(/s)?\s*$"
DURATION_PATTERN = r"^\s*([0-9]+(\.[0-9]+)? ?[dhms] ?)+\s*$"

UNIT_FORMATS.update(
    {
        SIZE_PATTERN: lambda size: format_size(int(size)),
        PERCENT_PATTERN: format_percent,
        LINK_PATTERN: format_link,
        DURATION_PATTERN: format_duration,
    }
)


def _object_size(value: Any) -> int:
    size = parse_size(value)
    if size > _LARGEST:
        raise ValueError(f"S3 takes objects of at most {formatting.size(_LARGEST)}")
    return size


#: bytes of an object, from text such as 4KiB
Size = Annotated[
    int,
    BeforeValidator(_object_size),
    WithJsonSchema({"type": "string", "pattern": SIZE_PATTERN, "examples": ["4KiB", "1MB"], "title": "size"}),
]
#: seconds, from text such as 1h30m; never 0
Duration = Annotated[
    float,
    BeforeValidator(_positive_duration),
    WithJsonSchema(
        {"type": "string", "pattern": DURATION_PATTERN, "examples": ["30s", "1h30m"], "title": "duration"}
    ),
]
#: share above 0 and up to 1, from text such as 30%
Percent = Annotated[
    float,
    BeforeValidator(_positive_percent),
    WithJsonSchema({"type": "string", "pattern": PERCENT_PATTERN, "examples": ["30%"], "title": "percent"}),
]


def share_within(least: float, most: float) -> AfterValidator:
    """Return the limits of a share, for the type of its key."""

    def check(share: float) -> float:
        if not least <= share <= most:
            raise ValueError(f"must be {format_percent(least)} to {format_percent(most)}")
        return share

    return AfterValidator(check)


_Range = Tuple[int, int]


def _range(value: Any) -> _Range:
    """Return (smallest, largest) of "4KiB" or "4KiB-64KiB"."""
    texts = value.split("-") if isinstance(value, str) and not value.startswith("-") else [value]
    if len(texts) > 2:
        raise ValueError("a range of sizes has two ends, as in 4KiB-64KiB")
    smallest, largest = _object_size(texts[0]), _object_size(texts[-1])
    if smallest < 1:
        raise ValueError("objects need at least 1B")
    if largest < smallest:
        raise ValueError(f"the smaller size comes first: {format_size(largest)}-{format_size(smallest)}")
    return smallest, largest


def parse_sizes(value: Any) -> plan.Sizes:
    """Return one size, or sizes with their shares of the objects."""
    if not isinstance(value, dict):
        return ((*_range(value), 1.0),)
    errors: List[FieldError] = []
    shares: Dict[_Range, float] = {}
    texts: Dict[_Range, Any] = {}
    for key, share in value.items():
        try:
            size = _range(key)
            if size in shares:
                raise ValueError(f"{_text(size)} is in the list twice")
            shares[size], texts[size] = 0.0, key
        except ValueError as error:
            errors.append(FieldError((key,), str(error), of_key=True))
            continue
        try:
            shares[size] = parse_percent(share)
            if not shares[size]:
                raise ValueError("a share of 0% is no share; leave the size out")
        except ValueError as error:
            errors.append(FieldError((key,), str(error)))
    total = sum(shares.values())
    if not errors and abs(total - 1) > 1e-9:
        errors.append(FieldError((), f"the sum of the shares is {format_percent(round(total, 9))}, not 100%"))
    ends: Dict[_Range, int] = {}
    ordered = sorted(shares)
    for size, following in zip(ordered, ordered[1:]):
        if size[0] < size[1] == following[0]:
            ends[size] = size[1] - 1  # where ranges touch, the border is the larger one's
        elif size[1] >= following[0]:
            errors.append(FieldError((texts[following],), f"overlaps {_text(size)}", of_key=True))
    if errors:
        raise FieldErrors(errors)
    return tuple((low, ends.get((low, high), high), share) for (low, high), share in shares.items())


def _text(size: _Range) -> str:
    low, high = size
    return format_size(low) if low == high else f"{format_size(low)}-{format_size(high)}"


def written_ranges(sizes: plan.Sizes) -> Sequence[_Range]:
    """Return (smallest, largest) of each size as people write it: where ranges touch, both have the border."""
    starts = {low for low, _, _ in sizes}
    return [(low, high + 1 if low < high and high + 1 in starts else high) for low, high, _ in sizes]


def size_texts(sizes: plan.Sizes) -> Sequence[str]:
    """Return each size as people write it into a file: 4KiB, or 4KiB-64KiB."""
    return [_text(ends) for ends in written_ranges(sizes)]


_ONE_SIZE = SIZE_PATTERN[len(r"^\s*") : -len(r"\s*$")]
RANGE_PATTERN = rf"^\s*{_ONE_SIZE}(\s*-\s*{_ONE_SIZE})?\s*$"
Sizes = Annotated[
    Tuple[Tuple[int, int, float], ...],
    BeforeValidator(parse_sizes),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string", "pattern": RANGE_PATTERN, "title": "size"},
                {
                    "type": "object",
                    "minProperties": 1,
                    "propertyNames": {"pattern": RANGE_PATTERN},
                    "additionalProperties": {"type": "string", "pattern": PERCENT_PATTERN},
                },
            ],
            "examples": ["4KiB", "4KiB-64KiB", {"4KiB": "50%", "1MiB": "50%"}],
        }
    ),
]


def parse_listen(text: str) -> Tuple[str, int]:
    """Return host and port of "[HOST:]PORT"; without HOST it is this machine alone. Raises ValueError."""
    host, _, port = text.rpartition(":")
    if not port.isdigit() or not 0 <= int(port) < 65536:
        raise ValueError(f"{text!r}: give [HOST:]PORT, such as 7878 or 0.0.0.0:7878")
    return host.strip("[]") or "127.0.0.1", int(port)
