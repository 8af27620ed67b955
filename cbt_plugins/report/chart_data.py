"""Data of the charts of a run, for its page and plot files: series of a limited number of points, and percentiles."""

from __future__ import annotations

import math
from statistics import median
from typing import Any, Callable, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Tuple, Union

from cbt_plugins.plan import is_calibration
from cbt_plugins.results.histogram import Histogram, tail_quantiles
from cbt_plugins.results.requests.rates_and_latencies import op_order
from cbt_plugins.results.summary_file import measured

#: points of a line in the page; of the lines of all phases together, so that a page of many phases stays small; of a
#: line at least
POINTS, POINTS_OF_ALL, LEAST_POINTS = 2000, 20_000, 200

Values = Sequence[Optional[float]]


def factor(length: int, points: int = POINTS) -> int:
    """Return the number of bins of a series that become one point."""
    return max(1, math.ceil(length / points))


def means(values: Values, group: int) -> List[Optional[float]]:
    """Return the mean of each group; the mean of all is kept, but for the last group when it is shorter."""
    return [None if not g else sum(g) / len(g) for g in _groups(values, group)]


def lows(values: Values, group: int) -> List[Optional[float]]:
    return [min(g, default=None) for g in _groups(values, group)]


def highs(values: Values, group: int) -> List[Optional[float]]:
    return [max(g, default=None) for g in _groups(values, group)]


def weighted(values: Values, weights: Values, group: int) -> List[Optional[float]]:
    """Return the weighted mean of each group: latencies are weighted by their requests."""
    result: List[Optional[float]] = []
    for i in range(0, len(values), group):
        pairs = [(v, w or 0) for v, w in zip(values[i : i + group], weights[i : i + group]) if v is not None]
        weight = sum(w for _, w in pairs)
        result.append(sum(v * w for v, w in pairs) / weight if weight else None)
    return result


def _groups(values: Values, group: int) -> List[List[float]]:
    return [[v for v in values[i : i + group] if v is not None] for i in range(0, len(values), group)]


#: states of the cluster before recovery begins; run_charts.js has them too
_HURT = ("failing", "in effect", "no effect", "degraded", "failed")
#: states without a band: nothing is broken, or nobody saw when the cluster recovered
_CALM = ("no failure", "returned", "clean without them", "clean again")


def bands(windows: Iterable[Mapping[str, Any]]) -> Iterator[Tuple[float, float, bool]]:
    """Yield (from, to, True before recovery begins) of each state of a failure, in seconds as in `windows`."""
    for window in windows:
        if window["state"] not in _CALM:
            yield window["from"], window["to"], window["state"] in _HURT


def failure_data(timeline: Optional[Mapping[str, Any]], points: int = POINTS) -> Optional[Dict[str, Any]]:
    """Return a phase's part of the failure for its charts; None without a failure.

    {"start", "step", "windows": [{"state", "from", "to"}], "marks": [{"at", "title"}], "bad": [[from, to]], "degraded",
    "misplaced", "objects_per_s"}: copies as the highest of a point, rates as the mean.
    """
    if timeline is None or all(window["state"] == "no failure" for window in timeline["windows"]):
        return None
    cluster = timeline["cluster"]
    group = factor(len(cluster["degraded"]), points)
    return {
        "start": timeline["start"],
        "step": timeline["step"] * group,
        "windows": [{key: window[key] for key in ("state", "from", "to")} for window in timeline["windows"]],
        "marks": [{"at": mark["at"], "title": mark["title"]} for mark in timeline["marks"]],
        "bad": timeline.get("bad") or [],
        "degraded": short(highs(cluster["degraded"], group)),
        "misplaced": short(highs(cluster["misplaced"], group)),
        "objects_per_s": short(means(cluster["objects_per_s"], group)),
    }


def cores_data(resources: Optional[Mapping[str, Any]], points: int = POINTS) -> Optional[Dict[str, Any]]:
    """Return a phase's CPU cores for its chart, the mean of each point; None when they were not monitored.

    {"start", "step", "classes": {"osd": [cores], ...}}
    """
    series = (resources or {}).get("series")
    if not series or not any(series["cores"].values()):
        return None
    group = factor(max(map(len, series["cores"].values())), points)
    classes = {name: short(means(values, group)) for name, values in series["cores"].items() if values}
    return {"start": series["start"], "step": series["step"] * group, "classes": classes}


#: from so many drivers on a chart has lines of all together: nobody can follow so many, and the page would be large
_MANY = 16


def flight_data(under_way: Optional[Mapping[str, Any]]) -> Optional[Dict[str, Any]]:
    """Return the requests in flight that the drivers of a phase counted, for its charts.

    {"start", "step", "in_flight": {driver: values}, "oldest_seconds": {driver: values}, "worst": None}; of many drivers
    their highest, median and sum, and "worst": {"in_flight": driver, ...}, "drivers": their number. A value is the
    highest of a driver in `step` seconds, so that of more than one second the sum is an upper bound.
    """
    if under_way is None:
        return None
    data: Dict[str, Any] = {"start": under_way["start"], "step": under_way["step"], "worst": None}
    drivers = under_way["drivers"]
    for quantity in ("in_flight", "oldest_seconds"):
        data[quantity] = {
            name: _steady(driver_series[quantity], under_way["step"]) for name, driver_series in drivers.items()
        }
    if len(drivers) < _MANY:
        return data
    data.update(worst={}, drivers=len(drivers))
    for quantity in ("in_flight", "oldest_seconds"):
        lines = data[quantity]
        data["worst"][quantity] = max(lines, key=lambda name: max((v for v in lines[name] if v is not None), default=0))
        bins = [[v for v in values if v is not None] for values in zip(*lines.values())]
        ways: Dict[str, Callable[[List[float]], float]] = {"highest": max, "median": median}
        data[quantity] = {
            name: short([way(values) if values else None for values in bins]) for name, way in ways.items()
        }
        if quantity == "in_flight":
            # without a driver it would fall, although the driver only says nothing
            data[quantity]["sum"] = short([sum(values) if len(values) == len(drivers) else None for values in bins])
    return data


def _steady(values: Values, step: float) -> Values:
    """Return the values with the last one where a single second has none: they come once a second, and not sharp."""
    if step > 1:
        return values
    around = zip([None, *values], values, [*values[1:], None])
    return [before if v is None and after is not None else v for before, v, after in around]


def series_data(
    series: Mapping[str, Any], points: int = POINTS, window: Optional[Mapping[str, Any]] = None
) -> Dict[str, Any]:
    """Return a phase's series for its charts.

    Without the ends of the window that are less than half a bin: one request in a millisecond is a rate of thousands.

    {"start", "step", "ops": {op: {"rate", "low", "high", "mean", "p99", "errors"}}, "pgs"}: `rate` are obj/s;
    `low` and `high` are the extremes of a point that has several bins, else null; `p99` is the highest of its
    bins, because percentiles have no mean; `errors` are the failed requests of a point.
    """
    ops = {}
    group = 1
    for op, op_series in series["ops"].items():
        rate = _without_short_ends(series, op_series["obj_per_s"], window)
        group = factor(len(rate), points)
        ops[op] = {
            "rate": short(means(rate, group)),
            "low": short(lows(rate, group)) if group > 1 else None,
            "high": short(highs(rate, group)) if group > 1 else None,
            "mean": short(weighted(op_series["mean_ms"], rate, group)),
            "p99": short(_at_points(series, op_series["p99_ms"], factor(len(rate), points), len(rate))),
            "errors": [sum(g) for g in _groups(op_series["errors"], group)],
        }
    return {
        "start": series["start"],
        "step": series["step"] * group,
        "ops": ops,
        "pgs": _pgs(series["pgs"], points),
    }


def _pgs(pgs: Mapping[str, Any], points: int) -> Dict[str, List[Any]]:
    """Return the PGs at most so many times, the highest of each; a null begins a time without samples.

    Such a time is longer than three usual intervals, which are up to four times as short while PGs are not clean
    (cluster/state_sampler_agent.py), and than a point.
    """
    t, not_clean = pgs["t"], pgs["not_clean"]
    apart = [b - a for a, b in zip(t, t[1:])]
    most = max(3.0, 3 * sorted(apart)[9 * len(apart) // 10], (t[-1] - t[0]) / points) if apart else 0.0
    every = factor(len(t), points)
    pg_counts: Dict[str, List[Any]] = {"t": [], "not_clean": []}
    begin = 0
    for end in [*(i + 1 for i, seconds in enumerate(apart) if seconds > most), len(t)]:
        pg_counts["t"] += [*t[begin:end:every], *([round(t[end - 1] + 0.01, 2)] if end < len(t) else ())]
        pg_counts["not_clean"] += [*highs(not_clean[begin:end], every), *([None] if end < len(t) else ())]
        begin = end
    return pg_counts


def _without_short_ends(series: Mapping[str, Any], rate: Values, window: Optional[Mapping[str, Any]]) -> Values:
    """Return the rates without a first and a last bin of which the window has less than half."""
    if window is None or len(rate) < 2:
        return rate
    start, step = series["start"], series["step"]
    late = window["start"] - start > step / 2
    early = start + len(rate) * step - window["end"] > step / 2
    if late and early and len(rate) == 2:
        return rate
    return [*([None] if late else rate[:1]), *rate[1:-1], *([None] if early else rate[-1:])]


def _at_points(series: Mapping[str, Any], values: Values, group: int, bins: int) -> List[Optional[float]]:
    """Return the percentiles, which have bins of their own, at the points of the rates: the highest of each."""
    own = series["percentiles"]
    width = series["step"] * group
    result: List[Optional[float]] = []
    for i in range(math.ceil(bins / group)):
        low = series["start"] + i * width - own["start"]
        high = min(low + width, series["start"] + bins * series["step"] - own["start"])
        touched = values[low // own["step"] : math.ceil(high / own["step"])]
        result.append(max((v for v in touched if v is not None), default=None))
    return result


def short(values: Values) -> List[Optional[float]]:
    """Round to four significant digits: more than a screen has pixels for."""
    return [None if v is None else float(f"{v:.4g}") for v in values]


#: a line is dashed when it is a part of a phase: a state of the cluster, in the colour that the state has everywhere
_STATES = {
    **{"failing": ("bad", 2), "in effect": ("bad", 1), "degraded": ("bad", 1), "rebuilding": ("bad", 1)},
    **{"recovering": ("warning", 1), "returning": ("warning", 2)},
}


def tails(summary: Mapping[str, Any], phases: Sequence[Mapping[str, Any]]) -> List[Dict[str, Any]]:
    """Return for each operation the curves of these phases, and those of their failures' states.

    [{"op", "curves": [{"name", "colour": the phase's number or a name, "dash": 0: a complete phase, "ms"}]}]: the k-th
    value of `ms` is that of the quantile 1 - 10^(-k/10), as histogram.tail_quantiles has them.
    """
    impact = (summary["failure"] or {}).get("impact") or {"phases": ()}
    states = {line["phase"]: line["states"] for line in impact["phases"]}
    ops = sorted({op for phase in phases for op, line in phase["ops"].items() if line["requests"]}, key=op_order)
    curves_by_op = []
    for op in ops:
        curves: List[Dict[str, Any]] = []
        for number, phase in enumerate(phases):
            if op not in phase["ops"]:
                continue
            histogram = Histogram.from_json(phase["ops"][op]["histogram_ns"])
            curves += curve(phase["name"], milliseconds(histogram), number)
            for state in states.get(phase["name"], ()):
                # of a phase that has only one state, the curve is that of the phase
                if state["state"] in _STATES and len(states[phase["name"]]) > 1:
                    tail = ((state.get("ops") or {}).get(op) or {}).get("tail_ms")
                    curves += curve(f"{phase['name']}: {state['state']}", tail, *_STATES[state["state"]])
        if curves:
            curves_by_op.append({"op": op, "curves": curves})
    return curves_by_op


def curve(
    name: str, ms: Optional[Sequence[Optional[float]]], colour: Union[int, str], dash: int = 0
) -> List[Dict[str, Any]]:
    """Return the curve as a list of one, [] without data; four significant digits."""
    if not ms or len(ms) < 2:
        return []
    return [{"name": name, "colour": colour, "dash": dash, "ms": short(ms)}]


def milliseconds(histogram: Histogram) -> List[float]:
    """Return the latencies at histogram.tail_quantiles; [] of an empty histogram."""
    return [histogram.quantile(q) / 1e6 for q in tail_quantiles(histogram.n if histogram.has_buckets else 0)]


def chart_data(summary: Mapping[str, Any]) -> Dict[str, Any]:
    """Return {"phases": [the data of each phase], "tails": as `tails` returns them}."""
    timelines = {run_upgrade["phase"]: run_upgrade["timeline"] for run_upgrade in summary.get("upgrades") or ()}
    timelines.update((summary["failure"] or {"timelines": {}})["timelines"])
    resources = (summary.get("resources") or {"phases": {}})["phases"]
    points = min(POINTS, max(LEAST_POINTS, POINTS_OF_ALL // max(1, len(summary["phases"]))))
    phases = [
        {
            "name": phase["name"],
            "role": phase["role"],
            "calibration": is_calibration(phase["name"], phase["role"]),
            "window": phase["window"],
            "under_way": flight_data(phase["under_way"]),
            "failure": failure_data(timelines.get(phase["name"]), points),
            "cores": cores_data(resources.get(phase["name"]), points),
            **series_data(phase["series"], points, phase["window"]),
        }
        for phase in summary["phases"]
    ]
    return {"phases": phases, "tails": tails(summary, measured(summary))}


Chart = Dict[str, str]  # "kind", "caption" and "size" of a chart on the page


def phase_charts(phase: Mapping[str, Any]) -> List[Chart]:
    """Return the charts of a phase that have something to show; `phase` is its part of chart_data.

    A caption says how many seconds a point of its chart covers, where it is more than one.
    """
    ops = phase["ops"].values()
    broken: Mapping[str, Any] = phase["failure"] or {"step": 1}
    cores: Mapping[str, Any] = phase["cores"] or {"step": 1, "classes": {}}
    nothing: Mapping[str, Any] = {"step": 1, "in_flight": {}, "oldest_seconds": {}, "worst": None}
    flight = phase["under_way"] or nothing
    in_flight, age = "Requests in flight, by driver", "Age of the oldest request in flight, s"
    if flight["worst"]:
        of = f"of {flight['drivers']} drivers"
        in_flight = f"Requests in flight {of}; most: {flight['worst']['in_flight']}"
        age = f"Age of the oldest request in flight {of}, s; oldest: {flight['worst']['oldest_seconds']}"
    rates, latencies = [op_data[key] for op_data in ops for key in ("rate", "errors")], [op["mean"] for op in ops]
    copies = map(broken.get, ("degraded", "misplaced"))
    candidates = [
        ("rate", "Throughput, obj/s", "", phase["step"], _any(*rates)),
        ("latency", "Latency, ms: p99 (line) and mean (dots)", "", phase["step"], _any(*latencies)),
        ("copies", "Degraded and misplaced object copies", "low", broken["step"], _any(*copies)),
        ("recovered", "Objects recovered per second", "low", broken["step"], _any(broken.get("objects_per_s"))),
        ("cores", "CPU cores used, by daemon class", "wide", cores["step"], _any(*cores["classes"].values())),
        ("in_flight", in_flight, "low", flight["step"], _any(*flight["in_flight"].values())),
        ("oldest_seconds", age, "low", flight["step"], _any(*flight["oldest_seconds"].values())),
        ("pgs", "PGs not active+clean", "wide", 1, _any(phase["pgs"]["not_clean"])),
    ]
    return [
        {"kind": kind, "caption": caption + (f"; points of {step:g} s" if step > 1 else ""), "size": size}
        for kind, caption, size, step, shown in candidates
        if shown
    ]


def timeline_charts(phases: Sequence[Mapping[str, Any]]) -> List[Chart]:
    """Return the charts of the run that have something to show."""
    kinds = {chart["kind"] for phase in phases for chart in phase_charts(phase)}
    candidates = [
        ("run", "rate", "Objects per second", "tall"),
        ("run-copies", "copies", "Degraded and misplaced object copies", "low"),
        ("run-recovered", "recovered", "Objects recovered per second", "low"),
        ("run-cores", "cores", "CPU cores used, by daemon class", "low"),
        ("run-pgs", "pgs", "PGs not active+clean", "low"),
    ]
    return [{"kind": kind, "caption": caption, "size": size} for kind, of, caption, size in candidates if of in kinds]


def _any(*series: Optional[Values]) -> bool:
    """Return whether any of the series has a value but 0."""
    return any(value for values in series for value in values or ())
