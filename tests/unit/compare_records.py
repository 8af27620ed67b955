"""Records made by hand, for tests of what is done with them."""

from __future__ import annotations

import random
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from cbt_plugins.compare.sides import Side
from cbt_plugins.results.run_record import Measurement, ResultWarning, RunRecord

CONFIG: Dict[str, Any] = {
    "benchmark": "rgwtest",
    "engine": "cbt-load",
    "phases": "measure-new measure-aged",
    "objects.sizes": "4096 65536",
    "load.drivers": 2,
    "phase.measure-new.mix": "DELETE:5 GET:45 PUT:35 STAT:15",
    "phase.measure-new.workers": 16,
    "phase.measure-new.loop": "closed",
    "phase.measure-new.role": "measure",
    "phase.measure-aged.role": "measure",
    "pool.data.type": "erasure",
    "pool.data.k": 4,
    "pool.data.m": 2,
    "cluster.osd_nodes": 3,
    "cluster.osds": 42,
    "cluster.clients": 5,
    "version.ceph": "17.2.6 quincy",
    "ceph.osd.osd_memory_target": "4294967296",
}

Values = Mapping[Tuple[str, str, str], Any]  # (phase, op, metric) -> a number, a list of numbers (series), or None


def record(values: Values, *, config: Optional[Mapping[str, Any]] = None, name: str = "0", **more: Any) -> RunRecord:
    """One run; of a list the mean is the value."""
    made: List[Measurement] = []
    for (phase, op, metric), value in values.items():
        if isinstance(value, (list, tuple)):
            made.append(Measurement(phase, op, metric, sum(value) / len(value), tuple(value)))
        else:
            made.append(Measurement(phase, op, metric, value))
    about: Dict[str, Any] = {"source": f"runs/{name}", "kind": "cbt-plugins", "usable": True, "warnings": ()}
    return RunRecord(name=name, config={**CONFIG, **(config or {})}, measurements=tuple(made), **{**about, **more})


def runs(values: Mapping[Tuple[str, str, str], Sequence[float]], *, begin: float = 0.0, **more: Any) -> List[RunRecord]:
    """The n-th run has the n-th value of every metric."""
    count = len(next(iter(values.values())))
    return [
        record({key: its[i] for key, its in values.items()}, name=f"{begin:g}-{i}", started=begin + i, **more)
        for i in range(count)
    ]


def side(name: str, records: Sequence[RunRecord]) -> Side:
    return Side(name, tuple(records), (name,))


def noise(level: float, count: int, *, scatter: float, seed: int) -> List[float]:
    chance = random.Random(seed)
    return [level * chance.lognormvariate(0, scatter) for _ in range(count)]


def warning(code: str) -> Tuple[ResultWarning, ...]:
    return (ResultWarning(code, f"because of {code}"),)
