"""Breaks things on purpose and puts them back, whatever happens to the process that did it."""

from __future__ import annotations

import contextlib
import logging
import secrets
import threading
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Collection, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple, Union

from cbt_plugins.cluster.ceph import Ceph
from cbt_plugins.cluster.remote import Remote
from cbt_plugins.faults import access, lock, registry, targets
from cbt_plugins.faults import safety as blast
from cbt_plugins.faults.cluster_facts import QUESTIONS, Facts, ask
from cbt_plugins.faults.harm import Harm, Held, questions
from cbt_plugins.faults.patience import limits_of, remembered
from cbt_plugins.faults.record import GIVEN_UP, Record, UndoJournal
from cbt_plugins.faults.roles import roles_of
from cbt_plugins.faults.runner import Clock, Refused, Runner
from cbt_plugins.faults.scene import Kind, Limits, Scene, Targets
from cbt_plugins.faults.settings import SettingsMaker
from cbt_plugins.faults.step import FaultError, Step
from cbt_plugins.faults.undoing import RECOVERY, SETTINGS, Event, StillOpen, Undoing
from cbt_plugins.inventory import nodes_of
from cbt_plugins.plan import Fault, Settings
from cbt_plugins.signals import deferred

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Prepared:
    """A fault that has been looked at: what would be done, to what, and what that would break."""

    fault: Fault
    kind: Kind
    options: Mapping[str, Any]
    targets: Targets
    steps: Tuple[Step, ...]
    radius: blast.Radius

    @property
    def refused(self) -> Tuple[blast.Finding, ...]:
        """Rules that it would break and nobody has accepted."""
        return self.radius.refused(self.fault.accept)

    def lines(self) -> List[str]:
        """For people: the very commands of a run."""
        lines = [f"{self.fault.label}: {self.fault.kind} {', '.join(self.targets.named)}"]
        for finding in self.radius.findings:
            verb = "accepted" if finding.rule in self.fault.accept else "refused"
            lines.append(f"  {verb} by rule {finding}")
        lines += [f"  warning: {text}" for text in self.radius.warnings]
        for step in self.steps:
            lines.append(f"  {step.what}")
            lines += [f"    armed   {step.arm}"] if step.arm else []
            lines += [f"    do      {command}" for command in step.inject]
            lines += [f"    took    {check}" for check in step.took]
            lines += [f"    undo    {command}" for command in step.undo]
            lines += [f"    undone  {check}" for check in step.checks]
        return lines


class Injector:
    """Faults and settings of one run. Only one process at a time can have a run's folder (JournalInUse).

    Every change is in `undo.jsonl`, on disk, before it is made, and counts as open until the cluster is seen to be as
    before.
    """

    def __init__(
        self,
        folder: Path,
        remote: Remote,
        ceph: Ceph,
        cluster: Mapping[str, Any],
        event: Optional[Event] = None,
        run_id: str = "run",
        settings: Optional[Settings] = None,
        common: Optional[Mapping[str, Any]] = None,
        limits: Optional[Limits] = None,
        clock: Optional[Clock] = None,
    ) -> None:
        self._folder = folder
        self._journal = UndoJournal(folder)
        try:  # only now: nobody else can have the folder
            run_id = access.settle(folder, cluster, common or {}, run_id)
        except BaseException:
            self._journal.close()
            raise
        self._ceph, self._clock = ceph, clock or Clock()
        self._settings = remembered(self._journal, settings)
        self._limits = limits or limits_of(self._settings, Limits())
        self._nodes = nodes_of(cluster)
        self._event: Event = event or (lambda name, **facts: None)
        self._run_id = run_id
        self._runner = Runner(remote, run_id, self._limits)
        self._undoing = Undoing(self._journal, self._runner, self._event, self._limits, self._clock)
        self._maker = SettingsMaker(ceph, self._limits)
        self._roles = roles_of(cluster)
        self._harms: Dict[str, Harm] = {}  # label -> what this process has broken
        self._lock = lock.Lock(ceph, run_id, folder, self._limits.quick)
        #: left by an earlier process: nothing is broken before they are undone
        self._inherited = {record.id for record in self._journal.still_open()}
        #: one step, or one undo, at a time: faults come from a thread beside the load
        self._turn = threading.RLock()
        self._shut = False

    # ---- one run per cluster ----

    @contextlib.contextmanager
    def holding(self) -> Iterator[None]:
        """Have the cluster for a run. On every way out nothing begins any more, all is undone, and the cluster is free.

        Raises FaultError: another run has it; or at the end: not everything is put back.
        """
        try:
            self.acquire()
            yield
        finally:
            with deferred():
                self.shut()
                left = self.undo_all()
                if not left:
                    self._give_back()
            if left:
                raise FaultError("not put back: " + "; ".join(map(str, left)) + f" ({self._by_hand})")

    def _give_back(self) -> None:
        for _ in range(2):
            with contextlib.suppress(FaultError):
                return self.release()
            self._clock.sleep(self._limits.pause)
        self.release()

    @property
    def _by_hand(self) -> str:
        return f"`cbt-tools undo {self._folder}` tries again, and says how to do it by hand"

    def acquire(self) -> None:
        """Take the cluster for this run. Raises FaultError when another run has it."""
        late = self._locking()
        self._lock.fence(late)
        for ended in late:
            self._journal.say("locked", name=ended)
        name = f"{self._run_id}-lock-{secrets.token_hex(4)}"  # a copy of the folder must not come to the same
        self._journal.say("lock", name=name)
        self._lock.take(name)
        self._journal.say("locked", name=name)

    def release(self, force: bool = False) -> None:
        """Give the cluster back; not while anything is open. Raises FaultError.

        `force`: also what this run holds from other machines, where it is known to be dead.
        """
        if not self._journal.still_open():
            self._lock.release(self._locking(), force)

    def others(self) -> List[lock.Holder]:
        """Who else has the cluster, or may have; other processes of this run included. Raises FaultError."""
        return self._lock.others()

    def is_ours(self, holder: lock.Holder) -> bool:
        """Whether a holder is a process of this run."""
        return self._lock.is_ours(holder)

    def give_up(self, label: str) -> List[Record]:
        """Call what is open under a label closed although nobody has seen it undone; what that was, last first."""
        given = [record for record in reversed(self.open) if record.label == label]
        for record in given:
            self._journal.note(GIVEN_UP, record, what=record.step.what)
        return given

    def _locking(self) -> List[str]:
        """Attempts to take the cluster whose end nobody has seen: they may still come to pass."""
        seen = {r["name"] for r in self._journal.records if r["event"] == "locked"}
        return [r["name"] for r in self._journal.records if r["event"] == "lock" and r["name"] not in seen]

    def close(self) -> None:
        """Let another process have the run's folder. What is open stays open."""
        self._journal.close()

    # ---- looking ----

    @property
    def open(self) -> List[Record]:
        """What is not known to be undone, oldest first."""
        return self._journal.still_open()

    def prepare(self, fault: Fault) -> Prepared:
        """Find out all about a fault; nothing is changed. Raises FaultError for one that cannot be made at all."""
        kind, options = registry.options(fault.kind, fault.options)
        held = self._held()
        facts = ask(self._ceph, QUESTIONS, self._limits.quick)
        found = self._targets(fault, kind, facts, {osd for h in held for osd in h.harm.osds})
        scene = Scene(self._ceph, facts, self._nodes, self._name(fault.label), self._limits)
        harm = kind.harm(found, options)
        steps = tuple(kind.steps(scene, found, options))
        return Prepared(fault, kind, options, found, steps, self._judge(harm, held, facts))

    def _targets(self, fault: Fault, kind: Kind, facts: Facts, held: Collection[int]) -> Targets:
        """A choice that was made before, in this run, is made again."""
        before = [r for r in self._journal.records if r["event"] == "chosen" and r["label"] == fault.label]
        if before and not fault.targets:
            with contextlib.suppress(FaultError):
                chosen = Fault(fault.label, fault.kind, tuple(before[-1]["targets"]))
                return targets.resolve(chosen, kind.unit, facts, self._nodes, held)
        return targets.resolve(fault, kind.unit, facts, self._nodes, held)

    def _judge(self, harm: Harm, held: Sequence[Held], facts: Optional[Facts] = None) -> blast.Radius:
        """By facts that are known, or by fresh ones; then also whether the cluster is still ours."""
        asked = questions(harm, held)
        alone = list(asked.values())
        if facts is None:
            facts = answered = ask(self._ceph, (*QUESTIONS, lock.QUESTION), self._limits.quick, alone)
            self._lock.check(facts.answers[lock.QUESTION])
        else:
            answered = ask(self._ceph, (), self._limits.quick, alone) if asked else facts
        said = {name: answered.answers[question] for name, question in asked.items()}
        stop, destroy = said.get("ok_to_stop"), said.get("safe_to_destroy")
        return blast.radius(facts, harm, self._roles, held, stop, destroy, self._settings.flags)

    def _held(self) -> List[Held]:
        """What open faults have taken, and whether the cluster has seen all of it."""
        seen = {r["id"] for r in self._journal.records if r["event"] == "confirmed"}
        by_label: Dict[str, List[Record]] = {}
        for record in self._journal.still_open():
            by_label.setdefault(record.label, []).append(record)
        held = []
        for label, records in by_label.items():
            osds = tuple(osd for record in records for osd in record.step.osds)
            harm = replace(self._harms.get(label, Harm()), osds=osds)
            held += [Held(harm, all(record.id in seen for record in records))] if osds else []
        return held

    def _name(self, label: str) -> str:
        """Unique on the nodes, also when the same fault is made once more."""
        number = sum(1 for r in self._journal.records if r["event"] == "open" and r["label"] == label)
        return f"{self._run_id}-{''.join(c if c.isalnum() else '-' for c in label)}-{number}"

    # ---- changing ----

    def apply(self, settings: Optional[Settings] = None) -> None:
        """Set flags, configuration, balancer and autoscaler. Raises FaultError; what was set is undone then."""
        self._may_begin()
        steps = self._maker.steps(settings or self._settings)
        self._perform(SETTINGS, SETTINGS, steps, wait=True)

    def hasten(self) -> None:
        """Set `Settings.recovery`, unless it is in force; the first `inject` does so by itself."""
        if self._settings.recovery and not any(record.label == RECOVERY for record in self.open):
            self._may_begin()
            self._perform(RECOVERY, RECOVERY, self._maker.recovery(self._settings.recovery), wait=True)

    def inject(self, fault: Union[Fault, Prepared], wait: bool = True) -> Prepared:
        """Break it: `ready` and `strike` at once.

        `wait` until the cluster has seen it; without, `confirm` tells. Raises FaultError: refused, and nothing was
        changed; or it did not take, and what was done of it is undone as far as could be (`open` has the rest).
        """
        return self.strike(self.ready(fault), wait)

    def ready(self, fault: Union[Fault, Prepared]) -> Prepared:
        """All that takes time before a fault: recovery is hastened, and the blast radius computed from the cluster as
        it is now. Raises FaultError when it is refused; for PGs that are peering, say, a moment later only."""
        self._nothing_inherited()
        self.hasten()
        if isinstance(fault, Prepared):
            prepared = self._judged_anew(fault)
        else:
            self._lock.check()
            prepared = self.prepare(fault)
        fault = prepared.fault
        if any(record.label == fault.label for record in self.open):
            raise FaultError(f"{fault.label}: is in force already")
        until = self._clock.now() + self._limits.settling
        while prepared.radius.passing(fault.accept) and self._clock.now() < until:
            self._still_wanted()
            self._clock.sleep(self._limits.pause)
            prepared = self._judged_anew(prepared)
        if prepared.refused:
            raise FaultError(
                f"{fault.label}: refused. "
                + " | ".join(map(str, prepared.refused))
                + f" (accept: [{', '.join(dict.fromkeys(f.rule for f in prepared.refused))}] on the fault overrides)"
            )
        return prepared

    def _judged_anew(self, prepared: Prepared) -> Prepared:
        """By the cluster as it is now."""
        harm = prepared.kind.harm(prepared.targets, prepared.options)
        return replace(prepared, radius=self._judge(harm, self._held()))

    def strike(self, prepared: Prepared, wait: bool = True) -> Prepared:
        """Break what is `ready`, now. Raises FaultError as `inject` does."""
        fault = prepared.fault
        self._nothing_inherited()
        if not fault.targets:
            self._journal.say("chosen", label=fault.label, seed=fault.seed, targets=list(prepared.targets.named))
        if prepared.radius.findings:
            found = [finding.plain() for finding in prepared.radius.findings]
            self._journal.say("accepted", label=fault.label, findings=found)
        facts = {"targets": list(prepared.targets.named), "osds": list(prepared.targets.osds)}
        facts["accepted"] = [str(f) for f in prepared.radius.findings]
        facts["warnings"] = list(prepared.radius.warnings)
        self._harms[fault.label] = prepared.kind.harm(prepared.targets, prepared.options)
        self._perform(fault.label, fault.kind, prepared.steps, wait, facts)
        return prepared

    def confirm(self, labels: Optional[Sequence[str]] = None) -> Dict[str, Optional[str]]:
        """Look once whether faults have taken effect: label -> None, or what is not so yet."""
        seen = {r["id"] for r in self._journal.records if r["event"] == "confirmed"}
        found: Dict[str, Optional[str]] = {}
        for record in self.open:
            if labels is not None and record.label not in labels:
                continue
            why = None if record.id in seen else self._runner.look(record.step.took)
            if why is None and record.id not in seen:
                self._journal.note("confirmed", record)
            found[record.label] = found.get(record.label) or why
        return found

    def undo(self, labels: Sequence[str]) -> List[StillOpen]:
        """Undo these, the last one first; returns what is still open."""
        with self._turn:
            return self._undoing.undo([record for record in self.open if record.label in labels])

    def shut(self) -> None:
        """Begin nothing any more: whoever injects, also in another thread, gets a FaultError from now on."""
        self._shut = True

    def undo_all(self) -> List[StillOpen]:
        """Undo all that is open, last in first out; returns what is still open, each with its reason.

        None that fails stops the others, and a disk that is full or read-only does not either: what cannot be written
        down is done all the same, and stays open. A signal does not stop it, but for the third. A step that is just
        begun in another thread is waited for, and undone with the rest.
        """
        with deferred(), self._turn:
            left = self._undoing.undo(self.open)
        self._inherited &= {record.id for record in self.open}
        return left

    def _may_begin(self) -> None:
        self._nothing_inherited()
        self._lock.check()

    def _nothing_inherited(self) -> None:
        left = [record for record in self.open if record.id in self._inherited]
        if left:
            many = "; ".join(f"{record.label}: {record.step.what}" for record in left)
            raise FaultError(f"an earlier process left this open: {many}. `cbt-tools undo` first")

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
        except FaultError as error:
            self._event("fault-failed", **say, why=str(error))
            left = self.undo([label])
            also = f"; still open: {'; '.join(map(str, left))}" if left else "; what was done of it is undone"
            raise FaultError(f"{label}: {error}{also}") from error

    def _begin(self, label: str, kind: str, step: Step) -> Record:
        with self._turn:
            self._still_wanted()
            return self._take_step(label, kind, step)

    def _still_wanted(self) -> None:
        if self._shut:
            raise FaultError("the run ends, and the cluster is put back")

    def _take_step(self, label: str, kind: str, step: Step) -> Record:
        record = self._journal.open(label, kind, step)
        self._journal.note("begun", record)
        try:
            if step.arm:
                switch = self._runner.inject(record, step.arm).strip()
                if not switch.startswith("armed "):
                    raise FaultError(f"{step.node}: the dead man's switch is not armed: {switch or 'no answer'}")
                self._journal.note("armed", record, switch=switch, fires=round(time.time() + (step.deadline or 0), 3))
            for command in step.inject:
                self._runner.inject(record, command)
        except FaultError as error:
            self._journal.note("failed", record, why=str(error), refused=isinstance(error, Refused))
            raise
        self._journal.note("injected", record)
        return record

    def _await(self, record: Record) -> None:
        until = self._clock.now() + max([check.patience for check in record.step.took], default=0.0)
        while True:
            why = self._runner.look(record.step.took)
            if why is None:
                self._journal.note("confirmed", record)
                return
            if self._clock.now() >= until:
                raise FaultError(f"{record.step.what}: without effect: {why}")
            self._still_wanted()
            self._clock.sleep(self._limits.pause)
