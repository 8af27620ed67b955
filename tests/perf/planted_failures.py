"""How often a gate finds a failure that costs more: two planted changes, on a lab.

    ./run bench planted_failures [MINUTES [FAILURE ...]]
    ./run bench planted_failures table tests/data/failures/planted/*.jsonl

- `osd out`: one OSD is marked out and in again. OSDs sleep after each object that they recover, in new for longer. How
  long a recovery takes also depends on what the cluster did before, so each archive begins with the same snapshot.
- `osd hangs`: one OSD is paused. Requests for its PGs wait until it is marked down, in new for twice as long.

Archives are made in turns, base and new, new and base, until the next block would end after MINUTES (40). Each is a run
of `resilience:` that repeats the failure three times. Without FAILURE each of the two has its MINUTES.

A gate compares base and new of each block, and base with base, new with new of two blocks one after the other, in which
nothing differs. Gates on repetitions that are drawn from all archives say how many repetitions a gate needs: their
repetitions are real, the archives are not. The folder of the archives is kept if it is given in ARCHIVES. All numbers
are written to planted.jsonl in this folder.
"""

from __future__ import annotations

import json
import math
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Dict, List, Mapping, NamedTuple, Sequence, Tuple

from failures import CLUSTER, against_limit, run
from inputs.labs import TOOLS, lab_with_archives

from cbt_plugins.compare.statistics import Verdict, decide_verdicts
from cbt_plugins.metrics import METRICS
from cbt_plugins.results.record_reader import records_of
from cbt_plugins.tools.lab.requirements import missing

BASE, NEW = "base", "new"
#: gates of repetitions that are drawn, and how many of each side they have
DRAWN = 1000
SIZES = (3, 4, 5, 6, 8)
#: one OSD of the lab, the same in all archives
OSD = 3
#: the default of `resilience:`
MIX = {"get": 60, "put": 20, "delete": 20}


class Plant(NamedTuple):
    """A failure, what is measured of it and with which limit, and the option that makes it worse."""

    fault: Mapping[str, Any]
    op: str
    metric: str
    limit: str
    option: str
    values: Mapping[str, float]  # of both sides
    lasts: str
    mix: Mapping[str, int]
    restored: bool  # whether each archive begins with the same snapshot of the lab


PLANTS = {
    # it lasts until all data has moved: else the OSD keeps what another one has not got yet
    "osd out": Plant(
        {"kind": "out", "osds": [OSD]},
        "cluster",
        "recovery_s",
        "10%",
        "osd_recovery_sleep",
        {BASE: 0.15, NEW: 0.21},
        "60s",
        {"get": 100},  # writes would make a recovery of their own
        restored=True,
    ),
    "osd hangs": Plant(
        {"kind": "pause", "osds": [OSD]},
        "total",
        "p99_ms",
        "50%",
        "osd_heartbeat_grace",
        {BASE: 6, NEW: 14},
        "22s",
        MIX,
        restored=False,
    ),
}
#: four OSDs, with the rest of a cluster as small as it gets
SHAPE = ["--osds-per-node", "1", "--rgws", "1", "--clients", "1"]
ITS_CLUSTER = {**CLUSTER, "mons": ["node0"], "rgws": ["rgw1"]}
#: of `resilience:`; a paused OSD must not take all workers
KEYS: Dict[str, Any] = {
    "s3": {"urls": ["http://rgw1:7480"], "user": "cbt"},
    "fill": {"objects": 100},
    "workers": 256,
    "baseline": "10s",
}
Places = Tuple[str, str, int]  # (failure, side, block)


def snapshots(verb: str, lab: Path, *words: str) -> None:
    """Take the one snapshot of a lab, or restore it."""
    line = [*TOOLS, "lab", verb, "begin", "--dir", str(lab), "--snapshots", str(lab.parent / "snapshots"), *words]
    subprocess.run(line, check=True, capture_output=True)


def plant(lab: Path, name: str, side: str) -> None:
    """Set the option of a side in all daemons, until they are started anew."""
    for daemons in ("osd.*", "mon.*"):
        words = ["ceph", "tell", daemons, "config", "set", PLANTS[name].option, f"{PLANTS[name].values[side]:g}"]
        line = [*TOOLS, "lab", "exec", "--dir", str(lab), "node0", "--", *words]
        subprocess.run(line, check=True, capture_output=True)


def gate(name: str, base: Path, new: Path) -> int:
    """Return the exit status of a gate on the planted metric of a failure: 1 is a regression."""
    limit = f"--limit={name}.{PLANTS[name].op}.{PLANTS[name].metric}={PLANTS[name].limit}"
    return subprocess.run([*TOOLS, "gate", str(base), str(new), limit], capture_output=True, check=False).returncode


def measure(folder: Path, lab: Path, name: str, minutes: float) -> None:
    """Make blocks of one failure until the next one would end after `minutes`; print each, and the table."""
    begin, longest = time.monotonic(), 0.0
    blocks: List[Dict[str, Path]] = []
    made: Dict[Places, List[float]] = {}
    planted: List[int] = []
    equal: List[int] = []
    failures = {name: dict(PLANTS[name].fault)}
    parts = {"start": "3s", "failure": PLANTS[name].lasts, "recovery": "5s"}
    keys = {**KEYS, "parts": parts, "mix": dict(PLANTS[name].mix)}
    (folder / name).mkdir(exist_ok=True)
    if PLANTS[name].restored:
        snapshots("snapshot", lab)
    while time.monotonic() - begin + longest < 60 * minutes:
        start, block, of_block = time.monotonic(), len(blocks) + 1, {}
        for place, side in enumerate((BASE, NEW) if block % 2 else (NEW, BASE)):
            if PLANTS[name].restored:
                snapshots("restore", lab, "--bind", str(folder))
            plant(lab, name, side)
            of_block[side] = run(folder / name, lab, 2 * block + place - 1, failures, ITS_CLUSTER, **keys)
            read(of_block[side], side, block, made)
        longest = max(longest, time.monotonic() - start)
        sides = {side: made.get((name, side, block), []) for side in (BASE, NEW)}
        if min(map(len, sides.values())) < 2:
            print(f"block {block}: a side lacks a number: {sides}", flush=True)
            break
        blocks.append(of_block)
        with (folder / "planted.jsonl").open("a") as file:
            for side, values in sides.items():
                line = {"failure": name, "block": block, "side": side, "metric": PLANTS[name].metric, "values": values}
                file.write(json.dumps(line) + "\n")
        planted.append(gate(name, of_block[BASE], of_block[NEW]))
        if len(blocks) > 1:
            equal += [gate(name, blocks[-2][side], of_block[side]) for side in (BASE, NEW)]
        took = f"{time.monotonic() - start:.0f} s, load {os.getloadavg()[0]:.1f}"
        print(f"{name}, block {block}: {took}; {sides}; exit status of the gate: {planted[-1]}", flush=True)
    for kind, statuses in (("planted", planted), ("equal", equal)):
        print(f"{name}: of {len(statuses)} gates on {kind} archives, {statuses.count(1)} had a regression")
    if blocks:
        print_table([made])


def read(archive: Path, side: str, block: int, made: Dict[Places, List[float]]) -> None:
    """Add the planted metrics of an archive."""
    for record in records_of(archive):
        for measurement in record.measurements:
            of_failure = PLANTS.get(measurement.phase)
            if of_failure and (measurement.op, measurement.metric) == (of_failure.op, of_failure.metric):
                made[measurement.phase, side, block] = list(measurement.repeats or ())


def found(name: str, base: Sequence[float], new: Sequence[float]) -> bool:
    """Return whether a gate on these repetitions has a regression."""
    metric = PLANTS[name].metric
    against = {metric: against_limit(metric, PLANTS[name].limit, base, new)}
    judged = decide_verdicts(against, {metric: METRICS[metric].direction}, 1e-12, 0.05)
    return judged[metric].verdict is Verdict.WORSE


def print_table(labs: Sequence[Mapping[Places, List[float]]]) -> None:
    """Print for each failure what both sides are, the gates of single blocks, and gates that are drawn from all."""
    for name in dict.fromkeys(name for made in labs for name, _, _ in made):
        values = {side: [v for made in labs for key, of in made.items() if key[:2] == (name, side) for v in of]
                  for side in (BASE, NEW)}  # fmt: skip
        blocks = [(made[name, BASE, block], of) for made in labs for (n, side, block), of in made.items()
                  if (n, side) == (name, NEW)]  # fmt: skip
        ratios = [statistics.median(new) / statistics.median(base) for base, new in blocks]
        scatter = [math.expm1(statistics.stdev(map(math.log, values[side]))) for side in (BASE, NEW)]
        print(
            f"{name}, {PLANTS[name].metric}, limit {PLANTS[name].limit}: base {statistics.median(values[BASE]):.4g} "
            f"(scatter {100 * scatter[0]:.0f} %), new {statistics.median(values[NEW]):.4g} ({100 * scatter[1]:.0f} %)"
        )
        print(f"  new / base: median {statistics.median(ratios):.2f}, {min(ratios):.2f} to {max(ratios):.2f}")
        print(f"  found in {sum(found(name, *both) for both in blocks)} of {len(blocks)} blocks")
        draw = random.Random(0)
        for size in SIZES:
            if size <= min(map(len, values.values())):
                hits = sum(found(name, *(draw.sample(values[s], size) for s in (BASE, NEW))) for _ in range(DRAWN))
                print(f"  {DRAWN} gates drawn, {size} repetitions of each side: found in {100 * hits / DRAWN:.1f} %")


def print_recorded(files: Sequence[str]) -> None:
    """Print the table of recorded numbers; a line without a block says where they are from."""
    labs = []
    for file in files:
        lines = list(map(json.loads, Path(file).read_text().splitlines()))
        labs.append({(of["failure"], of["side"], of["block"]): of["values"] for of in lines if "block" in of})
    print_table(labs)


def main(args: Sequence[str]) -> int:
    if args[:1] == ["table"]:
        print_recorded(args[1:])
        return 0
    lacking, _ = missing(ssh=True)
    if lacking:
        print(f"no lab on this machine: {'; '.join(lacking)}")
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by a signal"))
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}", flush=True)
    with lab_with_archives("planted", SHAPE) as (folder, lab):
        try:
            for name in args[1:] or PLANTS:
                measure(folder, lab, name, float(args[0]) if args else 40.0)
        finally:
            shutil.rmtree(folder / "snapshots", ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
