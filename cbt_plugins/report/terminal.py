"""The summary as plain text of at most 110 columns."""

from __future__ import annotations

import textwrap
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence

from cbt_plugins.columns import side_by_side
from cbt_plugins.report import ceilings as network
from cbt_plugins.report import usage
from cbt_plugins.report.numbers import count, percent, plain, seconds, size, size_class
from cbt_plugins.results import impact, recovery

WIDTH = 110
_LATENCY = ("mean", "p50", "p90", "p99", "p999", "max")
_HEAD = (
    "",
    "obj/s",
    "MiB/s",
    "mean ms",
    "p50",
    "p90",
    "p99",
    "p99.9",
    "max",
    "TTFB p50",
    "errors",
    "mix",
    "asked",
)


def render(summary: Mapping[str, Any], ceilings: Optional[Mapping[str, Any]] = None) -> str:
    """Phases, new against aged, warnings; ends with a line end. `ceilings`: those of analysis.ceilings, if known."""
    lines = [*_headline(summary)]
    resources = (summary.get("resources") or {"phases": {}})["phases"]
    for phase in summary["phases"]:
        lines += ["", *_phase(phase), *_resources(resources.get(phase["name"]))]
    if summary["new_vs_aged"]:
        lines += ["", *_aging(summary["new_vs_aged"])]
    for entry in summary["engines"]:
        lines += ["", *_engines(entry)]
    if ceilings and ceilings["phases"]:
        lines += ["", *textwrap.wrap(network.sentence(ceilings), WIDTH), *_table(network.rows(ceilings))]
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
        yield "PARTIAL: these are not the numbers of a whole run (see the warnings)"


def _phase(phase: Mapping[str, Any]) -> Iterator[str]:
    law = phase["littles_law"]
    about = [f"{phase['index']:02d} {phase['name']}", phase["role"], seconds(phase["window"]["seconds"])]
    if phase["status"] != "ok":
        about.append(phase["status"].upper())
    if law["workers"]:
        in_flight = f"{law['in_flight']:.2f} ({percent(law['deviation'])})"
        about.append(f"{law['workers']} workers, throughput x latency = {in_flight}")
    if phase["loop"] == "open":
        rate = phase["rate"]
        issued = "" if rate["issued"] is None else f", {plain(rate['issued'])} issued ({percent(rate['deviation'])})"
        about.append(f"open loop, {plain(rate['asked'])} requests/s asked{issued}")
    yield "  ".join(about)
    if phase["sentence"]:
        yield f"   {phase['sentence']}"
    if not phase["ops"]:
        return
    rows = [list(_HEAD)]
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
        table = usage.rows(used)
        if table:
            yield "   processors, memory and disks by class"
            yield from _table(table)
        yield from usage.sentences(used, WIDTH)


def _cells(op: str, line: Mapping[str, Any], mix: Mapping[str, Any]) -> List[str]:
    times = line["latency_ms"] or {}
    return [
        op,
        plain(line["obj_per_s"]),
        plain(line["mib_per_s"]),
        *(plain(times.get(key)) for key in _LATENCY),
        plain((line["ttfb_ms"] or {}).get("p50")),
        count(line["errors"] + line["outside"]["errors"]),
        f"{mix['measured'][op]:.1f}%" if op in mix["measured"] else "",
        f"{mix['asked'][op]:g}%" if op in (mix["asked"] or {}) else "",
    ]


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
    yield f"new ({aging['new']}) against aged ({aging['aged']}): {aging['note']}"
    head = ["", "", "new", "aged", "change"]
    yield from _table([head, *map(_change, aging["lines"])], left=2)


def _change(line: Mapping[str, Any]) -> List[str]:
    metric = line["metric"].replace("_", " ") if line["unit"] == "ms" else line["unit"]
    return [line["op"], metric, plain(line["new"]), plain(line["aged"]), percent(line["change"])]


def _engines(entry: Mapping[str, Any]) -> Iterator[str]:
    yield from textwrap.wrap(f"cbt-load ({entry['cbt_load']}) beside warp ({entry['warp']}): {entry['note']}", WIDTH)
    yield from _table([["", "", "cbt-load", "warp", "ratio"], *map(_engine, entry["lines"])], left=2)


def _engine(line: Mapping[str, Any]) -> List[str]:
    metric = line["metric"].replace("_", " ") if line["unit"] == "ms" else line["unit"]
    return [line["op"], metric, plain(line["cbt_load"]), plain(line["warp"]), plain(line["ratio"])]


def _failure(made: Mapping[str, Any]) -> Iterator[str]:
    for part in (recovery.table(made["milestones"]), impact.table(made["impact"])):
        yield from (line[:WIDTH] for line in part)
        yield ""


def _warnings(warnings: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    if not warnings:
        yield "no warnings"
        return
    yield f"{len(warnings)} warning{'s' if len(warnings) > 1 else ''}"
    for warning in warnings:
        where = f"{warning['phase']}: " if warning.get("phase") else ""
        yield from textwrap.wrap(
            f"{where}{warning['text']} [{warning['code']}]",
            WIDTH,
            initial_indent=" - ",
            subsequent_indent="   ",
        )


def _table(rows: Sequence[Sequence[str]], left: int = 1) -> Iterator[str]:
    yield from (f"   {line}"[:WIDTH] for line in side_by_side(rows, left))
