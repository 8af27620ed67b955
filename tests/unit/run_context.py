"""A RunContext of stand-ins, for tests of parts of a run."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from cbt_plugins.run.context import RunContext


def context(**parts: Any) -> RunContext:
    """The parts that a test gives; all others are None, and events are not written."""
    events = SimpleNamespace(write=lambda event, **facts: None)
    given = {**dict.fromkeys(RunContext.__dataclass_fields__), "run_id": "r1", "events": events, **parts}
    return RunContext(**cast(Any, given))
