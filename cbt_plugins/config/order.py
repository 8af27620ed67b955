"""What the phases of one cycle need from each other, and from the rest of the section."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Iterator, List, Mapping, Optional, Sequence, Set

from cbt_plugins.config.engine import Engine
from cbt_plugins.config.events import Force
from cbt_plugins.config.keys import range_of
from cbt_plugins.config.kinds import blinding_flags
from cbt_plugins.config.models import check_raw_goal, scaled_objects
from cbt_plugins.config.phases import CycleSection, PhaseSection
from cbt_plugins.config.settings import SettingsSection
from cbt_plugins.config.validate import Problem, Problems


@dataclass
class _Before:
    """What the phases before this one have done."""

    foreign: bool  # the buckets hold somebody else's objects
    anything: bool  # there are objects to read, or it is not known
    own: bool = False  # a fill has written objects of this run's own
    by: Set[Optional[Engine]] = field(default_factory=set)  # engines whose fill is there
    closed_loop: bool = False
    force: Force = field(default_factory=Force)


def faults_of_order(
    cycle: CycleSection, data: Mapping[str, Any], foreign: bool, names: Optional[Sequence[str]]
) -> List[Problem]:
    """Return the faults that no phase has alone; paths are relative to the cycle.

    `data` are the section's keys without fault, `names` its buckets, None when they are faulty.
    """
    so_far = _Before(foreign, anything=names is None or foreign)
    problems: List[Problem] = []
    for index, phase in enumerate(cycle.phases):
        path = ("phases", index, phase.kind)
        engine = phase.engine(data.get("engine"))
        found = [*_data(phase, engine, so_far, data), *_own(phase, engine, data, names), *_events(phase, so_far, data)]
        problems += [problem._replace(path=path + problem.path) for problem in found]
        _after(phase, engine, so_far)
    return problems


def _after(phase: PhaseSection, engine: Optional[Engine], so_far: _Before) -> None:
    if phase.fill:
        so_far.anything = so_far.own = True
        so_far.by.add(engine)
    elif phase.hybrid:
        so_far.closed_loop = so_far.closed_loop or phase.hybrid.rate is None
    elif phase.delete:
        so_far.by.discard("cbt-load")
        so_far.own = bool(so_far.by)
        so_far.anything = so_far.own or so_far.foreign


def _data(
    phase: PhaseSection, engine: Optional[Engine], so_far: _Before, data: Mapping[str, Any]
) -> Iterator[Problem]:
    """Yield what the phase misses of those before it; one fault for one cause."""
    if so_far.foreign and phase.writes and not data.get("keep_data"):
        text = "writes into a bucket that is not this run's, under a prefix that is not removed at the end: "
        yield Problem((), text + "accept that with keep_data: true", of_key=True)
    numbered = bool(so_far.by & {"cbt-load", None})  # None: an engine that is a fault itself
    if (phase.verify is not None or phase.delete is not None) and not numbered:
        done = "compares" if phase.verify else "deletes"
        yield Problem((), f"{done} what a fill with engine: cbt-load wrote; put one before it", of_key=True)
    hybrid = phase.hybrid
    if hybrid is None:
        return
    if hybrid.rate and hybrid.rate[1] and not so_far.closed_loop:
        text = "a share of what a closed loop made; put a hybrid phase without rate: before it"
        yield Problem(("rate",), text)
    if not so_far.anything:
        yield Problem((), "no objects to work on: put a fill phase before it, or name existing buckets", of_key=True)
        return
    if so_far.foreign and not so_far.own and hybrid.mix.delete:
        text = "nothing to delete: only objects of this run's own are; put a fill phase before it"
        yield Problem((), text, of_key=True)
        return
    if engine == "cbt-load" and not numbered:
        for name, keys in hybrid.keys or ():
            if keys and range_of(keys.select):
                text = f"{keys.select} counts objects that a fill with engine: cbt-load wrote; put one before it"
                yield Problem(("keys", name), text)
        if hybrid.mix.delete:
            text = "nothing to delete: cbt-load deletes what it wrote itself; fill with engine: cbt-load"
            yield Problem((), text, of_key=True)
    reads = hybrid.mix.get or hybrid.mix.stat or hybrid.mix.delete
    if engine == "warp" and reads and so_far.by and not so_far.foreign and not so_far.by & {"warp", None}:
        text = "nothing to read: warp finds what warp wrote; fill with engine: warp, or say engine: cbt-load here"
        yield Problem((), text, of_key=True)


def _events(phase: PhaseSection, so_far: _Before, data: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield what is wrong with what happens beside the load."""
    scale = data.get("scale") or 1.0
    for problem in so_far.force.faults(phase.events, phase.ends(scale), scale):
        yield problem._replace(path=("events", *problem.path))
    for index, event in enumerate(phase.events):
        for text in unseen(data.get("settings"), event.fault.accept) if event.fault else ():
            yield Problem(("events", index, "fault"), text, of_key=True)


def unseen(settings: Optional[SettingsSection], accept: Sequence[str]) -> List[str]:
    """Return why a fault would be refused, whatever the cluster looks like."""
    flags = blinding_flags(settings.flags) if settings and "flags" not in accept else []
    return [f"settings: {', '.join(flags)} hides it from the cluster (accept: [flags] overrides)"] if flags else []


def _own(
    phase: PhaseSection, engine: Optional[Engine], data: Mapping[str, Any], names: Optional[Sequence[str]]
) -> Iterator[Problem]:
    """Yield what the phase says against the keys of the section."""
    across = data.get("across_buckets")
    if across and engine == "warp":
        yield Problem((), "warp works on one bucket; across_buckets: true needs engine: cbt-load", of_key=True)
    if phase.hybrid and engine:
        yield from phase.hybrid.faults(engine)
    if phase.hybrid and phase.hybrid.roles and engine != "warp":
        if across is False:
            text = "every driver has one bucket: roles of buckets need across_buckets: true"
            yield Problem(("roles",), text, of_key=True)
        elif names is not None:
            for problem in phase.hybrid.roles.faults(names):
                yield problem._replace(path=("roles", *problem.path))
    try:
        check_raw_goal(phase.fill, data.get("full_guard"))
    except Problems as error:
        yield from error.problems
    workers = data.get("workers")
    if phase.warp and phase.warp.op == "mixed" and phase.warp.objects and workers:
        objects = scaled_objects(phase.warp.objects, data.get("scale") or 1.0) or 1
        if objects <= workers:
            text = f"{objects} objects for {workers} workers: warp mixed needs more objects than workers"
            yield Problem(("objects",), text)
