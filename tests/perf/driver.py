"""What a request costs the load generator: cbt-load beside warp, on a server that keeps nothing, in turns.

Prints the median processor time per request of each and the ratio. Requests are counted by the server,
warp's preparations among them. Usage: ./run bench driver [SECONDS [ROUNDS]]
"""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Set, Tuple

from cbt_plugins.programs import own_program

SIZE = 4096
CONCURRENCY = 32
OBJECTS = 3200  # that warp writes first, and that cbt-load finds
KEYS = {"AWS_ACCESS_KEY_ID": "benchmark", "AWS_SECRET_ACCESS_KEY": "benchmarkbenchmark",
        "WARP_ACCESS_KEY": "benchmark", "WARP_SECRET_KEY": "benchmarkbenchmark"}


class Case(NamedTuple):
    """The same load for both generators."""

    warp: List[str]
    shares: Dict[str, int]  # of cbt-load's operations


CASES = {
    "STAT": Case(["stat", "--objects", str(OBJECTS)], {"STAT": 100}),
    "PUT, signed": Case(["put"], {"PUT": 100}),
    "mixed 45/35/15/5": Case(["mixed", "--objects", str(OBJECTS), "--get-distrib", "45", "--put-distrib", "35",
                              "--stat-distrib", "15", "--delete-distrib", "5"],
                             {"GET": 45, "PUT": 35, "STAT": 15, "DELETE": 5}),
}


class Cost(NamedTuple):
    """Of one run of one generator."""

    requests: int  # that the server has answered
    processor: float  # seconds, user and system


def warp_line(case: Case, host: str, seconds: float, scratch: Path) -> List[str]:
    """warp, with each request as a row on stdout, as the project runs it."""
    line = [str(own_program("warp")), *case.warp, "--no-color", "--full", "--stress", "--stdout", "--noclear"]
    line += ["--host", host, "--bucket", "benchmark", "--obj.size", str(SIZE)]
    return [*line, "--concurrent", str(CONCURRENCY), "--duration", f"{seconds:g}s"]


def cbt_load_line(case: Case, host: str, seconds: float, scratch: Path) -> List[str]:
    """cbt-load on the objects that a listing finds."""
    ops = [{"op": op, "share": share, "select": "new" if op == "PUT" else "live", "spaces": ["all"]}
           for op, share in case.shares.items()]
    space = {"name": "all", "bucket": "benchmark", "prefix": "driver/", "sizes": [[SIZE, SIZE, 1.0]], "rebuild": True}
    spec = {"version": 1, "hosts": [f"http://{host}"], "workers": CONCURRENCY, "duration": seconds,
            "spaces": [space], "ops": ops}
    path = scratch / "spec.json"
    path.write_text(json.dumps(spec))
    return [str(own_program("cbt-load")), "run", str(path)]


GENERATORS = {"warp": warp_line, "cbt-load": cbt_load_line}


def processors() -> Tuple[Set[int], Set[int]]:
    """Half of them for the server and the others for the generator; where there is only one both share it."""
    every = sorted(os.sched_getaffinity(0))
    half = len(every) // 2
    return set(every[half:]), set(every[:half] or every)


def start(line: List[str], where: Set[int], **options: Any) -> subprocess.Popen[str]:
    """A program on some of the processors."""
    return subprocess.Popen(line, text=True, preexec_fn=lambda: os.sched_setaffinity(0, where), **options)


def measure(generator: str, case: Case, seconds: float) -> Cost:
    """Run a generator against a server of its own."""
    for_server, for_load = processors()
    line = [str(own_program("cbt-load")), "null", "--listen", "127.0.0.1:0"]
    line += ["--size", str(SIZE), "--keys", str(OBJECTS)]
    server = start(line, for_server, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert server.stdout and server.stderr
    try:
        host = server.stderr.readline().rpartition("http://")[2].strip()
        with tempfile.TemporaryDirectory() as scratch, open(Path(scratch) / "messages", "w+") as messages:
            line = GENERATORS[generator](case, host, seconds, Path(scratch))
            load = start(line, for_load, stdout=subprocess.DEVNULL, stderr=messages, cwd=scratch,
                         env={**os.environ, **KEYS})
            _, status, used = os.wait4(load.pid, 0)
            load.returncode = os.WEXITSTATUS(status) if os.WIFEXITED(status) else -os.WTERMSIG(status)
            if load.returncode:
                messages.seek(0)
                sys.exit(f"{generator}: exit status {load.returncode}\n{messages.read()[-2000:]}")
        server.send_signal(signal.SIGTERM)
        counts = json.loads(server.stdout.readline())
    finally:
        server.kill()
        server.wait()
    return Cost(sum(counts.values()), used.ru_utime + used.ru_stime)


def main() -> int:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 10.0
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 3
    missing = [name for name in GENERATORS if own_program(name) is None]
    if missing:
        print(f"{' and '.join(missing)} missing: see `cbt-tools build`")
        return 1
    costs: Dict[Tuple[str, str], List[Cost]] = {}
    for _ in range(rounds):
        for name, case in CASES.items():
            for generator in GENERATORS:
                costs.setdefault((name, generator), []).append(measure(generator, case, seconds))
    print(f"{SIZE} bytes, {CONCURRENCY} at once, {seconds:g} s, median of {rounds} in turns; "
          f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    if os.getloadavg()[0] > 2 * (os.cpu_count() or 1):
        print("  this machine is busy: what a program's start costs is spread over few requests, of warp's above all")
    print(f"  {'':18}{'processor time per request':>36}{'requests/s':>24}")
    print(f"  {'':18}" + f"{'warp':>12}{'cbt-load':>12}{'ratio':>12}" + f"{'warp':>12}{'cbt-load':>12}")
    for name in CASES:
        each = [statistics.median(c.processor / c.requests for c in costs[name, generator]) for generator in GENERATORS]
        rate = [statistics.median(c.requests for c in costs[name, generator]) / seconds for generator in GENERATORS]
        print(f"  {name:18}" + "".join(f"{value * 1e6:9.1f} us" for value in each) + f"{each[0] / each[1]:12.2f}"
              + "".join(f"{value:12,.0f}" for value in rate))
    return 0


if __name__ == "__main__":
    sys.exit(main())
