"""The report of a short run by 10, 100 and 1000 drivers, five on each client: what merges their results.

Each driver makes 1600 requests/s of four operations for MINUTES. Then a run with a failure and up to 12 such phases.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Dict

from inputs import long_runs
from inputs.long_runs import OPS, RATE, T0, Clients

from .archives import TOOLS, end_run, resolution_of, write_files, write_load
from .costs import Curves, Extent, cost_of

SIZES = (10, 100, 1000)
#: of one run by MANY drivers
PHASES, MANY = (1, 4, 12), 200
DRIVERS_OF_CLIENT = 5
MINUTES = 5


def main(extent: Extent) -> None:
    print(f"  {MINUTES} minutes; seconds of CPU time and MB of the report; `workers`: the processes in which it reads")
    print("  the aggregates; MB of files")
    formats = {"clients": ".0f", "aggregates MB": ".0f", "report s": ".2f", "workers s": ".2f", "report MB": ".0f"}
    formats.update({"workers MB": ".0f", "summary file": ".2f", "page file": ".2f"})
    curves = Curves("drivers", formats)
    for drivers in extent.sizes(SIZES):
        with tempfile.TemporaryDirectory() as scratch:
            write_run(Path(scratch), _clients(drivers))
            curves.add(drivers, **_costs(Path(scratch), drivers, 1))
    curves.end()
    print(f"  with a failure, and several phases of {MINUTES} minutes by {MANY} drivers")
    curves = Curves("phases", formats)
    for phases in extent.sizes(PHASES):
        with tempfile.TemporaryDirectory() as scratch:
            seconds = 60 * MINUTES
            run = write_files(Path(scratch), phases * seconds / 3600, phase=seconds, clients=_clients(MANY))
            end_run(run, phases * seconds)
            curves.add(phases, **_costs(Path(scratch), MANY, phases))
    curves.end()


def _clients(drivers: int) -> Clients:
    return Clients(drivers // DRIVERS_OF_CLIENT, DRIVERS_OF_CLIENT)


def write_run(archive: Path, clients: Clients) -> None:
    """Write the archive of a run by these clients."""
    run = archive / "results" / "00000000" / "id-00000001"
    block, _ = resolution_of(60 * MINUTES)
    write_load(run / "phases" / "01-age", (T0, T0 + 60 * MINUTES), long_runs.frames_of(block), clients)
    (run / "manifest.json").write_text("{}")
    (run / "plan.json").write_text(json.dumps({"benchmark": "warp", "phases": [{"name": "age"}]}))
    end_run(run, 60 * MINUTES)


def _costs(archive: Path, drivers: int, phases: int) -> Dict[str, float]:
    size = sum(path.stat().st_size for path in archive.rglob("*.aggregates")) / 1e6
    report = cost_of(TOOLS, "report", str(archive))
    assert report.status == 0, report.output[-2000:]
    (path,) = archive.rglob("summary.json")
    lines = json.loads(path.read_text())["phases"]
    requests = [sum(op["requests"] for op in line["ops"].values()) for line in lines]
    assert requests == [60 * MINUTES * RATE * len(OPS) * drivers] * phases, "requests were lost"
    (page,) = archive.rglob("report.html")
    costs = {"clients": drivers / DRIVERS_OF_CLIENT, "aggregates_MB": size, "report_s": report.cpu}
    costs.update(workers_s=report.children, report_MB=report.mb, workers_MB=report.children_mb)
    return {**costs, "summary_file": path.stat().st_size / 1e6, "page_file": page.stat().st_size / 1e6}
