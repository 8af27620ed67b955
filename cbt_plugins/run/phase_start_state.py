"""State from which a phase begins: its objects, the faults in force, and what the waits before it have prepared;
restored when the run was broken off.
"""

from __future__ import annotations

import logging
import time
from typing import Dict, List, Sequence, Tuple, Union

from cbt_plugins.cluster.remote import RemoteError
from cbt_plugins.faults.cluster_facts import ask, down_otherwise
from cbt_plugins.faults.kind import make
from cbt_plugins.formatting import several
from cbt_plugins.plan import Event, Fault, NodeCommand, Phase
from cbt_plugins.run.buckets import Buckets
from cbt_plugins.run.context import LOAD_BEGUN, RunContext
from cbt_plugins.run.wait_phase import given_up_code, wait_again, wait_for_clean

log = logging.getLogger(__name__)

_Change = Union[Fault, NodeCommand]


def restore_state(run: RunContext, buckets: Buckets, index: int, phase: Phase) -> List[Tuple[str, str]]:
    """Restore what a phase begins with: objects, faults, caches and the like; return the code and text of what differs.
    """
    return [
        *_restore_objects(run, buckets, index, phase),
        *_restore_faults_and_waits(run, index, phase),
    ]


def _begun_before(run: RunContext, phase: Phase) -> bool:
    """Return whether an attempt at the phase was broken off."""
    return any(record["phase"] == phase.name for record in run.journal.all("phase-begun"))


def _restore_objects(run: RunContext, buckets: Buckets, index: int, phase: Phase) -> List[Tuple[str, str]]:
    """Empty the buckets before the first load; later phases keep what their unfinished attempt has written."""
    if phase.kind == "wait" or not _begun_before(run, phase):
        return []
    first = next(i for i, p in enumerate(run.plan.phases, 1) if p.kind != "wait")
    if index == first:
        buckets.empty(buckets.counts())
        if not any(bucket.existing for bucket in run.plan.buckets):
            return []  # nobody empties buckets that the run has not made
    # a run of an earlier version has only the event
    begun = [*run.journal.all(LOAD_BEGUN), *run.events.all("load-go")]
    if not any(record.get("phase") == phase.name for record in begun):
        return []
    return [("repeated", "an earlier attempt at this phase was broken off, and its objects are still in the bucket")]


def _restore_faults_and_waits(run: RunContext, index: int, phase: Phase) -> List[Tuple[str, str]]:
    """Inject the lost faults of earlier phases again, and do the waits before a broken load again, in the plan's order.

    A wait for active+clean or for garbage ends after its events, so its own faults come before it. A pause prepares
    for its own faults, which come after it.
    """
    lost = _lost_changes(run, index)
    if any(event.inject for p in run.plan.phases[: index - 1] for event in p.events):
        run.injector.speed_up_recovery()  # in force from the first fault to the end of the run, in every invocation
    settle = bool(lost) or _begun_before(run, phase)
    differences: List[Tuple[str, str]] = []
    for number in _waits_to_repeat(run, index, phase):
        wait = run.plan.phases[number - 1]
        limit = number + 1 if wait.wait_clean or wait.wait_gc else number
        before = [change for n, change in lost if n < limit]
        differences += [*_inject_again(run, index, phase, before), *_prepare_again(run, number, phase)]
        lost = [(n, change) for n, change in lost if n >= limit]
    differences += _inject_again(run, index, phase, [change for _, change in lost])
    if settle:
        _wait_before(run, index, phase, [event.inject for event in phase.events if event.inject is not None])
    return differences


def _lost_changes(run: RunContext, index: int) -> List[Tuple[int, _Change]]:
    """Return the changes that should be in force, but that the end of the last invocation undid, by number of phase."""
    wanted: Dict[str, Tuple[int, _Change]] = {}
    for number, earlier in enumerate(run.plan.phases[: index - 1], 1):
        for event in sorted(earlier.events, key=lambda e: e.at):
            wanted.update((change.label, (number, change)) for change in _changes_of(event))
            for label in event.undo:
                wanted.pop(label, None)
    present = {record.label for record in run.injector.open_changes}
    return [
        (number, change)
        for label, (number, change) in wanted.items()
        if label not in present and _was_injected(run, change)
    ]


def _inject_again(run: RunContext, index: int, phase: Phase, changes: Sequence[_Change]) -> List[Tuple[str, str]]:
    """Inject faults of earlier phases again.

    The cluster may still recover from their undo, so it is waited for before the first of these faults, and before
    those of a phase that does not follow directly upon the phase before it. PGs that the faults already injected
    have degraded are no reason to wait.
    """
    for change in changes:
        if isinstance(change, NodeCommand):
            run.injector.run(change)
            continue
        _wait_before(run, index, phase, [change])
        log.warning("injecting %s again: it was in force when the run was broken off", change.label)
        run.injector.inject(change)
    text = "{} was undone when the run was broken off, and injected again"
    return [("injected-again", text.format(change.label)) for change in changes]


def _changes_of(event: Event) -> List[_Change]:
    """Return the fault and the command of an event that stay until their undo."""
    command = event.run if event.run is not None and event.run.undo else None
    return [change for change in (event.inject, command) if change is not None]


def _was_injected(run: RunContext, change: _Change) -> bool:
    """Tell whether a change was made, and stays until its undo.

    The time of others never came: their phase ended before it. A line of events.jsonl may be lost, so the undo journal
    is asked too.
    """
    noted = [record for record in run.events.all("fault-injected") if record["label"] == change.label]
    if noted:
        return any(not record.get("returns") for record in noted)
    has_undo = run.injector.injected.get(change.label, False)
    return has_undo and (isinstance(change, NodeCommand) or make(change.kind, change.options).lasts)


def lost_events(run: RunContext) -> List[str]:
    """Return, in words, the events that events.jsonl has lost; from them results take the failures of the run.

    A kill may come between a fault and its event, but then the phase is repeated: only finished phases are asked for.
    """
    noted = {record["label"] for record in run.events.all("fault-injected")}
    ended = [phase for i, phase in enumerate(run.plan.phases, 1) if run.archive.finished(i, phase.name)]
    changes = [change for phase in ended for event in phase.events for change in _changes_of(event)]
    injected = run.injector.injected.keys() - noted if changes else ()
    labels = [change.label for change in changes if change.label in injected]
    damaged = run.events.damaged
    texts = [f"events.jsonl has {several(len(damaged), 'damaged line')}"] if damaged else []
    return [*texts, *(f"events.jsonl does not have the injection of {label}" for label in dict.fromkeys(labels))]


def _waits_to_repeat(run: RunContext, index: int, phase: Phase) -> Sequence[int]:
    """Return the numbers of the waits directly before a load of which an attempt was broken off.

    The attempt has filled the caches, and made garbage and work that goes on.
    """
    if phase.kind == "wait" or not _begun_before(run, phase):
        return ()
    return range(next((i for i in range(index - 1, 0, -1) if run.plan.phases[i - 1].kind != "wait"), 0) + 1, index)


def _prepare_again(run: RunContext, number: int, phase: Phase) -> List[Tuple[str, str]]:
    """Do a wait again: dropped caches, garbage, a pause. An error does not end the run: every resume would have it."""
    wait = run.plan.phases[number - 1]
    log.warning("%s: waiting as in %s again: an attempt was broken off since then", phase.name, wait.name)
    run.events.write("wait-again-begin", phase=phase.name, wait=wait.name)
    code = given_up_code(wait)
    try:
        given_up = wait_again(run, number, wait)
    except RemoteError as error:
        code, given_up = "not-prepared", str(error)
        log.warning("%s: %s", phase.name, given_up)
    run.events.write("wait-again-end", phase=phase.name, wait=wait.name, given_up=given_up)
    return [(code, f"before its repetition: {given_up}")] if given_up else []


def _wait_before(run: RunContext, index: int, phase: Phase, faults: Sequence[Fault]) -> None:
    """Wait for active+clean PGs unless these faults accept others.

    When that takes too long the safety rule itself refuses the fault, with its numbers.
    """
    labels = [fault.label for fault in faults if "clean" not in fault.accept]
    if not labels:
        return
    held = {osd for record in run.injector.open_changes for osd in record.step.osds}
    down = down_otherwise(ask(run.ceph, ("osd dump",)), held)
    if down:
        log.warning("these OSDs are down, but not by this run: %s", ", ".join(f"osd.{osd}" for osd in down))
    log.info("%s: waiting for active+clean PGs before %s", phase.name, ", ".join(labels))
    run.events.write("settle-begin", phase=phase.name, before=labels, down=down)
    begun = time.monotonic()
    given_up = wait_for_clean(run, index, phase, beside_faults=bool(held))
    seconds = round(time.monotonic() - begun, 3)
    run.events.write("settle-end", phase=phase.name, seconds=seconds, given_up=given_up)
    if given_up:
        log.warning("%s: not recovered: %s", phase.name, given_up)
