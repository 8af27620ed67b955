"""`warp:`, the general benchmark: any phases, in the order that the YAML gives them."""

from __future__ import annotations

from cbt_plugins.benchmarks.cycle import CycleBenchmark
from cbt_plugins.config.warp import WarpSection


class Warp(CycleBenchmark):
    """The benchmark `warp`."""

    Section = WarpSection
