"""The report of what the monitors saw on 4, 20 and 100 nodes, and of what they saw on four nodes in 6, 24 and 72 hours.

A node has 10 OSDs. A run has 40 phases without load, as many as a run of 72 hours has. MONITORS=resources or
MONITORS=perf_counters measures the samples of one monitor.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Dict

from inputs.long_runs import T0
from inputs.node_samples import write_nodes

from .archives import TOOLS, end_run
from .costs import Curves, Extent, cost_of

NODES, MANY = (4, 20, 100), (1000,)
HOURS = (6, 24, 72)
#: hours of the runs of NODES, and nodes of the runs of HOURS
SHORT, FEW = 0.25, 4
PHASES = 40
_FORMATS = {"samples MB": ".0f", "report s": ".1f", "workers s": ".1f", "wall s": ".1f", "report MB": ".0f"}
_FORMATS.update({"worker MB": ".0f", "summary file": ".2f", "page file": ".2f"})


def main(extent: Extent) -> None:
    print("  seconds of CPU time and MB of the report, and of the processes in which it reads the samples; MB of files")
    print(f"  {60 * SHORT:.0f} minutes in {PHASES} phases")
    curves = Curves("nodes", _FORMATS)
    for nodes in extent.sizes(NODES, MANY):
        curves.add(nodes, **_costs(nodes, SHORT))
    curves.end()
    print(f"  {FEW} nodes, {PHASES} phases")
    curves = Curves("hours", _FORMATS)
    for hours in extent.sizes(HOURS):
        curves.add(hours, **_costs(FEW, hours))
    curves.end()


def _costs(nodes: int, hours: float) -> Dict[str, float]:
    with tempfile.TemporaryDirectory() as scratch:
        run = Path(scratch) / "results" / "00000000" / "id-00000001"
        seconds = int(hours * 3600) // PHASES
        phases = [{"name": f"wait{number:02}"} for number in range(1, PHASES + 1)]
        for index, phase in enumerate(phases, 1):
            _write_phase(run, index, phase["name"], seconds)
        (run / "manifest.json").write_text("{}")
        (run / "plan.json").write_text(json.dumps({"benchmark": "warp", "phases": phases}))
        write_nodes(run, nodes, T0, seconds * PHASES)
        for monitor in ("resources", "perf_counters"):
            if os.environ.get("MONITORS", monitor) != monitor:
                for folder in run.glob(f"monitors/01/{monitor}.*"):
                    shutil.rmtree(folder)
        end_run(run, seconds * PHASES)
        samples = sum(path.stat().st_size for path in run.glob("monitors/**/*.jsonl")) / 1e6
        report = cost_of(TOOLS, "report", scratch)
        assert report.status == 0, report.output[-2000:]
        summary, (page,) = run / "summary.json", Path(scratch).rglob("report.html")
        costs = {"samples_MB": samples, "report_s": report.cpu, "workers_s": report.children, "wall_s": report.wall}
        costs.update(report_MB=report.mb, worker_MB=report.children_mb)
        return {**costs, "summary_file": summary.stat().st_size / 1e6, "page_file": page.stat().st_size / 1e6}


def _write_phase(run: Path, index: int, name: str, seconds: int) -> None:
    folder, end = run / "phases" / f"{index:02}-{name}", T0 + index * seconds
    folder.mkdir(parents=True)
    about = {"version": 2, "index": index, "name": name, "kind": "wait", "role": "age", "engine": "cbt-load"}
    about.update(window={"start": end - seconds, "end": end}, block=1, asked={"duration": seconds})
    (folder / "phase.json").write_text(json.dumps({**about, "status": "ok", "jobs": []}))
