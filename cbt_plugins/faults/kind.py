"""Fault kind: one class in one file, named by an entry point of the group `cbt_plugins.faults`; its blast radius."""

from __future__ import annotations

from dataclasses import dataclass
from typing import (
    Annotated,
    Any,
    Callable,
    Collection,
    Iterator,
    List,
    Literal,
    Mapping,
    Optional,
    Sequence,
    Tuple,
    Type,
)

from pydantic import BeforeValidator, Field, ValidationInfo, WithJsonSchema, field_validator

from cbt_plugins.config.fault import PLANNED, make_kind
from cbt_plugins.config.shell_values import check_no_password
from cbt_plugins.config.units import (
    DURATION_PATTERN,
    LINK_PATTERN,
    PERCENT_PATTERN,
    SIZE_PATTERN,
    parse_duration,
    parse_link,
    parse_percent,
    parse_size,
)
from cbt_plugins.config.validate import Strict
from cbt_plugins.faults.cluster_facts import DaemonName, Facts
from cbt_plugins.faults.scene import Scene, Targets
from cbt_plugins.faults.step import FaultError, Step


def _text_or_planned(parse: Callable[[Any], float]) -> BeforeValidator:
    """Return the validator of a value that is text in YAML and a number in a plan."""

    def read(value: Any, info: ValidationInfo) -> float:
        if (info.context or {}).get(PLANNED) and isinstance(value, (int, float)) and not isinstance(value, bool):
            return float(value)
        return parse(value)

    return BeforeValidator(read)


def _schema(pattern: str, example: str) -> WithJsonSchema:
    return WithJsonSchema({"type": "string", "pattern": pattern, "examples": [example]})


#: seconds; a duration such as 15m in YAML, a number in a plan
Seconds = Annotated[float, _text_or_planned(parse_duration), _schema(DURATION_PATTERN, "15m")]
#: share 0..1; 2% in YAML
Share = Annotated[float, _text_or_planned(parse_percent), _schema(PERCENT_PATTERN, "2%")]
#: bytes; 10MB in YAML
Bytes = Annotated[float, _text_or_planned(parse_size), _schema(SIZE_PATTERN, "10MB")]
#: bytes/s of one direction of a link; 100Mbit in YAML
LinkSpeed = Annotated[float, _text_or_planned(parse_link), _schema(LINK_PATTERN, "100Mbit")]
#: of a list whose only value may stand without brackets
LISTED = BeforeValidator(lambda value: [value] if isinstance(value, str) else value)
LISTED_SCHEMA = WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]})
#: one name or several
Names = Annotated[List[str], LISTED, LISTED_SCHEMA]


class KindOptions(Strict):
    """Options of a kind: fields with a type, a range, a default and a description. This class has none."""

    @field_validator("*", mode="before")
    @classmethod
    def _no_password(cls, value: Any) -> Any:
        if isinstance(value, str):
            check_no_password(value)
        return value


class ServiceOptions(KindOptions):
    """Options of a kind that starts or stops daemons."""

    service_manager: Optional[Literal["systemd", "cephadm", "rook", "process"]] = Field(
        None, description="What manages the daemons. Default: the node is asked."
    )


@dataclass(frozen=True)
class BlastRadius:
    """What a fault takes away."""

    daemons: Tuple[DaemonName, ...] = ()  # down or, of OSDs, out
    nodes: Tuple[str, ...] = ()  # as a whole, with everything that runs there
    out: bool = False  # the OSDs stay up and give their data away
    destroyed: bool = False  # the data of the OSDs is gone for good

    @property
    def osds(self) -> Tuple[int, ...]:
        """Return the OSDs among the daemons."""
        return tuple(int(name.id) for name in self.daemons if name.type == "osd")

    @property
    def stops(self) -> bool:
        """Tell whether OSDs are no longer there: what `ceph osd ok-to-stop` is about."""
        return bool(self.osds) and (self.destroyed or not self.out)


class Kind:
    """A way to break something, with the options of one fault.

    `Options` is checked with the YAML, so that an error has its line and column.
    """

    #: what targets may be: "node", "daemon", or "either" (then `osd_nodes` and the like choose nodes)
    takes = "either"
    #: whether what ran on its nodes is gone when they are back
    restarts = False
    #: whether it lasts until it is undone; else what it takes is to come back by itself
    lasts = True
    #: whether all daemons stay up and in, only worse: no OSD is expected to change in the maps
    serves_on = False
    #: whether the daemons stay up, even if OSDs are out: no PG loses a copy that serves
    stays_up = False
    #: the types of daemons that it takes
    daemon_types: Tuple[str, ...] = ("osd",)
    #: a class of its own where it has options
    Options: Type[KindOptions] = KindOptions

    def __init__(self, options: Any) -> None:
        self.options = options

    def errors(self, targets: Sequence[str]) -> Iterator[Tuple[str, str]]:
        """Yield ("targets" or "options", error) of a fault with these named targets; () when they are chosen."""
        return iter(())

    def eligible(self, facts: Facts) -> Optional[Collection[DaemonName]]:
        """Return the daemons that it may take now, of its types; None: all."""
        return None

    def warnings(self) -> Iterator[str]:
        """Yield the warnings to print before such a fault is injected."""
        return iter(())

    def blast_radius(self, scene: Scene, targets: Targets) -> BlastRadius:
        """Return the part of the cluster that the fault takes away, for the safety rules."""
        nodes = targets.nodes if self.takes == "node" else ()
        return BlastRadius(targets.daemons, nodes)

    def steps(self, scene: Scene, targets: Targets) -> List[Step]:
        """Return the steps in order, each with its undo. May look at nodes, must change nothing. Raises FaultError."""
        raise NotImplementedError


def make(name: str, options: Mapping[str, Any]) -> Kind:
    """Return the kind with options as a plan has them. Raises FaultError for what the check of the YAML refuses."""
    try:
        kind, _, errors = make_kind(name, options, planned=True)
    except ValueError as error:
        raise FaultError(str(error)) from error
    if errors or kind is None:
        places = (("options", *path) for path, _, _ in errors)
        texts = [f"{'.'.join(map(str, place))}: {text}" for place, (_, text, _) in zip(places, errors)]
        raise FaultError(f"{name}: {'; '.join(texts)}")
    fault_kind: Kind = kind
    return fault_kind
