"""How far a campaign can be trusted, measured on a lab: docs/TRUST.md has the results.

    python tests/perf/trust.py equal [CAMPAIGNS [BLOCKS [SEED]]]  campaigns with two equal arms: false verdicts
    python tests/perf/trust.py planted [BLOCKS]                   slowdowns of OSDs: found, after how many blocks
    python tests/perf/trust.py pairs [PAIRS]                      both arms at once against one after the other

`./run bench trust` makes all three, which takes hours. A slowdown is a share of the messages that an OSD takes 1 ms
later (`osd_debug_inject_dispatch_delay_probability`). Shuffled orders of the blocks that were made say how often a
campaign finds a slowdown.
"""

from __future__ import annotations

import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Dict, Iterator, List, Sequence

import numpy as np
import yaml

from cbt_plugins.compare.statistics.sequential import Design, decide
from cbt_plugins.metrics import METRICS
from cbt_plugins.results.records import records_of
from cbt_plugins.tools.lab.needs import missing

TOOLS = [sys.executable, "-m", "cbt_plugins.tools"]
#: share of the messages that an OSD takes 1 ms later
PLANTED = {"a": 0.03, "b": 0.06, "c": 0.12, "d": 0.3}
#: shuffled orders of the blocks
SHUFFLED = 1000
SHAPE = ["--osd-nodes", "2", "--rgws", "1", "--clients", "1"]
CONFIG: Dict[str, Any] = {
    "cluster": {
        "user": "root",
        "head": "node0",
        "clients": ["client1"],
        "osds": ["node1", "node2"],
        "mons": ["node0"],
        "rgws": ["rgw1"],
        "use_existing": True,
        "iterations": 1,
        "conf_file": "/etc/ceph/ceph.conf",
        "tmp_dir": "/var/tmp/cbt",
    },
    "benchmarks": {
        "warp": {
            "s3": {"urls": ["http://rgw1:7480"], "user": "cbt"},
            "engine": "cbt-load",
            "size": "16KiB",
            "workers": 4,
            "cycle": {
                "phases": [
                    {"fill": {"objects": 200}},
                    {"hybrid": {"duration": "6s", "warmup": "1s", "mix": {"get": 60, "put": 40}}, "name": "measure"},
                ]
            },
        }
    },
}


@contextmanager
def labs(folder: Path, number: int = 1) -> Iterator[List[Path]]:
    """Labs that run side by side."""
    made = [folder / f"lab{i}" for i in range(number)]
    try:
        for lab in made:
            line = [*TOOLS, "lab", "up", "--dir", str(lab), "--bind", str(folder), *SHAPE]
            subprocess.run(line, check=True, capture_output=True)
        yield made
    finally:
        for lab in made:
            subprocess.run([*TOOLS, "lab", "down", "--wipe", "--dir", str(lab)], check=False, capture_output=True)


def campaign(folder: Path, lab: Path, section: Dict[str, Any]) -> Dict[str, Any]:
    """Run a campaign in a folder; returns what `campaign status --format json` says."""
    folder.mkdir()
    through = f"{' '.join(TOOLS)} lab exec --dir {lab} node0 --"
    (folder / "campaign.yaml").write_text(yaml.safe_dump({**CONFIG, "campaign": {"through": through, **section}}))
    line = [*TOOLS, "campaign", "run", str(folder / "campaign.yaml"), str(folder / "state")]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 3):
        sys.exit(f"campaign: exit status {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
    status: Dict[str, Any] = json.loads((folder / "state" / "status.json").read_text())
    return status


def row_name(row: Dict[str, Any]) -> str:
    return f"{row['op']} {METRICS[row['metric']].title}"


def equal(folder: Path, campaigns: int = 20, most: int = 4, first: int = 1) -> None:
    """Campaigns with equal arms: any "better" or "worse" is false."""
    verdicts: Counter[str] = Counter()
    alarms = 0
    with labs(folder) as (lab,):
        for number in range(first, first + campaigns):
            section = {"arms": {"one": {}, "two": {}}, "blocks": most, "seed": number}
            status = campaign(folder / f"equal{number:02d}", lab, section)
            found = [row["verdict"] or "inconclusive" for row in status["rows"]]
            verdicts.update(found)
            alarms += any(its in ("better", "worse") for its in found)
            rows = ", ".join(f"{row_name(row)} {_change(row)} {its}" for row, its in zip(status["rows"], found))
            print(f"{number:3} {status['blocks']} blocks, {status['block_seconds']:.0f} s a block: {rows}", flush=True)
    print(f"{alarms} of {campaigns} campaigns with a false verdict; rows: {dict(verdicts)}")


def _change(row: Dict[str, Any]) -> str:
    scatter = "-" if row["scatter"] is None else f"{100 * row['scatter']:.1f} %"
    return f"{100 * row['change']:+.1f} % (scatter {scatter})"


def planted(folder: Path, most: int = 20) -> None:
    """One campaign with slowdowns, all of its blocks: the change of each, and how often, and when, it is found."""
    arms: Dict[str, Any] = {"usual": {}}
    for name, share in PLANTED.items():
        option = "osd_debug_inject_dispatch_delay_"
        config = {"osd": {f"{option}duration": 0.001, f"{option}probability": share}}
        arms[name] = {"benchmarks": {"warp": {"settings": {"config": config}}}}
    with labs(folder) as (lab,):  # a margin and an alpha that decide nothing: all blocks are made
        section = {"arms": arms, "blocks": most, "seed": 1, "alpha": "0.001%", "margin": "0.01%"}
        status = campaign(folder / "planted", lab, section)
    print(f"{status['blocks']} blocks of {len(arms)} cycles, {status['block_seconds']:.0f} s a block")
    for name, share in PLANTED.items():
        rows = {row_name(row): row for row in status["rows"] if row["contrast"] == name}
        for title, row in rows.items():
            print(f"{100 * share:4.0f} % of messages 1 ms later: {title} {_change(row)}")
        print(f"     {found_in(rows, Design(most))}", flush=True)


def found_in(rows: Dict[str, Dict[str, Any]], design: Design) -> str:
    """Return how often shuffled orders of the blocks give "worse" in any row, and after how many blocks."""
    blocks = list(range(len(next(iter(rows.values()))["log_ratios"])))
    draw = random.Random(0)
    after: List[int] = []
    directions = {name: METRICS[row["metric"]].direction for name, row in rows.items()}
    for _ in range(SHUFFLED):
        draw.shuffle(blocks)
        ratios = {name: [row["log_ratios"][i] for i in blocks] for name, row in rows.items()}
        decisions = decide(ratios, directions, design).values()
        worse = [its.decided_at for its in decisions if its.verdict and its.verdict.value == "worse" and its.decided_at]
        after += [min(worse)] if worse else []
    often = f"worse in {100 * len(after) / SHUFFLED:.0f} % of {SHUFFLED} orders"
    return f"{often}, after {statistics.median(after):g} blocks (median)" if after else often


def cycles(folder: Path, name: str, chosen: Sequence[Path], at_once: bool) -> List[float]:
    """Run a cycle on each lab; returns obj/s of each."""
    file = folder / "pair.yaml"
    file.write_text(yaml.safe_dump(CONFIG))
    archives = {lab: folder / f"{name}-{lab.name}" for lab in chosen}
    running = []
    for lab, archive in archives.items():
        line = [*TOOLS, "lab", "exec", "--dir", str(lab), "node0", "--", sys.executable, "-m", "cbt_plugins"]
        line += ["-a", str(archive), str(file)]
        running.append(subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        if not at_once:
            running[-1].wait()
    if any(process.wait() for process in running):
        sys.exit(f"pairs: a cycle failed: {folder}")
    return [_rate(archives[lab]) for lab in sorted(archives)]


def _rate(archive: Path) -> float:
    (record,) = records_of(archive)
    values = {(m.phase, m.op, m.metric): m.value for m in record.measurements}
    return float(values["measure", "total", "obj_per_s"] or 0.0)


def pairs(folder: Path, number: int = 12) -> None:
    """Pairs of cycles on two labs: both at once, and one after the other, in turns."""
    ratios: Dict[bool, List[float]] = {True: [], False: []}
    with labs(folder, 2) as both:
        cycles(folder, "first", both, True)  # what only the first one pays
        for pair in range(number):
            for at_once in (True, False) if pair % 2 else (False, True):
                order = both if pair % 4 < 2 else both[::-1]
                rates = cycles(folder, f"pair{pair}-{'once' if at_once else 'turns'}", order, at_once)
                ratios[at_once].append(float(np.log(rates[1] / rates[0])))
    for at_once, its in ratios.items():
        name = "both at once" if at_once else "one after the other"
        print(f"{name:20} {len(its)} pairs, log ratio {np.mean(its):+.3f}, scatter {100 * np.std(its, ddof=1):.1f} %")
    print(f"variance at once / in turns: {np.var(ratios[True], ddof=1) / np.var(ratios[False], ddof=1):.2f}")


def main(args: Sequence[str]) -> int:
    lacking, _ = missing(ssh=True)
    if lacking:
        print(f"no lab on this machine: {'; '.join(lacking)}")
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by a signal"))
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    for part in (equal, planted, pairs):
        if not args or args[0] == part.__name__:
            with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="trust-") as scratch:
                part(Path(scratch), *(int(its) for its in args[1:]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
