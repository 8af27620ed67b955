"""Sweep: a list directly in a section gives one run for each of its elements; several lists, for each combination."""

from __future__ import annotations

import itertools
from typing import Any, Dict, Iterator, Mapping, Tuple


def sweep(section: Mapping[str, Any]) -> Iterator[Tuple[Dict[str, int], Dict[str, Any]]]:
    """Yield (element taken of each list, permutation) in CBT's order: the last list fastest.

    `acceptable` is no sweep. Keys that are swept come last in a permutation, as in CBT's own.
    """
    swept = {key: value for key, value in section.items() if isinstance(value, list) and key != "acceptable"}
    fixed = {key: value for key, value in section.items() if key not in swept}
    for chosen in itertools.product(*(range(len(values)) for values in swept.values())):
        taken = dict(zip(swept, chosen))
        yield taken, {**fixed, **{key: swept[key][index] for key, index in taken.items()}}
