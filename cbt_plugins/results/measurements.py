"""One run's summary -> its measurements."""

from __future__ import annotations

import math
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

from cbt_plugins.compare.statistics.values import Caution
from cbt_plugins.results.aging import at
from cbt_plugins.results.record import CLUSTER, STATE, TOTAL, Measurement

_LINE = (
    ("obj_per_s", ("obj_per_s",)),
    ("mib_per_s", ("mib_per_s",)),
    ("success_rate", ("success_rate",)),
    ("mean_ms", ("latency_ms", "mean")),
    ("p50_ms", ("latency_ms", "p50")),
    ("p90_ms", ("latency_ms", "p90")),
    ("p99_ms", ("latency_ms", "p99")),
    ("p999_ms", ("latency_ms", "p999")),
    ("max_ms", ("latency_ms", "max")),
    ("ttfb_p50_ms", ("ttfb_ms", "p50")),
    ("ttfb_p99_ms", ("ttfb_ms", "p99")),
    ("longest_gap_s", ("longest_gap", "seconds")),
)
_STATE = ("obj_per_s", "mib_per_s", "mean_ms", "p50_ms", "p99_ms", "max_ms")
#: a milestone of an episode -> the metric of its seconds
_MILESTONES = {"clean": "recovery_s", "no-object-degraded": "no_degraded_s"}
_CLASS = (("cores", "cores"), ("rss_mib", "rss_mib"))
_USE = ("ops_per_core", "cores_per_gb_s", "rgw_osd_ratio")

#: whole bins below which a series is none: what the window cuts off is too much of it
_FEWEST = 10

#: op -> metric -> one value for each bin
Series = Mapping[str, Mapping[str, List[float]]]


def measurements(summary: Mapping[str, Any]) -> Iterator[Measurement]:
    """All numbers of a run that a comparison may ask for, in the order of its phases."""
    series: Dict[str, Tuple[Mapping[str, Any], Series]] = {}
    for phase in summary["phases"]:
        if phase["ops"] and not _calibrates(phase):
            series[phase["name"]] = phase["series"], _series(phase["series"])
            yield from _of_phase(phase, series[phase["name"]][1])
    failure = summary["failure"]
    if failure:
        for episode in failure["milestones"]["episodes"]:
            yield from of_episode(episode)
        for phase in failure["impact"]["phases"]:
            if phase["phase"] in series:
                yield from _of_states(phase, *series[phase["phase"]])
    used = (summary.get("resources") or {}).get("phases") or {}
    for phase in summary["phases"]:
        if phase["name"] in used and not _calibrates(phase):
            yield from _of_resources(phase["name"], used[phase["name"]])


def _calibrates(phase: Mapping[str, Any]) -> bool:
    """The short phase that the engine puts in by itself: nobody asked for its numbers."""
    return bool(phase["name"] == "calibrate" and phase["role"] == "none")


def _of_phase(phase: Mapping[str, Any], series: Series) -> Iterator[Measurement]:
    step = phase["series"]["step"]
    low, high = _whole_bins(phase)
    lines = [*phase["ops"].items(), (TOTAL, phase["total"])]
    for op, line in lines:
        for metric, path in _LINE:
            value = at(line, path)
            if value is not None:
                bins = _bins(series.get(op, {}).get(metric), low, high)  # an op may have ended outside only
                n = line["requests"] + (line["errors"] if metric == "success_rate" else 0)
                yield Measurement(phase["name"], op, metric, value, bins, n, step)


def _bins(series: Optional[Sequence[float]], low: int, high: Optional[int]) -> Optional[Tuple[float, ...]]:
    part = tuple((series or ())[low:high])
    return part if len(part) >= _FEWEST else None


def _whole_bins(phase: Mapping[str, Any]) -> Tuple[int, Optional[int]]:
    """Without the first and the last bin of the series where the window cuts them."""
    window, series = phase["window"], phase["series"]
    low = math.ceil((window["start"] - series["start"]) / series["step"])
    high = math.floor((window["end"] - series["start"]) / series["step"])
    return low, max(low, high)


def _series(made: Mapping[str, Any]) -> Series:
    """The rates as they are; the mean latency as values whose mean is that of all requests together.

    Seconds have different numbers of requests, and the mean of their means is another number than the mean. With n_i
    requests of the mean m_i in second i, and m of all, m + n_i (m_i - m) / mean(n) has the mean m, and the variance of
    its mean is that of m (the ratio estimator, linearized; Cochran, Sampling Techniques, 3rd ed., 6.3-6.4).
    """
    table: Dict[str, Dict[str, List[float]]] = {}
    for op, its in made["ops"].items():
        table[op] = {"obj_per_s": its["obj_per_s"], "mean_ms": _mean(its["obj_per_s"], its["mean_ms"])}
        if its["mib_per_s"] is not None:
            table[op]["mib_per_s"] = its["mib_per_s"]
    everything = list(made["ops"].values())
    rate = _sum([its["obj_per_s"] for its in everything])
    busy = _sum([[n * (m or 0) for n, m in zip(its["obj_per_s"], its["mean_ms"])] for its in everything])
    table[TOTAL] = {"obj_per_s": rate, "mean_ms": _mean(rate, [b / n if n else None for b, n in zip(busy, rate)])}
    moved = [its["mib_per_s"] for its in everything if its["mib_per_s"] is not None]
    if moved:
        table[TOTAL]["mib_per_s"] = _sum(moved)
    return table


def _sum(lists: Sequence[Sequence[float]]) -> List[float]:
    return [round(sum(values), 6) for values in zip(*lists)]


def _mean(counts: Sequence[float], means: Sequence[Optional[float]]) -> List[float]:
    total = sum(counts)
    if not total:
        return []
    mean = sum(n * m for n, m in zip(counts, means) if m is not None) / total
    usual = total / len(counts)
    return [mean + n * (m - mean) / usual if m is not None else mean for n, m in zip(counts, means)]


def of_episode(episode: Mapping[str, Any]) -> Iterator[Measurement]:
    """How long a failure or a return took the cluster."""
    phase = f"{'+'.join(episode['labels'])} {episode['kind']}"
    seconds = {milestone["name"]: milestone["seconds"] for milestone in episode["milestones"]}
    for name, metric in _MILESTONES.items():
        if name in seconds:  # None: not reached while it was watched
            yield Measurement(phase, CLUSTER, metric, seconds[name])
    recovery = episode["recovery"]
    if recovery:
        yield Measurement(phase, CLUSTER, "recovery_obj_per_s", recovery["objects_per_s"], n=recovery["objects"])
        yield Measurement(phase, CLUSTER, "recovery_mib_per_s", recovery["mib_per_s"], n=recovery["objects"])


def _of_states(phase: Mapping[str, Any], made: Mapping[str, Any], series: Series) -> Iterator[Measurement]:
    """A state that comes twice in a phase has its number behind its name."""
    seen: Dict[str, int] = {}
    first, step = made["start"], made["step"]
    for state in phase["states"]:
        seen[state["state"]] = seen.get(state["state"], 0) + 1
        again = f" {seen[state['state']]}" if seen[state["state"]] > 1 else ""
        name = phase["phase"] + STATE + state["state"] + again
        low, high = math.ceil((state["start"] - first) / step), math.floor((state["end"] - first) / step)
        for op, line in [*state["ops"].items(), (TOTAL, state["total"])]:
            for metric in _STATE:
                if line[metric] is not None:
                    bins = _bins(series[op].get(metric) if metric != "mean_ms" else None, low, high)
                    yield Measurement(name, op, metric, line[metric], bins, line["requests"], step)


def _of_resources(phase: str, used: Mapping[str, Any]) -> Iterator[Measurement]:
    series = used.get("series") or {}
    for name, its in (used.get("classes") or {}).items():
        for key, metric in _CLASS:
            if its.get(key) is not None:
                values = (series.get(key) or {}).get(name) or ()
                known = [math.nan if value is None else value for value in values]
                yield Measurement(phase, name, metric, its[key], _bins(known, 0, None), step=series.get("step") or 1)
    for metric in _USE:
        if used.get(metric) is not None:
            yield Measurement(phase, TOTAL, metric, used[metric])


def cautions(summary: Mapping[str, Any]) -> Iterator[Caution]:
    """The summary's warnings; a generator that was the bottleneck is one of them."""
    for warning in summary["warnings"]:
        where = [warning[key] for key in ("phase", "op", "job") if warning.get(key)]
        yield Caution(warning["code"], ": ".join([*where[:1], warning["text"]]))
