"""The cluster's own log, beside the milestones that were found in samples."""

from __future__ import annotations

import contextlib
import math
import re
from datetime import datetime
from typing import Any, Dict, List, Mapping, Sequence, Tuple

from running_lab import RunningLab
from second_sampler import Glimpse
from waiting import wait_for

#: seconds by which a milestone may differ from the log
EXACT = 0.5
CLEAN = re.compile(r"pgs: \d+ active\+clean;")
_OSD = {
    "down": re.compile(r"osd\.(\d+) (?:marked itself down|failed )"),
    "out": re.compile(r"Marking osd\.(\d+) out"),
    "up": re.compile(r"osd\.(\d+) .* boot$"),
}
#: milestone -> what the log has of each OSD, and which of them counts
_MILESTONES = {
    "first-down": ("down", min),
    "all-down": ("down", max),
    "out": ("out", max),
    "first-up": ("up", min),
    "all-up": ("up", max),
}


def log_lines(lab: RunningLab, since: float) -> List[Tuple[float, str]]:
    found = []
    node, path = lab.cluster_log
    for line in lab.exec(node, ["cat", path]).stdout.splitlines():
        with contextlib.suppress(ValueError):
            t = datetime.strptime(line[:31], "%Y-%m-%dT%H:%M:%S.%f%z").timestamp()
            found.append((t, line[32:]))
    return [(t, text) for t, text in found if t >= since]


def assert_as_logged(
    lab: RunningLab,
    made: Mapping[str, Any],
    osds: Sequence[int],
    since: float,
    samples: Sequence[float] = (),
    until: float = math.inf,
    seen: Sequence[Glimpse] = (),
) -> int:
    """Compare the failure and the return of a node with the log; returns how many milestones were compared.

    What a sample shows has come after the sample before it, so a milestone may be as late as these are apart. Their
    times are `samples`; PGs that move after `until`, when the run has put its settings back, are no recovery. The mgr
    writes into the log that PGs are clean before the monitors know it: with a second sampler, `clean` is what it has
    `seen`.
    tests/lab/test_milestones.py has the strict comparison, with a sampler of its own.
    """

    def log_says_clean() -> bool:  # it has a line every few seconds
        states = [text for _, text in log_lines(lab, made["end"] - 5) if "pgmap" in text]
        return bool(states and CLEAN.search(states[-1]))

    wait_for(log_says_clean, "the cluster's log")
    log = log_lines(lab, since)
    told: Dict[str, Dict[int, float]] = {kind: {} for kind in _OSD}
    for t, text in log:
        for kind, pattern in _OSD.items():
            if found := pattern.search(text):
                told[kind].setdefault(int(found[1]), t)
    assert told["down"].keys() == told["up"].keys() == set(osds), told
    compared = 0
    for episode, end in zip(made["episodes"], [*(e["begin"] for e in made["episodes"][1:]), made["end"]]):
        for milestone in episode["milestones"]:
            name, t = milestone["name"], milestone["t"]
            if name in _MILESTONES and t is not None:
                kind, of = _MILESTONES[name]
                logged = of(told[kind].values())
            elif name == "clean" and t is not None:
                last = min(end, until)
                inside = [(at, text) for at, text in log if "pgmap" in text and episode["begin"] + 1 < at <= last]
                dirty = max(at for at, text in inside if not CLEAN.search(text))
                clean = [at for at, _ in inside if at > dirty]
                if not clean:  # the log's next line came after the end: it does not say when
                    continue
                # the log has a line every few seconds: PGs may peer once more between two of them
                moved = [g.answered for g in seen if episode["begin"] + 1 < g.asked <= last and not g.clean]
                dirty = max([dirty, *moved])
                known = [glimpse.answered for glimpse in seen if glimpse.asked > dirty and glimpse.clean]
                logged = max(min(clean), min(known, default=0.0))
            else:
                continue
            apart = t - max((sample for sample in samples if sample < t), default=t)
            late = f"{episode['kind']}: {name} {t - logged:+.2f} s from the log, samples {apart:.2f} s apart"
            assert -EXACT <= t - logged <= EXACT + apart, late
            compared += 1
    return compared
