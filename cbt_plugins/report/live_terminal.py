"""A run in progress as lines of a terminal: its present state, and its events and warnings so far."""

from __future__ import annotations

from typing import Any, Iterator, List, Mapping

from cbt_plugins.formatting import plain, when
from cbt_plugins.formatting.progress_line import NOTHING_AFTER, Now, Rate, Remainder
from cbt_plugins.results.live_run import COMPLETE, FAILED, GOING_ON, GONE, INTERRUPTED
from cbt_plugins.results.recovery.milestones import in_order, titled
from cbt_plugins.results.requests.running_phase import RECENT
from cbt_plugins.warning_kinds import by_kind, counted

#: warnings that every unfinished run has
_UNFINISHED = ("going-on", "incomplete", "missing-phase", "no-phases", "partial-attempt")
_RESUMES = "the command that started the run resumes it"


def moment_lines(moment: Mapping[str, Any]) -> List[str]:
    """Return a moment as lines: the state of the run, the phase, latencies."""
    lines = [f"{moment['run']}: {_state(moment)}"]
    now = now_of(moment)
    if now is not None:
        lines.append(str(now))
    latencies = [
        f"{op} p50 {plain(line['p50_ms'])} p99 {plain(line['p99_ms'])}" for op, line in moment["latency"].items()
    ]
    if latencies:
        lines.append(f"latency in ms, in the {RECENT} s until {when(moment['latency_until'])}: {', '.join(latencies)}")
    return lines


def _state(moment: Mapping[str, Any]) -> str:
    state = moment["state"]
    if state == GOING_ON:
        place = f"phase {moment['number']} of {moment['phases']}, " if moment["number"] else ""
        return f"{place}{state}"
    return {
        COMPLETE: "complete",
        FAILED: f"failed: {moment['why'] or 'the reason is unknown'}",
        INTERRUPTED: f"interrupted; {_RESUMES}",
        GONE: f"the run has ended without a result: the run has no process on this machine and wrote nothing for "
        f"{moment['silent_s']:.0f} s; `cbt-tools undo` undoes the faults of the run, {_RESUMES}",
    }[state]


def now_of(moment: Mapping[str, Any]) -> Any:
    """Return the progress line of a moment; None between phases."""
    if moment["phase"] is None:
        return None
    has_phases_left = moment["number"] is not None and moment["number"] < moment["phases"]
    return Now(
        phase=moment["phase"],
        state=moment["doing"] or moment["state"],
        elapsed=moment["elapsed_s"] or 0.0,
        left=moment["left_s"],
        rate=Rate(moment["obj_per_s"], moment["mib_per_s"]) if moment["obj_per_s"] is not None else None,
        errors=moment["errors"],
        not_clean=moment["pgs_not_clean"],
        after=Remainder(moment["after_s"], moment["after_is_exact"]) if has_phases_left else NOTHING_AFTER,
    )


def notes(moment: Mapping[str, Any], summary: Mapping[str, Any]) -> List[str]:
    """Return the faults, milestones, marks and warnings so far, one line each."""
    return [*_fault_notes(moment), *_milestone_notes(summary), *_warning_notes(summary)]


def _fault_notes(moment: Mapping[str, Any]) -> Iterator[str]:
    for fault in moment["faults"]:
        targets = " ".join([str(fault["kind"]), *fault["targets"]])
        until = f" until {when(fault['until'])}" if fault["until"] is not None else ""
        yield f"fault {fault['label']} ({targets}) since {when(fault['since'])}{until}"
    for name in moment["marks"]:
        yield f"mark {name}"


def _milestone_notes(summary: Mapping[str, Any]) -> Iterator[str]:
    for episode in (summary["failure"] or {"milestones": {"episodes": ()}})["milestones"]["episodes"]:
        for milestone in in_order(episode["milestones"]):
            if milestone["seconds"] is not None:
                yield f"{titled(episode)}: {milestone['title']} after {plain(milestone['seconds'])} s"


def _warning_notes(summary: Mapping[str, Any]) -> Iterator[str]:
    warnings = [warning for warning in summary["warnings"] if warning["code"] not in _UNFINISHED]
    if warnings:
        yield f"{counted(warnings)} so far"
    for group in by_kind(warnings):
        for text in group.about:
            yield f"{group.word}: {text} [{group.code}]"


def data(moment: Mapping[str, Any], summary: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a line of `--json`: the moment, with all milestones and warnings so far."""
    episodes = (summary["failure"] or {"milestones": {"episodes": ()}})["milestones"]["episodes"]
    milestones = [
        {"episode": titled(episode), "milestone": milestone["name"], "seconds": milestone["seconds"]}
        for episode in episodes
        for milestone in episode["milestones"]
        if milestone["seconds"] is not None
    ]
    warnings = [{key: warning[key] for key in ("code", "severity", "text")} for warning in summary["warnings"]]
    return {"version": 1, **moment, "milestones": milestones, "warnings": warnings}
