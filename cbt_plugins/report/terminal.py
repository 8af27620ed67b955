"""Results as plain text of at most 110 columns: a run's summary, and results of other programs."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

from cbt_plugins.formatting import NONE, count, percent, plain, seconds, several, share, side_by_side, size, size_class
from cbt_plugins.metrics import CLUSTER, COLUMNS, LATENCIES, RATES, Metric, number_at
from cbt_plugins.results import impact, recovery
from cbt_plugins.results.importers.cbt import FAULTS_KEY
from cbt_plugins.results.record import Measurement, RunRecord
from cbt_plugins.results.records import importers, read_imported
from cbt_plugins.warning_kinds import by_kind, counted, paced

WIDTH = 110
#: warnings of one kind that are shown
_SHOWN = 5
_CLASSES = {"osd": "OSD", "rgw": "RGW", "mon": "mon", "mgr": "mgr", "mds": "MDS", "generator": "load generator"}


def render(summary: Mapping[str, Any], ceilings: Optional[Mapping[str, Any]] = None) -> str:
    """Return a summary as text that ends with a line end; `ceilings` are those of results.ceilings, if known."""
    lines = [*_headline(summary)]
    resources = (summary.get("resources") or {"phases": {}})["phases"]
    for phase in summary["phases"]:
        lines += ["", *_phase(phase), *_resources(resources.get(phase["name"]))]
    if summary["new_vs_aged"]:
        lines += ["", *_aging(summary["new_vs_aged"])]
    for entry in summary["engines"]:
        lines += ["", *_engines(entry)]
    for ladder in summary.get("ladders") or ():
        lines += ["", *textwrap.wrap(f"{ladder['name']}: {ladder['text']}", WIDTH), *_table(ladder_rows(ladder))]
    if ceilings and ceilings["phases"]:
        lines += ["", *textwrap.wrap(_ceiling_sentence(ceilings), WIDTH), *_table(ceiling_rows(ceilings))]
    if summary["failure"]:
        lines += ["", *_failure(summary["failure"])]
    lines += ["", *_warnings(summary["warnings"])]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _headline(summary: Mapping[str, Any]) -> Iterator[str]:
    run = summary["run"]
    versions = summary["environment"]["versions"]
    yield f"{run['name']}  {run['benchmark'] or 'benchmark unknown'}" + (
        f"  run {run['run_id']}" if run["run_id"] else ""
    )
    if versions:
        yield from textwrap.wrap(", ".join(f"{name}: {text}" for name, text in versions.items()), WIDTH)
    if not summary["usable"]:
        yield "INCOMPLETE RUN: do not use these numbers (see the warnings)"


def _phase(phase: Mapping[str, Any]) -> Iterator[str]:
    law = phase["littles_law"]
    about = [f"{phase['index']:02d} {phase['name']}", phase["role"], seconds(phase["window"]["seconds"])]
    if phase["status"] != "ok":
        about.append(phase["status"].upper())
    if law["workers"]:
        in_flight = f"{law['in_flight']:.2f} ({percent(law['deviation'])})"
        about.append(f"{several(law['workers'], 'worker')}, throughput x latency = {in_flight}")
    if phase["loop"] == "open":
        rate = phase["rate"]
        issued = "" if rate["issued"] is None else f", {plain(rate['issued'])} issued ({percent(rate['deviation'])})"
        about.append(f"open loop, target {plain(rate['asked'])} requests/s{issued}")
    yield "  ".join(about)
    held = ", ".join(f"{op} to {rate:.1f}/s" for op, _, rate in paced(phase))
    if held:
        yield f"   LIMITED: {held}: not what the cluster can do"
    for its in phase.get("readable") or ():
        if its["share"] < 1:
            known = f"{its['listed']} of {its['objects']} objects of {its['bucket']} ({share(its['share'])})"
            yield f"   reads know {known}"
    if phase["sentence"]:
        yield f"   {phase['sentence']}"
    if not phase["ops"]:
        return
    rows = [["", *_headings([*RATES, *LATENCIES]), "TTFB p50", "errors", "mix", "target"]]
    for op, line in phase["ops"].items():
        rows.append(_cells(op, line, phase["mix"]))
    if len(phase["ops"]) > 1:
        rows.append(_cells("total", phase["total"], {"measured": {}, "asked": {}}))
    yield from _table(rows)
    drivers = [driver for driver in phase["drivers"] if driver["ops"]]
    if len(drivers) > 1:
        yield "   by driver, obj/s and mean ms"
        yield from _table(_drivers(drivers, list(phase["ops"])))
    if any(driver["size_classes"] for driver in drivers):
        yield "   by size"
        yield from _table(_size_classes(drivers), left=3)


def _resources(used: Optional[Mapping[str, Any]]) -> Iterator[str]:
    if used:
        table = _usage_rows(used)
        if table:
            yield "   CPU, memory and disks by daemon class"
            yield from _table(table)
        yield from _usage_sentences(used)


def _cells(op: str, line: Mapping[str, Any], mix: Mapping[str, Any]) -> List[str]:
    return [
        op,
        *(plain(number_at(line, metric.path)) for metric in (*RATES, *LATENCIES)),
        plain((line["ttfb_ms"] or {}).get("p50")),
        count(line["errors"] + line["outside"]["errors"]),
        f"{mix['measured'][op]:.1f}%" if op in mix["measured"] else "",
        f"{mix['asked'][op]:g}%" if op in (mix["asked"] or {}) else "",
    ]


def _headings(metrics: Sequence[Metric]) -> List[str]:
    """Return what stands above columns; the first latency says that they are in ms."""
    first = next((metric for metric in metrics if metric.unit == "ms"), None)
    return [f"{metric.heading} ms" if metric is first else metric.heading for metric in metrics]


def _drivers(drivers: Sequence[Mapping[str, Any]], ops: Sequence[str]) -> List[List[str]]:
    rows = [["", "size", *(text for op in ops[:5] for text in (op, "ms"))]]
    for driver in drivers:
        row = [driver["driver"], ", ".join(size(smallest) for smallest, _, _ in driver["sizes"][:2])]
        for op in ops[:5]:
            line: Dict[str, Any] = driver["ops"].get(op) or {}
            row += [plain(line.get("obj_per_s")), plain((line.get("latency_ms") or {}).get("mean"))]
        rows.append(row)
    return rows


def _size_classes(drivers: Sequence[Mapping[str, Any]]) -> List[List[str]]:
    rows = [["", "size", "", "obj/s", "MiB/s", "mean ms", "p50", "p99", "max"]]
    for driver in drivers:
        for its in driver["size_classes"]:
            for op, line in its["ops"].items():
                times = line["latency_ms"] or {}
                row = [driver["driver"], size_class(its["smallest"], its["largest"]), op]
                row += [plain(line["obj_per_s"]), plain(line["mib_per_s"])]
                rows.append(row + [plain(times.get(key)) for key in ("mean", "p50", "p99", "max")])
    return rows


def _aging(aging: Mapping[str, Any]) -> Iterator[str]:
    yield from textwrap.wrap(f"{aging['aged']} (aged) compared with {aging['new']} (new): {aging['note']}", WIDTH)
    head = ["", "", "new", "aged", "change"]
    yield from _table([head, *map(_change, aging["lines"])], left=2)


def _change(line: Mapping[str, Any]) -> List[str]:
    metric = line["metric"].replace("_", " ") if line["unit"] == "ms" else line["unit"]
    return [line["op"], metric, plain(line["new"]), plain(line["aged"]), percent(line["change"])]


def ladder_rows(ladder: Mapping[str, Any]) -> List[List[str]]:
    """Return the steps of a ladder in the order of their loads; the first row is the head."""
    head = ["requests/s" if ladder["unit"] == "rate" else "workers per driver", "objective"]
    head += [key.replace("/", " ") for key in ladder["objective"]]
    rows = [[*head, "obj/s", "errors", "kinds of error"]]
    for step in sorted(ladder["steps"], key=lambda step: float(step["load"])):
        values = [plain(step["values"].get(key)) for key in ladder["objective"]]
        kinds = ", ".join(f"{n} x {kind}" for kind, n in step["error_kinds"].items())
        met = "missed" if step["missed"] else "met"
        rows.append([plain(step["load"]), met, *values, plain(step["obj_per_s"]), count(step["errors"]), kinds])
    return rows


def _engines(entry: Mapping[str, Any]) -> Iterator[str]:
    yield from textwrap.wrap(f"cbt-load ({entry['cbt_load']}) against warp ({entry['warp']}): {entry['note']}", WIDTH)
    yield from _table([["", "", "cbt-load", "warp", "ratio"], *map(_engine, entry["lines"])], left=2)


def _engine(line: Mapping[str, Any]) -> List[str]:
    metric = line["metric"].replace("_", " ") if line["unit"] == "ms" else line["unit"]
    return [line["op"], metric, plain(line["cbt_load"]), plain(line["warp"]), plain(line["ratio"])]


def _failure(made: Mapping[str, Any]) -> Iterator[str]:
    for part in (recovery.table(made["milestones"]), impact.table(made["impact"])):
        yield from (line[:WIDTH] for line in part)
        yield ""


def _warnings(warnings: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    yield counted(warnings)
    for group in by_kind(warnings):
        one = len(group.about) == 1
        yield from _wrapped(f"{group.word}: {group.about[0] if one else group.text} [{group.code}]", " ")
        for text in group.about[:_SHOWN] if not one else ():
            yield from _wrapped(f"- {text}", "   ")
        if len(group.about) > _SHOWN:
            yield f"   - and {len(group.about) - _SHOWN} more"


def _wrapped(text: str, indent: str) -> List[str]:
    return textwrap.wrap(text, WIDTH, initial_indent=indent, subsequent_indent=f"{indent}  ")


def _table(rows: Sequence[Sequence[str]], left: int = 1) -> Iterator[str]:
    yield from (f"   {line}"[:WIDTH] for line in side_by_side(rows, left))


def _usage_rows(used: Mapping[str, Any]) -> List[List[str]]:
    """Return a table of the daemon classes, its header first; [] when none was watched."""
    head = ["", "number", "cores", "peak", "RSS MiB", "read MiB/s", "write MiB/s"]
    its = [
        [
            _CLASSES.get(name, name),
            count(line["daemons"]),
            plain(line["cores"]),
            plain(line["peak"]),
            *(plain(line[key]) for key in ("rss_mib", "read_mib_s", "write_mib_s")),
        ]
        for name, line in used["classes"].items()
    ]
    return [head, *its] if its else []


def _usage_sentences(used: Mapping[str, Any]) -> Iterator[str]:
    """Yield the efficiency and the bottleneck of a phase."""
    parts = []
    if used["rgw_osd_ratio"] is not None:
        parts.append(f"RGW:OSD {plain(used['rgw_osd_ratio'])} ({used['rgw_osd_fraction']})")
    if used["ops_per_core"] is not None:
        parts.append(f"{plain(used['ops_per_core'])} requests/s per core of RGW and OSD")
    if used["cores_per_gb_s"] is not None:
        parts.append(f"{plain(used['cores_per_gb_s'])} cores per GB/s")
    if parts:
        yield f"   {', '.join(parts)}"
    its = used["bottleneck"]
    text = f"bottleneck: {its['what']}. {'; '.join(its['evidence']) or NONE}"
    yield from textwrap.wrap(text, WIDTH, initial_indent="   ", subsequent_indent="   ")


def _ceiling_sentence(made: Mapping[str, Any]) -> str:
    """Return the layout and the interfaces that a network ceiling is computed from."""
    return f"network ceiling: {made['layout']}; {made['nics']}"


def ceiling_rows(made: Mapping[str, Any]) -> List[List[str]]:
    """Return a table of the phases, its header first: MiB/s, and the share of the network ceiling."""
    head = ["", "PUT MiB/s", "ceiling", "", "GET MiB/s", "ceiling", "", "together", "busiest link"]
    return [head, *(_ceiling_row(name, line) for name, line in made["phases"].items())]


def _ceiling_row(name: str, line: Mapping[str, Any]) -> List[str]:
    cells = [name]
    for op in ("put", "get"):
        cells += [plain(line[f"{op}_measured"]), plain(line[f"{op}_mib_s"]), share(line[f"{op}_share"])]
    full = line["full"]
    network = " (cluster network)" if full and full["network"] == "cluster" else ""
    return [*cells, share(line["share"]), f"{full['node']} {full['way']}{network}" if full else NONE]


def render_imported(path: Path) -> Tuple[str, bool]:
    """Return the text on the results of another program, and whether all runs are complete. Raises Unreadable."""
    records = read_imported(path)
    parts = ["".join(_record(record)) for record in records]
    known = importers()
    for source, kind in sorted({(record.source, record.kind) for record in records}):
        more = known[kind].more(Path(source)) if kind in known else ""
        parts += [more] if more else []
    return "\n".join(parts), all(record.usable for record in records)


def _record(record: RunRecord) -> Iterator[str]:
    mark = "" if record.usable else "  UNUSABLE (see the warnings)"
    yield f"{record.name}  {record.config.get('benchmark', record.kind)}{mark}\n"
    lines: List[List[str]] = [["", "", "requests", *_headings(COLUMNS)]]
    for phase, op in dict.fromkeys((its.phase, its.op) for its in record.measurements if its.op != CLUSTER):
        its = [line for line in record.measurements if (line.phase, line.op) == (phase, op)]
        lines.append([phase, op, str(its[0].n or ""), *(_imported_cell(its, metric.key) for metric in COLUMNS)])
    yield from (f"  {line}\n" for line in side_by_side(lines, left=2))
    if record.failure is not None:
        yield f"  faults during the load: {record.config[FAULTS_KEY]}\n"
        yield from (f"  {line}\n" for line in recovery.table(record.failure))
    if record.warnings:
        lines_ = _warnings([{"code": its.code, "text": its.text} for its in record.warnings])
        yield from (f"  {line}\n" for line in lines_)


def _imported_cell(lines: Sequence[Measurement], metric: str) -> str:
    found: Optional[Measurement] = next((line for line in lines if line.metric == metric), None)
    if found is None or found.value is None:
        return "-"
    if metric == "success_rate":
        return f"{100 * found.value:.2f}%"
    return f"{found.value:.4g}" if found.value < 1000 else f"{found.value:.0f}"
