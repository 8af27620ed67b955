"""Fault kind: one class in one file, found by an entry point of the group `cbt_plugins.faults`."""

from __future__ import annotations

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
from cbt_plugins.config.key_errors import Strict
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
from cbt_plugins.faults.blast_radius import BlastRadius
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
#: bytes/s for each direction of a link; 100Mbit in YAML
LinkSpeed = Annotated[float, _text_or_planned(parse_link), _schema(LINK_PATTERN, "100Mbit")]
#: a list, whose only value may be written without brackets
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
        None, description="Service manager of the daemons. Default: the run asks the node."
    )


class Kind:
    """One kind of failure, with the options of one fault.

    `Options` is checked with the YAML, so that an error has its line and column.
    """

    #: what `targets` may name: "node", "daemon", or "either" (then `osd_nodes` and the like choose nodes)
    takes = "either"
    #: whether the programs on its nodes have ended when the nodes are back
    restarts = False
    #: whether it lasts until it is undone; if not, its targets must come back by themselves
    lasts = True
    #: whether all daemons stay up and in, only slower or with errors: no OSD is expected to go down in the maps
    serves_on = False
    #: whether the daemons stay up, even if OSDs are out: no PG loses a copy that serves clients
    stays_up = False
    #: the objects that it changes in a cluster of Rook, for its rights: "deployment", "pod", "node"; "": none;
    #: None: the kind cannot hit daemons in pods
    changes_in_kubernetes: Optional[str] = ""
    #: the types of daemons that it can hit
    daemon_types: Tuple[str, ...] = ("osd",)
    #: a subclass, if the kind has options
    Options: Type[KindOptions] = KindOptions

    def __init__(self, options: Any) -> None:
        self.options = options

    def errors(self, targets: Sequence[str]) -> Iterator[Tuple[str, str]]:
        """Yield ("targets" or "options", error) for the targets that the file names; () when the run chooses them."""
        return iter(())

    def eligible(self, facts: Facts) -> Optional[Collection[DaemonName]]:
        """Return the daemons that the fault may hit now; None: all of its types."""
        return None

    def warnings(self) -> Iterator[str]:
        """Yield the warnings to print before the fault is injected."""
        return iter(())

    def blast_radius(self, scene: Scene, targets: Targets) -> BlastRadius:
        """Return the part of the cluster that the fault takes away, for the safety rules."""
        if self.takes != "node":
            return BlastRadius(targets.daemons)
        daemons = (name for node in targets.nodes for name in scene.daemons_on(node, self.daemon_types))
        return BlastRadius(tuple(daemons), targets.nodes)

    def steps(self, scene: Scene, targets: Targets) -> List[Step]:
        """Return the steps in order, each with its undo. May ask nodes, must change nothing. Raises FaultError."""
        raise NotImplementedError


def make(name: str, options: Mapping[str, Any]) -> Kind:
    """Return the kind with the options of a plan. Raises FaultError for options that the YAML check refuses."""
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
