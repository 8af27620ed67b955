"""Which nodes a lab has, their addresses and roles, and the lab.json that remembers them."""

from __future__ import annotations

import dataclasses
import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple

from cbt_plugins.journal import write_json

from .requirements import LabUsage

#: The whole lab is one subnet that exists inside its own network namespace only; the third octet is the role.
PREFIX = "10.77"
MASK = 16
S3_PORT, S3_TLS_PORT = 7480, 7443
HEAD = "node0"
FORMAT = 1


@dataclass(frozen=True)
class LabNode:
    """One machine of the lab. `osds` are OSD numbers; `mon`, `mgr`, `rgw`: such a daemon runs there; `systemd`: it is
    the first process.
    """

    name: str
    address: str
    osds: Tuple[int, ...] = ()
    mon: bool = False
    mgr: bool = False
    rgw: bool = False
    systemd: bool = False

    @property
    def mac(self) -> str:
        """A fixed one: a node that crashed and booted again is found in its neighbours' ARP tables."""
        third, fourth = self.address.split(".")[2:]
        return f"02:77:00:00:{int(third):02x}:{int(fourth):02x}"


@dataclass(frozen=True)
class Topology:
    """Shape of a lab: counts, sizes (bytes) and times (seconds) as asked for by `up`."""

    osd_nodes: int = 4
    osds_per_node: int = 2
    rgws: int = 2
    clients: int = 2
    mons: int = 1
    mgrs: int = 1
    ec: Optional[Tuple[int, int]] = None
    data_pgs: int = 32
    block: int = 10 << 30
    osd_memory: int = 896 << 20
    out_interval: int = 20
    mux: bool = True
    root: str = "/"
    bind: Tuple[str, ...] = ()
    systemd: Tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name, least in (
            ("osd_nodes", 1),
            ("osds_per_node", 1),
            ("rgws", 0),
            ("clients", 0),
            ("mons", 1),
            ("mgrs", 1),
            ("data_pgs", 1),
        ):
            if not least <= getattr(self, name) <= 200:
                option = name.replace("_", "-")
                raise LabUsage(f"--{option} {getattr(self, name)}: must be between {least} and 200")
        for name in ("mons", "mgrs"):
            if getattr(self, name) > self.osd_nodes + 1:
                nodes = f"the lab has only {self.osd_nodes + 1} nodes for ceph-{name}"
                raise LabUsage(f"--{name} {getattr(self, name)}: {nodes}")
        for name in self.systemd:
            node = self.node(name)
            if not node.osds or node.mon or node.mgr:
                raise LabUsage(f"--systemd {name}: must be a node that runs OSDs only")
        if self.ec and sum(self.ec) > self.places:
            raise LabUsage(
                f"--ec {self.ec[0]}+{self.ec[1]} needs {sum(self.ec)} {self.failure_domain}s, "
                f"this lab has {self.places}"
            )

    @property
    def failure_domain(self) -> str:
        """CRUSH bucket that no two copies share."""
        return "host" if self.osd_nodes > 1 else "osd"

    @property
    def places(self) -> int:
        """Number of failure domains."""
        return self.osd_nodes if self.osd_nodes > 1 else self.osds_per_node

    @property
    def copies(self) -> int:
        """Size of the replicated pools."""
        return min(3, self.places)

    @property
    def nodes(self) -> Dict[str, LabNode]:
        """Every node by name, the head first."""
        nodes, per = [], self.osds_per_node
        for i in range(self.osd_nodes + 1):
            name, osds = f"node{i}", tuple(range((i - 1) * per, i * per)) if i else ()
            runs = {"mon": i < self.mons, "mgr": i < self.mgrs, "systemd": name in self.systemd}
            nodes.append(LabNode(name, f"{PREFIX}.0.{10 + i}", osds, **runs))
        nodes += [LabNode(f"rgw{i}", f"{PREFIX}.1.{i}", rgw=True) for i in range(1, self.rgws + 1)]
        nodes += [LabNode(f"client{i}", f"{PREFIX}.2.{i}") for i in range(1, self.clients + 1)]
        return {node.name: node for node in nodes}

    @property
    def osds(self) -> List[int]:
        return [osd for node in self.nodes.values() for osd in node.osds]

    @property
    def urls(self) -> List[str]:
        """S3 endpoints as the nodes reach them."""
        return [f"http://{node.name}:{S3_PORT}" for node in self.nodes.values() if node.rgw]

    def node(self, name: str) -> LabNode:
        """Return the node of that name; LabUsage with the names there are."""
        try:
            return self.nodes[name]
        except KeyError:
            raise LabUsage(f"no node {name}: choose one of {' '.join(self.nodes)}") from None


@dataclass
class LabRecord:
    """Identity of a cluster on disk: DIR/lab.json.

    `state` is "creating" until the first `up` went through: what such a folder holds is not a cluster yet.
    """

    topology: Topology
    fsid: str
    osd_uuids: Dict[str, str] = field(default_factory=dict)
    state: str = "creating"

    def save(self, directory: Path) -> None:
        document: Dict[str, Any] = {"format": FORMAT, **dataclasses.asdict(self)}
        document["nodes"] = {node.name: dataclasses.asdict(node) for node in self.topology.nodes.values()}
        document["urls"] = self.topology.urls
        write_json(directory / "lab.json", document)

    @classmethod
    def load(cls, directory: Path) -> Optional[LabRecord]:
        """Return the record of a folder; None when it holds none."""
        path = directory / "lab.json"
        try:
            document = json.loads(path.read_text())
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise LabUsage(f"{path}: cannot be parsed as a lab's record ({error})") from None
        if not isinstance(document, dict) or document.get("format") != FORMAT:
            raise LabUsage(f"{path}: written by another version of the lab; choose another --dir")
        try:
            shape = dict(document["topology"])
            shape.update({name: tuple(shape.get(name, ())) for name in ("bind", "systemd")})
            shape["ec"] = tuple(shape["ec"]) if shape["ec"] else None
            return cls(Topology(**shape), document["fsid"], document["osd_uuids"], document["state"])
        except (KeyError, TypeError, ValueError) as error:
            text = f"written by another version of the lab, or changed ({error!r}); choose another --dir"
            raise LabUsage(f"{path}: {text}") from None


def parse_ec(text: str) -> Tuple[int, int]:
    """Parse `2+1` as (2, 1); ValueError for anything else."""
    match = re.fullmatch(r"(\d+)\+(\d+)", text)
    if not match or int(match[1]) < 2 or int(match[2]) < 1:
        raise ValueError(f"{text}: expected data+coding chunks such as 2+1")
    return int(match[1]), int(match[2])
