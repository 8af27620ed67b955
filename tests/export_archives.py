"""Whole CBT archives of cheap runs, at the directories that CBT gives them."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, Dict, List, Mapping, Sequence

import analysis_archives as aa
import yaml

from cbt_plugins.cbt import archive_layout
from cbt_plugins.results.summary_file import FILE, summarize, write_summary

CLUSTER: Dict[str, Any] = {
    "head": "192.0.2.1",
    "clients": ["192.0.2.2"],
    "osds": ["192.0.2.4"],
    "mons": {"192.0.2.1": {"a": "192.0.2.1:6789"}},
    "iterations": 1,
    "osds_per_node": 1,
    "tmp_dir": "/tmp/cbt-of-a-test",
}
#: GET in 10 ms and PUT in 20 ms by as many workers give this mix
MIX = {"GET": 67.0, "PUT": 33.0}


def archive(path: Path, section: Mapping[str, Any], conf_file: Path, **cluster: Any) -> List[Dict[str, Any]]:
    """Write what CBT keeps of a file with one section `warp`; returns the configurations of its runs, in order."""
    content = {
        "cluster": {**CLUSTER, "conf_file": str(conf_file), "archive_dir": str(path), **cluster},
        "benchmarks": {"warp": dict(section)},
        "monitoring_profiles": {"collectl": {}},
    }
    conf_file.touch()
    archive_layout.write_once(path / "results" / "cbt_config.yaml", content)
    runs = archive_layout.planned(content["benchmarks"], content["cluster"]["iterations"])
    return [{key: value for key, value in run.config.items() if key != "acceptable"} for run in runs]


def run(
    path: Path,
    config: Mapping[str, Any],
    *,
    get: float = 0.01,
    put: float = 0.02,
    aged: float = 1.0,
    start: float = 0.0,
    workers: int = 2,
    size: int = 4096,
    phases: Sequence[str] = ("measure-new",),
    ops: Sequence[str] = ("GET", "PUT"),
    complete: bool = True,
    summary: bool = True,
) -> Path:
    """One run; each of its phases takes 10 s, with GET of this latency, all else in that of `put`, by `workers` each.

    The first begins 100 s after `start`. In phases whose name has "aged" in it latencies are `aged` times as high.
    """
    made = aa.run(path / "making", complete=complete, phases=phases)
    usual = {op: get if op == "GET" else put for op in ops}
    latency = {**usual, **{f"{name}:{op}": aged * usual[op] for name in phases if "aged" in name for op in ops}}
    mix = MIX if len(ops) > 1 else {}
    load = aa.Load(latency, ops, workers, size, seconds=10, noise=0, mix=mix, driver=f"01-{size}")
    for index, name in enumerate(phases, 1):
        load.write(made, index, name, start + 100.0 * index, as_aggregates=True)
    (made / "benchmark_config.yaml").write_text(yaml.safe_dump({"cluster": dict(config)}))
    directory = archive_layout.archive_dir(path, config)
    directory.parent.mkdir(parents=True, exist_ok=True)
    made.rename(directory)
    shutil.rmtree(path / "making")
    if summary:
        write_summary(summarize(directory), directory / FILE)
    return directory
