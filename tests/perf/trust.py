"""How far the decisions of campaigns can be trusted, measured on a lab.

    ./run bench trust equal [CAMPAIGNS [BLOCKS]]   equal arms: how often a verdict is false
    ./run bench trust planted [BLOCKS]             slowdowns of OSDs: found, after how many blocks
    ./run bench trust pairs [PAIRS]                both arms at once against one after the other

`./run bench trust` makes all three: an hour. With equal arms, and for pairs, a trial is a phase of one run, so
without what differs from run to run; slowdowns are arms of a real campaign. A slowdown is a share of the messages that
an OSD takes 1 ms later (`osd_debug_inject_dispatch_delay_probability`). Shuffled orders of the blocks that were made
say how often a campaign finds it.
"""

from __future__ import annotations

import copy
import json
import math
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
from inputs.labs import SHAPE, TOOLS, cluster

from cbt_plugins.compare.statistics.sequential import FIRST_LOOK, Decision, Design, decide
from cbt_plugins.compare.statistics.verdicts import Verdict
from cbt_plugins.metrics import METRICS, Direction
from cbt_plugins.results.record_reader import records_of
from cbt_plugins.tools.lab.requirements import missing

#: share of the messages that an OSD takes 1 ms later
PLANTED = {"a": 0.01, "b": 0.02, "c": 0.045, "d": 0.1}
#: the limit of a gate
GATE = 0.05
#: orders, and campaigns, that are drawn from the blocks
DRAWN = 1000
FILL = {"fill": {"objects": 400}}
#: with deletes, so that a run of many phases has little to remove at its end
LOAD = {"warmup": "1s", "mix": {"get": 60, "put": 21, "delete": 19}}
#: seconds of a phase that is a trial, and the most of them in one run
TRIAL, MOST = 3, 80
ROWS = ("obj_per_s", "p99_ms")
RGWS = ["rgw1"]
CONFIG: Dict[str, Any] = {
    "cluster": cluster(RGWS),
    "benchmarks": {
        "warp": {
            "s3": {"urls": ["http://rgw1:7480"], "user": "cbt"},
            "engine": "cbt-load",
            "size": "16KiB",
            "workers": 4,
            "cycle": {"phases": [FILL, {"hybrid": {**LOAD, "duration": "6s"}, "name": "measure"}]},
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
            line += ["--rgws", str(len(RGWS))]
            subprocess.run(line, check=True, stdout=subprocess.DEVNULL)
        yield made
    finally:
        for lab in made:
            subprocess.run([*TOOLS, "lab", "down", "--wipe", "--dir", str(lab)], check=False, capture_output=True)


def campaign(folder: Path, lab: Path, section: Dict[str, Any]) -> Dict[str, Any]:
    """Run a campaign in a folder; returns what `campaign status --format json` says."""
    folder.mkdir()
    through = f"{' '.join(TOOLS)} lab exec --dir {lab} node0 --"
    config = {**CONFIG, "campaign": {"through": through, **section}}
    (folder / "campaign.yaml").write_text(yaml.safe_dump(config, sort_keys=False))  # the first arm is the base
    line = [*TOOLS, "campaign", "run", str(folder / "campaign.yaml"), str(folder / "state")]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 3):
        sys.exit(f"campaign: exit status {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
    status: Dict[str, Any] = json.loads((folder / "state" / "status.json").read_text())
    return status


def row_name(row: Dict[str, Any]) -> str:
    return f"{row['op']} {METRICS[row['metric']].title}"


def trials(folder: Path, name: str, lab: Path, number: int) -> subprocess.Popen[bytes]:
    """Begin a run with a number of equal phases."""
    load = {**LOAD, "duration": f"{TRIAL}s"}
    phases = [FILL, *({"hybrid": load, "name": f"t{i}"} for i in range(number))]
    config = copy.deepcopy(CONFIG)
    config["benchmarks"]["warp"]["cycle"]["phases"] = phases
    file = folder / f"{name}.yaml"
    file.write_text(yaml.safe_dump(config))
    line = [*TOOLS, "lab", "exec", "--dir", str(lab), "node0", "--", sys.executable, "-m", "cbt_plugins"]
    line += ["-a", str(folder / name), str(file)]
    with (folder / f"{name}.out").open("wb") as output:
        return subprocess.Popen(line, stdout=output, stderr=output)


def ended(folder: Path, name: str, process: subprocess.Popen[bytes]) -> List[Dict[str, float]]:
    """Wait for such a run; returns the rows of its phases."""
    if process.wait():
        output = (folder / f"{name}.out").read_text(errors="replace")
        sys.exit(f"{name}: exit status {process.returncode}\n{output[-3000:]}")
    (record,) = records_of(folder / name)
    found = {(m.phase, m.metric): m.value for m in record.measurements if m.op == "total" and m.metric in ROWS}
    number = sum(metric == ROWS[0] and phase.startswith("t") for phase, metric in found)
    return [{metric: float(found[f"t{i}", metric] or 0.0) for metric in ROWS} for i in range(number)]


def equal(folder: Path, campaigns: int = 20, most: int = FIRST_LOOK) -> None:
    """Campaigns with equal arms, in blocks A B B A: any "better" or "worse" is false."""
    made: List[Dict[str, float]] = []
    blocks: List[Dict[str, float]] = []
    false = beyond = 0
    verdicts: Counter[str] = Counter()
    with labs(folder) as (lab,):
        for number in range(1, campaigns + 1):
            while len(made) < 4 * most:
                name = f"run{number}"
                made += ended(folder, name, trials(folder, name, lab, min(MOST, 4 * most * (campaigns + 1 - number))))
            blocks += [{metric: block_value(made[i : i + 4], metric) for metric in ROWS} for i in range(0, 4 * most, 4)]
            made = made[4 * most :]
            decided = judged(blocks[-most:])
            verdicts.update(its.verdict.value if its.verdict else "inconclusive" for its in decided.values())
            false += any(map(_false, decided.values()))
            beyond += any(_beyond(its, METRICS[metric].direction) for metric, its in decided.items())
            rows = (f"{metric} {_change(vars(its))}" for metric, its in decided.items())
            print(f"{number:3}: {', '.join(rows)}", flush=True)
    print(f"{false} of {campaigns} campaigns with a false verdict; {beyond} beyond a gate of {100 * GATE:g} %")
    print(f"verdicts of {len(ROWS) * campaigns} rows: {dict(verdicts)}")
    print(drawn(blocks, most))


def drawn(blocks: List[Dict[str, float]], most: int) -> str:
    """Return the verdicts of campaigns whose blocks are drawn from all, each with its arms exchanged or not."""
    draw = random.Random(0)
    false = beyond = 0
    for _ in range(DRAWN):
        signs = [draw.choice((1, -1)) for _ in range(most)]
        its = [{m: sign * v for m, v in block.items()} for sign, block in zip(signs, draw.sample(blocks, most))]
        decided = judged(its)
        false += any(map(_false, decided.values()))
        beyond += any(_beyond(its, METRICS[metric].direction) for metric, its in decided.items())
    shares = f"{100 * false / DRAWN:.1f} % with a false verdict, {100 * beyond / DRAWN:.1f} % beyond the gate"
    return f"of {DRAWN} campaigns of {most} of these {len(blocks)} blocks, arms exchanged by chance: {shares}"


def judged(blocks: Sequence[Dict[str, float]]) -> Dict[str, Decision]:
    """Return the decision of a campaign with these blocks, by row."""
    rows = {metric: [block[metric] for block in blocks] for metric in ROWS}
    return decide(rows, {metric: METRICS[metric].direction for metric in ROWS}, Design(len(blocks)))


def _false(its: Decision) -> bool:
    return its.verdict in (Verdict.BETTER, Verdict.WORSE)


def block_value(trials_: Sequence[Dict[str, float]], metric: str) -> float:
    a, b, c, d = (math.log(its[metric]) for its in trials_)
    return (b + c - a - d) / 2


def _beyond(its: Decision, direction: Direction) -> bool:
    """Whether a gate with a limit of GATE would end with 1: the whole interval is beyond it."""
    if its.low is None or its.high is None:
        return False
    return its.high < -GATE if direction is Direction.HIGHER else its.low > GATE


def _change(row: Dict[str, Any]) -> str:
    scatter = "-" if row["scatter"] is None else f"{100 * row['scatter']:.1f} %"
    return f"{100 * row['change']:+.1f} % (scatter {scatter})"


def planted(folder: Path, most: int = 7) -> None:
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
            print(f"{100 * share:4.1f} % of messages 1 ms later: {title} {_change(row)}")
        print(f"     {found_in(rows, Design(most))}", flush=True)


def found_in(rows: Dict[str, Dict[str, Any]], design: Design) -> str:
    """Return how often shuffled orders of the blocks give "worse" in any row, and after how many blocks."""
    rows = {name: row for name, row in rows.items() if row["log_ratios"] is not None}
    blocks = list(range(len(next(iter(rows.values()))["log_ratios"])))
    draw = random.Random(0)
    after: List[int] = []
    directions = {name: METRICS[row["metric"]].direction for name, row in rows.items()}
    for _ in range(DRAWN):
        draw.shuffle(blocks)
        ratios = {name: [row["log_ratios"][i] for i in blocks] for name, row in rows.items()}
        decisions = decide(ratios, directions, design).values()
        worse = [its.decided_at for its in decisions if its.verdict and its.verdict.value == "worse" and its.decided_at]
        after += [min(worse)] if worse else []
    often = f"worse in {100 * len(after) / DRAWN:.0f} % of {DRAWN} orders"
    return f"{often}, after {statistics.median(after):g} blocks (median)" if after else often


def pairs(folder: Path, number: int = 20) -> None:
    """Pairs of trials: both at once on two labs, and one after the other on one."""
    ratios: Dict[str, List[float]] = {}
    with labs(folder, 2) as both:
        running = [trials(folder, f"once{i}", lab, number) for i, lab in enumerate(both)]
        one, two = (ended(folder, f"once{i}", process) for i, process in enumerate(running))
        ratios["both at once"] = [math.log(b[ROWS[0]] / a[ROWS[0]]) for a, b in zip(one, two)]
        for i, lab in enumerate(both):
            its = ended(folder, f"turns{i}", trials(folder, f"turns{i}", lab, 2 * number))
            turns = [math.log(b[ROWS[0]] / a[ROWS[0]]) for a, b in zip(its[::2], its[1::2])]
            ratios[f"one after the other, lab {i}"] = turns
    for name, values in ratios.items():
        scatter = 100 * np.std(values, ddof=1)
        print(f"{name:28} {len(values)} pairs, log ratio {np.mean(values):+.3f}, scatter {scatter:.1f} %")


def main(args: Sequence[str]) -> int:
    lacking, _ = missing(ssh=True)
    if lacking:
        print(f"no lab on this machine: {'; '.join(lacking)}")
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by a signal"))
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    for part in (equal, planted, pairs):
        if not args or args[0] == part.__name__:
            with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR", "/var/tmp"), prefix="trust-") as scratch:
                part(Path(scratch), *(int(its) for its in args[1:]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
