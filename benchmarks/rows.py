"""How fast request rows are reduced: this project's reader beside `warp analyze`, the same rows, in turns, in one run.

Prints the median of each and the ratio. Usage: ./run bench rows   (or: python benchmarks/rows.py [ROWS])
"""

from __future__ import annotations

import gzip
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import List

from cbt_plugins.analysis.reduce import Grid, reduce_rows
from cbt_plugins.cycle.preflight import own_warp
from cbt_plugins.load.jobs import COLUMNS

ROUNDS = 3
OPS = ["GET"] * 45 + ["PUT"] * 35 + ["STAT"] * 15 + ["DELETE"] * 5


def write_rows(path: Path, rows: int) -> None:
    """Rows as warp prints them: 5500 a second, four operations, two hosts, one in ten thousand failed."""
    chance = random.Random(1)
    clock = 1_700_000_000.0
    with gzip.open(path, "wt", compresslevel=1) as file:
        file.write("\t".join(COLUMNS) + "\n")
        for number in range(rows):
            clock += 1 / 5500
            took = chance.lognormvariate(-5.0, 0.8)
            op = OPS[chance.randrange(100)]
            size = 4096 if op in ("GET", "PUT") else 0
            error = "connection refused" if chance.random() < 1e-4 else ""
            first = stamp(clock + took / 2) if op == "GET" else ""
            cells = [number, number % 32, op, "", 1, size, f"http://rgw{number % 2}:7480", f"keep/{number}.rnd", error]
            cells += [stamp(clock), first, stamp(clock + took), int(took * 1e9), 0]
            file.write("\t".join(map(str, cells)) + "\n")


def stamp(at: float) -> str:
    whole = int(at)
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(whole)) + f".{int((at - whole) * 1e9):09d}Z"


def timed(work: object) -> float:
    begun = time.perf_counter()
    assert callable(work)
    work()
    return time.perf_counter() - begun


def main() -> int:
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else 300_000
    warp, zstd = own_warp(), shutil.which("zstd")
    with tempfile.TemporaryDirectory() as scratch:
        ours, theirs = Path(scratch) / "rows.csv.gz", Path(scratch) / "rows.csv.zst"
        write_rows(ours, rows)
        grid = Grid(1_700_000_000.0, 1_700_000_000.0 + rows / 5500)
        contenders = {"cbt-plugins": lambda: reduce_rows(ours, grid, 0.0)}
        if warp and zstd:
            subprocess.run(f"zcat {ours} | {zstd} -q -o {theirs}", shell=True, check=True)
            line = [str(warp), "analyze", "--no-color", str(theirs)]
            contenders["warp analyze"] = lambda: subprocess.run(line, stdout=subprocess.DEVNULL, check=True)
        else:
            print("warp or zstd is missing: nothing to compare with")
        took: dict[str, List[float]] = {name: [] for name in contenders}
        for _ in range(ROUNDS):
            for name, work in contenders.items():
                took[name].append(timed(work))
    medians = {name: statistics.median(values) for name, values in took.items()}
    print(f"{rows} rows, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, median of {ROUNDS} in turns")
    for name, median in medians.items():
        print(f"  {name:14} {median:7.2f} s  {rows / median:10,.0f} rows/s")
    if len(medians) == 2:
        print(f"  ratio warp analyze / cbt-plugins: {medians['warp analyze'] / medians['cbt-plugins']:.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
