"""Results as blocks for a terminal or Markdown, and as lines for CSV: a run's summary, other programs' results."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Tuple

from cbt_plugins.formatting import (
    NONE,
    count,
    percent,
    plain,
    seconds,
    several,
    signed_percent,
    size,
    size_class,
    success,
)
from cbt_plugins.formatting.blocks import Block, Notes, TableGrid, TitledBlocks, Words
from cbt_plugins.metrics import CLUSTER, COLUMNS, LATENCIES, METRICS, RATES, Metric, number_at
from cbt_plugins.plan import split_op
from cbt_plugins.report import scorecard
from cbt_plugins.report.sentence import Sentence, first
from cbt_plugins.results.importers.cbt import FAULTS_KEY
from cbt_plugins.results.nodes import perf_counters
from cbt_plugins.results.nodes.cpu_time_per_request import cpu_time_rows
from cbt_plugins.results.record_reader import importers
from cbt_plugins.results.recovery import impact, milestones, upgrade
from cbt_plugins.results.run_record import Measurement, ResultWarning, RunRecord, measurements
from cbt_plugins.results.run_state import run_state
from cbt_plugins.results.summary_file import AGES, halves
from cbt_plugins.warning_kinds import by_kind, counted, paced

#: warnings of one kind, operations and sizes of a driver that are shown
_SHOWN, _OPS, _SIZES = 5, 5, 2
_CLASSES = {"osd": "OSD", "rgw": "RGW", "mon": "mon", "mgr": "mgr", "mds": "MDS", "generator": "load generator"}


def blocks(
    summary: Mapping[str, Any],
    ceilings: Optional[Mapping[str, Any]] = None,
    sentences: Sequence[Sentence] = (),
) -> List[Block]:
    """Return a summary as blocks, `sentences` on top; `ceilings` are those of network_ceilings, if known."""
    resources = (summary.get("resources") or {"phases": {}})["phases"]
    parts: List[Block] = [
        Words(tuple(f"{sentence.text} {sentence.more}".rstrip() for sentence in first(list(sentences))))
    ]
    parts.append(Words(tuple(_headline(summary))))
    parts += [_phase(phase, resources.get(phase["name"])) for phase in summary["phases"]]
    times = cpu_time_rows(resources)
    if times:
        parts.append(TitledBlocks("CPU time of daemons for each successful request", (_table(times),)))
    inside = perf_counters.counter_rows(summary.get("perf_counters"))
    if inside:
        parts.append(TitledBlocks("counters of OSDs and gateways", (_table(inside, left=2),)))
    if summary["new_vs_aged"]:
        parts.append(_aging(summary["new_vs_aged"], halves(summary)))
    parts += map(_engines, summary["engines"])
    parts += map(_ladder, summary.get("ladders") or ())
    if ceilings and ceilings["phases"]:
        parts.append(TitledBlocks(ceiling_sentence(ceilings), (_table(ceiling_rows(ceilings)),)))
    if summary.get("scorecard"):
        parts += scorecard.blocks(summary["scorecard"])
    if summary["failure"]:
        parts += [*milestones.blocks(summary["failure"]["milestones"]), *impact.blocks(summary["failure"]["impact"])]
    for run_upgrade in summary.get("upgrades") or ():
        parts += upgrade.blocks(run_upgrade)
    return [*parts, _block_of_warnings(summary["warnings"])]


def measured(summary: Mapping[str, Any]) -> Iterator[Sequence[Any]]:
    """Yield a line for each number of a run, under MEASURED."""
    warnings = [
        ResultWarning(
            warning["code"],
            warning["text"],
            warning.get("phase"),
            warning.get("op"),
            metrics=tuple(warning.get("metrics") or ()),
        )
        for warning in summary["warnings"]
    ]
    yield from _measured(summary["run"]["name"], measurements(summary), summary["usable"], warnings)


#: `usable` is of the run, `warnings` are the codes of those that are about the number
MEASURED = ("run", "phase", "op", "metric", "unit", "value", "requests", "usable", "warnings")


def _measured(
    run: str, measurements: Iterable[Measurement], usable: bool, warnings: Sequence[ResultWarning]
) -> Iterator[Sequence[Any]]:
    for measurement in measurements:
        codes = " ".join(
            dict.fromkeys(warning.code for warning in warnings if warning.is_about(*measurement.key))
        )
        yield (
            run,
            measurement.phase,
            measurement.op,
            measurement.metric,
            METRICS[measurement.metric].unit,
            measurement.value,
            measurement.n,
            usable,
            codes,
        )


def _headline(summary: Mapping[str, Any]) -> Iterator[str]:
    run = summary["run"]
    versions = summary["environment"]["versions"]
    yield f"{run['name']}  {run['benchmark'] or 'benchmark unknown'}" + (
        f"  run {run['run_id']}" if run["run_id"] else ""
    )
    if versions:
        yield ", ".join(f"{name}: {text}" for name, text in versions.items())
    if run_state(summary) == "going on":
        yield "THE RUN HAS NOT FINISHED: no result yet"
    elif not summary["usable"]:
        yield f"{run_state(summary).upper()} RUN: do not use these numbers (see the warnings)"


def _phase(phase: Mapping[str, Any], used: Optional[Mapping[str, Any]]) -> TitledBlocks:
    law = phase["littles_law"]
    about = [f"{phase['index']:02d} {phase['name']}", phase["role"], seconds(phase["window"]["seconds"])]
    if phase["status"] != "ok":
        about.append(phase["status"].upper())
    if law["workers"]:
        in_flight = f"{law['in_flight']:.2f} ({signed_percent(law['deviation'])})"
        every = sum(job["workers"] for job in law["jobs"])
        free = "" if law["workers"] == every else f"; {law['workers']} without a given rate"
        about.append(f"{several(every, 'worker')}{free}, throughput x latency = {in_flight}")
    if phase["corrected_ms"]:
        p99, p999 = (plain(phase["corrected_ms"][name]) for name in ("p99", "p999"))
        about.append(f"corrected for requests that the closed loop could not send: p99 {p99} ms, p99.9 {p999} ms")
    if phase["loop"] == "open":
        rate = phase["rate"]
        deviation = signed_percent(rate["deviation"])
        issued = "" if rate["issued"] is None else f", {plain(rate['issued'])} issued ({deviation})"
        works = dict.fromkeys(split_op(job["op"])[0] for job in law["jobs"] if job["paced"])
        where = f" in {', '.join(works)}" if any(works) else ""
        about.append(f"open loop{where}, target {plain(rate['asked'])} requests/s{issued}")
    parts = [Words(tuple(_about_phase(phase))), *(_operations(phase) if phase["ops"] else ()), *_resources(used)]
    return TitledBlocks("  ".join(about), tuple(parts))


def _about_phase(phase: Mapping[str, Any]) -> Iterator[str]:
    held = ", ".join(f"{op} to {rate:.1f}/s" for op, _, rate in paced(phase))
    if held:
        yield f"LIMITED: {held}: these numbers do not show what the cluster can do"
    for bucket in phase.get("readable") or ():
        if bucket["share"] < 1:
            objects = f"{bucket['listed']} of {bucket['objects']} objects of {bucket['bucket']}"
            yield f"reads used {objects} ({percent(bucket['share'])})"
    if phase["sentence"]:
        yield phase["sentence"]


def _operations(phase: Mapping[str, Any]) -> Iterator[Block]:
    rows = [["", *_headings([*RATES, *LATENCIES]), "TTFB p50", "errors", "mix", "target"]]
    for op, line in phase["ops"].items():
        rows.append(_cells(op, line, phase["mix"]))
    if len(phase["ops"]) > 1:
        rows.append(_cells("total", phase["total"], {"measured": {}, "asked": {}}))
    yield _table(rows)
    drivers = [driver for driver in phase["drivers"] if driver["ops"]]
    if len(drivers) > 1:
        ops = list(phase["ops"])
        cut = f"; the first {_OPS} of {len(ops)} operations" if len(ops) > _OPS else ""
        yield _table(_drivers(drivers, ops[:_OPS]), title=f"by driver, obj/s and mean ms{cut}")
    if any(driver["size_classes"] for driver in drivers):
        yield _table(_size_classes(drivers), left=3, title="by size")


def _resources(used: Optional[Mapping[str, Any]]) -> Iterator[Block]:
    if used:
        yield _table(_usage_rows(used), title="CPU, memory and disks by daemon class")
        yield Words(tuple(_usage_sentences(used)))


def _cells(op: str, line: Mapping[str, Any], mix: Mapping[str, Any]) -> List[str]:
    return [
        op,
        *(plain(number_at(line, metric.path)) for metric in (*RATES, *LATENCIES)),
        plain((line["ttfb_ms"] or {}).get("p50")),
        count(line["errors"]),
        f"{mix['measured'][op]:.1f} %" if op in mix["measured"] else "",
        f"{mix['asked'][op]:g} %" if op in (mix["asked"] or {}) else "",
    ]


def _headings(metrics: Sequence[Metric]) -> List[str]:
    """Return the line with groups of columns; the first latency carries the unit ms."""
    first = next((metric for metric in metrics if metric.unit == "ms"), None)
    return [f"{metric.heading} ms" if metric is first else metric.heading for metric in metrics]


def _drivers(drivers: Sequence[Mapping[str, Any]], ops: Sequence[str]) -> List[List[str]]:
    rows = [["", "size", *(text for op in ops for text in (op, "ms"))]]
    for driver in drivers:
        sizes = [size(smallest) for smallest, _, _ in driver["sizes"]]
        ellipsis = ["..."] if len(sizes) > _SIZES else []
        row = [driver["driver"], ", ".join([*sizes[:_SIZES], *ellipsis])]
        for op in ops:
            line: Dict[str, Any] = driver["ops"].get(op) or {}
            row += [plain(line.get("obj_per_s")), plain((line.get("latency_ms") or {}).get("mean"))]
        rows.append(row)
    return rows


def _size_classes(drivers: Sequence[Mapping[str, Any]]) -> List[List[str]]:
    metrics = (*RATES, *LATENCIES)
    rows = [["", "size", "", *_headings(metrics)]]
    for driver in drivers:
        for class_line in driver["size_classes"]:
            for op, line in class_line["ops"].items():
                row = [driver["driver"], size_class(class_line["smallest"], class_line["largest"]), op]
                rows.append(row + [plain(number_at(line, metric.path)) for metric in metrics])
    return rows


def _aging(aging: Mapping[str, Any], headings: Tuple[str, str]) -> TitledBlocks:
    head = ["", "", *headings, "change"]
    title = f"{aging['aged']} compared with {aging['new']}: {aging['note']}"
    if headings == AGES:
        title = f"{aging['aged']} (aged) compared with {aging['new']} (new): {aging['note']}"
    return TitledBlocks(title, (_table([head, *map(_change, aging["lines"])], left=2),))


def _change(line: Mapping[str, Any]) -> List[str]:
    metric = " ".join(_headings([METRICS[line["metric"]]]))
    return [line["op"], metric, plain(line["new"]), plain(line["aged"]), signed_percent(line["change"])]


def _ladder(ladder: Mapping[str, Any]) -> TitledBlocks:
    return TitledBlocks(f"{ladder['name']}: {ladder['text']}", (_table(ladder_rows(ladder)),))


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


def _engines(entry: Mapping[str, Any]) -> TitledBlocks:
    title = f"cbt-load ({entry['cbt_load']}) against warp ({entry['warp']}): {entry['note']}"
    head = ["", "", "cbt-load", "warp", "ratio"]
    return TitledBlocks(title, (_table([head, *map(_engine, entry["lines"])], left=2),))


def _engine(line: Mapping[str, Any]) -> List[str]:
    metric = " ".join(_headings([METRICS[line["metric"]]]))
    return [line["op"], metric, plain(line["cbt_load"]), plain(line["warp"]), plain(line["ratio"])]


def _block_of_warnings(warnings: Sequence[Mapping[str, Any]]) -> Block:
    groups: List[Block] = []
    for group in by_kind(warnings):
        if len(group.about) == 1:
            groups.append(Words((f"{group.word}: {group.about[0]} [{group.code}]",)))
            continue
        remainder_note = [f"and {len(group.about) - _SHOWN} more"] if len(group.about) > _SHOWN else []
        groups.append(Notes(f"{group.word}: {group.text} [{group.code}]", (*group.about[:_SHOWN], *remainder_note)))
    return TitledBlocks(counted(warnings), tuple(groups))


def _table(rows: Sequence[Sequence[str]], left: int = 1, title: str = "") -> TableGrid:
    """Return rows, of which the first is the head, as a table."""
    head, *others = (tuple(row) for row in rows or [()])
    return TableGrid(head, tuple(others), left, title)


def _usage_rows(used: Mapping[str, Any]) -> List[List[str]]:
    """Return a table of the daemon classes, its header first; [] when none was watched."""
    head = ["", "number", "cores", "peak", "RSS MiB", "read MiB/s", "write MiB/s"]
    rows = [
        [
            _CLASSES.get(name, name),
            count(line["daemons"]),
            plain(line["cores"]),
            plain(line["peak"]),
            *(plain(line[key]) for key in ("rss_mib", "read_mib_s", "write_mib_s")),
        ]
        for name, line in used["classes"].items()
    ]
    return [head, *rows] if rows else []


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
        yield ", ".join(parts)
    bottleneck = used["bottleneck"]
    yield f"bottleneck: {bottleneck['what']}. {'; '.join(bottleneck['evidence']) or NONE}"


def ceiling_sentence(ceilings: Mapping[str, Any]) -> str:
    """Return the layout and the interfaces that a network ceiling is computed from."""
    return f"network ceiling: {ceilings['layout']}; {ceilings['nics']}"


def ceiling_rows(ceilings: Mapping[str, Any]) -> List[List[str]]:
    """Return a table of the phases, its header first: MiB/s, and the share of the network ceiling."""
    head = ["", "PUT MiB/s", "ceiling", "", "GET MiB/s", "ceiling", "", "together", "busiest link"]
    return [head, *(_ceiling_row(name, line) for name, line in ceilings["phases"].items())]


def _ceiling_row(name: str, line: Mapping[str, Any]) -> List[str]:
    cells = [name]
    for op in ("put", "get"):
        cells += [plain(line[f"{op}_measured"]), plain(line[f"{op}_mib_s"]), percent(line[f"{op}_share"])]
    full = line["full"]
    network = " (cluster network)" if full and full["network"] == "cluster" else ""
    return [*cells, percent(line["share"]), f"{full['node']} {full['way']}{network}" if full else NONE]


def imported_blocks(records: Sequence[RunRecord]) -> List[Block]:
    """Return the records of another program's results as blocks."""
    parts: List[Block] = [block for record in records for block in _record(record)]
    importer_of_kind = importers()
    for source, kind in sorted({(record.source, record.kind) for record in records}):
        extra_text = importer_of_kind[kind].extra_text(Path(source)) if kind in importer_of_kind else ""
        parts += [Words(tuple(extra_text.rstrip("\n").split("\n")))] if extra_text else []
    return parts


def imported_measured(records: Sequence[RunRecord]) -> Iterator[Sequence[Any]]:
    """Yield a line for each number of another program's results, under MEASURED."""
    for record in records:
        yield from _measured(record.name, record.measurements, record.usable, record.warnings)


def _record(record: RunRecord) -> Iterator[Block]:
    mark = "" if record.usable else "  UNUSABLE (see the warnings)"
    lines: List[List[str]] = [["", "", "requests", *_headings(COLUMNS)]]
    columns = {metric.key for metric in COLUMNS}
    shown = [
        measurement
        for measurement in record.measurements
        if measurement.op != CLUSTER and measurement.metric in columns
    ]
    for phase, op in dict.fromkeys((measurement.phase, measurement.op) for measurement in shown):
        op_measurements = [line for line in record.measurements if (line.phase, line.op) == (phase, op)]
        cells = (_imported_cell(op_measurements, metric.key) for metric in COLUMNS)
        lines.append([phase, op, str(op_measurements[0].n or ""), *cells])
    parts: List[Block] = [_table(lines, left=2)]
    for used in (record.used or {}).values():
        parts += _resources(used)
    if record.failure is not None:
        parts += [Words((f"faults during the load: {record.config[FAULTS_KEY]}",)), *milestones.blocks(record.failure)]
    if record.warnings:
        parts.append(_block_of_warnings([{"code": warning.code, "text": warning.text} for warning in record.warnings]))
    yield TitledBlocks(f"{record.name}  {record.config.get('benchmark', record.kind)}{mark}", tuple(parts))


def _imported_cell(lines: Sequence[Measurement], metric: str) -> str:
    measurement: Optional[Measurement] = next((line for line in lines if line.metric == metric), None)
    if measurement is None or measurement.value is None:
        return "-"
    if metric == "success_rate":
        return success(measurement.value)
    return f"{measurement.value:.4g}" if measurement.value < 1000 else f"{measurement.value:.0f}"
