"""`rgwtest:`, the test cycle of the Reef study: fill, measure new, age, measure aged."""

from __future__ import annotations

from cbt_plugins.benchmarks.cycle import CycleBenchmark
from cbt_plugins.config.rgwtest import RgwTestSection


class RgwTest(CycleBenchmark):
    """The benchmark `rgwtest`."""

    Section = RgwTestSection
