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
    text: str  # its meaning
    severity: Severity = Severity.WARNING
    #: the number does not measure what was meant, or its noise is unknown: compare calls every row of the warning
    #: inconclusive, and names the warning; so do all invalid kinds. A warning with a phase is about the rows of that
    #: phase; a warning with an operation about its rows and the rows of all operations; a warning without phase and
    #: operation about the entire run.
    forbids_verdict: bool = False
    #: the same for these metrics only (shell patterns)
    forbids_verdict_on: Tuple[str, ...] = ()
    #: something other than the cluster limited these metrics (shell patterns): compare calls no row of these metrics
    #: better or equivalent, if the warning is about the row
    caps: Tuple[str, ...] = ()
    #: no limit of the file: it may be what makes a side worse, so these metrics of that side are not worse, either
    hides_worse: bool = False
    #: no limit of the load, either: these metrics lack requests, and look better than they are. The side with the
    #: warning keeps no limit of these metrics for certain; if it is the base, the other side is not worse, either
    flatters: bool = False


def _invalid(code: str, text: str) -> WarningKind:
    return WarningKind(code, text, Severity.INVALID, forbids_verdict=True)


def _info(code: str, text: str) -> WarningKind:
    return WarningKind(code, text, Severity.INFO)


#: metrics without meaning if the rate was given, or if the load was too small
_OF_RATE = ("*_per_s", "throughput_share")
_OF_LOAD = (*_OF_RATE, "*_ms", "p99_ratio", "bad_s")
_OF_LADDERS = ("highest_per_s", "highest_workers")
#: metrics of what nodes and daemons used
_OF_NODES = ("cores", "cores_per_gb_s", "cpu_ms_per_op", "ops_per_core", "rgw_osd_ratio", "rss_mib")

# fmt: off
_ALL = (
    # of a summary: docs/SUMMARY.md
    _invalid("incomplete", "the run has no end marker"),
    _invalid("going-on", "the run has not finished"),
    _invalid("missing-phase", "a phase of the plan is not in the archive"),
    _invalid("no-phases", "no phase has finished"),
    _invalid("changed-file", "a file of the run cannot be read, or has changed since the run ended"),
    _invalid("unreadable-phase", "a phase.json is damaged or of an unknown version"),
    _invalid("no-rows", "the requests of a job are missing in all results"),
    _invalid("no-window", "the jobs of a phase never ran at the same time"),
    _invalid("checksum-errors", "objects were read whose content is not what was written"),
    _invalid("lost-objects", "objects that were written and not deleted are missing"),
    WarningKind("paced", "the rate of warp was limited, and warp stayed below the limit", caps=_OF_LOAD),
    # another calibration gives another rate, so a lower throughput need not mean a slower cluster
    WarningKind("at-limit", "the rate of warp was limited, and warp reached the limit", forbids_verdict=True),
    # not in summaries, which have `loop` instead; a comparison of rates needs it
    WarningKind("rate-given", "the rate of an open loop was given, so it does not measure the cluster", Severity.INFO,
                caps=_OF_RATE),
    _info("partial-attempt", "an interrupted attempt is kept in the archive; the results do not include it"),
    WarningKind("damaged-archive", "a file of the archive is missing or damaged"),
    WarningKind("damaged-lines", "lines of a monitor were duplicated, lost, damaged or of an unknown node; not used"),
    WarningKind(
        "changed-beside",
        "a monitor's file, or a file that no result uses, cannot be read, or has changed since the run ended",
    ),
    WarningKind("phase-status", "the status of a phase is not ok", forbids_verdict=True),
    WarningKind("short-window", "the window of a phase is shorter than its duration in the file"),
    WarningKind("generator-died", "a load generator failed", forbids_verdict=True),
    WarningKind("job-restarted", "a load generator was started again"),
    WarningKind("generator-idle", "a load generator finished no request"),
    WarningKind("job-lost", "the node of a job was lost", forbids_verdict=True),
    WarningKind("ran-dry", "for some time an operation had no objects left"),
    WarningKind("torn-rows", "the rows of a job are cut off", forbids_verdict=True),
    WarningKind("bad-rows", "some lines of a job are not rows of requests"),
    WarningKind("lost-rows", "the archive has fewer or more rows than the job has counted", forbids_verdict=True),
    _info("no-aggregates", "results were computed from a job's rows, because it has no aggregates"),
    WarningKind("aggregates", "the aggregates of a job could not be made on its node", forbids_verdict=True),
    WarningKind("missing-objects", "requests for objects that should exist got 404"),
    WarningKind("gone-objects", "objects are missing that a broken-off attempt or a lost job may have deleted"),
    WarningKind("unknown-objects", "it is unknown whether objects exist"),
    WarningKind("objects-changed", "after the LIST before the load, other clients changed objects that the load read"),
    WarningKind("out-of-reach", "over 5 % of the objects were unknown to the load, and were not used"),
    WarningKind("rate", "an open loop did not issue requests at the rate of the file"),
    WarningKind("read-share", "reads did not know all objects"),
    WarningKind("late-starts", "requests of an open loop started late"),
    WarningKind("late-go", "a client began its load late"),
    WarningKind("ladder-open", "a ladder met its objective at the highest load", caps=_OF_LADDERS),
    WarningKind("errors", "requests failed"),
    WarningKind("resent", "over 0.1 % of the requests were sent again on a new connection"),
    WarningKind("accounting", "object accounting: objects before + PUT - DELETE differs from objects after"),
    WarningKind("no-accounting", "objects could not be counted"),
    _info("no-capacity", "the capacity used at the end of a phase is unknown"),
    WarningKind("littles-law", "throughput x latency is not the number of workers"),
    WarningKind("mix", "the measured mix differs from the mix of the file"),
    WarningKind("no-samples", "no request of an operation succeeded"),
    # a percentile of too few requests is not shown
    _info("few-samples", "too few requests for p99 or p99.9, which is not shown"),
    WarningKind("stall", "nothing succeeded for whole seconds"),
    WarningKind("stalled-endpoint", "one of several endpoints had no success for 3 s, or too small a share"),
    WarningKind("unfinished-request", "requests of the window ended after it or never, and numbers lack them",
                caps=("*_ms", "p99_ratio", "success_rate"), flatters=True),
    WarningKind("clock-offset", "the clock of a node differs from the run's clock"),
    WarningKind("generator-bound", "the load generator was the limit", caps=(*_OF_LOAD, "highest_workers"),
                hides_worse=True),
    WarningKind("resources-gap", "the samples of a node have gaps", forbids_verdict_on=_OF_NODES),
    WarningKind("monitor-limited", "a monitor could not watch all of its targets"),
    _info("counters-coarse", "samples of perf_counters were too far apart for a phase, so counters have no values"),
    # so in each failure of an OSD
    _info("counters-of-others", "daemons were not there at an end of a phase, so sums of perf_counters lack them"),
    WarningKind("throttled", "a daemon was stopped by the CPU limit of its cgroup"),
    WarningKind("memory-limit", "a daemon was near the memory limit of its cgroup, or the OOM killer ended it"),
    WarningKind("swapping", "a node swapped memory"),
    WarningKind("spillover", "RocksDB data spilled over to the slow device"),
    WarningKind("resharded", "buckets were resharded"),
    _info("garbage-grew", "RGW's garbage grew: deleted objects still take space and work"),
    WarningKind("garbage-unknown", "RGW's garbage could not be counted in time"),
    _info("sync-behind", "the zone is behind another zone: replication ran, or will run later"),
    WarningKind("repeated", "a phase was run again after an interruption"),
    WarningKind("not-prepared", "a wait before a repeated phase had an error", forbids_verdict=True),
    WarningKind("injected-again", "a fault of an earlier phase was injected again after an interruption"),
    WarningKind("refilled", "a later fill was run again beside the objects of its first attempt", forbids_verdict=True),
    WarningKind("replaced", "Ceph or a program was replaced while the run was interrupted", forbids_verdict=True),
    WarningKind("lost-events", "events of the run are missing or damaged", forbids_verdict=True),
    WarningKind("late", "load generators did not end in time"),
    WarningKind("refused", "the cluster refused the requests of a fill"),
    _info("fill-share", "the share that a fill reached"),
    WarningKind("full", "the cluster became full"),
    WarningKind("events-left", "the phase ended before all of its events happened"),
    WarningKind("fault-failed", "a fault could not be injected or undone"),
    WarningKind("pgs-split", "the autoscaler of `settings` changed the number of PGs of pools"),
    # about the cluster during a phase, unless the run's own faults explain them or `accept` lists them: docs/CONFIG.md
    WarningKind("not-clean", "PGs were not active+clean", forbids_verdict=True),
    WarningKind("garbage-left", "garbage of RGW was left when the wait for its end was given up"),
    WarningKind("recovering", "the cluster recovered or moved data", forbids_verdict=True),
    WarningKind("near-full", "OSDs or pools were nearly full", forbids_verdict=True),
    WarningKind("daemon-down", "a daemon was down", forbids_verdict=True),
    WarningKind("daemon-restarted", "a daemon ended or started", forbids_verdict=True),
    WarningKind("health-error", "the cluster reported an error", forbids_verdict=True),
    # these may be caused by a worse release itself, so they forbid no verdict
    WarningKind("scrubbing", "PGs were scrubbed"),
    WarningKind("slow-ops", "the cluster warned of slow operations"),
    WarningKind("accepted-condition", "the cluster had a condition that `accept` lists"),
    WarningKind("no-admin", "the run had no access to Ceph's commands"),
    WarningKind("state-unknown", "the state of the cluster is unknown for a part of a phase"),
    WarningKind("client-silent", "a client sent no messages for some time, while its load continued"),
    WarningKind("unguarded", "for some time it was unknown how full the cluster was"),
    # of an upgrade: docs/CONFIG.md
    WarningKind("upgrade-incomplete", "after an upgrade some daemons still had the old release"),
    WarningKind("upgrade-outlasted", "the load ended before the upgrade"),
    # of a failure: docs/RECOVERY.md
    WarningKind("no-baseline", "no seconds without a failure were measured"),
    WarningKind("short-baseline", "the baseline, the time without a failure, is short"),
    WarningKind("unsteady-baseline", "in some seconds of the baseline the throughput was below half of its mean"),
    WarningKind("other-load", "phases with and without a failure have different loads"),
    WarningKind("closed-loop-failure", "a failure was measured in a closed loop: too few requests waited or failed"),
    WarningKind("coarse-latencies", "a state of the cluster was shorter than two blocks of the histograms"),
    WarningKind("errors-in-state", "requests failed in a state of the cluster"),
    WarningKind("not-watched", "there are no samples of the cluster during a failure"),
    WarningKind("no-recovery-samples", "no samples of the cluster"),
    WarningKind("recovery-gap", "samples of the cluster are missing"),
    WarningKind("switch-fired-early", "a fault ended by itself before its undo"),
    # the next two are about the rows of their failures
    WarningKind("fault-ended-early", "a fault ended before its undo", forbids_verdict=True),
    WarningKind("not-clean-before", "not all PGs were active+clean before a fault", forbids_verdict=True),
    WarningKind("osd-flapped", "an OSD that had returned went down again"),
    WarningKind("not-recovered", "a milestone of the recovery was not reached"),
    _info("sampled-by-command", "recovery was sampled through the ceph command"),
    WarningKind("clock-skew", "the monitors' clock is off"),
    # of another program's results: docs/IMPORT.md
    _invalid("unreadable", "a file cannot be read"),
    _invalid("missing-client", "a client left no result, or none of a phase"),
    WarningKind("same-content", "two files of a folder have the same content, and both count", forbids_verdict=True),
    _info("archives-below", "archives below the folder of the result are not in it"),
    _invalid("job-failed", "a job ended with an error"),
    _invalid("no-requests", "a job or an operation of the workload made no requests"),
    _invalid("threads-lost", "threads of hsbench may have stopped early"),
    _invalid("no-faults", "the faults beside the load could not start"),
    _invalid("faults-failed", "the faults did not go as planned"),
    _invalid("not-finished", "COSbench did not finish the workload"),
    _invalid("torn-output", "the output of the load generator has no end"),
    WarningKind("no-common-window", "the clients of a phase never ran at the same time"),
    WarningKind("no-clock", "the result has several processes, but no time stamps"),
    WarningKind("common-window", "some clients ran only for a part of the time"),
    WarningKind("no-series", "no time series: rates include times in which not all clients ran, and drift is unknown"),
    WarningKind("percentiles-not-merged", "percentiles of several clients cannot be merged without histograms"),
    WarningKind("no-intervals", "the time series ends early"),
    _info("stale-tail", "the end of the file is a remainder of an earlier, longer run, and is not used"),
    WarningKind("get-without-body", "hsbench measures a GET without its body"),
    WarningKind("upper-bounds", "percentiles of COSbench are the upper ends of bins"),
    WarningKind("faults-late", "an event began late"),
    WarningKind("fault-time", "a fault lasted longer or shorter than planned", forbids_verdict=True),
    WarningKind("warp-aggregated", "warp's percentiles are means of windows"),
    WarningKind("warp-trimmed", "warp's series lack the first and the last seconds"),
    # of a comparison: docs/COMPARE.md, docs/STATISTICS.md
    WarningKind("not-usable", "a run is incomplete, lost data, or is not to be trusted"),
    WarningKind("same-runs", "both sides of the comparison are the same runs"),
    WarningKind("not-interleaved", "the runs of the sides were not made in turns"),
    WarningKind("same-archive", "several runs of a side are iterations of one archive, which are not independent"),
    WarningKind("within-run", "repetitions of a failure within one run of each side were compared, not runs"),
    WarningKind("one-baseline", "repetitions within one run are divided by one baseline, whose scatter is unknown",
                forbids_verdict=True),
    _info("known-scatter", "the interval includes a known run-to-run scatter"),
    WarningKind("mixed-side", "the runs of a side have different configurations"),
    WarningKind("missing-values", "some runs of a side do not have this number"),
    WarningKind("unrecovered-runs", "some runs of a side did not recover, so its other runs are not representative",
                forbids_verdict=True),
    WarningKind("other-limits", "each side's own baseline limits its bad seconds, and the new limit is lower",
                forbids_verdict=True),
    WarningKind("lenient-limits", "each side's own baseline limits its bad seconds, and the new limit is higher",
                caps=("bad_s",)),
    WarningKind("missing", "a side or a run does not have this number"),
    WarningKind("one-run", "each side has one run, and the run-to-run scatter is unknown", forbids_verdict=True),
    WarningKind("not-steady", "a run is not steady: its tenths differ by more than the noise of its seconds explains",
                forbids_verdict=True),
    WarningKind("drift-of-runs", "the runs were not made in turns, they drift, and the change may be this drift",
                forbids_verdict=True),
    WarningKind("correlated-runs", "the runs were not made in turns, and neighbouring runs resemble each other",
                forbids_verdict=True),
    WarningKind("order-unknown", "some runs have no start time, so the order of the runs was not checked"),
    WarningKind("too-few-runs", "fewer than 3 runs: no interval"),
    _info("assumes-normal", "valid only if the logarithms of runs are about normally distributed"),
    _info("not-positive", "numbers are not all positive: differences are used instead of ratios"),
    WarningKind("no-base", "the base is 0, so there is no relative change"),
    WarningKind("no-scatter", "the difference of the sides has no scatter"),
    WarningKind("tests-disagree", "the tests do not agree"),
    WarningKind("drift", "numbers rise or fall with time"),
    _info("autocorrelation", "neighbouring seconds resemble each other"),
    _info("gaps", "the series lacks seconds"),
    _info("short-series", "the series has few seconds"),
    _info("in-bins", "values are rounded to bins"),
    _info("small-difference", "the change is significant, but smaller than the margin"),
    _info("no-direction", "the sides differ, but for this metric neither direction is better"),
)
# fmt: on

KINDS: Dict[str, WarningKind] = {kind.code: kind for kind in _ALL}


def severity_of(code: str) -> Severity:
    """Return the severity of a kind of warning; of a kind that is not known, WARNING."""
    return KINDS[code].severity if code in KINDS else Severity.WARNING


def forbids_verdict(code: str, metric: str = "*") -> bool:
    """Return whether a warning of this kind makes a comparison of a metric (without it: of any) inconclusive."""
    kind = KINDS.get(code)
    return kind is not None and (kind.forbids_verdict or _takes(kind.forbids_verdict_on, metric))


def caps(code: str, metric: str = "*") -> bool:
    """Return whether a warning of this kind forbids "better" and "equivalent" of a metric (without it: of any)."""
    return code in KINDS and _takes(KINDS[code].caps, metric)


def flatters(code: str) -> bool:
    """Return whether a metric that a warning of this kind caps looks better than it is."""
    return code in KINDS and KINDS[code].flatters


def _takes(patterns: Tuple[str, ...], metric: str) -> bool:
    return bool(patterns) if metric == "*" else any(fnmatchcase(metric, pattern) for pattern in patterns)


def hides_worse(base: Iterable[str], new: Iterable[str], lower_is_better: bool) -> bool:
    """Return whether limits of the load may be what makes the new side worse, by their codes on each side.

    The codes are those that cap the metric. Less load lowers latencies: of a base with a limit that the new side does
    not have, too. A base that looks better than it is hides whether the new side is worse.
    """
    limits_of_base, limits_of_new = set(base), set(new)
    if any(map(flatters, limits_of_base)):
        return True
    limits_of_new = {code for code in limits_of_new if not flatters(code)}
    own = {code for code in limits_of_base | limits_of_new if KINDS[code].hides_worse}
    if lower_is_better:
        return bool(own or limits_of_base - limits_of_new)
    return bool(own & limits_of_new)


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
    """Return the number of kinds of warnings, in words: "2 warnings, 1 note", "no warnings"."""
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
