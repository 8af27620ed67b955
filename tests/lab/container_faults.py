"""Faults on the daemons and hosts of a cephadm cluster, each with what shows from outside that it is in force."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, NamedTuple

from cephadm_cluster import GATEWAYS
from faulty import Faulty
from test_daemon_faults import answering, inject, leader, state
from test_fault_kinds import QDISC, READ, TABLE

#: the node of the faults on a node: it has two OSDs, a mon and a gateway, and is not the head
NODE = "node3"
#: an OSD of that node
OSD = 4
PRESSURE = "pgrep -f '[h]eld = bytearray'"


class ContainerFault(NamedTuple):
    """A statement of a run that injects a fault, and a function that returns whether the fault is in force."""

    statement: str
    in_force: Callable[[], bool]


def gateway_on(containers: Faulty, node: str) -> str:
    """Return the name of the RGW of a node, such as rgw.lab.node2.abcdef."""
    (row,) = [row for row in containers.ceph("orch ps --daemon_type rgw") if row["hostname"] == node]
    return f"rgw.{row['daemon_id']}"


def gateway_crash(containers: Faulty) -> ContainerFault:
    node, *others = GATEWAYS
    return ContainerFault(inject("crash", gateway_on(containers, node)), lambda: answering(containers) == others)


def mon_failover(containers: Faulty) -> ContainerFault:
    first = leader(containers)
    return ContainerFault(inject("failover", f"mon.{first}"), lambda: leader(containers) != first)


def mgr_failover(containers: Faulty) -> ContainerFault:
    def active() -> str:
        return str(containers.ceph("mgr stat")["active_name"])

    first = active()
    return ContainerFault(inject("failover", f"mgr.{first}"), lambda: active() != first)


def osd_out(containers: Faulty) -> ContainerFault:
    return ContainerFault(inject("out", f"osd.{OSD}"), lambda: not containers.osd(OSD)["in"])


def osd_mark(containers: Faulty) -> ContainerFault:
    def marked() -> bool:
        osd = containers.osd(OSD)
        return not osd["up"] and not osd["in"]

    return ContainerFault(inject("mark", f"osd.{OSD}"), marked)


def osd_nearfull(containers: Faulty) -> ContainerFault:
    statement = inject("fill", f"osd.{OSD}", level="nearfull")
    return ContainerFault(statement, lambda: "OSD_NEARFULL" in containers.ceph("health")["checks"])


def osd_read_errors(containers: Faulty) -> ContainerFault:
    """Return the fault on the first OSD that serves reads of the pool `reads`."""
    (osd, *_) = (pg["acting_primary"] for pg in containers.ceph("pg ls-by-pool reads")["pg_stats"])
    option = f"tell osd.{osd} config get {READ}"
    statement = inject("read_errors", f"osd.{osd}", share=0.2)
    return ContainerFault(statement, lambda: float(containers.ceph(option)[READ]) > 0)


def on_node(kind: str, shows: str, down: bool = False, **options: Any) -> Callable[[Faulty], ContainerFault]:
    """Return what makes a fault on NODE. `shows`: shell text that succeeds there; `down`: its OSDs are."""

    def make(containers: Faulty) -> ContainerFault:
        def in_force() -> bool:
            shown = containers.lab.exec(NODE, ["sh", "-c", shows]).returncode == 0
            return shown and not (down and containers.osd(OSD)["up"])

        return ContainerFault(inject(kind, NODE, **options), in_force)

    return make


FAULTS: Dict[str, Callable[[Faulty], ContainerFault]] = {
    "crash of an RGW": gateway_crash,
    "failover of the leading mon": mon_failover,
    "failover of the active mgr": mgr_failover,
    "out": osd_out,
    "mark": osd_mark,
    "fill, nearfull": osd_nearfull,
    "loss": on_node("loss", f"{TABLE} && {QDISC}", share=0.05),
    "rate": on_node("rate", f"{TABLE} && {QDISC}", rate=1.25e6),
    "partition": on_node("partition", f"{TABLE} && nft list ruleset | grep -q ' drop'", down=True),
    "network": on_node("network", "nft list ruleset | grep -q 'policy drop'", down=True, method="nft"),
    "pressure": on_node("pressure", PRESSURE, cpus=1, memory=5e7),
}
#: those that need nft on the node
BY_NFT = ("loss", "rate", "partition", "network")


def as_it_is(containers: Faulty) -> Dict[str, Any]:
    """Return all that these faults may change."""
    dump = containers.ceph("osd dump")
    ratios: List[float] = [dump[f"{level}_ratio"] for level in ("nearfull", "backfillfull", "full")]
    repairs = [row["num_shards_repaired"] for row in containers.ceph("pg dump osds")["osd_stats"]]
    node = f"nft list ruleset 2>/dev/null; tc qdisc show dev eth0; {PRESSURE}"
    shown = containers.lab.exec(NODE, ["sh", "-c", node]).stdout
    return {**state(containers), "ratios": ratios, "repairs": repairs, NODE: shown}
