"""The keys of CBT's `cluster:` section that we depend on; CBT's others pass unread."""

from __future__ import annotations

import re
from typing import Annotated, Any, List, Optional

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema, field_validator

from cbt_plugins.config.validate import AbsolutePath, Problem, Problems

_NODE = re.compile(r"([A-Za-z_][A-Za-z0-9_.-]*@)?[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?(:[0-9]{1,5})?")


def _node(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("must be a host name (quote it when it is a number)")
    if value.count(":") > 1:
        raise ValueError("CBT takes no IPv6 address here; use a host name")
    if not _NODE.fullmatch(value):
        raise ValueError(f"{value!r} is no host name")
    return value


def _nodes(value: Any) -> Any:
    # CBT reads a list, or a mapping whose keys are the nodes.
    return list(value) if isinstance(value, dict) else value


Node = Annotated[str, BeforeValidator(_node), WithJsonSchema({"type": "string", "pattern": r"^\S+$"})]
_List = Annotated[List[Node], Field(min_length=1)]
_LIST_OR_MAPPING = {
    "anyOf": [
        {"type": "array", "items": {"type": "string"}, "minItems": 1},
        {"type": "object", "minProperties": 1},
    ]
}
NodesOrMapping = Annotated[_List, BeforeValidator(_nodes), WithJsonSchema(_LIST_OR_MAPPING)]


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
        known = [(i, node) for i, node in enumerate(nodes) if node in nodes[:i]]
        twice = [Problem((i,), f"{node} is in the list twice") for i, node in known]
        if twice:
            raise Problems(twice)
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
