"""Engines of archives, by the names that runs write into them: results know no class of a generator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Mapping

from cbt_plugins.plan import Phase

#: the engine of phases whose record names none
DEFAULT = Phase.engine


@dataclass(frozen=True)
class ArchivedEngine:
    """The parts of an engine that results need to know of a phase that it made."""

    one_process: bool = False  # it makes all operations of a driver
    worker_groups: bool = False  # a hybrid phase is a process for each operation


_OTHER_ENGINE = ArchivedEngine()
ENGINES: Mapping[str, ArchivedEngine] = {
    "cbt-load": ArchivedEngine(one_process=True),
    "warp": ArchivedEngine(worker_groups=True),
}


def is_cbt_load(engine: str, role: str = "") -> bool:
    """Return whether a phase's engine, or the role of its job, is cbt-load: one process makes all operations."""
    return any(ENGINES.get(name, _OTHER_ENGINE).one_process for name in (engine, role))


def is_plain_warp(phase: Mapping[str, Any]) -> bool:
    """Return whether a phase is one command of warp."""
    return bool(phase["kind"] == "warp")


def has_worker_groups(phase: Mapping[str, Any]) -> bool:
    """Return whether a phase is a hybrid load by warp: a process for each operation."""
    return phase["kind"] == "hybrid" and ENGINES.get(phase["engine"], _OTHER_ENGINE).worker_groups
