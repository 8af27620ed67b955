"""Phases whose every request is known, and failures with their milestones, for tests of what a failure costs."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from aggregates_writer import NS, Request, write

from cbt_plugins.results.archive import ArchivedJob, ArchivedPhase
from cbt_plugins.results.requests.phase_reading import read_phase
from cbt_plugins.results.requests.rates_and_latencies import PhaseAggregates

T0 = 1_700_000_000
MIB = 1 << 20


def milestone(name: str, t: Optional[float]) -> Dict[str, Any]:
    return {"name": name, "title": name.replace("-", " "), "t": None if t is None else T0 + t}


def recovery(*episodes: Tuple[str, float, float, Dict[str, Optional[float]]]) -> Dict[str, Any]:
    """(kind, begin, end, times of milestones): all in seconds since T0."""
    made = []
    for kind, begin, end, times in episodes:
        line = {"kind": kind, "labels": ["a"], "begin": T0 + begin, "end": T0 + end, "effect": True}
        made.append({**line, "milestones": [milestone(name, t) for name, t in times.items()]})
    return {"episodes": made}


FAULT = ("failure", 20.3, 100.0, {"injected": 20.9, "all-down": 25.6, "recovery-starts": 40.0, "clean": 60.0})


def load(begin: float, end: float, every: float, latency: float, op: str = "GET", **more: Any) -> List[Request]:
    """A request that ends every `every` seconds, in begin < t <= end, 3 MiB each."""
    n = round((end - begin) / every)
    more.setdefault("size", 3 * MIB)
    return [
        Request(op, T0 * NS + round((begin + (i + 0.5) * every) * NS), round(latency * NS), **more) for i in range(n)
    ]


def phase(
    tmp_path: Path,
    requests: Sequence[Request],
    *,
    block: int = 1,
    name: str = "hybrid",
    workers: int = 8,
    begin: float = 0.0,
    rate: Optional[float] = None,
    mix: Mapping[str, float] = {},
    window: Tuple[float, float] = (0.0, 100.0),
    duration: Optional[float] = 100.0,
    **job: Any,
) -> PhaseAggregates:
    path = write(tmp_path / name / "j.aggregates", [sorted(requests, key=lambda r: r.end)], block)
    limit = job.pop("rate_limit", 0.0)
    one = ArchivedJob("j", "d", "n", "GET", workers, limit, None, 0.0, aggregates=path, **job)
    about: Dict[str, Any] = dict.fromkeys(("role", "status", "engine"), "x")
    about.update(window=(T0 + begin + window[0], T0 + begin + window[1]), duration=duration, mix=mix)
    about.update(accounting=(), warnings=())
    about.update(name=name, kind="hybrid", load={"rate": rate}, block=block, jobs=(one,))
    return read_phase(ArchivedPhase(path.parent, 1, **about))


def usual(tmp_path: Path, **more: Any) -> PhaseAggregates:
    """10/s of 10 ms before; nothing from 20.3 to 27.1; 5/s of 40 ms after that; 10/s again from 60 on."""
    calm = load(0, 20.3, 0.1, 0.01)
    failed = [Request("GET", T0 * NS + round(25.2 * NS), 4 * NS, error="timeout: 4 s")] * 3
    slow = load(27, 60, 0.2, 0.04)
    return phase(tmp_path, [*calm, *failed, *slow, *load(60, 100, 0.1, 0.01)], **more)
