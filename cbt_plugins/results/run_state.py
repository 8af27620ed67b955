"""The state of a run: complete, going on, incomplete or invalid; and whether its numbers are usable."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Mapping, Optional, Sequence, Tuple

from cbt_plugins.journal import read_json

#: warning -> the state of a run that has it
_STATES = {"going-on": "going on", "incomplete": "incomplete"}


def run_state(summary: Mapping[str, Any]) -> str:
    """Return "complete", "going on", "incomplete" (it was cut short: the warning says where), or "invalid".

    Only the numbers of a complete run are usable. An invalid run came to its end, and a warning of severity "invalid"
    says why its numbers are not what was to be measured. report, compare and sql show such runs, marked as such; gate,
    history, export and CBT's compare.py take no numbers of them (`why_unusable`). All end with status 4, but for sql of
    runs that came to their end (`why_incomplete`).
    """
    if summary["usable"]:
        return "complete"
    codes = {warning["code"] for warning in summary["warnings"]}
    return next((state for code, state in _STATES.items() if code in codes), "invalid")


def why_unusable(run: Path, summary: Mapping[str, Any]) -> Optional[str]:
    """Return the reason why the numbers of a run directory must not be passed on as a result; None when they may."""
    degraded, why = _degraded(run)
    if why:
        return why
    if degraded:
        return f"not to be trusted: {', '.join(map(str, degraded))} (see the report)"
    if not summary["usable"]:
        return "; ".join(dict.fromkeys(warning["text"] for warning in summary["warnings"]))
    return None


def why_incomplete(run: Path) -> Optional[str]:
    """Return the reason why a run directory has no end marker, or a damaged one; None when the run came to its end."""
    return _degraded(run)[1]


def _degraded(run: Path) -> Tuple[Sequence[Any], Optional[str]]:
    """Return the phases that are not to be trusted by the end marker of a run, and why there is no end marker."""
    try:
        return read_json(run / "complete").get("degraded") or (), None
    except FileNotFoundError:
        return (), "the run was interrupted, or is still running"
    except (OSError, ValueError, AttributeError) as e:
        return (), f"its end marker cannot be read: {e}"
