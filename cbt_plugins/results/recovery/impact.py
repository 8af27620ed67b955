"""Failures: how the cluster took them, and what they cost the clients, by the state of the cluster."""

from __future__ import annotations

import math
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

import numpy as np

from cbt_plugins.cluster_conditions import NO_FAULTS
from cbt_plugins.formatting import NONE, count, percent, several
from cbt_plugins.formatting.blocks import Block, TableGrid, Words
from cbt_plugins.journal import json_lines
from cbt_plugins.results.archive import ArchivedJob, ArchivedRun
from cbt_plugins.results.recovery.bad_seconds import bad_seconds, second_limits
from cbt_plugins.results.recovery.client_losses import bad_stretches, loss_rows, loss_sentences, losses, scores
from cbt_plugins.results.recovery.cluster_samples import Samples
from cbt_plugins.results.recovery.episodes import HURT, STATES, Stretch, stretches
from cbt_plugins.results.recovery.milestones import milestones
from cbt_plugins.results.recovery.rates import series as of_cluster
from cbt_plugins.results.recovery.stretch_numbers import LoadPart, numbers_in
from cbt_plugins.results.requests import littles_law
from cbt_plugins.results.requests.rates_and_latencies import PhaseAggregates, op_order

#: seconds of a state below which its rate says little
SHORT = 10.0
#: of the throughput without a failure: less is an outage
HALF = 0.5
#: seconds of less than half of it that a baseline must not have, and requests that it has in them at least
HALVED, _FEW = 5, 20.0


def impact(
    phases: Sequence[PhaseAggregates],
    recovery: Mapping[str, Any],
    baseline: Optional[str] = None,
    objective: Mapping[str, Any] = {},
    failure_of_phase: Mapping[str, str] = {},
) -> Dict[str, Any]:
    """Return the client's side of every state of every phase, in the form of docs/RECOVERY.md.

    `recovery` is the result of `recovery.milestones`. `baseline` names the phase without failure that all is compared
    with; by default it is the first one that has none, or the seconds before the first fault. `objective` is the one
    of the plan, `failure_of_phase` names the failures that phases of the plan measure.
    """
    cut = [
        (aggregates, stretches(recovery, aggregates.grid.start, aggregates.grid.end))
        for aggregates in phases
        if aggregates.length
    ]
    calm = _calm(cut, baseline)
    usual = numbers_in(*calm, None) if calm else None
    ops = sorted({op for aggregates, _ in cut for op in aggregates.timeline.seconds}, key=op_order)
    limits = second_limits(objective, usual, ops)
    bad = {aggregates.phase.name: bad_seconds(aggregates, limits) for aggregates, _ in cut}
    base = None
    if calm:
        name = calm[0].phase.name
        base = {"phase": name, **numbers_in(*calm, None, bad[name])}
    parts = [
        LoadPart(aggregates, Stretch("", (), aggregates.grid.start, aggregates.grid.end), bad[aggregates.phase.name])
        for aggregates, _ in cut
    ]
    lines = [_phase(part, phase_stretches, base) for part, (_, phase_stretches) in zip(parts, cut)]
    return {
        "version": 2,
        "states": STATES,
        "objective": {op: limit.plain() for op, limit in limits.items()},
        "baseline": base,
        "phases": lines,
        "episodes": losses(parts, recovery, base),
        "scores": list(scores(parts, recovery, base, failure_of_phase)),
        "worst": _worst(cut, base),
        "warnings": list(_warnings_of_impact(cut, lines, base, recovery)),
    }


def _calm(
    cut: Sequence[Tuple[PhaseAggregates, List[Stretch]]], name: Optional[str]
) -> Optional[Tuple[PhaseAggregates, Stretch]]:
    """Return the phase and the stretch of it that all is compared with.

    It has the load of a failure, where there is one: a phase of its own, else at least SHORT seconds before the fault.
    """
    loads = {_load(aggregates) for aggregates, phase_stretches in cut if _broken(phase_stretches)}
    calm_phases = [(aggregates, phase_stretches) for aggregates, phase_stretches in cut if not _broken(phase_stretches)]
    before = [(aggregates, s) for aggregates, s in cut if _broken(s) and s[0].state == "no failure"]
    before = [(aggregates, s) for aggregates, s in before if s[0].end - s[0].start >= SHORT]
    calm_phases = [calm for calm in calm_phases if _load(calm[0]) in loads] or before or calm_phases
    if name is not None:
        calm_phases = [
            (aggregates, phase_stretches) for aggregates, phase_stretches in cut if aggregates.phase.name == name
        ]
    for aggregates, phase_stretches in calm_phases or cut:
        calm = [stretch for stretch in phase_stretches if stretch.state == "no failure"]
        if calm:
            return aggregates, calm[0]
    return None


def _phase(part: LoadPart, phase_stretches: Sequence[Stretch], base: Optional[Mapping[str, Any]]) -> Dict[str, Any]:
    aggregates = part.aggregates
    seconds, at = aggregates.all_ops.longest_gap()
    state = next((s.state for s in phase_stretches if s.start <= at < s.end), phase_stretches[-1].state)
    left = aggregates.in_flight_at_end
    cut = sum(of.cut + of.cut_outside for of in aggregates.ops.values())
    return {
        "phase": aggregates.phase.name,
        "start": aggregates.grid.start,
        "end": aggregates.grid.end,
        "longest_gap": {"seconds": round(seconds, 6), "at": round(at, 3), "state": state},
        "failure_gap": _failure_gap(aggregates, phase_stretches),
        # without a row, with one that says that the end of the run cut it off, due in an open loop and never started
        "lost": {
            "unfinished": left["requests"],
            "oldest_seconds": left["oldest_seconds"],
            "cut": cut,
            "unstarted": sum(loop.unstarted for loop in littles_law.open_loop_rates(aggregates).values()),
        },
        "states": [{"labels": list(s.labels), **numbers_in(aggregates, s, base, part.bad)} for s in phase_stretches],
        "bad": bad_stretches(part),
    }


def _failure_gap(aggregates: PhaseAggregates, phase_stretches: Sequence[Stretch]) -> Optional[float]:
    """Return the longest time without a success from a failure to its recovery: the state may change meanwhile.

    None for a phase without a failure.
    """
    joined: List[Stretch] = []
    for stretch in phase_stretches:
        if stretch.state in HURT and joined and joined[-1].end == stretch.start:
            joined[-1] = joined[-1]._replace(end=stretch.end)
        elif stretch.state in HURT:
            joined.append(stretch)
    gaps: List[float] = [numbers_in(aggregates, stretch, None)["total"]["longest_gap"] for stretch in joined]
    return max(gaps, default=None)


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
    share = percent(float(means[at]) / normal, ".0f")
    return f"for {HALVED} s from second {at} of the time without a failure, throughput was {share} of its mean"


def _warnings_of_impact(
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
        text = f"{unsteady}: the base of the comparison had an outage too"
        yield {"code": "unsteady-baseline", "text": text}
    compared = [
        aggregates
        for aggregates, phase_stretches in cut
        if aggregates.phase.name == (base or {}).get("phase") or _broken(phase_stretches)
    ]
    if len(set(map(_load, compared))) > 1:
        text = "the phases have different loads: their percentages are no effect of the failure alone"
        yield {"code": "other-load", "text": text}
    for aggregates, phase_stretches in cut:
        hurt = any(stretch.state in (*HURT, "failed", "no effect") for stretch in phase_stretches)
        if hurt and any(map(_is_closed, aggregates.phase.jobs)):
            text = "requests that workers of a closed loop did not send while they waited are in no count"
            yield {"code": "closed-loop-failure", "text": text, "phase": aggregates.phase.name}
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
        text = "too few samples of the cluster to see an effect of a failure: its states are those of its commands"
        yield {"code": "not-watched", "text": text}


def _load(aggregates: PhaseAggregates) -> Tuple[Any, ...]:
    """Return the kind, the workers, the rate (of an open loop) and the mix of the load of a phase."""
    phase = aggregates.phase
    mix = tuple(sorted(phase.mix.items()))
    return phase.kind, sum(job.workers for job in phase.jobs), phase.load.get("rate"), mix


def _is_closed(job: ArchivedJob) -> bool:
    """Return whether workers of a job wait for an answer before they send the next request."""
    return not job.open_loop or any(not loop.rate_limit for loop in job.loops)


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


_HEAD = ("phase", "state", "s", "obj/s", "%", "MiB/s", "%", "p99 ms", "gap s", "silent", "bad s", "errors")
_TOTAL = ("obj_per_s", "obj_per_s_percent", "mib_per_s", "mib_per_s_percent", "p99_ms")


def blocks(impact_section: Mapping[str, Any]) -> Iterator[Block]:
    """Yield a table with a line for each state of each phase, and the losses of each failure and return."""
    rows, lost = [], []
    for phase in impact_section["phases"]:
        for state in phase["states"]:
            of = state["total"]
            numbers = (number_text(of[name]) for name in _TOTAL)
            seconds = (f"{of['longest_gap']:.2f}", str(of["silent_seconds"]), count(of.get("bad_seconds")))
            names = (phase["phase"], state["state"], f"{state['seconds']:.0f}")
            rows.append((*names, *numbers, *seconds, str(of["errors"])))
        lost_requests = phase["lost"]
        counts = {key: lost_requests[key] for key in ("unfinished", "cut", "unstarted")}
        if any(counts.values()):
            lost.append(f"{phase['phase']}: lost: {', '.join(f'{n} {key}' for key, n in counts.items())}")
    yield TableGrid(_HEAD, tuple(rows), left=2)
    yield Words(tuple(lost))
    losses_table = loss_rows(impact_section)
    if losses_table:
        yield TableGrid(losses_table[0], tuple(losses_table[1:]), left=2, title="what clients lost")
        yield Words(tuple(loss_sentences(impact_section)))


def number_text(value: Optional[float]) -> str:
    """Return a cell with one decimal."""
    return NONE if value is None else f"{value:.1f}"


def failures_of(plan: Mapping[str, Any]) -> Dict[str, str]:
    """Return phase -> name of the failure that it measures, of a plan as the archive has it."""
    phases = [phase for phase in plan.get("phases") or () if isinstance(phase, dict)]
    return {str(phase["name"]): str(phase["failure"]) for phase in phases if phase.get("failure")}


def breaks(run: ArchivedRun) -> bool:
    """Return whether the injection of a fault began: one that was killed then may have been in force."""
    return any(_is_fault(event) for event in json_lines(run.path / "events.jsonl"))


def failure(run: ArchivedRun, phases: Sequence[PhaseAggregates], samples: Samples) -> Dict[str, Any]:
    """Return {"milestones", "impact", "timelines": {phase: ...}}, in the forms of docs/RECOVERY.md."""
    recovery = milestones(samples, json_lines(run.path / "events.jsonl"))
    timelines = {
        aggregates.phase.name: timeline(aggregates, samples, recovery) for aggregates in phases if aggregates.length
    }
    loaded = [aggregates for aggregates in phases if aggregates.phase.jobs]
    # a fill is another load: nothing is compared with it unless it is all there is; so is the use of each object once
    alike = [aggregates for aggregates in loaded if aggregates.phase.role != "fill"]
    alike = [aggregates for aggregates in alike if not _takes_each_object(aggregates, recovery)] or loaded
    planned = run.plan.get("objective")
    objective = planned if isinstance(planned, dict) else {}
    section = impact(alike, recovery, objective=objective, failure_of_phase=failures_of(run.plan))
    for phase in section["phases"]:
        timelines[phase["phase"]]["bad"] = phase.pop("bad")
    return {"milestones": recovery, "impact": section, "timelines": timelines}


def _takes_each_object(aggregates: PhaseAggregates, recovery: Mapping[str, Any]) -> bool:
    """Return whether a phase reads or deletes each object once, and no failure begins in it."""
    grid = aggregates.grid
    begins = [e["begin"] for e in recovery.get("episodes") or () if e["kind"] == "failure"]
    is_measured = any(grid.start <= begin < grid.end for begin in begins)
    return aggregates.phase.kind in ("verify", "delete") and not is_measured


def impact_warnings(failure_section: Optional[Mapping[str, Any]]) -> List[Dict[str, Any]]:
    """Return the warnings of a failure's milestones and impact."""
    if failure_section is None:
        return []
    return [dict(warning) for part in ("milestones", "impact") for warning in failure_section[part]["warnings"]]


def _is_fault(event: Mapping[str, Any]) -> bool:
    return event.get("event") == "fault-inject-begin" and event.get("kind") not in NO_FAULTS
