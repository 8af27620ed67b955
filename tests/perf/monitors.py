"""What all monitors together take of the throughput, and of the processors: on and off by turns on one lab.

warp mixed runs PAIRS times with resources, internals, backlog and recovery on every node they watch, and as often
without, in the order A B B A. Prints each pair, the ratio on / off with its 95 % interval, and the processor time that
the agents say they used. Usage: ./run bench monitors   (or: python tests/perf/monitors.py [PAIRS [SECONDS]])
"""

from __future__ import annotations

import json
import math
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Dict, List, Tuple

from scipy import stats

from cbt_plugins.host import own_program
from cbt_plugins.monitors import lifecycle
from cbt_plugins.monitors.backlog import Backlog
from cbt_plugins.monitors.internals import Internals
from cbt_plugins.monitors.recovery import Recovery
from cbt_plugins.monitors.resources import Resources
from cbt_plugins.tools.lab.needs import missing

PROJECT = Path(__file__).parents[2]
#: what monitors may take of the throughput
ALLOWED = 0.01
#: seconds in which the monitors begin, and their first look at everything ends
BEGIN = 5.0
CLUSTER: Dict[str, Any] = {
    "user": "root",
    "head": "node0",
    "clients": ["client1"],
    "osds": ["node1", "node2"],
    "mons": ["node0"],
    "rgws": ["rgw1", "rgw2"],
    "conf_file": "/etc/ceph/ceph.conf",
}
_RATE = re.compile(r"Total.*?([\d.]+) obj/s", re.DOTALL)


def load(folder: Path, keys: Tuple[str, str], seconds: int) -> float:
    """Return the objects a second of warp mixed on client1."""
    access, secret = keys
    warp = [str(folder / "warp"), "mixed", "--host", "rgw1:7480,rgw2:7480", "--obj.size", "16KiB", "--objects", "300"]
    warp += ["--duration", f"{seconds}s", "--concurrent", "8", "--no-color", "--disable-sha256-payload"]
    environment = f"WARP_ACCESS_KEY={access} WARP_SECRET_KEY={secret}"
    there = f"cd /var/tmp && {environment} {' '.join(warp)}; rm -f /var/tmp/warp-*.zst"
    done = subprocess.run(["ssh", "client1", there], capture_output=True, text=True, check=True)
    found = _RATE.search(done.stdout[done.stdout.rindex("Total") :])
    assert found, done.stdout[-1000:]
    return float(found.group(1))


def everything() -> List[Any]:
    return [kind({}, CLUSTER, {}) for kind in (Resources, Internals, Backlog, Recovery)]


def inside(folder: Path, pairs: int, seconds: int) -> None:
    """In node0: print a line of JSON for each load: {"on", "rate", "cpu": {monitor: seconds}, "seconds"}."""
    about = json.loads((folder / "lab" / "s3.json").read_text())
    keys = (about["access_key"], about["secret_key"])
    load(folder, keys, 5)  # what only the first one pays
    for number in range(2 * pairs):
        on = number % 4 in (0, 3)
        local = folder / f"samples-{number}"
        watched = lifecycle.watch(everything, CLUSTER, {}, "/var/tmp/bench-monitors", local)
        begun = time.monotonic()
        with watched if on else nullcontext():
            time.sleep(BEGIN)
            rate = load(folder, keys, seconds)
        lasted = time.monotonic() - begun
        used: Dict[str, float] = {}
        for path in local.glob("*/*.jsonl"):
            name = path.parent.name.partition(".")[0]
            used[name] = used.get(name, 0.0) + json.loads(path.read_text().splitlines()[-1]).get("cpu", 0.0)
        line = {"on": on, "rate": rate, "cpu": used, "seconds": lasted}
        print(json.dumps(line), flush=True)


def told(lines: List[Dict[str, Any]]) -> None:
    ratios = []
    for first, second in zip(lines[::2], lines[1::2]):
        on, off = (first, second) if first["on"] else (second, first)
        ratios.append(math.log(on["rate"] / off["rate"]))
        print(f"  {on['rate']:8.1f} obj/s with, {off['rate']:8.1f} without: {100 * math.expm1(ratios[-1]):+6.1f} %")
    mean, n = statistics.fmean(ratios), len(ratios)
    half = float(stats.t.ppf(0.975, n - 1)) * statistics.stdev(ratios) / math.sqrt(n) if n > 1 else math.inf
    low, high = (100 * math.expm1(end) for end in (mean - half, mean + half))
    print(f"  ratio with / without: {100 * math.expm1(mean):+.2f} % [{low:+.2f}, {high:+.2f}] of {n} pairs")
    watched = [line for line in lines if line["on"]]
    time_there = sum(line["seconds"] for line in watched) * (os.cpu_count() or 1)
    shares = {name: sum(line["cpu"][name] for line in watched) / time_there for name in watched[0]["cpu"]}
    over = f", more than {100 * ALLOWED:g} %" if sum(shares.values()) > ALLOWED else ""
    each = ", ".join(f"{name} {100 * share:.2f}" for name, share in sorted(shares.items()))
    used = f"{100 * sum(shares.values()):.2f} %"
    print(f"  of all processors the agents of six nodes used, with their start: {used}{over}")
    print(f"  ({each})")


def main() -> int:
    if sys.argv[1:2] == ["inside"]:
        inside(Path(sys.argv[2]), *map(int, sys.argv[3:]))
        return 0
    lacking, _ = missing(ssh=True)
    warp = own_program("warp")
    if lacking or warp is None:
        print(f"no lab on this machine: {'; '.join(lacking) or 'no warp'}")
        return 0
    pairs, seconds = (int(word) for word in [*sys.argv[1:], *("8", "20")[len(sys.argv) - 1 :]])
    print(f"monitors on and off, {pairs} pairs of {seconds} s; {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory(dir="/var/tmp") as scratch:
        folder = Path(scratch)
        (folder / "warp").write_bytes(warp.read_bytes())
        (folder / "warp").chmod(0o755)
        lab = [sys.executable, "-m", "cbt_plugins.tools", "lab", "run", "--dir", str(folder / "lab"), "--wipe"]
        lab += ["--osd-nodes", "2", "--clients", "1", "--bind", str(folder), "--", sys.executable, __file__, "inside"]
        lab += [str(folder), str(pairs), str(seconds)]
        done = subprocess.run(lab, cwd=PROJECT, capture_output=True, text=True)
        lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        if done.returncode or len(lines) != 2 * pairs:
            sys.exit(f"exit status {done.returncode}\n{done.stderr[-3000:]}")
        told(lines)
    return 0


if __name__ == "__main__":
    sys.exit(main())
