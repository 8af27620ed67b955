"""LIST and count of a bucket on a real gateway, by the number of its objects and by the number of its index shards.

Ceph reshards at 100,000 objects for each shard: 10^7 objects have 101 shards or more, 43 million 431. Needs root.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Dict, List

import yaml
from inputs.labs import TOOLS, cluster
from trust import labs

from .costs import Curves, Extent

OBJECTS, SHARDS = (2_000, 8_000, 32_000), (11, 31, 101, 431)
#: of the runs in which the other number grows
SAME_OBJECTS, SAME_SHARDS = 8_000, 11
#: in one shard, up to the number at which Ceph reshards: a bucket of 10^7 objects has as many in each of its shards
IN_ONE_SHARD = (1_000, 10_000, 95_000)
SECONDS, WORKERS = 20, 4
#: the count of a bucket is taken so many times
COUNTED = 9
#: counts the objects of bucket $1 as the object accounting of a phase does, and prints nanoseconds and the reply
_COUNT = """\
begun=$(date +%s%N)
reply=$(radosgw-admin bucket stats --bucket="$1" 2>/dev/null) || exit
printf '{"ns": %d, "reply": %s}' $(($(date +%s%N) - begun)) "$reply"
"""


def main(extent: Extent) -> None:
    print(f"  {WORKERS} workers that list pages of 1000 keys for {SECONDS} s; objects of 4 KiB in one bucket")
    print(f"  `count`: seconds of `radosgw-admin bucket stats`, median of {COUNTED}")
    formats = {"LIST p50 ms": ".1f", "p99 ms": ".1f", "LIST/s": ".0f", "count s": ".2f"}
    with tempfile.TemporaryDirectory() as scratch, labs(Path(scratch)) as (lab,):
        curves = Curves("objects", formats)
        for objects in extent.sizes(OBJECTS):
            curves.add(objects, **_listed(Path(scratch), lab, objects, SAME_SHARDS))
        curves.end()
        curves = Curves("objects of the shard", formats)
        for objects in extent.sizes(IN_ONE_SHARD):
            curves.add(objects, **_listed(Path(scratch), lab, objects, 1))
        curves.end()
        curves = Curves("shards", formats)
        for shards in extent.sizes(SHARDS):
            curves.add(shards, **_listed(Path(scratch), lab, SAME_OBJECTS, shards))
        curves.end()


def _listed(folder: Path, lab: Path, objects: int, shards: int) -> Dict[str, float]:
    """Fill a new bucket, list it and count its objects; return the cost of a LIST and of a count."""
    archive = folder / f"{objects}-{shards}"
    section: Dict[str, Any] = {
        "s3": {"urls": ["http://rgw1:7480"], "user": "cbt"},
        "rgw": {"index_shards": shards},
        "engine": "cbt-load",
        "size": "4KiB",
        "workers": WORKERS,
        "keep_data": True,
        "cycle": {
            "phases": [
                {"fill": {"objects": objects}},
                {"hybrid": {"duration": f"{SECONDS}s", "mix": {"list": 100}}, "name": "list"},
            ]
        },
    }
    file = archive.with_suffix(".yaml")
    file.write_text(yaml.safe_dump({"cluster": cluster(["rgw1"]), "benchmarks": {"warp": section}}))
    on_head = [*TOOLS, "lab", "exec", "--dir", str(lab), "node0", "--"]
    line = [*on_head, sys.executable, "-m", "cbt_plugins", "-a", str(archive), str(file)]
    done = subprocess.run(line, capture_output=True, text=True)
    if done.returncode:
        output = (done.stdout + done.stderr)[-3000:]
        sys.exit(f"{objects} objects, {shards} shards: exit status {done.returncode}\n{output}")
    (path,) = archive.glob("results/*/id-*/summary.json")
    (phase,) = [phase for phase in json.loads(path.read_text())["phases"] if phase["name"] == "list"]
    line_of_list = phase["ops"]["LIST"]
    latency = line_of_list["latency_ms"]
    (accounting,) = phase["accounting"]
    costs = {"LIST_p50_ms": latency["p50"], "p99_ms": latency["p99"], "LIST_s": line_of_list["obj_per_s"]}
    return {**costs, "count_s": _count_seconds(on_head, accounting["bucket"], objects)}


def _count_seconds(on_head: List[str], bucket: str, objects: int) -> float:
    """Return the median seconds of a count of a bucket's objects."""
    seconds = []
    for _ in range(COUNTED):
        done = subprocess.run([*on_head, "sh", "-c", _COUNT, "sh", bucket], capture_output=True, text=True, check=True)
        answer = json.loads(done.stdout)
        assert answer["reply"]["usage"]["rgw.main"]["num_objects"] == objects, answer
        seconds.append(answer["ns"] / 1e9)
    return statistics.median(seconds)
