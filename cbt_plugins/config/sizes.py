"""`size:` -- one object size, or several with their shares; each exact, or a range."""

from __future__ import annotations

from typing import Annotated, Any, Dict, List, Sequence, Tuple

from pydantic import BeforeValidator, WithJsonSchema

from cbt_plugins import plan
from cbt_plugins.config.units import (
    PERCENT_PATTERN,
    SIZE_PATTERN,
    format_percent,
    format_size,
    parse_percent,
    parse_size,
)
from cbt_plugins.config.validate import Problem, Problems

_Range = Tuple[int, int]


def _range(value: Any) -> _Range:
    """(smallest, largest) of "4KiB" or "4KiB-64KiB"."""
    texts = value.split("-") if isinstance(value, str) and not value.startswith("-") else [value]
    if len(texts) > 2:
        raise ValueError("a range of sizes has two ends, as in 4KiB-64KiB")
    smallest, largest = parse_size(texts[0]), parse_size(texts[-1])
    if smallest < 1:
        raise ValueError("objects need at least 1B")
    if largest < smallest:
        raise ValueError(f"the smaller size comes first: {format_size(largest)}-{format_size(smallest)}")
    return smallest, largest


def _sizes(value: Any) -> plan.Sizes:
    """One size, or sizes with their shares of the objects."""
    if not isinstance(value, dict):
        return ((*_range(value), 1.0),)
    problems: List[Problem] = []
    shares: Dict[_Range, float] = {}
    texts: Dict[_Range, Any] = {}
    for key, share in value.items():
        try:
            size = _range(key)
            if size in shares:
                raise ValueError(f"{_text(size)} is here twice")
            shares[size], texts[size] = 0.0, key
        except ValueError as error:
            problems.append(Problem((key,), str(error), of_key=True))
            continue
        try:
            shares[size] = parse_percent(share)
            if not shares[size]:
                raise ValueError("a share of 0% is no share; leave the size out")
        except ValueError as error:
            problems.append(Problem((key,), str(error)))
    total = sum(shares.values())
    if not problems and abs(total - 1) > 1e-9:
        problems.append(Problem((), f"the sum of the shares is {format_percent(round(total, 9))}, not 100%"))
    ends: Dict[_Range, int] = {}
    ordered = sorted(shares)
    for size, following in zip(ordered, ordered[1:]):
        if size[0] < size[1] == following[0]:
            ends[size] = size[1] - 1  # where ranges touch, the border is the larger one's
        elif size[1] >= following[0]:
            problems.append(Problem((texts[following],), f"overlaps {_text(size)}", of_key=True))
    if problems:
        raise Problems(problems)
    return tuple((low, ends.get((low, high), high), share) for (low, high), share in shares.items())


def _text(size: _Range) -> str:
    low, high = size
    return format_size(low) if low == high else f"{format_size(low)}-{format_size(high)}"


def size_texts(sizes: plan.Sizes) -> Sequence[str]:
    """Return each size as people write it: 4KiB, or 4KiB-64KiB."""
    starts = {low for low, _, _ in sizes}
    return [_text((low, high + 1 if low < high and high + 1 in starts else high)) for low, high, _ in sizes]


_ONE = SIZE_PATTERN[len(r"^\s*") : -len(r"\s*$")]
RANGE_PATTERN = rf"^\s*{_ONE}(\s*-\s*{_ONE})?\s*$"
Sizes = Annotated[
    Tuple[Tuple[int, int, float], ...],
    BeforeValidator(_sizes),
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
