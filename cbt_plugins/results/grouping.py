"""Rows of equal keys put together, column by column: the one `group by` of this package."""

from __future__ import annotations

from typing import Dict, Mapping, Tuple

import numpy as np

Columns = Dict[str, np.ndarray]


def grouped(
    keys: np.ndarray,
    sums: Mapping[str, np.ndarray],
    lows: Mapping[str, np.ndarray] = {},
    highs: Mapping[str, np.ndarray] = {},
) -> Tuple[np.ndarray, Columns]:
    """Return the different keys, rising, and for each the sums, minima and maxima of its rows' columns, as int64."""
    if not len(keys):
        return keys, {name: np.zeros(0, np.int64) for name in (*sums, *lows, *highs)}
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    starts = np.concatenate(([0], np.flatnonzero(ordered[1:] != ordered[:-1]) + 1))
    made: Columns = {}
    for how, columns in ((np.add, sums), (np.minimum, lows), (np.maximum, highs)):
        for name, values in columns.items():
            made[name] = how.reduceat(values[order].astype(np.int64, copy=False), starts)
    return ordered[starts], made
