"""The state of a run: complete, going on, incomplete or invalid; and whether its numbers are usable."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Mapping, Optional

from cbt_plugins.journal import read_json

#: warning -> the state of a run that has it
_STATES = {"going-on": "going on", "incomplete": "incomplete"}


def run_state(summary: Mapping[str, Any]) -> str:
    """Return "complete", "going on", "incomplete" (it was cut short: the warning says where), or "invalid".

    Only the numbers of a complete run are usable. An invalid run came to its end, and a warning of severity "invalid"
    says why its numbers are not what was to be measured. report, compare and sql show such runs, marked as such; gate,
    history, export and CBT's compare.py take no numbers of them (`why_unusable`). All end with status 4, but for sql of
    invalid runs.
    """
    if summary["usable"]:
        return "complete"
    codes = {warning["code"] for warning in summary["warnings"]}
    return next((state for code, state in _STATES.items() if code in codes), "invalid")


def why_unusable(run: Path, summary: Mapping[str, Any]) -> Optional[str]:
    """Return the reason why the numbers of a run directory must not be passed on as a result; None when they may."""
    try:
        degraded = read_json(run / "complete").get("degraded")
    except FileNotFoundError:
        return "the run was interrupted, or is still running"
    except (OSError, ValueError, AttributeError) as e:
        return f"its end marker cannot be read: {e}"
    if degraded:
        return f"not to be trusted: {', '.join(map(str, degraded))} (see the report)"
    if not summary["usable"]:
        return "; ".join(dict.fromkeys(warning["text"] for warning in summary["warnings"]))
    return None
