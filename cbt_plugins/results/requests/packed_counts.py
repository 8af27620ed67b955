"""Matrices of counts that are read seldom: compressed, in a small part of their bytes."""

from __future__ import annotations

import zlib
from functools import lru_cache

import numpy as np

from cbt_plugins.results.aggregates_file import inflate

#: rows that are compressed together
ROWS = 256
#: parts that stay unpacked: stretches of time that follow each other are read one after the other, for each operation
_UNPACKED = 16
#: how zlib packs the counts of a column after each other: small numbers, and runs of equal ones at the columns' ends
_PACKING = (1, zlib.DEFLATED, zlib.MAX_WBITS, zlib.DEF_MEM_LEVEL, zlib.Z_RLE)


class PackedCounts:
    """A matrix of counts, some rows of which are unpacked at a time."""

    def __init__(self, counts: np.ndarray) -> None:
        self.shape = counts.shape
        self._type = np.min_scalar_type(int(counts.max(initial=0)))
        parts = [counts[begin : begin + ROWS] for begin in range(0, len(counts), ROWS)]
        self._parts = [self._packed(part) for part in parts]
        sums = np.array([part.sum(axis=0, dtype=np.uint64) for part in parts]).reshape(len(parts), counts.shape[1])
        self._sums = sums.astype(np.min_scalar_type(int(sums.max(initial=0))))  # of each part

    def rows(self, some: slice) -> np.ndarray:
        """Return these rows; their type is as small as the counts allow."""
        begin, end, _ = some.indices(self.shape[0])
        if end <= begin or not self.shape[1]:
            return np.zeros((max(0, end - begin), self.shape[1]), self._type)
        first = begin // ROWS
        parts = [_unpacked(part, self._type, self.shape[1]) for part in self._parts[first : -(-end // ROWS)]]
        counts = parts[0] if len(parts) == 1 else np.concatenate(parts)
        return counts[begin - first * ROWS : end - first * ROWS]

    def sum(self, some: slice) -> np.ndarray:
        """Return the sums of these rows; no more than two parts are unpacked."""
        begin, end, _ = some.indices(self.shape[0])
        first, last = -(-begin // ROWS), end // ROWS  # the parts that are wholly among them
        if first >= last:
            return self.rows(some).sum(axis=0, dtype=np.uint64)
        borders = (self.rows(slice(begin, first * ROWS)), self.rows(slice(last * ROWS, end)))
        within = self._sums[first:last].sum(axis=0, dtype=np.uint64)
        return np.asarray(within + sum(rows.sum(axis=0, dtype=np.uint64) for rows in borders))

    def _packed(self, part: np.ndarray) -> bytes:
        packer = zlib.compressobj(*_PACKING)
        return packer.compress(part.T.astype(self._type).tobytes()) + packer.flush()


@lru_cache(maxsize=_UNPACKED)
def _unpacked(part: bytes, number_type: np.dtype, columns: int) -> np.ndarray:
    return np.frombuffer(inflate.decompress(part), number_type).reshape(columns, -1).T
