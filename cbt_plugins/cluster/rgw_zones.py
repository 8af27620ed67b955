"""The zone of RGW that a cluster serves, as `radosgw-admin` shows it, and the zones beside it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, List, Mapping, Sequence, Tuple

from cbt_plugins.cluster.ceph import Ceph


@dataclass(frozen=True)
class Zone:
    """The zone on which `radosgw-admin` of the `cluster:` section works; all names that it lists."""

    name: str
    zonegroup: str
    is_master: bool  # of its zonegroup, which is the master of the realm
    master: str  # name of the zonegroup's master zone, "" where it is not known
    endpoints: Tuple[str, ...]  # by which clients and other zones are to reach it
    placement: str  # default placement target
    realms: Tuple[str, ...]
    zonegroups: Tuple[str, ...]
    zones: Tuple[str, ...]  # of the zonegroup, on this cluster or another, and those that this cluster stores

    @classmethod
    def ask(cls, ceph: Ceph) -> Zone:
        """Ask `radosgw-admin`. Only of a cluster with gateways: without them it would make pools. Raises CephError."""
        questions = ("zone get", "zonegroup get", "realm list", "zonegroup list", "zone list")
        return cls.parse(*map(ceph.admin_json, questions))

    @classmethod
    def parse(cls, *answers: Any) -> Zone:
        """Read the answers to the questions of `ask`."""
        zone, zonegroup, realms, zonegroups, zones = answers
        members: List[Mapping[str, Any]] = zonegroup["zones"]
        names = {str(member["id"]): str(member["name"]) for member in members}
        own = [endpoint for member in members if member["id"] == zone["id"] for endpoint in member["endpoints"]]
        return cls(
            name=str(zone["name"]),
            zonegroup=str(zonegroup["name"]),
            # text before Quincy
            is_master=str(zonegroup["is_master"]).lower() == "true" and zonegroup["master_zone"] == zone["id"],
            master=names.get(str(zonegroup["master_zone"]), ""),
            endpoints=_each_once((*own, *zonegroup["endpoints"])),
            placement=default_placement(zonegroup),
            realms=_each_once(realms["realms"]),
            zonegroups=_each_once(zonegroups["zonegroups"]),
            zones=_each_once(sorted((*names.values(), *zones["zones"]))),
        )


def default_placement(zonegroup: Mapping[str, Any]) -> str:
    """Return the placement of new buckets whose owner has no other, TARGET or TARGET/CLASS, by `zonegroup get`."""
    return str(zonegroup.get("default_placement") or "default-placement")


def _each_once(names: Sequence[Any]) -> Tuple[str, ...]:
    return tuple(dict.fromkeys(str(name).rstrip("/") for name in names if name))
