"""Faults: what is broken on purpose, how far it reaches, and the promise that it is put back."""

from __future__ import annotations

from cbt_plugins.faults.injector import Injector, Prepared, StillOpen
from cbt_plugins.faults.preview import preview
from cbt_plugins.faults.step import FaultError

__all__ = ["FaultError", "Injector", "Prepared", "StillOpen", "preview"]
