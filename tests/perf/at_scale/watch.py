"""`cbt-tools watch` of a run on clusters of 100 to 10,000 OSDs, a rack of which fails, and its report.

The samples are those of a recorded failure (tests/data/recovery), with as many OSDs and PGs as the cluster has. The
record of the cluster is what `osdmaptool` and tests/data give.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any, Dict, List

import yaml
from inputs.clusters import OSDS_PER_NODE, SIZES, Size, make

from .archives import TOOLS, Line, end_run, write_files
from .costs import Curves, Extent, cost_of
from .plan import cluster_file

#: of the run
SECONDS = 1200
#: the record of a cluster: file -> question
FILES = {"osd_tree.json": "osd tree", "osd_df.json": "osd df"}
#: OSDs that fail in the record
FAILED = (6, 7)


def main(extent: Extent) -> None:
    print(f"  a run of {SECONDS / 60:g} minutes by five drivers; seconds of CPU time, of worker processes too, and MB")
    formats = {"nodes": ",.0f", "samples MB": ".2f", "watch s": ".2f", "watch MB": ".0f", "report s": ".2f"}
    curves = Curves("OSDs", {**formats, "report MB": ".0f"})
    for size in extent.sizes(SIZES):
        with tempfile.TemporaryDirectory() as scratch:
            curves.add(size.osds, **_costs(Path(scratch), size))
    curves.end()


def _costs(folder: Path, size: Size) -> Dict[str, float]:
    run = write_files(folder / "archive", SECONDS / 3600, lambda line: _at_size(line, size), SECONDS)
    documents = make(folder / "cluster", size, "16")
    before = run / "cluster" / "before"
    before.mkdir(parents=True)
    for name, question in FILES.items():
        (before / name).write_text(json.dumps(documents[question]))
    (run / "cluster.json").write_text(json.dumps({"cluster": yaml.safe_load(cluster_file(size))["cluster"]}))
    end_run(run, SECONDS)
    samples = sum(path.stat().st_size for path in run.rglob("recovery.jsonl")) / 1e6
    costs = {"nodes": float(len(size.nodes)), "samples_MB": samples}
    # watch first: the report writes the summary that watch would read
    for verb in ("watch", "report"):
        cost = cost_of(TOOLS, verb, str(folder / "archive"), times=3 if verb == "watch" else 1)
        assert cost.status == 0, cost.output[-2000:]
        costs.update({f"{verb}_s": cost.cpu + cost.children, f"{verb}_MB": cost.mb})
    summary = json.loads((run / "summary.json").read_text())
    assert summary["failure"]["milestones"]["episodes"], "the failure was not found"
    return costs


def _in_rack(osds: List[int], size: Size) -> List[int]:
    """Return the OSDs of a rack for those that failed in the record: 6 stands for its first half, 7 for the other."""
    rack = list(range(OSDS_PER_NODE * len(size.rack(0))))
    half = len(rack) // 2
    return [osd for recorded in osds for osd in (rack[:half] if recorded == FAILED[0] else rack[half:])]


def _at_size(line: Line, size: Size) -> Line:
    """Return a sample of the recorded failure as this cluster has it."""
    changed: Dict[str, Any] = {**line, **{key: _in_rack(line[key], size) for key in ("down", "out") if key in line}}
    if "osds" in line:
        changed["osds"] = size.osds
    if "map" in line:
        lists = ("down", "up", "out", "in")
        changed["map"] = [
            {key: _in_rack(value, size) if key in lists else value for key, value in change.items()}
            for change in line["map"]
        ]
    if "pgs" in line:
        factor = size.pgs / sum(line["pgs"].values())
        changed["pgs"] = {state: round(number * factor) for state, number in line["pgs"].items()}
        changed["num_pgs"] = sum(changed["pgs"].values())
    return changed
