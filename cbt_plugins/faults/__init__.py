"""Faults: checked by safety rules, injected on purpose, and undone whatever happens."""

from __future__ import annotations

from cbt_plugins.faults.cluster_access import ClusterAccess
from cbt_plugins.faults.injector import Injector
from cbt_plugins.faults.prepared_fault import Prepared, preview
from cbt_plugins.faults.step import FaultError, NoAnswer
from cbt_plugins.faults.undo import StillOpen

__all__ = ["ClusterAccess", "FaultError", "Injector", "NoAnswer", "Prepared", "StillOpen", "preview"]
