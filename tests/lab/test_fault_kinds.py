"""Kinds that disturb links, disks, ratios and processors, on a real cluster; all is as it was, also after kill -9.

CBT_PLUGINS_LONG=1 asks for them.
"""

from __future__ import annotations

import subprocess
import sys
from typing import Any, Dict, Iterator, NamedTuple, Tuple

import pytest
from faulty import Faulty, fault
from releases import RELEASES, home_of, root_of
from running_lab import PROJECT, RunningLab, need_machine
from waiting import wait_for

from cbt_plugins.tools.lab import Lab, Topology

pytestmark = [pytest.mark.lab, pytest.mark.long]

READ = "bluestore_debug_random_read_err"


class Case(NamedTuple):
    """A fault, and what shows on the cluster or on the node that it is in force."""

    kind: str
    target: str
    options: Dict[str, Any]
    node: str  # where `shows` is asked
    shows: str  # shell text that succeeds while the fault is in force
    accept: Tuple[str, ...] = ()

    @property
    def text(self) -> str:
        return fault("f", self.kind, self.target, *self.accept, **self.options)


TABLE = "nft list ruleset | grep -q cbt_plugins_"
QDISC = "tc qdisc show dev eth0 | grep -q '^qdisc htb cb: root'"
GROUP = "ls -d /sys/fs/cgroup/blkio/cbt-plugins-*"
JOINED = "grep -q blkio:/cbt /proc/$(pgrep -x ceph-osd)/cgroup"
SET = f"ceph tell osd.0 config get {READ} | grep {READ} | grep -v '\"0.000000\"'"
#: `full` stops the writes of all pools of so small a cluster
OUTAGE = ("inactive", "domain", "data", "ok-to-stop", "capacity")
ON_NODES = {
    "partition": Case("partition", "node1", {}, "node1", f"{TABLE} && nft list ruleset | grep -q ' drop'"),
    "loss": Case("loss", "node2", {"share": 0.05}, "node2", f"{TABLE} && {QDISC}"),
    "rate": Case("rate", "node3", {"rate": 1.25e6}, "node3", f"{TABLE} && {QDISC}"),
    "slow_disk": Case("slow_disk", "osd.2", {"iops": 20}, "node3", f"{GROUP} && {JOINED}"),
    "pressure": Case("pressure", "node2", {"cpus": 1, "memory": 5e7}, "node2", "pgrep -f '[h]eld = bytearray'"),
}
#: what the release decides
BY_CEPH = {
    "read_errors": Case("read_errors", "osd.0", {"share": 0.2}, "node0", SET),
    "nearfull": Case("fill", "osd.1", {"level": "nearfull"}, "node0", "ceph health | grep -i nearfull"),
    "full": Case("fill", "osd.1", {"level": "full"}, "node0", "ceph health | grep -i 'full osd'", OUTAGE),
}
EVERY = {**ON_NODES, **BY_CEPH}
#: the run is killed as soon as its journal has this event
KILLED_AT = ("begun", "confirmed", "undo")


@pytest.fixture(scope="module", params=RELEASES)
def faulty(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Faulty]:
    """A lab of a release, whose OSD 0 is read all the time."""
    need_machine()
    root = root_of(request.param)
    base = tmp_path_factory.mktemp(f"kinds-{request.param}")
    python, home = (sys.executable, PROJECT) if root == "/" else ("/usr/bin/python3", home_of(root, base))
    lab = Lab(tmp_path_factory.mktemp("lab"), say=lambda text: None)
    shape = Topology(osds_per_node=1, rgws=0, clients=0, out_interval=600, root=root, bind=(str(base), str(PROJECT)))
    reads = None
    try:
        lab.up(shape, detach=False)
        made = Faulty(RunningLab(lab, [], python, home), base)
        pool = "ceph osd pool create reads 16 16 && ceph osd pool application enable reads rados"
        pool += " && rados -p reads bench 3 write -b 16384 -t 4 --no-cleanup"
        assert made.lab.exec("node0", ["sh", "-c", pool]).returncode == 0
        made.clean()
        loop = f"while [ ! -e {base}/stop ]; do timeout 60 rados -p reads bench 5 rand -t 1; done"
        line = [sys.executable, "-m", "cbt_plugins.tools", "lab", "exec", "--dir", str(lab.dir), "node0", "--"]
        reads = subprocess.Popen([*line, "sh", "-c", loop], stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
        yield made
    finally:
        (base / "stop").touch()
        lab.down(wipe=True)
        if reads is not None:
            reads.wait(120)


def needed(faulty: Faulty, name: str) -> Case:
    """The case, where this release and its nodes can have it."""
    case = EVERY[name]
    if "nft" in case.shows and faulty.lab.exec(case.node, ["sh", "-c", "command -v nft"]).returncode:
        pytest.skip("no nft on the nodes (Debian: nftables)")
    return case


def as_it_is(faulty: Faulty, case: Case) -> Dict[str, Any]:
    """All that these kinds may change."""
    dump = faulty.ceph("osd dump")
    node = "nft list ruleset 2>/dev/null; tc qdisc show dev eth0; ls -d /sys/fs/cgroup/blkio/cbt* 2>/dev/null"
    node += "; pgrep -f '[i] -lt 100000|[h]eld = bytearray'"
    node += "; ls /run/cbt-plugins 2>/dev/null | grep -E 'armed|recover$|fired'"
    return {
        "osds": [(o["osd"], o["up"], o["in"], o["weight"]) for o in dump["osds"]],
        "ratios": [dump[f"{level}_ratio"] for level in ("nearfull", "backfillfull", "full")],
        "flags": dump["flags_set"],
        "config": faulty.ceph("config dump"),
        "read": faulty.ceph(f"tell osd.0 config get {READ}"),
        "repaired": [o["num_shards_repaired"] for o in faulty.ceph("pg dump osds")["osd_stats"]],
        "node": faulty.lab.exec(case.node, ["sh", "-c", node]).stdout,
        "keys": faulty.ceph("config-key dump cbt-plugins"),
        "health": faulty.ceph("health")["checks"],
    }


def shows(faulty: Faulty, case: Case) -> bool:
    return faulty.lab.exec(case.node, ["sh", "-c", case.shows]).returncode == 0


@pytest.mark.parametrize("killed", KILLED_AT)
@pytest.mark.parametrize("name", EVERY)
def test_the_cluster_is_as_it_was_after_kill_9(faulty: Faulty, name: str, killed: str) -> None:
    case = needed(faulty, name)
    faulty.clean()
    before, folder = as_it_is(faulty, case), faulty.folder()
    assert not shows(faulty, case)
    then = "injector.undo_all()" if killed == "undo" else "hold()"
    running = faulty.start(folder, f"injector.acquire(); injector.inject({case.text}); {then}")
    faulty.await_event(folder, running, killed)
    if killed == "confirmed":
        assert shows(faulty, case)
    faulty.end_by_kill(running)
    done = faulty.undo(folder)
    assert done.returncode == 0, done.stderr
    wait_for(lambda: as_it_is(faulty, case) == before, f"{name} as it was", moving=lambda: as_it_is(faulty, case))


def test_the_far_ends_may_be_named_and_one_direction_too(faulty: Faulty) -> None:
    """Without the monitor among the peers, each side of a partition is believed when it reports the other one."""
    needed(faulty, "partition")
    text = "peers=['node2', 'node3', 'node4'], direction='in'"
    refused = faulty.run(
        faulty.folder(),
        f"try: injector.prepare(Fault('p', 'partition', ('node1',), options=dict({text}))); say(refused='')\n"
        "except FaultError as error: say(refused=str(error))\n"
        f"p = injector.prepare(Fault('p', 'partition', ('node1',), options=dict({text})))\n"
        "say(rules=sorted(f.rule for f in p.refused), osds=sorted(p.taken.osds), nodes=sorted(p.taken.nodes))",
    )[-1]
    assert refused["osds"] == [0, 1, 2, 3] and {"inactive", "domain"} <= set(refused["rules"])


def test_a_delay_is_refused_where_the_kernel_has_no_netem(faulty: Faulty) -> None:
    needed(faulty, "partition")
    probe = "unshare -n tc qdisc add dev lo root netem delay 1ms"
    if faulty.lab.exec("node1", ["sh", "-c", probe]).returncode == 0:
        pytest.skip("this kernel has netem")
    (said,) = faulty.run(
        faulty.folder(),
        "try: injector.prepare(Fault('d', 'delay', ('node1',)))\nexcept FaultError as error: say(refused=str(error))",
    )
    needs = "node1: the fault needs nft, htb and netem, "
    needs += "but the kernel or a program of the node does not support the fault"
    assert needs in said["refused"]


def test_two_kinds_are_in_force_at_once(faulty: Faulty) -> None:
    case = needed(faulty, "loss")
    slow = EVERY["slow_disk"]
    before = as_it_is(faulty, case)
    slow_text = fault("s", slow.kind, slow.target, **slow.options)
    said = faulty.run(
        faulty.folder(),
        f"injector.acquire(); injector.inject({case.text}); injector.inject({slow_text})\n"
        "say(open=sorted({r.label for r in injector.open_changes})); say(left=injector.undo_all()); injector.release()",
    )
    assert {"open": ["f", "s"]} in said and {"left": []} in said
    assert next(line for line in said if line.get("event") == "fault-injected")["steps"][0].startswith("lose 5 %")
    wait_for(lambda: as_it_is(faulty, case) == before, "all as it was")


def test_a_node_that_is_cut_off_ends_its_partition_by_itself(faulty: Faulty) -> None:
    case = needed(faulty, "partition")
    folder = faulty.folder()
    cut = fault("f", "partition", "node1", deadline=20)
    faulty.run(folder, f"injector.acquire(); injector.inject({cut})")
    assert shows(faulty, case)
    wait_for(lambda: not shows(faulty, case), "the end by itself")
    wait_for(lambda: faulty.osd(0)["up"], "osd.0 up again, by itself")
    assert faulty.undo(folder).returncode == 0
