"""The report of a short run by 10, 100 and 1000 drivers, five on each client: what merges their results.

Each driver makes 1600 requests/s of four operations for MINUTES.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Dict

from inputs import long_runs
from inputs.long_runs import T0, Clients

from .archives import BLOCK, TOOLS, end_run
from .costs import Curves, Extent, cost_of

SIZES = (10, 100, 1000)
DRIVERS_OF_CLIENT = 5
MINUTES = 5
#: seconds between two heartbeats of a client
BEAT = 10


def main(extent: Extent) -> None:
    print(f"  {MINUTES} minutes; seconds of CPU time and MB of the report; `workers`: the processes in which it reads")
    print("  the aggregates; MB of files")
    formats = {"clients": ".0f", "aggregates MB": ".0f", "report s": ".2f", "workers s": ".2f", "report MB": ".0f"}
    curves = Curves("drivers", {**formats, "workers MB": ".0f", "summary file": ".2f", "page file": ".2f"})
    for drivers in extent.sizes(SIZES):
        with tempfile.TemporaryDirectory() as scratch:
            clients = Clients(drivers // DRIVERS_OF_CLIENT, DRIVERS_OF_CLIENT)
            curves.add(drivers, **_costs(Path(scratch) / "archive", clients))
    curves.end()


def write_run(archive: Path, clients: Clients) -> int:
    """Write the archive of a run by these clients; return the number of its requests."""
    run = archive / "results" / "00000000" / "id-00000001"
    phase, end = run / "phases" / "01-age", T0 + 60 * MINUTES
    requests = long_runs.write_phase(phase, "age", (T0, end), BLOCK, long_runs.frames_of(BLOCK), clients)
    long_runs.write_heartbeats(phase, range(T0, end, BEAT), clients)
    (run / "manifest.json").write_text("{}")
    (run / "plan.json").write_text(json.dumps({"benchmark": "warp", "phases": [{"name": "age"}]}))
    end_run(run, 60 * MINUTES)
    return requests


def _costs(archive: Path, clients: Clients) -> Dict[str, float]:
    requests = write_run(archive, clients)
    size = sum(path.stat().st_size for path in archive.rglob("*.aggregates")) / 1e6
    report = cost_of(TOOLS, "report", str(archive))
    assert report.status == 0, report.output[-2000:]
    (path,) = archive.rglob("summary.json")
    (phase,) = json.loads(path.read_text())["phases"]
    assert sum(op["requests"] for op in phase["ops"].values()) == requests, "requests were lost"
    (page,) = archive.rglob("report.html")
    costs = {"clients": clients.clients, "aggregates_MB": size, "report_s": report.cpu, "workers_s": report.children}
    costs.update(report_MB=report.mb, workers_MB=report.children_mb)
    return {**costs, "summary_file": path.stat().st_size / 1e6, "page_file": page.stat().st_size / 1e6}
