"""The kinds of warnings that limit the trust in a number, each with its one definition.

Standard library only. A run, a summary or an importer names a kind by its code; this says what follows from it. A code
that is not here (of another distribution's importer) is a warning that only people read.

To add a kind: one line in `_ALL`, one in the table of its page in docs/.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from fnmatch import fnmatchcase
from typing import Any, Dict, Iterable, List, Mapping, Tuple

#: seconds after its time at which an event begins late
LATE_EVENT = 2.0


class Severity(Enum):
    """What a reader must do about a warning; from bad to harmless."""

    INVALID = "invalid"  # do not use the numbers that it is about: exit status 4
    WARNING = "warning"  # read it before the numbers are used
    INFO = "info"  # every number is right as it is shown; this says how it came about, or why one is not there


@dataclass(frozen=True)
class WarningKind:
    """One kind of warning."""

    code: str
    text: str  # when it is said
    severity: Severity = Severity.WARNING
    #: the number is not what was meant to be measured, or its noise is unknown: compare calls every row that the
    #: warning is about inconclusive, and says why; so it does with all that are invalid. A warning with a phase is
    #: about the rows of that phase, one with an operation about those of that operation and of all operations, one
    #: without both about the whole run.
    forbids_verdict: bool = False
    #: something else than the cluster held these metrics (shell patterns) down: compare calls no row of them that the
    #: warning is about better or equivalent
    caps: Tuple[str, ...] = ()


def _invalid(code: str, text: str) -> WarningKind:
    return WarningKind(code, text, Severity.INVALID, forbids_verdict=True)


def _info(code: str, text: str) -> WarningKind:
    return WarningKind(code, text, Severity.INFO)


#: metrics that say nothing where the rate was given, or where the load was too small
_OF_RATE = ("*_per_s", "throughput_share")
_OF_LOAD = (*_OF_RATE, "*_ms", "p99_ratio", "bad_s")

# fmt: off
_ALL = (
    # of a summary: docs/SUMMARY.md
    _invalid("incomplete", "the run has no end marker"),
    _invalid("going-on", "the run is going on"),
    _invalid("missing-phase", "a phase of the plan is not in the archive"),
    _invalid("no-phases", "no phase has ended"),
    _invalid("changed-file", "a file of the run is not as it was when the run ended"),
    _invalid("unreadable-phase", "a phase.json is damaged or of an unknown version"),
    _invalid("no-rows", "the requests of a job are in no number"),
    _invalid("no-window", "the jobs never ran at the same time"),
    _invalid("checksum-errors", "objects were read with other content than was written"),
    _invalid("lost-objects", "objects are gone that were written and not deleted"),
    WarningKind("paced", "the rate of warp was limited, and warp stayed below the limit", caps=_OF_LOAD),
    # another calibration gives another rate: less of it may be as fast a cluster
    WarningKind("at-limit", "the rate of warp was limited, and warp reached the limit", forbids_verdict=True),
    # of no summary, which says it as `loop`: a table of rates needs to be told
    WarningKind("rate-given", "an open loop had the rate that it was asked for", Severity.INFO, caps=_OF_RATE),
    _info("partial-attempt", "an interrupted attempt is kept, and in no number"),
    WarningKind("damaged-archive", "a document of the archive is missing or damaged"),
    WarningKind("damaged-lines", "lines of a monitor were doubled, lost or damaged: they are left out"),
    WarningKind("changed-beside", "a monitor's file, or one that nobody reads, is not as it was when the run ended"),
    WarningKind("phase-status", "a phase did not end as ok"),
    WarningKind("short-window", "a window is shorter than was asked for"),
    WarningKind("generator-died", "a load generator failed"),
    WarningKind("job-restarted", "a load generator was started again"),
    WarningKind("generator-idle", "a load generator finished no request"),
    WarningKind("job-lost", "the node of a job was lost"),
    WarningKind("ran-dry", "an operation had no object left for a time"),
    WarningKind("torn-rows", "the rows of a job have no end"),
    WarningKind("bad-rows", "lines of a job are no rows"),
    WarningKind("lost-rows", "the archive has not as many rows as were counted"),
    _info("no-aggregates", "numbers are those of a job's rows"),
    WarningKind("aggregates", "the aggregates of a job could not be made on its node"),
    WarningKind("missing-objects", "requests found no object where one was expected (404)"),
    WarningKind("unknown-objects", "it is unknown whether objects exist"),
    WarningKind("objects-changed", "others changed objects that the load read, after the LIST before the load"),
    WarningKind("out-of-reach", "over 5 % of the objects were unknown during the load, and not used"),
    WarningKind("rate", "an open loop did not issue the rate that was asked for"),
    WarningKind("read-share", "reads could not find all objects"),
    WarningKind("late-starts", "requests of an open loop started late"),
    WarningKind("errors", "requests failed"),
    WarningKind("resent", "over 0.1 % of the requests were sent again on a new connection"),
    WarningKind("accounting", "objects before + PUT - DELETE is not objects after"),
    WarningKind("no-accounting", "objects could not be counted"),
    _info("no-capacity", "the capacity used at the end of a phase is unknown"),
    WarningKind("littles-law", "throughput x latency is not the number of workers"),
    WarningKind("mix", "the mix is not what was asked for"),
    WarningKind("no-samples", "no request of an operation succeeded"),
    # where there are too few, the percentile is not shown
    _info("few-samples", "too few requests for p99 or p99.9: it is left out"),
    WarningKind("stall", "nothing succeeded for whole seconds"),
    WarningKind("stalled-endpoint", "one of several endpoints had no success for 3 s, or too small a share"),
    WarningKind("unfinished-request", "the slowest request has no row"),
    WarningKind("clock-offset", "a node's clock is off"),
    WarningKind("generator-bound", "the load generator was the limit", caps=_OF_LOAD),
    WarningKind("resources-gap", "a node was not watched all the time"),
    WarningKind("monitor-limited", "a monitor could not watch all of its targets"),
    WarningKind("throttled", "a daemon was stopped by the CPU limit of its cgroup"),
    WarningKind("swapping", "a node swapped memory"),
    WarningKind("spillover", "RocksDB went to a slow device"),
    WarningKind("resharded", "buckets were resharded"),
    _info("garbage-grew", "RGW's garbage grew: deleted objects still take space and work"),
    WarningKind("garbage-unknown", "RGW's garbage could not be counted in time"),
    _info("sync-behind", "the zone is behind another one: copies were made, or are to come"),
    WarningKind("repeated", "a phase was run again after an interruption"),
    WarningKind("late", "load generators did not end in time"),
    WarningKind("refused", "the cluster refused the requests of a fill"),
    _info("fill-share", "how far a fill by share came"),
    WarningKind("full", "the cluster became full"),
    WarningKind("events-left", "the phase ended before its events"),
    WarningKind("fault-failed", "a fault could not be injected or undone"),
    # of the cluster during a phase, unless its own faults explain them or `accept` names them: docs/CONFIG.md
    WarningKind("not-clean", "PGs were not active+clean", forbids_verdict=True),
    WarningKind("garbage-left", "garbage of RGW was left when the wait for its end was given up"),
    WarningKind("recovering", "the cluster recovered or moved data", forbids_verdict=True),
    WarningKind("near-full", "OSDs or pools were nearly full", forbids_verdict=True),
    WarningKind("daemon-down", "a daemon was down", forbids_verdict=True),
    WarningKind("daemon-restarted", "a daemon ended or started", forbids_verdict=True),
    WarningKind("health-error", "the cluster reported an error", forbids_verdict=True),
    # what a worse release may do by itself forbids nothing
    WarningKind("scrubbing", "PGs were scrubbed"),
    WarningKind("slow-ops", "the cluster warned of slow operations"),
    WarningKind("accepted-condition", "a condition of the cluster that `accept` names"),
    WarningKind("no-admin", "the run had none of Ceph's commands"),
    WarningKind("state-unknown", "the state of the cluster is not known for a part of a phase"),
    WarningKind("client-silent", "a client said nothing for a time: its load went on unseen"),
    WarningKind("unguarded", "nobody knew for a time how full the cluster was"),
    # of an upgrade: docs/CONFIG.md
    WarningKind("upgrade-incomplete", "an upgrade left daemons of the old release"),
    WarningKind("upgrade-outlasted", "the load ended before an upgrade did"),
    # of a failure: docs/RECOVERY.md
    WarningKind("no-baseline", "no second without a failure was measured"),
    WarningKind("short-baseline", "the time without a failure is short"),
    WarningKind("unsteady-baseline", "the time without a failure had seconds with less than half of the mean"),
    WarningKind("other-load", "phases with and without a failure have different loads"),
    WarningKind("coarse-latencies", "a state was shorter than two blocks of the histograms"),
    WarningKind("errors-in-state", "requests failed in a state of the cluster"),
    WarningKind("not-watched", "a failure has no samples of the cluster"),
    WarningKind("no-recovery-samples", "no samples of the cluster"),
    WarningKind("recovery-gap", "samples of the cluster are missing"),
    WarningKind("switch-fired-early", "a fault ended by itself before its undo"),
    # these two: on the rows of their failures
    WarningKind("fault-ended-early", "an OSD of a fault came back before its undo", forbids_verdict=True),
    WarningKind("not-clean-before", "not all PGs were active+clean before a fault", forbids_verdict=True),
    WarningKind("osd-flapped", "an OSD that had returned went down again"),
    WarningKind("not-recovered", "a milestone of the recovery was not reached"),
    _info("sampled-by-command", "recovery was sampled through the ceph command"),
    WarningKind("clock-skew", "the monitors' clock is off"),
    # of another program's results: docs/IMPORT.md
    _invalid("unreadable", "a file cannot be read"),
    _invalid("missing-client", "a client left no result"),
    _invalid("job-failed", "a job ended with an error"),
    _invalid("no-requests", "a job or an operation that was asked for did nothing"),
    _invalid("threads-lost", "hsbench's threads may have given up"),
    _invalid("no-faults", "the faults could not begin"),
    _invalid("faults-failed", "the faults did not go as planned"),
    _invalid("not-finished", "COSbench did not finish the workload"),
    _invalid("torn-output", "fio's last document has no end"),
    WarningKind("no-common-window", "the clients of a phase never ran at the same time"),
    WarningKind("no-clock", "several processes, and no time stamps"),
    WarningKind("common-window", "the clients did not all run for all of the time"),
    WarningKind("no-series", "rates could not be cut to the common time, or drift is unknown"),
    WarningKind("percentiles-not-merged", "several clients, and no histograms"),
    WarningKind("no-intervals", "the series ends early"),
    _info("stale-tail", "the file ends with what a longer run left, and that is in no number"),
    WarningKind("get-without-body", "hsbench measures a GET without its body"),
    WarningKind("upper-bounds", "COSbench's percentiles are upper ends of bins"),
    WarningKind("faults-late", "an event began late"),
    WarningKind("fault-time", "a fault lasted longer or shorter than planned", forbids_verdict=True),
    WarningKind("warp-aggregated", "warp's percentiles are means of windows"),
    WarningKind("warp-trimmed", "warp's series lack the first and the last seconds"),
    # of a comparison: docs/COMPARE.md, docs/STATISTICS.md
    WarningKind("not-usable", "a run is incomplete or lost data"),
    WarningKind("same-runs", "both sides of the comparison are the same runs"),
    WarningKind("not-interleaved", "runs of one side were made before those of the other, or in groups"),
    WarningKind("within-run", "repetitions of a failure were compared, in one run of each side"),
    _info("known-scatter", "the interval has the scatter from run to run in it"),
    WarningKind("mixed-side", "the runs of a side have different configurations"),
    WarningKind("missing-values", "some runs of a side have no number"),
    WarningKind("unrecovered-runs", "some runs of a side have no time of a recovery: the others do not stand for all",
                forbids_verdict=True),
    WarningKind("missing", "a side or a run has no number"),
    WarningKind("one-run", "one run each, and the scatter from run to run is not known", forbids_verdict=True),
    WarningKind("not-steady", "a run has no level: its tenths differ more than the noise of seconds explains",
                forbids_verdict=True),
    WarningKind("drift-of-runs", "runs that were not made in turns drift, and the change may be that drift",
                forbids_verdict=True),
    WarningKind("correlated-runs", "runs that were not made in turns resemble their neighbours",
                forbids_verdict=True),
    WarningKind("order-unknown", "some runs have no start time, and their order was not looked at"),
    WarningKind("too-few-runs", "fewer than 3 runs: no interval"),
    _info("assumes-normal", "valid only if the logarithms of runs are about normally distributed"),
    _info("not-positive", "differences instead of logarithms"),
    WarningKind("no-base", "no relative change"),
    WarningKind("no-scatter", "all numbers of a side are the same"),
    WarningKind("tests-disagree", "the tests do not agree"),
    WarningKind("drift", "numbers rise or fall with time"),
    _info("autocorrelation", "seconds resemble their neighbours"),
    _info("gaps", "seconds are missing"),
    _info("short-series", "few seconds"),
    _info("in-bins", "values are in bins"),
    _info("small-difference", "the change is surely not 0, and surely smaller than the margin"),
    _info("no-direction", "the row differs, and neither direction is better"),
)
# fmt: on

KINDS: Dict[str, WarningKind] = {kind.code: kind for kind in _ALL}


def severity_of(code: str) -> Severity:
    """Return the severity of a kind of warning; of a kind that is not known, WARNING."""
    return KINDS[code].severity if code in KINDS else Severity.WARNING


def forbids_verdict(code: str) -> bool:
    """Return whether a warning of this kind makes a comparison inconclusive."""
    return code in KINDS and KINDS[code].forbids_verdict


def caps(code: str, metric: str = "*") -> bool:
    """Return whether a warning of this kind forbids "better" and "equivalent" of a metric (without it: of any)."""
    patterns = KINDS[code].caps if code in KINDS else ()
    return bool(patterns) if metric == "*" else any(fnmatchcase(metric, pattern) for pattern in patterns)


@dataclass(frozen=True)
class WarningGroup:
    """All warnings of one kind."""

    code: str
    severity: Severity
    text: str  # of the kind
    about: Tuple[str, ...]  # what it covers: the text of each warning, behind its phase

    @property
    def word(self) -> str:
        """What stands before it."""
        return "note" if self.severity is Severity.INFO else self.severity.value


def by_kind(warnings: Iterable[Mapping[str, Any]]) -> List[WarningGroup]:
    """Return a summary's warnings, one group for each kind, the worst first."""
    texts_by_code: Dict[str, List[str]] = {}
    for warning in warnings:
        where = f"{warning['phase']}: " if warning.get("phase") else ""
        texts_by_code.setdefault(warning["code"], []).append(where + warning["text"])
    groups = [
        WarningGroup(code, severity_of(code), KINDS[code].text if code in KINDS else code, tuple(about))
        for code, about in texts_by_code.items()
    ]
    return sorted(groups, key=lambda group: list(Severity).index(group.severity))


def counted(warnings: Iterable[Mapping[str, Any]]) -> str:
    """Return how many kinds of warnings there are: "2 warnings, 1 note", "no warnings"."""
    severities = [group.severity for group in by_kind(warnings)]
    notes = severities.count(Severity.INFO)
    real = len(severities) - notes
    text = f"{real or 'no'} warning{'' if real == 1 else 's'}"
    return f"{text}, {notes} note{'' if notes == 1 else 's'}" if notes else text


def paced(phase: Mapping[str, Any]) -> List[Tuple[str, int, float]]:
    """Return (operation, jobs, requests/s of all of them) of the closed loops of a phase that were held to a rate.

    LIMITED in plan, log and report; as warnings `paced`, and `at-limit` where the rate was reached.
    """
    held: Dict[str, List[float]] = {}
    for job in phase["jobs"] if phase["loop"] != "open" else ():
        if job["rate_limit"]:
            held.setdefault(job["op"], []).append(job["rate_limit"])
    return [(op, len(rates), round(sum(rates), 3)) for op, rates in held.items()]
