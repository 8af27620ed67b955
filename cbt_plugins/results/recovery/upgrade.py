"""Upgrades under load: what each step, and each mixture of versions, cost the clients."""

from __future__ import annotations

import math
from typing import Any, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from cbt_plugins.cluster_conditions import UPGRADE_BEGIN, UPGRADE_END, UPGRADE_STEP
from cbt_plugins.formatting import seconds
from cbt_plugins.formatting.blocks import Block, TableGrid, TitledBlocks, Words
from cbt_plugins.journal import json_lines
from cbt_plugins.results.archive import ArchivedRun
from cbt_plugins.results.recovery.cluster_samples import Samples
from cbt_plugins.results.recovery.episodes import Stretch
from cbt_plugins.results.recovery.impact import number_text, timeline
from cbt_plugins.results.recovery.stretch_numbers import numbers_in
from cbt_plugins.results.requests.rates_and_latencies import PhaseAggregates

BEFORE, AFTER = "before", "after"


class _Moment(NamedTuple):
    """A part of an upgrade begins; `versions`: type of daemon -> those that run from here to the next moment."""

    t: float
    step: str
    versions: Dict[str, List[str]]


def happened(run: ArchivedRun) -> bool:
    """Return whether an upgrade has begun in a run."""
    return any(event.get("event") == UPGRADE_BEGIN for event in json_lines(run.path / "events.jsonl"))


def upgrades(run: ArchivedRun, phases: Sequence[PhaseAggregates], samples: Samples) -> List[Dict[str, Any]]:
    """Return each upgrade of a run, in the form of docs/SUMMARY.md."""
    events = json_lines(run.path / "events.jsonl")
    run_upgrades = []
    for aggregates in phases:
        phase_events = [event for event in events if event.get("phase") == aggregates.phase.name]
        begins = [number for number, event in enumerate(phase_events) if event.get("event") == UPGRADE_BEGIN]
        if begins and aggregates.length:  # of an attempt that was broken off the phase is made again
            run_upgrades.append(_upgrade(aggregates, phase_events[begins[-1] :], samples))
    return run_upgrades


def _upgrade(aggregates: PhaseAggregates, events: Sequence[Mapping[str, Any]], samples: Samples) -> Dict[str, Any]:
    begin = events[0]
    moments, end = _moments(events)
    window = (aggregates.grid.start, aggregates.grid.end)
    base = _cut(aggregates, BEFORE, window[0], moments[0].t, None)
    steps = []
    for moment, after in zip(moments, [*(later.t for later in moments[1:]), end]):
        line = _cut(aggregates, moment.step, moment.t, after, base)
        steps += [{**line, "versions": moment.versions}] if line else []
    shown = timeline(aggregates, samples, {"episodes": ()})
    first = aggregates.grid.first
    during = [moment for moment in moments if moment.t < window[1]]
    marks = [{"at": round(t - first, 3), "title": title, "kind": "upgrade", "labels": []} for t, title, _ in during]
    return {
        "label": begin["label"],
        "phase": aggregates.phase.name,
        "from": sorted(
            {version for kind_versions in (begin.get("versions") or {}).values() for version in kind_versions}
        ),
        "to": begin["to"],
        # as the daemons said at the begin and at the end; null: they could not be asked
        "versions": {BEFORE: begin.get("versions"), AFTER: _last_versions(events)},
        "begin": begin["t"],
        "end": end,
        "complete": _complete(events, begin["to"]),
        "outlasted": end > window[1],
        "before": base,
        "after": _cut(aggregates, AFTER, end, window[1], base),
        "total": _cut(aggregates, "upgrade", moments[0].t, end, base),
        "steps": steps,
        "mixtures": list(_mixtures(aggregates, moments, end, base)),
        "timeline": {**shown, "marks": marks, "windows": _windows(aggregates, moments, end)},
    }


def _moments(events: Sequence[Mapping[str, Any]]) -> Tuple[List[_Moment], float]:
    """Return the moments of an upgrade, and its end."""
    steps = [event for event in events if event.get("event") == UPGRADE_STEP] or [{**events[0], "step": "begin"}]
    last = next((event for event in events if event.get("event") == UPGRADE_END), {**steps[-1]})
    versions = events[0].get("versions") or {}
    moments = []
    for step, after in zip(steps, [*steps[1:], last]):
        before = step.get("versions") or versions
        versions = after.get("versions") or before
        both = {kind: sorted({*before.get(kind, {}), *versions.get(kind, {})}) for kind in {**before, **versions}}
        moments.append(_Moment(float(step["t"]), str(step["step"]), both))
    return moments, float(last["t"])


def _last_versions(events: Sequence[Mapping[str, Any]]) -> Optional[Mapping[str, Any]]:
    ends = [event for event in events if event.get("event") == UPGRADE_END]
    return ends[-1].get("versions") if ends else None


def _complete(events: Sequence[Mapping[str, Any]], to: str) -> bool:
    versions_of_kind = _last_versions(events) or {}
    versions = [version for kind_versions in versions_of_kind.values() for version in kind_versions]
    return bool(versions) and all(f"{version}.".startswith(f"{to}.") for version in versions)


def _cut(
    aggregates: PhaseAggregates, state: str, start: float, end: float, base: Optional[Mapping[str, Any]]
) -> Optional[Dict[str, Any]]:
    """Return the numbers of whole seconds of a phase; None for what lies outside."""
    low, high = max(float(math.floor(start)), aggregates.grid.start), min(float(math.floor(end)), aggregates.grid.end)
    return numbers_in(aggregates, Stretch(state, (), low, high), base) if low < high else None


def _mixtures(
    aggregates: PhaseAggregates, moments: Sequence[_Moment], end: float, base: Optional[Mapping[str, Any]]
) -> Iterator[Dict[str, Any]]:
    begin = moments[0]
    for moment in [*moments[1:], None]:
        if moment is None or moment.versions != begin.versions:
            line = _cut(aggregates, mixture_text(begin.versions), begin.t, moment.t if moment else end, base)
            if line:
                yield {**line, "versions": begin.versions}
            begin = moment or begin


def mixture_text(versions: Mapping[str, Sequence[str]]) -> str:
    """Return "mon 18.2.7, osd 16.2.15 + 18.2.7": the versions of each type of daemon."""
    return ", ".join(f"{kind} {' + '.join(kind_versions)}" for kind, kind_versions in versions.items())


def _windows(aggregates: PhaseAggregates, moments: Sequence[_Moment], end: float) -> List[Dict[str, Any]]:
    """Return the mixtures as the charts shade them."""
    ends = [*(moment.t for moment in moments[1:]), end]
    first, last = aggregates.grid.first, aggregates.grid.end
    return [
        {"state": mixture_text(moment.versions), "labels": [], "from": moment.t - first, "to": min(after, last) - first}
        for moment, after in zip(moments, ends)
        if moment.t < last
    ]


#: of the columns after the first one
HEAD = ("s", "obj/s", "%", "mean ms", "p99 ms", "max ms", "gap s", "silent", "failed")


def line_of(stretch: Mapping[str, Any]) -> Tuple[str, ...]:
    """Return the cells of one stretch, under the heads of the tables."""
    total = stretch["total"]
    shown = [number_text(total[key]) for key in ("obj_per_s", "obj_per_s_percent", "mean_ms", "p99_ms", "max_ms")]
    gap = f"{total['longest_gap']:.2f}"
    return (f"{stretch['seconds']:.0f}", *shown, gap, str(total["silent_seconds"]), str(total["errors"]))


def sentence(upgrade: Mapping[str, Any]) -> str:
    """Return the cost of an upgrade in words."""
    total = (upgrade["total"] or {}).get("total")
    duration = seconds(upgrade["end"] - upgrade["begin"])
    text = f"Upgrade from {' and '.join(upgrade['from'])} to {upgrade['to']} in {duration}"
    if not upgrade["complete"]:
        text += ", not complete"
    if upgrade["outlasted"]:
        text += ", the load ended before"
    if not total:
        return f"{text}; no load was measured meanwhile."
    share = total["obj_per_s_percent"]
    parts = [text] + ([f"{share:.0f} % of the throughput before"] if share is not None else [])
    failed = "no request" if not total["errors"] else f"{total['errors']} request{'s' if total['errors'] > 1 else ''}"
    parts += [f"{failed} failed", f"{total['silent_seconds']} seconds without a success"]
    return "; ".join(parts) + "."


def tables(upgrade: Mapping[str, Any]) -> Dict[str, List[Tuple[str, ...]]]:
    """Return the rows of each table by its name, under ("", *heads)."""
    around = [[stretch] if stretch else [] for stretch in (upgrade["before"], upgrade["after"])]
    mixed = [*around[0], *upgrade["mixtures"], *around[1]]
    return {
        "mixture of versions": [(stretch["state"], *line_of(stretch)) for stretch in mixed],
        "step": [(stretch["state"], *line_of(stretch)) for stretch in upgrade["steps"]],
    }


def blocks(upgrade: Mapping[str, Any]) -> Iterator[Block]:
    """Yield the upgrade for a terminal."""
    grids = [TableGrid((name, *HEAD), tuple(rows), left=1) for name, rows in tables(upgrade).items()]
    late = ("the load ended before the upgrade did",) if upgrade["outlasted"] else ()
    yield TitledBlocks(f"{upgrade['phase']}: {sentence(upgrade)}", (*grids, Words(late)))


def upgrade_warnings(run_upgrades: Sequence[Mapping[str, Any]]) -> Iterator[Dict[str, Any]]:
    """Yield the warnings about the numbers of upgrades."""
    for upgrade in run_upgrades:
        if not upgrade["complete"]:
            yield {
                "code": "upgrade-incomplete",
                "text": f"not every daemon is at {upgrade['to']}",
                "phase": upgrade["phase"],
            }
        if upgrade["outlasted"]:
            text = "the load ended before the upgrade: its last steps have no numbers"
            yield {"code": "upgrade-outlasted", "text": text, "phase": upgrade["phase"]}
