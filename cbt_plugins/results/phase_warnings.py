"""The warnings of a phase that its files tell, as values: {code, text, phase?, op?, job?}.

What only the run can see while the load goes on, such as a silent client: run/load_observer.py.
"""

from __future__ import annotations

import math
from typing import Any, Callable, Dict, Iterator, List, Mapping, Sequence, Set, Tuple

from cbt_plugins.cluster_conditions import LASTS, ConditionSpan, condition_spans, of_own_faults
from cbt_plugins.formatting import percent, several, signed_percent
from cbt_plugins.journal import json_lines
from cbt_plugins.plan import split_op
from cbt_plugins.results.archive import ArchivedPhase, ArchivedRun
from cbt_plugins.results.requests import endpoint_stalls
from cbt_plugins.results.requests.error_kinds import OTHER_OBJECT, error_kind, is_missing_object
from cbt_plugins.results.requests.littles_law import open_loop_rates
from cbt_plugins.results.requests.rates_and_latencies import PhaseAggregates
from cbt_plugins.results.requests.unfinished_requests import unfinished_requests
from cbt_plugins.warning_kinds import paced

RATE = 0.01  # share of the rate that was asked for
LATE_START = 1.0  # seconds
READ = 0.95  # share of the objects
AT_LIMIT = 0.9  # of a rate

Warning_ = Dict[str, Any]
_Check = Callable[[PhaseAggregates, Mapping[str, Any]], Iterator[Dict[str, Any]]]


def _dry(aggregates: PhaseAggregates, line: Mapping[str, Any]) -> Iterator[Dict[str, Any]]:
    for job in aggregates.phase.jobs:
        issued = job.driver_end.get("issued") or {}
        for op, n in (job.driver_end.get("dry") or {}).items():
            if n:
                requests = issued.get(op, 0)
                text = f"{job.id}: {n} {op} were skipped because there was no object for them; {requests} were issued"
                yield {"code": "ran-dry", "text": text, "op": op, "job": job.id}


def _checksums(aggregates: PhaseAggregates, line: Mapping[str, Any]) -> Iterator[Dict[str, Any]]:
    checksum_errors = sum(int(job.driver_end.get("checksum_errors") or 0) for job in aggregates.phase.jobs)
    messages = (message for of in aggregates.ops.values() for message in of.messages.items())
    seen = sum(n for text, n in messages if error_kind(text) in OTHER_OBJECT)
    if max(checksum_errors, seen):
        read = several(max(checksum_errors, seen), "object")
        text = f"{read} read with other content than was written: the cluster returned wrong data"
        yield {"code": "checksum-errors", "text": text}


def _unknown(aggregates: PhaseAggregates, line: Mapping[str, Any]) -> Iterator[Dict[str, Any]]:
    for job in aggregates.phase.jobs:
        for space in job.driver_end.get("spaces") or ():
            if space.get("unknown"):
                n, name = space["unknown"], space.get("name")
                text = f"{job.id}: unknown whether the cluster has {several(n, 'object')} of {name}"
                yield {"code": "unknown-objects", "text": text, "job": job.id}


def _lost(aggregates: PhaseAggregates, line: Mapping[str, Any]) -> Iterator[Dict[str, Any]]:
    for job in aggregates.phase.jobs:
        for space in job.driver_end.get("spaces") or ():
            if space.get("lost"):
                gone = several(space["lost"], "object")
                text = f"{job.id}: {gone} of {space.get('name')} missing, and not deleted"
                yield {"code": "lost-objects", "text": text, "job": job.id}


def _rate(aggregates: PhaseAggregates, line: Mapping[str, Any]) -> Iterator[Dict[str, Any]]:
    for work, rate in open_loop_rates(aggregates).items():
        if rate.issued is None:
            continue
        off = rate.issued / rate.asked_rate - 1
        # a Poisson process has a chance of its own: three standard deviations
        chance = 3 / math.sqrt(max(1, rate.requests)) if rate.poisson else 0.0
        if abs(off) > max(RATE, chance):
            rates_text = f"{rate.issued:.1f} requests/s were issued, {rate.asked_rate:.1f} were asked for"
            yield {"code": "rate", "text": f"{work}{': ' if work else ''}{rates_text} ({signed_percent(off)})"}


def _late(aggregates: PhaseAggregates, line: Mapping[str, Any]) -> Iterator[Dict[str, Any]]:
    for job in aggregates.phase.jobs:
        for loop in job.loops if job.open_loop else ():
            if loop.latest_start > LATE_START:
                name = f"{job.id}{', ' if loop.work else ''}{loop.work}"
                text = f"{name}: a request started {loop.latest_start:.1f} s late because all workers were busy"
                text += ": the loop was not open"
                if loop.unstarted:
                    text += f"; {loop.unstarted} due requests never started"
                yield {"code": "late-starts", "text": text, "job": job.id}


def _readable(aggregates: PhaseAggregates, line: Mapping[str, Any]) -> Iterator[Dict[str, Any]]:
    for bucket in line["readable"]:
        if bucket["share"] < READ:
            none = f", and no objects of {', '.join(bucket['unread'])}" if bucket["unread"] else ""
            text = (
                f"bucket {bucket['bucket']}: reads know {bucket['listed']} of {bucket['objects']} objects "
                f"({percent(bucket['share'], '.0f')}), the first in the LIST{none}: raise read_objects, or use cbt-load"
            )
            yield {"code": "read-share", "text": text}


def _paced(aggregates: PhaseAggregates, line: Mapping[str, Any]) -> Iterator[Dict[str, Any]]:
    """Warn of rates that limit warp's closed loops: the time that a request waits for its turn is not measured."""
    for op, held, rate in paced(line):
        of = [job for job in aggregates.phase.jobs if job.op == op]
        part = "" if held == len(of) else f" in {held} of {len(of)} jobs"
        text = f"{op} was limited to {rate:g} requests/s{part}: it could not be faster; latencies are without the wait"
        numbers = line["ops"].get(op) or {}
        reached = held == len(of) and (numbers.get("obj_per_s") or 0.0) >= AT_LIMIT * rate
        code = "at-limit" if reached else "paced"
        yield {"code": code, "text": text, **({} if op == "MIXED" else {"op": op})}


_CHECKS_OF_DRIVERS: Tuple[_Check, ...] = (_dry, _checksums, _unknown, _lost, _rate, _late)


#: seconds without a sample of the cluster's state that are told; a re-opened connection takes less
UNKNOWN = 3 * LASTS
#: characters of what was found
_SHOWN = 200


def of_cluster(run: ArchivedRun, phase: ArchivedPhase, status: Sequence[Mapping[str, Any]]) -> Iterator[Warning_]:
    """Yield a warning for each trouble of the cluster in the window of a phase, but for the run's own faults."""
    start, end = phase.window
    if not phase.jobs or end <= start or run.plan.get("admin") is False:
        return
    own_faults = of_own_faults(json_lines(run.path / "events.jsonl"))
    accepted = (run.plan.get("settings") or {}).get("accept") or ()
    spans, unknown = condition_spans(status, start, end)
    for span in spans:
        name = span.condition.name
        if span.condition.of_faults and any(low <= span.first < high for low, high in own_faults):
            continue
        code = "accepted-condition" if name in accepted else name
        yield {"code": code, "text": _span_text(span, start, end), "phase": phase.name}
    if unknown > UNKNOWN:
        text = f"the cluster's state is not known for {unknown:.0f} s of {end - start:.0f} s"
        yield {"code": "state-unknown", "text": text, "phase": phase.name}


def _span_text(span: ConditionSpan, start: float, end: float) -> str:
    when = f"from second {span.first - start:.0f} on"
    if not span.condition.moments:
        when = f"for {span.seconds:.0f} of {end - start:.0f} s, from second {span.first - start:.0f}"
        when += f" to {span.last - start:.0f}"
    worst = span.worst if len(span.worst) <= _SHOWN else span.worst[:_SHOWN] + " ..."
    return f"{span.condition.text} {when} ({worst})"


LITTLE = 0.05  # share of the workers
MIX = 1.5  # percentage points
EXACT_MIX = 0.5
SHORT = 0.9  # of the duration that was asked for
CLOCK = 1.0  # seconds


def check_phase(aggregates: PhaseAggregates, line: Mapping[str, Any]) -> List[Warning_]:
    """Return all warnings of one phase; `line` is its entry in the summary."""
    warnings = [warning for check in (*_CHECKS, *_CHECKS_OF_DRIVERS) for warning in check(aggregates, line)]
    recounted = {warning["code"] for warning in warnings}
    if not aggregates.unreadable:  # requests that were only cut off are no errors
        recounted.add("errors")
    recorded = [
        {"code": str(warning.get("code", "phase")), "text": str(warning.get("text", "")), **_where(warning)}
        for warning in aggregates.phase.warnings
        # what the run counted as it went is here counted once more, and better
        if warning.get("code") not in recounted
    ]
    return [{**warning, "phase": aggregates.phase.name} for warning in (*recorded, *warnings)]


def _where(warning: Mapping[str, Any]) -> Dict[str, str]:
    return {key: str(warning[key]) for key in ("op", "job") if warning.get(key)}


def _status(aggregates: PhaseAggregates, line: Mapping[str, Any]) -> Iterator[Warning_]:
    # a phase that is degraded says why in its own warnings
    phase = aggregates.phase
    if phase.status not in ("ok", "degraded") or (phase.status != "ok" and not phase.warnings):
        yield {"code": "phase-status", "text": f"the phase ended as {phase.status}"}


def _window(aggregates: PhaseAggregates, line: Mapping[str, Any]) -> Iterator[Warning_]:
    phase = aggregates.phase
    if not phase.jobs:
        return
    if aggregates.length <= 0:
        yield {"code": "no-window", "text": "the jobs never ran at the same time: there is no window and no rate"}
    elif phase.duration and aggregates.length < SHORT * phase.duration and not phase.calibrates:
        text = f"the window is {aggregates.length:.1f} s, {phase.duration:.0f} s were asked for"
        yield {"code": "short-window", "text": text}


def _jobs(aggregates: PhaseAggregates, line: Mapping[str, Any]) -> Iterator[Warning_]:
    dry = _ran_dry(aggregates)
    for job in aggregates.phase.jobs:
        if job.restarts and job.id not in dry:
            times = "once" if job.restarts == 1 else f"{job.restarts} times"
            yield {"code": "job-restarted", "text": f"{job.id} was restarted {times}", "job": job.id}
        if not job.cut and (job.signal or job.exit):
            how = f"by signal {job.signal}" if job.signal else f"with exit status {job.exit}"
            yield {"code": "generator-died", "text": f"{job.id} ended {how}", "job": job.id}
        if abs(job.clock_offset) > CLOCK:
            text = f"the clock of {job.node} is {job.clock_offset:+.3f} s off; its times are corrected by that"
            yield {"code": "clock-offset", "text": text, "job": job.id}


def _rows(aggregates: PhaseAggregates, line: Mapping[str, Any]) -> Iterator[Warning_]:
    for job_id, why in aggregates.unreadable.items():
        yield {
            "code": "no-rows",
            "text": f"{job_id}: {why}; its requests are not in the numbers",
            "job": job_id,
        }
    for job in aggregates.phase.jobs:
        job_aggregates = aggregates.jobs.get(job.id)
        if job_aggregates is None:
            continue
        if job.id in aggregates.from_rows:
            text = f"{job.id}: {aggregates.from_rows[job.id]}; its numbers are those of its rows"
            yield {"code": "no-aggregates", "text": text, "job": job.id}
        if job_aggregates.torn:
            yield {
                "code": "torn-rows",
                "text": f"{job.id}: {job_aggregates.torn}; {job_aggregates.rows} complete rows were read",
                "job": job.id,
            }
        if job_aggregates.bad:
            yield {
                "code": "bad-rows",
                "text": f"{job.id}: {several(job_aggregates.bad, 'line')} left out: they are not rows",
                "job": job.id,
            }
        if job.rows_total is not None and job.rows_total != job_aggregates.rows:
            rows = f"{job_aggregates.rows} rows are in the archive, {job.rows_total} were counted during the run"
            yield {"code": "lost-rows", "text": f"{job.id}: {rows}", "job": job.id}
        if not job_aggregates.rows:
            yield {"code": "generator-idle", "text": f"{job.id} finished no request", "job": job.id}


def _errors(aggregates: PhaseAggregates, line: Mapping[str, Any]) -> Iterator[Warning_]:
    for op, of in aggregates.ops.items():
        failed = of.failures + of.failures_outside
        kinds = [(text, n) for text, n in of.messages.items() if error_kind(text) != "cut"]
        if failed and kinds:
            text, n = sorted(kinds, key=lambda item: (-item[1], item[0]))[0]
            rate = 100 * of.failures / of.finished if of.finished else 0.0
            everything = of.finished + of.ok_outside + of.failures_outside
            text = f"{failed} of {everything} {op} failed ({rate:.3g} % in the window); {n} x {text}"
            yield {"code": "errors", "text": text, "op": op}


def _missing(aggregates: PhaseAggregates, line: Mapping[str, Any]) -> Iterator[Warning_]:
    """Warn of missing objects: the accounting is wrong, or somebody changed the bucket; no gateway failed."""
    for op, of in aggregates.ops.items():
        n = sum(count for text, count in of.messages.items() if is_missing_object(text))
        if n:
            text = f"{n} {op} found no object where one was expected (404)"
            yield {"code": "missing-objects", "text": text, "op": op}


def _accounting(aggregates: PhaseAggregates, line: Mapping[str, Any]) -> Iterator[Warning_]:
    for count in aggregates.phase.accounting:
        if count.get("ok") is False:
            objects_after, expected = int(count.get("after") or 0), int(count.get("expected") or 0)
            excess = objects_after - expected
            surplus = f"{several(abs(excess), 'object')} {'more' if excess > 0 else 'fewer'} than counted"
            text = f"bucket {count.get('bucket')}: {surplus} ({objects_after} at the end, {expected} expected)"
            if count.get("in_flight"):
                text += f"; {several(count['in_flight'], 'request')} without a known effect"
            if count.get("at_end"):
                text += f"; at most {several(count['at_end'], 'request')} in flight when the load ended"
            yield {"code": "accounting", "text": text}


def _ran_dry(aggregates: PhaseAggregates) -> Set[str]:
    """Return the jobs that had nothing to do for a time, and say so themselves."""
    warned_jobs = {str(w.get("job")) for w in aggregates.phase.warnings if w.get("code") == "ran-dry"}
    return warned_jobs | {job.id for job in aggregates.phase.jobs if any((job.driver_end.get("dry") or {}).values())}


def _little(aggregates: PhaseAggregates, line: Mapping[str, Any]) -> Iterator[Warning_]:
    by_op: Dict[str, List[Mapping[str, Any]]] = {}
    # requests of an open loop may wait for a worker, and their waiting is part of their latency
    others = _ran_dry(aggregates) | {job.id for job in aggregates.phase.jobs if job.open_loop}
    if any(warning.get("code") == "get-without-body" for warning in aggregates.phase.warnings):
        return
    for job in line["littles_law"]["jobs"]:
        if job["job"] in others:
            continue
        # a paced job has idle workers by design; more requests in flight than workers are wrong for it too
        off = (
            job["deviation"] is not None
            and abs(job["deviation"]) > LITTLE
            # requests that began before the window, or ended after it, account for the workers
            and abs(job["concurrency"] - job["expected"]) > LITTLE * job["expected"]
            and not (job["paced"] and job["deviation"] < 0)
        )
        if off:
            by_op.setdefault(job["op"], []).append(job)
    for op, jobs in by_op.items():
        worst = max(jobs, key=lambda job: abs(job["deviation"]))
        jobs_note = f" (and {several(len(jobs) - 1, 'more job')})" if len(jobs) > 1 else ""
        had = "" if worst["expected"] == worst["workers"] else f" had work for {worst['expected']:.2f} of them"
        text = (
            f"{worst['job']}: throughput x latency = {worst['in_flight']:.2f} requests in flight, "
            f"but {several(worst['workers'], 'worker')}{had} ({signed_percent(worst['deviation'])}){jobs_note}: "
            "a starved generator, lost requests, or a wrong clock"
        )
        yield {"code": "littles-law", "text": text, "op": op}


def _mix(aggregates: PhaseAggregates, line: Mapping[str, Any]) -> Iterator[Warning_]:
    if aggregates.phase.calibrates:  # it is there to find out what makes the mix
        return
    asked_mix, measured = line["mix"]["asked"] or {}, line["mix"]["measured"]
    for work in dict.fromkeys(split_op(op)[0] for op in asked_mix):
        limit = _mix_limit(aggregates, work)
        off = {op: measured.get(op, 0.0) - share for op, share in asked_mix.items() if split_op(op)[0] == work}
        worst = max(off, key=lambda op: abs(off[op]))
        if measured and abs(off[worst]) > limit:
            digits, of = 1 if limit >= 1 else 2, f" of {work}" if work else ""
            text = f"{worst} is {measured.get(worst, 0.0):.{digits}f} % of the requests{of}"
            yield {"code": "mix", "text": f"{text}, {asked_mix[worst]:g} % were asked for", "op": worst}


def _mix_limit(aggregates: PhaseAggregates, work: str) -> float:
    """Return the tolerance of a mix in percentage points; cbt-load is exact over every 1000 operations."""
    if not any(job.cbt_load for job in aggregates.phase.jobs):
        return MIX
    # of each job the last 1000 are not complete (24: three standard deviations of a half), and some are under way
    slack = sum(24 + loop.workers for job in aggregates.phase.jobs for loop in job.loops if loop.work == work)
    requests = sum(of.finished for op, of in aggregates.ops.items() if split_op(op)[0] == work)
    return max(EXACT_MIX, 100 * slack / max(1, requests))


def _coarse(aggregates: PhaseAggregates, line: Mapping[str, Any]) -> Iterator[Warning_]:
    coarse = [op for op, of in aggregates.ops.items() if of.latency.n and not of.latency.has_buckets]
    p99 = [job.driver_end["p99_ms"] for job in aggregates.phase.jobs if job.driver_end.get("p99_ms") is not None]
    if coarse:
        text = f"the generator reports only sums of {', '.join(coarse)}, by the second: no percentiles"
        if p99:
            text += f"; the p99 of its processes are {min(p99):.1f} to {max(p99):.1f} ms; the p99 of all is between"
        yield {"code": "percentiles-not-merged", "text": text}


def _samples(aggregates: PhaseAggregates, line: Mapping[str, Any]) -> Iterator[Warning_]:
    few = []
    for op, of in aggregates.ops.items():
        if not of.latency.n and aggregates.length:
            yield {"code": "no-samples", "text": f"no {op} succeeded in the window", "op": op}
        elif 0 < of.latency.n < 1000 and aggregates.phase.role == "measure":
            few.append(f"{of.latency.n} {op}")
    if few:
        text = f"p99 needs 100 requests and p99.9 needs 1000; there are {', '.join(few)}"
        yield {"code": "few-samples", "text": text}


def _stalls(aggregates: PhaseAggregates, line: Mapping[str, Any]) -> Iterator[Warning_]:
    silent = aggregates.all_ops.silent() if aggregates.phase.jobs else []
    if silent:
        seconds, at = aggregates.all_ops.longest_gap()
        text = (
            f"nothing succeeded in {len(silent)} of {int(aggregates.length)} seconds; "
            f"the longest gap is {seconds:.1f} s, {at - aggregates.grid.start:.1f} s after the start"
        )
        yield {"code": "stall", "text": text + _hidden(line)}


def _stalled_endpoints(aggregates: PhaseAggregates, line: Mapping[str, Any]) -> Iterator[Dict[str, Any]]:
    for stall in endpoint_stalls.stalls(aggregates):
        text = stall.text(aggregates.grid.start, aggregates.length)
        yield {"code": "stalled-endpoint", "text": text + (_hidden(line) if stall.longest else "")}


def _hidden(line: Mapping[str, Any]) -> str:
    return f"; {endpoint_stalls.correction_text(line['corrected_ms'])}" if line["corrected_ms"] else ""


def _unfinished(aggregates: PhaseAggregates, line: Mapping[str, Any]) -> Iterator[Warning_]:
    for unfinished in unfinished_requests(aggregates, line["littles_law"]):
        where = {"op": unfinished.op} if unfinished.op else {}
        metrics = list(unfinished.metrics)
        yield {"code": "unfinished-request", "text": unfinished.text, **where, "metrics": metrics}


_CHECKS: Tuple[_Check, ...] = (
    *(_coarse, _paced, _readable, _status, _window, _jobs, _rows, _errors, _missing, _accounting, _little, _mix),
    *(_samples, _stalls, _stalled_endpoints, _unfinished),
)
