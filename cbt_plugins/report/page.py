"""HTML pages of a run and of an archive: one file each, which needs no network, no server and no other file."""

from __future__ import annotations

import base64
import hashlib
import json
import os
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

import jinja2
from markupsafe import Markup

from cbt_plugins import formatting
from cbt_plugins.compare.configuration_differences import text
from cbt_plugins.formatting import percent
from cbt_plugins.formatting.screen import printable
from cbt_plugins.journal import blocks_of, read_json
from cbt_plugins.metrics import LATENCIES, METRICS, RATES, number_at
from cbt_plugins.plan import split_op
from cbt_plugins.report import scorecard
from cbt_plugins.report.chart_data import chart_data, phase_charts, timeline_charts
from cbt_plugins.report.result_text import ceiling_rows, ladder_rows
from cbt_plugins.report.sentence import first, of_aging, of_run
from cbt_plugins.report.sweep import TOTAL, Sweep, differing_keys, left_out, sweeps
from cbt_plugins.results.archive import texts
from cbt_plugins.results.configuration import configuration
from cbt_plugins.results.environment import hardware
from cbt_plugins.results.nodes import perf_counters
from cbt_plugins.results.nodes.cpu_time_per_request import cpu_time_rows
from cbt_plugins.results.recovery import client_losses, upgrade
from cbt_plugins.results.recovery.milestones import in_order, titled
from cbt_plugins.results.run_state import run_state
from cbt_plugins.results.summary_file import AGES, halves, load_begin, measured
from cbt_plugins.s3_operations import WRITES
from cbt_plugins.warning_kinds import by_kind, counted

INDEX = "index.html"

_HERE = Path(__file__).parent
_NOTHING_ELSE = "base-uri 'none'; form-action 'none'"
#: characters of a recorded file that go into the page; the archive has the rest
_LONGEST = 100_000
#: recorded files that hold the plan of the run
_PLAN = ("config.yaml", "benchmark_config.yaml", "plan.json")
#: columns of the smaller tables; those of operations have all of metrics.RATES and LATENCIES
_PAIRS = [METRICS[key] for key in ("obj_per_s", "mean_ms", "p99_ms")]
_ENGINES = [METRICS[key] for key in ("obj_per_s", "mib_per_s", "p50_ms", "p99_ms")]
_DRIVERS = [METRICS[key] for key in ("obj_per_s", "mean_ms", "p99_ms")]
_IMPACT = [METRICS[key] for key in ("p50_ms", "p99_ms")]
_SWEEPS = [METRICS[key] for key in ("obj_per_s", "mib_per_s", "mean_ms", "p50_ms", "p99_ms")]
#: what stands before a result: colours alone are not for everybody
_MARKS = dict(better="\u25b2", worse="\u25bc", equivalent="=", inconclusive="?", warning="!", invalid="\u2716")


def document(
    template: str, scripts: Sequence[str], data: Any, live: Optional[LivePart] = None, **values: Any
) -> str:
    """Return the template as one file, with its style, its scripts and the data of its charts (`data`, JSON).

    The same input gives the same bytes. No text among the values is taken for markup.
    """
    style = _asset("uplot.min.css") + _asset("page.css")
    script = "".join(map(_asset, ("uplot.min.js", "chart_frame.js", *scripts)))
    # at least two pixels of a chart for each of the screen, so that it is sharp on paper too
    script = f"const devicePixelRatio = Math.max(2, window.devicePixelRatio);\n{script}"
    script = f"(given, former, changed) => {{\n{script}}}"
    script = f"(() => {{\nconst show = {script};\n{_asset('live.js')}}})();\n" if live else f"({script})();\n"
    pieces = _environment().get_template(template).generate(
        **values,
        style=Markup(style),
        script=Markup(script),
        # "<" would let a text of the archive end the script element
        data=Markup(json.dumps(data, separators=(",", ":"), allow_nan=False).translate(_UNSAFE_IN_DATA)),
        live=live,
        policy=f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}; {_NOTHING_ELSE}"
        + ("; connect-src 'self'" if live else ""),
    )
    return "".join(blocks_of(pieces))


@dataclass(frozen=True)
class LivePart:
    """What the page of a run that goes on has beside the report."""

    version: int  # of the page, which `live.js` asks the differences to
    lines: Sequence[str]  # about this moment


#: what JSON of ASCII leaves: "\x7f" is a control character
_UNSAFE_IN_DATA = {ord("<"): "\\u003c", 0x7F: "\\u007f"}


@lru_cache(maxsize=1)
def _environment() -> jinja2.Environment:
    """Return the templates, compiled once: that takes longer than to fill them in."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(str(_HERE)),
        autoescape=True,
        finalize=lambda value: printable(value) if type(value) is str else value,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    names = ("plain", "count", "success", "seconds", "size", "size_class", "when", "percent", "size_range")
    environment.filters.update({name: getattr(formatting, name) for name in names}, change=formatting.signed_percent)
    environment.globals.update(rates=RATES, latencies=LATENCIES, number_at=number_at, marks=_MARKS)
    return environment


def _asset(name: str) -> str:
    return (_HERE / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    """Return the name of an inline block in a content security policy."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def run_page(
    summary: Mapping[str, Any],
    run: Path,
    ceilings: Optional[Mapping[str, Any]] = None,
    live: Optional[LivePart] = None,
    charts: Optional[Mapping[str, Any]] = None,
) -> str:
    """Return the page of the run in the directory `run`; `ceilings` are those of network_ceilings, if known.

    `charts` is the chart_data of the summary, where it is known. The same input gives the same bytes.
    """
    charts = charts or chart_data(summary)
    resources = (summary.get("resources") or {"phases": {}})["phases"]
    network = ceiling_rows(ceilings) if ceilings and ceilings["phases"] else []
    impact = (summary["failure"] or {"impact": {}})["impact"]
    files = [{"name": name, "text": text[:_LONGEST], "cut": len(text) > _LONGEST} for name, text in texts(run).items()]
    return document(
        "run.html.j2",
        ["run_charts.js"],
        charts,
        live,
        s=summary,
        verdict=completeness(summary),
        warnings=by_kind(summary["warnings"]),
        contents=list(_contents(summary, charts, network)),
        headline=headline(summary),
        sentences=of_run(summary, configuration(summary, run)),
        hardware=hardware(run, summary),
        titled=titled,
        in_order=in_order,
        aging=_by_op((summary["new_vs_aged"] or {"lines": []})["lines"]),
        halves=halves(summary) if summary["new_vs_aged"] else AGES,
        ages=AGES,
        ladders=[{**ladder, "rows": ladder_rows(ladder)} for ladder in summary.get("ladders") or ()],
        engines=[{**entry, "table": _by_op(entry["lines"])} for entry in summary["engines"]],
        pools=_pools(run),
        timeline=timeline_charts(charts["phases"]),
        charts=[phase_charts(phase) for phase in charts["phases"]],
        laws=[_laws(phase) for phase in summary["phases"]],
        pair_columns=_PAIRS,
        engine_columns=_ENGINES,
        driver_columns=_DRIVERS,
        impact_columns=_IMPACT,
        scorecard=scorecard.parts(summary.get("scorecard")),
        losses=client_losses.loss_rows(impact),
        loss_sentences=list(client_losses.loss_sentences(impact)),
        upgrades=_upgrades(summary),
        tails=[tail["op"] for tail in charts["tails"]],
        resources=resources,
        cpu_time=cpu_time_rows(resources),
        inside=perf_counters.counter_rows(summary.get("perf_counters")),
        ceilings=ceilings,
        network=network,
        planned=_planned(run),
        plan=[file for file in files if file["name"] in _PLAN],
        files=[file for file in files if file["name"] not in _PLAN],
    )


def _laws(phase: Mapping[str, Any]) -> Dict[str, List[Mapping[str, Any]]]:
    """Return the lines of Little's law of each job: one, or one for each of its works."""
    laws: Dict[str, List[Mapping[str, Any]]] = {}
    for law in phase["littles_law"]["jobs"]:
        laws.setdefault(law["job"], []).append(law)
    return laws


def _upgrades(summary: Mapping[str, Any]) -> List[Tuple[str, Sequence[str], Mapping[str, Any]]]:
    """Return the sentence, the heads and the tables of each upgrade under load."""
    upgrades = summary.get("upgrades") or ()
    return [(upgrade.sentence(each), upgrade.HEAD, upgrade.tables(each)) for each in upgrades]


def _contents(
    summary: Mapping[str, Any], charts: Mapping[str, Any], network: Sequence[Any]
) -> Iterator[Tuple[str, str]]:
    """Yield the sections of the page: what links to them, and their names."""
    ages = halves(summary) if summary["new_vs_aged"] else AGES
    parts = {
        "result": ("Result", True),
        "warnings": ("Warnings", summary["warnings"]),
        "summary": ("Summary", headline(summary)),
        "aging": ("Aging" if ages == AGES else "First and last", summary["new_vs_aged"]),
        "scorecard": ("Scorecard", summary.get("scorecard")),
        "failure": ("Failure", summary["failure"]),
        "upgrade": ("Upgrade", summary.get("upgrades")),
        "timeline": ("Timeline", timeline_charts(charts["phases"])),
        "tails": ("Percentiles", charts["tails"]),
        "engines": ("Engines", summary["engines"]),
        "ladders": ("Ladder", summary.get("ladders")),
        "resources": ("CPU", (summary.get("resources") or {}).get("phases")),
        "perf_counters": ("OSDs and gateways", (summary.get("perf_counters") or {}).get("phases")),
        "network": ("Network", network),
    }
    yield from ((key, name) for key, (name, content) in parts.items() if content)
    yield from ((f"phase-{phase['name']}", phase["name"]) for phase in summary["phases"])
    yield from (("environment", "Environment"), ("formulas", "Definitions"), ("plan", "Plan"))


def completeness(summary: Mapping[str, Any]) -> Dict[str, str]:
    """Return {"kind": good | warning | bad, "text"}: whether the run is complete, and its warnings."""
    if run_state(summary) == "going on":
        return {"kind": "warning", "text": "The run has not finished: no result yet"}
    if not summary["usable"]:
        return {"kind": "bad", "text": f"{run_state(summary).capitalize()} run: do not use these numbers"}
    text = f"Complete run, {counted(summary['warnings'])}"
    return {"kind": "good" if text.startswith("Complete run, no") else "warning", "text": text}


#: operations whose latencies are in the first table
_SHOWN = ("GET", "PUT")


def headline(summary: Mapping[str, Any]) -> List[Dict[str, Any]]:
    """Return a line for each measurement.

    [{"phase", "seconds", "obj_per_s", "read", "write" (MiB/s or null), "p99" (ms, of all requests),
    "ops": {"GET": latency_ms, "PUT": ...}, "ok", "errors" (requests), "limit": what it was limited by or null,
    "evidence": [text]}]
    """
    resources = (summary.get("resources") or {"phases": {}})["phases"]
    lines = []
    for phase in measured(summary):
        ops = phase["ops"]
        limit = (resources.get(phase["name"]) or {}).get("bottleneck") or {}
        lines.append(
            {
                "phase": phase["name"],
                "seconds": phase["window"]["seconds"],
                "obj_per_s": phase["total"]["obj_per_s"],
                "read": _mib(ops, "GET"),
                "write": _mib(ops, *WRITES),
                "p99": (phase["total"].get("latency_ms") or {}).get("p99"),
                "ops": {op: ops[op]["latency_ms"] for op in ops if split_op(op)[1] in _SHOWN and ops[op]["latency_ms"]},
                "ok": phase["total"]["requests"],
                "errors": phase["total"]["errors"],
                "limit": limit.get("what"),
                "evidence": list(limit.get("evidence") or ()),
            }
        )
    return lines


def _mib(ops: Mapping[str, Any], *names: str) -> Optional[float]:
    rates = [line["mib_per_s"] for op, line in ops.items() if split_op(op)[1] in names]
    values = [rate for rate in rates if rate is not None]
    return sum(values) if values else None


def _by_op(lines: Sequence[Mapping[str, Any]]) -> List[Dict[str, Any]]:
    """Return one entry for each op: {"op", and for each metric ("obj_per_s", "mean_ms", ...) its line}."""
    table: Dict[str, Dict[str, Any]] = {}
    for line in lines:
        table.setdefault(line["op"], {"op": line["op"]})[line["metric"]] = line
    return list(table.values())


def _pools(run: Path) -> List[Dict[str, Any]]:
    """Return the pools before the run, from `ceph osd pool ls detail`; [] when they were not recorded."""
    data = _json(run / "cluster" / "before" / "pools.json")
    pools = []
    for pool in data if isinstance(data, list) else []:
        if isinstance(pool, dict) and "pool_name" in pool:
            profile = pool.get("erasure_code_profile")
            pools.append(
                {
                    "name": pool["pool_name"],
                    "kind": f"erasure coded, {profile}" if profile else f"replicated, {pool.get('size', '?')} copies",
                    "pg_num": pool.get("pg_num"),
                    "application": ", ".join(pool.get("application_metadata") or {}),
                }
            )
    return pools


def _planned(run: Path) -> List[Dict[str, Any]]:
    """Return the phases of plan.json, each with the texts "length" (time, objects, or what ends it) and "workers"."""
    plan = _json(run / "plan.json")
    plan = plan if isinstance(plan, dict) else {}
    drivers = [driver.get("workers") for driver in plan.get("drivers") or () if isinstance(driver, dict)]
    total = sum(number for number in drivers if isinstance(number, int))
    phases = [phase for phase in plan.get("phases") or () if isinstance(phase, dict)]
    return [{**phase, "length": _length(phase), "workers": _workers(phase, total)} for phase in phases]


def _length(phase: Mapping[str, Any]) -> str:
    """Return the words for the length of a planned phase: until its goal, at most so long, or its duration."""
    goal = phase.get("goal") or {}
    if goal.get("objects") is not None:
        return f"{formatting.count(goal['objects'])} objects per bucket"
    for key, name in (("max_avail", "of MAX AVAIL"), ("raw", "of the raw capacity used")):
        if goal.get(key) is not None:
            return f"{percent(goal[key], 'g')} {name}"
    most = "at most " if phase.get("at_most") is not None else ""
    return most + formatting.seconds(goal.get("duration") or phase.get("at_most") or phase.get("duration"))


def _workers(phase: Mapping[str, Any], total: int) -> str:
    if phase.get("kind") == "wait" or not total:
        return formatting.NONE
    by_op = phase.get("workers")
    if isinstance(by_op, dict):
        return ", ".join(f"{op} {number}" for op, number in by_op.items()) + " per driver"
    return formatting.count(total)


def _json(path: Path) -> Any:
    """Return the content of a JSON file; None when it is missing or damaged."""
    try:
        return read_json(path)
    except (OSError, ValueError):
        return None


def index_page(runs: Sequence[Tuple[Path, Mapping[str, Any]]], place: Path) -> str:
    """Return the page of several runs (directory, summary) that is to lie in `place`; it links their own pages."""
    configs = [configuration(summary, path) for path, summary in runs]
    run_sweeps = sweeps([(config, summary) for config, (_, summary) in zip(configs, runs)])
    keys = differing_keys(configs)
    lines = []
    for config, (path, summary) in zip(configs, runs):
        lines.append(
            {
                "name": summary["run"]["name"],
                "link": Path(os.path.relpath(path / "report.html", place)).as_posix(),
                "benchmark": summary["run"]["benchmark"],
                "begin": load_begin(summary),
                "release": summary["environment"]["versions"].get("ceph"),
                "values": [text(config[key]) if key in config else "-" for key in keys],
                "usable": summary["usable"],
                "verdict": completeness(summary),
                "headline": headline(summary),
            }
        )
    phases = list(dict.fromkeys(entry["phase"] for line in lines for entry in line["headline"]))
    return document(
        "index.html.j2",
        ["index.js"],
        {"sweeps": [_sweep_data(sweep) for sweep in run_sweeps]},
        place=place.resolve().name,
        keys=keys,
        runs=lines,
        sentences=first(of_aging([(config, summary) for config, (_, summary) in zip(configs, runs)])),
        left_out=left_out(summary for _, summary in runs),
        phases=phases,
        sweeps=run_sweeps,
        sweep_columns=_SWEEPS,
        total=TOTAL,
    )


def _sweep_data(sweep: Sweep) -> Dict[str, Any]:
    points = [{key: value for key, value in asdict(point).items() if key != "runs"} for point in sweep.points]
    return {"unit": sweep.unit, "knee": sweep.knee, "points": points}
