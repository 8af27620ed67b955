"""Matrices of counts that are read seldom: compressed, in a small part of their bytes."""

from __future__ import annotations

import zlib

import numpy as np

from cbt_plugins.results.aggregates_file import inflate

#: rows that are compressed together
ROWS = 256
#: how zlib packs the counts of a column after each other: small numbers, and runs of equal ones at the columns' ends
_PACKING = (1, zlib.DEFLATED, zlib.MAX_WBITS, zlib.DEF_MEM_LEVEL, zlib.Z_RLE)


class PackedCounts:
    """A matrix of counts, some rows of which are unpacked at a time."""

    def __init__(self, counts: np.ndarray) -> None:
        self.shape = counts.shape
        self._type = np.min_scalar_type(int(counts.max(initial=0)))
        self._parts = [self._packed(counts[begin : begin + ROWS]) for begin in range(0, len(counts), ROWS)]

    def rows(self, some: slice) -> np.ndarray:
        """Return these rows; their type is as small as the counts allow."""
        begin, end, _ = some.indices(self.shape[0])
        if end <= begin or not self.shape[1]:
            return np.zeros((max(0, end - begin), self.shape[1]), self._type)
        first = begin // ROWS
        counts = np.concatenate([self._unpacked(part) for part in self._parts[first : -(-end // ROWS)]])
        return counts[begin - first * ROWS : end - first * ROWS]

    def _packed(self, part: np.ndarray) -> bytes:
        packer = zlib.compressobj(*_PACKING)
        return packer.compress(part.T.astype(self._type).tobytes()) + packer.flush()

    def _unpacked(self, part: bytes) -> np.ndarray:
        return np.frombuffer(inflate.decompress(part), self._type).reshape(self.shape[1], -1).T
