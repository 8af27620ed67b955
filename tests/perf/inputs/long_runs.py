"""Long runs: phases of a cycle with the aggregates of busy drivers, five if not said otherwise, written without a run.
"""

from __future__ import annotations

import json
import os
import shutil
import struct
import zlib
from pathlib import Path
from typing import Any, Dict, Iterable, List, NamedTuple, Sequence

import numpy as np

from cbt_plugins.results.aggregates_file import MAGIC, PREFIX, TABLES, VERSION
from cbt_plugins.results.histogram import buckets

T0 = 1_700_000_040  # a whole minute
NS = 10**9
DRIVERS = 5
OPS = ("GET", "PUT", "STAT", "DELETE")
ENDPOINTS = ("http://rgw1:7480", "http://rgw2:7480")
#: requests a second of each driver and operation; RATE=50 makes 1000 requests/s of five drivers
RATE = int(os.environ.get("RATE") or 400)
#: seconds between two frames, by block
FRAMES = {1: 10, 60: 60}
#: frames with values of their own; the others repeat them at other times
DIFFERENT = 12

Columns = Dict[str, np.ndarray]
#: of one frame
Tables = Dict[str, Columns]


def values(chance: np.random.Generator, block: int) -> Dict[str, Columns]:
    """Return the tables of one frame that begins at 0: latencies around 7 ms with a long tail (rows.py)."""
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
        if "bucket" in form:
            form = {"group": "u4", "step": "u2", "count": "u4"}
            moved["step"] = np.diff(moved["bucket"], prepend=0) % 65536
        about.append({"name": name, "rows": len(next(iter(table.values()))), "columns": list(form.items())})
        columns += [moved[column].astype("<" + dtype).tobytes() for column, dtype in form.items()]
    header = {"kind": kind, "bits": 11, "block": block, "sources": [], "ops": OPS, "endpoints": ENDPOINTS}
    header.update(errors=[], tables=about, totals=[])
    head = json.dumps(header).encode()
    packed = zlib.compress(struct.pack("<I", len(head)) + head + b"".join(columns), 1)
    return PREFIX.pack(MAGIC, VERSION, 1, len(packed), zlib.crc32(packed)) + packed


def frames_of(block: int) -> List[Dict[str, Columns]]:
    """Return the tables that the frames of a driver repeat."""
    chance = np.random.default_rng(1)
    return [values(chance, block) for _ in range(DIFFERENT)]


class Clients(NamedTuple):
    """The clients of a run, with as many drivers on each."""

    clients: int
    drivers_of_each: int = 1

    @property
    def drivers(self) -> int:
        return self.clients * self.drivers_of_each

    def node_of(self, driver: int) -> str:
        """Return the name of a driver's client."""
        return f"client{driver // self.drivers_of_each}"


FIVE = Clients(DRIVERS)


def write_phase(
    folder: Path,
    name: str,
    window: Sequence[int],
    block: int,
    frames: Sequence[Dict[str, Columns]],
    clients: Clients = FIVE,
) -> int:
    """Write the folder NN-NAME of an aging phase with its jobs and aggregates; return the number of requests."""
    (folder / "aggregates").mkdir(parents=True)
    begin, end = window
    first = folder / "aggregates" / "d0.aggregates"
    with first.open("wb") as out:
        for number, start in enumerate(range(begin, end - FRAMES[block] + 1, FRAMES[block])):
            out.write(frame("counts", block, frames[number % len(frames)], start))
        out.write(frame("end", block, {}))
    jobs, requests = [], (end - begin) * RATE * len(OPS) * clients.drivers
    for d in range(clients.drivers):
        if d:
            shutil.copyfile(first, folder / "aggregates" / f"d{d}.aggregates")
        job: Dict[str, Any] = {"id": f"d{d}", "node": clients.node_of(d), "op": "MIXED"}
        job.update(role="cbt-load", workers=15, sizes=[[4096, 4096, 1.0]], rows_total=requests // clients.drivers)
        job.update(aggregates=f"aggregates/d{d}.aggregates")
        jobs.append(job)
    mix = {op: 100 / len(OPS) for op in OPS}
    index = int(folder.name.partition("-")[0])
    about: Dict[str, Any] = {"version": 2, "index": index, "name": name, "kind": "hybrid", "role": "age"}
    about.update(window={"start": begin, "end": end}, block=block, asked={"duration": end - begin, "mix": mix})
    (folder / "phase.json").write_text(json.dumps({**about, "status": "ok", "engine": "cbt-load", "jobs": jobs}))
    return requests


def write_heartbeats(folder: Path, times: Iterable[int], clients: Clients = FIVE) -> None:
    """Write a heartbeat of each client at these times."""
    with (folder / "heartbeat.jsonl").open("w") as beats:
        for t in times:
            job = {"ops": t, "bytes": t * 4096, "errors": 0, "state": "running", "in_flight": 15, "oldest": 0.25}
            for number in range(clients.clients):
                first = number * clients.drivers_of_each
                jobs = {f"d{d}": job for d in range(first, first + clients.drivers_of_each)}
                beats.write(json.dumps({"t": t + number % 7 / 7, "node": f"client{number}", "jobs": jobs}) + "\n")
