"""Injector of faults and settings: what it changes is undone, whatever happens to its process."""

from __future__ import annotations

import contextlib
import logging
import shlex
from operator import not_
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Tuple, Union

from cbt_plugins.faults import node_shell
from cbt_plugins.faults.cluster_access import ClusterAccess, ensure, limits_of, refuse_another, remembered
from cbt_plugins.faults.cluster_lock import Hold, Lock, NoLock
from cbt_plugins.faults.cluster_settings import SettingsMaker
from cbt_plugins.faults.command_runner import Runner
from cbt_plugins.faults.earlier_process import EarlierProcess
from cbt_plugins.faults.pool_settings import Part
from cbt_plugins.faults.prepared_fault import Prepared, Preparer
from cbt_plugins.faults.safety_judge import Judge
from cbt_plugins.faults.scene import ClusterLimits
from cbt_plugins.faults.step import Check, Command, FaultError, Step, UndoRecord
from cbt_plugins.faults.step_performer import Performer
from cbt_plugins.faults.undo import Event, StillOpen, Undoer
from cbt_plugins.faults.undo_journal import COMMAND, GIVEN_UP, PREPARED, RECOVERY, SETTINGS, UndoJournal
from cbt_plugins.inventory import find_host, nodes_of
from cbt_plugins.plan import Fault, NodeCommand, Settings
from cbt_plugins.signals import deferred
from cbt_plugins.wait import Clock, wait_until

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
        self._runner = Runner(access.ceph, access.run_id, self._limits, access.former)
        self._undoer = Undoer(self._journal, self._runner, self._event, self._limits, self._clock)
        self._performer = Performer(self._journal, self._runner, self._undoer, self._event, self._clock)
        self._maker = SettingsMaker(access.ceph, self._limits)
        #: who has the cluster
        self.lock = (Lock if access.admin else NoLock)(access.ceph, access.run_id, folder, self._limits.quick)
        preparer = Preparer(access.ceph, access.cluster, self._limits, self._settings.flags)
        self._judge = Judge(self._journal, preparer, self.lock, self._limits, self._performer.clock)
        self._hold = Hold(self._journal, self.lock, access.run_id)
        self._earlier = EarlierProcess(self._journal)

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
                    log.warning("these stay for the resumed run: %s; `%s` removes them with all data", kept, self._undo)
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
        self._hold.take()

    def release(self, force: bool = False) -> None:
        """Release the cluster, unless something is open. Raises FaultError.

        `force`: also what dead processes of this run on other machines hold.
        """
        if not self.open:
            self._hold.release(force)

    def give_up(self, label: str) -> List[UndoRecord]:
        """Close what is open under a label although its undo was not seen; return what that was, the last one first."""
        given = [record for record in reversed(self.open) if record.label == label]
        for record in given:
            self._journal.note(GIVEN_UP, record, what=record.step.what)
        return given

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
        return self._judge.prepare(fault, beside)

    # ---- changing ----

    def apply(self, settings: Optional[Settings] = None) -> None:
        """Set flags, configuration, balancer and autoscaler. On FaultError, what was set is undone."""
        self._may_begin()
        steps = self._maker.steps(settings or self._settings)
        self._set(SETTINGS, steps)

    def run(self, command: NodeCommand) -> None:
        """Run a command of the user's; it is open until its undo, if it has one. Raises FaultError, and undoes it."""
        self._may_begin()
        if any(record.label == command.label for record in self.open):
            raise FaultError(f"{command.label}: in force already")
        nodes = nodes_of(self._cluster)
        node = find_host(command.node, nodes) if command.node else self._ceph.head
        if node is None:
            raise FaultError(f"{command.label}: {command.node} is not a node of `cluster:`")
        step = _step_of(command, node, self._journal.name(command.label))
        self._performer.perform(command.label, COMMAND, [step], wait=False)
        if not command.undo:
            self.undo([command.label])

    def set_up(self, parts: Iterable[Part]) -> None:
        """Make what the run needs, one after the other, but for what an earlier process has made.

        Raises FaultError, and what could not be made is undone.
        """
        self._may_begin()
        left = self.undo(self._earlier.half_made())
        if left:
            raise FaultError("not undone: " + "; ".join(map(str, left)))
        for label, make in parts:
            if not any(record.label == label for record in self.open):
                self._performer.perform(label, PREPARED, [make()])

    def no_longer_set_up(self) -> List[str]:
        """Return the labels of what was `set_up` and has been undone, or whose undo has begun."""
        return self._earlier.no_longer_made()

    def speed_up_recovery(self) -> None:
        """Set `Settings.recovery`, unless it is in force; the first `inject` does so by itself."""
        if self._settings.recovery and not any(record.label == RECOVERY for record in self.open):
            self._may_begin()
            self._set(RECOVERY, self._maker.recovery(self._settings.recovery))

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
        self._earlier.refuse_before_undo()
        self.speed_up_recovery()
        return self._judge.ready(fault)

    def inject_ready(self, prepared: Prepared, wait: bool = True) -> Prepared:
        """Inject what is `ready`, now. Raises FaultError as `inject` does."""
        fault = prepared.fault
        self._earlier.refuse_before_undo()
        if not fault.targets:
            self._journal.say("chosen", label=fault.label, seed=fault.seed, targets=list(prepared.targets.named))
        if prepared.assessment.findings:
            findings = [finding.plain() for finding in prepared.assessment.findings]
            self._journal.say("accepted", label=fault.label, findings=findings)
        osds = () if prepared.kind.serves_on else prepared.taken.osds
        facts: Dict[str, Any] = {"targets": list(prepared.targets.named), "osds": list(osds)}
        facts["returns"] = not prepared.kind.lasts
        facts["accepted"] = [str(f) for f in prepared.assessment.findings]
        facts["warnings"] = list(prepared.warnings)
        facts["steps"] = [step.what for step in prepared.steps]
        self._judge.remember(prepared)
        self._performer.perform(fault.label, fault.kind, prepared.steps, wait, facts)
        return prepared

    def confirm(self, labels: Optional[Sequence[str]] = None) -> Dict[str, Optional[str]]:
        """Look once whether faults have taken effect; return label -> None, or what is missing."""
        return self._performer.confirm(labels)

    def undo(self, labels: Sequence[str]) -> List[StillOpen]:
        """Undo the faults with these labels, the last one first; return what is still open."""
        return self._performer.undo(labels)

    @property
    def stopping(self) -> bool:
        """Whether nothing new may begin."""
        return self._performer.stopping

    def shut(self) -> None:
        """Refuse every new fault from now on with a FaultError, in all threads."""
        self._performer.shut()

    def undo_all(self, prepared: bool = False) -> List[StillOpen]:
        """Undo all that is open, last in first out; return what is still open, each with its reason.

        `prepared`: also what was `set_up`, with all data in it: at the end of the run, and when the user asks for it.
        A failure does not stop the others, nor does a disk that is full or read-only: what cannot be written is done
        all the same, and stays open. Only the third signal stops it. A step that is beginning in another thread is
        waited for, and undone with the rest.
        """
        return self._performer.undo_all(prepared)

    def _may_begin(self) -> None:
        self._earlier.refuse_before_undo()
        self.lock.check()

    def _set(self, label: str, steps: Sequence[Step]) -> None:
        self._performer.perform(label, label, steps, in_force=lambda: self._await_daemons(label, steps))

    def _await_daemons(self, label: str, steps: Sequence[Step]) -> None:
        """Wait until the daemons say that they run with what was set. Raises FaultError for those that do not.

        For fast recovery, in the middle of a run, that is a warning.
        """
        limits, clock = self._limits, self._performer.clock
        wrong = wait_until(lambda: self._maker.not_in_force(steps), limits.quick, limits.pause, met=not_, clock=clock)
        if not wrong:
            return
        text = f"not in force: {'; '.join(wrong)}"
        if label == SETTINGS:
            raise FaultError(f"{text}; a ceph.conf on the node or another section of the configuration may win")
        log.warning("%s: %s", label, text)
        self._event("setting-not-in-force", label=label, daemons=wrong)


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
