"""Archives of several runs with known levels and seeded noise, for the tests of comparison."""

from __future__ import annotations

import hashlib
import json
import random
import shutil
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Sequence

import analysis_archives

HASH = "618f440892089921c3e944a991122ddc44e60516"
QUINCY, REEF = "17.2.6 quincy", "18.2.7 reef"
DAY = 86400
OPS = ("GET", "PUT")


def loop(
    op: str, latency: float, *, workers: int, window: Sequence[float], noise: float, chance: random.Random, size: int
) -> List[str]:
    """Rows of a closed loop; every request takes `latency` s on average."""
    rows = []
    for worker in range(workers):
        t = window[0] - 1.0
        while t < window[1] + 1:
            took = latency * chance.lognormvariate(-noise * noise / 2, noise)
            t += took
            rows.append((t, analysis_archives.row(op, t, took, size=size, thread=worker)))
    return [text for _, text in sorted(rows)]


def archive(
    path: Path,
    *,
    runs: int = 1,
    latency: Optional[Mapping[str, float]] = None,
    phases: Sequence[str] = ("measure",),
    scatter: float = 0.01,
    noise: float = 0.3,
    seed: int = 1,
    ceph: str = REEF,
    workers: int = 2,
    seconds: int = 30,
    size: int = 4096,
    begin: int = 0,
    config: Optional[Mapping[str, str]] = None,
    pool: Optional[Mapping[str, Any]] = None,
    osd_nodes: int = 4,
    mix: Optional[Mapping[str, float]] = None,
) -> Path:
    """`runs` iterations; each has its own level, by `scatter`. `latency` (s) is by operation, or "phase:operation"."""
    chance = random.Random(seed)
    for i in range(runs):
        draft = analysis_archives.run(path / "draft", phases=phases)
        run = path / "results" / f"{i:08d}" / draft.name
        run.parent.mkdir(parents=True)
        draft.rename(run)
        shutil.rmtree(path / "draft")
        _surroundings(run, ceph, config or {}, pool or {"size": 3, "type": 1}, osd_nodes)
        level = chance.lognormvariate(0, scatter)
        for index, name in enumerate(phases, 1):
            start = begin + i * DAY + index * 1000
            jobs = []
            for op in OPS:
                wanted = {"GET": 0.02, "PUT": 0.04, **(latency or {})}
                took = wanted.get(f"{name}:{op}", wanted[op]) * level
                window = (start, start + seconds)
                rows = loop(op, took, workers=workers, window=window, noise=noise, chance=chance, size=size)
                about = {"workers": workers, "sizes": [[size, size, 1.0]]}
                jobs.append(analysis_archives.job(f"01-{op.lower()}", op, rows, **about))
            asked = {"duration": float(seconds), "mix": dict(mix or {})}
            analysis_archives.phase(run, index, name, jobs, window=(start, start + seconds), asked=asked)
    return path


def _surroundings(run: Path, ceph: str, config: Mapping[str, str], pool: Mapping[str, Any], osd_nodes: int) -> None:
    number, name = ceph.split()
    manifest = json.loads((run / "manifest.json").read_text())
    manifest["run_id"] = hashlib.sha256(str(run).encode()).hexdigest()[:8]
    manifest["ceph"] = {"overall": {f"ceph version {number} ({HASH}) {name} (stable)": 6}}
    (run / "manifest.json").write_text(json.dumps(manifest))
    before = run / "cluster" / "before"
    write = {
        "pools.json": [{"pool_name": "default.rgw.buckets.data", "pg_num": 32, **pool}],
        "ec_profiles.json": {"ec": {"k": "4", "m": "2", "plugin": "isa"}},
        "config_dump.json": [{"section": "osd", "name": key, "value": value} for key, value in config.items()],
        "osd_tree.json": {"nodes": list(_tree(osd_nodes))},
    }
    for file, data in write.items():
        (before / file).write_text(json.dumps(data))
    conf = ("[global]", "fsid = 1", "rgw_thread_pool_size = 64", "rgw keystone admin password = x")
    (before / "ceph.conf").write_text("\n".join(conf) + "\n")


def _tree(osd_nodes: int) -> List[Dict[str, Any]]:
    nodes: List[Dict[str, Any]] = []
    for i in range(osd_nodes):
        nodes.append({"id": -2 - i, "type": "host", "name": f"node{i}", "children": [2 * i, 2 * i + 1]})
        nodes += [{"id": 2 * i + k, "type": "osd", "device_class": "hdd"} for k in (0, 1)]
    return nodes
