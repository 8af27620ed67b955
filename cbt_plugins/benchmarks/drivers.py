"""The drivers of a run: on which client node each of them is, and on which buckets it works."""

from __future__ import annotations

from typing import Iterable, Sequence, Tuple

from cbt_plugins import plan
from cbt_plugins.config.units import size_texts


def drivers_on(
    clients: Sequence[str], names_and_buckets: Iterable[Tuple[str, Tuple[str, ...]]], workers: int
) -> Tuple[plan.Driver, ...]:
    """Return a driver for each name with the buckets it works on; the drivers go round the client nodes in turn."""
    return tuple(
        plan.Driver(f"{i + 1:02d}-{name}", clients[i % len(clients)], buckets, workers)
        for i, (name, buckets) in enumerate(names_and_buckets)
    )


def name_of_sizes(sizes: plan.Sizes) -> str:
    """Return the part of a name that says the object size; "sizes" for several sizes."""
    return size_texts(sizes)[0] if len(sizes) == 1 else "sizes"
