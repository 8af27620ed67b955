"""`osdfailure:`, load while OSD nodes are down and come back: the second cycle of the Reef study, and the older one."""

from __future__ import annotations

from cbt_plugins.benchmarks.cycle import CycleBenchmark


class OsdFailure(CycleBenchmark):
    """Found by the name `osdfailure`; its section is described in `cbt_plugins.config.osdfailure`."""
