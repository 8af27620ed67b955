"""What other distributions add through entry points."""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points
from typing import Any, List


def entries(group: str) -> List[EntryPoint]:
    """All entry points of a group."""
    found: Any = entry_points()  # Python 3.9 has no selection by keyword
    return list(found.select(group=group) if hasattr(found, "select") else found.get(group, ()))
