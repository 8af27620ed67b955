"""The keys of CBT's `cluster:` section that we depend on; CBT's others pass unread."""

from __future__ import annotations

from typing import Annotated, Any, Dict, Iterator, List, Mapping, Optional, Tuple, Union

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema, field_validator

from cbt_plugins.config.errors import Path
from cbt_plugins.config.validate import AbsolutePath, FieldError, FieldErrors
from cbt_plugins.inventory import ROLES, check_name, host_of, split_names


def _nodes(value: Any) -> Any:
    # CBT reads a list, or a mapping whose keys are the nodes.
    return list(value) if isinstance(value, dict) else value


Node = Annotated[str, BeforeValidator(check_name), WithJsonSchema({"type": "string", "pattern": r"^\S+$"})]
_List = Annotated[List[Node], Field(min_length=1)]
_LIST_OR_MAPPING = {
    "anyOf": [
        {"type": "array", "items": {"type": "string"}, "minItems": 1},
        {"type": "object", "minProperties": 1},
    ]
}
NodesOrMapping = Annotated[_List, BeforeValidator(_nodes), WithJsonSchema(_LIST_OR_MAPPING)]


def node_errors(cluster: Mapping[str, Any]) -> Iterator[FieldError]:
    """Yield each node whose name cannot be used: all that is checked of the section beside CBT's own benchmarks."""
    for role in ROLES:
        value = cluster.get(role)
        if value is not None and not isinstance(value, (str, list, dict)):
            yield FieldError((role,), "must be a host name, a list of them, or a mapping from them")
            continue
        for place, entry in [((role,), value)] if isinstance(value, str) else _entries(role, value):
            try:
                for name in split_names(entry) if isinstance(entry, str) else [entry]:
                    check_name(name)
            except ValueError as error:
                yield FieldError(place, str(error), of_key=isinstance(value, dict))


def _entries(role: str, value: Union[List[Any], Dict[Any, Any], None]) -> Iterator[Tuple[Path, Any]]:
    for index, entry in enumerate(value or ()):
        yield (role, entry if isinstance(value, dict) else index), entry


class ClusterSection(BaseModel):
    """An existing cluster: we never build one and never take one down."""

    model_config = ConfigDict(extra="allow", strict=True, frozen=True, hide_input_in_errors=True)

    user: str = Field(min_length=1, description="Who logs in on the nodes.")
    head: Node = Field(description="Node with `ceph` and `radosgw-admin`; the run is led from here.")
    clients: _List = Field(description="Nodes that make the load.")
    osds: NodesOrMapping = Field(description="Nodes with OSDs.")
    mons: NodesOrMapping = Field(description="Nodes with monitors.")
    rgws: Optional[NodesOrMapping] = Field(None, description="Nodes with RADOS gateways.")
    iterations: int = Field(ge=1, le=10_000, description="How often every run is repeated.")
    use_existing: bool = Field(True, description="Must be true.", json_schema_extra={"const": True})
    rebuild_every_test: bool = Field(False, description="Must be false.", json_schema_extra={"const": False})
    conf_file: Optional[Annotated[str, Field(min_length=1)]] = Field(
        None, description="ceph.conf of the cluster (/etc/ceph/ceph.conf)."
    )
    tmp_dir: Optional[AbsolutePath] = Field(None, description="Scratch directory on the nodes.")

    @field_validator("head", mode="before")
    @classmethod
    def _one_head(cls, value: Any) -> Any:
        if isinstance(value, (list, dict)):
            raise ValueError("must be one host name, not a list")
        return value

    @field_validator("clients")
    @classmethod
    def _each_once(cls, nodes: List[str]) -> List[str]:
        hosts = list(map(host_of, nodes))
        known = [(i, node) for i, node in enumerate(nodes) if hosts[i] in hosts[:i]]
        twice = [FieldError((i,), f"{node} is in the list twice") for i, node in known]
        if twice:
            raise FieldErrors(twice)
        return nodes

    @field_validator("iterations", mode="before")
    @classmethod
    def _runs_at_all(cls, value: Any) -> Any:
        if value == 0 and not isinstance(value, bool):
            raise ValueError("0 iterations run nothing at all, and CBT reports success")
        return value

    @field_validator("use_existing")
    @classmethod
    def _existing(cls, value: bool) -> bool:
        if not value:
            raise ValueError(
                "use_existing: false makes CBT take the cluster down and build a new one; "
                "these benchmarks run on an existing cluster only: write use_existing: true"
            )
        return value

    @field_validator("rebuild_every_test")
    @classmethod
    def _not_rebuilt(cls, value: bool) -> bool:
        if value:
            raise ValueError("these benchmarks need an existing cluster: write rebuild_every_test: false")
        return value
