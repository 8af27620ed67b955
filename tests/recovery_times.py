"""The times of a failure's milestones, as `milestones` tells them."""

from __future__ import annotations

from typing import Any, Dict, Optional


def seconds(episode: Dict[str, Any]) -> Dict[str, Optional[float]]:
    return {m["name"]: m["seconds"] for m in episode["milestones"]}


def reasons(episode: Dict[str, Any]) -> Dict[str, str]:
    return {m["name"]: m["reason"] for m in episode["milestones"] if m["t"] is None}
