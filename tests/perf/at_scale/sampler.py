"""A sample of the cluster's state on the head, while nothing changes and after an OSD goes down, at 100 to 10,000 OSDs.

The agent itself runs, on replies that `osdmaptool` of Ceph 16 and tests/data made. `judged`: a sample that reads the
reports of all OSDs, each with PEERS peers; some seconds after a change the agent takes one or two such samples. `mgr
asks`: questions to the mgr that are not `pg dump sum` or `pg dump osds`, the only ones that do not grow with the PGs.
"""

from __future__ import annotations

import gc
import json
import os
import re
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any, Dict, List

from inputs.clusters import RECORDED, SIZES, make

from cbt_plugins.cluster import state_sampler_agent

from .costs import Curves, Extent

#: samples of each kind
SAMPLES = 15
#: those in which the reports of all OSDs are read, a recorded report for each
JUDGED = 3
#: OSDs that an OSD watches
PEERS = 40
#: seconds after which the agent asks the mgr again, whatever the last question took
MUCH_LATER = 3600.0
HOURS = 72

#: of a recorded reply to `pg dump osds`: what does not name an OSD
_ROW = re.compile(
    r'{"osd":\d+,"up_from":\d+,"seq":\d+(,.*"hb_peers":)\[[\d,]*\](,.*"network_ping_times":\[){"osd":\d+(,.*?\]})'
)


def reports(osds: int) -> bytes:
    """Return the reply to `pg dump osds` in which each OSD has a recorded row, with a recorded ping for each peer."""
    match = _ROW.search((RECORDED / "pacific-pg-dump-osds.json").read_text())
    assert match
    state, before_pings, ping = match.groups()
    rows = []
    for osd in range(osds):
        peers = [(osd + 1 + number) % osds for number in range(PEERS)]
        about = f'{{"osd":{osd},"up_from":1,"seq":{1 << state_sampler_agent.EPOCH_SHIFT}'
        pings = ",".join(f'{{"osd":{peer}{ping}' for peer in peers)
        rows.append(f'{about}{state}[{",".join(map(str, peers))}]{before_pings}{pings}]}}')
    return f'{{"pg_ready":true,"osd_stats":[{",".join(rows)}]}}'.encode()


class Clock:
    """The clock of the agent, which a measurement can set forward."""

    time, strptime = staticmethod(time.time), staticmethod(time.strptime)
    ahead = 0.0

    def monotonic(self) -> float:
        return time.monotonic() + self.ahead


class Replies:
    """A source that parses recorded text for each question, as the agent's own sources do. Map n has OSD n down."""

    def __init__(self, documents: Dict[str, Any]) -> None:
        self.status, self._dump = documents["status"], documents["osd dump"]
        self.asked: List[str] = []
        self.size = 0
        for osd in self._dump["osds"]:
            osd.update(up=1, up_from=1)
        self._map = ""
        self._reports = reports(len(self._dump["osds"]))
        self.change(1)

    def change(self, epoch: int) -> None:
        """Make the next map, in which another OSD is down."""
        for osd in self._dump["osds"][:SAMPLES * 2]:
            osd["up"] = int(osd["osd"] != epoch)
        self._dump.update(epoch=epoch, modified="2026-11-21T13:56:05.650577+0000")
        self._map = json.dumps(self._dump, separators=(",", ":"))
        self.status["osdmap"].update(epoch=epoch, osd_up_since=epoch)

    def mon(self, question: Dict[str, Any]) -> Any:
        text = self._map if question["prefix"] == "osd dump" else json.dumps(self.status)
        self.size += len(text)
        return json.loads(text.encode().decode())

    def mgr(self, question: Dict[str, Any], timeout: float = 5.0) -> Any:
        self.asked.append(" ".join([question["prefix"], *question["dumpcontents"]]))
        if question["dumpcontents"] == ["osds"]:
            self.size += len(self._reports)
            return json.loads(self._reports.decode())
        sums = {f"num_{unit}_recovered": 0 for unit in ("objects", "bytes", "keys")}
        return {"pg_map": {"pg_stats_sum": {"stat_sum": sums}}}


def main(extent: Extent) -> None:
    gc.set_threshold(state_sampler_agent.CONTAINERS)  # as the agent does
    print(f"  CPU milliseconds of a sample, medians of {SAMPLES}; MB of replies; bytes of a line of the archive")
    formats = {"PGs": ",.0f", "quiet ms": ".2f", "quiet MB": ".3f", "map ms": ".1f", "map MB": ".2f"}
    formats.update({"judged ms": ",.1f", "judged MB": ".2f"})
    curves = Curves("OSDs", {**formats, "line": ".0f", f"MB of {HOURS} h": ".1f", "mgr asks": ".0f"})
    for size in extent.sizes(SIZES):
        with tempfile.TemporaryDirectory() as scratch:
            documents = make(Path(scratch) / "cluster", size, "16")
        curves.add(size.osds, PGs=size.pgs, **_costs(Replies(documents)))
    curves.end()


def _costs(source: Replies) -> Dict[str, float]:
    sampler = state_sampler_agent.StateSampler(source, 5.0, {"recovery": True}, None)
    sampler.sample()
    source.size = 0
    quiet = [_sample(sampler) for _ in range(SAMPLES)]
    costs = {"quiet_ms": statistics.median(quiet), "quiet_MB": source.size / SAMPLES / 1e6}
    source.size, changed = 0, []
    for number in range(SAMPLES):
        source.change(number + 2)
        changed.append(_sample(sampler))
    costs.update(map_ms=statistics.median(changed), map_MB=source.size / SAMPLES / 1e6)
    costs.update(_judged(sampler, source))
    line = _line_of_quiet(sampler)
    # beside a line each second, a line with the complete state after FULL_AFTER times its bytes
    bytes_per_s = line / state_sampler_agent.QUIET_PERIOD * (1 + 1 / state_sampler_agent.FULL_AFTER)
    costs.update({"line": line, f"MB_of_{HOURS}_h": bytes_per_s * HOURS * 3600 / 1e6})
    costs["mgr_asks"] = len(set(source.asked) - {"pg dump sum", "pg dump osds"})
    return costs


def _judged(sampler: Any, source: Replies) -> Dict[str, float]:
    """Return the cost of samples that read the reports of all OSDs."""
    state_sampler_agent.time = clock = Clock()  # type: ignore[assignment]
    source.size, judged = 0, []
    try:
        for _ in range(JUDGED):
            clock.ahead += MUCH_LATER
            judged.append(_sample(sampler))
    finally:
        state_sampler_agent.time = time
    assert source.asked[-2 * JUDGED :] == ["pg dump sum", "pg dump osds"] * JUDGED, source.asked
    return {"judged_ms": statistics.median(judged), "judged_MB": source.size / JUDGED / 1e6}


def _sample(sampler: Any) -> float:
    before = time.process_time()
    sampler.sample()
    return 1000 * (time.process_time() - before)


def _line_of_quiet(sampler: Any) -> float:
    """Return the bytes of a line that the agent writes while nothing changes."""
    output, own = state_sampler_agent.StateLines(), os.dup(1)
    read, write = os.pipe()
    os.dup2(write, 1)
    try:
        for number in range(3):
            state, changes, daemons = sampler.sample()
            output.sample({**state, "t": 1795269642.678 + 2 * number}, changes, daemons, None)
        return float(len(os.read(read, 1 << 24).splitlines()[-1]) + 1)
    finally:
        os.dup2(own, 1)
        for end in (own, read, write):
            os.close(end)
