"""Injector of faults and settings: every change is undone, whatever happens to the process that made it."""

from __future__ import annotations

import contextlib
import logging
import shlex
from operator import not_
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Tuple, Union

from cbt_plugins.cluster_conditions import COMMAND, PREPARED, RECOVERY, SETTINGS
from cbt_plugins.faults import node_shell
from cbt_plugins.faults.cluster_access import ClusterAccess, ensure, limits_of, refuse_another, remembered
from cbt_plugins.faults.cluster_lock import Hold, Lock, NoLock, explain, gone
from cbt_plugins.faults.cluster_settings import SettingsMaker
from cbt_plugins.faults.command_runner import Runner
from cbt_plugins.faults.pool_settings import Part
from cbt_plugins.faults.prepared_fault import Prepared, Preparer
from cbt_plugins.faults.resume_check import ResumeCheck
from cbt_plugins.faults.safety_judge import Judge
from cbt_plugins.faults.scene import ClusterLimits
from cbt_plugins.faults.step import Check, Command, FaultError, Step, UndoRecord
from cbt_plugins.faults.step_performer import Performer
from cbt_plugins.faults.undo import Event, StillOpen, Undoer
from cbt_plugins.faults.undo_journal import GIVEN_UP, UndoJournal, injected_in
from cbt_plugins.inventory import find_host, nodes_of
from cbt_plugins.plan import Fault, NodeCommand, Settings
from cbt_plugins.polling import Clock, insist, wait_until
from cbt_plugins.signals import deferred

log = logging.getLogger(__name__)


class Injector:
    """Injector of the faults and settings of one run, by one process at a time (JournalInUse).

    Every change is written to `undo.jsonl` before it is made, and stays open until its undo was seen on the cluster.
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

        Raises JournalError; and FaultError when another user wrote its open changes, or they belong to another cluster.
        """
        self._folder = folder
        self.journal = UndoJournal(folder, anybodys=access.trusted)
        try:  # from here on no other process can have the folder
            is_resumed = bool(self.journal.records)
            is_new = not any(line["event"] == "open" for line in self.journal.records)
            access = ensure(folder, access, limits or limits_of(settings or Settings()), is_new)
            self.journal.identify(access.run_id, access.sealed)
            self._settings = remembered(self.journal, settings)
            self._limits = limits or limits_of(self._settings, ClusterLimits())
            goes_on = is_resumed and not access.document  # with its phases, not only with its undo
            is_open = bool(self.journal.still_open())
            if (goes_on or is_open) and not access.trusted:
                refuse_another(folder, access, self._limits.quick, is_open)
        except BaseException:
            self.journal.close()
            raise
        self._ceph, self._clock, self._cluster = access.ceph, clock or Clock(), access.cluster
        self._event: Event = event or (lambda name, **facts: None)
        self._runner = Runner(access.ceph, access.run_id, self._limits, access.former)
        self._undoer = Undoer(self.journal, self._runner, self._event, self._limits, self._clock)
        self._performer = Performer(self.journal, self._runner, self._undoer, self._event, self._clock)
        self._maker = SettingsMaker(access.ceph, self._limits)
        #: the run's lock of the cluster
        self.lock = (Lock if access.admin else NoLock)(access.ceph, access.run_id, folder, self._limits.quick)
        preparer = Preparer(access.ceph, access.cluster, self._limits, self._settings.flags)
        self._judge = Judge(self.journal, preparer, self.lock, self._limits, self._performer.clock)
        self._hold = Hold(self.journal, self.lock, access.run_id)
        self._left_open = ResumeCheck(self.journal)

    # ---- one run per cluster ----

    @contextlib.contextmanager
    def holding(self, has_data: Callable[[], bool] = bool) -> Iterator[None]:
        """Hold the cluster for a run; at the end of the run, also after an error, undo all and release the cluster.

        Pools and users of `set_up` stay when the run `has_data`; the cluster then stays locked for its resume. When
        another run holds the cluster, nothing is undone: it may be this run, in the folder that this one is a copy of.
        Raises FaultError: another run holds the cluster; or, at the end, a change could not be undone.
        """
        held = False
        try:
            self.acquire()
            held = True
            yield
        finally:
            with deferred():
                self.shut()
                left = self.undo_all(prepared=not has_data()) if held else []
                if not left:
                    insist(self.release, FaultError, every=self._limits.pause, pause=self._clock.sleep)
                if held and self.open_changes and not left:
                    kept = ", ".join(record.label for record in self.open_changes)
                    text = "kept for the resumed run: %s; to remove all of these with all data: `%s`"
                    log.warning(text, kept, self._undo_command)
            if left:
                raise FaultError("not undone: " + "; ".join(map(str, left)) + f" ({self._undo_advice})")

    @property
    def _undo_advice(self) -> str:
        return f"`{self._undo_command}` tries again and prints the commands for an undo by hand"

    @property
    def _undo_command(self) -> str:
        return f"cbt-tools undo {self._folder}"

    def undo_earlier(self) -> None:
        """Undo what an earlier process of this run has left, except what it has set up.

        Raises FaultError: a process of this run is alive, and nothing was undone; or a change could not be undone, or
        may be open without being known (`unknown_changes`).
        """
        holder = self.lock.living() if self.open_changes else None
        if holder:
            elsewhere = f"; or on this machine: `cbt-tools undo --force {self._folder}`"
            advice = elsewhere if gone(holder) is None else ": nothing is undone until that process has ended"
            raise FaultError(explain(holder) + advice)
        left = self.undo_all()
        if left:
            raise FaultError("not undone: " + "; ".join(map(str, left)) + f" ({self._undo_advice})")
        if self.unknown_changes:
            raise FaultError(self.unknown_changes)

    def acquire(self) -> None:
        """Lock the cluster for this run. Raises FaultError when another run holds it."""
        self._hold.take()

    def release(self, force: bool = False) -> None:
        """Unlock the cluster, unless a change is or may be open. Raises FaultError.

        `force`: also remove locks of dead processes of this run on other machines.
        """
        if not self.open_changes and not self.unknown_changes:
            self._hold.release(force)

    def give_up(self, label: str) -> List[UndoRecord]:
        """Close the open changes of a label although their undo was not seen; return them, the newest first."""
        given = [record for record in reversed(self.open_changes) if record.label == label]
        for record in given:
            self.journal.note(GIVEN_UP, record, what=record.step.what)
        return given

    def close(self) -> None:
        """Give the folder of the run free for other processes. Open changes stay open."""
        self.journal.close()

    # ---- looking ----

    @property
    def records(self) -> Sequence[Mapping[str, Any]]:
        """Return the lines of the journal that this user wrote, or all lines if the archive is trusted."""
        return self.journal.records

    @property
    def injected(self) -> Dict[str, bool]:
        """Return the labels of `inject` and `run` that took effect, undone or not -> whether they have an undo."""
        return injected_in(self.journal.records)

    @property
    def open_changes(self) -> List[UndoRecord]:
        """Return the steps that are not known to be undone, oldest first."""
        return self.journal.still_open()

    @property
    def unknown_changes(self) -> str:
        """Return an error, with advice, if changes may be open that the journal does not show; "" if there are none."""
        return self.journal.unknown_changes()

    def prepare(self, fault: Fault, beside: Sequence[Prepared] = ()) -> Prepared:
        """Prepare a fault: targets, steps, judgement; change nothing. Raises FaultError if it cannot be injected.

        The daemons of the faults `beside` count as down.
        """
        return self._judge.prepare(fault, beside)

    # ---- changing ----

    def apply(self, settings: Optional[Settings] = None) -> None:
        """Set flags, configuration, balancer and autoscaler. A FaultError is raised after the undo of all of them."""
        self._may_begin()
        steps = self._maker.steps(settings or self._settings)
        self._set(SETTINGS, steps)

    def run(self, command: NodeCommand) -> None:
        """Run a command of the user; it is open until its undo. Raises FaultError after undoing a failed command."""
        self._may_begin()
        if any(record.label == command.label for record in self.open_changes):
            raise FaultError(f"{command.label}: this command is already in force")
        nodes = nodes_of(self._cluster)
        node = find_host(command.node, nodes) if command.node else self._ceph.head
        if node is None:
            raise FaultError(f"{command.label}: {command.node} is not a node of `cluster:`")
        step = _step_of(command, node, self.journal.name(command.label))
        self._performer.perform(command.label, COMMAND, [step], wait=False)
        if not command.undo:
            self.undo([command.label])

    def set_up(self, parts: Iterable[Part]) -> None:
        """Make the pools, users and the like of the run, except those that an earlier process has made.

        Raises FaultError after the undo of a part that could not be made.
        """
        self._may_begin()
        left = self.undo(self._left_open.half_made())
        if left:
            raise FaultError("not undone: " + "; ".join(map(str, left)))
        for label, make in parts:
            if not any(record.label == label for record in self.open_changes):
                self._performer.perform(label, PREPARED, [make()])

    def no_longer_set_up(self) -> List[str]:
        """Return the labels of parts of `set_up` whose undo has begun or ended."""
        return self._left_open.no_longer_made()

    def speed_up_recovery(self) -> None:
        """Set `Settings.recovery`, unless it is in force; the first `inject` calls this."""
        if self._settings.recovery and not any(record.label == RECOVERY for record in self.open_changes):
            self._may_begin()
            self._set(RECOVERY, self._maker.recovery(self._settings.recovery))

    def inject(self, fault: Union[Fault, Prepared], wait: bool = True) -> Prepared:
        """Inject a fault: `ready`, then `inject_ready`.

        `wait` until the cluster has seen the fault; otherwise call `confirm`. Raises FaultError when the fault is
        refused, and nothing was changed; or when it had no effect and was undone as far as possible (see
        `open_changes`).
        """
        return self.inject_ready(self.ready(fault), wait)

    def ready(self, fault: Union[Fault, Prepared]) -> Prepared:
        """Do the slow work before a fault: set fast recovery, and judge the fault by the present cluster.

        Raises FaultError when the fault is refused; because of PGs in a transient state only after some seconds.
        """
        self._left_open.refuse_before_undo()
        self.speed_up_recovery()
        return self._judge.ready(fault)

    def inject_ready(self, prepared: Prepared, wait: bool = True) -> Prepared:
        """Inject a fault that is `ready`. Raises FaultError as `inject` does."""
        fault = prepared.fault
        self._left_open.refuse_before_undo()
        if not fault.targets:
            self.journal.say("chosen", label=fault.label, seed=fault.seed, targets=list(prepared.targets.named))
        if prepared.assessment.findings:
            findings = [finding.plain() for finding in prepared.assessment.findings]
            self.journal.say("accepted", label=fault.label, findings=findings)
        osds = () if prepared.kind.serves_on else prepared.taken.osds
        facts: Dict[str, Any] = {"targets": list(prepared.targets.named), "osds": list(osds)}
        facts["returns"] = not (prepared.kind.lasts and any(step.undo for step in prepared.steps))
        facts["accepted"] = [str(f) for f in prepared.assessment.findings]
        facts["warnings"] = list(prepared.warnings)
        facts["steps"] = [step.what for step in prepared.steps]
        self._judge.remember(prepared)
        self._performer.perform(fault.label, fault.kind, prepared.steps, wait, facts)
        return prepared

    def confirm(self, labels: Optional[Sequence[str]] = None) -> Dict[str, Optional[str]]:
        """Check once whether faults have taken effect; return label -> None, or the effect that is missing."""
        return self._performer.confirm(labels)

    def undo(self, labels: Sequence[str]) -> List[StillOpen]:
        """Undo the faults with these labels, the last one first; return the changes that are still open."""
        return self._performer.undo(labels)

    @property
    def stopping(self) -> bool:
        """Whether no new step may begin."""
        return self._performer.stopping

    def shut(self) -> None:
        """Refuse every new fault from now on with a FaultError, in all threads."""
        self._performer.shut()

    def undo_all(self, prepared: bool = False) -> List[StillOpen]:
        """Undo all open changes, the last one first; return the changes that are still open, with reasons.

        `prepared`: also the pools and users of `set_up`, with all data in them. A failed undo does not stop the
        other undos. If the journal cannot be written (disk full or read-only), changes are undone but stay open in
        the journal. Only the third signal stops this. A step that another thread is making is awaited and undone too.
        """
        return self._performer.undo_all(prepared)

    def _may_begin(self) -> None:
        self._left_open.refuse_before_undo()
        self.lock.check()

    def _set(self, label: str, steps: Sequence[Step]) -> None:
        self._performer.perform(label, label, steps, in_force=lambda: self._await_daemons(label, steps))

    def _await_daemons(self, label: str, steps: Sequence[Step]) -> None:
        """Wait until the daemons report the values that were set. Raises FaultError if some do not.

        For fast recovery, which is set in the middle of a run, this is only a warning.
        """
        limits, clock = self._limits, self._performer.clock
        wrong = wait_until(lambda: self._maker.not_in_force(steps), limits.quick, limits.pause, met=not_, clock=clock)
        if not wrong:
            return
        text = f"not in force: {'; '.join(wrong)}"
        if label == SETTINGS:
            places = "a ceph.conf on the node or another section of the configuration"
            raise FaultError(f"{text}; {places} may override these settings")
        log.warning("%s: %s", label, text)
        self._event("setting-not-in-force", label=label, daemons=wrong)


def _step_of(command: NodeCommand, node: str, name: str) -> Step:
    """Return the step of a command. Its undo leaves a file that shows that it ran. `name` is unique on the node."""
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
