"""Matrices of counts in fewer bytes."""

from __future__ import annotations

import pickle
import weakref
import zlib
from types import SimpleNamespace

import numpy as np
import pytest

from cbt_plugins.results.requests import packed_counts
from cbt_plugins.results.requests.packed_counts import ROWS, PackedCounts
from cbt_plugins.results.requests.time_series import Blocks, TimeGrid


@pytest.mark.parametrize("most", [3, 300, 70_000])
@pytest.mark.parametrize("columns", [0, 5])
@pytest.mark.parametrize("rows", [0, 1, ROWS, 2 * ROWS + 3])
def test_rows_come_back_as_they_were(rows: int, columns: int, most: int) -> None:
    counts = np.random.default_rng(1).integers(0, most, (rows, columns)).astype(np.uint32)
    packed = PackedCounts(counts)
    for some in (slice(None), slice(0), slice(1, 3), slice(ROWS - 1, ROWS + 1), slice(-2, None), slice(ROWS, 10**6)):
        assert np.array_equal(packed.rows(some), counts[some])
        assert np.array_equal(packed.sum(some), counts[some].sum(axis=0))


def test_a_sum_of_many_rows_unpacks_those_at_its_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = np.random.default_rng(4).poisson(2.0, (9 * ROWS, 20)).astype(np.uint32)
    packed, unpacked = PackedCounts(counts), []

    def decompress(part: bytes) -> bytes:
        unpacked.append(part)
        return zlib.decompress(part)

    monkeypatch.setattr(packed_counts, "inflate", SimpleNamespace(decompress=decompress))
    assert np.array_equal(packed.sum(slice(3, 8 * ROWS + 5)), counts[3 : 8 * ROWS + 5].sum(axis=0))
    assert len(unpacked) == 2


def latencies() -> Blocks:
    blocks = Blocks(TimeGrid(0.0, 600.0))
    chance = np.random.default_rng(2)
    for begin in (0, 300):
        blocks.add(begin, 900, chance.integers(0, 4, (250, 40)).astype(np.uint32))
    blocks.max[:] = 10**9
    return blocks


def test_packed_latencies_say_the_same() -> None:
    whole, packed = latencies(), latencies()
    packed.pack()
    other = pickle.loads(pickle.dumps(latencies()))
    for blocks in (packed, other):
        assert blocks.n == whole.n > 0
        assert np.array_equal(blocks.at_least(0, 905, 5000), whole.at_least(0, 905, 5000))
        assert blocks.quantiles(0.5, 0.99) == whole.quantiles(0.5, 0.99)
    whole.merge(latencies())
    packed.merge(other)
    assert packed.n == whole.n and packed.quantiles(0.9) == whole.quantiles(0.9)


def test_latencies_of_busy_seconds_take_a_small_part_of_their_bytes() -> None:
    counts = np.random.default_rng(3).poisson(2.0, (4 * ROWS, 200)).astype(np.uint32)
    assert len(pickle.dumps(PackedCounts(counts))) < counts.nbytes / 8


def test_packed_latencies_hold_no_other_memory() -> None:
    """Those of a phase of two hours are 60 MB."""
    blocks = latencies()
    counts = weakref.ref(blocks.rows().base if blocks.rows().base is not None else blocks.rows())
    blocks.pack()
    assert counts() is None
