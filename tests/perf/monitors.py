"""What all monitors together take of the throughput, and of the processors: on and off by turns on one lab.

warp mixed runs PAIRS times with resources, internals, backlog and recovery on every node they watch, and as often
without, in the order A B B A. Then once more with them, for STEADY seconds, in which their processes' CPU time is
taken: also of what keeps their connections. Prints each pair, the ratio on / off with its 95 % interval, both shares of
the processors, and what that shows. Usage: ./run bench monitors
(or: python tests/perf/monitors.py [PAIRS [SECONDS [STEADY]]])
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
NODES = ("node0", "node1", "node2", "rgw1", "rgw2", "client1")
#: the stat files of the agents of a node, each behind its monitor's name
_AGENTS = """\
cd /var/tmp/bench-monitors && for file in monitors-*/*/*.pid; do
  read -r pid since <"$file" && echo "$file $(cat /proc/$pid/stat)"
done
"""
#: of /proc/PID/stat behind the name: user and system time, the same of children that have ended
_TICKS = slice(11, 15)
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


def ticks() -> Dict[str, int]:
    """Return the CPU time of each monitor's processes so far, in ticks."""
    found: Dict[str, int] = {}
    stats = [("connections", path) for path in connections_here()]
    for node in NODES:
        said = subprocess.run(["ssh", node, _AGENTS], capture_output=True, text=True, check=True).stdout
        stats += [(line.split("/")[1], line) for line in said.splitlines()]
    for name, stat in stats:
        words = stat[stat.rindex(")") + 2 :].split()
        found[name] = found.get(name, 0) + sum(map(int, words[_TICKS]))
    return found


def connections_here() -> List[str]:
    """Return the stat files of the processes beside this one that keep connections."""
    own = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()
    return [Path(f"/proc/{pid}/stat").read_text() for pid in own]


def inside(folder: Path, pairs: int, seconds: int, steady: int) -> None:
    """In node0: print a line of JSON for each load: {"on", "rate", "cpu": {monitor: seconds}, "seconds"}."""
    about = json.loads((folder / "lab" / "s3.json").read_text())
    keys = (about["access_key"], about["secret_key"])
    load(folder, keys, 5)  # what only the first one pays
    for number in range(2 * pairs + 1):
        last = number == 2 * pairs
        on = last or number % 4 in (0, 3)
        watched = lifecycle.watch(everything, CLUSTER, {}, "/var/tmp/bench-monitors", folder / f"samples-{number}")
        with watched if on else nullcontext():
            time.sleep(BEGIN)
            before, begun = ticks() if last else {}, time.monotonic()
            rate = load(folder, keys, steady if last else seconds)
            after, lasted = ticks() if last else {}, time.monotonic() - begun
        cpu = {name: (after[name] - before[name]) / os.sysconf("SC_CLK_TCK") for name in after}
        print(json.dumps({"on": on, "rate": rate, "cpu": cpu, "seconds": lasted}), flush=True)


def told(lines: List[Dict[str, Any]]) -> None:
    *lines, steady = lines
    ratios = []
    for first, second in zip(lines[::2], lines[1::2]):
        on, off = (first, second) if first["on"] else (second, first)
        ratios.append(math.log(on["rate"] / off["rate"]))
        print(f"  {on['rate']:8.1f} obj/s with, {off['rate']:8.1f} without: {100 * math.expm1(ratios[-1]):+6.1f} %")
    if len(ratios) > 1:
        print(f"  throughput with / without: {shown(ratios)}")
    shares = {name: used / steady["seconds"] / (os.cpu_count() or 1) for name, used in steady["cpu"].items()}
    share = sum(shares.values())
    each = ", ".join(f"{name} {100 * its:.2f}" for name, its in sorted(shares.items()))
    than = "more than" if share > ALLOWED else "at most"
    print(f"  CPU time: {100 * share:.2f} % of all processors in {steady['seconds']:.0f} s, {than} {100 * ALLOWED:g} %")
    print(f"  ({each})")


def shown(ratios: List[float]) -> str:
    """Return the mean of the logarithms' ratios with its 95 % interval, and what it says of ALLOWED."""
    mean, n = statistics.fmean(ratios), len(ratios)
    half = float(stats.t.ppf(0.975, n - 1)) * statistics.stdev(ratios) / math.sqrt(n)
    low, high = (math.expm1(end) for end in (mean - half, mean + half))
    text = f"{100 * math.expm1(mean):+.2f} % [{100 * low:+.2f}, {100 * high:+.2f}] of {n} pairs: "
    if high < -ALLOWED:
        return f"{text}more than {100 * ALLOWED:g} %"
    if low > -ALLOWED:
        return f"{text}at most {100 * ALLOWED:g} %"
    return f"{text}inconclusive, about {math.ceil(n * (half / ALLOWED) ** 2):,} pairs would tell"


def main() -> int:
    if sys.argv[1:2] == ["inside"]:
        inside(Path(sys.argv[2]), *map(int, sys.argv[3:]))
        return 0
    lacking, _ = missing(ssh=True)
    warp = own_program("warp")
    if lacking or warp is None:
        print(f"no lab on this machine: {'; '.join(lacking) or 'no warp'}")
        return 0
    pairs, seconds, steady = (int(word) for word in [*sys.argv[1:], *("8", "20", "180")[len(sys.argv) - 1 :]])
    print(f"monitors on and off, {pairs} pairs of {seconds} s; {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory(dir="/var/tmp") as scratch:
        folder = Path(scratch)
        (folder / "warp").write_bytes(warp.read_bytes())
        (folder / "warp").chmod(0o755)
        lab = [sys.executable, "-m", "cbt_plugins.tools", "lab", "run", "--dir", str(folder / "lab"), "--wipe"]
        lab += ["--osd-nodes", "2", "--clients", "1", "--bind", str(folder), "--", sys.executable, __file__, "inside"]
        lab += [str(folder), str(pairs), str(seconds), str(steady)]
        done = subprocess.run(lab, cwd=PROJECT, capture_output=True, text=True)
        lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        if done.returncode or len(lines) != 2 * pairs + 1:
            sys.exit(f"exit status {done.returncode}\n{done.stderr[-3000:]}")
        told(lines)
    return 0


if __name__ == "__main__":
    sys.exit(main())
