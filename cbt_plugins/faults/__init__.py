"""Faults: what is broken on purpose, how far it reaches, and the promise that it is put back."""

from __future__ import annotations

from .injector import Injector, Prepared, StillOpen
from .preview import preview
from .step import FaultError

__all__ = ["FaultError", "Injector", "Prepared", "StillOpen", "preview"]
