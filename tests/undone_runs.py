"""Runs that died with a fault in force on the stand-in of a cluster, and `cbt-tools undo` that reaches it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from faults_world import ANYTHING, MADE, Connections, Time, injector

from cbt_plugins.faults import cluster_access
from cbt_plugins.plan import Fault, Settings


def reached(monkeypatch: pytest.MonkeyPatch) -> Connections:
    """Let `undo` meet the stand-in instead of real nodes."""
    connections = Connections()
    real = cluster_access.read

    def reach(folder: Path, trusted: bool = False) -> Any:
        way = real(folder, trusted)
        way.ceph.remote = connections  # type: ignore[assignment]
        return replace(way, remote=connections)  # type: ignore[arg-type]

    monkeypatch.setattr(cluster_access, "read", reach)
    monkeypatch.setattr("cbt_plugins.faults.injector.Clock", lambda: Time().clock())
    return connections


def broken(folder: Path, world: Connections) -> Path:
    """A run that died with a node stopped and a flag set."""
    folder.mkdir(parents=True, exist_ok=True)
    made = injector(folder, world, Settings(flags=("noout",)))
    made.acquire()
    made.apply()
    made.inject(Fault("one node", "stop", ("node1",), accept=ANYTHING))
    MADE.pop().close()
    return folder
