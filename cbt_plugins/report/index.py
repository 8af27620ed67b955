"""An archive of several runs as a page: a line for each run, and the curves of its sweeps."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import Any, Dict, List, Mapping, Sequence, Tuple

from cbt_plugins.compare.differences import is_essential, text
from cbt_plugins.report.document import document
from cbt_plugins.report.headline import headline
from cbt_plugins.report.html import verdict
from cbt_plugins.report.sweep import TOTAL, Sweep, sweeps
from cbt_plugins.results.configuration import configuration

FILE = "index.html"


def page(runs: Sequence[Tuple[Path, Mapping[str, Any]]], place: Path) -> str:
    """The page of these runs (directory, summary), which lies in the directory `place`; it links their own pages."""
    configs = [configuration(summary, path) for path, summary in runs]
    found = sweeps([(config, summary) for config, (_, summary) in zip(configs, runs)])
    keys = _differing(configs)
    lines = []
    for config, (path, summary) in zip(configs, runs):
        lines.append(
            {
                "name": summary["run"]["name"],
                "link": Path(os.path.relpath(path / "report.html", place)).as_posix(),
                "benchmark": summary["run"]["benchmark"],
                "values": [text(config[key]) if key in config else "-" for key in keys],
                "verdict": verdict(summary),
                "headline": headline(summary),
            }
        )
    phases = list(dict.fromkeys(its["phase"] for line in lines for its in line["headline"]))
    return document(
        "index.html.j2",
        ["index.js"],
        {"sweeps": [_chart(sweep) for sweep in found]},
        place=place.resolve().name,
        keys=keys,
        runs=lines,
        phases=phases,
        best={name: _best(lines, name) for name in phases},
        sweeps=found,
        total=TOTAL,
    )


def _differing(configs: Sequence[Mapping[str, Any]]) -> List[str]:
    """The keys of the load and of the objects in which the runs differ: their columns."""
    keys = sorted({key for config in configs for key in config if is_essential(key)})
    return [key for key in keys if len({text(config.get(key)) for config in configs}) > 1]


def _best(lines: Sequence[Mapping[str, Any]], phase: str) -> float:
    """The highest objects per second of the phase in any run."""
    measured = (its for line in lines for its in line["headline"] if its["phase"] == phase)
    return max((its["obj_per_s"] or 0 for its in measured), default=0)


def _chart(sweep: Sweep) -> Dict[str, Any]:
    points = [{key: value for key, value in asdict(its).items() if key != "runs"} for its in sweep.points]
    return {"unit": sweep.unit, "knee": sweep.knee, "points": points}
