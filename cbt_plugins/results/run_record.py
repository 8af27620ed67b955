"""Run records: what a comparison reads of a run, whatever program made it; and those of our own summaries."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import median
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

from cbt_plugins.cluster_conditions import NAMES
from cbt_plugins.metrics import (
    CLUSTER,
    DURING_FAILURES,
    METRICS,
    TOTAL,
    MetricSource,
    from_source,
    number_at,
    read,
    whole_bins,
)
from cbt_plugins.plan import is_calibration, split_op
from cbt_plugins.results.nodes.thread_groups import name_of
from cbt_plugins.results.recovery.episodes import has_whole_recovery, is_planned, rows_of
from cbt_plugins.warning_kinds import caps, forbids_verdict

#: between the name of a phase and that of a state of the cluster in it: "one-down / degraded"
STATE = " / "
#: metrics of a state of the cluster in a phase
_STATE = ("obj_per_s", "mib_per_s", "mean_ms", "p50_ms", "p99_ms", "p999_ms", "max_ms")

#: fewer complete bins make no series: the window cuts off too much of it
_FEWEST = 10
#: phase, operation and metric
Key = Tuple[str, str, str]
#: phase, operation and metric -> whether it is wanted
Takes = Callable[[Key], bool]
#: op -> metric -> one value for each bin
Series = Mapping[str, Mapping[str, List[float]]]


@dataclass(frozen=True)
class Measurement:
    """One number of one run."""

    phase: str  # "measure-new"; of others: hsbench's mode, fio's job, COSbench's work stage
    #: "GET" "PUT" "STAT" "DELETE" "LIST" "MULTIPART", "read" "write", a class of daemons ("osd") or a group of its
    #: threads ("osd:op-queue"), or TOTAL
    op: str
    metric: str  # key of metrics.METRICS; the value has that metric's unit
    value: Optional[float]  # of all of the run
    #: the same through the run, one value every `step` seconds, nan where there is none; its mean is the run's value.
    #: None where parts of a run say nothing about the run (percentiles)
    series: Optional[Tuple[float, ...]] = None
    n: Optional[int] = None  # requests behind it
    step: int = 1
    start: Optional[float] = None  # epoch seconds of the series' begin, where they are known
    bin: float = 0.0  # width of the bin of a histogram, or from step to step of a ladder; 0: exact
    is_upper_end: bool = False  # of the bin
    #: of a failure of a scorecard: the value of each repetition; `value` is their median
    repeats: Optional[Tuple[float, ...]] = None
    #: of bad seconds whose limit is of the baseline of the run, and not of its file: the limit of p99
    limit_ms: Optional[float] = None

    @property
    def key(self) -> Key:
        return self.phase, self.op, self.metric

    @property
    def open_ends(self) -> Tuple[float, float]:
        """How far below and above the value the true one may be: half a bin; from a ladder's answer to its next step.

        Below the upper end of a bin, a bin.
        """
        if self.is_upper_end:
            return self.bin, 0.0
        return (0.0, self.bin) if METRICS[self.metric].source is MetricSource.LADDER else (self.bin / 2, self.bin / 2)


def open_ends(measurements: Sequence[Measurement]) -> Tuple[float, float]:
    """Return how far below and above the values the true ones may be, at most."""
    below, above = zip(*(measurement.open_ends for measurement in measurements))
    return max(below), max(above)


#: code of the warning about what cannot be read; a record without numbers has only this one
UNREADABLE = "unreadable"
#: code -> metrics of a warning that names none, because an earlier version of this project made the summary
_METRICS_BEFORE = {"unfinished-request": ("max_ms",)}


@dataclass(frozen=True)
class ResultWarning:
    """A warning about the numbers of a run. `code` is a fixed word (warning_kinds), `text` one sentence."""

    code: str
    text: str
    phase: Optional[str] = None  # None: all of the run
    op: Optional[str] = None  # None: all operations
    #: failures and returns, by the names of their rows, that a warning about the cluster in a phase is also about;
    #: the ladder of a step
    episodes: Tuple[str, ...] = ()
    #: those that had load in the phase: a warning about the phase is about what clients lost, too
    loaded: Tuple[str, ...] = ()
    #: what it is about; (): all that its kind is about, but see _METRICS_BEFORE
    metrics: Tuple[str, ...] = ()

    def is_about(self, phase: str, op: str, metric: str = "") -> bool:
        """Return whether it limits the trust in a metric (without it: in any) of an operation, or of TOTAL, in a phase
        or a state of it.
        """
        metrics = self.metrics or _METRICS_BEFORE.get(self.code, ())
        if metrics and metric and metric not in metrics:
            return False
        phase = phase.split(STATE)[0]
        inside = self.phase in (None, phase) or phase in self.episodes or (op != CLUSTER and phase in self.loaded)
        return inside and (self.op in (None, op) or op == TOTAL)


@dataclass(frozen=True)
class RunRecord:
    """One run: one iteration of one configuration.

    `config` has plain values (text, number, bool, None) under dotted keys. Those that are equal to or begin with one of
    these decide whether two runs can be compared at all; all others are listed where they differ:

        benchmark               what was run: "rgwtest", "hsbench", "fio", "radosbench", ...
        engine                  the load generator
        phases                  their names in order
        objects.*               objects.sizes ("4096 65536"), objects.buckets, objects.count
        load.*                  load.workers (of all drivers), load.drivers, load.op_size, load.queue_depth ...
        phase.NAME.*            role ("fill", "measure", "age"), kind, seconds, mix ("GET:45 PUT:35"), rate, workers
        pool.ROLE.*             type ("replicated", "erasure"), size, k, m; ROLE is data, index, or a pool's name
        cluster.*               osds, osd_nodes, rgws, endpoints, clients: numbers
        objective               of a run with a failure: what a bad second is

    A key that only one of two records has is "not known" in the other: listed, and no reason to refuse. Common others:
    version.ceph, version.warp, version.cbt_plugins, host.kernel, ceph.SECTION.OPTION.
    """

    source: str  # path, as the user gave it or below that
    name: str  # directory of the run ("00000000/id-1a2b3c4d"), or the file's name
    kind: str  # "cbt-plugins" | "hsbench" | "fio" | "radosbench" | "cosbench" | "warp"
    config: Mapping[str, Any]
    measurements: Tuple[Measurement, ...]
    usable: bool  # False: its numbers are not those of a complete run; the warnings say why
    warnings: Tuple[ResultWarning, ...]
    label: Optional[str] = None  # the release it measured: "18.2.7 reef"
    started: Optional[float] = None  # epoch seconds
    run_id: Optional[str] = None  # of a run of this project; a copy of its archive has the same
    #: of another program's run: of all that its result says; a copy has the same
    digest: Optional[str] = None
    #: of another program's run that the monitor `resources` watched: phase -> that of results.nodes.resources.of_window
    used: Optional[Mapping[str, Mapping[str, Any]]] = None
    #: of another program's run during a fault file: what results.recovery.milestones found
    failure: Optional[Mapping[str, Any]] = None
    #: of a run whose series were dropped: the warnings about them
    series_warnings: Tuple[ResultWarning, ...] = ()
    #: of a run of which only some measurements were kept: the keys of all
    all_keys: Optional[Tuple[Key, ...]] = None

    @property
    def keys(self) -> Tuple[Key, ...]:
        """Return the keys of all measurements of the run, in their order, also of those that were not kept."""
        if self.all_keys is not None:
            return self.all_keys
        return tuple(measurement.key for measurement in self.measurements)


def counts_requests(key: Key) -> bool:
    """Return whether `has_few_requests` reads a measurement."""
    return key[2] in ("obj_per_s", "mean_ms", "success_rate", "failed")


def has_few_requests(run: RunRecord, phase: str, op: str, needs: int) -> bool:
    """Return whether a run has successful requests of an operation, but fewer than `needs` with the failed ones.

    Of a failure that was repeated, the mean of its repetitions counts.
    """
    counts = [_requests(m) for m in run.measurements if m.key[:2] == (phase, op) and counts_requests(m.key)]
    return bool(counts) and min(good for good, _ in counts) > 0 and max(every for _, every in counts) < needs


def _requests(of: Measurement) -> Tuple[float, float]:
    """Return how many successful requests, and how many requests, a measurement tells of; 0 where that is not known.
    """
    if not of.n or of.value is None:
        return 0, 0
    if of.metric == "failed":
        repeats = of.repeats or (of.value,)
        return of.n / len(repeats), (of.n + sum(repeats)) / len(repeats)
    return (of.n * of.value if of.metric == "success_rate" else of.n), of.n


def measurements(summary: Mapping[str, Any]) -> Iterator[Measurement]:
    """Yield all numbers of a run that a comparison may ask for, in the order of its phases."""
    series: Dict[str, Tuple[Mapping[str, Any], Series]] = {}
    scored = _scored(summary)
    for phase in summary["phases"]:
        if phase["ops"] and phase["name"] not in scored and not is_calibration(phase["name"], phase["role"]):
            series[phase["name"]] = phase["series"], _series(phase["series"])
            yield from of_phase(summary, phase, series[phase["name"]][1])
    for ladder in summary.get("ladders") or ():
        for metric in from_source(MetricSource.LADDER):
            if metric.path == (ladder["unit"],):  # without `low` each load has missed the objective
                width = ladder["high"] - ladder["low"] if None not in (ladder["low"], ladder["high"]) else 0.0
                yield Measurement(ladder["name"], TOTAL, metric.key, ladder["low"], n=len(ladder["steps"]), bin=width)
    failure = summary["failure"]
    limits = _limits_of_baseline(failure)
    if failure:
        for episode in failure["milestones"]["episodes"]:
            if is_planned(episode) and rows_of(episode) not in scored:
                yield from of_episode(episode)
        for line in failure["impact"].get("episodes") or ():  # archives before this key
            if line["name"] not in scored:
                yield from of_losses(line, limits)
        for phase in failure["impact"]["phases"]:
            if phase["phase"] in series:
                yield from _of_states(phase, *series[phase["phase"]])
    for line in (summary.get("scorecard") or {"failures": ()})["failures"]:
        yield from of_failure(line, limits)
    used = (summary.get("resources") or {}).get("phases") or {}
    for phase in summary["phases"]:
        if phase["name"] in used and phase["name"] not in scored and not is_calibration(phase["name"], phase["role"]):
            yield from of_resources(phase["name"], used[phase["name"]])


def of_phase(
    summary: Mapping[str, Any], phase: Mapping[str, Any], series: Optional[Series] = None
) -> Iterator[Measurement]:
    """Yield the numbers of the operations of a phase; its series are read here unless they are given."""
    phase_series = phase["series"]  # None in an overview of many runs
    step, low, high = (phase_series["step"], *whole_bins(phase)) if phase_series else (1, 0, None)
    series = (_series(phase_series) if phase_series else {}) if series is None else series
    lines = [*phase["ops"].items(), (TOTAL, phase["total"])]
    for op, line in lines:
        for metric in from_source(MetricSource.OPERATION):
            value = read(metric, summary, phase, op)
            if value is not None:
                bins = _bins(series.get(op, {}).get(metric.key), low, high)  # an op may have ended outside only
                n = line["requests"] + (line["errors"] if metric.key == "success_rate" else 0)
                yield Measurement(phase["name"], op, metric.key, value, bins, n, step)


def _bins(series: Optional[Sequence[float]], low: int, high: Optional[int]) -> Optional[Tuple[float, ...]]:
    part = tuple((series or ())[low:high])
    return part if len(part) >= _FEWEST else None


def _series(phase_series: Mapping[str, Any]) -> Series:
    """Return the rates as they are; the mean latency as values whose mean is the mean of all requests.

    Seconds have different numbers of requests, and the mean of their means is another number than the mean. With n_i
    requests of the mean m_i in second i, and m of all, m + n_i (m_i - m) / mean(n) has the mean m, and the variance of
    its mean is that of m (the ratio estimator, linearized; Cochran, Sampling Techniques, 3rd ed., 6.3-6.4).
    """
    table: Dict[str, Dict[str, List[float]]] = {}
    for op, op_series in phase_series["ops"].items():
        table[op] = {
            "obj_per_s": op_series["obj_per_s"],
            "mean_ms": weighted_bins(op_series["obj_per_s"], op_series["mean_ms"]),
        }
        if op_series["mib_per_s"] is not None:
            table[op]["mib_per_s"] = op_series["mib_per_s"]
    everything = list(phase_series["ops"].values())
    rate = _sum([op_series["obj_per_s"] for op_series in everything])
    busy = _sum(
        [[n * (m or 0) for n, m in zip(op_series["obj_per_s"], op_series["mean_ms"])] for op_series in everything]
    )
    means = [ms / n if n else None for ms, n in zip(busy, rate)]
    table[TOTAL] = {"obj_per_s": rate, "mean_ms": weighted_bins(rate, means)}
    moved = [op_series["mib_per_s"] for op_series in everything if op_series["mib_per_s"] is not None]
    if moved:
        table[TOTAL]["mib_per_s"] = _sum(moved)
    return table


def _sum(lists: Sequence[Sequence[float]]) -> List[float]:
    return [round(sum(values), 6) for values in zip(*lists)]


def weighted_bins(counts: Sequence[float], means: Sequence[Optional[float]]) -> List[float]:
    """Return a value for each bin, whose plain mean is that of all requests; [] where nothing was counted."""
    total = sum(counts)
    if not total:
        return []
    mean = sum(n * m for n, m in zip(counts, means) if m is not None) / total
    usual = total / len(counts)
    return [mean + n * (m - mean) / usual if m is not None else mean for n, m in zip(counts, means)]


def of_episode(episode: Mapping[str, Any]) -> Iterator[Measurement]:
    """Yield the times that a failure or a return took the cluster."""
    phase = rows_of(episode)
    recovery = episode["recovery"] or {}
    seconds = {milestone["name"]: milestone["seconds"] for milestone in episode["milestones"]}
    for metric in from_source(MetricSource.EPISODE):
        where, name = metric.path
        values, n = (seconds, None) if where == "milestones" else (recovery, recovery.get("objects"))
        if name in values:  # None: not reached while it was watched, or not counted until its end
            value = values[name] if where == "milestones" or has_whole_recovery(episode) else None
            yield Measurement(phase, CLUSTER, metric.key, None if value is None else value * metric.factor, n=n)


def _limits_of_baseline(failure: Optional[Mapping[str, Any]]) -> Dict[str, float]:
    """Return the limits of p99 that are a multiple of the baseline's own p99, by operation."""
    objective = (failure["impact"].get("objective") if failure else None) or {}
    return {op: limit["p99_ms"] for op, limit in objective.items() if limit["p99_ms"] and not limit["given"]}


def of_losses(line: Mapping[str, Any], limits: Mapping[str, float] = {}) -> Iterator[Measurement]:
    """Yield the losses of clients during a failure or a return; `limits`: those of p99 that are of the baseline."""
    for op, op_line in [*line["ops"].items(), (TOTAL, line["total"])]:
        for metric in from_source(MetricSource.LOSS):
            value = number_at(op_line, metric.path)
            if value is not None:
                limit_ms = limits.get(op) if metric.key == "bad_s" else None
                about = {"n": op_line["requests"], "limit_ms": limit_ms}
                value = value if metric.factor == 1 else round(value * metric.factor, 6)
                yield Measurement(line["name"], op, metric.key, value, **about)
        for key, metric_key in DURING_FAILURES.items():
            if op_line.get(key) is not None:
                yield Measurement(line["name"], op, metric_key, op_line[key], n=op_line["requests"])
    for metric in from_source(MetricSource.LOSSES):
        yield Measurement(line["name"], TOTAL, metric.key, number_at(line, metric.path))


def _scored(summary: Mapping[str, Any]) -> Dict[str, str]:
    """Return the failure of a scorecard that a phase measures, and that its fault and its undo belong to, by name."""
    names: Dict[str, str] = {}
    for line in (summary.get("scorecard") or {"failures": ()})["failures"]:
        for score in line["scores"]:
            of_label = (f"{'+'.join(score['labels'])} {kind}" for kind in ("failure", "return"))
            names.update(dict.fromkeys((score["phase"], *of_label), line["name"]))
    return names


def of_failure(line: Mapping[str, Any], limits: Mapping[str, float] = {}) -> Iterator[Measurement]:
    """Yield the numbers of a failure of a scorecard, from its repetitions; `limits`: as in `of_losses`."""
    repeated: Dict[Tuple[str, str], List[Measurement]] = {}
    # without an effect nothing was moved: beside repetitions that had one, this is a number too
    touched = any(score["cluster"]["touched"] for score in line["scores"])
    for score in line["scores"]:
        of_cluster = _of_cluster(score["cluster"]) if touched else ()
        for measurement in (*of_losses({**score, "name": line["name"]}, limits), *of_cluster):
            repeated.setdefault((measurement.op, measurement.metric), []).append(measurement)
    for (op, metric), group in repeated.items():
        values = [measurement.value for measurement in group if measurement.value is not None]
        counts = [measurement.n for measurement in group if measurement.n is not None]
        # repetitions that never came to an end, had too few requests for the number, or were refused are not left out
        complete = len(values) == len(line["scores"]) + len(line.get("refused", ()))
        yield Measurement(
            line["name"],
            op,
            metric,
            median(values) if complete else None,
            n=sum(counts) if counts else None,
            repeats=tuple(values) if complete else None,
            limit_ms=group[0].limit_ms,
        )


def _of_cluster(cluster: Mapping[str, Any]) -> Iterator[Measurement]:
    """Yield the times of the cluster's recovery, and the data that it moved; the name of the failure is not in them."""
    for metric in from_source(MetricSource.EPISODE):
        if metric.key in cluster:
            yield Measurement("", CLUSTER, metric.key, cluster[metric.key])


def _of_states(phase: Mapping[str, Any], phase_series: Mapping[str, Any], series: Series) -> Iterator[Measurement]:
    """Yield the measurements of the states of a phase; a state that comes twice has its number behind its name."""
    seen: Dict[str, int] = {}
    first, step = phase_series["start"], phase_series["step"]
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


def of_resources(phase: str, used: Mapping[str, Any]) -> Iterator[Measurement]:
    """Yield the usage of nodes and daemons in a phase, as results.nodes.resources.of_window returns it."""
    series = used.get("series") or {}
    for name, class_usage in (used.get("classes") or {}).items():
        for metric in from_source(MetricSource.CLASS):
            value = number_at(class_usage, metric.path)
            if value is not None:
                values = (series.get(metric.path[0]) or {}).get(name) or ()
                bins = _bins([math.nan if value is None else value for value in values], 0, None)
                yield Measurement(phase, name, metric.key, value, bins, step=series.get("step") or 1)
    threads = used.get("threads") or {"lines": ()}
    for line in threads["lines"]:
        for metric in from_source(MetricSource.THREADS):
            value = number_at(line, metric.path)
            if value is not None:
                bins = _bins(line["series"], 0, None)
                yield Measurement(phase, name_of(line), metric.key, value, bins, step=threads["step"])
    for metric in from_source(MetricSource.NODES):
        value = number_at(used, metric.path)
        if value is not None:
            yield Measurement(phase, TOTAL, metric.key, value * metric.factor)


def _given(phase: Mapping[str, Any]) -> List[Optional[str]]:
    """Return the operations of the works that are open loops; None for all, where there are no works."""
    works = {split_op(line["op"])[0] for line in phase["littles_law"]["jobs"] if line["paced"]}
    return [op for op in phase["ops"] if split_op(op)[0] in works] if works - {""} else [None]


def _episodes_in(summary: Mapping[str, Any], window: Mapping[str, float]) -> Iterator[str]:
    """Yield the failures and returns that had not recovered at some time of a window, by the names of their rows."""
    for episode in (summary["failure"] or {"milestones": {"episodes": ()}})["milestones"]["episodes"]:
        # archives that were summed up before this key have the end
        if not episode.get("aborted") and episode["begin"] < window["end"] and episode["until"] > window["start"]:
            yield rows_of(episode)


def _loaded_in(summary: Mapping[str, Any], window: Mapping[str, float]) -> Iterator[str]:
    """Yield the failures and returns that have seconds of a window, by the names of their rows."""
    for episode in (summary["failure"] or {"milestones": {"episodes": ()}})["milestones"]["episodes"]:
        end = episode.get("end", episode["until"])
        if is_planned(episode) and episode["begin"] < window["end"] and end > window["start"]:
            yield rows_of(episode)


#: metrics of the answers of ladders
_ANSWERS = tuple(metric.key for metric in from_source(MetricSource.LADDER))


def result_warnings(summary: Mapping[str, Any]) -> Iterator[ResultWarning]:
    """Yield the summary's warnings; a generator that was the bottleneck is one of them.

    What limits the trust in a step of a ladder limits the trust in its answer, too. What an overload does in a step,
    such as late starts, does not: the ladder looks for it.
    """
    beside, loaded = (
        {phase["name"]: tuple(names_in(summary, phase["window"])) for phase in summary["phases"]}
        for names_in in (_episodes_in, _loaded_in)
    )
    scored = _scored(summary)
    ladders = {step["phase"]: ladder["name"] for ladder in summary.get("ladders") or () for step in ladder["steps"]}
    for warning in summary["warnings"]:
        where = [warning[key] for key in ("phase", "op", "job") if warning.get(key)]
        text = ": ".join([*where[:1], warning["text"]])
        phase = warning.get("phase")
        also = beside.get(phase, ()) if warning["code"] in NAMES else ()
        about = phase or warning.get("episode")
        also += tuple(scored[name] for name in (warning.get("episode"), *also) if name in scored)
        held = (limits(warning["code"], metric) for metric in _ANSWERS for limits in (forbids_verdict, caps))
        if phase in ladders and any(held):
            also += (ladders[phase],)
        names = (*loaded.get(phase, ()), *([scored[phase]] if phase in scored else ()))
        metrics = tuple(warning.get("metrics") or ())
        yield ResultWarning(warning["code"], text, about, warning.get("op"), also, names, metrics)
    yield from _untrusted(summary, beside, scored)
    for ladder in summary.get("ladders") or ():
        if ladder["low"] is not None and ladder["high"] is None:
            text = f"{ladder['name']}: the objective was met at the highest load, so the limit is unknown"
            yield ResultWarning("ladder-open", text, ladder["name"])
    for phase in summary["phases"]:
        if phase["loop"] == "open":
            text = f"{phase['name']}: {phase['rate']['asked']:g} requests/s were asked for; compare latencies"
            names = (*loaded[phase["name"]], *([scored[phase["name"]]] if phase["name"] in scored else ()))
            yield from (ResultWarning("rate-given", text, phase["name"], op, loaded=names) for op in _given(phase))


#: of a phase that is not to be trusted; without a phase it is about the run
UNTRUSTED = "phase-status"


def _untrusted(
    summary: Mapping[str, Any], beside: Mapping[str, Sequence[str]], scored: Mapping[str, str]
) -> Iterator[ResultWarning]:
    """Yield a warning for each phase of which the run says that it is not to be trusted.

    It is about the run: later phases have the data and the cluster that this phase left. Only the load of a failure of
    a scorecard, and the wait for a recovery, concern their failures alone.
    """
    for phase in summary["phases"]:
        if phase.get("status") != "degraded":
            continue
        name = phase["name"]
        failures = [scored[name]] if name in scored else beside[name] if phase["kind"] == "wait" else ()
        text = f"not to be trusted: {name} (see the report)"
        yield ResultWarning(UNTRUSTED, text, name if failures else None, episodes=tuple(failures))
