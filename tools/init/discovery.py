"""Discovery of a live cluster: daemons and hosts, gateways and zone, pools and space, all asked at once."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

from cbt_plugins.ceph_df import PoolSpace, Space
from cbt_plugins.cluster.ceph import Ceph, CephError, Status, json_values
from cbt_plugins.cluster.rgw_frontends import Gateway
from cbt_plugins.cluster.rgw_zones import Zone
from cbt_plugins.cluster_conditions import found_in
from cbt_plugins.exit_status import FAILED
from cbt_plugins.faults import FaultError
from cbt_plugins.faults.cluster_facts import DAEMON_QUESTIONS, Facts, ask, domain_members, needed
from cbt_plugins.inventory import check_node_name

from ..command import CommandError
from .cluster_kind import Site

_QUESTIONS = (
    *("osd dump", "osd tree", "osd crush rule dump", "osd metadata", "mon metadata", "mgr metadata", "versions"),
    *("status", "df detail", *DAEMON_QUESTIONS.values()),
)
#: fails where no orchestrator is configured
_ORCHESTRATOR = "orch ps"
#: seconds for all questions: some hundred OSDs describe themselves
_LIMIT = 60.0
#: key of `cluster:` -> type of the daemons that its nodes run
ROLES = {"osds": "osd", "mons": "mon", "rgws": "rgw", "mgrs": "mgr", "mdss": "mds"}


@contextlib.contextmanager
def replies_of(head: str) -> Iterator[None]:
    """Raise CommandError in the place of an error in reading replies of the cluster."""
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        text = f"could not parse a reply of {head} ({type(error).__name__}: {error})"
        raise CommandError(f"{text}: is the cluster older than Ceph 14.2?", FAILED) from None


@dataclass(frozen=True)
class Discovery:
    """The properties of a live cluster, which is not changed."""

    ceph: Ceph
    facts: Facts
    zone: Zone
    gateways: Sequence[Gateway]
    data_pool: str  # the pool that RGW names; it may not exist before the first object

    @classmethod
    def of(cls, site: Site) -> Discovery:
        """Ask a cluster. Raises CommandError if it does not answer or has no gateway.

        What uses its properties is to be inside `replies_of`: most replies are read by them.
        """
        ceph = site.ceph()
        try:
            with replies_of(ceph.head):
                facts = ask(ceph, _QUESTIONS, _LIMIT, (_ORCHESTRATOR,))
                gateways = site.gateways(facts)
                if not gateways:
                    source = "`ceph service dump`, which may be a minute old"
                    text = f"{source}, shows no running gateway (radosgw): start a gateway"
                    raise CommandError(text, FAILED)
                ceph = site.of_zone(ceph, gateways)
                site.check_admin(ceph)
                zone = Zone.ask(ceph)
                return cls(ceph, facts, zone, gateways, ceph.data_pool(zone.placement))
        except (FaultError, CephError) as error:
            raise CommandError(str(error), FAILED) from None

    @cached_property
    def hosts(self) -> Dict[str, List[str]]:
        """Key of `cluster:` -> hosts with its daemons, by the names that daemons report, if they are host names."""
        hosts = {key: sorted(set(self.facts.daemons(type).values())) for key, type in ROLES.items()}
        hosts["rgws"] = sorted({gateway.host for gateway in self.own_gateways})
        return {key: list(filter(_is_name, names)) for key, names in hosts.items()}

    @property
    def own_gateways(self) -> List[Gateway]:
        """The gateways of the zone."""
        return [gateway for gateway in self.gateways if gateway.zone in ("", self.zone.name)]

    @property
    def unnamed(self) -> List[str]:
        """The daemons whose host reports a name that is not a host name."""
        daemons = {name: host for type in ROLES.values() for name, host in self.facts.daemons(type).items()}
        return [f"{name} on {host!r}" for name, host in daemons.items() if not _is_name(host)]

    @property
    def release(self) -> str:
        """Versions of the running daemons, such as "16.2.15"."""
        names = {name.split()[2] for name in self.facts.answers["versions"]["overall"]}
        return ", ".join(sorted(names))

    @cached_property
    def status(self) -> Status:
        """PG states and health."""
        return Status.parse(self.facts.answers["status"], self.facts.answers["df detail"])

    @property
    def conditions(self) -> Dict[str, str]:
        """Conditions that disturb a measurement: name -> text."""
        return found_in(self.status.sample(time.time()))

    @cached_property
    def space(self) -> Space:
        """Raw space and pools."""
        return Space.parse(self.facts.answers["df detail"])

    @property
    def pools(self) -> List[Mapping[str, Any]]:
        """The pools of RGW in `osd dump`, the pool of objects first."""
        of_rgw = [pool for pool in self.facts.pools if "rgw" in pool.get("application_metadata", {})]
        return sorted(of_rgw, key=lambda pool: (pool["pool_name"] != self.data_pool, pool["pool_name"]))

    @property
    def data(self) -> Optional[Mapping[str, Any]]:
        """The pool of objects, None if RGW has not made it yet."""
        return next((pool for pool in self.facts.pools if pool["pool_name"] == self.data_pool), None)

    @property
    def available(self) -> int:
        """Space for clients: of the pool of objects; if it does not exist yet, of RGW's pool with the least space."""
        space: Mapping[str, PoolSpace] = self.space.pools
        if self.data_pool in space:
            return space[self.data_pool].max_avail
        return min((space[pool["pool_name"]].max_avail for pool in self.pools if pool["pool_name"] in space), default=0)

    def failure_domains(self, pool: Mapping[str, Any]) -> Tuple[str, Dict[str, List[int]]]:
        """Return the type of a pool's failure domains, and the OSDs in each; "" and {} of a rule with several steps."""
        return domain_members(self.facts, pool)

    @property
    def devices(self) -> List[str]:
        """The device class of each OSD that holds objects."""
        _, members = self.failure_domains(self.data) if self.data else ("", {})
        osds = [osd for group in members.values() for osd in group] or list(self.facts.osds)
        tree = self.facts.tree
        return [str(tree.get(osd, {}).get("device_class") or "") for osd in osds if self.facts.weight(osd)]

    @property
    def usable(self) -> float:
        """The client data as a share of the bytes that OSDs write: 1/3 with three copies, 4/6 with EC 4+2."""
        return needed(self.facts, self.data) / self.data["size"] if self.data else 1 / 3

    @property
    def orchestrated(self) -> List[Mapping[str, Any]]:
        """The daemons in `orch ps`; [] without an orchestrator."""
        reply = self.facts.answers[_ORCHESTRATOR]
        rows = json_values(reply.text)[:1] if reply.status == 0 else []
        return [row for row in rows[0] if isinstance(row, dict)] if rows and isinstance(rows[0], list) else []


def _is_name(host: str) -> bool:
    try:
        return bool(check_node_name(host))
    except ValueError:
        return False
