"""The summary of a run: everything that its archive says in numbers, and the warnings about them.

docs/SUMMARY.md says what each number means; summary.schema.json is the form.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any, Collection, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Tuple

from cbt_plugins.checksums import ADDED, in_read_folder
from cbt_plugins.cluster_conditions import OVERWRITTEN, PG_NUM
from cbt_plugins.formatting import several
from cbt_plugins.journal import json_lines
from cbt_plugins.metrics import METRICS, TOTAL, number_at
from cbt_plugins.models.ladder_search import LadderStep, answer_of_ladder, ladder_of, step_result
from cbt_plugins.plan import Ladder, is_calibration, is_measurement
from cbt_plugins.results.archive import ArchivedJob, ArchivedPhase, ArchivedRun, read_run
from cbt_plugins.results.engines_of_archives import has_worker_groups, is_cbt_load, is_plain_warp
from cbt_plugins.results.environment import environment
from cbt_plugins.results.nodes import perf_counters, resources
from cbt_plugins.results.phase_warnings import CLOCK, check_phase, of_cluster
from cbt_plugins.results.recovery import upgrade
from cbt_plugins.results.recovery.cluster_samples import Status, samples_of, status_by_phase
from cbt_plugins.results.recovery.failure_scores import scorecard
from cbt_plugins.results.recovery.impact import breaks, failure, impact_warnings
from cbt_plugins.results.requests import endpoint_stalls, littles_law, over_time
from cbt_plugins.results.requests import rates_and_latencies as of_phase
from cbt_plugins.results.requests.phase_reading import read_phases
from cbt_plugins.results.requests.readable_objects import Readable
from cbt_plugins.warning_kinds import Severity, paced, severity_of


def numbers_of(
    path: Path,
    running: Optional[of_phase.PhaseAggregates] = None,
    going_on: bool = False,
    names: Optional[Collection[str]] = None,
) -> Dict[str, Any]:
    """Return the summary of a run directory without its version, complete or not.

    With `running`, the phase under way is its last phase; nothing is compared with it. `going_on` as of read_run. With
    `names`, only these phases are read. Raises Unreadable for another format of archive.
    """
    run = read_run(path, going_on)
    run.phases = [phase for phase in run.phases if names is None or phase.name in names]
    warnings = list(_run_warnings(run))
    ended = len(run.phases)
    run.phases += [running.phase] if running else []
    phases, broken, upgraded = [], breaks(run), upgrade.happened(run)
    kept: List[of_phase.PhaseAggregates] = []
    readable, samples = Readable(run.plan.get("read_objects")), samples_of(run)
    status = status_by_phase(run, samples)
    for aggregates in itertools.chain(read_phases(run.phases[:ended]), [running] if running else []):
        phase, is_running = aggregates.phase, aggregates is running
        line = phase_line(run, aggregates, readable, status[phase.name])
        phases.append(line)
        warnings.extend(() if is_running else check_phase(aggregates, line))
        warnings.extend(of_cluster(run, phase, status[phase.name]))
        if broken or upgraded:
            kept.append(aggregates)
            if not is_running:
                aggregates.drop_jobs()
    failed = failure(run, kept, samples) if broken else None
    warnings.extend(impact_warnings(failed))
    run_upgrades = upgrade.upgrades(run, kept, samples)
    warnings.extend(upgrade.upgrade_warnings(run_upgrades))
    used = resources.resources(run, phases)
    refused = resources.nodes_of_files(run.changed)
    warnings.extend(resources.resource_warnings(used, phases, resources.nodes_to_watch(path), refused))
    inside = perf_counters.counters_of_phases(run, phases)
    warnings.extend(perf_counters.counter_warnings(inside))
    warnings.extend(perf_counters.limits(path))
    warnings.extend({"code": "damaged-lines", "text": text} for text in run.damage)
    ladder_lines = ladders(run, phases[:ended])
    warnings = list(_graded(run, warnings, ladder_lines))
    return {
        "run": _about(run),
        "usable": not any(warning["severity"] == Severity.INVALID.value for warning in warnings),
        "warnings": warnings,
        "phases": phases,
        "new_vs_aged": None if broken else new_vs_aged(phases[:ended]),
        "engines": engine_pairs(phases[:ended]),
        "ladders": ladder_lines,
        "failure": failed,
        "scorecard": scorecard(run, failed),
        "upgrades": run_upgrades,
        "resources": used,
        "perf_counters": inside,
        "environment": environment(run),
    }


def _about(run: ArchivedRun) -> Dict[str, Any]:
    return {
        "name": run.name,
        "run_id": run.manifest.get("run_id") or (run.complete or {}).get("run_id"),
        "benchmark": run.plan.get("benchmark") or run.config.get("benchmark"),
        "complete": run.complete is not None,
    }


def _graded(
    run: ArchivedRun, warnings: Iterable[Dict[str, Any]], ladder_lines: Sequence[Mapping[str, Any]]
) -> Iterator[Dict[str, Any]]:
    """Yield the warnings with their severity, without those that a ladder's step or a run that goes on cannot have."""
    steps = {step["phase"] for ladder in ladder_lines for step in ladder["steps"]}
    missed = {step["phase"] for ladder in ladder_lines for step in ladder["steps"] if step["missed"]}
    for warning in warnings:
        code = warning["code"]
        is_overload = code in _OVERLOAD and warning.get("phase") in steps
        # a step that kept its objective without its slowest requests may not have kept it
        is_overload |= code == "unfinished-request" and warning.get("phase") in missed
        if not (is_overload or (run.going_on and code in _AT_THE_END)):
            yield {"code": code, "severity": severity_of(code).value, **warning}


def phase_line(
    run: ArchivedRun, aggregates: of_phase.PhaseAggregates, readable: Readable, status: Status
) -> Dict[str, Any]:
    """Return the entry of a phase in the summary."""
    phase = aggregates.phase
    gap = aggregates.all_ops.longest_gap()
    line: Dict[str, Any] = {
        "index": phase.index,
        "name": phase.name,
        "kind": phase.kind,
        "role": phase.role,
        "engine": phase.engine,
        "status": phase.status,
        "sentence": None,
        "window": {"start": aggregates.grid.start, "end": aggregates.grid.end, "seconds": round(aggregates.length, 6)},
        "block": phase.block,
        "asked_seconds": phase.duration,
        "loop": _loop(phase),
        "rate": littles_law.open_loop_rate(aggregates),
        "ops": of_phase.by_op(aggregates),
        "corrected_ms": endpoint_stalls.corrected_for_omission(aggregates),
        "total": of_phase.numbers(None, of_phase.total(aggregates.ops.values()), aggregates.length),
        "mix": of_phase.mix_numbers(aggregates),
        "littles_law": littles_law.littles_law(aggregates),
        "in_flight": littles_law.in_flight_at_borders(aggregates),
        "in_flight_at_end": aggregates.in_flight_at_end,
        "longest_gap": {"seconds": round(gap[0], 6), "at": round(gap[1], 3)} if aggregates.ops else None,
        "drivers": of_phase.by_driver(aggregates),
        "endpoints": of_phase.by_endpoint(aggregates),
        "jobs": [_job(aggregates, job) for job in phase.jobs],
        "accounting": [dict(count) for count in phase.accounting],
        "readable": readable.of(aggregates),
        **over_time.of_summary(aggregates, status),
    }
    line["sentence"] = sentence(phase, line)
    line["generator"] = littles_law.generator_ceiling(line, run.ceilings.get(phase.name, {}))
    return line


def _loop(phase: ArchivedPhase) -> Optional[str]:
    if not phase.jobs:
        return None
    return "open" if any(job.open_loop for job in phase.jobs) else "closed"


def _job(aggregates: of_phase.PhaseAggregates, job: ArchivedJob) -> Dict[str, Any]:
    job_aggregates = aggregates.jobs.get(job.id)
    return {
        "id": job.id,
        "driver": job.driver,
        "node": job.node,
        "op": job.op,
        "workers": job.workers,
        "rate_limit": job.rate_limit,
        "clock_offset": job.clock_offset,
        "exit": job.exit,
        "signal": job.signal,
        "cut": job.cut,
        "restarts": job.restarts,
        "rows": job_aggregates.rows if job_aggregates else None,
        "errors": job_aggregates.failures if job_aggregates else None,
        "bad_rows": job_aggregates.bad if job_aggregates else None,
        "torn": job_aggregates.torn if job_aggregates else None,
        "retries": job.driver_end.get("retries"),
    }


_WITHOUT_ADMIN = (
    "admin: none: the state of the cluster in each phase, the number of objects, the capacity and the settings of Ceph "
    "are not known; nothing stops a fill before the cluster is full"
)


def _run_warnings(run: ArchivedRun) -> Iterator[Dict[str, Any]]:
    have = {phase.name for phase in run.phases}
    planned = [phase["name"] for phase in run.plan.get("phases") or () if isinstance(phase, dict) and phase.get("name")]
    missing = [name for name in planned if name not in have]
    if run.going_on:
        to_come = f"; to come: {', '.join(map(str, missing))}" if missing else ""
        yield {"code": "going-on", "text": f"the run is going on; these are the numbers so far{to_come}"}
    elif run.complete is None:
        yield {"code": "incomplete", "text": f"the run has no end marker: {_why_incomplete(run)}"}
    if run.plan.get("admin") is False:
        yield {"code": "no-admin", "text": _WITHOUT_ADMIN}
    yield from _split_pools(run)
    yield from _changes(run)
    for directory, text in run.errors:
        where = {"phase": directory} if directory else {}
        yield {"code": "unreadable-phase" if directory else "damaged-archive", "text": text, **where}
    for name in run.partials:
        text = f"phases/{name} is an interrupted attempt; it is not in the numbers"
        yield {"code": "partial-attempt", "text": text}
    for text in run.manifest.get("replaced") or ():
        yield {"code": "replaced", "text": f"replaced while the run was interrupted: {text}"}
    for text in run.manifest.get("lost_events") or ():
        yield {"code": "lost-events", "text": f"{text}: failures of the run may be missing in the results"}
    for text in run.manifest.get("moved_clocks") or ():
        yield {"code": "clock-offset", "text": f"{text}: so the later times of its monitors are off by as much"}
    for phase in run.phases:
        if phase.kind == "fill" and any(warning.get("code") == "repeated" for warning in phase.warnings):
            text = f"{phase.name} was filled again after an interruption: more than planned may be stored from then on"
            yield {"code": "refilled", "text": text}
    if not run.phases and not run.going_on:
        yield {"code": "no-phases", "text": "no phase has ended"}
    for name in missing if not run.going_on else ():
        yield {"code": "missing-phase", "text": f"phase {name} of the plan is not in the archive", "phase": name}
    for node in environment(run)["nodes"]:
        offset = node["clock_offset"]
        in_jobs = any(job.node == node["node"] for phase in run.phases for job in phase.jobs)
        if offset is not None and abs(offset) > CLOCK and not in_jobs:
            yield {"code": "clock-offset", "text": f"the clock of {node['node']} is {offset:+.3f} s off"}


def _why_incomplete(run: ArchivedRun) -> str:
    """Return the reason that the run itself gave at its end, if no later attempt followed."""
    lines = [line for line in json_lines(run.path / "events.jsonl") if line.get("event") in _ENDS_AND_BEGIN]
    if lines and lines[-1]["event"] == "run-failed" and lines[-1].get("why"):
        return f"it failed: {' '.join(str(lines[-1]['why']).split())}"
    return "it was interrupted, or is still running on another machine"


def _split_pools(run: ArchivedRun) -> Iterator[Dict[str, Any]]:
    """Yield a warning for pools whose PGs the autoscaler split; the undo of `settings` noted both numbers."""
    texts = []
    for line in json_lines(run.path / "events.jsonl"):
        pool = _POOL.fullmatch(str(line.get("what"))) if line.get("event") == OVERWRITTEN else None
        if pool:
            texts.append(f"{pool[1]} from {line.get('back')} to {line.get('was')}")
    if texts:
        text = f"autoscaler: on changed the number of PGs: {', '.join(dict.fromkeys(texts))}"
        yield {"code": "pgs-split", "text": f"{text}; the undo set the former number, for which Ceph moves data again"}


_ENDS_AND_BEGIN = ("run-failed", "run-interrupted", "run-begun")
_POOL = re.compile(rf"pools\.pool_name=(.+)\.{PG_NUM}")
#: files of a run without which its requests and its cluster are known: of attempts, and of monitors of nodes
_BESIDE = re.compile(r"phases/[^/]+\.partial-|monitors/[^/]+/(resources|perf_counters|backlog|stacks|collectl|nodes)\b")
#: changed files that a warning names
_SHOWN = 5


def _changes(run: ArchivedRun) -> Iterator[Dict[str, Any]]:
    """Yield the warnings of SHA256SUMS about the files of a run; changed files are not read."""
    named: Dict[Tuple[str, str, str], List[str]] = {}
    for name, why in run.changed.items():
        phase = re.match(r"phases/\d+-([^/]+)/", name)
        beside = _BESIDE.match(name) or (why == ADDED and not in_read_folder(name))
        code = "changed-beside" if beside else "changed-file"
        named.setdefault((code, why, phase[1] if phase and code == "changed-file" else ""), []).append(name)
    for (code, why, phase_name), names in named.items():
        others = f" and {several(len(names) - _SHOWN, 'file')} more" if len(names) > _SHOWN else ""
        where = {"phase": phase_name} if phase_name else {}
        yield {"code": code, "text": f"{why}: {', '.join(names[:_SHOWN])}{others}", **where}


def sentence(phase: ArchivedPhase, line: Mapping[str, Any]) -> Optional[str]:
    """Return a phase of kind "verify" or "delete" in words, over all of its requests; None for others."""
    if phase.kind == "verify":
        read = _all(line["ops"], ("GET", "STAT"))
        wrong = sum(int(job.driver_end.get("checksum_errors") or 0) for job in phase.jobs)
        # content from before the last PUT is not found: cbt-load does not keep which PUT was the last
        all_right = "all that were read had the content of one of their PUTs"
        content_text = f"{wrong} had other content than was written" if wrong else all_right
        return f"{read['requests']:,} objects read and compared: {content_text}; {read['errors']:,} could not be read"
    if phase.kind == "delete":
        deleted = _all(line["ops"], ("DELETE",))
        left = [space.get("live") for job in phase.jobs for space in job.driver_end.get("spaces") or ()]
        left_text = f"; {sum(n or 0 for n in left):,} are left" if left else ""
        return f"{deleted['requests']:,} objects deleted, {deleted['errors']:,} could not be{left_text}"
    return None


def _all(ops: Mapping[str, Mapping[str, Any]], names: Iterable[str]) -> Dict[str, int]:
    lines = [ops[op] for op in names if op in ops]
    return {
        "requests": sum(line["requests"] + line["outside"]["requests"] for line in lines),
        "errors": sum(line["errors"] + line["outside"]["errors"] for line in lines),
    }


#: warnings that only the end of a run decides: then the files of its nodes' monitors come
_AT_THE_END = ("resources-gap", "not-recovered")
#: warnings of what a ladder looks for: its answer says so
_OVERLOAD = ("rate", "late-starts", "errors", "stall", "generator-idle")


def ladders(run: ArchivedRun, phases: Sequence[Mapping[str, Any]]) -> List[Dict[str, Any]]:
    """Return, for each ladder of the plan, its steps in their order and its answer (models.ladder_search)."""
    lines = {line["name"]: line for line in phases}
    loads = {phase.name: phase.load.get("rate") or phase.load.get("workers") for phase in run.phases}
    steps_of_ladder: Dict[str, Tuple[Ladder, List[LadderStep]]] = {}
    for planned in run.plan.get("phases") or ():
        ladder = ladder_of(planned)
        if ladder:
            steps = steps_of_ladder.setdefault(ladder.name, (ladder, []))[1]
            line = lines.get(planned["name"])
            load = loads.get(planned["name"])
            if line and load:
                steps.append(step_result(ladder, float(load), {"resources": None}, line))
    return [_ladder(ladder, steps, lines) for ladder, steps in steps_of_ladder.values()]


def _ladder(ladder: Ladder, steps: Sequence[LadderStep], lines: Mapping[str, Mapping[str, Any]]) -> Dict[str, Any]:
    ladder_answer = answer_of_ladder(ladder, steps)
    return {
        "name": ladder.name,
        "unit": ladder.unit,
        "objective": dict(ladder.objective),
        "low": ladder_answer.low,
        "high": ladder_answer.high,
        "text": ladder_answer.text,
        "steps": [
            {
                "phase": step.phase,
                "load": step.load,
                "obj_per_s": lines[step.phase]["total"]["obj_per_s"],
                "errors": lines[step.phase]["total"]["errors"],
                "error_kinds": _kinds(lines[step.phase]["ops"].values()),
                "values": dict(step.values),
                "missed": list(step.missed),
            }
            for step in steps
        ],
    }


def _kinds(ops: Iterable[Mapping[str, Any]]) -> Dict[str, int]:
    """Return the count of each kind of error among the most frequent ones: {"503": 12, "timeout": 3}."""
    kinds: Counter[str] = Counter()
    for line in ops:
        for kind in line["error_kinds"]:
            kinds[re.split(r"[: ]", kind["text"], maxsplit=1)[0]] += kind["count"]
    return dict(kinds.most_common())


_AGING = tuple(METRICS[key] for key in ("obj_per_s", "mib_per_s", "mean_ms", "p99_ms"))


def new_vs_aged(phases: Sequence[Mapping[str, Any]]) -> Optional[Dict[str, Any]]:
    """Return the change of each op, and of all operations, from the first to the last phase with the role "measure".

    None when there are not two, or they had different loads.

    One run against itself says nothing about chance: no significance is claimed.
    """
    measured = [phase for phase in phases if is_measurement(phase["name"], phase["role"])]
    if len(measured) < 2:
        return None
    new, aged = measured[0], measured[-1]
    if new["loop"] != aged["loop"] or not _same(new["mix"]["asked"] or {}, aged["mix"]["asked"] or {}):
        return None
    lines: List[Dict[str, Any]] = []
    for op in [*new["ops"], *(op for op in aged["ops"] if op not in new["ops"]), None]:
        before = new["total"] if op is None else new["ops"].get(op)
        after = aged["total"] if op is None else aged["ops"].get(op)
        for metric in _AGING:
            a, b = number_at(before, metric.path), number_at(after, metric.path)
            if a is None and b is None:
                continue
            change = round(b / a - 1, 6) if a and b is not None else None
            lines.append(
                {
                    "op": op or TOTAL,
                    "metric": metric.key,
                    "unit": metric.unit,
                    "better": metric.direction.value,
                    "new": a,
                    "aged": b,
                    "change": change,
                }
            )
    return {
        "new": new["name"],
        "aged": aged["name"],
        "note": _chance(sorted({op for phase in (new, aged) for op, _, _ in paced(phase)})),
        "lines": lines,
    }


def _chance(held: Sequence[str]) -> str:
    note = "one measurement each: a difference may be chance, no significance is claimed"
    return f"{note}; rate limited, so no answer on aging: {', '.join(held)}" if held else note


_ENGINES = tuple(METRICS[key] for key in ("obj_per_s", "mib_per_s", "p50_ms", "p99_ms"))
_MIXED = (
    "warp mixed reads objects that it has just written itself and repeats failed requests unseen, in a closed loop "
    "without LIST; cbt-load reads what the cycle has filled, and counts each failed request"
)
_JOBS = (
    "warp makes the mix by one process for each operation, with a limit of workers or of the rate, and repeats failed "
    "requests unseen; cbt-load makes the mix in one process, exact over every 1000 requests, and counts each failed "
    "request"
)


def engine_pairs(phases: Sequence[Mapping[str, Any]]) -> List[Dict[str, Any]]:
    """Return one entry for each phase by warp and the nearest closed loop by cbt-load with the same mix.

    A measurement is nearer than aging is: what warp says after the first one is no word on aged data.

    {"cbt_load", "warp": names of the phases, "note", "lines": [{"op", "metric", "unit", "cbt_load", "warp", "ratio"}]}
    """
    loaded = [
        phase
        for phase in phases
        if phase["ops"] and phase["mix"]["asked"] and not is_calibration(phase["name"], phase["role"])
    ]
    closed = [
        phase
        for phase in loaded
        if (phase["kind"], phase["loop"]) == ("hybrid", "closed") and is_cbt_load(phase["engine"])
    ]
    pairs = []
    for warp_phase in filter(_by_warp, loaded):
        same = [phase for phase in closed if _same(phase["mix"]["asked"], warp_phase["mix"]["asked"])]
        role = "measure" if warp_phase["role"] == "none" else warp_phase["role"]
        if same:
            distance = partial(_distance, warp_phase["index"], role)
            pairs.append(_entry(min(same, key=distance), warp_phase))
    return pairs


def _distance(index: int, role: str, phase: Mapping[str, Any]) -> Tuple[bool, int]:
    return phase["role"] != role, abs(phase["index"] - index)


def _by_warp(phase: Mapping[str, Any]) -> bool:
    mixed = is_plain_warp(phase) and any(job["op"] == "MIXED" for job in phase["jobs"])
    return mixed or has_worker_groups(phase)


def _same(first: Mapping[str, float], second: Mapping[str, float]) -> bool:
    return all(abs(first.get(op, 0.0) - second.get(op, 0.0)) < 1e-6 for op in {*first, *second})


def _entry(cbt_load_phase: Mapping[str, Any], warp_phase: Mapping[str, Any]) -> Dict[str, Any]:
    workers = [sum(job["workers"] for job in phase["jobs"]) for phase in (cbt_load_phase, warp_phase)]
    note = _MIXED if is_plain_warp(warp_phase) else _JOBS
    if workers[0] != workers[1]:
        note += f"; cbt-load had {several(workers[0], 'worker')}, warp {workers[1]}"
    lines: List[Dict[str, Any]] = []
    for op in [*cbt_load_phase["ops"], *(op for op in warp_phase["ops"] if op not in cbt_load_phase["ops"]), None]:
        both = [phase["total"] if op is None else phase["ops"].get(op) for phase in (cbt_load_phase, warp_phase)]
        for metric in _ENGINES:
            a, b = (number_at(line, metric.path) for line in both)
            if a is not None or b is not None:
                about = {"op": op or TOTAL, "metric": metric.key, "unit": metric.unit}
                lines.append({**about, "cbt_load": a, "warp": b, "ratio": _ratio(a, b)})
    return {"cbt_load": cbt_load_phase["name"], "warp": warp_phase["name"], "note": note, "lines": lines}


def _ratio(a: Optional[float], b: Optional[float]) -> Optional[float]:
    return round(a / b, 6) if a is not None and b else None
