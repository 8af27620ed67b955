"""`osdfailure:`, load while nodes of OSDs are down and come back: the Reef study's second cycle, and the older tool's."""

from __future__ import annotations

from .cycle import CycleBenchmark


class OsdFailure(CycleBenchmark):
    """Found by the name `osdfailure`; its section is described in `cbt_plugins.config.osdfailure`."""
