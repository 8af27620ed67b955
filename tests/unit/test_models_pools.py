"""The PG calculator's results, and the odds of PGs when nodes are down against trying all choices."""

from __future__ import annotations

import itertools
import json
import math
from fractions import Fraction
from pathlib import Path
from typing import List

import pytest

from cbt_plugins.models.pools import (
    Pool,
    Redundancy,
    copies,
    failed_domains,
    inactive_share,
    members_lost,
    members_per_osd,
    nearest_power,
    pg_count,
    rgw_pools,
    table,
)

EC42 = Redundancy(4, 2)


@pytest.mark.parametrize(
    ("osds", "percent", "size", "pgs"),
    [
        (312, 0.1, 3, 256),  # the six rows of the SDC slide
        (312, 94.8, 6, 4096),
        (312, 1.0, 3, 256),
        (312, 3.0, 3, 256),
        (312, 94.8, 3, 8192),  # with 3 copies
        (192, 94.8, 6, 4096),  # the Reef study
        (192, 3.0, 3, 256),
        (192, 0.1, 3, 128),
        (100, 5.0, 3, 128),  # the calculator's own default row
        (1, 100.0, 1, 128),
        (3, 100.0, 3, 128),
    ],
)
def test_results_of_the_calculator(osds: int, percent: float, size: int, pgs: int) -> None:
    assert pg_count(osds, percent, size) == pgs


def test_every_recorded_row_of_the_calculator() -> None:
    recorded = json.loads((Path(__file__).parents[1] / "data" / "pgcalc" / "results.json").read_text())
    rows = 0
    for block in recorded["pgs"]:
        for percent, numbers in zip(recorded["percent"], block["by_percent"]):
            found = [pg_count(osds, percent, block["size"], block["target"]) for osds in recorded["osds"]]
            assert found == numbers, (block["target"], block["size"], percent)
            rows += len(numbers)
    assert rows == 5760


@pytest.mark.parametrize(
    ("number", "power"), [(0, 0), (1, 1), (3, 4), (5, 4), (6, 8), (105, 128), (170, 128), (171, 256), (192, 256)]
)
def test_nearest_powers(number: int, power: int) -> None:
    assert nearest_power(number) == power


def test_never_more_than_a_quarter_below() -> None:
    """The calculator promises that; rounding the exponent alone would be up to 29 % below (181 to 128)."""
    for number in range(1, 5000):
        power = nearest_power(number)
        assert math.log2(power).is_integer()
        assert 0.75 * number <= power <= 1.5 * number


def test_small_pools_get_a_third_of_a_pg_for_each_osd_and_twice_that_below_one() -> None:
    """The calculator doubles its least number once, and not until there is a PG for each OSD."""
    assert [pg_count(osds, 0.0, 3) for osds in (3, 5, 20, 100, 312)] == [4, 4, 16, 64, 256]


def test_a_target_of_200() -> None:
    assert pg_count(312, 94.8, 6, target=200) == 8192


def test_what_the_calculator_does_not_take() -> None:
    for osds, percent, size, target in ((0, 1, 3, 100), (5, 1, 0, 100), (5, -1, 3, 100), (5, 1, 3, 0)):
        with pytest.raises(ValueError, match="needs OSDs"):
            pg_count(osds, percent, size, target)


def test_pgs_of_an_rgw() -> None:
    found = {pool.name: pgs for pool, pgs in table(rgw_pools(EC42), 192)}
    assert found["default.rgw.buckets.data"] == 4096
    assert found["default.rgw.buckets.index"] == 256
    assert found[".rgw.root"] == 128
    assert rgw_pools(EC42)[-1] == Pool("default.rgw.buckets.data", 94.8, EC42)
    assert members_per_osd([(4096, 6)], 192) == 128
    assert members_per_osd([(8192, 3)] * 2 + [(64, 3)] * 4, 60) == pytest.approx(832)


def tried(down: int, total: int, size: int) -> List[Fraction]:
    """Share of all choices of `size` domains that have 0, 1, 2 ... of the failed ones."""
    choices = list(itertools.combinations(range(total), size))
    return [
        Fraction(sum(sum(domain < down for domain in choice) == lost for choice in choices), len(choices))
        for lost in range(size + 1)
    ]


@pytest.mark.parametrize(("down", "total", "size"), [(2, 8, 6), (1, 8, 6), (3, 9, 4), (2, 4, 3), (0, 5, 3), (5, 5, 3)])
def test_members_lost_as_tried(down: int, total: int, size: int) -> None:
    expected = [float(share) for share in tried(down, total, size)]
    assert members_lost(failed_domains(down, total), size) == pytest.approx(expected)


def test_two_of_eight_hosts() -> None:
    lost = members_lost(failed_domains(2, 8), 6)
    assert lost[2] == pytest.approx(15 / 28)
    assert 1 - lost[0] == pytest.approx(27 / 28)
    assert inactive_share(failed_domains(2, 8), 6, 5) == pytest.approx(15 / 28)


def test_an_undersized_pool() -> None:
    assert members_lost(failed_domains(1, 2), 3) == pytest.approx([0, 1, 0])
    assert inactive_share(failed_domains(1, 2), 3, 2) == pytest.approx(1.0)
    assert failed_domains(5, 3) == [1.0, 1.0, 1.0]


def test_copies_are_pools_too() -> None:
    assert [pool.kept for pool in rgw_pools(copies(2))][-1] == copies(2)
