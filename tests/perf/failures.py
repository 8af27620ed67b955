"""How much the same failure scatters on one cluster, and how often a gate on it is wrong: A/A pairs on a lab.

    ./run bench failures [PAIRS [MINUTES [FAILURE ...]]]
    ./run bench failures table tests/data/failures/*.jsonl

`./run bench failures 20 400 all` makes 20 pairs of each of the ten failures of the catalogue that this lab can have;
`more` in place of `all`: of failures of other kinds. Without words: 10 pairs in at most 40 minutes of the three
shortest failures. An archive is a run of `resilience:` that repeats each failure REPEAT times. Two repetitions one
after the other are a pair of equal arms: nothing differs between them. A gate compares two archives one after the
other: what it calls a regression is a false alarm. Gates of repetitions that are drawn from all archives are counted
too, in a line of their own: their repetitions are real, the archives are not.

The folder of the archives is kept if it is given in ARCHIVES. Each score of A/A pairs is written to failures.jsonl in
this folder. `table` prints the scatter of such files together: each has its own lab, and pairs and drawn gates are of
one lab.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import random
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

import yaml
from inputs.labs import TOOLS, lab_with_archives
from scipy import stats

from cbt_plugins.benchmarks.resilience import CATALOGUE
from cbt_plugins.compare.allowance import Allowance
from cbt_plugins.compare.gate import of_texts
from cbt_plugins.compare.statistics import Comparison, Verdict, compare_differences, compare_runs, decide_verdicts
from cbt_plugins.compare.statistics.sequential import least_scatter
from cbt_plugins.config.units import parse_percent
from cbt_plugins.metrics import METRICS
from cbt_plugins.results.record_reader import records_of
from cbt_plugins.tools.lab.requirements import missing

#: of each failure in one archive; the fewest that have an interval
REPEAT = 3
SHORTEST = ("mgr failover", "rgw down", "osd hangs")
#: what the shape of this lab refuses: it has one level of hosts, and stores without a device
REFUSED = ("rack down", "datacenter down", "slow disk")
#: kinds that the catalogue lacks, because their cost is that of their options
MORE: Dict[str, Any] = {
    "osd out": {"kind": "out", "osd_number": 1},
    "slow link": {"kind": "rate", "osd_nodes": 1, "options": {"rate": "1Mbit"}},
    "busy node": {"kind": "pressure", "osd_nodes": 1},
    "read errors": {"kind": "read_errors", "osd_number": 1, "options": {"share": "20%"}},
}
#: what is judged: (operation, metric) -> the limit of a gate
LIMITS = {("total", "bad_s"): "+3s", ("total", "longest_gap_s"): "+1s", ("total", "p99_ms"): "50%"}
#: what is recorded, and shown; the oldest file of scores lacks the p99 in ms
RECORDED = (*LIMITS, ("total", "p99_ratio"))
#: the limits that the pages of the scorecard advertise
ADVERTISED = {("total", "bad_s"): "20%", ("total", "longest_gap_s"): "+1s"}
#: a change of the p99 that a gate should find
DOUBLED = 2
#: gates of repetitions that are drawn
DRAWN = 1000
SHAPE = ["--mons", "3", "--mgrs", "2", "--clients", "1"]
CLUSTER: Dict[str, Any] = {
    "user": "root",
    "head": "node0",
    "clients": ["client1"],
    "osds": ["node1", "node2", "node3", "node4"],
    "mons": ["node0", "node1", "node2"],
    "rgws": ["rgw1", "rgw2"],
    "use_existing": True,
    "iterations": 1,
    "conf_file": "/etc/ceph/ceph.conf",
    "tmp_dir": "/var/tmp/cbt",
}
CONFIG: Dict[str, Any] = {
    "monitoring_profiles": {"recovery": {}},
    "benchmarks": {
        "resilience": {
            "s3": {"urls": ["http://rgw1:7480", "http://rgw2:7480"], "user": "cbt"},
            "objects": {"sizes": ["16KiB"]},
            "fill": {"objects": 400},
            "generator_ceiling": False,
            "rate": "40/s",
            "baseline": "15s",
            # the failure of a mon is seen after 20 s, a node that is cut off after 17 s
            "parts": {"start": "3s", "failure": "24s", "recovery": "5s"},
            "repeat": REPEAT,
            "wait": {"at_most": "10m", "stalled": "5m"},
        }
    },
}


class Score(NamedTuple):
    """A number of one repetition."""

    archive: int
    failure: str
    metric: str
    repetition: int
    value: float


def run(
    folder: Path, lab: Path, number: int, failures: Dict[str, Any], cluster: Mapping[str, Any] = CLUSTER, **keys: Any
) -> Path:
    """Run `resilience:` once, with more keys of the section; return the archive."""
    config = json.loads(json.dumps({"cluster": cluster, **CONFIG}))
    config["benchmarks"]["resilience"].update(failures=failures, **keys)
    file, archive = folder / f"run{number}.yaml", folder / f"archive{number}"
    file.write_text(yaml.safe_dump(config, sort_keys=False))
    line = [*TOOLS, "lab", "exec", "--dir", str(lab), "node0", "--", sys.executable, "-m", "cbt_plugins"]
    with (folder / f"run{number}.out").open("wb") as output:
        done = subprocess.run([*line, "-a", str(archive), str(file)], stdout=output, stderr=output, check=False)
    if done.returncode:
        text = (folder / f"run{number}.out").read_text(errors="replace")
        print(f"archive {number}: exit status {done.returncode}\n{text[-2000:]}", flush=True)
    return archive


def scores(archive: Path, number: int) -> Iterator[Score]:
    """Yield the numbers of the repetitions of an archive."""
    for record in records_of(archive):
        for measurement in record.measurements:
            if (measurement.op, measurement.metric) in RECORDED and measurement.repeats:
                for repetition, value in enumerate(measurement.repeats):
                    yield Score(number, measurement.phase, measurement.metric, repetition, value)


def gate(base: Path, new: Path, failures: Sequence[str]) -> Tuple[int, str]:
    """Return the exit status of a gate between two archives, and its last line."""
    line = [*TOOLS, "gate", str(base), str(new)]
    for failure in failures:
        line += [f"--limit={failure}.{op}.{metric}={limit}" for (op, metric), limit in LIMITS.items()]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    last = (done.stdout.strip() or done.stderr.strip()).splitlines()[-1:]
    return done.returncode, last[0] if last else ""


Limits = Mapping[Tuple[str, str], str]
Places = Sequence[Tuple[int, int]]  # (archive, repetition)


def drawn(made: Sequence[Score], failures: Sequence[str], limits: Limits) -> Optional[float]:
    """Return the share of gates that are false alarms, of repetitions that are drawn; None with too few of them.

    Both sides get repetitions of all archives, so no side has the scatter from archive to archive alone. All metrics of
    a failure are of the same repetitions.
    """
    places = {name: sorted({(s.archive, s.repetition) for s in made if s.failure == name}) for name in failures}
    if min(map(len, places.values())) < 2 * REPEAT + 1:
        return None
    draw, alarms = random.Random(0), 0
    for _ in range(DRAWN):
        samples = {failure: draw.sample(of_failure, 2 * REPEAT) for failure, of_failure in places.items()}
        sides = {failure: (sample[:REPEAT], sample[REPEAT:]) for failure, sample in samples.items()}
        alarms += is_alarm(made, sides, limits)
    return alarms / DRAWN


def alarms_between_archives(made: Sequence[Score], failures: Sequence[str], limits: Limits) -> Tuple[int, int]:
    """Return the number of gates between any two archives, both ways, and how many of these are false alarms."""
    archives = sorted({score.archive for score in made})
    alarms = [
        is_alarm(made, {failure: tuple([(n, i) for i in range(REPEAT)] for n in both) for failure in failures}, limits)
        for both in itertools.permutations(archives, 2)
    ]
    return len(alarms), sum(alarms)


def is_alarm(made: Sequence[Score], sides: Mapping[str, Sequence[Places]], limits: Limits) -> bool:
    """Return whether a gate on these repetitions, failure -> those of base and new, has a regression."""
    values = {(s.failure, s.metric, s.archive, s.repetition): s.value for s in made}
    against = {}
    for failure, both in sides.items():
        for (_, metric), limit in limits.items():
            base, new = ([values.get((failure, metric, *place), math.nan) for place in side] for side in both)
            if not any(map(math.isnan, (*base, *new))):
                against[failure, metric] = against_limit(metric, limit, base, new)
    directions = {key: METRICS[key[1]].direction for key in against}
    judged = decide_verdicts(against, directions, 1e-12, 0.05)
    return any(comparison.verdict is Verdict.WORSE for comparison in judged.values())


def against_limit(metric: str, limit: str, base: Sequence[float], new: Sequence[float]) -> Comparison:
    """Return the comparison that a gate tests: the new side with a base that is worse by the limit."""
    (parsed,) = of_texts([f"{metric}={limit}"])
    allowed = Allowance(parsed.share, parsed.rise).of(METRICS[metric], statistics.median(base))
    assert allowed is not None
    if METRICS[metric].additive:
        least = least_scatter(METRICS[metric].margin)
        return compare_differences([value + allowed for value in base], new, least=least)
    return compare_runs([value * (1 + allowed) for value in base], new)


def pair_differences(labs: Sequence[Sequence[Score]], failure: str, metric: str) -> List[float]:
    """Return new - base of each pair, or the log of their ratio: two repetitions one after the other are a pair."""
    of_labs = [[score.value for score in made if (score.failure, score.metric) == (failure, metric)] for made in labs]
    couples = [couple for values in of_labs for couple in zip(values[::2], values[1::2])]
    if METRICS[metric].additive:
        return [b - a for a, b in couples]
    return [math.log(b / a) for a, b in couples if a > 0 and b > 0]


def table(labs: Sequence[Sequence[Score]], failures: Sequence[str]) -> str:
    """Return for each failure the number of pairs and how its numbers scatter."""
    shown_metrics = [metric for _, metric in RECORDED]
    heads = {"bad_s": "bad s", "longest_gap_s": "longest gap s", "p99_ratio": "p99 ratio", "p99_ms": "p99, ms"}
    names = [*map(heads.__getitem__, shown_metrics), f"{DOUBLED}x p99, alone", "of 30 limits"]
    lines = [f"{'failure':14}{'pairs':>7}" + "".join(f"{name:>16}" for name in names)]
    for failure in failures:
        cells = []
        needed = ["", ""]
        for metric in shown_metrics:
            values = [s.value for made in labs for s in made if (s.failure, s.metric) == (failure, metric)]
            differences = pair_differences(labs, failure, metric)
            if len(differences) < 2:
                cells.append((len(differences), "-"))
                continue
            # both sides are equal: the mean of the differences is known to be 0
            scatter = math.sqrt(statistics.fmean(difference**2 for difference in differences) / 2)
            shown = f"{scatter:.2f} s" if METRICS[metric].additive else f"{100 * math.expm1(scatter):.0f} %"
            cells.append((len(differences), f"{statistics.median(values):.2f}, {shown}"))
            if metric == "p99_ms":
                needed = [str(repetitions(scatter, DOUBLED, LIMITS["total", metric], rows)) for rows in (1, 30)]
        texts = [text for _, text in cells] + needed
        lines.append(f"{failure:14}{cells[0][0]:7}" + "".join(f"{text:>16}" for text in texts))
    lines += [
        "median, scatter: sqrt(mean square of the differences of pairs / 2); of a ratio, of the logarithms",
        f"{DOUBLED}x p99: repetitions of each side by which a gate finds it in 90 %: as its only limit, as one of 30",
        "of which no other one is decided; computed by Student's t from this scatter",
    ]
    return "\n".join(lines)


def repetitions(scatter: float, change: float, limit: str, rows: int = 1) -> int:
    """Return how many repetitions of each side tell a change from the limit in 90 %, by Student's t of logarithms.

    `scatter`: the standard deviation of the logarithm; `change`: new / base; `limit`: a percentage, as a gate has it;
    `rows`: limits of the gate, of which no other one is decided. Two sides scatter alike.
    """
    shift = math.log(change / (1 + parse_percent(limit)))

    def power(number: int) -> float:
        freedom = 2 * number - 2
        least = stats.t.ppf(1 - 0.05 / (2 * rows), freedom)
        return float(stats.nct.sf(least, freedom, shift / (scatter * math.sqrt(2 / number))))

    return next(number for number in itertools.count(REPEAT) if power(number) >= 0.9)


def measure(folder: Path, lab: Path, failures: Dict[str, Any], pairs: int, minutes: float) -> None:
    """Make archives until there are enough pairs, or the next archive would end after `minutes`; print the table."""
    made: List[Score] = []
    archives: List[Path] = []
    alarms = gates = inconclusive = failed = 0
    begin, longest = time.monotonic(), 0.0
    while len(archives) * REPEAT < 2 * pairs and time.monotonic() - begin + longest < 60 * minutes:
        start, number = time.monotonic(), len(archives) + failed + 1
        archive = run(folder, lab, number, failures)
        longest = max(longest, time.monotonic() - start)
        new = list(scores(archive, number))
        if not new:
            failed += 1
            if failed > 2:
                break
            continue
        made += new
        with (folder / "failures.jsonl").open("a") as file:
            file.writelines(json.dumps(score._asdict()) + "\n" for score in new)
        archives.append(archive)
        print(f"archive {number}: {time.monotonic() - start:.0f} s, load {os.getloadavg()[0]:.1f}", flush=True)
        if len(archives) > 1:
            status, last = gate(archives[-2], archive, list(failures))
            print(f"  gate on the last two: {last}", flush=True)
            gates, alarms, inconclusive = gates + 1, alarms + (status == 1), inconclusive + (status == 3)
    print(table([made], list(failures)))
    print(f"{len(archives)} archives, {failed} failed runs, {(time.monotonic() - begin) / 60:.0f} min")
    print(f"gates on two archives one after the other: {gates}; false alarms {alarms}; inconclusive {inconclusive}")
    print_drawn(made, list(failures))


def print_drawn(made: Sequence[Score], failures: Sequence[str]) -> None:
    """Print the false alarms of gates on recorded scores, with the limits of this bench and those of the pages."""
    for limits in (LIMITS, ADVERTISED):
        print(", ".join(f"{metric}={limit}" for (_, metric), limit in limits.items()))
        gates, alarms = alarms_between_archives(made, failures, limits)
        print(f"  gates between any two archives, both ways: {gates}; false alarms {alarms}")
        share = drawn(made, failures, limits)
        if share is not None:
            print(f"  gates on repetitions drawn from all archives: {DRAWN}; false alarms {100 * share:.1f} %")


def print_recorded(files: Sequence[str]) -> None:
    """Print the table of recorded scores; a line without a score says where they are from."""
    labs = []
    for file in files:
        lines = list(map(json.loads, Path(file).read_text().splitlines()))
        labs.append([Score(**line) for line in lines if "failure" in line])
    failures = list(dict.fromkeys(score.failure for made in labs for score in made))
    print(table(labs, failures))
    for file, made in zip(files, labs):
        print(file)
        print_drawn(made, failures)


def main(args: Sequence[str]) -> int:
    if args[:1] == ["table"]:
        print_recorded(args[1:])
        return 0
    lacking, _ = missing(ssh=True)
    if lacking:
        print(f"no lab on this machine: {'; '.join(lacking)}")
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by a signal"))
    catalogue: Dict[str, Any] = yaml.safe_load(CATALOGUE.read_text())
    numbers = [float(word) for word in args[:2]]
    names = list(args[2:]) or list(SHORTEST)
    if names in (["all"], ["more"]):
        names = [name for name in catalogue if name not in REFUSED] if names == ["all"] else list(MORE)
    failures = {name: {**catalogue, **MORE}[name] for name in names}
    minutes = numbers[1] if numbers[1:] else 40.0
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; {', '.join(failures)}", flush=True)
    with lab_with_archives("failures", SHAPE) as (folder, lab):
        measure(folder, lab, failures, int(numbers[0]) if numbers else 10, minutes)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
