"""Plots for a post or a paper: SVG and PNG, by matplotlib. The same input gives the same bytes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Mapping, Sequence, Tuple

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MultipleLocator

from cbt_plugins.formatting import percent
from cbt_plugins.plan import split_op
from cbt_plugins.report.chart_data import bands, chart_data
from cbt_plugins.report.sweep import TOTAL, Sweep
from cbt_plugins.results.summary_file import AGES, halves
from cbt_plugins.s3_operations import OPERATIONS

_LINES = ("#2667c9", "#d9730d", "#16867a", "#b8326f", "#7a4fc4", "#8a6d00", "#4f7a1e", "#6b7280")
_NAMED = {"bad": "#b3261e", "warning": "#8a5a00"}
_DASHES = ("-", "--", ":", "-.")
_MARK: Dict[str, Any] = {"rotation": 90, "ha": "left", "va": "top", "fontsize": 6, "color": "#555"}
_NAME: Dict[str, Any] = {"ha": "center", "fontsize": 8, "color": "#5b6675"}
#: height of the strip of bad seconds, of that of a plot
_STRIP = 0.03
#: without an id of its own a file would have another at every run
_STYLE: Any = {"svg.hashsalt": "cbt-plugins", "font.size": 9.0}
_STYLE.update({"axes.grid": True, "axes.axisbelow": True, "grid.alpha": 0.25})
_NO_DATE: Dict[str, Dict[str, Any]] = {"svg": {"Date": None, "Creator": None}, "png": {"Software": None}}

Phases = Sequence[Mapping[str, Any]]


def of_run(summary: Mapping[str, Any], directory: Path, prefix: str = "") -> List[Path]:
    """Write every plot that the run has data for, as .svg and .png; returns the files."""
    with matplotlib.rc_context(_STYLE):
        return [path for name, figure in _of_run(summary) for path in _write(figure, directory / (prefix + name))]


def of_sweeps(sweeps: Sequence[Sweep], directory: Path) -> List[Path]:
    """Write the plots of sweeps, over all operations; returns the files."""
    files = []
    with matplotlib.rc_context(_STYLE):
        for number, sweep in enumerate(candidate for candidate in sweeps if candidate.op == TOTAL):
            name = re.sub(r"[^\w.-]+", "-", f"sweep-{number + 1}-{sweep.phase}")
            files += _write(_sweep(sweep), directory / name)
    return files


def _of_run(summary: Mapping[str, Any]) -> Iterator[Tuple[str, Figure]]:
    drawn = chart_data(summary)
    phases = drawn["phases"]
    if any(phase["ops"] for phase in phases):
        yield "throughput", _over_time(phases, "obj/s", _rates)
        yield "latency", _over_time(phases, "p99 latency, ms", _latencies, log=True)
    for tail in drawn["tails"]:
        yield re.sub(r"[^\w.-]+", "-", f"percentiles-{tail['op'].lower()}"), _tail(tail)
    if any(phase["failure"] for phase in phases):
        yield "recovery", _recovery(phases)
    if any(phase["cores"] for phase in phases):
        yield "cores", _over_time(phases, "cores", _cores)
    if summary["new_vs_aged"]:
        yield "aging" if halves(summary) == AGES else "first-and-last", _aging(summary["new_vs_aged"])


def _write(figure: Figure, path: Path) -> List[Path]:
    files = []
    for kind, metadata in _NO_DATE.items():
        files.append(path.with_name(f"{path.name}.{kind}"))
        figure.savefig(files[-1], format=kind, dpi=150, metadata=metadata)
    return files


def _figure(rows: int = 1, height: float = 3.2) -> Tuple[Figure, List[Axes]]:
    figure = Figure(figsize=(8.0, height), layout="constrained")
    axes = figure.subplots(rows, 1, sharex=True, squeeze=False)
    return figure, list(axes[:, 0])


def _over_time(phases: Phases, label: str, lines: Callable[..., Any], log: bool = False) -> Figure:
    figure, (axes,) = _figure()
    _through_the_run(axes, phases, lines)
    axes.set_ylabel(label)
    if log:
        _log(axes)
    else:
        axes.set_ylim(bottom=0)
    _clock(axes)
    return figure


def _through_the_run(axes: Axes, phases: Phases, lines: Callable[..., Any], names: bool = True) -> None:
    timed = [phase for phase in phases if phase["window"]["end"] > phase["window"]["start"]]
    begin = min((phase["start"] for phase in timed), default=0)
    seen = set()
    for phase in timed:
        window = phase["window"]
        axes.axvspan(window["start"] - begin, window["end"] - begin, color="#3c5a8c", alpha=0.07, lw=0)
        if names:
            middle = (window["start"] + window["end"]) / 2 - begin
            axes.text(middle, 1.02, phase["name"], transform=axes.get_xaxis_transform(), **_NAME)
        _broken(axes, phase, begin, names)
        for name, colour, start, step, values in lines(phase):
            at = [start - begin + (i + 0.5) * step for i in range(len(values))]
            axes.plot(at, _holes(values), color=colour, lw=1.2, label="" if name in seen else name)
            seen.add(name)
    if len(seen) > 1:
        axes.legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False)


def _broken(axes: Axes, phase: Mapping[str, Any], begin: float, names: bool) -> None:
    failure = phase["failure"]
    if not failure:
        return
    shift = failure["start"] - begin
    for low, high, hurt in bands(failure["windows"]):
        axes.axvspan(low + shift, high + shift, color=_NAMED["bad" if hurt else "warning"], alpha=0.12, lw=0)
    for low, high in failure["bad"]:
        axes.axvspan(low + shift, high + shift, ymax=_STRIP, color=_NAMED["bad"], lw=0)
    for mark in failure["marks"]:
        at = mark["at"] + shift
        axes.axvline(at, color=_NAMED["bad"], lw=0.7, ls=":")
        if names:
            axes.text(at, 0.98, mark["title"], transform=axes.get_xaxis_transform(), **_MARK)


def _colour(op: str, number: int) -> str:
    work, _ = split_op(op)
    if work or op not in OPERATIONS:
        return _LINES[number % len(_LINES)] if work else _LINES[-1]
    return OPERATIONS[op].color


def _rates(phase: Mapping[str, Any]) -> Iterator[Tuple[Any, ...]]:
    for number, (op, op_data) in enumerate(phase["ops"].items()):
        yield op, _colour(op, number), phase["start"], phase["step"], op_data["rate"]


def _latencies(phase: Mapping[str, Any]) -> Iterator[Tuple[Any, ...]]:
    for number, (op, op_data) in enumerate(phase["ops"].items()):
        yield op, _colour(op, number), phase["start"], phase["step"], op_data["p99"]


def _cores(phase: Mapping[str, Any]) -> Iterator[Tuple[Any, ...]]:
    cores = phase["cores"]
    for number, (name, values) in enumerate(cores["classes"].items() if cores else ()):
        yield name, _LINES[number % len(_LINES)], cores["start"], cores["step"], values


def _copies(phase: Mapping[str, Any]) -> Iterator[Tuple[Any, ...]]:
    failure = phase["failure"]
    for key, colour in (("degraded", "bad"), ("misplaced", "warning")) if failure else ():
        yield key, _NAMED[colour], failure["start"], failure["step"], failure[key]


def _recovered(phase: Mapping[str, Any]) -> Iterator[Tuple[Any, ...]]:
    failure = phase["failure"]
    if failure:
        yield "recovered", "#1f7a4d", failure["start"], failure["step"], failure["objects_per_s"]


def _recovery(phases: Phases) -> Figure:
    """Plot a failure: the clients above, the cluster below."""
    figure, axes = _figure(3, 6.0)
    for subplot, lines, label in zip(
        axes, (_rates, _copies, _recovered), ("clients, obj/s", "object copies", "recovered, objects/s")
    ):
        _through_the_run(subplot, phases, lines, names=subplot is axes[0])
        subplot.set_ylabel(label)
        subplot.set_ylim(bottom=0)
    _clock(axes[-1])
    return figure


def _tail(tail: Mapping[str, Any]) -> Figure:
    figure, (axes,) = _figure()
    for curve in tail["curves"]:
        colour = curve["colour"]
        colour = _NAMED[colour] if isinstance(colour, str) else _LINES[colour % len(_LINES)]
        at = [k / 10 for k in range(len(curve["ms"]))]
        axes.plot(at, _holes(curve["ms"]), color=colour, ls=_DASHES[curve["dash"] % 4], lw=1.4, label=curve["name"])
    _log(axes)
    axes.set_ylabel(f"{tail['op']} latency, ms")
    axes.set_xlabel("quantile")
    axes.xaxis.set_major_locator(MultipleLocator(1))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: percent(1 - 10.0**-x, f".{max(0, round(x) - 2)}f")))
    axes.legend(frameon=False)
    return figure


def _aging(aging: Mapping[str, Any]) -> Figure:
    lines = [line for line in aging["lines"] if line["metric"] == "obj_per_s"]
    figure, (axes,) = _figure()
    for shift, side, colour in ((-0.2, "new", _LINES[0]), (0.2, "aged", _LINES[1])):
        rates = [line[side] for line in lines]
        at = [i + shift for i in range(len(lines))]
        bars = axes.bar(at, [rate or 0 for rate in rates], 0.38, color=colour, label=aging[side])
        labels = ["-" if rate is None else f"{rate:.4g}" for rate in rates]
        axes.bar_label(bars, labels=labels, fontsize=7, padding=1)
    axes.set_xticks(range(len(lines)), [line["op"] for line in lines])
    axes.set_ylabel("obj/s")
    axes.grid(axis="x", visible=False)
    axes.legend(frameon=False)
    return figure


def _sweep(sweep: Sweep) -> Figure:
    figure, (axes,) = _figure()
    at = [point.obj_per_s for point in sweep.points]
    axes.plot(at, [point.mean_ms for point in sweep.points], "o-", color=_LINES[0], ms=4, label="mean")
    axes.plot(at, _holes([point.p99_ms for point in sweep.points]), "o--", color=_LINES[1], ms=4, label="p99")
    for point in sweep.points:
        where = (point.obj_per_s, point.mean_ms)
        axes.annotate(f"{point.load:g}", where, (3, -10), textcoords="offset points", fontsize=7)
    if sweep.knee is not None:
        knee = sweep.points[sweep.knee]
        axes.plot([knee.obj_per_s], [knee.mean_ms], "o", ms=11, mfc="none", mec="black", label="knee")
    axes.set_xlabel(f"obj/s; at each point the {sweep.unit}")
    axes.set_ylabel("latency, ms")
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False)
    return figure


def _log(axes: Axes) -> None:
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:g}"))


def _holes(values: Sequence[Any]) -> List[float]:
    return [float("nan") if value is None else value for value in values]


def _clock(axes: Axes) -> None:
    axes.set_xlabel("time, h:mm:ss")
    low, high = axes.get_xlim()
    steps = (1, 5, 10, 30, 60, 300, 600, 1800, 3600, 7200, 14400, 43200, 86400)
    axes.xaxis.set_major_locator(MultipleLocator(next((s for s in steps if (high - low) / s <= 10), 172800)))
    axes.xaxis.set_major_formatter(
        FuncFormatter(lambda x, _: f"{int(x // 3600)}:{int(x // 60 % 60):02d}:{int(x % 60):02d}" if x >= 0 else "")
    )
