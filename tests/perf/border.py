"""The dead time between two phases: from the end of one window to the begin of the next, on a lab of nine nodes.

Collectl and the resources monitor run, and every node answers over ssh. Prints the median and the longest, of each
engine, and the median of what its generators take: from the start of the first to the begin of the window, and from
there to the end of the last. That of warp cannot be less than 9 s: each warp pauses for 3 s before its first request,
writers wait until the readers have listed their objects, and all run for 3 s longer so that each fills the window.
The lab has seven nodes for Ceph, and two clients; with another number of clients only cbt-load is measured.
Usage: ./run bench border [PHASES [SECONDS [CLIENTS]]]
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Dict, List

import yaml

from cbt_plugins.tools.lab.requirements import missing

PROJECT = Path(__file__).parents[2]
QUICK = PROJECT / "benchmark_configs" / "quickstart.yaml"
#: of the quick start
CLIENTS = 2
#: seconds of dead time that a quiet machine should not exceed
ALLOWED = 2.0
#: what is said behind the figures of an engine
NOTES = {"warp": "; at least 9 s are its own pauses and ends"}


def cycle(engine: str, phases: int, seconds: int, clients: int) -> Dict[str, Any]:
    """The quick start's cluster with so many clients, its monitors, and a cycle of equal phases."""
    config: Dict[str, Any] = yaml.safe_load(QUICK.read_text())
    config["cluster"]["clients"] = [f"client{number}" for number in range(1, clients + 1)]
    hybrid = {"mix": {"get": 45, "put": 35, "stat": 15, "delete": 5}, "duration": f"{seconds}s"}
    measure = [{"hybrid": hybrid, "name": f"p{i}"} for i in range(phases)]
    own = {"size": "16KiB", "workers": 4, "cycle": {"phases": [{"fill": {"objects": 400}}, *measure]}}
    config["benchmarks"] = {"warp": {"s3": config["benchmarks"]["rgwtest"]["s3"], "engine": engine, **own}}
    return config


def run(engine: str, phases: int, seconds: int, clients: int, folder: Path) -> List[Dict[str, Any]]:
    """Run it on a lab of its own; returns phase.json of its phases but for the fill and a calibration."""
    file, archive = folder / f"{engine}.yaml", folder / f"archive-{engine}"
    file.write_text(yaml.safe_dump(cycle(engine, phases, seconds, clients)))
    archive.mkdir()
    lab = [sys.executable, "-m", "cbt_plugins.tools", "lab", "run", "--dir", str(folder / "lab"), "--wipe"]
    lab += ["--clients", str(clients)]
    line = [*lab, "--bind", str(folder), "--", sys.executable, "-m", "cbt_plugins", "-a", str(archive), str(file)]
    done = subprocess.run(line, cwd=PROJECT, capture_output=True, text=True)
    found = sorted(archive.glob("results/*/id-*/phases/*/phase.json"))
    records = [its for its in (json.loads(path.read_text()) for path in found) if its["name"].startswith("p")]
    if done.returncode or len(records) != phases:
        sys.exit(f"{engine}: exit status {done.returncode}\n{done.stderr[-3000:]}")
    return records


def generators_part(before: Dict[str, Any], after: Dict[str, Any]) -> float:
    """Seconds between two windows in which a generator of one of the phases was there."""
    ended = max(job["ended"] for job in before["jobs"]) - before["window"]["end"]
    return float(ended + after["window"]["start"] - min(job["started"] for job in after["jobs"]))


def main() -> int:
    lacking, _ = missing(ssh=True)
    if lacking:
        print(f"no lab on this machine: {'; '.join(lacking)}")
        return 0
    phases = int(sys.argv[1]) if len(sys.argv) > 1 else 6
    seconds = int(sys.argv[2]) if len(sys.argv) > 2 else 5
    clients = int(sys.argv[3]) if len(sys.argv) > 3 else CLIENTS
    load = os.getloadavg()[0]
    print(f"dead time between two phases of {seconds} s; {clients} clients, {os.cpu_count()} cores, load {load:.1f}")
    with tempfile.TemporaryDirectory(dir="/var/tmp") as scratch:
        for engine in ("cbt-load", "warp") if clients == CLIENTS else ("cbt-load",):
            records = run(engine, phases, seconds, clients, Path(scratch))
            windows = [record["window"] for record in records]
            own = [generators_part(before, after) for before, after in zip(records, records[1:])]
            dead = [after["start"] - before["end"] for before, after in zip(windows, windows[1:])]
            lasted = [window["end"] - window["start"] for window in windows]
            over = f"; more than {ALLOWED:g} s" if engine == "cbt-load" and max(dead) > ALLOWED else ""
            print(f"  {engine:9} median {statistics.median(dead):5.1f} s, longest {max(dead):5.1f} s{over}"
                  f"; generators {statistics.median(own):.1f} s; windows of {min(lasted):g} to {max(lasted):g} s"
                  f"{NOTES.get(engine, '')}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
