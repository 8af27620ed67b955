"""What it costs to serve the page of a run that goes on, beside 10 drivers: the processor time of the whole program.

A phase of 10 drivers grows as fast as it would: frames of 10 s, heartbeats and samples once a second. OSDs flap, and
a thrasher injects a fault each minute. `cbt-tools watch --serve` is a process of its own, and one browser follows.
Prints the share of a core that the process took after its start, as Linux counts it, the bytes that the browser got,
and the delay between two pages.
Usage: ./run bench live [SECONDS]
"""

from __future__ import annotations

import http.client
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import Any, Dict, List

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from inputs import long_runs

from cbt_plugins.journal import Journal

DRIVERS = 10
LENGTH = 3600.0
#: seconds between two changes of an OSD, and between a fault and its undo
FLAP, FAULT = 5, 30


def begin(run: Path, now: int) -> Path:
    """Write what is there when the load begins; return the phase's folder."""
    folder = run / "phases" / "01-measure.running"
    (folder / "aggregates").mkdir(parents=True)
    (run / "monitors" / "recovery.node0").mkdir(parents=True)
    phase = {"name": "measure", "kind": "hybrid", "role": "measure", "engine": "cbt-load", "duration": LENGTH}
    (run / "plan.json").write_text(json.dumps({"benchmark": "rgwtest", "phases": [phase]}))
    (run / "manifest.json").write_text(json.dumps({"version": 2, "run_id": "bench"}))
    jobs = [job(number) for number in range(DRIVERS)]
    record = {**phase, "version": 2, "index": 1, "status": "running", "window": {"start": now, "end": None}}
    record.update(block=1, asked={"duration": LENGTH, "mix": {op: 25.0 for op in long_runs.OPS}}, jobs=jobs)
    (folder / "running.json").write_text(json.dumps(record))
    events: List[Dict[str, Any]] = [
        {"t": now - 1, "event": "phase-begin", "phase": "measure", "kind": "hybrid", "role": "measure"},
        {"t": now, "event": "load-go", "phase": "measure", "at": now},
    ]
    (run / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    return folder


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
        with (run / "events.jsonl").open("a") as file:
            for name in names:
                event = {"t": now, "event": name, "label": label, "kind": "stop", "targets": ["node1"], "osds": [3]}
                file.write(json.dumps(event) + "\n")
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


def follow(host: str, got: Dict[str, Any]) -> None:
    """Take events until the server ends."""
    connection = http.client.HTTPConnection(host)
    connection.request("GET", "/")
    (version,) = re.findall(rb'id="live" data-version="(\d+)"', connection.getresponse().read())
    connection.request("GET", f"/events?since={version.decode()}")
    for line in connection.getresponse():
        got["bytes"] = got.get("bytes", 0) + len(line)
        if line == b"event: page\n":
            got.setdefault("pages", []).append(time.monotonic())


def processor_seconds(pid: int) -> float:
    """Return the processor time of a process and of its children that have ended (man 5 proc_pid_stat)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def main(seconds: int) -> None:
    chance = np.random.default_rng(1)
    tables = [long_runs.values(chance, 1) for _ in range(4)]
    got: Dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as top:
        run = Path(top) / "results" / "00000000" / "id-1a2b3c4d"
        since = int(time.time()) - 30
        folder = begin(run, since)
        with closing(Journal(run / "journal.jsonl")):
            for made in range(1, 31):
                second(run, folder, since, made, tables)
            words = [sys.executable, "-m", "cbt_plugins.tools", "watch", str(run), "--serve", "0"]
            with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as program:
                try:
                    assert program.stderr
                    url = program.stderr.readline()
                    host = url.strip().split("/")[2]
                    threading.Thread(target=follow, args=(host, got), daemon=True).start()
                    used, begun = processor_seconds(program.pid), time.monotonic()
                    for made in range(31, 31 + seconds):
                        second(run, folder, since, made, tables)
                        time.sleep(max(0.0, begun + (made - 30) - time.monotonic()))
                    used = processor_seconds(program.pid) - used
                finally:
                    program.kill()
    pages = got.get("pages", [])
    apart = np.diff(pages) if len(pages) > 1 else np.zeros(1)
    print(f"{DRIVERS} drivers, {seconds} s, one browser, {os.cpu_count()} cores, load {os.getloadavg()[1]:.0f}")
    print(f"program          {100 * used / seconds:.2f} % of a core")
    print(f"browser          {got.get('bytes', 0) / seconds / 1024:.1f} KiB/s")
    print(f"pages            {len(pages)}, median {np.median(apart):.1f} s apart")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 300)
