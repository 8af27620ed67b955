"""How long the answers of a long run take: archives of aggregates as five busy drivers leave them, summary, page, SQL.

Prints seconds and sizes, and where there is a Chromium how long it takes to open the page: medians of several times.
The nodes were watched, and one OSD node fails and returns. Usage: ./run bench report [HOURS [BLOCK]]
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Dict, Tuple

import numpy as np
from inputs import long_runs
from inputs.long_runs import DRIVERS, T0

from cbt_plugins.journal import write_whole
from cbt_plugins.report.page import run_page
from cbt_plugins.results.summary_file import FILE, summarize, write_summary

sys.path.append(str(Path(__file__).parents[1] / "programs"))

from chromium import CHROMIUM, Browser

#: the page is opened so many times
OPENED = 7
#: classes of daemons that were watched
CLASSES = ("osd", "rgw", "mon", "mgr", "generator")


def write_archive(archive: Path, hours: float, block: int) -> Tuple[Path, int]:
    """Write a run with one phase of so many hours; return the run's directory and the number of requests."""
    run = archive / "results" / "00000000" / "id-00000001"
    phase = run / "phases" / "01-age"
    end = T0 + int(hours * 3600)
    requests = long_runs.write_phase(phase, "age", (T0, end), block, long_runs.frames_of(block))
    (run / "complete").write_text("{}")
    (run / "plan.json").write_text(json.dumps({"benchmark": "warp", "phases": [{"name": "age"}]}))
    (run / "manifest.json").write_text("{}")
    with (phase / "status.jsonl").open("w") as status:
        for t in range(T0, end, 2):
            pgs = {"active+clean": 4000, "active+clean+scrubbing+deep": 7, "active+undersized+degraded": t % 3}
            sample = {"t": t, "pgs": pgs, "clean": False, "health": "HEALTH_WARN", "checks": {"PG_DEGRADED": "x"}}
            status.write(json.dumps({**sample, "raw_used": 0.5, "degraded": 7, "misplaced": 9, "osds_up": 99}) + "\n")
    long_runs.write_heartbeats(phase, range(T0, end))
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
