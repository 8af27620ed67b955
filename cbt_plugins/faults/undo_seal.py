"""Seal of the commands that an undo reads from an archive and runs: only this user on this machine can make a seal.

An archive may come from anybody, and an undo runs shell commands, on this machine and as root on nodes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, Mapping

from cbt_plugins.cluster import user_seal
from cbt_plugins.faults.step import FaultError


def of(content: Any) -> str:
    """Return the seal of plain data. Raises FaultError if other users could read the key."""
    try:
        return user_seal.of(content)
    except user_seal.NoKey as error:
        raise FaultError(str(error)) from error


def holds(seal: Any, content: Any) -> bool:
    """Tell whether this user has sealed this content on this machine. Raises FaultError."""
    try:
        return user_seal.holds(seal, content)
    except user_seal.NoKey as error:
        raise FaultError(str(error)) from error


def mark(record: Mapping[str, Any], run_id: str) -> Dict[str, str]:
    """Return the seal for a line of a run's journal, as an item to add to the line; {} without a usable key."""
    try:
        return {"seal": of({**record, "run": run_id})}
    except FaultError:
        return {}


def is_marked(line: Mapping[str, Any], run_id: str) -> bool:
    """Tell whether this user wrote a line of a run's journal on this machine. Raises FaultError."""
    content = {key: value for key, value in line.items() if key != "seal"}
    return holds(line.get("seal"), {**content, "run": run_id})


def is_marked_as_before(line: Mapping[str, Any], run_id: str) -> bool:
    """Tell whether this user wrote an open step on this machine with an earlier version. Raises FaultError.

    The earlier version sealed these parts of `open` lines, and no other lines.
    """
    content = {key: line.get(key) for key in ("id", "label", "kind", "step")}
    return holds(line.get("seal"), {**content, "run": run_id})


def refusal(path: Path) -> str:
    """Return a message: why the commands of a file are not run, and what to do."""
    return (
        f"{path} was not written by this user on this machine, or the key {user_seal.key_path()} was removed later: "
        "no command of the file is run; read the commands with "
        f"`cbt-tools undo --dry-run {path.parent}`; to allow the commands: `cbt-tools undo --trust {path.parent}`"
    )
