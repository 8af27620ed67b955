"""Requests that the end of the run cut off: they are no failed requests of a second or a group of a frame."""

from __future__ import annotations

from collections import Counter
from typing import Hashable, Iterable, Sequence, Tuple

import numpy as np

from cbt_plugins.results.aggregates_file import Frame
from cbt_plugins.results.requests.error_kinds import error_kind


def failed_of_seconds(frame: Frame) -> np.ndarray:
    """Return the failed requests of each row of the seconds of a frame, without those that were cut off.

    Which seconds have these is known to the block: they are the last ones with failures, as the end of the run is.
    """
    seconds = frame.table("seconds")
    at = seconds["second"].astype(np.int64)
    keys = zip((at // frame.block * frame.block).tolist(), seconds["op"].tolist())
    return _without_cut(frame, seconds["failed"], list(keys), ("block", "op"), np.argsort(-at, kind="stable"))


def failed_of_groups(frame: Frame) -> np.ndarray:
    """Return the failed requests of each row of the counts of a frame, without those that were cut off."""
    counts = frame.table("counts")
    columns = ("block", "op", "endpoint")
    keys = list(zip(*(counts[column].tolist() for column in columns)))
    return _without_cut(frame, counts["failed"], keys, columns, range(len(keys)))


def _without_cut(
    frame: Frame, failed: np.ndarray, keys: Sequence[Hashable], columns: Tuple[str, ...], order: Iterable[int]
) -> np.ndarray:
    """Return `failed` less the cut requests; a row can have those whose columns in `errors` are its key."""
    errors, failures = frame.table("errors"), failed.astype(np.int64)
    kinds = np.array([error_kind(text) == "cut" for text in frame.errors], bool)
    cut: Counter[Hashable] = Counter()
    if kinds.any():
        rows = kinds[errors["error"]]
        names = (errors[column][rows].tolist() for column in columns)
        for key, count in zip(zip(*names), errors["count"][rows].tolist()):
            cut[key] += count
    for row in order if cut else ():
        taken = min(int(failures[row]), cut[keys[row]])
        failures[row] -= taken
        cut[keys[row]] -= taken
    return failures
