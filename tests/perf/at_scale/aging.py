"""The life of a driver's objects: fill, kill -9, rebuild of its state by a listing, aging; 10^5 to 10^8 objects.

cbt-load fills on the null server; a load on these objects is killed, which loses its state; the next load lists them
all, and then deletes a tenth of them and writes as many new ones.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import tempfile
from pathlib import Path
from typing import Any, Dict, Iterator

import memory

from .costs import Curves, Extent, cbt_load, cpu_of
from .objects import BYTES, null_server

SIZES, LONG_SIZES = (100_000, 1_000_000, 10_000_000), (100_000_000,)
#: of all objects, deleted and written by the aging
AGED = 10
#: beats (seconds) of the load that is killed
KILLED_AFTER = 2
SPACE = {"name": "all", "bucket": "benchmark", "prefix": "aging/", "sizes": [[BYTES, BYTES, 1.0]]}
FILL = [{"op": "PUT", "spaces": ["all"]}]
MIX = [{"op": op, "share": 50, "select": select, "spaces": ["all"]} for op, select in
       {"PUT": "new", "DELETE": "live"}.items()]  # fmt: skip


def main(extent: Extent) -> None:
    program = cbt_load()
    if program is None:
        return
    print(f"  CPU seconds and MB of cbt-load, MB of its state file; aging: one of {AGED} objects deleted, as many new")
    formats = {"fill s": ".1f", "fill MB": ".1f", "state": ".2f", "rebuild s": ".2f", "rebuild MB": ".1f"}
    curves = Curves("objects", {**formats, "aging s": ".1f", "aging MB": ".1f", "aged state": ".2f"})
    for objects in extent.sizes(SIZES, LONG_SIZES):
        with tempfile.TemporaryDirectory() as scratch, null_server(str(program), objects) as host:
            curves.add(objects, **_costs(Driver(Path(scratch), str(program), host), objects))
    curves.end()


class Driver:
    """A driver whose state is a file in a folder."""

    def __init__(self, folder: Path, program: str, host: str) -> None:
        self.folder, self._program = folder, program
        self._common = {"version": 1, "hosts": [f"http://{host}"], "workers": 16, "state_out": str(folder / "state")}

    @property
    def state(self) -> float:
        """MB of the state file."""
        return (self.folder / "state").stat().st_size / 1e6

    @contextlib.contextmanager
    def load(self, **keys: Any) -> Iterator[subprocess.Popen[str]]:
        """Start cbt-load with these keys of its spec; its events are the lines of `stderr`."""
        (self.folder / "spec.json").write_text(json.dumps({**self._common, **keys}))
        line, secrets = [self._program, "run", str(self.folder / "spec.json")], {**os.environ, **memory.SECRETS}
        pipes: Any = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
        with subprocess.Popen(line, text=True, env=secrets, **pipes) as process:
            try:
                yield process
            finally:
                process.kill()


def events_of(process: subprocess.Popen[str]) -> Iterator[Dict[str, Any]]:
    """Yield the events of a load as they come, each with its CPU seconds and the most MB until then."""
    assert process.stderr
    cpu = most = 0.0
    for line in process.stderr:
        event = json.loads(line)
        assert event["event"] != "failed", line
        with contextlib.suppress(OSError):
            cpu = cpu_of(process.pid)
            peak = re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{process.pid}/status").read_text())
            most = int(peak[1]) / 1024 if peak else most  # else it has ended
        yield {**event, "cpu": cpu, "MB": most}


def _costs(driver: Driver, objects: int) -> Dict[str, float]:
    space = [SPACE]
    with driver.load(spaces=space, ops=FILL, objects=objects, sets_n=True) as process:
        *_, filled = events_of(process)
    live = filled["spaces"][0]["live"]
    assert live == objects, f"{live:,} objects after a fill of {objects:,}"
    costs = {"fill_s": filled["cpu"], "fill_MB": filled["MB"], "state": driver.state}
    aging = {"ops": MIX, "state_in": str(driver.folder / "state")}
    with driver.load(spaces=space, duration=3600, **aging) as process:
        beats = (event for event in events_of(process) if event["event"] == "beat")
        for _ in range(KILLED_AFTER):
            next(beats)
        process.send_signal(signal.SIGKILL)
        process.wait()
    with driver.load(spaces=[{**SPACE, "rebuild": True}], objects=objects // AGED, **aging) as process:
        events = list(events_of(process))
    (ready,) = (event for event in events if event["event"] == "ready")
    live = ready["live"]  # the null server lists numbers up to the greatest that the killed load wrote
    assert objects <= live < 2 * objects, f"{live:,} objects in a state that was rebuilt of {objects:,}"
    costs.update(rebuild_s=ready["cpu"], rebuild_MB=ready["MB"])
    end, (after,) = events[-1], events[-1]["spaces"]
    assert after["live"] == live + after["created"] - after["removed"], after
    costs.update(aging_s=end["cpu"] - ready["cpu"], aging_MB=end["MB"], aged_state=driver.state)
    return costs
