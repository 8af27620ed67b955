"""Workers of a hybrid load."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cbt_plugins.load.worker_groups import by_latency, by_share, fixed, groups_of

REEF = {"GET": 45.0, "PUT": 35.0, "STAT": 15.0, "DELETE": 5.0}
LATENCY = {"GET": 0.007, "PUT": 0.035, "STAT": 0.004, "DELETE": 0.012}


def test_deletes_have_puts_of_their_own() -> None:
    groups = {role: share for _, role, share in groups_of(REEF)}
    assert groups == {"read": 45.0, "stat": 15.0, "put-keep": 30.0, "put-drop": 5.0, "delete": 5.0}


def test_as_many_deletes_as_puts_keep_nothing() -> None:
    assert [role for _, role, _ in groups_of({"GET": 80.0, "PUT": 10.0, "DELETE": 10.0})] == [
        "read",
        "put-drop",
        "delete",
    ]


def test_read_only_mix_has_two_groups() -> None:
    assert [role for _, role, _ in groups_of({"GET": 75.0, "STAT": 25.0})] == ["read", "stat"]


def test_workers_follow_share_times_latency() -> None:
    """With many workers the closed loops alone give the shares: rate = workers / latency."""
    groups = by_latency(REEF, 2000, LATENCY)
    rates = {group.role: group.workers / LATENCY[group.op] for group in groups}
    total = sum(rates.values())
    for group in groups:
        assert 100 * rates[group.role] / total == pytest.approx(group.share, abs=0.3)
        assert group.rate_limit == 0


def test_a_loop_that_gets_too_much_is_paced_to_its_share_of_the_expected_rate() -> None:
    groups = {group.role: group for group in by_latency(REEF, 8, LATENCY)}
    expected = 8 / sum(REEF[op] / 100 * LATENCY[op] for op in REEF)
    assert groups["stat"].rate_limit == pytest.approx(expected * 0.15, rel=1e-3)
    assert groups["stat"].workers == 2
    assert groups["put-keep"].rate_limit == 0


def test_fixed_workers_are_kept() -> None:
    groups = fixed(REEF, {"GET": 3, "PUT": 14, "STAT": 1, "DELETE": 2})
    assert {group.role: group.workers for group in groups} == {
        "read": 3,
        "stat": 1,
        "put-keep": 12,
        "put-drop": 2,
        "delete": 2,
    }


@given(workers=st.integers(5, 500))
def test_by_share_uses_all_workers_and_idles_no_group(workers: int) -> None:
    groups = by_share(REEF, workers)
    assert all(group.workers >= 1 for group in groups)
    assert workers <= sum(group.workers for group in groups) <= workers + len(groups) - 1
