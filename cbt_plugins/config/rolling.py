"""`rolling:` -- a fault on one target after the other; over all OSD nodes of the cluster, it may wait for clean PGs."""

from __future__ import annotations

import contextlib
from typing import Annotated, Any, Dict, Iterator, Literal, Mapping, Optional, Union

from pydantic import Discriminator, Field, Tag, field_validator

from cbt_plugins.config.fault import TARGETS, FaultSection, kind_class
from cbt_plugins.config.key_errors import FieldError, FieldErrors, Strict, exactly_one
from cbt_plugins.config.units import Duration, format_duration
from cbt_plugins.inventory import nodes_of

#: key of the context: the OSD nodes of a cluster that a fault file does not name
OVER = "over"
#: seconds of a wait
_SHORTEST = 60.0


class RollingSection(Strict):
    """A fault on one node after the other, each when the cluster is clean again."""

    over: Literal["osd_nodes"] = Field(description="All nodes of `cluster: osds`, in the order of the file.")
    wait: Literal["clean"] = Field(
        "clean", description="The next node has its turn when the rule `clean` holds after the undo."
    )
    at_most: Duration = Field(
        3600.0, description="Limit of each such wait; then the phase has failed; at least 1m, never scaled."
    )

    @field_validator("at_most")
    @classmethod
    def _long_enough(cls, seconds: float) -> float:
        if seconds < _SHORTEST:
            raise ValueError(f"is less than {format_duration(_SHORTEST)}: PG statistics lag behind an undo")
        return seconds


def _kind(value: Any) -> str:
    return "<mapping>" if isinstance(value, (dict, RollingSection)) else "<switch>"


#: true: over the named targets
Rolling = Annotated[
    Union[Annotated[bool, Tag("<switch>")], Annotated[RollingSection, Tag("<mapping>")]], Discriminator(_kind)
]

_NAMES_NONE = {"properties": {"fault": {"not": {"anyOf": exactly_one(TARGETS)["oneOf"]}}}}
_NAMES_ONE = {"properties": {"fault": exactly_one(TARGETS)}}
_IS_MAPPING = {"properties": {"rolling": {"type": "object"}}, "required": ["rolling"]}
#: for the JSON Schema of an event: a fault names what it hits, unless `rolling: over` does
SCHEMA: Dict[str, Any] = {"if": _IS_MAPPING, "then": _NAMES_NONE, "else": _NAMES_ONE}


def with_nodes(event: Any, context: Optional[Mapping[str, Any]]) -> Any:
    """Return an event of a file whose fault has the nodes of `rolling: over`. Raises FieldErrors."""
    rolling, fault = (event.get(key) for key in ("rolling", "fault")) if isinstance(event, dict) else (None, None)
    if not (isinstance(rolling, dict) and isinstance(fault, dict)):
        return event
    errors = [
        FieldError(("fault", key), "rolling: over says what the fault hits: remove one of the two", of_key=True)
        for key in TARGETS
        if key in fault
    ]
    with contextlib.suppress(ValueError):  # the check of the fault says what is wrong with its kind
        if kind_class(str(fault.get("kind"))).takes == "daemon":
            text = f"{fault['kind']} hits no nodes: not for rolling: {{over: osd_nodes}}"
            errors.append(FieldError(("fault", "kind"), text))
    context = context or {}
    nodes = list(nodes_of({"osds": context.get(OVER) or context.get("osds") or ()}, "osds"))
    if not nodes:
        text = "no cluster with OSD nodes is known here; `cbt-tools inject --dry-run` knows it"
        errors.append(FieldError(("rolling", "over"), text))
    if errors:
        raise FieldErrors(errors)
    return {**event, "fault": {**fault, "nodes": nodes}}


def errors_over_nodes(fault: FaultSection, given: Mapping[str, Any]) -> Iterator[FieldError]:
    """Yield the keys that a series over nodes lacks, and those that it does not take; `given`: keys of the event."""
    for key in ("every", "times", "wait"):
        if key in given:
            text = "is not for rolling: {over: ...}, where each fault waits for the end of the one before"
            yield FieldError((key,), text, of_key=True)
    if given.get("lasts") is None:
        yield FieldError(("rolling",), "needs lasts: how long the fault is in force on each node", of_key=True)
    if len(fault.nodes or ()) < 2:
        yield FieldError(("rolling", "over"), "needs two OSD nodes")
    if "clean" in fault.accept:
        yield FieldError(("fault", "accept"), "clean is the rule that rolling waits for: remove it here")
