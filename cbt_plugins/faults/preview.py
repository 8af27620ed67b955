"""What the faults of a plan would do to the cluster as it is today, before there is a run."""

from __future__ import annotations

from typing import Any, Collection, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple, Union

from ..ceph import Ceph
from ..config.plan import Fault
from . import blast, registry, targets
from .access import nodes_of
from .cluster_facts import QUESTIONS, Facts, ask
from .injector import Prepared
from .scene import Limits, Scene
from .step import FaultError

Preview = Tuple[Fault, Union[Prepared, FaultError]]


def preview(
    ceph: Ceph,
    cluster: Mapping[str, Any],
    faults: Sequence[Tuple[Fault, Collection[str]]],
    limits: Optional[Limits] = None,
) -> Iterator[Preview]:
    """Yield each fault with what it would do, or why it cannot be made. Changes nothing. Raises FaultError: no cluster.

    `faults`: in the order of the plan, each with the labels of the earlier ones that are in force then: their OSDs
    count as gone. Choices by seed are those of a run that begins now.
    """
    limits = limits or Limits()
    facts, nodes = ask(ceph, QUESTIONS, limits.quick), nodes_of(cluster)
    osds: Dict[str, Tuple[int, ...]] = {}
    for fault, in_force in faults:
        held = sorted({osd for label in in_force for osd in osds.get(label, ())})
        try:
            kind, options = registry.options(fault.kind, fault.options)
            found = targets.resolve(fault, kind.unit, facts, nodes, held)
            osds[fault.label] = found.osds
            steps = tuple(kind.steps(Scene(ceph, facts, nodes, fault.label, limits), found, options))
            harm = kind.harm(found, options)
            said = _asked(ceph, harm, held, limits)
            radius = blast.radius(_without(facts, held), harm, ceph.head, held, *said)
            yield fault, Prepared(fault, kind, options, found, steps, radius)
        except FaultError as error:
            yield fault, error


def _asked(ceph: Ceph, harm: blast.Harm, held: Sequence[int], limits: Limits) -> Sequence[Optional[Mapping[str, Any]]]:
    """What Ceph says of stopping the fault's OSDs and those gone by then, and of destroying them; None: not asked, or
    no answer."""
    if not harm.stops:
        return None, None
    stop = "osd ok-to-stop " + " ".join(map(str, sorted({*harm.osds, *held})))
    destroy = "osd safe-to-destroy " + " ".join(map(str, harm.osds))
    said = ask(ceph, (), limits.quick, (stop, destroy) if harm.destroyed else (stop,)).answers
    return said.get(stop), said.get(destroy)


def _without(facts: Facts, held: List[int]) -> Facts:
    dump = facts.answers["osd dump"]
    entries = [{**entry, "up": 0} if entry["osd"] in held else entry for entry in dump["osds"]]
    return Facts({**facts.answers, "osd dump": {**dump, "osds": entries}})
