"""Injector of faults and settings: what it changes is undone, whatever happens to its process."""

from __future__ import annotations

import contextlib
import logging
import secrets
import shlex
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Tuple, Union

from cbt_plugins.faults import lock, node_shell
from cbt_plugins.faults.access import ClusterAccess, ensure, limits_of, refuse_another, remembered
from cbt_plugins.faults.case import Held
from cbt_plugins.faults.facts import DaemonName
from cbt_plugins.faults.kind import BlastRadius
from cbt_plugins.faults.pools import Part
from cbt_plugins.faults.prepared import Prepared, Preparer
from cbt_plugins.faults.runner import Clock, Refused, Runner
from cbt_plugins.faults.scene import ClusterLimits
from cbt_plugins.faults.settings import SettingsMaker
from cbt_plugins.faults.step import Check, Command, FaultError, Step, UndoRecord
from cbt_plugins.faults.undo import (
    COMMAND,
    GIVEN_UP,
    PREPARED,
    RECOVERY,
    SETTINGS,
    Event,
    StillOpen,
    Undoer,
    UndoJournal,
)
from cbt_plugins.inventory import find_host, nodes_of
from cbt_plugins.plan import Fault, NodeCommand, Settings
from cbt_plugins.signals import deferred

log = logging.getLogger(__name__)


class Injector:
    """Injector of the faults and settings of one run, by one process at a time (JournalInUse).

    Every change is in `undo.jsonl`, on disk, before it is made, and is open until the cluster is seen to be as before.
    """

    def __init__(
        self,
        folder: Path,
        access: ClusterAccess,
        event: Optional[Event] = None,
        settings: Optional[Settings] = None,
        limits: Optional[ClusterLimits] = None,
        clock: Optional[Clock] = None,
    ) -> None:
        """Take the folder of a run.

        Raises JournalError, and FaultError when what is open in it was written by others, or is of another cluster.
        """
        self._folder = folder
        self._journal = UndoJournal(folder, anybodys=access.trusted)
        try:  # only now: nobody else can have the folder
            is_new = not self._journal.records
            access = ensure(folder, access, limits or limits_of(settings or Settings()), is_new)
            self._journal.identify(access.run_id, access.sealed)
            self._settings = remembered(self._journal, settings)
            self._limits = limits or limits_of(self._settings, ClusterLimits())
            if self._journal.still_open() and not access.trusted:
                refuse_another(folder, access, self._limits.quick)
        except BaseException:
            self._journal.close()
            raise
        self._ceph, self._clock, self._cluster = access.ceph, clock or Clock(), access.cluster
        self._event: Event = event or (lambda name, **facts: None)
        self._run_id = run_id = access.run_id
        self._runner = Runner(access.ceph, run_id, self._limits, access.former)
        self._undoer = Undoer(self._journal, self._runner, self._event, self._limits, self._clock)
        self._maker = SettingsMaker(access.ceph, self._limits)
        self._preparer = Preparer(access.ceph, access.cluster, self._limits, self._settings.flags)
        self._taken: Dict[str, BlastRadius] = {}  # by label: of the faults that this process has injected
        self._lock = (lock.Lock if access.admin else lock.NoLock)(access.ceph, run_id, folder, self._limits.quick)
        #: left open by an earlier process: nothing is injected before they are undone
        self._inherited = {record.id for record in self._journal.still_open() if record.kind != PREPARED}
        #: one step, or one undo, at a time: faults come from a thread beside the load
        self._turn = threading.RLock()
        self._shut = False

    # ---- one run per cluster ----

    @contextlib.contextmanager
    def holding(self, has_data: Callable[[], bool] = bool) -> Iterator[None]:
        """Hold the cluster for a run; at its end, however it comes, undo everything and release the cluster.

        What was `set_up` stays when it `has_data` then, and the cluster is held for the run until it is resumed.
        Raises FaultError: another run has it; or at the end: not everything is undone.
        """
        try:
            self.acquire()
            yield
        finally:
            with deferred():
                self.shut()
                left = self.undo_all(prepared=not has_data())
                if not left:
                    self._give_back()
                if self.open and not left:
                    kept = ", ".join(record.label for record in self.open)
                    log.warning("for the resumed run there stay: %s; `%s` removes them with all data", kept, self._undo)
            if left:
                raise FaultError("not undone: " + "; ".join(map(str, left)) + f" ({self._by_hand})")

    def _give_back(self) -> None:
        for _ in range(2):
            with contextlib.suppress(FaultError):
                return self.release()
            self._clock.sleep(self._limits.pause)
        self.release()

    @property
    def _by_hand(self) -> str:
        return f"`{self._undo}` tries again and prints the commands for doing it by hand"

    @property
    def _undo(self) -> str:
        return f"cbt-tools undo {self._folder}"

    def acquire(self) -> None:
        """Take the cluster for this run. Raises FaultError when another run has it."""
        late = self._locking()
        self._lock.fence(late)
        for ended in late:
            self._journal.say("locked", name=ended)
        name = f"{self._run_id}-lock-{secrets.token_hex(4)}"  # unique also in a copy of the folder
        self._journal.say("lock", name=name)
        self._lock.take(name)
        self._journal.say("locked", name=name)

    def release(self, force: bool = False) -> None:
        """Release the cluster, unless something is open. Raises FaultError.

        `force`: also what dead processes of this run on other machines hold.
        """
        if not self._journal.still_open():
            self._lock.release(self._locking(), force)

    def others(self) -> List[lock.Holder]:
        """Return who else has the cluster, or may have; other processes of this run included. Raises FaultError."""
        return self._lock.others()

    def is_ours(self, holder: lock.Holder) -> bool:
        """Tell whether a holder is a process of this run."""
        return self._lock.is_ours(holder)

    def give_up(self, label: str) -> List[UndoRecord]:
        """Close what is open under a label although its undo was not seen; return what that was, the last one first."""
        given = [record for record in reversed(self.open) if record.label == label]
        for record in given:
            self._journal.note(GIVEN_UP, record, what=record.step.what)
        return given

    def _locking(self) -> List[str]:
        """Return the attempts to take the cluster whose end was not seen: they may still have their effect."""
        seen = {"", *(r.get("name") for r in self._journal.records if r["event"] == "locked")}
        return [r["name"] for r in self._journal.records if r["event"] == "lock" and r.get("name", "") not in seen]

    def close(self) -> None:
        """Let another process have the folder of the run. What is open stays open."""
        self._journal.close()

    # ---- looking ----

    @property
    def records(self) -> Sequence[Mapping[str, Any]]:
        """Return the lines of the journal that this user, or whoever is trusted, wrote."""
        return self._journal.records

    @property
    def open(self) -> List[UndoRecord]:
        """Return the steps that are not known to be undone, oldest first."""
        return self._journal.still_open()

    def prepare(self, fault: Fault, beside: Sequence[Prepared] = ()) -> Prepared:
        """Find out all about a fault; nothing is changed. Raises FaultError for one that cannot be injected at all.

        What the faults `beside` it would take counts as gone.
        """
        # a choice that was made before, in this run, is made again
        before = [r for r in self._journal.records if r["event"] == "chosen" and r["label"] == fault.label]
        held = [*self._held(), *(Held(prepared.taken) for prepared in beside)]
        return self._preparer.prepare(
            fault, self._name(fault.label), held, tuple(before[-1]["targets"]) if before else ()
        )

    def _held(self) -> List[Held]:
        """Return the OSDs and nodes that open faults have taken, and whether the cluster has seen all of it."""
        seen = {r["id"] for r in self._journal.records if r["event"] == "confirmed"}
        by_label: Dict[str, List[UndoRecord]] = {}
        for record in self._journal.still_open():
            by_label.setdefault(record.label, []).append(record)
        held = []
        for label, records in by_label.items():
            radius = self._taken.get(label, BlastRadius())
            named = tuple(DaemonName.parse(name) for record in records for name in record.step.daemons)
            taken = replace(radius, daemons=named or radius.daemons)
            held += [Held(taken, all(record.id in seen for record in records))] if taken.daemons else []
        return held

    def _name(self, label: str) -> str:
        """Return a name that is unique on the nodes, also when the same fault is injected again."""
        number = sum(1 for r in self._journal.records if r["event"] == "open" and r["label"] == label)
        return f"{self._run_id}-{''.join(c if c.isalnum() else '-' for c in label)}-{number}"

    # ---- changing ----

    def apply(self, settings: Optional[Settings] = None) -> None:
        """Set flags, configuration, balancer and autoscaler. On FaultError, what was set is undone."""
        self._may_begin()
        steps = self._maker.steps(settings or self._settings)
        self._perform(SETTINGS, SETTINGS, steps, wait=True)

    def run(self, command: NodeCommand) -> None:
        """Run a command of the user's; it is open until its undo, if it has one. Raises FaultError, and undoes it."""
        self._may_begin()
        if any(record.label == command.label for record in self.open):
            raise FaultError(f"{command.label}: in force already")
        nodes = nodes_of(self._cluster)
        node = find_host(command.node, nodes) if command.node else self._ceph.head
        if node is None:
            raise FaultError(f"{command.label}: {command.node} is not a node of `cluster:`")
        self._perform(command.label, COMMAND, [_step_of(command, node, self._name(command.label))], wait=False)
        if not command.undo:
            self.undo([command.label])

    def set_up(self, parts: Iterable[Part]) -> None:
        """Make what the run needs, one after the other, but for what an earlier process has made.

        Raises FaultError, and what could not be made is undone.
        """
        self._may_begin()
        injected_ids = {record["id"] for record in self._journal.records if record["event"] == "injected"}
        prepared_records = [record for record in self.open if record.kind == PREPARED]
        gone = self.no_longer_set_up()
        half = [record.label for record in prepared_records if record.id not in injected_ids or record.label in gone]
        left = self.undo(half)
        if left:
            raise FaultError("not undone: " + "; ".join(map(str, left)))
        for label, make in parts:
            if not any(record.label == label for record in self.open):
                self._perform(label, PREPARED, [make()], wait=True)

    def no_longer_set_up(self) -> List[str]:
        """Return the labels of what was `set_up` and has been undone, or whose undo has begun."""
        present: Dict[str, bool] = {}
        for line in self._journal.records:
            if line["event"] == "open" and line["kind"] == PREPARED:
                present[line["label"]] = True
            elif line["event"] in ("undo", "undone") and line["label"] in present:
                present[line["label"]] = False
        return [label for label, is_present in present.items() if not is_present]

    def speed_up_recovery(self) -> None:
        """Set `Settings.recovery`, unless it is in force; the first `inject` does so by itself."""
        if self._settings.recovery and not any(record.label == RECOVERY for record in self.open):
            self._may_begin()
            self._perform(RECOVERY, RECOVERY, self._maker.recovery(self._settings.recovery), wait=True)

    def inject(self, fault: Union[Fault, Prepared], wait: bool = True) -> Prepared:
        """Inject a fault: `ready` and `inject_ready` at once.

        `wait` until the cluster has seen it; without, `confirm` tells. Raises FaultError: refused, and nothing was
        changed; or without effect, and what was done is undone as far as possible (`open` has the rest).
        """
        return self.inject_ready(self.ready(fault), wait)

    def ready(self, fault: Union[Fault, Prepared]) -> Prepared:
        """Do all that takes time before a fault: set fast recovery, and judge the fault by the cluster as it is now.

        Raises FaultError when it is refused; for PGs in a transient state only after some seconds.
        """
        self._nothing_inherited()
        self.speed_up_recovery()
        if isinstance(fault, Prepared):
            prepared = self._judged_again(fault)
        else:
            self._lock.check()
            prepared = self.prepare(fault)
        fault = prepared.fault
        if any(record.label == fault.label for record in self.open):
            raise FaultError(f"{fault.label}: in force already")
        until = self._clock.now() + self._limits.transient
        while prepared.assessment.may_pass(fault.accept) and self._clock.now() < until:
            self._still_wanted()
            self._clock.sleep(self._limits.pause)
            prepared = self._judged_again(prepared)
        if prepared.refused:
            raise FaultError(
                f"{fault.label}: refused. "
                + " | ".join(map(str, prepared.refused))
                + f" (accept: [{', '.join(dict.fromkeys(f.rule for f in prepared.refused))}] on the fault overrides)"
            )
        return prepared

    def _judged_again(self, prepared: Prepared) -> Prepared:
        """Judge by the cluster as it is now; raises FaultError when the cluster is not ours any more."""
        assessment, facts = self._preparer.assess(prepared.taken, self._held(), extra_questions=(lock.QUESTION,))
        self._lock.check(facts.answers[lock.QUESTION])
        return replace(prepared, assessment=assessment)

    def inject_ready(self, prepared: Prepared, wait: bool = True) -> Prepared:
        """Inject what is `ready`, now. Raises FaultError as `inject` does."""
        fault = prepared.fault
        self._nothing_inherited()
        if not fault.targets:
            self._journal.say("chosen", label=fault.label, seed=fault.seed, targets=list(prepared.targets.named))
        if prepared.assessment.findings:
            findings = [finding.plain() for finding in prepared.assessment.findings]
            self._journal.say("accepted", label=fault.label, findings=findings)
        facts: Dict[str, Any] = {"targets": list(prepared.targets.named), "osds": list(prepared.targets.osds)}
        facts["returns"] = not prepared.kind.lasts
        facts["accepted"] = [str(f) for f in prepared.assessment.findings]
        facts["warnings"] = list(prepared.warnings)
        self._taken[fault.label] = prepared.taken
        self._perform(fault.label, fault.kind, prepared.steps, wait, facts)
        return prepared

    def confirm(self, labels: Optional[Sequence[str]] = None) -> Dict[str, Optional[str]]:
        """Look once whether faults have taken effect; return label -> None, or what is missing."""
        seen = {r["id"] for r in self._journal.records if r["event"] == "confirmed"}
        missing_by_label: Dict[str, Optional[str]] = {}
        for record in self.open:
            if labels is not None and record.label not in labels:
                continue
            why = None if record.id in seen else self._runner.look(record.step.took)
            if why is None and record.id not in seen:
                self._journal.note("confirmed", record)
            missing_by_label[record.label] = missing_by_label.get(record.label) or why
        return missing_by_label

    def undo(self, labels: Sequence[str]) -> List[StillOpen]:
        """Undo the faults with these labels, the last one first; return what is still open."""
        with self._turn:
            return self._undoer.undo([record for record in self.open if record.label in labels])

    @property
    def stopping(self) -> bool:
        """Whether nothing new may begin."""
        return self._shut

    def shut(self) -> None:
        """Refuse every new fault from now on with a FaultError, in all threads."""
        self._shut = True

    def undo_all(self, prepared: bool = False) -> List[StillOpen]:
        """Undo all that is open, last in first out; return what is still open, each with its reason.

        `prepared`: also what was `set_up`, with all data in it: at the end of the run, and when the user asks for it.
        A failure does not stop the others, nor does a disk that is full or read-only: what cannot be written is done
        all the same, and stays open. Only the third signal stops it. A step that is beginning in another thread is
        waited for, and undone with the rest.
        """
        with deferred(), self._turn:
            left = self._undoer.undo([record for record in self.open if prepared or record.kind != PREPARED])
        self._inherited &= {record.id for record in self.open}
        return left

    def _may_begin(self) -> None:
        self._nothing_inherited()
        self._lock.check()

    def _nothing_inherited(self) -> None:
        left = [record for record in self.open if record.id in self._inherited]
        if left:
            many = "; ".join(f"{record.label}: {record.step.what}" for record in left)
            raise FaultError(f"an earlier process left this open: {many}; run `cbt-tools undo` first")

    def _perform(
        self,
        label: str,
        kind: str,
        steps: Sequence[Step],
        wait: bool,
        facts: Optional[Mapping[str, Any]] = None,
    ) -> None:
        if not steps:
            return
        say = {"label": label, "kind": kind, **(facts or {})}
        self._event("fault-inject-begin", **say)
        try:
            done = [self._begin(label, kind, step) for step in steps]
            self._event("fault-injected", **say)
            if wait:
                for record in done:
                    self._await(record)
            if label in (SETTINGS, RECOVERY):
                self._await_daemons(label, steps)
        except FaultError as error:
            self._event("fault-failed", **say, why=str(error))
            left = self.undo([label])
            also = f"; still open: {'; '.join(map(str, left))}" if left else "; what was done of it is undone"
            raise FaultError(f"{label}: {error}{also}") from error

    def _begin(self, label: str, kind: str, step: Step) -> UndoRecord:
        with self._turn:
            self._still_wanted()
            return self._take_step(label, kind, step)

    def _still_wanted(self) -> None:
        if self._shut:
            raise FaultError("the run is stopping; no new faults are injected")

    def _take_step(self, label: str, kind: str, step: Step) -> UndoRecord:
        record = self._journal.open(label, kind, step)
        self._journal.note("begun", record)
        try:
            if step.arm:
                switch = self._runner.inject(record, step.arm).strip()
                if not switch.startswith("armed "):
                    raise FaultError(f"{step.node}: the dead man's switch is not armed: {switch or 'no reply'}")
                self._journal.note("armed", record, switch=switch, fires=round(time.time() + (step.deadline or 0), 3))
            for command in step.inject:
                self._runner.inject(record, command)
        except FaultError as error:
            self._journal.note("failed", record, why=str(error), refused=isinstance(error, Refused))
            raise
        self._journal.note("injected", record)
        return record

    def _await_daemons(self, label: str, steps: Sequence[Step]) -> None:
        """Wait until the daemons say that they run with what was set. Raises FaultError for those that do not.

        For fast recovery, in the middle of a run, that is a warning.
        """
        until = self._clock.now() + self._limits.quick
        while True:
            wrong = self._maker.not_in_force(steps)
            if not wrong:
                return
            if self._clock.now() >= until:
                break
            self._still_wanted()
            self._clock.sleep(self._limits.pause)
        text = f"not in force: {'; '.join(wrong)}"
        if label == SETTINGS:
            raise FaultError(f"{text}; a ceph.conf on the node or another section of the configuration may win")
        log.warning("%s: %s", label, text)
        self._event("setting-not-in-force", label=label, daemons=wrong)

    def _await(self, record: UndoRecord) -> None:
        until = self._clock.now() + max([check.timeout for check in record.step.took], default=0.0)
        while True:
            why = self._runner.look(record.step.took)
            if why is None:
                self._journal.note("confirmed", record)
                return
            if self._clock.now() >= until:
                raise FaultError(f"{record.step.what}: no effect: {why}")
            self._still_wanted()
            self._clock.sleep(self._limits.pause)


def _step_of(command: NodeCommand, node: str, name: str) -> Step:
    """Return the step of a command; its undo has run when it has left a file behind. `name` is unique on the node."""
    undo: Tuple[Command, ...] = ()
    checks: Tuple[Check, ...] = ()
    if command.undo:
        left = f'"$d/{name}.undo-ran"'
        text = f"{node_shell.FOLDER}; sh -c {shlex.quote(command.undo)} && : > {left}"
        undo = (Command(node, text, command.timeout, command.root),)
        probe = f"{node_shell.FOLDER}; [ -e {left} ] && echo ran"
        checks = (Check(node, probe, (((), "ran"),), command.timeout, command.root),)
    return Step(
        what=f"{command.label} on {node}: {command.command.strip().splitlines()[0][:80]}",
        node=node,
        inject=(Command(node, f"sh -c {shlex.quote(command.command)}", command.timeout, command.root),),
        undo=undo,
        checks=checks,
    )
