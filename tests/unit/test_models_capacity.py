"""Objects, sizes and space, against drawing and storing them one by one."""

from __future__ import annotations

import math
import random
from typing import List, Sequence

import pytest

from cbt_plugins.models.capacity import (
    as_cosbench_draws,
    max_avail,
    mean_size,
    objects_per_bucket,
    parse_cosbench,
    per_day,
    per_second,
    raw_bytes,
    raw_mean,
    used_share,
)
from cbt_plugins.models.pools import Redundancy, copies

STUDY = "h(1|1|50,64|64|15,8192|8192|15,65536|65536|15,1048576|1048576|5)KB"
TIB, MIB, KIB = 1 << 40, 1 << 20, 1 << 10
EC42, THREE = Redundancy(4, 2), copies(3)


def test_available_space() -> None:
    assert max_avail(524 * TIB, EC42) / TIB == pytest.approx(331.8667, abs=1e-4)
    assert max_avail(300.0, THREE, full=1.0) == 100.0
    assert used_share(95.9, 199) == pytest.approx(0.3252, abs=1e-4)


def test_the_mean_of_the_study() -> None:
    sizes = parse_cosbench(STUDY)
    assert mean_size(sizes) == 63_498_100
    assert mean_size(as_cosbench_draws(sizes)) == 53_012_350
    assert mean_size([(1000, 3000, 1.0), (6000, 6000, 3.0)]) == 5000


@pytest.mark.parametrize(
    ("mean", "number"), [(62e6, 353_262), (62 * MIB, 336_897), (63_498_100, 344_927), (53_012_350, 413_154)]
)
def test_numobj_of_the_study(mean: float, number: int) -> None:
    assert objects_per_bucket(332 * TIB, 0.3, mean, 5) == number


def test_numobj_of_the_older_tool() -> None:
    usable = max_avail(174e12, THREE, full=1.0)
    assert usable == pytest.approx(58e12)
    assert objects_per_bucket(usable, 1.0, 1e6, 10) == 5_800_000
    assert [objects_per_bucket(usable, fill, 1e6, 10) for fill in (0.25, 0.5)] == [1_450_000, 2_900_000]
    assert [objects_per_bucket(usable, fill, 1e6) for fill in (0.25, 0.5)] == [14_500_000, 29_000_000]


def cosbench(weights: Sequence[int]) -> List[int]:
    """How often each class is taken when every number that can be drawn is drawn once."""
    taken = [0] * len(weights)
    cumulated = [sum(weights[: i + 1]) for i in range(len(weights))]
    for number in range(sum(weights)):
        taken[next(i for i, total in enumerate(cumulated) if number <= total)] += 1
    return taken


@pytest.mark.parametrize("weights", [[50, 15, 15, 15, 5], [1, 1], [100], [3, 0, 2, 0], [25, 40, 25, 10], [0, 7]])
def test_the_weights_that_cosbench_uses(weights: List[int]) -> None:
    drawn = as_cosbench_draws([(i, i, float(weight)) for i, weight in enumerate(weights)])
    assert [weight for _, _, weight in drawn] == cosbench(weights)


def test_cosbench_has_whole_weights() -> None:
    with pytest.raises(ValueError, match="whole numbers"):
        as_cosbench_draws([(1, 1, 0.5), (2, 2, 0.5)])


def test_histograms_of_cosbench() -> None:
    assert parse_cosbench(" h(1|2|25, 64|64|75) MB ") == [(10**6, 2 * 10**6, 25.0), (64 * 10**6, 64 * 10**6, 75.0)]
    for wrong in ("h(1|1|50)", "u(1,5)KB", "h(1|1)KB", "h(2|1|5)KB", "h(1|1|)KB", "h(1|1|0)KB", ""):
        with pytest.raises(ValueError, match=r"histogram|class|smallest|weight"):
            parse_cosbench(wrong)


def stored(size: int, k: int, m: int, min_alloc: int, unit: int) -> int:
    """Write the object byte by byte: stripes of k units, round about; then count allocation units of each chunk."""
    total = 0
    most = 4 * MIB if k == 1 else 4 * MIB // (k * unit) * (k * unit)
    for start in range(0, size, most):
        piece = min(most, size - start)
        chunks = [0] * (k + m)
        if k == 1:
            chunks = [piece] * (1 + m)
        else:
            for _ in range(0, piece, k * unit):
                chunks = [chunk + unit for chunk in chunks]  # a stripe that is begun is written in full
        total += sum(math.ceil(chunk / min_alloc) * min_alloc for chunk in chunks)
    return total


@pytest.mark.parametrize("pool", [THREE, copies(1), EC42, Redundancy(8, 3), Redundancy(5, 2)])
@pytest.mark.parametrize("min_alloc", [4 * KIB, 64 * KIB])
def test_raw_space_as_stored(pool: Redundancy, min_alloc: int) -> None:
    sizes = [0, 1, 1000, 1 * KIB, 4 * KIB, 4 * KIB + 1, 16 * KIB, 64 * KIB, 100_000, 4 * MIB - 1, 4 * MIB, 4 * MIB + 1]
    for size in [*sizes, 9_000_000, 64 * MIB]:
        for unit in (4 * KIB, 16 * KIB):
            assert raw_bytes(size, pool, min_alloc, unit) == stored(size, pool.k, pool.m, min_alloc, unit), size


def test_small_objects_on_an_erasure_code() -> None:
    assert raw_bytes(1000, EC42) == raw_bytes(1 * KIB, EC42) == 24 * KIB
    assert raw_bytes(1 * KIB, EC42, min_alloc=64 * KIB) == 384 * KIB
    assert raw_bytes(1 * KIB, THREE) == 12 * KIB
    assert raw_bytes(64 * MIB, EC42) == 96 * MIB  # large ones: (k+m)/k


def test_raw_space_of_a_mix() -> None:
    assert raw_mean([(1000, 1000, 3.0), (16 * KIB, 16 * KIB, 1.0)], EC42) == 24 * KIB
    chance = random.Random(1)
    spread = [(1 * KIB, 64 * KIB, 1.0)]
    tried = sum(raw_bytes(chance.randint(1 * KIB, 64 * KIB), EC42) for _ in range(50_000)) / 50_000
    assert raw_mean(spread, EC42) == pytest.approx(tried, rel=0.01)


def test_a_day() -> None:
    assert per_second(864_000) == 10.0
    assert per_day(10.0) == 864_000
