"""Judge of a run's faults: decides whether a fault may be injected now, beside the faults that are in force."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Dict, List, Sequence, Union

from cbt_plugins.faults.blast_radius import BlastRadius
from cbt_plugins.faults.cluster_facts import DaemonName
from cbt_plugins.faults.cluster_lock import QUESTION, Lock
from cbt_plugins.faults.prepared_fault import Prepared, Preparer
from cbt_plugins.faults.safety_case import OpenFault
from cbt_plugins.faults.scene import ClusterLimits
from cbt_plugins.faults.step import FaultError, UndoRecord
from cbt_plugins.faults.undo_journal import UndoJournal
from cbt_plugins.plan import SAFETY_RULES, Fault
from cbt_plugins.polling import Clock, wait_until


class Judge:
    """Prepares and judges the faults of one run; changes nothing. Waits of the `clock` end when the run stops."""

    def __init__(
        self, journal: UndoJournal, preparer: Preparer, lock: Lock, limits: ClusterLimits, clock: Clock
    ) -> None:
        self._journal, self._preparer, self._lock = journal, preparer, lock
        self._limits, self._clock = limits, clock
        self._taken: Dict[str, BlastRadius] = {}  # label -> blast radius of the faults that this process has injected

    def prepare(self, fault: Fault, beside: Sequence[Prepared] = ()) -> Prepared:
        """Prepare a fault: targets, steps, judgement; change nothing. Raises FaultError if it cannot be injected.

        The daemons of the faults `beside` count as down.
        """
        # targets that this run has chosen before are chosen again
        before = [r for r in self._journal.records if r["event"] == "chosen" and r["label"] == fault.label]
        held = [*self._held(), *(OpenFault(prepared.taken) for prepared in beside)]
        return self._preparer.prepare(
            fault, self._journal.name(fault.label), held, tuple(before[-1]["targets"]) if before else ()
        )

    def _held(self) -> List[OpenFault]:
        """Return the blast radii of open faults, and whether the cluster has seen them."""
        seen = {r["id"] for r in self._journal.records if r["event"] == "confirmed"}
        by_label: Dict[str, List[UndoRecord]] = {}
        for record in self._journal.still_open():
            by_label.setdefault(record.label, []).append(record)
        held = []
        for label, records in by_label.items():
            radius = self._taken.get(label, BlastRadius())
            named = tuple(DaemonName.parse(name) for record in records for name in record.step.daemons)
            taken = replace(radius, daemons=named or radius.daemons)
            shown = all(record.id in seen and not record.step.silent for record in records)
            held += [OpenFault(taken, shown)] if taken.daemons else []
        return held

    def ready(self, fault: Union[Fault, Prepared]) -> Prepared:
        """Return the fault, judged by the present cluster. Raises FaultError when it is refused.

        Because of PGs in a transient state it is refused only after some seconds.
        """
        if isinstance(fault, Prepared):
            prepared = self._judged_again(fault)
        else:
            self._lock.check()
            prepared = self.prepare(fault)
        fault = prepared.fault
        if any(record.label == fault.label for record in self._journal.still_open()):
            raise FaultError(f"{fault.label}: this fault is already in force")
        looks = itertools.chain([prepared], (self._judged_again(prepared) for _ in itertools.count()))
        prepared = wait_until(
            lambda: next(looks),
            self._limits.transient,
            self._limits.pause,
            met=lambda look: not look.assessment.may_pass(fault.accept),
            clock=self._clock,
        )
        if prepared.refused:
            refused = " | ".join(map(str, prepared.refused))
            rules = dict.fromkeys(finding.rule for finding in prepared.refused if finding.rule in SAFETY_RULES)
            hint = f" (accept: [{', '.join(rules)}] on the fault overrides)" if rules else ""
            raise FaultError(f"{fault.label}: refused. {refused}{hint}")
        return prepared

    def remember(self, prepared: Prepared) -> None:
        """Remember the blast radius of a fault that is about to be injected."""
        self._taken[prepared.fault.label] = prepared.taken

    def _judged_again(self, prepared: Prepared) -> Prepared:
        """Judge a fault by the present cluster. Raises FaultError when the run has lost the lock of the cluster."""
        taken, min_in = prepared.taken, prepared.fault.min_in
        assessment, facts = self._preparer.assess(taken, self._held(), min_in, extra_questions=(QUESTION,))
        self._lock.check(facts.answers[QUESTION])
        return replace(prepared, assessment=assessment)
