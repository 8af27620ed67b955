"""`plan`, the safety rules of a rack, `plan --live`, `undo --dry-run`, `undo`, on clusters of 100 to 10,000 OSDs."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Dict, Mapping

import yaml
from inputs.clusters import OSDS_PER_NODE, SIZES, Size, asked, make, programs, take_down

from .costs import LONGEST, Cost, Curves, Extent, cost_of

TOOLS = "cbt_plugins.tools"
#: of a rack, on a cluster whose smallest size is a rack
ACCEPT = ["domain", "inactive", "data", "quorum", "capacity", "min-in"]
COLUMNS = ("plan", "rack", "live", "open", "undo")


def cluster_file(size: Size) -> str:
    """Return a YAML file in which the OSDs of a rack fail while a cluster of this size has load."""
    nodes = size.nodes
    cluster = {"user": "root", "head": "localhost", "clients": nodes[-2:], "osds": nodes, "mons": ["localhost"]}
    fault = {"label": "rack", "kind": "stop", "nodes": size.rack(0), "accept": ACCEPT}
    load: Dict[str, Any] = {"mix": {"get": 100}, "duration": "10m"}
    load["events"] = [{"at": "1m", "fault": fault}, {"at": "5m", "undo": "rack"}]
    section: Dict[str, Any] = {"engine": "cbt-load", "size": "4KiB", "workers": 8}
    section["s3"] = {"urls": ["http://rgw1:7480"], "access_key": "${K}", "secret_key": "${K}"}
    section["cycle"] = {"phases": [{"fill": {"objects": 500}}, {"hybrid": load, "name": "measure"}]}
    return yaml.safe_dump({"cluster": {**cluster, "iterations": 1}, "benchmarks": {"warp": section}})


def fault_file(size: Size) -> str:
    """Return a fault file that stops the OSDs of a rack for an hour."""
    fault = {"label": "rack", "kind": "stop", "nodes": size.rack(0), "accept": ACCEPT}
    return yaml.safe_dump({"events": [{"at": "0s", "fault": fault}, {"at": "1h", "mark": "end"}]})


def main(extent: Extent) -> None:
    for release, sizes in {"16": extent.sizes(SIZES), "18": SIZES[:1], "20": SIZES[:1]}.items():
        print(f"  documents of Ceph {release}; seconds of CPU time and MB of the command; wall clock in seconds")
        columns = {f"{name} {unit}": form for name in COLUMNS for unit, form in {"s": ".2f", "MB": ".0f"}.items()}
        curves = Curves("OSDs", {"nodes": ",.0f", **columns, "live wall": ".1f", "undo wall": ".1f", "asked": ".0f"})
        for size in sizes:
            with tempfile.TemporaryDirectory() as scratch:
                curves.add(size.osds, **_costs(Path(scratch), size, release))
        curves.end()


def _costs(folder: Path, size: Size, release: str) -> Dict[str, float]:
    cluster, file, faults, archive = (folder / name for name in ("cluster", "file.yaml", "faults.yaml", "archive"))
    make(cluster, size, release)
    take_down(cluster, range(OSDS_PER_NODE * len(size.rack(0))))
    env = {**programs(folder / "bin", cluster), "K": "benchmark"}
    file.write_text(cluster_file(size))
    faults.write_text(fault_file(size))
    costs = {"plan": cost_of(TOOLS, "plan", str(file), env=env, times=3)}
    assert costs["plan"].status == 0, costs["plan"].output[-3000:]
    inject = ("inject", str(faults), "--cluster", str(file), "--archive", str(archive))
    costs["rack"] = cost_of(TOOLS, *inject, "--dry-run", env=env, times=3)
    costs["live"] = cost_of(TOOLS, "plan", "--live", str(file), env=env)
    for name in ("rack", "live"):
        assert "stop ceph-osd@0.service" in costs[name].output, costs[name].output[-3000:]
    _left_open(inject, archive, env)
    costs["open"] = cost_of(TOOLS, "undo", "--dry-run", str(archive), env=env)
    assert costs["open"].status == 1 and "ceph-osd@0.service" in costs["open"].output, costs["open"].output[-3000:]
    asked(cluster)
    costs["undo"] = cost_of(TOOLS, "undo", str(archive), env=env)
    assert costs["undo"].status == 0, costs["undo"].output[-3000:]
    questions = float(len(asked(cluster)))
    walls = {"live_wall": costs["live"].wall, "undo_wall": costs["undo"].wall, "asked": questions}
    return {"nodes": len(size.nodes), **_by_column(costs), **walls}


def _by_column(costs: Mapping[str, Cost]) -> Dict[str, float]:
    return {f"{name}_{unit}": value for name, c in costs.items() for unit, value in (("s", c.cpu), ("MB", c.mb))}


def _left_open(inject: tuple[str, ...], archive: Path, env: Mapping[str, str]) -> None:
    """Inject the fault of the rack, and kill the process that would undo it."""
    line = [sys.executable, "-m", TOOLS, *inject]
    with (archive.parent / "output").open("w+") as output:
        process = subprocess.Popen(line, env=env, stdout=output, stderr=output, stdin=subprocess.DEVNULL)
        until, events = time.monotonic() + LONGEST, archive / "events.jsonl"
        while not (events.exists() and "fault-injected" in events.read_text()):
            assert process.poll() is None and time.monotonic() < until, (output.seek(0), output.read())
            time.sleep(0.1)
        process.kill()
        process.wait()
