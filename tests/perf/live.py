"""What it costs to serve the page of a run that goes on, beside 10 drivers: the processor time of the server.

A phase of 10 drivers grows as fast as it would: frames of 10 s, heartbeats and samples once a second. One browser
follows. Prints the share of a core, the bytes that the browser got, and the delay between two pages.
Usage: ./run bench live [SECONDS]
"""

from __future__ import annotations

import http.client
import json
import os
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
from cbt_plugins.report.live_page import LivePage
from cbt_plugins.report.live_server import LiveServer
from cbt_plugins.results.live_run import LiveRun

DRIVERS = 10
LENGTH = 3600.0


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
        state = {"t": now, "pgs": {"active+clean": 256 - made % 7, "active+recovering": made % 7}, "num_pgs": 256}
        file.write(json.dumps(state) + "\n")
    if made % 10 == 0:
        for number in range(DRIVERS):
            with (folder / "aggregates" / f"{job(number)['id']}.aggregates").open("ab") as out:
                out.write(long_runs.frame("counts", 1, tables[(made // 10 + number) % len(tables)], now - 10))


def follow(server: LiveServer, got: Dict[str, Any]) -> None:
    """Take events until the server ends."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port)
    connection.request("GET", f"/events?since={server.page.version}", headers={"Host": "localhost"})
    for line in connection.getresponse():
        got["bytes"] = got.get("bytes", 0) + len(line)
        if line == b"event: page\n":
            got.setdefault("pages", []).append(time.monotonic())


def main(seconds: int) -> None:
    chance = np.random.default_rng(1)
    tables = [long_runs.values(chance, 1) for _ in range(4)]
    with tempfile.TemporaryDirectory() as top:
        run = Path(top) / "results" / "00000000" / "id-1a2b3c4d"
        since = int(time.time()) - 30
        folder = begin(run, since)
        with closing(Journal(run / "journal.jsonl")):
            for made in range(1, 31):
                second(run, folder, since, made, tables)
            page = LivePage(LiveRun(run))
            page.look()
            got: Dict[str, Any] = {}
            with closing(LiveServer(page, "127.0.0.1", 0)) as server:
                threading.Thread(target=follow, args=(server, got), daemon=True).start()
                used, begun = 0.0, time.monotonic()
                for made in range(31, 31 + seconds):
                    second(run, folder, since, made, tables)
                    before = time.process_time()
                    page.look()
                    time.sleep(max(0.0, begun + (made - 30) - time.monotonic()))
                    used += time.process_time() - before  # of all threads, without what writes the archive
    pages = got.get("pages", [])
    apart = np.diff(pages) if len(pages) > 1 else np.zeros(1)
    print(f"{DRIVERS} drivers, {seconds} s, one browser, {os.cpu_count()} cores")
    print(f"server           {100 * used / seconds:.2f} % of a core")
    print(f"browser          {got.get('bytes', 0) / seconds / 1024:.1f} KiB/s")
    print(f"pages            {len(pages)}, median {np.median(apart):.1f} s apart")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 300)
