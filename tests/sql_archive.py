"""The archive that docs/SQL.md asks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Dict, List

from archive_builder import T0, instant, job, phase, row, run, steady

from cbt_plugins.results.summary_file import FILE, summarize, write_summary

REFUSED = "refused: no connection in time"


def _sql_jobs(begin: float, slow: int, hole: bool) -> List[Dict[str, Any]]:
    """Two drivers; with a hole, nothing of the second one ends well for 3 s from the 5th second on."""
    jobs = []
    for number, size in ((1, 4096), (2, 65536)):
        get = steady(
            "GET", workers=2, seconds=14, latency=0.02 * slow * number, begin=begin - 2, size=size, first=0.005 * slow
        )
        put = steady("PUT", workers=1, seconds=14, latency=0.05 * number, begin=begin - 2, size=size)
        if hole and number == 2:
            get = [row for row in get if not _within(row, begin + 5, begin + 8)]
            get.append(row("GET", begin + 7.5, 2.5, error=REFUSED, endpoint="http://rgw2:7480", size=size))
        name = f"0{number}-{size // 1024}KiB"
        for op, rows in (("get", get), ("put", put)):
            one = job(f"{name}-{op}", op.upper(), rows, driver=name, node=f"client{number}", bucket=f"b{number}")
            jobs.append({**one, "sizes": [[size, size, 1.0]], "workers": 2 if op == "get" else 1})
    return jobs


def _within(row: str, low: float, high: float) -> bool:
    end = row.rstrip("\n").split("\t")[11]
    return instant(round((T0 + low) * 10**9)) <= end < instant(round((T0 + high) * 10**9))


def sql_run(archive: Path) -> Path:
    """A run: `new` with rows and no aggregates, `hurt` with aggregates and a node down, `aged`; resources."""
    directory = run(archive, phases=["new", "hurt", "aged"])
    phases = (("new", 0, 1, "measure"), ("hurt", 100, 1, "measure"), ("aged", 200, 2, "measure"))
    for index, (name, begin, slow, role) in enumerate(phases, 1):
        asked = {"duration": 10.0, "mix": {"GET": 75, "PUT": 25}}
        jobs = _sql_jobs(begin, slow, name == "hurt")
        aggregates = name != "new"
        path = phase(
            directory, index, name, jobs, window=(begin, begin + 10), asked=asked, role=role, as_aggregates=aggregates
        )
        beats = [
            {"t": T0 + begin + t, "node": node, "jobs": {job: {"ops": 100 * t, "bytes": 0, "errors": 0,
             "state": "running", "in_flight": 2, "oldest": max(0.1, t - 5.0) if name == "hurt" and t < 8 else 0.1}}}
            for t in range(1, 11)
            for node, job in (("client1", "01-4KiB-get"), ("client2", "02-64KiB-get"))
        ]  # fmt: skip
        (path / "heartbeat.jsonl").write_text("".join(json.dumps(beat) + "\n" for beat in beats))
    events = [
        {"t": T0 - 2.0, "event": "phase-begin", "phase": "new"},
        {"t": T0 + 98.0, "event": "phase-begin", "phase": "hurt"},
        {"t": T0 + 105.0, "event": "fault-inject-begin", "phase": "hurt", "label": "node4 down"},
        {"t": T0 + 108.0, "event": "fault-undo-begin", "phase": "hurt", "label": "node4 down"},
        {"t": T0 + 198.0, "event": "phase-begin", "phase": "aged"},
    ]
    (directory / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    summary = summarize(directory)
    daemons = [
        {"node": "node1", "class": "osd", "id": "0", "pid": 11, "cores": 1.5, "peak": 2.0, "rss_mib": 900.0},
        {"node": "node2", "class": "osd", "id": "1", "pid": 12, "cores": 0.5, "peak": 0.9, "rss_mib": 880.0},
        {"node": "rgw1", "class": "rgw", "id": "rgw1", "pid": 13, "cores": 3.0, "peak": 3.2, "rss_mib": 400.0},
    ]
    used = {"seconds": 10.0, "source": "resources", "classes": {}, "nodes": [], "devices": [], "interfaces": []}
    used.update(rgw_osd_ratio=1.5, ops_per_core=36.0, cores_per_gb_s=None, daemons=daemons)
    used.update(series={"start": T0, "step": 1, "cores": {}}, bottleneck={"what": "none", "evidence": []})
    summary["resources"] = {"nodes": [], "phases": {"new": used}}
    write_summary(summary, directory / FILE)
    return directory
