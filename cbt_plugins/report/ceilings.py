"""The network's ceiling beside what was measured, as plain text."""

from __future__ import annotations

from typing import Any, List, Mapping

from cbt_plugins.report.numbers import NONE, plain


def sentence(made: Mapping[str, Any]) -> str:
    """What it is about."""
    return f"network ceiling: {made['layout']}; {made['nics']}"


def rows(made: Mapping[str, Any]) -> List[List[str]]:
    """A table of the phases, its header first: MiB/s, and the share of the ceiling that was reached."""
    head = ["", "PUT MiB/s", "ceiling", "", "GET MiB/s", "ceiling", "", "together", "fullest link"]
    return [head, *(_row(name, line) for name, line in made["phases"].items())]


def _row(name: str, line: Mapping[str, Any]) -> List[str]:
    cells = [name]
    for op in ("put", "get"):
        cells += [plain(line[f"{op}_measured"]), plain(line[f"{op}_mib_s"]), _share(line[f"{op}_share"])]
    full = line["full"]
    network = " (cluster network)" if full and full["network"] == "cluster" else ""
    return [*cells, _share(line["share"]), f"{full['node']} {full['way']}{network}" if full else NONE]


def _share(share: Any) -> str:
    return NONE if share is None else f"{100 * share:.1f} %"
