"""Counters that were read at some times: how much they rose between any others."""

from __future__ import annotations

from typing import List, Sequence, Tuple, Union

import numpy as np

Edges = Union[Sequence[float], np.ndarray]


class Counter:
    """Some counters of one thing, in pieces: a rise belongs evenly to the time between its two readings.

    Nothing is known before a piece, after it and between two of them: there it counts as no rise.
    """

    def __init__(self, columns: int) -> None:
        self._columns = columns
        self._pieces: List[Tuple[np.ndarray, np.ndarray]] = []

    def add(self, begin: float, times: np.ndarray, rises: np.ndarray) -> None:
        """A piece that begins at `begin`: rises (n, columns), each up to its time (n), in order."""
        if len(times):
            at = np.maximum.accumulate(np.concatenate(([min(begin, times[0])], times)))
            self._pieces.append((at, np.vstack((np.zeros(self._columns), np.cumsum(rises, axis=0)))))

    def rises(self, edges: Edges) -> np.ndarray:
        """What they rose by between each two edges: (len(edges) - 1, columns)."""
        found = np.zeros((len(edges) - 1, self._columns))
        for at, levels in self._pieces:
            if at[-1] > edges[0] and at[0] < edges[-1]:
                columns = [np.interp(edges, at, levels[:, i]) for i in range(self._columns)]
                found += np.diff(np.column_stack(columns), axis=0)
        return found

    def rise(self, begin: float, end: float) -> np.ndarray:
        """What they rose by from `begin` to `end`: (columns)."""
        its: np.ndarray = self.rises((begin, end))[0]
        return its

    def known(self, edges: Edges) -> np.ndarray:
        """Seconds between each two edges of which something is known."""
        found = np.zeros(len(edges) - 1)
        for at, _ in self._pieces:
            found += np.diff(np.clip(edges, at[0], at[-1]))
        return found

    def meets(self, begin: float, end: float) -> bool:
        """Whether anything is known between them."""
        return bool(self.known((begin, end))[0] > 0)
