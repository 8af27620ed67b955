"""Archives of several runs with known levels and seeded noise, for the tests of comparison."""

from __future__ import annotations

import hashlib
import json
import random
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Dict, List, Mapping, Sequence

import analysis_archives
from analysis_archives import Load

HASH = "618f440892089921c3e944a991122ddc44e60516"
QUINCY, REEF = "17.2.6 quincy", "18.2.7 reef"
DAY = 86400
#: the levels of runs scatter by so much
_SCATTER = 0.01
OSD_NODES = 4
NORMAL = Load()


@dataclass(frozen=True)
class Cluster:
    """What the run says of its cluster."""

    ceph: str = REEF
    config: Mapping[str, str] = field(default_factory=dict)
    pool: Mapping[str, Any] = field(default_factory=lambda: {"size": 3, "type": 1})


def archive(
    path: Path,
    load: Load = NORMAL,
    cluster: Cluster = Cluster(),
    *,
    runs: int = 1,
    phases: Sequence[str] = ("measure",),
    seed: int = 1,
    begin: int = 0,
) -> Path:
    """`runs` iterations of a load, one a day; each has a level of its own."""
    chance = random.Random(seed)
    for i in range(runs):
        draft = analysis_archives.run(path / "draft", phases=phases)
        run = path / "results" / f"{i:08d}" / draft.name
        run.parent.mkdir(parents=True)
        draft.rename(run)
        shutil.rmtree(path / "draft")
        _surroundings(run, cluster)
        level = chance.lognormvariate(0, _SCATTER)
        for index, name in enumerate(phases, 1):
            load.write(run, index, name, begin + i * DAY + index * 1000, chance, level=level)
    return path


def _surroundings(run: Path, cluster: Cluster) -> None:
    number, name = cluster.ceph.split()
    manifest = json.loads((run / "manifest.json").read_text())
    manifest["run_id"] = hashlib.sha256(str(run).encode()).hexdigest()[:8]
    manifest["ceph"] = {"overall": {f"ceph version {number} ({HASH}) {name} (stable)": 6}}
    (run / "manifest.json").write_text(json.dumps(manifest))
    before = run / "cluster" / "before"
    write = {
        "pools.json": [{"pool_name": "default.rgw.buckets.data", "pg_num": 32, **cluster.pool}],
        "ec_profiles.json": {"ec": {"k": "4", "m": "2", "plugin": "isa"}},
        "config_dump.json": [{"section": "osd", "name": key, "value": value} for key, value in cluster.config.items()],
        "osd_tree.json": {"nodes": list(_tree())},
    }
    for file, data in write.items():
        (before / file).write_text(json.dumps(data))
    conf = ("[global]", "fsid = 1", "rgw_thread_pool_size = 64", "rgw keystone admin password = x")
    (before / "ceph.conf").write_text("\n".join(conf) + "\n")


def _tree() -> List[Dict[str, Any]]:
    nodes: List[Dict[str, Any]] = []
    for i in range(OSD_NODES):
        nodes.append({"id": -2 - i, "type": "host", "name": f"node{i}", "children": [2 * i, 2 * i + 1]})
        nodes += [{"id": 2 * i + k, "type": "osd", "device_class": "hdd"} for k in (0, 1)]
    return nodes
