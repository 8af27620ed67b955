"""What clients lost by each failure, and during each return: all of its load together."""

from __future__ import annotations

import math
from typing import Any, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from cbt_plugins.config.objective import DEFAULT_P99_FACTOR
from cbt_plugins.formatting import count, percent, plain, several, short_percent
from cbt_plugins.metrics import TOTAL
from cbt_plugins.plan import split_op
from cbt_plugins.results.phase_warnings import EXACT_MIX
from cbt_plugins.results.recovery.bad_seconds import P99, SUCCESS_RATE, dry_requests, runs
from cbt_plugins.results.recovery.endpoint_loads import failed_and_loads, load_texts
from cbt_plugins.results.recovery.episodes import Stretch, is_planned, rows_of
from cbt_plugins.results.recovery.stretch_numbers import LoadPart, merged_numbers
from cbt_plugins.results.requests.littles_law import open_loop_rates

#: standard deviations by which fewer requests may end than were due by a rate, by chance or because they take so long
CHANCE = 4.0
#: seconds for which throughput must be back at this share of the baseline's
BACK, SHARE = 30, 0.9
#: relative error of means and of the baseline's rate, by their rounding
_ROUNDED = 1e-6


def losses(
    parts: Sequence[LoadPart], recovery: Mapping[str, Any], base: Optional[Mapping[str, Any]]
) -> List[Dict[str, Any]]:
    """Return the losses of each failure and return with load, in the form of docs/RECOVERY.md.

    It lasts from its begin to that of the next one; `parts` are complete phases, `recovery` is the result of
    `recovery.milestones`.
    """
    episodes = recovery.get("episodes") or ()
    # at least a second, which the next one has too if it begins in the same second
    pairs = zip(episodes, episodes[1:])
    ends = [float(max(math.floor(e["begin"]) + 1, math.floor(following["begin"]))) for e, following in pairs]
    ends.append(math.inf)
    lines = []
    phase, lost = "", 0
    for episode, end in zip(episodes, ends):
        cut = list(_cut(parts, math.floor(episode["begin"]), end))
        if cut and is_planned(episode):
            about = {"name": rows_of(episode), "kind": episode["kind"], "labels": list(episode["labels"])}
            lost = lost if cut[0].aggregates.phase.name == phase else 0
            lines.append({**about, **_numbers(cut, episode["begin"], base, lost)})
            ended = lines[-1]["total"]["requests"] + lines[-1]["total"]["errors"]
            phase, lost = cut[-1].aggregates.phase.name, lost + _due(ended, _scheduled(cut, TOTAL)) - ended
            lines[-1].update(failed_and_loads(parts, cut, episode["begin"], base))
    return lines


def scores(
    parts: Sequence[LoadPart],
    recovery: Mapping[str, Any],
    base: Optional[Mapping[str, Any]],
    failure_of_phase: Mapping[str, str],
) -> Iterator[Dict[str, Any]]:
    """Yield the losses in each phase that measures a failure, from the fault to the end of the phase.

    With the cluster's side: seconds from the undo to active+clean, and the bytes that recovery made.
    """
    episodes = [episode for episode in recovery.get("episodes") or () if is_planned(episode)]
    for part in parts:
        phase, stretch = part.aggregates.phase.name, part.stretch
        begun = [episode for episode in episodes if stretch.start <= episode["begin"] < stretch.end]
        fault = next((episode for episode in begun if episode["kind"] == "failure"), None)
        if phase not in failure_of_phase or fault is None:
            continue
        cut = list(_cut([part], math.floor(fault["begin"]), math.inf))
        about = {"failure": failure_of_phase[phase], "phase": phase, "labels": list(fault["labels"])}
        yield {**about, **_numbers(cut, fault["begin"], base), "cluster": _cluster(begun)}


def _cluster(episodes: Sequence[Mapping[str, Any]]) -> Dict[str, Any]:
    """Return {"touched": OSDs or PGs changed, "recovery_s": of the return, "moved_mib": of the failure and the return}.
    """
    returns = [episode for episode in episodes if episode["kind"] == "return"]
    # without an effect nothing was moved; of an effect that no OSD map tells of, nobody has counted it
    changed = [episode for episode in episodes if episode["effect"] is not False]
    moved: List[Any] = [(episode["recovery"] or {}).get("bytes") for episode in changed]
    # until an OSD changes, the recovery from the episode before goes on: a node may boot for minutes
    later = [episode["recovery"] or {} for episode in changed if episode is not episodes[0]]
    before = sum(recovery.get("bytes_before") or 0 for recovery in later)
    touched = bool(changed)
    # what recovery moved after the last sample, or would have moved later, is not in the sum
    ended = all(_seconds_until_clean(episode) is not None for episode in changed if episode["kind"] == "return")
    counted = bool(returns) and ended and None not in moved
    return {
        "touched": touched,
        "recovery_s": _seconds_until_clean(returns[-1]) if returns else None,
        "moved_mib": round((sum(moved) + before) / 2**20, 3) if counted else None,
    }


def _seconds_until_clean(episode: Mapping[str, Any]) -> Optional[float]:
    """Return the time until all PGs were active+clean; None where it did not come, or was not seen."""
    return next((m["seconds"] for m in episode["milestones"] if m["name"] == "clean"), None)


def _numbers(
    cut: Sequence[LoadPart], begin: float, base: Optional[Mapping[str, Any]], lost_before: int = 0
) -> Dict[str, Any]:
    """Return the losses of clients in these parts, from `begin` on.

    `lost_before`: requests of the phase that were due by the rate before `begin`, and did not end before it. They may
    never have started.
    """
    gateways, unstarted = _gateways(cut), sum(_unstarted(part) for part in cut)
    numbers = _with_ratios(merged_numbers(cut, base), base)
    for op, line in [(TOTAL, numbers["total"]), *numbers["ops"].items()]:
        ended = line["requests"] + line["errors"] + (max(0, unstarted - lost_before) if op == TOTAL else 0)
        dry = sum(dry_requests(part.aggregates, op) for part in cut)
        due = _due(ended, _scheduled(cut, op), None if ended else _usual(base, op, numbers["seconds"], dry))
        line["availability"] = line["requests"] / due if due else None  # 1 only if no request was lost
    return {
        "begin": begin,
        **numbers,
        "gateways": gateways,
        "gateway_gap": max((gateway["longest_gap"] for gateway in gateways), default=None),
        "unstarted": unstarted,
        "back": _back(cut, begin, base),
    }


def _cut(parts: Sequence[LoadPart], begin: float, end: float) -> Iterator[LoadPart]:
    """Yield the parts of the phases that are between these seconds."""
    for part in parts:
        low, high = max(part.stretch.start, begin), min(part.stretch.end, end)
        if low < high:
            yield part._replace(stretch=Stretch("", (), low, high))


def _with_ratios(numbers: Dict[str, Any], base: Optional[Mapping[str, Any]]) -> Dict[str, Any]:
    """Return the numbers with p99 / that of the baseline: `p99_ratio`."""
    pairs = [(numbers["total"], base and base["total"])]
    pairs += [(line, base and base["ops"].get(op)) for op, line in numbers["ops"].items()]
    for line, base_line in pairs:
        usual = (base_line or {}).get("p99_ms")
        line["p99_ratio"] = round(line["p99_ms"] / usual, 4) if usual and line["p99_ms"] is not None else None
    return numbers


def _gateways(parts: Sequence[LoadPart]) -> List[Dict[str, Any]]:
    """Return {"endpoint", "longest_gap"} of each: whole blocks without a success; the time is up to 2 blocks longer."""
    gaps: Dict[str, float] = {}
    for aggregates, stretch, _ in parts:
        grid, answers = aggregates.grid, aggregates.timeline.endpoints
        urls = {url for job in aggregates.phase.jobs for url in job.urls}
        low = math.ceil((stretch.start - grid.first_block) / grid.block)
        high = math.floor((stretch.end - grid.first_block) / grid.block)
        for endpoint in sorted(urls if set(answers) <= urls else answers):
            silent = answers.get(endpoint, np.zeros(grid.blocks, np.int64))[low:high] == 0
            longest = max((end - begin for begin, end in runs(silent)), default=0)
            gaps[endpoint] = max(gaps.get(endpoint, 0.0), float(longest * grid.block))
    return [{"endpoint": endpoint, "longest_gap": gap} for endpoint, gap in gaps.items()]


def _unstarted(part: LoadPart) -> int:
    """Return the requests of open loops that were due, and that no worker was free for until the end of the phase."""
    loops = open_loop_rates(part.aggregates).values() if part.stretch.end == part.aggregates.grid.end else ()
    return sum(loop.unstarted for loop in loops)


class _Expected(NamedTuple):
    """A number of requests by a rate, and its standard deviation."""

    requests: float
    deviation: float


def _due(ended: int, *expected: Optional[_Expected]) -> int:
    """Return the requests that were due: those that ended or never started, or more by a rate, if that is no chance."""
    missing = [rate for rate in expected if rate and rate.requests - ended > CHANCE * rate.deviation]
    return max((round(rate.requests) for rate in missing), default=ended)


def _scheduled(parts: Sequence[LoadPart], op: str) -> Optional[_Expected]:
    """Return the requests that open loops had to start, of an operation or of all; None where no rate gives them.

    Those that drivers had no object for do not count. The drivers of a phase without a duration end before it does.
    """
    requests, work = 0.0, split_op(op)[0]
    for aggregates, stretch, _ in parts:
        if aggregates.phase.takes_all and stretch.end >= aggregates.grid.end:
            return None
        loops = open_loop_rates(aggregates)
        shares = {name: share for name, share in aggregates.phase.mix.items() if split_op(name)[0] == work}
        if op == TOTAL and all(loop.rate_limit for job in aggregates.phase.jobs for loop in job.loops):
            rate = sum(loop.asked_rate for loop in loops.values())
        elif work in loops and op in shares:  # of its share as much is certain
            rate = loops[work].asked_rate * max(0.0, shares[op] - EXACT_MIX) / sum(shares.values())
        else:
            return None
        requests += max(0.0, rate * (stretch.end - stretch.start) - dry_requests(aggregates, op))
    return _Expected(requests, math.sqrt(requests)) if requests else None


def _usual(base: Optional[Mapping[str, Any]], op: str, seconds: float, dry: int) -> Optional[_Expected]:
    """Return the requests that the baseline had in so much time, without those that found no object; None: none."""
    line = base and (base["total"] if op == TOTAL else base["ops"].get(op))
    if not base or not line or not line["requests"]:
        return None
    requests = seconds * line["requests"] / base["seconds"]
    return _Expected(max(0.0, requests - dry), math.sqrt(requests + requests**2 / line["requests"]))


class _Load(NamedTuple):
    """Objects of each whole second of a part."""

    start: int
    rates: np.ndarray
    means: np.ndarray  # of BACK seconds from each on

    @classmethod
    def of(cls, part: LoadPart) -> _Load:
        start, end, grid = math.ceil(part.stretch.start), math.floor(part.stretch.end), part.aggregates.grid
        rates = part.aggregates.all_ops.sums["objects"][start - grid.first : end - grid.first].astype(float)
        return cls(start, rates, _means(rates))


def _back(parts: Sequence[LoadPart], begin: float, base: Optional[Mapping[str, Any]]) -> Dict[str, Any]:
    """Return {"seconds", "between", "reason"}: until throughput was back for BACK seconds, since `begin`.

    After the BACK seconds with the lowest mean, the first second with SHARE of the baseline from which on the mean of
    BACK seconds has it too; 0 where no mean was lower. From the last seconds of a load on there are no BACK seconds:
    what came back then, or by the begin of the next load, came back between the two.
    """
    normal = base["total"]["obj_per_s"] if base else 0.0
    if not normal:
        return {"seconds": None, "between": None, "reason": "no baseline"}
    loads = [_Load.of(part) for part in parts]
    lowest = min((float(load.means.min()) for load in loads if len(load.means)), default=None)
    if lowest is None:
        return {"seconds": None, "between": None, "reason": f"less than {BACK} s of load"}
    least, passed, watched, tail = SHARE * normal * (1 - _ROUNDED), False, begin, np.zeros(0)
    if lowest >= least:
        return {"seconds": 0.0, "between": None, "reason": None}
    for load in loads:
        places = _seconds_back(load.rates, least)
        # of the last seconds of the load before, BACK seconds of load end in this one
        early = _seconds_back(np.concatenate((tail, load.rates[: BACK - 1])), least)
        if not passed and lowest in load.means:
            places, early, passed = places[places > int(np.argmin(load.means))], early[:0], True
        if passed and len(places):
            at = load.start + int(places[0])
            if places[0] and not len(early):
                return {"seconds": round(max(0.0, at - begin), 3), "between": None, "reason": None}
            low = watched - len(tail) + int(early[0]) if len(early) else watched
            between = [round(low - begin, 3), round(at - begin, 3)]
            text = f"unknown, between {between[0]:.1f} s and {between[1]:.1f} s: no load"
            return {"seconds": None, "between": between, "reason": text}
        watched, tail = load.start + len(load.rates), load.rates[1 - BACK :]
    return {"seconds": None, "between": None, "reason": f"not in {watched - begin:.0f} s"}


def _seconds_back(rates: np.ndarray, least: float) -> np.ndarray:
    """Return the places of the seconds that have at least so much, as has the mean of BACK seconds from each one on."""
    means = _means(rates)
    return np.flatnonzero((means >= least) & (rates[: len(means)] >= least))


def _means(rates: np.ndarray) -> np.ndarray:
    """Return the mean of BACK seconds from each second on."""
    return np.convolve(rates, np.ones(BACK) / BACK, "valid") if len(rates) >= BACK else np.zeros(0)


def bad_stretches(part: LoadPart) -> List[Tuple[int, int]]:
    """Return (from, to) of the bad seconds of all operations together, in seconds since the begin of the phase."""
    return runs(part.bad[TOTAL]) if TOTAL in part.bad else []


HEAD = ("", "op", "bad s", "of s", "failed", "> 1 s", "gap s", "obj/s %", "p50 ms", "p99 ms", "p99.9 ms", "p99 / usual")


def loss_rows(impact_section: Mapping[str, Any]) -> List[Tuple[str, ...]]:
    """Return the losses of each failure and return as a table, its header first; [] without any load."""
    rows = []
    for line in impact_section.get("episodes") or ():
        for op, numbers in [(TOTAL, line["total"]), *line["ops"].items()]:
            counts = (count(numbers[key]) for key in ("errors", "waited"))
            rates = ("obj_per_s_percent", "p50_ms", "p99_ms", "p999_ms", "p99_ratio")
            bad = (count(numbers["bad_seconds"]), f"{line['seconds']:.0f}")
            cells = (*bad, *counts, f"{numbers['longest_gap']:.2f}", *(plain(numbers[key]) for key in rates))
            rows.append((line["name"] if op == TOTAL else "", op, *cells))
    return [HEAD, *rows] if rows else []


def loss_sentences(impact_section: Mapping[str, Any]) -> Iterator[str]:
    """Yield the limits of a bad second, and the losses that only all operations of a failure or return have."""
    limits = impact_section.get("objective") or {}
    if limits:
        too_late = ""
        sources = {True: "the objective of the file", False: f"{DEFAULT_P99_FACTOR:g} times the p99 of the baseline"}
        for given, source in sources.items():
            of_p99 = {op: ms for op, limit in limits.items() for ms in [limit[P99]] if limit["given"] == given}
            latencies = ", ".join(f"{op} {plain(ms)} ms" for op, ms in of_p99.items() if ms is not None)
            too_late += f"p99 of {latencies} or more ({source}), " if latencies else ""
        success = " or ".join(dict.fromkeys(short_percent(limit[SUCCESS_RATE]) for limit in limits.values()))
        yield (
            f"bad second: {too_late}success of less than {success}, or no success for longer than chance explains"
        )
    for line in impact_section.get("episodes") or ():
        back = line["back"]
        came_back = back["reason"] if back["seconds"] is None else f"after {back['seconds']:.0f} s"
        parts = [f"at {percent(SHARE, '.0f')} of the throughput of the baseline for {BACK} s: {came_back}"]
        silent = [gateway for gateway in line["gateways"] if gateway["longest_gap"]]
        parts += [f"{gateway['endpoint']} answered nothing for {gateway['longest_gap']:.0f} s" for gateway in silent]
        parts += [f"{several(line['unstarted'], 'due request')} never started"] if line["unstarted"] else []
        yield f"{line['name']}: {'; '.join([*parts, *load_texts(line)])}"
