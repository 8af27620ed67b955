"""When each fault of a plan is in force, events in words, and how many PGs would serve no client meanwhile."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

from cbt_plugins.config.fault import deadline_of, fault_warnings, kind_class
from cbt_plugins.config.units import format_duration
from cbt_plugins.formatting import percent
from cbt_plugins.inventory import nodes_of
from cbt_plugins.models.pools import failed_domains, inactive_share
from cbt_plugins.plan import CRUSH, DAEMON_TYPES, FAILURE_DOMAIN, Event, Fault, Phase, Plan, RunPool


@dataclass(frozen=True)
class Span:
    """A fault from its injection to its undo."""

    fault: Fault
    phase: str
    at: float  # seconds after the phase's load began
    undone: Optional[Tuple[str, float]] = None  # phase and time; None: at the end of the run
    seconds: Optional[float] = None  # None when the length of a phase in between is not known
    beside: Tuple[Fault, ...] = ()  # in force already when it begins
    optional: bool = False  # it is skipped when it is refused


def fault_spans(plan: Plan) -> List[Span]:
    """Return all faults of the plan, in order of time."""
    spans_by_label: Dict[str, Span] = {}
    held: List[str] = []
    began: Dict[str, float] = {}  # on a clock that stands at 0 again after every phase of unknown length
    clock = 0.0

    def lasted(label: str, until: float) -> Optional[float]:
        return until - began[label] if label in began else None

    for phase in plan.phases:
        for event in phase.events:
            if event.inject:
                label, beside = event.inject.label, tuple(spans_by_label[held_label].fault for held_label in held)
                spans_by_label[label] = Span(event.inject, phase.name, event.at, beside=beside, optional=event.optional)
                began[label] = clock + event.at
                held.append(label)
            for label in event.undo:
                if label not in held:
                    continue  # a command's
                held.remove(label)
                seconds = lasted(label, clock + event.at)
                spans_by_label[label] = replace(spans_by_label[label], undone=(phase.name, event.at), seconds=seconds)
        length = known_length(phase)
        began, clock = ({}, 0.0) if length is None else (began, clock + length)
    for label in held:
        spans_by_label[label] = replace(spans_by_label[label], seconds=lasted(label, clock))
    return list(spans_by_label.values())


def known_length(phase: Phase) -> Optional[float]:
    """Return the duration of a phase, in seconds; None when only the cluster can tell."""
    duration = phase.goal.duration if phase.goal else phase.duration
    return None if duration is None else phase.ramp + phase.warmup + duration


def targets_text(fault: Fault) -> str:
    """Return the targets of a fault in words: "node4", or "1 node, chosen with seed 7"."""
    if fault.targets:
        return ", ".join(fault.targets)
    if fault.choose_of.startswith(CRUSH):
        return f"1 {fault.choose_of[len(CRUSH):]} of the CRUSH tree, chosen with seed {fault.seed}"
    noun = {"node": "node", "osd": "OSD"}.get(fault.choose_of, f"{fault.choose_of} daemon")
    return f"{fault.choose} {noun}{'' if fault.choose == 1 else 's'}, chosen with seed {fault.seed}"


def event_text(event: Event) -> str:
    """Return one line: "10m: fault node-a: stop node4"."""
    at = format_duration(round(event.at, 3))
    if event.inject:
        accept = f"; may break {', '.join(event.inject.accept)}" if event.inject.accept else ""
        at += " or when the cluster is clean" if event.after_clean else ""
        at += f" ({format_duration(event.at_most)} more at most)" if event.at_most else ""
        at += ", unless a rule refuses it" if event.optional else ""
        return f"{at}: fault {event.inject.label}: {event.inject.kind} {targets_text(event.inject)}{accept}"
    if event.run:
        return f"{at}: run {event.run.label} on {event.run.node or 'the head'}: {event.run.command}"
    if event.upgrade:
        by = f"image {event.upgrade.image}" if event.upgrade.image else f"for each daemon: {event.upgrade.command}"
        return f"{at}: upgrade every daemon to {event.upgrade.to}, {by}; no way back"
    return f"{at}: undo {', '.join(event.undo)}" if event.undo else f"{at}: {event.mark} begins"


def span_text(span: Span) -> str:
    """Return the time at which a fault comes into force, and its duration."""
    ends = f"{format_duration(round(span.undone[1], 3))} of {span.undone[0]}" if span.undone else "the end of the run"
    lasts = "" if span.seconds is None else f" ({format_duration(round(span.seconds, 3))})"
    return f"{span.fault.label}: from {format_duration(round(span.at, 3))} of {span.phase} to {ends}{lasts}"


#: a pool: (name, size, min_size)
_Pool = Tuple[str, int, int]
#: what pools of RGW data look like most often
_POOLS: Sequence[_Pool] = (("3 copies, min_size 2", 3, 2), ("EC 2+2, min_size 3", 4, 3), ("EC 4+2, min_size 5", 6, 5))


def estimated_effects(plan: Plan, cluster: Mapping[str, object]) -> Tuple[str, ...]:
    """Return the effects of the plan's faults that the YAML alone tells, and the unknown ones; none without faults."""
    together: List[Sequence[Fault]] = [
        [fault for fault in (*span.beside, span.fault) if _takes_down(fault)]
        for span in fault_spans(plan)
    ]
    if not together:
        return ()
    most = max(together, key=lambda faults: (sum(map(_nodes, faults)), sum(map(_osds, faults))))
    nodes, osds = sum(map(_nodes, most)), sum(map(_osds, most))
    total = len(nodes_of(cluster, "osds"))
    lines = []
    if nodes:
        labels = ", ".join(fault.label for fault in most if _nodes(fault))
        single = f", and {osds} single OSD{'s' if osds > 1 else ''}" if osds else ""
        lines.append(f"{nodes} of {total} OSD nodes{single} down at once ({labels}); inactive PGs then,")
        shares = "; ".join(_shares(nodes, total, plan)) or "too few nodes for an estimate"
        lines.append(f"if the failure domain is host: {shares}")
    elif osds:
        lines.append(f"{osds} single OSD{'s' if osds > 1 else ''} down at once")
    lines.append("unknown here: pools, failure domains, OSDs of each node, monitors, space; --live asks the cluster")
    return tuple(lines)


def _takes_down(fault: Fault) -> bool:
    kind = kind_class(fault.kind)
    return "osd" in kind.daemon_types and not (kind.serves_on or kind.stays_up)


def _nodes(fault: Fault) -> int:
    if fault.choose_of not in ("", "node", "osd"):
        return 0  # other daemons on nodes
    others = (*(f"{type}." for type in DAEMON_TYPES), CRUSH)
    return sum(not target.startswith(others) for target in fault.targets) + (
        fault.choose if fault.choose_of == "node" else 0
    )


def _osds(fault: Fault) -> int:
    return sum(target.startswith("osd.") for target in fault.targets) + (
        fault.choose if fault.choose_of == "osd" else 0
    )


def _shares(down: int, total: int, plan: Plan) -> List[str]:
    """Return the share of inactive PGs for each pool that the run makes; for frequent pools if it makes none."""
    domains = failed_domains(down, total)
    new = [pool for pool in plan.pools if not pool.existing]
    over_hosts = [pool for pool in new if not pool.rule and pool.failure_domain in ("", FAILURE_DOMAIN)]
    pools = list(map(_as_pool, over_hosts)) if new else _POOLS
    shares = [
        f"{percent(inactive_share(domains, size, least))} of a pool with {name}"
        for name, size, least in pools
        if size <= total
    ]
    return shares + [f"unknown for {pool.key}, with its own placement" for pool in new if pool not in over_hosts]


def _as_pool(pool: RunPool) -> _Pool:
    """Return a pool that the run makes, with the min_size that Ceph gives it."""
    k, m = pool.ec or (0, 0)
    size = pool.replicas or k + m
    least = k + min(1, m - 1) if pool.ec else size - size // 2
    return f"{f'EC {k}+{m}' if pool.ec else f'{size} copies'}, min_size {least} ({pool.key})", size, least


_MINUTE = 60.0
#: mon_osd_down_out_interval where nobody has set it
_DOWN_OUT, _OPTION = 10 * _MINUTE, "mon_osd_down_out_interval"
#: flags under which Ceph does not recover or move data
_HOLD_DATA = ("norecover", "nobackfill", "norebalance")


def _moves_data(fault: Fault) -> bool:
    """Return whether a fault may take OSDs: down, or out."""
    kind = kind_class(fault.kind)
    of_osds = _nodes(fault) or _osds(fault) or any(text.startswith(CRUSH) for text in (fault.choose_of, *fault.targets))
    return "osd" in kind.daemon_types and not kind.serves_on and bool(of_osds)


def span_warnings(plan: Plan) -> Iterator[str]:
    """Yield facts on the plan's faults that are no errors and still worth knowing."""
    settings, planned_spans = plan.settings, fault_spans(plan)
    if settings.recovery and not planned_spans:
        yield f"settings: recovery: {settings.recovery} is in force from the first fault on, and the cycle has no fault"
    if planned_spans and "noout" in settings.flags:
        yield "noout: no OSD is marked out, so what a fault takes away is not recovered while it lasts"
    held = [flag for flag in settings.flags if flag in _HOLD_DATA]
    if held and any(_moves_data(span.fault) for span in planned_spans):
        waits = [phase.name for phase in plan.phases if phase.wait_clean]
        text = f"{', '.join(held)}: Ceph may not move the data of a fault back, so PGs may not become active+clean"
        yield text + (f", and {', '.join(waits)} may not end" if waits else "")
    left = [span.fault.label for span in planned_spans if span.undone is None]
    if left:
        yield f"{', '.join(left)}: not undone by an event: in force until the end of the run"
    timed = not any(option == _OPTION for _, option, _ in settings.config) and "noout" not in settings.flags
    for span in planned_spans:
        label = span.fault.label
        if span.beside and "clean" not in span.fault.accept:
            others = ", ".join(fault.label for fault in span.beside)
            yield f"{label}: refused by rule clean if PGs still recover from {others} then; accept: [clean] overrides"
        yield from _recovers_by_itself(span)
        for text in fault_warnings(span.fault.kind, span.fault.options):
            yield f"{label}: {text}"
        if timed and span.seconds is not None and abs(span.seconds - _DOWN_OUT) <= _MINUTE:
            yield (
                f"{label}: lasts {format_duration(round(span.seconds, 3))}, and OSDs are marked out after 10m unless "
                f"{_OPTION} says otherwise: set it under settings: config: {{mon: ...}}, or chance decides which of "
                "the two comes first"
            )


def _recovers_by_itself(span: Span) -> Iterator[str]:
    deadline = deadline_of(span.fault.kind, span.fault.options)
    if deadline is None:
        return
    limit = f"{span.fault.label}: recovers by itself after {format_duration(deadline)}"
    if span.seconds is None:
        yield f"{limit}, and the time of its undo is not known: check options: {{deadline: ...}}"
    elif span.seconds >= deadline:
        yield f"{limit}, before its undo ({format_duration(round(span.seconds, 3))}): raise deadline"
