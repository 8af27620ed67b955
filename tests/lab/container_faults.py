"""Faults on the daemons and hosts of a cephadm cluster, each with what shows from outside that it is in force."""

from __future__ import annotations

import os
import subprocess
from contextlib import contextmanager
from typing import Any, Callable, Dict, Iterator, List, NamedTuple

from cephadm_cluster import GATEWAYS
from faulty import Faulty
from test_daemon_faults import answering, inject, leader, state
from test_fault_kinds import QDISC, READ, TABLE

#: the node of the faults on a node: it has two OSDs, a mon and a gateway, and is not the head
NODE = "node3"
#: an OSD of that node
OSD = 4
#: where NODE, whose systemd has version 2 of control groups, sees the machine's blkio of version 1
BLKIO = "/run/blkio"
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


def osd_crash(containers: Faulty, osd: int = OSD) -> ContainerFault:
    return ContainerFault(inject("crash", f"osd.{osd}"), lambda: not containers.osd(osd)["up"])


def mon_failover(containers: Faulty) -> ContainerFault:
    first = leader(containers)
    return ContainerFault(inject("failover", f"mon.{first}"), lambda: leader(containers) != first)


def mgr_failover(containers: Faulty) -> ContainerFault:
    def active() -> str:
        return str(containers.ceph("mgr stat")["active_name"])

    first = active()
    return ContainerFault(inject("failover", f"mgr.{first}"), lambda: active() != first)


def osd_out(containers: Faulty, osd: int = OSD) -> ContainerFault:
    return ContainerFault(inject("out", f"osd.{osd}"), lambda: not containers.osd(osd)["in"])


def osd_mark(containers: Faulty, osd: int = OSD) -> ContainerFault:
    def marked() -> bool:
        entry = containers.osd(osd)
        return not entry["up"] and not entry["in"]

    return ContainerFault(inject("mark", f"osd.{osd}"), marked)


def osd_nearfull(containers: Faulty, osd: int = OSD) -> ContainerFault:
    statement = inject("fill", f"osd.{osd}", level="nearfull")
    return ContainerFault(statement, lambda: "OSD_NEARFULL" in containers.ceph("health")["checks"])


def osd_read_errors(containers: Faulty) -> ContainerFault:
    """Return the fault on the first OSD that serves reads of the pool `reads`."""
    (osd, *_) = (pg["acting_primary"] for pg in containers.ceph("pg ls-by-pool reads")["pg_stats"])
    option = f"tell osd.{osd} config get {READ}"
    statement = inject("read_errors", f"osd.{osd}", share=0.2)
    return ContainerFault(statement, lambda: float(containers.ceph(option)[READ]) > 0)


def osd_slow_disk(containers: Faulty, osd: int) -> ContainerFault:
    """Return the fault on an OSD of NODE that has a disk; blkio of control groups is in BLKIO."""
    group = f"ls -d {BLKIO}/cbt-plugins-*"

    def in_force() -> bool:
        return containers.lab.exec(NODE, ["sh", "-c", group]).returncode == 0

    return ContainerFault(inject("slow_disk", f"osd.{osd}", iops=20), in_force)


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
    "crash of an OSD": osd_crash,
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


def ratios_and_repairs(containers: Faulty) -> Dict[str, Any]:
    """Return what `fill` and `read_errors` may change."""
    dump = containers.ceph("osd dump")
    ratios: List[float] = [dump[f"{level}_ratio"] for level in ("nearfull", "backfillfull", "full")]
    repairs = [row["num_shards_repaired"] for row in containers.ceph("pg dump osds")["osd_stats"]]
    return {"ratios": ratios, "repairs": repairs}


def as_it_is(containers: Faulty) -> Dict[str, Any]:
    """Return all that these faults may change."""
    node = f"nft list ruleset 2>/dev/null; tc qdisc show dev eth0; {PRESSURE}"
    shown = containers.lab.exec(NODE, ["sh", "-c", node]).stdout
    return {**state(containers), **ratios_and_repairs(containers), NODE: shown}


@contextmanager
def reading(containers: Faulty, load: str = "rand -t 1") -> Iterator[None]:
    """Read a pool `reads` all the time, or put another `load` of rados bench on it."""
    pool = "ceph osd pool create reads 16 16 && ceph osd pool application enable reads rados"
    pool += " && rados -p reads bench 3 write -b 16384 -t 4 --no-cleanup"
    made = containers.lab.exec("node0", ["sh", "-c", pool])
    assert made.returncode == 0, made.stderr
    stop = containers.folder() / "stop"
    loop = f"while [ ! -e {stop} ]; do timeout 60 rados -p reads bench 5 {load}; done"
    program = containers.lab.lab.enter("node0", ["sh", "-c", loop])
    environment = {**os.environ, **containers.lab.lab.environment()}
    with subprocess.Popen(program, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL):
        try:
            containers.clean()
            yield
        finally:
            stop.touch()
    containers.lab.exec("node0", ["sh", "-c", "ceph osd pool rm reads reads --yes-i-really-really-mean-it"])
