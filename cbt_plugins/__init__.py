"""Benchmarks, monitors and tools that extend the Ceph Benchmarking Tool (CBT)."""

from __future__ import annotations

from pathlib import Path

__version__ = "0.1.0"

# In a checkout, tools/ and monitors/ stand beside this package; an installation has them inside it.
_checkout = Path(__file__).resolve().parent.parent
if (_checkout / "setup.cfg").is_file() and (_checkout / "tools" / "__main__.py").is_file():
    __path__.append(str(_checkout))
