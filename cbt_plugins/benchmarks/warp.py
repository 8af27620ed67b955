"""`warp:`, the general benchmark: any phases, in the order that the YAML gives them."""

from __future__ import annotations

from cbt_plugins.benchmarks.cycle import CycleBenchmark


class Warp(CycleBenchmark):
    """Found by the name `warp`; its section is described in `cbt_plugins.config.warp`."""
