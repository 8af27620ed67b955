"""The kinds of warnings that limit the trust in a number, each with its one definition.

Standard library only. A run, a summary or an importer names a kind by its code; this says what follows from it. A code
that is not here (of another distribution's importer) is a warning that only people read.

To add a kind: one line in `_ALL`, one in the table of its page in docs/.
"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Dict, List, Mapping, Tuple


@dataclass(frozen=True)
class WarningKind:
    """One kind of warning."""

    code: str
    text: str  # when it is said
    unusable: bool = False  # the numbers are not those of a complete run: exit status 4
    #: the number is not what was meant to be measured, or its noise is unknown: compare calls every row that the
    #: warning is about inconclusive, and says why. A warning with a phase is about the rows of that phase, one with
    #: an operation about those of that operation and of all operations, one without both about the whole run.
    forbids_verdict: bool = False
    #: something else than the cluster held these metrics (shell patterns) down: compare calls no row of them that the
    #: warning is about better or equivalent
    caps: Tuple[str, ...] = ()


# fmt: off
_ALL = (
    # of a summary: docs/SUMMARY.md
    WarningKind("incomplete", "the run has no end marker", unusable=True, forbids_verdict=True),
    WarningKind("missing-phase", "the archive lacks a phase of the plan", unusable=True, forbids_verdict=True),
    WarningKind("no-phases", "no phase has ended", unusable=True, forbids_verdict=True),
    WarningKind("unreadable-phase", "a phase.json is damaged or of an unknown version", unusable=True,
                forbids_verdict=True),
    WarningKind("no-rows", "a job's requests are in no number", unusable=True, forbids_verdict=True),
    WarningKind("no-window", "the jobs never ran at the same time", unusable=True, forbids_verdict=True),
    WarningKind("checksum-errors", "objects were read with other content than was written", unusable=True,
                forbids_verdict=True),
    WarningKind("lost-objects", "objects are gone that were written and not deleted", unusable=True,
                forbids_verdict=True),
    WarningKind("paced", "warp was held to a rate, and did not reach it", caps=("*_per_s", "*_ms")),
    # another calibration gives another rate: less of it may be as fast a cluster
    WarningKind("at-limit", "warp made the rate that it was held to", forbids_verdict=True),
    # of no summary, which says it as `loop`: a table of rates needs to be told
    WarningKind("rate-given", "an open loop had the rate that it was asked for", caps=("*_per_s",)),
    # of the cluster during a phase, unless its own faults explain them or `accept` names them: docs/CONFIG.md
    WarningKind("not-clean", "PGs were not active+clean", forbids_verdict=True),
    WarningKind("recovering", "the cluster recovered or moved data", forbids_verdict=True),
    WarningKind("near-full", "OSDs or pools were nearly full", forbids_verdict=True),
    WarningKind("daemon-down", "a daemon was down", forbids_verdict=True),
    WarningKind("daemon-restarted", "a daemon ended or started", forbids_verdict=True),
    WarningKind("health-error", "the cluster reported an error", forbids_verdict=True),
    # what a worse release may do by itself forbids nothing
    WarningKind("scrubbing", "PGs were scrubbed"),
    WarningKind("slow-ops", "the cluster warned of slow operations"),
    WarningKind("accepted-condition", "one of these, which `accept` names"),
    WarningKind("state-unknown", "the state of the cluster is not known for a part of the phase"),
    # of a comparison: docs/STATISTICS.md
    WarningKind("one-run", "one run each, and the scatter from run to run is not known", forbids_verdict=True),
    WarningKind("not-steady", "a run has no level: its tenths differ more than the noise of seconds explains",
                forbids_verdict=True),
    WarningKind("drift-of-runs", "runs of one side after the other's drift, and the change may be that drift",
                forbids_verdict=True),
    WarningKind("correlated-runs", "runs of one side after the other's resemble their neighbours",
                forbids_verdict=True),
)
# fmt: on

KINDS: Dict[str, WarningKind] = {kind.code: kind for kind in _ALL}


def forbids_verdict(code: str) -> bool:
    """Return whether a warning of this kind makes a comparison inconclusive."""
    return code in KINDS and KINDS[code].forbids_verdict


def caps(code: str, metric: str = "*") -> bool:
    """Return whether a warning of this kind forbids "better" and "equivalent" of a metric (without it: of any)."""
    its = KINDS[code].caps if code in KINDS else ()
    return bool(its) if metric == "*" else any(fnmatchcase(metric, pattern) for pattern in its)


def is_unusable(code: str) -> bool:
    """Return whether a run with such a warning is unusable."""
    return code in KINDS and KINDS[code].unusable


def paced(phase: Mapping[str, Any]) -> List[Tuple[str, int, float]]:
    """Return (operation, jobs, requests/s of all of them) of the closed loops of a phase that were held to a rate."""
    held: Dict[str, List[float]] = {}
    for job in phase["jobs"] if phase["loop"] != "open" else ():
        if job["rate_limit"]:
            held.setdefault(job["op"], []).append(job["rate_limit"])
    return [(op, len(rates), round(sum(rates), 3)) for op, rates in held.items()]
