"""How often a verdict for a pull request is a false regression, and which change it finds, from real blocks of a lab.

    ./run bench pull_request found                 the smallest change that is found with power 0.9, simulated
    ./run bench pull_request blocks FILE [NUMBER]  make blocks of equal sides on a lab, 50 s each; adds them to FILE
    ./run bench pull_request verdicts FILE [DRAWN] verdicts that are drawn from these blocks, 1000 a line
    ./run bench pull_request planted [WITHIN [SHARE [LOAD [FILE]]]]   one real `cbt-tools pr` whose head has slower
                                                   OSDs; adds its blocks to FILE
    ./run bench pull_request deployed FILE [DRAWN] verdicts that are drawn from the blocks of `planted`

A block is A B B A of phases of 3 s in one run, as those of trust.py: without what differs from deployment to
deployment. `verdicts` draws campaigns from them. Each block of a campaign is the mean of as many blocks of FILE as its
cycles are longer than 3 s, each with its sides exchanged or not. That is a simulation: the hours are not there, the
numbers are real. A change of the head is added to the throughput of each block; p99 stays as it was. The last change of
a kind is the one that `cbt-tools pr` says it finds with power 0.9, by the scatter of the blocks. `planted` delays a
share of the messages of the head's OSDs by 1 ms, on a lab that is restored from a snapshot before each cycle with a
load of LOAD. `deployed` draws from such blocks without their mean, so with all that differs from deployment to
deployment, and adds a change; one line has them with their own mean. Sides are exchanged and blocks drawn one by one:
drifts and the order of blocks are lost. Blocks of a verdict that ended because it was decided may have scattered little
by chance: the command says so.
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
from pathlib import Path
from typing import Dict, List, Sequence, Tuple

import yaml
from inputs.chance import share_with_bounds, show
from inputs.labs import TOOLS
from trust import CONFIG, MOST, ROWS, TRIAL, block_value, ended, labs, trials

from cbt_plugins.compare.statistics.sequential import FIRST_LOOK, Design, decide, detectable
from cbt_plugins.compare.statistics.verdicts import Scatter, Verdict
from cbt_plugins.config.campaign import MOST_BLOCKS
from cbt_plugins.config.pull_request import PullRequestSection, campaign_of
from cbt_plugins.config.units import parse_percent
from cbt_plugins.metrics import METRICS
from cbt_plugins.pull_requests.detectable_change import POWER

#: seconds of a verdict; of a deployment and all else of a cycle but its load, as on the lab of `planted`
WITHIN, AROUND = 8 * 3600, 60
#: after a deployment: caches are empty, and daemons have just begun
WARMUP = "5s"
CHANGES = (0.0, -0.03, -0.05)
#: seconds of load of a cycle, and limits
LOADS, LIMITS = (3, 12, 48), (0.05, 0.03)
SCATTERS = (0.01, 0.02, 0.03, 0.04, 0.06, 0.08)
#: samples with replacement of the blocks of a verdict: what another run of them might have shown
RESAMPLED = 20
DELAY = "osd_debug_inject_dispatch_delay"

Block = Dict[str, float]


def found(_: Path) -> None:
    """Print the smallest change of one of two rows that is found, by the function that decides it."""
    lines: List[Sequence[object]] = []
    for most in (8, 16, 32, MOST_BLOCKS):
        for limit in LIMITS:
            design = design_of(most, limit)
            changes = (detectable(Scatter(scatter, 1e6), 2, design, POWER) for scatter in SCATTERS)
            lines.append((most, f"{limit:.0%}", *(f"{change:.1%}" if change else "none" for change in changes)))
    show(("blocks", "limit", *(f"scatter {scatter:.0%}" for scatter in SCATTERS)), lines)


def blocks(scratch: Path, file: str, number: str = "20") -> None:
    """Make blocks of equal sides."""
    made: List[Block] = []
    with labs(scratch) as (lab,):
        while len(made) < int(number):
            name, count = f"run{len(made)}", min(MOST, 4 * (int(number) - len(made)))
            phases = ended(scratch, name, trials(scratch, name, lab, count))
            made += [{row: block_value(phases[i : i + 4], row) for row in ROWS} for i in range(0, count, 4)]
    earlier = json.loads(Path(file).read_text()) if Path(file).exists() else []
    Path(file).write_text(json.dumps([*earlier, *made]))


def verdicts(_: Path, file: str, number: str = "1000") -> None:
    """Print the shares of drawn verdicts that are a regression, or no regression."""
    real, count = json.loads(Path(file).read_text()), int(number)
    for row in ROWS:
        ratios = [block[row] for block in real]
        spread = math.sqrt(sum(ratio**2 for ratio in ratios) / len(ratios))
        print(f"{len(real)} real blocks of 4 x {TRIAL} s: {METRICS[row].title} scatters by {100 * spread:.1f} %")
    spread = math.sqrt(sum(block[ROWS[0]] ** 2 for block in real) / len(real))
    lines: List[Sequence[object]] = []
    for limit in LIMITS:
        for load in LOADS:
            most = min(MOST_BLOCKS, WITHIN // (4 * (load + AROUND)))
            scatter = Scatter(spread / math.sqrt(load // TRIAL), 1e6)
            predicted = detectable(scatter, 2, design_of(most, limit), POWER)
            for change in (*CHANGES, *([-predicted] if predicted else [])):
                ends = drawn(real, (load // TRIAL, most), change, limit, count)
                shares = (share_with_bounds(number, count) for number in ends)
                lines.append((f"{limit:.0%}", f"{load} s", most, f"{change:.1%}", *shares))
    show(("limit", "load of a cycle", "blocks in 8 h", "true change", "regression", "no regression"), lines)


def deployed(_: Path, file: str, number: str = "1000") -> None:
    """Print the shares of verdicts of 8 hours that are a regression, drawn from blocks with deployments."""
    runs, count = json.loads(Path(file).read_text()), int(number)
    for run in runs:
        blocks = run["blocks"]
        if len(blocks) < FIRST_LOOK:
            print(f"{len(blocks)} blocks: too few, left out")
            continue
        if run["decided"]:
            print("the next blocks ended with a decision, and may have scattered little by chance")
        means = {row: statistics.mean(block[row] for block in blocks) for row in ROWS}
        wider = math.sqrt(len(blocks) / (len(blocks) - 1))  # as wide as blocks around an unknown mean scatter
        centred = [{row: wider * (block[row] - means[row]) for row in ROWS} for block in blocks]
        most = min(MOST_BLOCKS, int(WITHIN / run["block_seconds"]))
        spreads = {row: statistics.stdev(block[row] for block in blocks) for row in ROWS}
        texts = (f"{METRICS[row].title} {math.expm1(means[row]):+.1%}, scatter {spreads[row]:.1%}" for row in ROWS)
        print(f"{len(blocks)} blocks of {run['block_seconds']:.0f} s, {most} in 8 h; means: {', '.join(texts)}")
        lines: List[Sequence[object]] = []
        for limit in LIMITS:
            predicted = detectable(Scatter(spreads[ROWS[0]], 1e6), 2, design_of(most, limit), POWER)
            for change in (*CHANGES, *([-predicted] if predicted else [])):
                ends = drawn(centred, (1, most), change, limit, count)
                lines.append((f"{limit:.0%}", f"{change:.1%}", *(share_with_bounds(number, count) for number in ends)))
            ends = drawn(blocks, (1, most), 0.0, limit, count, exchanged=False)
            lines.append((f"{limit:.0%}", "as measured", *(share_with_bounds(number, count) for number in ends)))
            samples = [random.Random(seed).choices(centred, k=len(centred)) for seed in range(RESAMPLED)]
            part = count // RESAMPLED
            shares = sorted(drawn(sample, (1, most), 0.0, limit, part)[0] / part for sample in samples)
            lines.append((f"{limit:.0%}", "0.0%, other blocks", f"{shares[0]:.3f} to {shares[-1]:.3f}", ""))
        show(("limit", "true change", "regression", "no regression"), lines)


def drawn(
    real: Sequence[Block], shape: Sequence[int], change: float, limit: float, count: int, exchanged: bool = True
) -> Tuple[int, int]:
    """Return the number of regressions and of no regressions, by the function that decides them.

    `exchanged`: the sides of each block, or not, by chance.
    """
    pooled, most = shape
    draw = random.Random(f"{shape}{change}")
    design = design_of(most, limit)
    worse, fine = 0, 0
    for _ in range(count):
        rows: Dict[str, List[float]] = {row: [] for row in ROWS}
        for _ in range(most):
            parts = [(draw.choice((1, -1)) if exchanged else 1, draw.choice(real)) for _ in range(pooled)]
            for row in ROWS:
                planted = math.log1p(change) if row == ROWS[0] else 0.0
                rows[row].append(planted + sum(sign * block[row] for sign, block in parts) / pooled)
        decisions = decide(rows, {row: METRICS[row].direction for row in ROWS}, design).values()
        regression = any(decision.verdict is Verdict.WORSE for decision in decisions)
        worse += regression
        fine += not regression and all(decision.verdict for decision in decisions)
    return worse, fine


def design_of(most: int, limit: float) -> Design:
    """Return the design of a campaign that `cbt-tools pr` makes."""
    section = PullRequestSection(deploy="true", limit=f"{100 * limit:g}%")
    campaign = campaign_of({}, section, most)["campaign"]
    percents = [parse_percent(campaign[key]) for key in ("alpha", "margin")]
    return Design(campaign["blocks"], *percents, campaign["spending"])


def planted(
    scratch: Path, within: str = "1h", delayed: str = "0.1", load: str = "6s", file_of_blocks: str = ""
) -> None:
    """Run a verdict whose head has slower OSDs (share 0: equal sides)."""
    with labs(scratch) as (lab,):
        places = f"--dir {lab} --snapshots {scratch / 'snapshots'}"
        tool = " ".join(TOOLS)
        subprocess.run(f"{tool} lab snapshot aged {places}", shell=True, check=True)
        ceph = f"{tool} lab exec --dir {lab} node0 -- ceph config set osd {DELAY}"
        # both sides get the same commands: a deployment that takes longer leaves the cluster more time to settle
        share = f"$([ $CBT_PLUGINS_ARM = base ] && echo 0 || echo {delayed})"
        slow = f"{ceph}_duration 0.001 && {ceph}_probability {share}"
        restore = f"{tool} lab restore aged {places} --bind $CBT_PLUGINS_CAMPAIGN"
        section = {
            "deploy": f"{restore} && {slow}",
            "clean": f"{tool} lab down --dir {lab}",
            "through": f"{tool} lab exec --dir {lab} node0 --",
        }
        file, name = scratch / "pr.yaml", "16.2"
        config = copy.deepcopy({**CONFIG, "monitoring_profiles": {"resources": {}}, "pr": section})
        config["benchmarks"]["warp"]["cycle"]["phases"][-1]["hybrid"].update(duration=load, warmup=WARMUP)
        file.write_text(yaml.safe_dump(config))
        words = [*TOOLS, "pr", name, name, "--config", str(file), "--within", within, "-a", str(scratch / "pr")]
        done = subprocess.run([*words, "--format", "md"], cwd=scratch, check=False)
        print(f"exit status {done.returncode}")
        answer = scratch / "pr" / "pr.json"
        campaign = json.loads(answer.read_text())["campaign"] if answer.exists() else None
    if file_of_blocks and campaign and campaign["rows"]:
        ratios = {row["metric"]: row["log_ratios"] for row in campaign["rows"] if row["op"] == "total"}
        made = [dict(zip(ROWS, values)) for values in zip(*(ratios[row] for row in ROWS)) if None not in values]
        run = {"share": delayed, "load": load, "block_seconds": campaign["block_seconds"], "blocks": made}
        run["decided"] = done.returncode in (0, 1)
        earlier = json.loads(Path(file_of_blocks).read_text()) if Path(file_of_blocks).exists() else []
        Path(file_of_blocks).write_text(json.dumps([*earlier, run]))


def main(args: Sequence[str]) -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by a signal"))
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    parts = {part.__name__: part for part in (found, blocks, verdicts, planted, deployed)}
    if not args or args[0] not in parts:
        print(__doc__)
        return 2
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR", "/var/tmp"), prefix="pr-") as scratch:
        parts[args[0]](Path(scratch), *args[1:])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
