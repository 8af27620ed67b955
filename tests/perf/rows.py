"""How fast request rows are reduced: cbt-rows beside `warp analyze` and decompression alone.

The same rows for all, in turns, in one run; each has a process of its own. Prints medians, CPU seconds, peak memory,
rows per second and the ratio to `warp analyze` (in its default mode).
Usage: ./run bench rows [ROWS]
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Dict, List, NamedTuple, Sequence

from cbt_plugins.programs import cache_dir

ROWS = 10_000_000
ROUNDS = 3
#: `warp analyze` takes minutes, and its times hardly differ
WARP_ROUNDS = 1
WRITER = Path(__file__).parent / "inputs" / "rows.py"


class Cost(NamedTuple):
    """What one run took."""

    wall: float
    cpu: float  # seconds of all its processes
    peak: float  # MiB of the largest of its processes


def measured(argv: Sequence[object]) -> Cost:
    """Run a program. This process stays small, because a child's peak begins with its parent's size."""
    begun = time.perf_counter()
    with subprocess.Popen(list(map(str, argv)), stdout=subprocess.DEVNULL) as child:
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
    wall = time.perf_counter() - begun
    if child.returncode:
        raise SystemExit(f"{argv[0]} failed: {child.returncode}")
    return Cost(wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)


def main() -> int:
    """Exit status 1 when something to compare with is missing."""
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else ROWS
    warp, reducer = (cache_dir() / "bin" / name for name in ("warp", "cbt-rows"))
    if not warp.is_file() or not reducer.is_file() or not shutil.which("zstd"):
        print("warp, cbt-rows or zstd is missing: ./run setup builds and installs them")
        return 1
    with tempfile.TemporaryDirectory() as scratch:
        whole = Path(scratch) / "rows.csv.zst"
        subprocess.run([sys.executable, str(WRITER), str(whole), str(rows)], check=True)
        size, load = whole.stat().st_size / 2**20, os.getloadavg()[0]
        print(f"{rows} rows, {size:.0f} MiB, {os.cpu_count()} cores, load {load:.1f}", flush=True)
        runs: Dict[str, List[object]] = {
            "cbt-rows": [reducer, "reduce", "-o", Path(scratch) / "rows.aggregates", whole],
            "zstdcat | wc -l": ["sh", "-c", f"zstd -dcq {whole} | wc -l"],
            "warp analyze": [warp, "analyze", "--no-color", whole],
        }
        costs: Dict[str, List[Cost]] = {name: [] for name in runs}
        for turn in range(ROUNDS):
            for name, argv in runs.items():
                if name != "warp analyze" or turn < WARP_ROUNDS:
                    costs[name].append(measured(argv))
    medians = {
        name: Cost(*(statistics.median(values) for values in zip(*found))) for name, found in costs.items()
    }
    for name, cost in medians.items():
        ratio, speed = medians["warp analyze"].wall / cost.wall, rows / cost.wall
        print(
            f"  {name:16} {cost.wall:8.2f} s  {cost.cpu:8.2f} s CPU  {cost.peak:6.0f} MiB  {speed:12,.0f} rows/s  "
            f"{ratio:6.1f} times warp analyze  ({len(costs[name])} runs)"
        )
    print(f"  by CPU time: cbt-rows {medians['warp analyze'].cpu / medians['cbt-rows'].cpu:.1f} times warp analyze")
    return 0


if __name__ == "__main__":
    sys.exit(main())
