"""Samples of the monitors `resources` and `perf_counters` of nodes with OSDs, each on a disk of its own.

The lines have the form of those of real nodes (tests/data/resources, tests/data/perf_counters) and random values. All
nodes have the same values: to make others would take longer than the report.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any, Dict, Iterable, Iterator, List

from cbt_plugins.monitors import perf_counters_agent
from cbt_plugins.monitors.resources_agent import COARSER, FINE, LOOK

Line = Dict[str, Any]

OSDS = 10
THREADS = ("msgr-worker-0", "msgr-worker-1", "msgr-worker-2", "tp_osd_tp", "bstore_kv_sync", "bstore_kv_final",
           "rocksdb:low0", "log", "cfin", "dfin", "safe_timer", "signal_handler")  # fmt: skip
#: seconds for which a node was watched before and after the phases
AROUND = 5
RECORDED = Path(__file__).parents[2] / "data" / "perf_counters" / "18.2.7.jsonl"


def write_nodes(run: Path, nodes: int, begin: int, seconds: int) -> None:
    """Write the files of both monitors of so many nodes, for so many seconds from `begin` on."""
    monitors, names = run / "monitors" / "01", [f"node{number:04}" for number in range(nodes)]
    samples, counters = _text(_samples(begin, seconds)), _text(_counters(begin, seconds))
    for number, name in enumerate(names):
        _write(monitors / f"resources.{name}" / f"{name}.jsonl", _text(_head(name, number, begin)) + samples)
        about = {"version": 1, "t": begin - AROUND, "node": name, "interval": 10.0, "machine": name}
        osds = {f'"OSD{osd}"': f'"osd.{number * OSDS + osd}"' for osd in range(OSDS)}
        own = counters
        for placeholder, osd in osds.items():
            own = own.replace(placeholder, osd)
        _write(monitors / f"perf_counters.{name}" / f"{name}.jsonl", _text([about]) + own)
    _write(monitors / "nodes.json", json.dumps({"resources": names, "perf_counters": names}))


def _head(name: str, number: int, begin: int) -> List[Line]:
    t, osds = begin - AROUND, range(1, OSDS + 1)
    about = {"version": 2, "t": t, "node": name, "interval": 1.0, "cpus": 32, "hz": 100, "boot": f"boot of {name}"}
    about.update(pidns=f"pid:[{number}]", netns=f"net:[{number}]", user=0, i=0)
    monitor = {"class": "monitor", "id": "resources", "pid": 10, "since": t - 1.0, "io": True}
    daemons: Dict[str, Line] = {"0": monitor}
    for osd in osds:
        daemons[str(osd)] = {"class": "osd", "id": str(number * OSDS + osd - 1), "pid": 100 + osd, "since": t - 1000.0}
        daemons[str(osd)].update(io=True, disks={"block": [f"sd{osd}"]})
    disks = {str(osd - 1): {"name": f"sd{osd}", "rotational": False} for osd in osds}
    interface = {"name": "eth0", "speed": 25000, "addresses": ["10.77.0.11/16"]}
    names = {"d": daemons, "k": disks, "n": {"0": interface}}
    threads = {str(thread): {"name": thread_name} for thread, thread_name in enumerate(THREADS)}
    return [about, {"t": t, "names": names, "i": 1}, {"t": t, "names": {"t": threads}, "i": 2}]


def _samples(begin: int, seconds: int) -> Iterator[Line]:
    chance = random.Random(1)
    t, number, looked, osds = float(begin - AROUND), 0, 0.0, range(1, OSDS + 1)

    def rises(*most: int) -> List[int]:
        return [int(s * chance.randrange(1, value)) for value in most]

    while t < begin + seconds + AROUND:
        s = (1 if number < FINE else COARSER) + chance.uniform(-0.003, 0.003)
        t, looked = t + s, looked + s
        line = {"t": round(t, 3), "s": round(s, 4), "c": [*rises(900, 2, 300, 2000, 90, 2, 3, 2)], "i": number + 3}
        daemons = [[osd, *rises(120), 4 << 20, 61, *rises(1 << 26, 1 << 26)] for osd in osds]
        line.update(d=[[0, *rises(2), 12016, 1, 0, 0], *daemons])
        line.update(k=[[osd - 1, *rises(900, 90000, 300, 900, 90000, 300, 900, 2000)] for osd in osds])
        line.update(n=[[0, *rises(10**9, 10**6), 0, *rises(10**9, 10**6), 0]])
        if looked >= LOOK:
            line.update(look=round(looked, 3), h=[chance.uniform(1, 30), 120 << 20, 0, 0])
            line.update(m=[[osd, 8 << 20, 5 << 20, 0] for osd in osds])
            ran = {(osd, thread): looked * chance.uniform(1, 60) for osd in osds for thread in range(len(THREADS))}
            line.update(u=[[osd, thread, round(ms, 1)] for (osd, thread), ms in ran.items()])
            line.update(threads={str(osd): [["tp_osd_tp", round(chance.uniform(0.2, 0.6), 3)]] for osd in osds})
            looked = 0.0
        yield line
        number += 1


def _counters(begin: int, seconds: int) -> Iterator[Line]:
    """Yield samples of OSDs with placeholders for names, whose counters grow from what was recorded."""
    recorded = next(line for line in map(json.loads, RECORDED.read_text().splitlines()) if "osd.0" in line.get("d", ()))
    first = recorded["d"]["osd.0"]
    t, number = begin - AROUND, 0
    while t < begin + seconds + 100 * AROUND:
        factor = 1 + number / 100
        of_osd = {
            name: [round(part * factor, 6) for part in value] if isinstance(value, list) else int(value * factor)
            for name, value in first.items()
        }
        yield {"t": t, "d": {f"OSD{osd}": of_osd for osd in range(OSDS)}}
        number += 1
        t += 10 * (1 if number < perf_counters_agent.FINE else perf_counters_agent.COARSER)


def _text(lines: Iterable[Line]) -> str:
    return "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
