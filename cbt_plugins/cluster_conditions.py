"""Conditions of a cluster under which a measurement is not what it seems, each with its one definition.

Standard library only. The preflight asks for them, a phase watches for them, results and comparisons warn of them. They
are found in a plain mapping (`Status.sample` of a run, `Sample.status` of an archive), so that both are read alike.

To add a condition: one line in `CONDITIONS`, one kind in `warning_kinds`, one row in docs/CONFIG.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Callable, Dict, Iterable, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple

Sample = Mapping[str, Any]


class TimedSample(Mapping[str, Any]):
    """A sample at one instant; those between which nothing changed share `state`: three days have 259,200 of them."""

    __slots__ = ("state", "t")

    def __init__(self, t: float, state: Dict[str, Any]) -> None:
        self.t, self.state = t, state

    def __getitem__(self, key: str) -> Any:
        return self.t if key == "t" else self.state[key]

    def __iter__(self) -> Iterator[str]:
        yield from ("t", *self.state)

    def __len__(self) -> int:
        return 1 + len(self.state)


class ConditionFound(NamedTuple):
    """A condition in one sample: `many` ranks samples of one condition, 0 is none; `text` says what was found."""

    many: int
    text: str


_NONE = ConditionFound(0, "")


@dataclass(frozen=True)
class Condition:
    """One condition; `name` is the word in `accept` and the code of its warning."""

    name: str
    text: str  # what is the case, after the name of a phase or of the cluster
    find: Callable[[Sample], ConditionFound]
    of_faults: bool  # a fault of the run's own brings it with it
    remedy: str  # before the run
    moments: bool = False  # it has no length: what each sample tells is another event


#: words of a PG's state while it moves data
_MOVES = {"recovering", "recovery_wait", "recovery_toofull", "backfilling", "backfill_wait", "backfill_toofull"}


@lru_cache(maxsize=1000)
def is_active(state: str) -> bool:
    """Return whether a PG serves requests. Of a stale PG, no OSD has reported a state since its OSDs went down."""
    words = set(state.split("+"))
    return "active" in words and "stale" not in words


@lru_cache(maxsize=1000)
def is_clean(state: str) -> bool:
    """Return whether a PG is active+clean, also with more words: scrubbing, or another condition; not a stale PG."""
    return is_active(state) and "clean" in state.split("+")


def _pgs(sample: Sample, chosen: Callable[[Set[str]], bool]) -> ConditionFound:
    pgs: Mapping[str, int] = sample.get("pgs") or {}
    counts = {state: n for state, n in pgs.items() if n and chosen(set(state.split("+")))}
    text = ", ".join(f"{n} {state}" for state, n in sorted(counts.items(), key=lambda item: -item[1])[:3])
    many = sum(counts.values())
    return ConditionFound(many, f"{many} of {sum(pgs.values())} PGs: {text}") if counts else _NONE


def _moves(words: Set[str]) -> bool:
    return bool(_MOVES & words)


def _not_clean(words: Set[str]) -> bool:
    return not is_clean("+".join(words)) and not _moves(words)


def _scrubs(words: Set[str]) -> bool:
    return "scrubbing" in words


def _checks(sample: Sample, chosen: Callable[[str], bool]) -> ConditionFound:
    """Find health checks by their codes; those that somebody has muted are not in `says`."""
    says: Mapping[str, str] = sample.get("says") or {}
    texts = [f"{code}: {text}" for code, text in says.items() if chosen(code)]
    return ConditionFound(len(texts), "; ".join(texts)) if texts else _NONE


def _full(code: str) -> bool:
    return code.startswith(("OSD_", "POOL_", "PG_")) and code.endswith("FULL")


def _down(code: str) -> bool:
    return code.endswith("_DOWN") or code == "CEPHADM_FAILED_DAEMON"


def _daemons_down(sample: Sample) -> ConditionFound:
    """Find daemons that are down, also OSDs that are out: of these Ceph has no health check."""
    finding = _checks(sample, _down)
    osds, osds_up = int(sample.get("osds") or 0), sample.get("osds_up")
    if "OSD_DOWN" in (sample.get("checks") or {}) or osds_up is None or osds_up >= osds:
        return finding
    text = f"{osds - osds_up} of {osds} OSDs are down and out"
    return ConditionFound(finding.many + 1, "; ".join(filter(None, (finding.text, text))))


def _slow(code: str) -> bool:
    return code in ("SLOW_OPS", "REQUEST_SLOW", "REQUEST_STUCK") or code.startswith("OSD_SLOW_PING_TIME")


def _alerts(sample: Sample) -> Dict[str, str]:
    """Return the alerts of BlueStore about slow operations and stalled reads, which stay for a day."""
    says: Mapping[str, str] = sample.get("says") or {}
    return {
        code: text
        for code, text in says.items()
        if code == "BLUESTORE_SLOW_OP_ALERT" or code.endswith("_DEVICE_STALLED_READ_ALERT")
    }


def _new_alerts(alerts: Mapping[str, str], before: Mapping[str, str]) -> ConditionFound:
    """Find alerts that were not there before, or of which more OSDs have told since."""
    texts = [f"{code}: {text}" for code, text in alerts.items() if _osds(text) > _osds(before.get(code, ""))]
    return ConditionFound(len(texts), "; ".join(texts)) if texts else _NONE


def _osds(text: str) -> int:
    """Return the number of OSDs in "2 OSD(s) ..."; 1 for another text, 0 for none."""
    number = text.split(" ")[0]
    return int(number) if number.isdecimal() else int(bool(text))


def _errors(sample: Sample) -> ConditionFound:
    severity: Mapping[str, str] = sample.get("checks") or {}
    return _checks(
        sample, lambda code: severity.get(code) == "HEALTH_ERR" and not (_full(code) or _down(code) or _slow(code))
    )


def _daemons(sample: Sample) -> ConditionFound:
    changes: Sequence[str] = sample.get("daemons") or ()
    return ConditionFound(len(changes), ", ".join(changes)) if changes else _NONE


_WAIT = "wait until `ceph -s` shows all PGs active+clean"
# fmt: off
CONDITIONS: Tuple[Condition, ...] = (
    Condition("not-clean", "PGs were not active+clean", lambda s: _pgs(s, _not_clean), True, _WAIT),
    Condition("recovering", "the cluster recovered or moved data", lambda s: _pgs(s, _moves), True, _WAIT),
    Condition("scrubbing", "PGs were scrubbed", lambda s: _pgs(s, _scrubs), False,
              "`settings: {scrub: off}` turns scrubbing off for the run"),
    Condition("near-full", "OSDs or pools were nearly full", lambda s: _checks(s, _full), False,
              "remove data or add OSDs"),
    Condition("daemon-down", "a daemon was down", _daemons_down, True,
              "start the daemon; remove an OSD that is gone for good: `ceph osd purge`"),
    Condition("daemon-restarted", "a daemon ended or started", _daemons, True, "wait", moments=True),
    Condition("slow-ops", "the cluster warned of slow operations", lambda s: _checks(s, _slow), True,
              "see `ceph health detail`"),
    Condition("health-error", "the cluster reported an error", _errors, False, "see `ceph health detail`"),
)
# fmt: on
_SLOW = next(condition for condition in CONDITIONS if condition.name == "slow-ops")
#: what `accept` takes
NAMES: Tuple[str, ...] = tuple(condition.name for condition in CONDITIONS)


def found_in(sample: Sample) -> Dict[str, str]:
    """Return the conditions of one sample: name -> what was found."""
    findings = {condition.name: condition.find(sample) for condition in CONDITIONS}
    return {name: finding.text for name, finding in findings.items() if finding.many}


@dataclass(frozen=True)
class ConditionSpan:
    """One condition in a stretch of time."""

    condition: Condition
    first: float  # epoch seconds of its first sample ...
    last: float  # ... and of the end of its last one
    seconds: float  # for which it was so
    worst: str  # what was found in the worst sample


#: seconds for which a sample counts at most: the next one may never come
LASTS = 10.0


def condition_spans(samples: Sequence[Sample], start: float, end: float) -> Tuple[List[ConditionSpan], float]:
    """Return the conditions between two times (epoch seconds), and the seconds that no sample tells of.

    A sample counts until the next one. An alert of BlueStore stays for a day, so it counts in the sample in which it is
    new: no earlier sample has it.
    """
    samples = [sample for sample in samples if isinstance(sample.get("t"), (int, float))]
    times = [float(sample["t"]) for sample in samples]
    spans_by_name: Dict[str, ConditionSpan] = {}
    worst: Dict[str, int] = {}
    covered = 0.0
    for findings, begin, following in zip(_all_findings(samples), times, [*times[1:], float("inf")]):
        low, high = max(begin, start), min(following, begin + LASTS, end)
        if high <= low:
            continue
        covered += high - low
        for condition, (many, text) in findings:
            before = spans_by_name.get(condition.name) or ConditionSpan(condition, low, low, 0.0, text)
            worst_text = text if many > worst.get(condition.name, many - 1) else before.worst
            if condition.moments and condition.name in spans_by_name:
                worst_text = f"{before.worst}, {text}"
            worst[condition.name] = max(many, worst.get(condition.name, 0))
            spans_by_name[condition.name] = ConditionSpan(
                condition, before.first, high, before.seconds + high - low, worst_text
            )
    return list(spans_by_name.values()), max(0.0, end - start - covered)


def _all_findings(samples: Sequence[Sample]) -> Iterator[List[Tuple[Condition, ConditionFound]]]:
    """Yield the conditions of each sample; those of a state that several samples share are looked for once."""
    latest: Any = None
    findings: List[Tuple[Condition, ConditionFound]] = []
    before: Optional[Dict[str, str]] = None
    for sample in samples:
        state = sample.state if isinstance(sample, TimedSample) else sample
        new = _NONE
        if state is not latest:
            latest, every = state, [(condition, condition.find(state)) for condition in CONDITIONS]
            findings = [(condition, finding) for condition, finding in every if finding.many]
            if state.get("says") is not None:
                alerts = _alerts(state)
                new = _NONE if before is None else _new_alerts(alerts, before)
                before = alerts
        yield [*findings, (_SLOW, new)] if new.many and all(c is not _SLOW for c, _ in findings) else findings


#: kinds of steps in the logs that are no faults: `settings:`, its fast recovery; preparations of a run (pools, users),
#: which stay when the run is broken off, so that it can be resumed; and `run:`
SETTINGS, RECOVERY, PREPARED, COMMAND = NO_FAULTS = ("settings", "recovery", "prepared", "command")
#: the event of a measurement of the clock of the node that samples the cluster: node, seconds, error
CLOCK = "clock-offset"
#: field of a pool in `osd dump`: the number of PGs that it has, or that Ceph splits or merges it to. The autoscaler
#: changes it where `settings:` switches the autoscaler on
PG_NUM = "pg_num_target"
#: event of an undo: a value was changed during the run, and not by the run
OVERWRITTEN = "setting-overwritten"
#: the event with which `cbt-tools undo` begins, before those of what it undoes
UNDO_BY_USER = "undo-by-user"
#: an upgrade, and each of its steps: the versions are those before it
UPGRADE_BEGIN, UPGRADE_STEP, UPGRADE_END = "upgrade-begin", "upgrade-step", "upgrade-end"
#: the event of a wait that has seen all PGs active+clean
CLEAN = "cluster-clean"
#: the event before the run removes its own buckets
CLEANUP = "cleanup-begin"


def of_own_faults(events: Iterable[Mapping[str, Any]]) -> List[Tuple[float, float]]:
    """Return the stretches of time in which the run's own faults and upgrades explain the cluster's state.

    Each begins with a fault and ends when all are undone and a wait has seen all PGs active+clean; else never.
    """
    return list(_stretches(events))


def _stretches(events: Iterable[Mapping[str, Any]]) -> Iterator[Tuple[float, float]]:
    begun, open_ = float("inf"), set()
    for event in events:
        name, label = event.get("event"), str(event.get("label"))
        if name == "fault-inject-begin" and event.get("kind") not in NO_FAULTS:
            begun = min(begun, float(event["t"]))
            open_.add(label)
        elif name == "fault-undone":
            open_.discard(label)
        elif name == UPGRADE_BEGIN:
            begun = min(begun, float(event["t"]))
            open_.add(label)
        elif name == UPGRADE_END:
            open_.discard(label)
        elif name == CLEAN and begun < float("inf") and not open_:
            yield begun, float(event["t"])
            begun = float("inf")
    if begun < float("inf"):
        yield begun, float("inf")
