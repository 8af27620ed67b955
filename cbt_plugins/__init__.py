"""Benchmarks, monitors and tools that extend the Ceph Benchmarking Tool (CBT)."""

# Every interpreter of the environment imports this file at its start (autoload.py): nothing but `os`, which
# is loaded by then, may be imported here.
import os.path

__version__ = "0.2.0"

# In a checkout, tools/ and monitors/ stand beside this package; an installation has them inside it.
_checkout = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
if os.path.isfile(os.path.join(_checkout, "setup.cfg")) and os.path.isfile(
    os.path.join(_checkout, "tools", "__main__.py")
):
    __path__.append(_checkout)
