"""What a command costs, and how a cost grows from size to size."""

from __future__ import annotations

import enum
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple, TypeVar

from cbt_plugins.programs import own_program

T = TypeVar("T")

#: runs a module as `python -m` does, and leaves what its own process has used
_WATCHED = """\
import atexit, json, resource, runpy, sys
report, sys.argv = sys.argv[1], sys.argv[2:]
def leave():
    used, below = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    peak = next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM"))
    cpu, children = (usage.ru_utime + usage.ru_stime for usage in (used, below))
    mb, children_mb = int(peak) / 1024, below.ru_maxrss / 1024
    json.dump({"cpu": cpu, "children": children, "mb": mb, "children_mb": children_mb}, open(report, "w"))
atexit.register(leave)
runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
"""
#: seconds: no command takes longer
LONGEST = 3600


class Extent(enum.Enum):
    """How many of the sizes of a curve are measured."""

    QUICK = "quick"
    USUAL = "usual"
    LONG = "long"

    def sizes(self, usual: Sequence[T], long: Sequence[T] = ()) -> List[T]:
        """Return the sizes to measure; `long`: those that last longest."""
        if self is Extent.QUICK:
            return list(usual[:-1])
        return [*usual, *long] if self is Extent.LONG else list(usual)


class Cost(NamedTuple):
    """Of a command: its own process, and apart the CPU time of those that it has started."""

    cpu: float  # seconds, user and system
    mb: float  # the most memory that it had
    wall: float
    status: int
    output: str
    children: float  # seconds of CPU time
    children_mb: float  # the most memory of any of them


def cost_of(module: str, *words: str, env: Optional[Mapping[str, str]] = None, times: int = 1) -> Cost:
    """Return the cost of `python -m MODULE WORDS`: the run with the median of CPU seconds."""
    costs = [_once(module, words, env) for _ in range(times)]
    return sorted(costs)[len(costs) // 2]


def _once(module: str, words: Sequence[str], env: Optional[Mapping[str, str]]) -> Cost:
    with tempfile.TemporaryDirectory() as scratch:
        report = Path(scratch) / "used.json"
        line = [sys.executable, "-c", _WATCHED, str(report), module, *words]
        begun = time.monotonic()
        done = subprocess.run(line, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LONGEST)
        wall = time.monotonic() - begun
        used = json.loads(report.read_text())
    output = done.stdout + done.stderr
    return Cost(used["cpu"], used["mb"], wall, done.returncode, output, used["children"], used["children_mb"])


def cbt_load() -> Optional[Path]:
    """Return the program cbt-load; None, with a message, where it is missing."""
    program = own_program("cbt-load")
    if program is None:
        print("  cbt-load is missing: see `cbt-tools build`")
    return program


def cpu_of(pid: int, children: bool = False) -> float:
    """Return the CPU seconds of a process so far, with `children` also those of its children that have ended."""
    words = Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1].split()
    return sum(map(int, words[11 : 15 if children else 13])) / os.sysconf("SC_CLK_TCK")


def exponent(sizes: Sequence[float], costs: Sequence[float]) -> float:
    """Return the slope of log(cost) over log(size) by least squares: 1 where the cost is proportional to the size."""
    x, y = [math.log(size) for size in sizes], [math.log(max(cost, 1e-9)) for cost in costs]
    return statistics.linear_regression(x, y).slope if len(set(x)) > 1 else float("nan")


class Curves:
    """A table: a row for each size, and a last one with the exponent of each column."""

    def __init__(self, of: str, columns: Mapping[str, str]) -> None:
        self._of, self._columns = of, dict(columns)  # column -> format of its values
        self._rows: List[Tuple[float, Dict[str, float]]] = []
        self._widths = {name: max(12, len(name) + 2) for name in self._columns}
        print(f"  {of:>14}" + "".join(f"{name:>{self._widths[name]}}" for name in self._columns), flush=True)

    def add(self, size: float, **values: float) -> None:
        """Print a row. `values` are by column, with _ for what is no letter there."""
        by_column = {name: values[_key(name)] for name in self._columns if _key(name) in values}
        self._rows.append((size, by_column))
        cells = (f"{by_column[name]:{form}}" if name in by_column else "-" for name, form in self._columns.items())
        row = "".join(f"{cell:>{width}}" for cell, width in zip(cells, self._widths.values()))
        print(f"  {size:14,.0f}{row}", flush=True)

    def end(self) -> None:
        """Print the exponents."""
        text = ""
        for name, width in self._widths.items():
            # nothing has no logarithm
            known = [(size, values[name]) for size, values in self._rows if values.get(name)]
            text += f"{exponent(*zip(*known)):{width}.2f}" if len(known) > 1 else f"{'-':>{width}}"
        print(f"  {'exponent':>14}{text}", flush=True)


def _key(name: str) -> str:
    return "".join(c if c.isalnum() else "_" for c in name).strip("_")
