"""Upgrades under load: what each step, and each mixture of versions, cost the clients."""

from __future__ import annotations

import math
from typing import Any, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from cbt_plugins.conditions import UPGRADE_BEGIN, UPGRADE_END, UPGRADE_STEP
from cbt_plugins.formatting import Block, TableGrid, TitledBlocks, Words, seconds
from cbt_plugins.journal import json_lines
from cbt_plugins.results.archive import ArchivedRun
from cbt_plugins.results.environment import Clocks
from cbt_plugins.results.episodes import Stretch
from cbt_plugins.results.impact import number_text, numbers_in, timeline
from cbt_plugins.results.phase import PhaseAggregates
from cbt_plugins.results.samples import files_of, read_samples

BEFORE, AFTER = "before", "after"


class _Moment(NamedTuple):
    """A part of an upgrade begins; `versions`: type of daemon -> those that run from here to the next moment."""

    t: float
    what: str
    versions: Dict[str, List[str]]


def happened(run: ArchivedRun) -> bool:
    """Return whether an upgrade has begun in a run."""
    return any(event.get("event") == UPGRADE_BEGIN for event in json_lines(run.path / "events.jsonl"))


def upgrades(run: ArchivedRun, phases: Sequence[PhaseAggregates]) -> List[Dict[str, Any]]:
    """Return each upgrade of a run, in the form of docs/SUMMARY.md."""
    events = json_lines(run.path / "events.jsonl")
    found = []
    for made in phases:
        mine = [event for event in events if event.get("phase") == made.phase.name]
        begins = [number for number, event in enumerate(mine) if event.get("event") == UPGRADE_BEGIN]
        if begins and made.length:  # of an attempt that was broken off the phase is made again
            found.append(_upgrade(run, made, mine[begins[-1] :]))
    return found


def _upgrade(run: ArchivedRun, made: PhaseAggregates, events: Sequence[Mapping[str, Any]]) -> Dict[str, Any]:
    begin = events[0]
    moments, end = _moments(events)
    window = (made.grid.start, made.grid.end)
    base = _cut(made, BEFORE, window[0], moments[0].t, None)
    steps = []
    for moment, after in zip(moments, [*(one.t for one in moments[1:]), end]):
        line = _cut(made, moment.what, moment.t, after, base)
        steps += [{**line, "versions": moment.versions}] if line else []
    shown = timeline(made, read_samples(files_of(run.path), Clocks.of(run)), {"episodes": ()})
    first = made.grid.first
    during = [one for one in moments if one.t < window[1]]
    marks = [{"at": round(t - first, 3), "title": what, "kind": "upgrade", "labels": []} for t, what, _ in during]
    return {
        "label": begin["label"],
        "phase": made.phase.name,
        "from": sorted({version for its in (begin.get("versions") or {}).values() for version in its}),
        "to": begin["to"],
        "begin": begin["t"],
        "end": end,
        "complete": _complete(events, begin["to"]),
        "outlasted": end > window[1],
        "before": base,
        "after": _cut(made, AFTER, end, window[1], base),
        "total": _cut(made, "upgrade", moments[0].t, end, base),
        "steps": steps,
        "mixtures": list(_mixtures(made, moments, end, base)),
        "timeline": {**shown, "marks": marks, "windows": _windows(made, moments, end)},
    }


def _moments(events: Sequence[Mapping[str, Any]]) -> Tuple[List[_Moment], float]:
    """Return the moments of an upgrade, and its end."""
    steps = [event for event in events if event.get("event") == UPGRADE_STEP] or [{**events[0], "step": "begin"}]
    last = next((event for event in events if event.get("event") == UPGRADE_END), {**steps[-1]})
    known = events[0].get("versions") or {}
    moments = []
    for step, after in zip(steps, [*steps[1:], last]):
        before = step.get("versions") or known
        known = after.get("versions") or before
        both = {kind: sorted({*before.get(kind, {}), *known.get(kind, {})}) for kind in {**before, **known}}
        moments.append(_Moment(float(step["t"]), str(step["step"]), both))
    return moments, float(last["t"])


def _complete(events: Sequence[Mapping[str, Any]], to: str) -> bool:
    ends = [event for event in events if event.get("event") == UPGRADE_END]
    versions = [version for its in ((ends[-1].get("versions") if ends else None) or {}).values() for version in its]
    return bool(versions) and all(f"{version}.".startswith(f"{to}.") for version in versions)


def _cut(
    made: PhaseAggregates, what: str, start: float, end: float, base: Optional[Mapping[str, Any]]
) -> Optional[Dict[str, Any]]:
    """Return the numbers of whole seconds of a phase; None for what lies outside."""
    low, high = max(float(math.floor(start)), made.grid.start), min(float(math.floor(end)), made.grid.end)
    return numbers_in(made, Stretch(what, (), low, high), base) if low < high else None


def _mixtures(
    made: PhaseAggregates, moments: Sequence[_Moment], end: float, base: Optional[Mapping[str, Any]]
) -> Iterator[Dict[str, Any]]:
    begin = moments[0]
    for moment in [*moments[1:], None]:
        if moment is None or moment.versions != begin.versions:
            line = _cut(made, mixture_text(begin.versions), begin.t, moment.t if moment else end, base)
            if line:
                yield {**line, "versions": begin.versions}
            begin = moment or begin


def mixture_text(versions: Mapping[str, Sequence[str]]) -> str:
    """Return "mon 18.2.7, osd 16.2.15 + 18.2.7": the versions of each type of daemon."""
    return ", ".join(f"{kind} {' + '.join(its)}" for kind, its in versions.items())


def _windows(made: PhaseAggregates, moments: Sequence[_Moment], end: float) -> List[Dict[str, Any]]:
    """Return the mixtures as the charts shade them."""
    ends = [*(one.t for one in moments[1:]), end]
    first, last = made.grid.first, made.grid.end
    return [
        {"state": mixture_text(one.versions), "labels": [], "from": one.t - first, "to": min(after, last) - first}
        for one, after in zip(moments, ends)
        if one.t < last
    ]


#: of the columns after the first one
HEAD = ("s", "obj/s", "%", "mean ms", "p99 ms", "max ms", "gap s", "silent", "failed")


def line_of(its: Mapping[str, Any]) -> Tuple[str, ...]:
    """Return the cells of one stretch, under the heads of the tables."""
    total = its["total"]
    shown = [number_text(total[key]) for key in ("obj_per_s", "obj_per_s_percent", "mean_ms", "p99_ms", "max_ms")]
    gap = f"{total['longest_gap']:.2f}"
    return (f"{its['seconds']:.0f}", *shown, gap, str(total["silent_seconds"]), str(total["errors"]))


def sentence(made: Mapping[str, Any]) -> str:
    """Return the cost of an upgrade in words."""
    total = (made["total"] or {}).get("total")
    said = f"Upgrade from {' and '.join(made['from'])} to {made['to']} in {seconds(made['end'] - made['begin'])}"
    if not made["complete"]:
        said += ", not complete"
    if made["outlasted"]:
        said += ", the load ended before"
    if not total:
        return f"{said}; no load was measured meanwhile."
    share = total["obj_per_s_percent"]
    parts = [said] + ([f"{share:.0f} % of the throughput before"] if share is not None else [])
    failed = "no request" if not total["errors"] else f"{total['errors']} request{'s' if total['errors'] > 1 else ''}"
    parts += [f"{failed} failed", f"{total['silent_seconds']} seconds without a success"]
    return "; ".join(parts) + "."


def tables(made: Mapping[str, Any]) -> Dict[str, List[Tuple[str, ...]]]:
    """Return the rows of each table by its name, under ("", *heads)."""
    around = [[its] if its else [] for its in (made["before"], made["after"])]
    mixed = [*around[0], *made["mixtures"], *around[1]]
    return {
        "mixture of versions": [(its["state"], *line_of(its)) for its in mixed],
        "step": [(its["state"], *line_of(its)) for its in made["steps"]],
    }


def blocks(made: Mapping[str, Any]) -> Iterator[Block]:
    """Yield the upgrade for a terminal."""
    grids = [TableGrid((name, *HEAD), tuple(rows), left=1) for name, rows in tables(made).items()]
    late = ("the load ended before the upgrade did",) if made["outlasted"] else ()
    yield TitledBlocks(f"{made['phase']}: {sentence(made)}", (*grids, Words(late)))


def warnings_of(made: Sequence[Mapping[str, Any]]) -> Iterator[Dict[str, Any]]:
    """Yield the warnings about the numbers of upgrades."""
    for its in made:
        if not its["complete"]:
            yield {"code": "upgrade-incomplete", "text": f"not every daemon is at {its['to']}", "phase": its["phase"]}
        if its["outlasted"]:
            text = "the load ended before the upgrade: its last steps have no numbers"
            yield {"code": "upgrade-outlasted", "text": text, "phase": its["phase"]}
