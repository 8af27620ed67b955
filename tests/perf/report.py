"""How long the answers of a long run take: archives of aggregates as five busy drivers leave them, summary, page, SQL.

Prints seconds and sizes, and where there is a Chromium how long it takes to open the page: medians of several times.
The nodes were watched, and one OSD node fails and returns. Usage: ./run bench report [HOURS [BLOCK]]
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile
import time
import zlib
from pathlib import Path
from typing import Any, Dict, List, Tuple

import numpy as np

from cbt_plugins.journal import write_whole
from cbt_plugins.report.page import run_page
from cbt_plugins.results.aggregates_file import MAGIC, PREFIX, TABLES, VERSION
from cbt_plugins.results.histogram import buckets
from cbt_plugins.results.summary_file import FILE, summarize, write_summary

sys.path.append(str(Path(__file__).parents[1] / "programs"))

from chromium import CHROMIUM, Browser

T0 = 1_700_000_040  # a whole minute
NS = 10**9
DRIVERS = 5
OPS = ("GET", "PUT", "STAT", "DELETE")
ENDPOINTS = ("http://rgw1:7480", "http://rgw2:7480")
RATE = 400  # requests a second of each driver and operation
#: seconds between two frames, by block
FRAMES = {1: 10, 60: 60}
#: the page is opened so many times
OPENED = 7
#: classes of daemons that were watched
CLASSES = ("osd", "rgw", "mon", "mgr", "generator")
#: frames with values of their own; the others repeat them at other times
DIFFERENT = 12

Columns = Dict[str, np.ndarray]


def values(chance: np.random.Generator, block: int) -> Dict[str, Columns]:
    """The tables of one frame that begins at 0: latencies around 7 ms with a long tail, as in tests/perf/rows.py."""
    length = FRAMES[block]
    blocks, cells = length // block, length // block * len(OPS) * len(ENDPOINTS)
    per_cell = RATE * block // len(ENDPOINTS)
    took = (chance.lognormal(-5.0, 0.8, (cells, per_cell)) * NS).astype(np.int64)
    key = np.arange(cells)
    cell = {name: np.zeros(cells, np.int64) for name in TABLES["counts"]}
    cell["block"] = key // (cells // blocks) * block
    cell["op"] = key // len(ENDPOINTS) % len(OPS)
    cell["endpoint"] = key % len(ENDPOINTS)
    moves = cell["op"] < 2
    cell.update(size=13 * moves, n=np.full(cells, per_cell), objects=np.full(cells, per_cell))
    cell.update(bytes=4096 * per_cell * moves)
    cell.update(total=took.sum(axis=1), min=took.min(axis=1), max=took.max(axis=1))
    gets = cell["op"] == 0
    first = took // 2
    cell.update(ttfb_n=per_cell * gets, ttfb_total=first.sum(axis=1) * gets, ttfb_min=first.min(axis=1) * gets)
    cell.update(ttfb_max=first.max(axis=1) * gets)
    rows = length * len(OPS)
    second = {name: np.zeros(rows, np.int64) for name in TABLES["seconds"]}
    second["second"], second["op"] = np.divmod(np.arange(rows), len(OPS))
    second.update(n=chance.poisson(RATE, rows), crossing=chance.poisson(4, rows), busy=chance.poisson(4 * NS, rows))
    second.update(objects=second["n"], bytes=4096 * second["n"] * (second["op"] < 2), total=second["n"] * 9 * 10**6)
    first_at = second["second"] * NS + 10**6
    second.update(max=chance.poisson(10**8, rows), first=first_at, last=first_at + 998 * 10**6)
    return {"counts": cell, "latency": counts(took, key), "ttfb": counts(first[gets], key[gets]), "seconds": second}


def counts(took: np.ndarray, cell: np.ndarray) -> Columns:
    keys, n = np.unique((cell[:, None] << 32) + buckets(took), return_counts=True)
    return {"group": keys >> 32, "bucket": keys & 0xFFFFFFFF, "count": n}


def frame(kind: str, block: int, tables: Dict[str, Columns], begin: int = 0) -> bytes:
    about = []
    columns: List[bytes] = []
    for name, table in tables.items():
        form = TABLES[name]
        moved = dict(table)
        for column, factor in (("block", 1), ("second", 1), ("first", NS), ("last", NS)):
            if column in moved:
                moved[column] = moved[column] + begin * factor
        about.append({"name": name, "rows": len(next(iter(table.values()))), "columns": list(form.items())})
        columns += [moved[column].astype("<" + dtype).tobytes() for column, dtype in form.items()]
    header = {"kind": kind, "bits": 11, "block": block, "sources": [], "ops": OPS, "endpoints": ENDPOINTS}
    header.update(errors=[], tables=about, totals=[])
    head = json.dumps(header).encode()
    packed = zlib.compress(struct.pack("<I", len(head)) + head + b"".join(columns), 1)
    return PREFIX.pack(MAGIC, VERSION, 1, len(packed), zlib.crc32(packed)) + packed


def write_archive(archive: Path, hours: float, block: int) -> Tuple[Path, int]:
    """One phase of so many hours; returns the run's directory and the number of requests."""
    run = archive / "results" / "00000000" / "id-00000001"
    phase = run / "phases" / "01-age"
    (phase / "aggregates").mkdir(parents=True)
    (run / "complete").write_text("{}")
    (run / "plan.json").write_text(json.dumps({"benchmark": "warp", "phases": [{"name": "age"}]}))
    (run / "manifest.json").write_text("{}")
    length = int(hours * 3600)
    chance = np.random.default_rng(1)
    different = [values(chance, block) for _ in range(DIFFERENT)]
    first = phase / "aggregates" / "d0.aggregates"
    with first.open("wb") as out:
        for number in range(length // FRAMES[block]):
            begin = T0 + number * FRAMES[block]
            out.write(frame("counts", block, different[number % DIFFERENT], begin))
        out.write(frame("end", block, {}))
    jobs, requests = [], length * RATE * len(OPS) * DRIVERS
    for d in range(DRIVERS):
        if d:
            shutil.copyfile(first, phase / "aggregates" / f"d{d}.aggregates")
        job: Dict[str, Any] = {"id": f"d{d}", "node": f"client{d}", "op": "MIXED", "role": "cbt-load", "workers": 15}
        job.update(aggregates=f"aggregates/d{d}.aggregates", rows_total=requests // DRIVERS, sizes=[[4096, 4096, 1.0]])
        jobs.append(job)
    mix = {op: 100 / len(OPS) for op in OPS}
    about: Dict[str, Any] = {"version": 2, "index": 1, "name": "age", "kind": "hybrid", "role": "age", "status": "ok"}
    about.update(window={"start": T0, "end": T0 + length}, block=block, asked={"duration": length, "mix": mix})
    about.update(engine="cbt-load")
    (phase / "phase.json").write_text(json.dumps({**about, "jobs": jobs}))
    with (phase / "status.jsonl").open("w") as status, (phase / "heartbeat.jsonl").open("w") as beats:
        for t in range(T0, T0 + length, 2):
            pgs = {"active+clean": 4000, "active+clean+scrubbing+deep": 7, "active+undersized+degraded": t % 3}
            sample = {"t": t, "pgs": pgs, "clean": False, "health": "HEALTH_WARN", "checks": {"PG_DEGRADED": "x"}}
            status.write(json.dumps({**sample, "raw_used": 0.5, "degraded": 7, "misplaced": 9, "osds_up": 99}) + "\n")
        for t in range(T0, T0 + length):
            for d in range(DRIVERS):
                its = {"ops": t, "bytes": t * 4096, "errors": 0, "state": "running", "in_flight": 15, "oldest": 0.25}
                beats.write(json.dumps({"t": t + d / 7, "node": f"client{d}", "jobs": {f"d{d}": its}}) + "\n")
    return run, requests


def add_what_was_seen(summary: Dict[str, Any]) -> None:
    """Cores of every class, every second, and a failure with all of its states: as a run has them that was watched."""
    (phase,) = summary["phases"]
    series, window = phase["series"], phase["window"]
    bins, step = len(series["ops"]["GET"]["errors"]), series["step"]
    chance = np.random.default_rng(2)
    cores = {name: np.round(chance.normal(40, 3, bins), 3).tolist() for name in CLASSES}
    one = {"cores": 40.0, "peak": 50.0, "rss_mib": 4096.0, "daemons": 60, "read_mib_s": 9.0, "write_mib_s": 9.0}
    io = {"read_mib_s": 9.0, "write_mib_s": 9.0}
    daemon = {"node": "osd1", "class": "osd", "pid": 4242, "cores": 0.66, "peak": 1.1, "rss_mib": 4096.0, **io}
    device = {"node": "osd1", "util": 0.5, "queue": 3.0, **io}
    used: Dict[str, Any] = {"seconds": window["seconds"], "classes": dict.fromkeys(CLASSES, one)}
    used["nodes"] = [{"node": "osd1", "cpus": 64, "busy": 0.6, "io_wait": 0.1, "watched": 1.0}]
    used.update(rgw_osd_ratio=1.0, ops_per_core=20.0, cores_per_gb_s=9.0, interfaces=[])
    used["daemons"] = [{**daemon, "id": str(i)} for i in range(99)]
    used["devices"] = [{**device, "device": f"nvme{i}n1", "osd": i} for i in range(99)]
    used["series"] = {"start": series["start"], "step": step, "cores": cores}
    used["bottleneck"] = {"what": "media", "evidence": ["nvme3n1 of osd1 was busy for 97 % of the time"]}
    summary["resources"] = {"nodes": [{"node": "osd1"}], "phases": {phase["name"]: used}}
    states = ("no failure", "degraded", "recovering", "no failure")
    ends = [round(i * window["seconds"] / 4, 3) for i in range(5)]
    windows = [{"state": its, "labels": ["a"], "from": a, "to": b} for its, a, b in zip(states, ends, ends[1:])]
    counts = {name: chance.poisson(10**6, bins).tolist() for name in ("degraded", "misplaced", "objects_per_s")}
    marks = [{"at": end, "title": "first OSD down", "kind": "failure", "labels": ["a"]} for end in ends[1:4]]
    timeline = {"start": series["start"], "step": step, "windows": windows, "marks": marks, "cluster": counts}
    nothing: Dict[str, Any] = {"version": 1, "warnings": [], "phases": [], "states": {}, "baseline": None}
    milestones = {"version": 1, "episodes": [], "warnings": []}
    summary["failure"] = {"milestones": milestones, "impact": nothing, "timelines": {phase["name"]: timeline}}


def opened(path: Path, scratch: Path) -> str:
    """Medians of the milliseconds until Chromium has run the page's scripts, and until it has made a frame of it."""
    if not CHROMIUM:
        return "no Chromium here"
    with Browser(scratch / "profile") as browser:
        browser.open("about:blank")
        times = [browser.open(path.as_uri()) for _ in range(OPENED)]
        assert not browser.complaints() and len(browser.requests()) == 1
    load, frame = (statistics.median(getattr(its, name) for its in times) / 1000 for name in ("load", "frame"))
    return f"{load:6.2f} s to the load event, {frame:.2f} s to the first frame with charts (medians of {OPENED})"


def question() -> str:
    """The question of docs/SQL.md for a percentile."""
    text = (Path(__file__).parents[2] / "docs" / "SQL.md").read_text()
    return text.partition("99th percentile per gateway")[2].partition("```sql\n")[2].partition("```")[0]


def asked(archive: Path) -> str:
    """How long the question for a percentile takes, and the largest of its processes."""
    command = [sys.executable, "-m", "cbt_plugins.tools", "sql", str(archive), question()]
    before, begun = os.times(), time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    assert status == 0, command
    took, after = time.perf_counter() - begun, os.times()
    processor = sum(after[2:4]) - sum(before[2:4])
    return f" {took:5.2f} s, processor time {processor:.2f} s, largest process {used.ru_maxrss / 1024:.0f} MB"


def megabytes(path: Path) -> float:
    return path.stat().st_size / 1e6


def measure(hours: float, block: int, scratch: Path) -> None:
    run, requests = write_archive(scratch, hours, block)
    data = sum(map(megabytes, (run / "phases").glob("*/aggregates/*")))
    before, begun = os.times(), time.perf_counter()
    summary = summarize(run)
    add_what_was_seen(summary)
    summarized = time.perf_counter()
    write_summary(summary, run / FILE)
    written = time.perf_counter()
    write_whole(run / "report.html", run_page(summary, run))
    ended, after = time.perf_counter(), os.times()
    assert sum(op["requests"] for op in summary["phases"][0]["ops"].values()) == requests, "requests were lost"
    processor = sum(after[:4]) - sum(before[:4])
    used = max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)) / 1024
    print(f"{hours:g} h, block {block} s, {DRIVERS} drivers: {requests / 1e6:,.0f} million requests, {data:,.0f} MB")
    print(f"  aggregates to summary  {summarized - begun:6.2f} s")
    print(f"  {FILE}        {written - summarized:6.2f} s  {megabytes(run / FILE):6.2f} MB")
    print(f"  report.html         {ended - written:6.2f} s  {megabytes(run / 'report.html'):6.2f} MB")
    print(f"  together            {ended - begun:6.2f} s")
    print(f"  opened in Chromium  {opened(run / 'report.html', scratch)}")
    print(f"  p99 by cbt-tools sql{asked(scratch)}")
    print(f"  processor time {processor:.2f} s, largest process {used:.0f} MB", flush=True)


def main() -> int:
    given = [float(text) for text in sys.argv[1:]]
    cases = [(given[0], int(given[1]) if len(given) > 1 else 60)] if given else [(38.0, 60), (2.0, 1)]
    for hours, block in cases:
        with tempfile.TemporaryDirectory() as scratch:
            measure(hours, block, Path(scratch))
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
