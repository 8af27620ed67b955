"""Sizes, durations and percentages: exact both ways, and nothing without a unit."""

from __future__ import annotations

import contextlib
import re
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cbt_plugins import formatting
from cbt_plugins.config import units


@settings(deadline=None)
@given(st.integers(min_value=0, max_value=1 << 60))
def test_a_size_survives_being_written(size: int) -> None:
    assert units.parse_size(units.format_size(size)) == size


@settings(deadline=None)
@given(st.decimals(min_value=0, max_value=366 * 86400, places=3))
def test_a_duration_survives_being_written(seconds: Decimal) -> None:
    assert units.parse_duration(units.format_duration(float(seconds))) == float(seconds)


@settings(deadline=None)
@given(st.decimals(min_value=0, max_value=100, places=3))
def test_a_percentage_survives_being_written(percent: Decimal) -> None:
    share = units.parse_percent(f"{percent}%")
    assert units.parse_percent(units.format_percent(share)) == share


@settings(deadline=None)
@given(st.text(max_size=12))
def test_any_text_is_read_or_refused_and_never_breaks(text: str) -> None:
    for parse in (units.parse_size, units.parse_duration, units.parse_percent):
        with contextlib.suppress(ValueError):
            assert parse(text) >= 0


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("4KiB", 4096),
        ("4KB", 4000),
        ("4kB", 4000),
        ("1.5MiB", 1572864),
        ("4096B", 4096),
        (" 1 GiB ", 1 << 30),
    ],
)
def test_sizes(text: str, size: int) -> None:
    assert units.parse_size(text) == size


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("30s", 30), ("5m", 300), ("1h30m", 5400), ("1d", 86400), ("0.5s", 0.5), ("1h 5s", 3605)],
)
def test_durations(text: str, seconds: float) -> None:
    assert units.parse_duration(text) == seconds


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("4K", "4K: 4KiB (4096 bytes) or 4KB (4000 bytes)?"),
        ("1.5m", "1.5m: 1.5MiB (1572864 bytes) or 1.5MB (1500000 bytes)?"),
        (4096, "4096: bytes? write 4096B"),
        ("4096", "4096: bytes? write 4096B"),
        ("4kib", "unknown unit of size 'kib'; did you mean 'KiB'?"),
        ("0.3B", "0.3B is not a whole number of bytes"),
        ("-4KiB", "not a size"),
        (True, "not a size"),
        (None, "not a size"),
    ],
)
def test_sizes_that_are_refused(value: object, message: str) -> None:
    with pytest.raises(ValueError, match="^" + re.escape(message)):
        units.parse_size(value)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (60, "60: seconds? write 60s"),
        ("60", "60: seconds? write 60s"),
        ("-5m", "a duration cannot be negative"),
        ("5 minutes", "unknown unit of time 'minutes'; did you mean '5m'?"),
        ("5M", "unknown unit of time 'M'; did you mean '5m'?"),
        ("5ms", "unknown unit of time 'ms'; use s, m, h or d"),
        ("30m1h", "the parts of a duration go from long to short"),
        ("soon", "not a duration"),
    ],
)
def test_durations_that_are_refused(value: object, message: str) -> None:
    with pytest.raises(ValueError, match="^" + re.escape(message)):
        units.parse_duration(value)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (30, "30: percent? write 30%"),
        (0.3, "0.3: percent?"),
        ("101%", "101% is more than 100%"),
        ("30", "not a perc"),
    ],
)
def test_percentages_that_are_refused(value: object, message: str) -> None:
    with pytest.raises(ValueError, match="^" + re.escape(message)):
        units.parse_percent(value)


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (4096, "4KiB"),
        (4000, "4KB"),
        (4097, "4097B"),
        (128000, "128KB"),
        (1 << 20, "1MiB"),
        (102400, "100KiB"),
        (0, "0B"),
    ],
)
def test_sizes_are_written_as_people_would(size: int, text: str) -> None:
    assert units.format_size(size) == text


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (2097664000, "1.95 GiB"),
        (1048575, "1 MiB"),
        (1000 << 20, "1000 MiB"),
        (5 << 50, "5 PiB"),
    ],
)
def test_sizes_for_people_have_three_digits(size: int, text: str) -> None:
    assert formatting.about_size(size) == text
