"""What more nodes gave, against what they could have given. Changes and shares are relative: 0.55 is +55 %."""

from __future__ import annotations


def change(before: float, after: float) -> float:
    """after / before - 1."""
    return after / before - 1


def efficiency(gain: float, before: float, after: float) -> float:
    """Share of the added hardware that came out as performance: gain / (n2 / n1 - 1).

    From 3 to 5 nodes +55 % of the +66.7 % that were added: 0.825. Above 1 wants an explanation (caches, a
    bottleneck that went away).
    """
    if after <= before:
        raise ValueError("efficiency is about more nodes than before")
    return gain / change(before, after)


def per_node(first: float, first_nodes: float, now: float, nodes: float) -> float:
    """Throughput of a node against that of a node in the smallest cluster: 1 is linear, below is sub-linear."""
    return (now / nodes) / (first / first_nodes)
