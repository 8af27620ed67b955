"""What all monitors together take of the throughput, and of the processors: stopped and continued by turns in one load.

A run on a lab has resources, perf_counters, backlog and recovery on. While its load goes on, the programs of the
monitors on all nodes are stopped (SIGSTOP) and continued, SECONDS each, in the order A B B A: so near to each other in
time the machine has the same speed for both. Prints the ratio on / off with its 95 % interval, the programs' CPU time,
and what that shows. A slow monitor samples as often as ever, but only while it is on: the cost is rather too high.
Usage: ./run bench monitors [PAIRS [SECONDS]]
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Dict, Iterator, List, Tuple

import yaml
from inputs.labs import SHAPE, TOOLS, cluster
from scipy import stats

from cbt_plugins.run.run_archive import RUNNING
from cbt_plugins.tools.lab.requirements import missing

RGWS = ["rgw1", "rgw2"]
#: what monitors may take of the throughput
ALLOWED = 0.01
#: turns without which nothing can be said
LEAST = 4
#: seconds before the first turn: the first look at everything has ended
BEGIN = 10
#: of the command line of each of their programs, and of what keeps their connections
AGENT, CONNECTIONS = "_agent.py", "agent_connections.py"
#: of /proc/PID/stat behind the name: user and system time, the same of children that have ended
TICKS = slice(11, 15)


def config(seconds: int) -> Dict[str, Any]:
    # reads fill the processors as writes do, and scatter less: no compaction comes in between
    load = {"mix": {"get": 100}, "duration": f"{seconds}s"}
    return {
        "cluster": cluster(RGWS),
        "monitoring_profiles": {"resources": {}, "perf_counters": {}, "backlog": {}, "recovery": {}},
        "benchmarks": {
            "warp": {
                "s3": {"urls": [f"http://{rgw}:7480" for rgw in RGWS], "user": "cbt"},
                "engine": "cbt-load",
                "size": "4KiB",
                "workers": 8,
                "cycle": {"phases": [{"fill": {"objects": 500}}, {"hybrid": load, "name": "measure"}]},
            }
        },
    }


def programs(folder: Path, word: str) -> Dict[int, str]:
    """Return {pid: name} of the processes of this lab that run a Python program whose name ends so."""
    found = {}
    for process in Path("/proc").iterdir():
        with contextlib.suppress(OSError, IndexError):
            if not process.name.isdigit() or "python" not in os.readlink(process / "exe"):
                continue
            text = (process / "cmdline").read_text()
            if word in text and str(folder.name) in (process / "mountinfo").read_text():
                found[int(process.name)] = text[: text.index(word)].replace("/", "'").rsplit("'", 1)[1] + word
    return found


def used(pids: Dict[int, str]) -> Dict[str, float]:
    """Return the CPU seconds of each program so far."""
    found: Dict[str, float] = {}
    for pid, name in pids.items():
        with contextlib.suppress(OSError):
            words = Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1].split()
            found[name] = found.get(name, 0.0) + sum(map(int, words[TICKS])) / os.sysconf("SC_CLK_TCK")
    return found


def beats(archive: Path, process: subprocess.Popen[bytes]) -> Iterator[Tuple[float, int]]:
    """Yield (epoch seconds, requests so far) of the measured load as they come, one each second, until the run ends."""
    while not (found := list(archive.glob(f"results/*/id-*/phases/*-measure{RUNNING}/heartbeat.jsonl"))):
        if process.poll() is not None:
            return
        time.sleep(0.1)
    with found[0].open() as file:
        text = ""
        while process.poll() is None:
            text += file.readline()
            if not text.endswith("\n"):
                time.sleep(0.02)
                continue
            beat, text = json.loads(text), ""
            yield beat["t"], sum(job["ops"] for job in beat["jobs"].values())


class Turns:
    """Turns of equal length, on and off: on off off on, and again."""

    def __init__(self, folder: Path) -> None:
        self.pids = programs(folder, AGENT)
        self.connections = programs(folder, CONNECTIONS)
        self.turns: List[Tuple[bool, float, float]] = []  # on, seconds, requests/s
        self._began = self._used()
        self.cpu: Dict[str, float] = {}  # the share of all processors that each program took while it was on

    def switch(self, on: bool) -> None:
        for pid in self.pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT if on else signal.SIGSTOP)

    def _used(self) -> Dict[str, float]:
        return used({**self.pids, **self.connections})

    def end(self) -> None:
        """Take the CPU time, while the programs are still there."""
        seconds = sum(lasted for on, lasted, _ in self.turns if on) * (os.cpu_count() or 1)
        self.cpu = {name: (its - self._began[name]) / seconds for name, its in sorted(self._used().items())}

    def ratios(self) -> List[float]:
        """Return ln(on / off) of each pair."""
        found = []
        for first, second in zip(self.turns[::2], self.turns[1::2]):
            on, off = (first, second) if first[0] else (second, first)
            found.append(math.log(on[2] / off[2]))
        return found


def measured(folder: Path, archive: Path, process: subprocess.Popen[bytes], pairs: int, seconds: int) -> Turns:
    """Stop and continue the monitors of a run while its load goes on."""
    its = beats(archive, process)
    for _ in range(BEGIN):
        next(its, None)
    turns = Turns(folder)
    try:
        at, done = next(its)
        for number in range(2 * pairs):
            on = number % 4 in (0, 3)
            turns.switch(on)
            for _ in range(seconds):
                now, ops = next(its)
            turns.turns.append((on, now - at, (ops - done) / (now - at)))
            at, done = now, ops
    except StopIteration:
        del turns.turns[-2:]  # it may have been ending then
        if len(turns.turns) < LEAST:
            sys.exit("the load has ended before the first pairs")
        print(f"  the load has ended early: {len(turns.turns) // 2} of {pairs} pairs")
    else:
        turns.end()
    finally:
        turns.switch(True)
    return turns


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
    lacking, _ = missing(ssh=True)
    if lacking:
        print(f"no lab on this machine: {'; '.join(lacking)}")
        return 0
    pairs, seconds = (int(word) for word in [*sys.argv[1:], *("220", "3")[len(sys.argv) - 1 :]])
    print(f"monitors on and off, {pairs} pairs of {seconds} s; {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR", "/var/tmp"), prefix="monitors-") as scratch:
        folder = Path(scratch)
        file, archive = folder / "monitors.yaml", folder / "archive"
        file.write_text(yaml.safe_dump(config(2 * pairs * seconds + BEGIN + 10)))
        lab = [*TOOLS, "lab", "run", "--dir", str(folder / "lab"), "--wipe", *SHAPE]
        line = [*lab, "--bind", scratch, "--", sys.executable, "-m", "cbt_plugins", "-a", str(archive), str(file)]
        with (folder / "output").open("w+") as output:
            process = subprocess.Popen(line, stdout=output, stderr=output)
            try:
                turns = measured(folder, archive, process, pairs, seconds)
            finally:
                if process.wait():
                    output.seek(0)
                    print(f"exit status {process.returncode}\n{output.read()[-3000:]}", file=sys.stderr)
        print(f"  throughput with / without: {shown(turns.ratios())}")
        each = ", ".join(f"{name} {100 * its:.2f}" for name, its in turns.cpu.items()) or "unknown"
        print(f"  CPU time while on: {100 * sum(turns.cpu.values()):.2f} % of all processors ({each})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
