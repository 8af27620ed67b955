"""The summary of a run: everything that its archive says in numbers, and the warnings about them.

docs/SUMMARY.md says what each number means; summary.schema.json is the form."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Dict, Iterable, Iterator, List, Mapping, Optional, Tuple

from cbt_plugins.journal import write_whole
from cbt_plugins.results import flight, resources
from cbt_plugins.results import phase as of_phase
from cbt_plugins.results.archive import ArchivedJob, ArchivedPhase, ArchivedRun, read_run
from cbt_plugins.results.checks import CLOCK, check_phase
from cbt_plugins.results.environment import environment
from cbt_plugins.results.impact import breaks, failure, warnings_of
from cbt_plugins.results.phase_pairs import engine_pairs, new_vs_aged
from cbt_plugins.results.schema import VERSION, check

#: warnings after which the numbers are not those of a complete run
_UNUSABLE = ("incomplete", "missing-phase", "unreadable-phase", "no-rows", "no-window", "no-phases")
#: ... and not those of a cluster that keeps what it is given
_WRONG = ("checksum-errors", "lost-objects")


def summarize(path: Path) -> Dict[str, Any]:
    """Return the summary of a run directory, complete or not. Raises Unreadable for another format of archive."""
    run = read_run(path)
    warnings = list(_run_warnings(run))
    phases, broken = [], breaks(run)
    kept: List[of_phase.PhaseAggregates] = []
    for phase in run.phases:
        made = of_phase.read_phase(phase)
        line, its_warnings = _phase(phase, made)
        phases.append(line)
        warnings.extend(its_warnings)
        kept += [made] if broken else []
    failed = failure(run, kept) if broken else None
    warnings.extend(warnings_of(failed))
    used = resources.resources(run, phases)
    warnings.extend(resources.warnings_of(used))
    summary = {
        "version": VERSION,
        "run": {
            "name": run.name,
            "run_id": run.manifest.get("run_id") or (run.complete or {}).get("run_id"),
            "benchmark": run.plan.get("benchmark") or run.config.get("benchmark"),
            "complete": run.complete is not None,
        },
        "usable": not any(warning["code"] in (*_UNUSABLE, *_WRONG) for warning in warnings),
        "warnings": warnings,
        "phases": phases,
        "new_vs_aged": None if broken else new_vs_aged(phases),
        "engines": engine_pairs(phases),
        "failure": failed,
        "resources": used,
        "environment": environment(run),
    }
    check(summary)
    return summary


def _phase(phase: ArchivedPhase, made: of_phase.PhaseAggregates) -> Tuple[Dict[str, Any], List[Dict[str, Any]]]:
    gap = made.together.longest_gap()
    drivers = {job.id: job.driver for job in phase.jobs}
    line: Dict[str, Any] = {
        "index": phase.index,
        "name": phase.name,
        "kind": phase.kind,
        "role": phase.role,
        "engine": phase.engine,
        "status": phase.status,
        "sentence": None,
        "window": {"start": made.grid.start, "end": made.grid.end, "seconds": round(made.length, 6)},
        "block": phase.block,
        "asked_seconds": phase.duration,
        "loop": _loop(phase),
        "rate": flight.rate(made),
        "ops": of_phase.by_op(made),
        "total": of_phase.numbers(None, of_phase.total(made.ops.values()), made.length),
        "mix": of_phase.mix(made),
        "littles_law": flight.littles_law(made),
        "in_flight": flight.at_borders(made),
        "in_flight_at_end": flight.at_end(made),
        "longest_gap": {"seconds": round(gap[0], 6), "at": round(gap[1], 3)} if made.ops else None,
        "drivers": of_phase.by_driver(made),
        "endpoints": of_phase.by_endpoint(made),
        "jobs": [_job(made, job) for job in phase.jobs],
        "accounting": [dict(count) for count in phase.accounting],
        "series": of_phase.series(made),
        "under_way": flight.under_way(phase.path / flight.FILE, made.grid, drivers),
    }
    line["sentence"] = sentence(phase, line)
    return line, check_phase(made, line)


def _loop(phase: ArchivedPhase) -> Optional[str]:
    if not phase.jobs:
        return None
    return "open" if any(job.open_loop for job in phase.jobs) else "closed"


def _job(made: of_phase.PhaseAggregates, job: ArchivedJob) -> Dict[str, Any]:
    its = made.jobs.get(job.id)
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
        "rows": its.rows if its else None,
        "errors": its.errors if its else None,
        "bad_rows": its.bad if its else None,
        "torn": its.torn if its else None,
        "retries": job.driver_end.get("retries"),
    }


def _run_warnings(run: ArchivedRun) -> Iterator[Dict[str, Any]]:
    if run.complete is None:
        text = "the run has no end marker: it was interrupted, or is still running"
        yield {"code": "incomplete", "text": text}
    for directory, text in run.errors:
        where = {"phase": directory} if directory else {}
        yield {"code": "unreadable-phase" if directory else "damaged-archive", "text": text, **where}
    for name in run.partials:
        text = f"phases/{name} is an interrupted attempt; it is not in the numbers"
        yield {"code": "partial-attempt", "text": text}
    if not run.phases:
        yield {"code": "no-phases", "text": "no phase has ended"}
    have = {phase.name for phase in run.phases}
    for planned in run.plan.get("phases") or ():
        wanted = planned.get("name") if isinstance(planned, dict) else None
        if wanted and wanted not in have:
            text = f"phase {wanted} of the plan is not in the archive"
            yield {"code": "missing-phase", "text": text, "phase": wanted}
    for node in environment(run)["nodes"]:
        offset = node["clock_offset"]
        in_jobs = any(job.node == node["node"] for phase in run.phases for job in phase.jobs)
        if offset is not None and abs(offset) > CLOCK and not in_jobs:
            yield {"code": "clock-offset", "text": f"the clock of {node['node']} is {offset:+.3f} s off"}


def write_summary(summary: Mapping[str, Any], path: Path) -> None:
    """Write it whole or not at all; the same summary gives the same bytes."""
    write_whole(path, dumps(summary) + "\n")


def dumps(value: Any, indent: str = "") -> str:
    """Return JSON with one line for each list of plain values: a series is one line."""
    deeper = indent + " "
    if isinstance(value, dict) and value:
        items = [f"{deeper}{json.dumps(key)}: {dumps(its, deeper)}" for key, its in value.items()]
        return "{\n" + ",\n".join(items) + f"\n{indent}}}"
    if isinstance(value, (list, tuple)) and any(isinstance(its, (dict, list, tuple)) for its in value):
        return "[\n" + ",\n".join(deeper + dumps(its, deeper) for its in value) + f"\n{indent}]"
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


def sentence(phase: ArchivedPhase, line: Mapping[str, Any]) -> Optional[str]:
    """Return a phase of kind "verify" or "delete" in words, over all of its requests; None for others."""
    if phase.kind == "verify":
        read = _all(line["ops"], ("GET", "STAT"))
        wrong = sum(int(job.driver_end.get("checksum_errors") or 0) for job in phase.jobs)
        said = f"{wrong} had other content than was written" if wrong else "all that were read had the written content"
        return f"{read['requests']:,} objects read and compared: {said}; {read['errors']:,} could not be read"
    if phase.kind == "delete":
        deleted = _all(line["ops"], ("DELETE",))
        left = [space.get("live") for job in phase.jobs for space in job.driver_end.get("spaces") or ()]
        rest = f"; {sum(n or 0 for n in left):,} are left" if left else ""
        return f"{deleted['requests']:,} objects deleted, {deleted['errors']:,} could not be{rest}"
    return None


def _all(ops: Mapping[str, Mapping[str, Any]], names: Iterable[str]) -> Dict[str, int]:
    lines = [ops[op] for op in names if op in ops]
    return {
        "requests": sum(line["requests"] + line["outside"]["requests"] for line in lines),
        "errors": sum(line["errors"] + line["outside"]["errors"] for line in lines),
    }
