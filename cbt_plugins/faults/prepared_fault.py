"""Prepared fault: its steps, its targets and the judgement of the safety rules; also without a run."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Collection, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple, Union

from cbt_plugins.cluster.ceph import Ceph
from cbt_plugins.faults.blast_radius import BlastRadius
from cbt_plugins.faults.cluster_facts import QUESTIONS, Facts, ask
from cbt_plugins.faults.kind import Kind, make
from cbt_plugins.faults.safety_case import OpenFault, Roles, Surroundings, cluster_roles
from cbt_plugins.faults.safety_rules_data import Assessment, Finding, assess, questions
from cbt_plugins.faults.scene import ClusterLimits, Scene, Targets
from cbt_plugins.faults.step import FaultError, Step
from cbt_plugins.faults.target_choice import TargetResolver
from cbt_plugins.inventory import nodes_of
from cbt_plugins.plan import Fault

#: line of a ceph.conf with the addresses of the monitors
_MON_HOST = re.compile(r"^\s*mon[ _]host\s*=(.*)$", re.MULTILINE)


@dataclass(frozen=True)
class Prepared:
    """A fault with its targets, steps and assessment."""

    fault: Fault
    kind: Kind
    targets: Targets
    steps: Tuple[Step, ...]
    taken: BlastRadius
    assessment: Assessment

    @property
    def refused(self) -> Tuple[Finding, ...]:
        """Return the findings of safety rules that `accept` does not list."""
        return self.assessment.refused(self.fault.accept)

    @property
    def warnings(self) -> Tuple[str, ...]:
        """Return the warnings to print before the injection; they do not refuse the fault."""
        return (*self.kind.warnings(), *self.assessment.warnings)

    def lines(self) -> List[str]:
        """Return a text for people, with the commands that a run would use."""
        lines = [f"{self.fault.label}: {self.fault.kind} {', '.join(self.targets.named)}"]
        for finding in self.assessment.findings:
            verdict = "accepted against" if finding.rule in self.fault.accept else "refused by"
            lines.append(f"  {verdict} safety rule {finding}")
        lines += [f"  warning: {text}" for text in self.warnings]
        for step in self.steps:
            lines.append(f"  {step.what}")
            lines += [f"    arm     {step.arm}"] if step.arm else []
            lines += [f"    inject  {command}" for command in step.inject]
            lines += [f"    effect  {check}" for check in step.took]
            lines += [f"    undo    {command}" for command in step.undo]
            lines += [f"    undone  {check}" for check in step.checks]
        return lines


class Preparer:
    """Prepares faults for one cluster; changes nothing. `flags`: flags that the run itself sets.

    `facts`: the cluster at one instant, for all of the faults. Without them, the cluster is asked for each fault.
    """

    def __init__(
        self,
        ceph: Ceph,
        cluster: Mapping[str, Any],
        limits: ClusterLimits,
        flags: Collection[str] = (),
        facts: Optional[Facts] = None,
    ) -> None:
        self._ceph, self._limits, self._flags, self._facts = ceph, limits, flags, facts
        self._nodes, self._roles = nodes_of(cluster), cluster_roles(cluster)

    def prepare(self, fault: Fault, name: str, held: Sequence[OpenFault], before: Sequence[str] = ()) -> Prepared:
        """Return a fault with its targets, steps and judgement. Raises FaultError if it cannot be injected.

        `name` is unique on the nodes. `before`: targets that were chosen for the fault earlier.
        """
        kind = make(fault.kind, fault.options)
        facts = self._ask()
        held_daemons = {name for h in held for name in h.taken.daemons}
        resolver = TargetResolver(facts, self._nodes, held_daemons, kind.eligible(facts))
        targets = None
        if before and not fault.targets:
            try:
                chosen = Fault(fault.label, fault.kind, tuple(before))
                targets = resolver.resolve(chosen, kind.takes, kind.daemon_types)
            except FaultError:
                pass  # the earlier targets are not healthy any more
        targets = targets or resolver.resolve(fault, kind.takes, kind.daemon_types)
        for key, text in kind.errors(targets.named):
            raise FaultError(f"{fault.label}: {key}: {text}")
        scene = Scene(self._ceph, facts, self._nodes, name, self._limits)
        steps, taken = tuple(kind.steps(scene, targets)), kind.blast_radius(scene, targets)
        assessment, _ = self.assess(taken, held, fault.min_in, facts)
        return Prepared(fault, kind, targets, steps, taken, assessment)

    def assess(
        self,
        taken: BlastRadius,
        held: Sequence[OpenFault],
        min_in: float = 0.0,
        facts: Optional[Facts] = None,
        extra_questions: Sequence[str] = (),
    ) -> Tuple[Assessment, Facts]:
        """Judge a fault by given facts, or by new facts, which include the replies to the `extra_questions`.

        `min_in`: share of all OSDs that must stay in.
        """
        question_by_name = questions(taken, held)
        alone = list(question_by_name.values())
        if facts is None:
            facts = replies = self._ask(extra_questions, alone)
        else:
            replies = ask(self._ceph, (), self._limits.quick, alone) if question_by_name else facts
        answers = {name: replies.answers[question] for name, question in question_by_name.items()}
        by_name = taken.nodes or taken.disturbed or any(name.type in ("rgw", "mon") for name in taken.daemons)
        roles = self._called if by_name else self._roles
        return assess(facts, taken, Surroundings(roles, held, self._flags, **answers, min_in=min_in)), facts

    @cached_property
    def _called(self) -> Roles:
        """Return the roles, with the host names that their nodes report and the `mon_host` of the head."""
        roles = self._roles
        nodes = list(dict.fromkeys(name for name in (roles.head, *roles.clients, *roles.gateways) if name))
        results = self._ceph.remote.run(nodes, "uname -n", timeout=self._limits.quick, check=False)
        called = {name: r.stdout.split()[-1] for name, r in results.items() if r.stdout.strip()}
        conf = self._ceph.run(f"cat -- {shlex.quote(self._ceph.conf_file)}", self._limits.quick).stdout
        return replace(roles, called=called, mon_host=" ".join(_MON_HOST.findall(conf)))

    def _ask(self, extra_questions: Sequence[str] = (), alone: Sequence[str] = ()) -> Facts:
        wanted = (*QUESTIONS, *extra_questions)
        if self._facts is None:
            return ask(self._ceph, wanted, self._limits.quick, alone)
        missing = [question for question in wanted if question not in self._facts.answers]
        if missing or alone:
            replies = ask(self._ceph, missing, self._limits.quick, alone)
            self._facts = Facts({**self._facts.answers, **replies.answers})
        return self._facts


Preview = Tuple[Fault, Union[Prepared, FaultError]]


def preview(
    ceph: Ceph,
    cluster: Mapping[str, Any],
    faults: Sequence[Tuple[Fault, Collection[str]]],
    limits: Optional[ClusterLimits] = None,
    flags: Collection[str] = (),
) -> Iterator[Preview]:
    """Yield each fault, prepared for the present cluster, or its error. Raises FaultError if the cluster is silent.

    The cluster is asked once for all faults. `faults`: in the order of the plan, each with the labels of the earlier
    faults that are in force at its time; the daemons of these count as down. Targets chosen by seed are the same as in
    a run that begins now. `flags`: flags of the plan.
    """
    limits = limits or ClusterLimits()
    preparer = Preparer(ceph, cluster, limits, flags, ask(ceph, QUESTIONS, limits.quick))
    taken: Dict[str, BlastRadius] = {}
    for fault, in_force in faults:
        try:
            prepared = preparer.prepare(fault, fault.label, [OpenFault(taken[x]) for x in in_force if x in taken])
            taken[fault.label] = prepared.taken
            yield fault, prepared
        except FaultError as error:
            yield fault, error
