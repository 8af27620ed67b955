"""`osdfailure:`, load while OSD nodes are down and come back: the second cycle of the Reef study, and the older one."""

from __future__ import annotations

from cbt_plugins.benchmarks.cycle import CycleBenchmark
from cbt_plugins.config.osdfailure import OsdFailureSection


class OsdFailure(CycleBenchmark):
    """The benchmark `osdfailure`."""

    Section = OsdFailureSection
