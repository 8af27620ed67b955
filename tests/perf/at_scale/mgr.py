"""CPU time of a real ceph-mgr for the two questions of the sampler, by the number of OSDs in a lab. Needs root.

Each OSD of a lab watches all others, so a reply grows faster than the number of OSDs: `ms of MB` is what a larger
cluster can be computed from. Of the mgr's CPU time, the time that it takes without questions is subtracted.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any, Dict, List, Tuple

from inputs.labs import TOOLS

from .costs import Curves, Extent, cpu_of

NODES, OSDS_OF_NODE = 4, (1, 3, 8)
#: of each question, and the seconds in which the mgr is watched without questions
TIMES, SECONDS = 400, 30
#: asks the mgr as the agent does, and prints the bytes of a reply
_ASK = """\
import json, sys
import rados
question = json.dumps({"prefix": "pg dump", "dumpcontents": [sys.argv[1]], "format": "json"})
with rados.Rados(conffile="/etc/ceph/ceph.conf") as cluster:
    for _ in range(int(sys.argv[2])):
        status, reply, why = cluster.mgr_command(question, b"")
        assert status == 0, why
print(len(reply))
"""


def main(extent: Extent) -> None:
    print(f"  CPU milliseconds of ceph-mgr for each of {TIMES} questions, and MB of a reply")
    formats = {"idle ms of s": ".1f", "sum ms": ".2f", "sum MB": ".4f", "osds ms": ".2f", "osds MB": ".4f"}
    curves = Curves("OSDs", {**formats, "ms of MB": ".1f"})
    for of_node in extent.sizes(OSDS_OF_NODE):
        with tempfile.TemporaryDirectory(dir="/var/tmp") as scratch:
            curves.add(NODES * of_node, **_costs(Path(scratch) / "lab", of_node))
    curves.end()


def _costs(lab: Path, of_node: int) -> Dict[str, float]:
    shape = ["--osd-nodes", str(NODES), "--osds-per-node", str(of_node), "--no-rgw", "--clients", "1"]
    try:
        subprocess.run([*TOOLS, "lab", "up", "--dir", str(lab), *shape], check=True, stdout=subprocess.DEVNULL)
        mgr = _mgr_of(lab)
        before = cpu_of(mgr)
        time.sleep(SECONDS)
        idle = (cpu_of(mgr) - before) / SECONDS
        costs = {"idle_ms_of_s": 1000 * idle}
        for what in ("sum", "osds"):
            costs[f"{what}_ms"], costs[f"{what}_MB"] = _asked(lab, mgr, what, idle)
    finally:
        subprocess.run([*TOOLS, "lab", "down", "--wipe", "--dir", str(lab)], check=False, capture_output=True)
    return {**costs, "ms_of_MB": costs["osds_ms"] / costs["osds_MB"]}


def _mgr_of(lab: Path) -> int:
    """Return the pid of the mgr."""
    line = [*TOOLS, "lab", "status", "--dir", str(lab), "--format", "json"]
    status: Dict[str, Any] = json.loads(subprocess.run(line, check=True, capture_output=True, text=True).stdout)
    (pid,) = [node["daemons"]["mgr"] for node in status["nodes"].values() if "mgr" in node["daemons"]]
    return int(pid)


def _asked(lab: Path, mgr: int, what: str, idle: float) -> Tuple[float, float]:
    """Return milliseconds of CPU time of the mgr for each question, and MB of a reply."""
    on_head: List[str] = [*TOOLS, "lab", "exec", "--dir", str(lab), "node0", "--"]
    before, begun = cpu_of(mgr), time.monotonic()
    line = [*on_head, "/usr/bin/python3", "-c", _ASK, what, str(TIMES)]
    size = int(subprocess.run(line, check=True, capture_output=True, text=True).stdout)
    used = cpu_of(mgr) - before - idle * (time.monotonic() - begun)
    return 1000 * used / TIMES, size / 1e6
