"""Ranges of keys and of sizes, as YAML has them."""

from __future__ import annotations

from typing import Any, Dict

import pytest

from cbt_plugins.config.errors import ConfigError
from cbt_plugins.config.mix import Range, range_of
from cbt_plugins.config.section_to_plan import plan_of
from cbt_plugins.config.units import size_texts
from cbt_plugins.plan import Keys, Plan


def plan(phase: Dict[str, Any], **keys: Any) -> Plan:
    mix = {"get": 40, "put": 20, "stat": 10, "delete": 20, "multipart": 10}
    cycle = {"phases": [{"fill": {"objects": 5}}, {"hybrid": {"duration": "1m", "mix": mix, **phase}}]}
    section = {"s3": {"urls": ["http://a"], "user": "u"}, "engine": "cbt-load", "cycle": cycle, **keys}
    return plan_of("warp", section, {"clients": ["c1"]}, None)


@pytest.mark.parametrize(
    ("op", "value", "keys"),
    [
        ("get", "live", Keys("live")),
        ("get", "u(1,N)", Keys("u(1,N)")),
        ("stat", "r(1,N)", Keys("r(1,N)")),
        ("put", "new", Keys("new")),
        ("put", "s( N+1, 10N )", Keys("s(N+1,10N)")),
        ("multipart", "u(5,2N+3)", Keys("u(5,2N+3)")),
        ("delete", "u(7,7)", Keys("u(7,7)")),
        ("delete", {"select": "s(1,N)"}, Keys("s(1,N)")),
        ("delete", {"select": "u(1,2N)", "absent": True}, Keys("u(1,2N)", absent=True)),
    ],
)
def test_keys(op: str, value: Any, keys: Keys) -> None:
    assert plan({"keys": {op: value}}).phases[1].keys == {op.upper(): keys}


def test_the_bounds_of_a_range() -> None:
    assert range_of("live") is None
    assert range_of("new") is None
    assert range_of("u(1,N)") == Range("u", (0, 1), (1, 0))
    assert range_of("s(N+1,10N)") == Range("s", (1, 1), (10, 0))
    assert range_of("r(12,2N+34)") == Range("r", (0, 12), (2, 34))


@pytest.mark.parametrize(
    ("op", "value", "message"),
    [
        ("get", "new", "get: only put and multipart make new objects; get takes live, or a range"),
        ("delete", "new", "delete: only put and multipart make new objects"),
        ("put", "live", "put: put takes new, or a range such as u(1,N)"),
        ("get", "liv", "get: not a choice of keys: 'liv'; did you mean 'live'?"),
        ("get", "u(1,n)", r"get: not a choice of keys: 'u(1,n)'; did you mean 'u(1,N)'?"),
        ("get", "U(1,2N)", "did you mean 'u(1,2N)'?"),
        ("get", "c(1)", "get: not a choice of keys: 'c(1)'; write live, new, u(1,N) (any of them)"),
        ("get", "u(1,N-1)", "get: not a choice of keys: 'u(1,N-1)'; write live"),
        ("get", "u(1,5+N)", "a bound is a number, N, 2N, N+1 or 2N+1"),
        ("get", "u(1", "get: 'u(1' is incomplete: between braces a comma ends a value; quote it"),
        ("get", 7, "get: write live, new, u(1,N)"),
        ("get", "u(0,N)", "get: the numbers of objects begin with 1"),
        ("get", "u(1,99999999999)", "get: the numbers of objects end with 9999999999"),
        ("get", "u(5,4)", "get: u(5,4): the range ends before it begins"),
        ("get", "s(N+2,N+1)", "get: s(N+2,N+1): the range ends before it begins"),
        ("get", "r(2N,N+5)", "get: r(2N,N+5): the range ends before it begins"),
        ("get", {"select": "u(1,N)", "absent": True}, "get.absent: is for delete only, not for get"),
        ("delete", {"select": "s(1,N)", "absent": True}, "delete.absent: goes with a range u(a,b) only, not with s"),
        ("delete", {"select": "live", "absent": True}, "delete.absent: goes with a range u(a,b) only, not with live"),
        ("delete", {"select": "u(1,N)", "absent": 1}, "delete.absent: must be true or false"),
        ("delete", {"selct": "u(1,N)"}, "delete.selct: unknown key; did you mean 'select'?"),
        ("delete", {"absent": True}, "delete.select: this key is required"),
        ("list", "live", "list: unknown key; known here: get, put, stat, delete, multipart"),
    ],
)
def test_keys_that_are_refused(op: str, value: Any, message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        plan({"keys": {op: value}})
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("size", "sizes", "texts"),
    [
        ("4KiB-64KiB", ((4096, 65536, 1.0),), ["4KiB-64KiB"]),
        ("4KiB - 64KiB", ((4096, 65536, 1.0),), ["4KiB-64KiB"]),
        ({"1KB": "50%", "2KB-3KB": "50%"}, ((1000, 1000, 0.5), (2000, 3000, 0.5)), ["1KB", "2KB-3KB"]),
        (  # where two touch, the border is the larger one's, whatever the order of the keys
            {"2KiB-4KiB": "40%", "1KiB-2KiB": "25%", "4KiB": "35%"},
            ((2048, 4095, 0.4), (1024, 2047, 0.25), (4096, 4096, 0.35)),
            ["2KiB-4KiB", "1KiB-2KiB", "4KiB"],
        ),
    ],
)
def test_ranges_of_sizes(size: Any, sizes: Any, texts: Any) -> None:
    for engine in ("cbt-load", "warp"):
        section = {"s3": {"urls": ["http://a"], "user": "u"}, "engine": engine, "size": size}
        section["cycle"] = {"phases": [{"fill": {"objects": 5}}]}
        made = plan_of("warp", section, {"clients": ["c1"]}, None)
        assert made.buckets[0].sizes == sizes
        assert list(size_texts(sizes)) == texts


@pytest.mark.parametrize(
    ("size", "message"),
    [
        ("64KiB-4KiB", "size: the smaller size comes first: 4KiB-64KiB"),
        ("1KiB-2KiB-3KiB", "size: a range of sizes has two ends, as in 4KiB-64KiB"),
        ("1-2KiB", "size: 1: bytes? write 1B"),
        ("0B-2KiB", "size: objects need at least 1B"),
        ("-2KiB", "size: not a size"),
        ({"1KiB-2KiB": "50%", "1536B-4KiB": "50%"}, "size.1536B-4KiB: overlaps 1KiB-2KiB"),
        ({"1KiB": "50%", "1KiB-2KiB": "50%"}, "size.1KiB-2KiB: overlaps 1KiB"),
        ({"1KiB-2KiB": "50%", "1024B-2048B": "50%"}, "size.1024B-2048B: 1KiB-2KiB is in the list twice"),
    ],
)
def test_ranges_of_sizes_that_are_refused(size: Any, message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        plan({}, size=size)
    assert message in str(refused.value)
