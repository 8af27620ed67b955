"""Requests that the end of the run cut off: they are no failed requests of a second or a group of a frame."""

from __future__ import annotations

from collections import Counter
from typing import Iterable, Iterator, Mapping, Tuple

import numpy as np

from cbt_plugins.results.aggregates_file import Frame
from cbt_plugins.results.requests.error_kinds import error_kind


def failed_of_seconds(frame: Frame) -> np.ndarray:
    """Return the failed requests of each row of the seconds of a frame, without those that were cut off.

    Which seconds have these is known to the block: they are the last ones with failures, as the end of the run is.
    """
    seconds = frame.table("seconds")
    at = seconds["second"].astype(np.int64)
    keys = {"block": at // frame.block * frame.block, "op": seconds["op"]}
    return _without_cut(frame, seconds["failed"], keys, np.argsort(-at, kind="stable"))


def failed_of_groups(frame: Frame) -> np.ndarray:
    """Return the failed requests of each row of the counts of a frame, without those that were cut off."""
    counts = frame.table("counts")
    keys = {column: counts[column] for column in ("block", "op", "endpoint")}
    return _without_cut(frame, counts["failed"], keys, np.arange(len(counts["failed"])))


def _without_cut(frame: Frame, failed: np.ndarray, keys: Mapping[str, np.ndarray], order: np.ndarray) -> np.ndarray:
    """Return `failed` less the cut requests: of a row those with the same columns `keys` in `errors`, in this order."""
    errors, failures = frame.table("errors"), failed.astype(np.int64)
    kinds = np.array([error_kind(text) == "cut" for text in frame.errors], bool)
    if not kinds.any():
        return failures
    rows = kinds[errors["error"]]
    cut: Counter[Tuple[int, ...]] = Counter()
    for key, count in zip(_keys(errors, keys, rows), errors["count"][rows].tolist()):
        cut[key] += count
    some = order[failures[order] > 0]
    for row, key in zip(some.tolist(), _keys(keys, keys, some)):
        taken = min(int(failures[row]), cut[key])
        failures[row] -= taken
        cut[key] -= taken
    return failures


def _keys(
    table: Mapping[str, np.ndarray], names: Iterable[str], rows: np.ndarray
) -> Iterator[Tuple[int, ...]]:
    return zip(*(table[name][rows].tolist() for name in names))
