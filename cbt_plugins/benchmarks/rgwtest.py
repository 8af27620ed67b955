"""`rgwtest:`, the test cycle of the Reef study: fill, measure new, age, measure aged."""

from __future__ import annotations

from cbt_plugins.benchmarks.cycle import CycleBenchmark


class RgwTest(CycleBenchmark):
    """Found by the name `rgwtest`; its section is described in `cbt_plugins.config.rgwtest`."""
