"""A sampler and its rules that share no code with the recovery monitor: what its milestones are compared with."""

from __future__ import annotations

import contextlib
import json
import subprocess
from pathlib import Path
from typing import Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from running_lab import RunningLab
from waiting import end_of, wait_for

#: `status` every 0.1 s until standard input ends: the time before the question, the time after the answer, the answer
_PROGRAM = """\
import json, rados, select, sys, time
cluster = rados.Rados(conffile="/etc/ceph/ceph.conf")
cluster.connect()
while not select.select([0], [], [], 0.1)[0]:
    begin = time.time()
    reply = cluster.mon_command(json.dumps({"prefix": "status", "format": "json"}), b"")[1]
    print(begin, time.time(), reply.decode().strip(), flush=True)
"""


class Glimpse(NamedTuple):
    """One answer of the cluster."""

    asked: float
    answered: float
    osds_up: int
    osds_in: int
    states: Dict[str, int]
    degraded: int
    misplaced: int
    unfound: int
    health: str

    @property
    def clean(self) -> bool:
        return all("active+clean" in state and "stale" not in state for state in self.states)

    @property
    def moving(self) -> bool:
        return any("recovering" in state or "backfilling" in state for state in self.states)

    @property
    def all_copies(self) -> bool:
        active = all("active" in state and "stale" not in state for state in self.states)
        return not self.degraded and not self.unfound and active


def _glimpse(line: str) -> Glimpse:
    asked, answered, text = line.split(" ", 2)
    status = json.loads(text)
    osds, pgs = status["osdmap"], status["pgmap"]
    states = {row["state_name"]: row["count"] for row in pgs["pgs_by_state"]}
    degraded, misplaced, unfound = (pgs.get(f"{what}_objects", 0) for what in ("degraded", "misplaced", "unfound"))
    times, counts = (float(asked), float(answered)), (osds["num_up_osds"], osds["num_in_osds"])
    return Glimpse(*times, *counts, states, degraded, misplaced, unfound, status["health"]["status"])


class SecondSampler:
    """What the second sampler has seen so far: its lines are in a file."""

    def __init__(self, file: Path) -> None:
        self._file, self._read = file, 0
        self._glimpses: List[Glimpse] = []

    def glimpses(self) -> List[Glimpse]:
        with self._file.open() as file:
            file.seek(self._read)
            for line in iter(file.readline, ""):
                if not line.endswith("\n"):
                    break
                self._glimpses.append(_glimpse(line))
                self._read += len(line)
        return self._glimpses


@contextlib.contextmanager
def second_sampler(lab: RunningLab, file: Path) -> Iterator[SecondSampler]:
    argv = lab.lab.enter("node0", ["/usr/bin/python3", "-c", _PROGRAM])
    with file.open("wb") as out:
        process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=out, env=lab.lab.environment())
    second = SecondSampler(file)
    try:
        wait_for(second.glimpses, "the second sampler")
        yield second
    finally:
        assert process.stdin is not None
        process.stdin.close()
        end_of(process)


#: a milestone is after the first time and not after the second one
Between = Tuple[float, float]


def _first(seen: Sequence[Glimpse], holds: Callable[[Glimpse], bool]) -> Optional[Between]:
    """Return between which answers something is so for the first time."""
    for before, now in zip(seen, seen[1:]):
        if holds(now):
            return before.asked, now.answered
    return None


def _last(seen: Sequence[Glimpse], holds: Callable[[Glimpse], bool]) -> Optional[Between]:
    """Return between which answers something is so for good; None where it never was otherwise, or is not at the end.
    """
    other = [place for place, now in enumerate(seen) if not holds(now)]
    if not other or other[-1] + 1 == len(seen):
        return None
    return seen[other[-1]].asked, seen[other[-1] + 1].answered


def _most(seen: Sequence[Glimpse], what: Callable[[Glimpse], int]) -> Optional[Between]:
    most = max(map(what, seen))
    return _first(seen, lambda now: what(now) == most) if most else None


def milestones_seen(seen: Sequence[Glimpse], kind: str, begin: float, end: float) -> Dict[str, Optional[Between]]:
    """Return the milestones of all OSDs of one node, by the rules of docs/RECOVERY.md: (not before, not after)."""
    before = [now for now in seen if now.answered < begin][-1]
    window = [before, *(now for now in seen if begin <= now.answered <= end)]
    ups, ins = {now.osds_up for now in window}, {now.osds_in for now in window}
    turned = (lambda now: now.osds_up < max(ups)) if kind == "failure" else (lambda now: now.osds_up > min(ups))
    changed = next(place for place, now in enumerate(window) if turned(now))
    since = window[max(0, changed - 1) :]
    ill = next((place for place, now in enumerate(since) if now.health != "HEALTH_OK"), len(since))
    found = {
        "no-object-degraded": _last(since, lambda now: now.all_copies),
        "health-ok": _first(since[ill:], lambda now: now.health == "HEALTH_OK"),
        "clean": _last(since, lambda now: now.clean),
        "recovery-starts": _first(since, lambda now: now.moving) if not since[0].moving else None,
    }
    if kind == "failure":
        found["first-down"] = _first(window, turned)
        found["all-down"] = _first(window, lambda now: now.osds_up == min(ups))
        found["out"] = _first(window, lambda now: now.osds_in == min(ins)) if len(ins) > 1 else None
        found["degraded-peak"] = _most(since, lambda now: now.degraded)
    else:
        found["first-up"] = _first(window, turned)
        found["all-up"] = _first(window, lambda now: now.osds_up == max(ups))
        found["misplaced-peak"] = _most(since, lambda now: now.misplaced)
    return found
