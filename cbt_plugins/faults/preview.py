"""What the faults of a plan would do to the cluster as it is today, before there is a run."""

from __future__ import annotations

from typing import Any, Collection, Dict, Iterator, Mapping, Optional, Sequence, Tuple, Union

from cbt_plugins.cluster.ceph import Ceph
from cbt_plugins.faults import registry, targets
from cbt_plugins.faults import safety as blast
from cbt_plugins.faults.cluster_facts import QUESTIONS, ask
from cbt_plugins.faults.harm import Harm, Held, questions
from cbt_plugins.faults.injector import Prepared
from cbt_plugins.faults.roles import roles_of
from cbt_plugins.faults.scene import Limits, Scene
from cbt_plugins.faults.step import FaultError
from cbt_plugins.inventory import nodes_of
from cbt_plugins.plan import Fault

Preview = Tuple[Fault, Union[Prepared, FaultError]]


def preview(
    ceph: Ceph,
    cluster: Mapping[str, Any],
    faults: Sequence[Tuple[Fault, Collection[str]]],
    limits: Optional[Limits] = None,
    settings: Collection[str] = (),
) -> Iterator[Preview]:
    """Yield each fault with what it would do, or why it cannot be made. Changes nothing. Raises FaultError: no cluster.

    `faults`: in the order of the plan, each with the labels of the earlier ones that are in force then: what these
    take counts as gone. Choices by seed are those of a run that begins now. `settings`: the plan's own flags.
    """
    limits = limits or Limits()
    facts, nodes, roles = ask(ceph, QUESTIONS, limits.quick), nodes_of(cluster), roles_of(cluster)
    harms: Dict[str, Harm] = {}
    for fault, in_force in faults:
        held = [Held(harms[label]) for label in in_force if label in harms]
        try:
            kind, options = registry.options(fault.kind, fault.options)
            found = targets.resolve(fault, kind.unit, facts, nodes, {o for h in held for o in h.harm.osds})
            harm = harms[fault.label] = kind.harm(found, options)
            steps = tuple(kind.steps(Scene(ceph, facts, nodes, fault.label, limits), found, options))
            asked = questions(harm, held)
            answers = ask(ceph, (), limits.quick, list(asked.values())).answers if asked else {}
            said = {name: answers[question] for name, question in asked.items()}
            stop, destroy = said.get("ok_to_stop"), said.get("safe_to_destroy")
            radius = blast.radius(facts, harm, roles, held, stop, destroy, settings)
            yield fault, Prepared(fault, kind, options, found, steps, radius)
        except FaultError as error:
            yield fault, error
