"""Failures: how the cluster took them, and what they cost the clients, by the state of the cluster."""

from __future__ import annotations

import math
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

import numpy as np

from cbt_plugins.conditions import NO_FAULTS
from cbt_plugins.formatting import NONE, Block, TableGrid, Words, several
from cbt_plugins.journal import json_lines
from cbt_plugins.results import flight
from cbt_plugins.results.archive import ArchivedRun
from cbt_plugins.results.environment import Clocks
from cbt_plugins.results.episodes import HURT, STATES, Stretch, stretches
from cbt_plugins.results.histogram import tail_quantiles
from cbt_plugins.results.phase import PhaseAggregates, moves_data, rank
from cbt_plugins.results.recovery import milestones
from cbt_plugins.results.recovery_rates import series as of_cluster
from cbt_plugins.results.samples import Samples, files_of, read_samples
from cbt_plugins.results.series import SECOND, Blocks, Seconds, TimeGrid

#: seconds of a state below which its rate says little
SHORT = 10.0
#: of the throughput without a failure: less is an outage
HALF = 0.5
#: seconds of less than half of it that a baseline must not have, and requests that it has in them at least
HALVED, _FEW = 5, 20.0


def impact(
    phases: Sequence[PhaseAggregates], recovery: Mapping[str, Any], baseline: Optional[str] = None
) -> Dict[str, Any]:
    """Return the client's side of every state of every phase, in the form of docs/RECOVERY.md.

    `recovery` is the result of `recovery.milestones`. `baseline` names the phase without failure that all is compared
    with; by default it is the first one that has none, or the seconds before the first fault.
    """
    cut = [
        (aggregates, stretches(recovery, aggregates.grid.start, aggregates.grid.end))
        for aggregates in phases
        if aggregates.length
    ]
    base = _baseline(cut, baseline)
    lines = [_phase(aggregates, phase_stretches, base) for aggregates, phase_stretches in cut]
    return {
        "version": 1,
        "states": STATES,
        "baseline": base,
        "phases": lines,
        "worst": _worst(cut, base),
        "warnings": list(_warnings(cut, lines, base, recovery)),
    }


def _baseline(cut: Sequence[Tuple[PhaseAggregates, List[Stretch]]], name: Optional[str]) -> Optional[Dict[str, Any]]:
    calm_phases = [
        (aggregates, phase_stretches)
        for aggregates, phase_stretches in cut
        if {s.state for s in phase_stretches} == {"no failure"}
    ]
    if name is not None:
        calm_phases = [
            (aggregates, phase_stretches) for aggregates, phase_stretches in cut if aggregates.phase.name == name
        ]
    for aggregates, phase_stretches in calm_phases or cut:
        calm = [stretch for stretch in phase_stretches if stretch.state == "no failure"]
        if calm:
            return {"phase": aggregates.phase.name, **numbers_in(aggregates, calm[0], None)}
    return None


def _phase(
    aggregates: PhaseAggregates, phase_stretches: Sequence[Stretch], base: Optional[Mapping[str, Any]]
) -> Dict[str, Any]:
    seconds, at = aggregates.all_ops.longest_gap()
    state = next((s.state for s in phase_stretches if s.start <= at < s.end), phase_stretches[-1].state)
    left = flight.at_end(aggregates)
    cut = sum(of.cut + of.cut_outside for of in aggregates.ops.values())
    return {
        "phase": aggregates.phase.name,
        "start": aggregates.grid.start,
        "end": aggregates.grid.end,
        "longest_gap": {"seconds": round(seconds, 6), "at": round(at, 3), "state": state},
        # without a row, and with one that says that the end of the run cut it off
        "lost": {"unfinished": left["requests"], "oldest_seconds": left["oldest_seconds"], "cut": cut},
        "states": [{"labels": list(s.labels), **numbers_in(aggregates, s, base)} for s in phase_stretches],
    }


def _worst(
    cut: Sequence[Tuple[PhaseAggregates, List[Stretch]]], base: Optional[Mapping[str, Any]]
) -> Optional[Dict[str, Any]]:
    """Return the stretch of a failure in which clients lacked most to half of the baseline; None where they had that.

    {"phase", "state", "start": epoch seconds, "seconds", "percent": of the baseline, "lowest": obj/s of a second}
    """
    normal = base["total"]["obj_per_s"] if base else 0.0
    stretches: List[Tuple[float, Dict[str, Any]]] = []
    for aggregates, states in cut if normal else ():
        rates = aggregates.all_ops.sums["objects"].astype(float)
        seconds = aggregates.grid.first + np.arange(len(rates))
        hurt = [s for s in states if s.state in HURT]
        inside = np.zeros(len(rates), bool)
        for s in hurt:
            inside |= (seconds >= s.start) & (seconds + 1 <= s.end)
        # the contiguous seconds with the greatest sum of what is missing
        sums = best = 0.0
        begin, at = 0, (0, 0)
        for i, missing in enumerate((HALF * normal - rates).tolist()):
            sums += missing
            if not inside[i] or sums <= 0:
                sums, begin = 0.0, i + 1
            elif sums > best:
                best, at = sums, (begin, i + 1)
        if best:
            part, start = rates[slice(*at)], float(seconds[at[0]])
            line = {"phase": aggregates.phase.name, "start": start, "seconds": at[1] - at[0]}
            line["lowest"] = float(part.min())
            line["state"] = next(s.state for s in hurt if s.start <= start < s.end)
            stretches.append((best, {**line, "percent": round(100 * float(part.mean()) / normal, 2)}))
    return max(stretches, key=lambda stretch: stretch[0])[1] if stretches else None


def _unsteady(cut: Sequence[Tuple[PhaseAggregates, List[Stretch]]], base: Mapping[str, Any]) -> Optional[str]:
    """Return that clients had less than half of the baseline for seconds of it; None where they had not."""
    aggregates = next((aggregates for aggregates, _ in cut if aggregates.phase.name == base["phase"]), None)
    normal = base["total"]["obj_per_s"]
    if aggregates is None or normal * HALVED < _FEW:
        return None
    first = aggregates.grid.first
    part = slice(math.ceil(base["start"]) - first, math.floor(base["end"]) - first)
    rates = aggregates.all_ops.sums["objects"][part].astype(float)
    means = np.convolve(rates, np.ones(HALVED) / HALVED, "valid") if len(rates) >= HALVED else np.zeros(0)
    if not len(means) or means.min() >= HALF * normal:
        return None
    at = int(means.argmin())
    share = f"{100 * float(means[at]) / normal:.0f} %"
    return f"for {HALVED} s from second {at} of the time without a failure on, clients had {share} of its throughput"


def numbers_in(aggregates: PhaseAggregates, stretch: Stretch, base: Optional[Mapping[str, Any]]) -> Dict[str, Any]:
    """Return the numbers of a stretch of whole seconds, compared with those of `base`."""
    line: Dict[str, Any] = {
        "state": stretch.state,
        "start": stretch.start,
        "end": stretch.end,
        "seconds": round(stretch.end - stretch.start, 3),
    }
    merged = _line(None, aggregates.all_ops, list(aggregates.timeline.blocks.values()), stretch)
    line["total"] = _compared(merged, base["total"] if base else None)
    line["ops"] = {}
    for op in sorted(aggregates.timeline.seconds, key=rank):
        blocks = aggregates.timeline.blocks.get(op)
        op_line = _line(op, aggregates.timeline.seconds[op], [blocks] if blocks else [], stretch)
        line["ops"][op] = _compared(op_line, base["ops"].get(op) if base else None)
    return line


def _line(op: Optional[str], seconds: Seconds, blocks: Sequence[Blocks], stretch: Stretch) -> Dict[str, Any]:
    grid, length = seconds.grid, stretch.end - stretch.start
    part = slice(math.floor(stretch.start) - grid.first, math.ceil(stretch.end) - grid.first)
    n, failed = (int(seconds.sums[name][part].sum()) for name in ("n", "failed"))
    moves = moves_data(op)
    latencies = _latencies(blocks, stretch)
    quantiles = _quantiles(latencies, 0.5, 0.99)
    return {
        "requests": n,
        "errors": failed,
        "obj_per_s": round(int(seconds.sums["objects"][part].sum()) / length, 4),
        "mib_per_s": round(int(seconds.sums["bytes"][part].sum()) / length / 2**20, 4) if moves else None,
        "mean_ms": round(int(seconds.sums["total"][part].sum()) / n / 1e6, 3) if n else None,
        "p50_ms": quantiles[0],
        "p99_ms": quantiles[1],
        "max_ms": round(int(seconds.max[part].max()) / 1e6, 3) if n else None,
        "longest_gap": round(_gap(seconds, part, stretch), 6),
        "silent_seconds": _silent(seconds, stretch),
        "tail_ms": _quantiles(latencies, *tail_quantiles(int(latencies.counts.sum()))),
    }


def _gap(seconds: Seconds, part: slice, stretch: Stretch) -> float:
    """The longest time within the stretch in which nothing succeeded."""
    some = seconds.sums["n"][part] > 0
    begin, end = round(stretch.start * SECOND), round(stretch.end * SECOND)
    first, last = seconds.first[part][some], seconds.last[part][some]
    gaps = np.concatenate((first, [end])) - np.concatenate(([begin], np.maximum.accumulate(last)))
    return max(0, int(gaps.max())) / SECOND


def _silent(seconds: Seconds, stretch: Stretch) -> int:
    """Whole seconds in which nothing succeeded."""
    first = seconds.grid.first
    inner = slice(math.ceil(stretch.start) - first, max(math.floor(stretch.end), math.ceil(stretch.start)) - first)
    return int((seconds.sums["n"][inner] == 0).sum())


def _latencies(blocks: Sequence[Blocks], stretch: Stretch) -> Blocks:
    """One bin with the latencies of the bins that lie completely in the stretch."""
    merged = Blocks(TimeGrid(0.0, 1.0))
    for op_blocks in blocks:
        grid = op_blocks.grid
        low = max(0, math.ceil((stretch.start - grid.first_block) / grid.block_step))
        high = max(low, math.floor((stretch.end - grid.first_block) / grid.block_step))
        if not grid.snapped and stretch.end >= grid.end:
            high = grid.block_bins
        first, bucket, counts = op_blocks.used()
        counts = counts[max(0, low - first) : max(0, high - first)]
        if counts.size:
            merged.add(0, bucket, counts.sum(axis=0, keepdims=True))
            merged.max[0] = max(int(merged.max[0]), int(op_blocks.max[low:high].max()))
    return merged


def _quantiles(latencies: Blocks, *wanted: float) -> List[Optional[float]]:
    """Milliseconds, off by less than 0.8 %; None below 1 / (1 - q) samples."""
    n = int(latencies.counts.sum())
    quantiles = (bins[0] for bins in latencies.quantiles(*wanted))
    return [None if ns is None or n < round(1 / (1 - q)) else round(ns / 1e6, 3) for q, ns in zip(wanted, quantiles)]


def _compared(line: Dict[str, Any], base: Optional[Mapping[str, Any]]) -> Dict[str, Any]:
    for name in ("obj_per_s", "mib_per_s"):
        of = base.get(name) if base else None
        line[f"{name}_percent"] = round(100 * line[name] / of, 2) if of and line[name] is not None else None
    return line


def _warnings(
    cut: Sequence[Tuple[PhaseAggregates, List[Stretch]]],
    lines: Sequence[Mapping[str, Any]],
    base: Optional[Mapping[str, Any]],
    recovery: Mapping[str, Any],
) -> Iterator[Dict[str, Any]]:
    if base is None:
        text = "no second without a failure was measured: there is nothing to compare with"
        yield {"code": "no-baseline", "text": text}
    elif base["seconds"] < SHORT:
        text = f"the time without a failure is {base['seconds']:g} s: too short to compare with"
        yield {"code": "short-baseline", "text": text}
    unsteady = _unsteady(cut, base) if base else None
    if unsteady:
        yield {"code": "unsteady-baseline", "text": f"{unsteady}: what all is compared with had an outage of its own"}
    compared = [
        aggregates
        for aggregates, phase_stretches in cut
        if aggregates.phase.name == (base or {}).get("phase") or _broken(phase_stretches)
    ]
    loads = {(aggregates.phase.kind, sum(job.workers for job in aggregates.phase.jobs)) for aggregates in compared}
    if len(loads) > 1:
        text = "the phases have different loads: their percentages are no effect of the failure alone"
        yield {"code": "other-load", "text": text}
    for aggregates, phase_stretches in cut:
        coarse = [s.state for s in phase_stretches if s.end - s.start < 2 * aggregates.grid.block_step]
        if aggregates.grid.block_step > 1 and coarse:
            text = f"{aggregates.phase.name}: latencies have blocks of {aggregates.grid.block_step} s, too coarse for: "
            yield {"code": "coarse-latencies", "text": text + ", ".join(dict.fromkeys(coarse))}
    for line in lines:
        for state in line["states"]:
            if state["total"]["errors"]:
                failed = several(state["total"]["errors"], "request")
                text = f"{line['phase']}: {failed} failed in the state: {state['state']}"
                yield {"code": "errors-in-state", "text": text}
    if any(episode["effect"] is None for episode in recovery.get("episodes") or ()):
        text = "a failure has no samples of the cluster: its states are those of its commands"
        yield {"code": "not-watched", "text": text}


def _broken(phase_stretches: Sequence[Stretch]) -> bool:
    """Return whether a phase has a part of a failure."""
    return any(stretch.state != "no failure" for stretch in phase_stretches)


def timeline(aggregates: PhaseAggregates, samples: Samples, recovery: Mapping[str, Any]) -> Dict[str, Any]:
    """Return the cluster during a phase: the bins are those of the phase's own `series`.

    {"start", "step", "cluster": as recovered.series, "windows": [{"state", "labels", "from", "to"}], "marks": [{"at",
    "title", "kind", "labels"}]}; from, to and at are seconds since `start`.
    """
    grid = aggregates.grid
    windows = [
        {"state": s.state, "labels": list(s.labels), "from": s.start - grid.first, "to": s.end - grid.first}
        for s in stretches(recovery, grid.start, grid.end)
    ]
    marks = []
    for episode in recovery.get("episodes") or ():
        begins = [{"title": "fault" if episode["kind"] == "failure" else "undo", "t": episode["begin"]}]
        for milestone in [*begins, *episode["milestones"]]:
            t = milestone["t"]
            if t is not None and grid.start <= t <= grid.end:
                mark = {"at": round(t - grid.first, 3), "title": milestone["title"], "kind": episode["kind"]}
                marks.append({**mark, "labels": list(episode["labels"])})
    cluster = of_cluster(samples, grid.first, grid.step, grid.bins)
    marks.sort(key=lambda mark: mark["at"])
    return {"start": grid.first, "step": grid.step, "cluster": cluster, "windows": windows, "marks": marks}


_HEAD = ("phase", "state", "s", "obj/s", "%", "MiB/s", "%", "p99 ms", "gap s", "silent", "errors")
_TOTAL = ("obj_per_s", "obj_per_s_percent", "mib_per_s", "mib_per_s_percent", "p99_ms")


def blocks(impact_section: Mapping[str, Any]) -> Iterator[Block]:
    """Yield a table with a line for each state of each phase, and what was lost."""
    rows, lost = [], []
    for phase in impact_section["phases"]:
        for state in phase["states"]:
            of = state["total"]
            numbers = (number_text(of[name]) for name in _TOTAL)
            ends = (f"{of['longest_gap']:.2f}", str(of["silent_seconds"]), str(of["errors"]))
            rows.append((phase["phase"], state["state"], f"{state['seconds']:.0f}", *numbers, *ends))
        lost_requests = phase["lost"]
        if lost_requests["unfinished"] or lost_requests["cut"]:
            lost.append(f"{phase['phase']}: lost: {lost_requests['unfinished']} unfinished, {lost_requests['cut']} cut")
    yield TableGrid(_HEAD, tuple(rows), left=2)
    yield Words(tuple(lost))


def number_text(value: Optional[float]) -> str:
    """Return a cell with one decimal."""
    return NONE if value is None else f"{value:.1f}"


def breaks(run: ArchivedRun) -> bool:
    """Return whether the injection of a fault began: one that was killed then may have been in force."""
    return any(_is_fault(event) for event in json_lines(run.path / "events.jsonl"))


def failure(run: ArchivedRun, phases: Sequence[PhaseAggregates]) -> Dict[str, Any]:
    """Return {"milestones", "impact", "timelines": {phase: ...}}, in the forms of docs/RECOVERY.md."""
    samples = read_samples(files_of(run.path), Clocks.of(run))
    recovery = milestones(samples, json_lines(run.path / "events.jsonl"))
    timelines = {
        aggregates.phase.name: timeline(aggregates, samples, recovery) for aggregates in phases if aggregates.length
    }
    loaded = [aggregates for aggregates in phases if aggregates.phase.jobs]
    # a fill is another load: nothing is compared with it unless it is all there is
    alike = [aggregates for aggregates in loaded if aggregates.phase.role != "fill"] or loaded
    return {"milestones": recovery, "impact": impact(alike, recovery), "timelines": timelines}


def warnings_of(failure_section: Optional[Mapping[str, Any]]) -> List[Dict[str, Any]]:
    """Return the warnings of a failure's milestones and impact."""
    if failure_section is None:
        return []
    return [dict(warning) for part in ("milestones", "impact") for warning in failure_section[part]["warnings"]]


def _is_fault(event: Mapping[str, Any]) -> bool:
    return event.get("event") == "fault-inject-begin" and event.get("kind") not in NO_FAULTS
