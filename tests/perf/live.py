"""What it costs to serve the page of a run that goes on, beside 10 drivers: the processor time of the whole program.

A phase of 10 drivers grows as fast as it would: frames of 10 s, heartbeats and samples once a second. OSDs flap, and
a thrasher injects a fault each minute. `cbt-tools watch --serve` is a process of its own, and one browser follows.
Prints the share of a core that the process took after its start, as Linux counts it, the bytes that the browser got,
the delay between two pages, and the delays from the event of a fault to its mark at the end of the charts, and to the
page that has it in the data of the charts: of a fault without a mark, its age at the end.
Usage: ./run bench live [SECONDS [PHASE]], 300 s and one phase of 3600 s unless it says so
"""

from __future__ import annotations

import http.client
import json
import math
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, List, Mapping, Sequence

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from inputs import long_runs

from cbt_plugins.journal import Journal

DRIVERS = 10
LENGTH = 3600
#: seconds between two changes of an OSD, and between a fault and its undo
FLAP, FAULT = 5, 30


def begin(run: Path, now: int, phases: int, length: int) -> Path:
    """Write what is there when the load begins; return the folder of the first phase."""
    (run / "monitors" / "recovery.node0").mkdir(parents=True)
    plan = {"benchmark": "rgwtest", "phases": [phase(number, length) for number in range(1, phases + 1)]}
    (run / "plan.json").write_text(json.dumps(plan))
    (run / "manifest.json").write_text(json.dumps({"version": 2, "run_id": "bench"}))
    return begin_phase(run, now, 1, length)


def phase(number: int, length: int) -> Dict[str, Any]:
    """Return a phase of the plan; `length` in seconds."""
    name = f"measure-{number}"
    return {"name": name, "kind": "hybrid", "role": "measure", "engine": "cbt-load", "duration": float(length)}


def begin_phase(run: Path, now: int, number: int, length: int) -> Path:
    """Begin the load of a phase; return its folder."""
    of = phase(number, length)
    folder = run / "phases" / f"{number:02d}-{of['name']}.running"
    (folder / "aggregates").mkdir(parents=True)
    record = {**of, "version": 2, "index": number, "status": "running", "window": {"start": now, "end": None}}
    record.update(block=1, asked={"duration": float(length), "mix": {op: 25.0 for op in long_runs.OPS}})
    record.update(jobs=[job(driver) for driver in range(DRIVERS)])
    (folder / "running.json").write_text(json.dumps(record))
    add_event(run, {"t": now, "event": "phase-begin", "phase": of["name"], "kind": "hybrid", "role": "measure"})
    add_event(run, {"t": now, "event": "load-go", "phase": of["name"], "at": now})
    return folder


def end_phase(run: Path, folder: Path, now: int) -> None:
    """End the load of a phase."""
    record = json.loads((folder / "running.json").read_text())
    record.update(status="ok", window={"start": record["window"]["start"], "end": now})
    (folder / "phase.json").write_text(json.dumps(record))
    folder.rename(folder.with_suffix(""))
    add_event(run, {"t": now, "event": "phase-end", "phase": record["name"], "status": "ok"})


def add_event(run: Path, event: Dict[str, Any]) -> None:
    with (run / "events.jsonl").open("a") as file:
        file.write(json.dumps(event) + "\n")


def job(number: int) -> Dict[str, Any]:
    name = f"{number:02d}-1MiB"
    return {
        "id": name,
        "driver": name,
        "node": f"client{number}",
        "op": "MIXED",
        "workers": 16,
        "role": "cbt-load",
        "aggregates": f"aggregates/{name}.aggregates",
    }


def second(run: Path, folder: Path, since: int, made: int, tables: List[Any]) -> None:
    """Write what comes in one second, `made` seconds after the load began."""
    now = since + made
    with (folder / "heartbeat.jsonl").open("a") as file:
        for number in range(DRIVERS):
            counts = {"ops": made * 1600, "bytes": made << 27, "errors": 0, "state": "running", "in_flight": 16}
            line = {"t": now, "node": f"client{number}", "jobs": {job(number)["id"]: counts}}
            file.write(json.dumps(line) + "\n")
    with (run / "monitors" / "recovery.node0" / "recovery.jsonl").open("a") as file:
        file.write(json.dumps(sample(now, made)) + "\n")
    if made % FAULT == 0:
        number, is_undo = divmod(made // FAULT - 1, 2)
        label = f"thrasher-{number}"
        names = ("fault-undo-begin", "fault-undone") if is_undo else ("fault-inject-begin", "fault-injected")
        for name in names:
            event = {"t": now, "event": name, "label": label, "kind": "stop", "targets": ["node1"], "osds": [3]}
            add_event(run, event)
    if made % 10 == 0:
        for number in range(DRIVERS):
            with (folder / "aggregates" / f"{job(number)['id']}.aggregates").open("ab") as out:
                out.write(long_runs.frame("counts", 1, tables[(made // 10 + number) % len(tables)], now - 10))


def sample(now: int, elapsed: int) -> Dict[str, Any]:
    """Return the cluster at a second: osd.3 is down, or up again, for FLAP seconds."""
    changes, since_change = divmod(elapsed, FLAP)
    is_down = changes % 2 == 0
    recovering = 7 if is_down else 0
    state: Dict[str, Any] = {"t": now, "epoch": 100 + changes, "osds": 12, "osds_up": 12 - is_down, "num_pgs": 256}
    state.update(pgs={"active+clean": 256 - recovering, "active+recovering": recovering}, down=[3] * is_down)
    if since_change == 0:
        state["map"] = [{"epoch": state["epoch"], "t": now, "down" if is_down else "up": [3]}]
    return state


class Browser:
    """Follows the page in a thread of its own until the server ends."""

    def __init__(self, host: str) -> None:
        self.begun = time.time()
        self.bytes = 0
        self.pages: List[float] = []  # time.time() of each page
        # time of a fault -> time of the first event with its mark, and of the first page
        self.marks: Dict[int, float] = {}
        self.in_pages: Dict[int, float] = {}
        self._data: Any = None
        threading.Thread(target=self._follow, args=(host,), daemon=True).start()

    def _follow(self, host: str) -> None:
        connection = http.client.HTTPConnection(host)
        connection.request("GET", "/")
        page = connection.getresponse().read().decode()
        (version,) = re.findall(r'id="live" data-version="(\d+)"', page)
        (data,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
        self._data = json.loads(data)
        connection.request("GET", f"/events?since={version}")
        take: Callable[[Any], None] = _ignore
        for line in connection.getresponse():
            self.bytes += len(line)
            if line.startswith(b"data: "):
                take(json.loads(line[len(b"data: ") :]))
            if line.startswith(b"event: "):
                take = {b"page": self._take, b"moment": self._mark}.get(line[len(b"event: ") :].strip(), _ignore)

    def _mark(self, moment: Mapping[str, Any]) -> None:
        for mark in moment["marks"]:
            if mark["title"] == "fault":
                self.marks.setdefault(round(mark["t"]), time.time())

    def _take(self, page: Dict[str, Any]) -> None:
        """Apply the changes of the charts' data as live.js does, and note new marks of faults."""
        self.pages.append(time.time())
        for path, begin, value in page["data"]:
            *folders, last = path
            part = self._data
            for key in folders:
                part = part[key]
            if begin is None:
                part[last] = value
            else:
                part[last][begin:] = value
        for failure in (phase["failure"] for phase in self._data["phases"]):
            for mark in failure["marks"] if failure else ():
                if mark["title"] == "fault":
                    fault = round(failure["start"] + mark["at"])
                    self.marks.setdefault(fault, self.pages[-1])
                    self.in_pages.setdefault(fault, self.pages[-1])


def _ignore(_: Any) -> None:
    """Take an event of another kind."""


def processor_seconds(pid: int) -> float:
    """Return the processor time of a process and of its children that have ended (man 5 proc_pid_stat)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def grow(run: Path, folder: Path, since: int, seconds: Iterable[int], length: int, tables: List[Any]) -> Path:
    """Write what comes in these seconds after the load began, each at its time; return the folder of the last phase."""
    for made in seconds:
        time.sleep(max(0.0, since + made - time.time()))
        second(run, folder, since, made, tables)
        if made % length == 0:
            end_phase(run, folder, since + made)
            folder = begin_phase(run, since + made, made // length + 1, length)
    return folder


def main(seconds: int, length: int) -> None:
    chance = np.random.default_rng(1)
    tables = [long_runs.values(chance, 1) for _ in range(4)]
    with tempfile.TemporaryDirectory() as top:
        run = Path(top) / "results" / "00000000" / "id-1a2b3c4d"
        since = int(time.time()) - 30
        folder = begin(run, since, (seconds + 30) // length + 1, length)
        with closing(Journal(run / "journal.jsonl")):
            folder = grow(run, folder, since, range(1, 31), length, tables)
            words = [sys.executable, "-m", "cbt_plugins.tools", "watch", str(run), "--serve", "0"]
            with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as program:
                try:
                    assert program.stderr
                    url = program.stderr.readline()
                    browser = Browser(url.strip().split("/")[2])
                    used, begun = processor_seconds(program.pid), time.monotonic()
                    grow(run, folder, since, range(31, 31 + seconds), length, tables)
                    used, took = processor_seconds(program.pid) - used, time.monotonic() - begun
                finally:
                    program.kill()
    cores, load = os.cpu_count(), os.getloadavg()[1]
    print(f"{DRIVERS} drivers, {took:.0f} s, phases of {length} s, one browser, {cores} cores, load {load:.0f}")
    print(f"program          {100 * used / took:.2f} % of a core")
    print(f"browser          {browser.bytes / took / 1024:.1f} KiB/s")
    print(f"pages            {len(browser.pages)}, median {percentile(np.diff(browser.pages), 50):.1f} s apart")
    faults = [since + made for made in range(31, 31 + seconds) if made % (2 * FAULT) == FAULT]
    faults = [t for t in faults if t > browser.begun]
    print("fault to mark    " + delay_to_mark(faults, browser.marks, time.time()))
    print("fault to page    " + delay_to_mark(faults, browser.in_pages, time.time()))


def delay_to_mark(faults: Sequence[int], marks: Mapping[int, float], end: float) -> str:
    """Return a text with the delays from faults to their marks; a fault without a mark has its age at the end."""
    late = [marks.get(fault, end) - fault for fault in faults]
    shown = sum(fault in marks for fault in faults)
    median, nine_of_ten = percentile(late, 50), percentile(late, 90)
    return f"{shown} of {len(faults)} faults, median {median:.1f} s, 90 % within {nine_of_ten:.1f} s"


def percentile(values: Sequence[float], percent: float) -> float:
    """Return a percentile; not a number where there are no values."""
    return float(np.percentile(values, percent)) if len(values) else math.nan


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]), *(300, LENGTH)[len(sys.argv) - 1 :])
