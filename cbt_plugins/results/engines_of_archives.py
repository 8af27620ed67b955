"""Engines of archives, by the names that runs write into them: results know no class of a generator."""

from __future__ import annotations

from typing import Any, Mapping

#: the engine of phases whose record names none
DEFAULT = "warp"


def is_cbt_load(engine: str, role: str = "") -> bool:
    """Return whether a phase's engine, or the role of its job, is cbt-load: one process makes all operations."""
    return "cbt-load" in (engine, role)


def is_plain_warp(phase: Mapping[str, Any]) -> bool:
    """Return whether a phase is one command of warp."""
    return bool(phase["kind"] == "warp")


def has_worker_groups(phase: Mapping[str, Any]) -> bool:
    """Return whether a phase is a hybrid load by warp: a process for each operation."""
    return bool(phase["kind"] == "hybrid" and phase["engine"] == "warp")
