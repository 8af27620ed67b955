"""Workers of a hybrid load."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cbt_plugins.load.split import by_latency, by_share, fixed, lanes_of

REEF = {"GET": 45.0, "PUT": 35.0, "STAT": 15.0, "DELETE": 5.0}
LATENCY = {"GET": 0.007, "PUT": 0.035, "STAT": 0.004, "DELETE": 0.012}


def test_deletes_have_puts_of_their_own() -> None:
    lanes = {role: share for _, role, share in lanes_of(REEF)}
    assert lanes == {"read": 45.0, "stat": 15.0, "put-keep": 30.0, "put-drop": 5.0, "delete": 5.0}


def test_as_many_deletes_as_puts_keep_nothing() -> None:
    assert [role for _, role, _ in lanes_of({"GET": 80.0, "PUT": 10.0, "DELETE": 10.0})] == [
        "read",
        "put-drop",
        "delete",
    ]


def test_read_only_mix_has_two_lanes() -> None:
    assert [role for _, role, _ in lanes_of({"GET": 75.0, "STAT": 25.0})] == ["read", "stat"]


def test_workers_follow_share_times_latency() -> None:
    """With many workers the closed loops alone give the shares: rate = workers / latency."""
    lanes = by_latency(REEF, 2000, LATENCY)
    rates = {lane.role: lane.workers / LATENCY[lane.op] for lane in lanes}
    total = sum(rates.values())
    for lane in lanes:
        assert 100 * rates[lane.role] / total == pytest.approx(lane.share, abs=0.3)
        assert lane.rate_limit == 0


def test_a_loop_that_gets_too_much_is_paced_to_its_share_of_the_expected_rate() -> None:
    lanes = {lane.role: lane for lane in by_latency(REEF, 8, LATENCY)}
    expected = 8 / sum(REEF[op] / 100 * LATENCY[op] for op in REEF)
    assert lanes["stat"].rate_limit == pytest.approx(expected * 0.15, rel=1e-3)
    assert lanes["stat"].workers == 2
    assert lanes["put-keep"].rate_limit == 0


def test_fixed_workers_are_kept() -> None:
    lanes = fixed(REEF, {"GET": 3, "PUT": 14, "STAT": 1, "DELETE": 2})
    assert {lane.role: lane.workers for lane in lanes} == {
        "read": 3,
        "stat": 1,
        "put-keep": 12,
        "put-drop": 2,
        "delete": 2,
    }


@given(workers=st.integers(5, 500))
def test_by_share_uses_all_workers_and_idles_no_lane(workers: int) -> None:
    lanes = by_share(REEF, workers)
    assert all(lane.workers >= 1 for lane in lanes)
    assert workers <= sum(lane.workers for lane in lanes) <= workers + len(lanes) - 1
