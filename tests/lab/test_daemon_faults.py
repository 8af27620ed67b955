"""Faults on gateways, ceph-mons and ceph-mgrs, pauses, and CRUSH buckets as targets, on each release.

Two to six minutes for each test and release:

    CBT_PLUGINS_LONG=1 CBT_LAB_ROOTS=DIR:DIR python -m pytest tests/lab/test_daemon_faults.py
"""

from __future__ import annotations

import json
import shutil
import subprocess
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Dict, Iterator, List, Tuple

import pytest
from cluster_state import facts
from cycles import S3, Cycle
from faulty import BUSY, Faulty
from releases import RELEASES, home_of, root_of
from running_lab import RunningLab, need_machine
from waiting import busy, wait_for

from cbt_plugins.tools.lab import Lab, Topology

pytestmark = [pytest.mark.lab, pytest.mark.long]

#: rules that one of four hosts with its OSD breaks while others are moving data
ALL = (*BUSY, "inactive", "domain", "data", "ok-to-stop")
#: what prints the states of the threads of a program on a node
STATES = "for p in $(pgrep -x '{}'); do cat /proc/$p/task/*/stat | sed 's/.*) //' | cut -c1; done | sort -u"


@pytest.fixture(scope="module", params=RELEASES)
def faulty(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Faulty]:
    """A lab with a quorum and a standby, in a CRUSH tree of two racks."""
    need_machine()
    root = root_of(request.param)
    base = tmp_path_factory.mktemp(f"release-{request.param}")
    own = () if root == "/" else ("/usr/bin/python3", home_of(root, base))
    made = Lab(tmp_path_factory.mktemp("lab"), say=lambda text: None)
    try:
        shape = Topology(osds_per_node=1, mons=3, mgrs=2, out_interval=600, root=root, bind=(str(base),))
        made.up(shape, detach=False)
        lab = Faulty(RunningLab(made, [], *own), base)
        racks = "for r in 1 2; do ceph osd crush add-bucket rack$r rack root=default; done"
        racks += "; for n in 1 2 3 4; do ceph osd crush move node$n rack=rack$(((n + 1) / 2)); done"
        assert lab.lab.exec("node0", ["sh", "-c", racks]).returncode == 0
        lab.clean()
        yield lab
    finally:
        made.down(wipe=True)


def inject(kind: str, *targets: str, accept: Any = ALL, **options: Any) -> str:
    return f"injector.inject(Fault('f', {kind!r}, {targets!r}, options={options!r}, accept={accept!r}))"


def state(faulty: Faulty) -> Dict[str, Any]:
    """What the faults may change, but for which ceph-mgr is active."""
    dump, quorum = faulty.ceph("mgr dump"), faulty.ceph("quorum_status")
    managers = sorted([dump["active_name"], *(standby["name"] for standby in dump["standbys"])])
    return {**facts(faulty.lab), "mgrs": managers, "mons": sorted(quorum["quorum_names"]), "rgws": answering(faulty)}


def answering(faulty: Faulty) -> List[str]:
    """The gateways that take a request."""
    ask = "exec 3<>/dev/tcp/{}/7480 && printf 'GET / HTTP/1.0\\r\\n\\r\\n' >&3 && timeout 5 head -1 <&3"
    answers = {n: faulty.lab.exec("node0", ["bash", "-c", ask.format(n)]).stdout for n in faulty.gateways}
    return [node for node, answer in answers.items() if " 200 " in answer]


def leader(faulty: Faulty) -> str:
    return str(faulty.ceph("quorum_status")["quorum_leader_name"])


def held(faulty: Faulty, statement: str, folder: Path) -> Any:
    """Start a run that injects a fault and holds it; wait until it is in force."""
    running = faulty.start(folder, f"injector.acquire(); {statement}; hold()")
    faulty.await_event(folder, running, "confirmed")
    return running


def test_each_kind_has_its_effect_and_is_undone_after_a_kill(faulty: Faulty) -> None:
    """Seen from outside while the run is dead: nothing but `cbt-tools undo` puts it back."""
    first = leader(faulty)
    active = str(faulty.ceph("mgr stat")["active_name"])
    another = next(name for name in ("node0", "node1", "node2") if name != first)

    def stopped(node: str, program: str) -> bool:
        return faulty.lab.exec(node, ["sh", "-c", STATES.format(program)]).stdout.split() == ["T"]

    def gateway_hangs() -> bool:
        return stopped("rgw1", "radosgw|notif-worker0") and answering(faulty) == ["rgw2"]

    cases: List[Any] = [
        (inject("stop", "rgw.rgw1"), lambda: answering(faulty) == ["rgw2"]),
        (inject("crash", "rgw.rgw2"), lambda: answering(faulty) == ["rgw1"]),
        (inject("stop", f"mon.{first}"), lambda: first not in faulty.ceph("quorum_status")["quorum_names"]),
        (inject("crash", f"mon.{another}"), lambda: another not in faulty.ceph("quorum_status")["quorum_names"]),
        (inject("failover", f"mon.{first}"), lambda: leader(faulty) != first),
        (inject("stop", f"mgr.{active}"), lambda: faulty.ceph("mgr stat")["active_name"] != active),
        (inject("crash", f"mgr.{active}"), lambda: active not in state(faulty)["mgrs"]),
        (inject("pause", f"mgr.{active}"), lambda: stopped(active, "ceph-mgr")),
        (inject("pause", "rgw.rgw1"), gateway_hangs),
        (inject("pause", f"mon.{first}"), lambda: stopped(first, "ceph-mon") and leader(faulty) != first),
        (inject("pause", "osd.2"), lambda: stopped("node3", "ceph-osd") and not faulty.osd(2)["up"]),
    ]
    before = state(faulty)
    for statement, effect in cases:
        folder = faulty.folder()
        running = held(faulty, statement, folder)
        wait_for(effect, f"the effect of {statement}", 60.0)
        faulty.end_by_kill(running)
        assert effect(), statement
        done = faulty.undo(folder)
        assert done.returncode == 0, (statement, done.stderr[-3000:])
        assert state(faulty) == before, statement
        faulty.clean()


@pytest.mark.parametrize("moment", ["open", "begun", "injected", "undo"])
@pytest.mark.parametrize("kind", ["pause", "stop", "failover"])
def test_a_kill_at_any_moment_is_undone(faulty: Faulty, kind: str, moment: str) -> None:
    """Before the command, while it is on its way, before its effect, within its undo."""
    target = {"pause": "osd.1", "stop": "rgw.rgw1", "failover": f"mon.{leader(faulty)}"}[kind]
    before, folder = state(faulty), faulty.folder()
    running = faulty.start(folder, f"injector.acquire(); {inject(kind, target)}; injector.undo_all(); hold()")
    faulty.await_event(folder, running, moment)
    faulty.end_by_kill(running)
    done = faulty.undo(folder)
    assert done.returncode == 0, done.stderr[-3000:]
    assert state(faulty) == before
    faulty.clean()


def test_an_osd_stays_up_through_a_short_pause(faulty: Faulty) -> None:
    """Three seconds are less than the grace of heartbeats; the effect is confirmed before the undo."""
    faulty.clean()
    before, folder = faulty.ceph("osd dump")["osds"], faulty.folder()
    said = faulty.run(
        folder,
        f"import time\ninjector.acquire(); {inject('pause', 'osd.2')}\n"
        "time.sleep(3); say(left=injector.undo_all()); injector.release()",
    )
    events = [json.loads(line) for line in (folder / "undo.jsonl").read_text().splitlines()]
    assert next(e["event"] for e in events if e["event"] in ("confirmed", "undo", "undone")) == "confirmed", events
    (in_effect,) = (line for line in said if line.get("event") == "fault-in-effect")
    assert in_effect["milestones"]["paused"] and {"left": []} in said
    entries = [{key: o[key] for key in ("osd", "up", "in", "down_at", "up_from")} for o in before]
    assert [{key: o[key] for key in entries[0]} for o in faulty.ceph("osd dump")["osds"]] == entries


def test_a_paused_osd_continues_although_nobody_asks(faulty: Faulty) -> None:
    before, folder = state(faulty), faulty.folder()
    running = held(faulty, inject("pause", "osd.2", deadline=20.0), folder)
    faulty.end_by_kill(running)
    wait_for(lambda: not faulty.osd(2)["up"], "osd.2 seen down: its grace is 6 s", 60.0)
    wait_for(lambda: faulty.osd(2)["up"], "osd.2 up again, by itself", 60.0)
    assert faulty.undo(folder).returncode == 0
    assert state(faulty) == before
    assert '"event": "recovered"' in (folder / "undo.jsonl").read_text()
    faulty.clean()


def test_two_at_once_and_refusals(faulty: Faulty) -> None:
    """The numbers of the rules are those of the live cluster, with what an open fault has taken."""
    before, first = state(faulty), leader(faulty)
    others = [name for name in ("node0", "node1", "node2") if name != first]
    active = str(faulty.ceph("mgr stat")["active_name"])
    standby = next(name for name in ("node0", "node1") if name != active)
    attempts = {
        "quorum": ("stop", f"mon.{others[0]}"),
        "rgw": ("crash", "rgw.rgw2"),
        "mgr": ("failover", f"mgr.{active}"),
        "inactive": ("pause", "osd.3"),
    }
    statements = [
        "injector.acquire()",
        *(
            f"injector.inject(Fault({target!r}, {kind!r}, ({target!r},), accept={ALL!r}))"
            for kind, target in (
                ("pause", f"mon.{first}"), ("pause", "rgw.rgw1"), ("stop", f"mgr.{standby}"), ("pause", "osd.1")
            )
        ),
        *(
            f"try: injector.inject(Fault('x', {kind!r}, ({target!r},), accept=('clean', 'min-in')))\n"
            f"except FaultError as error: say({rule.replace('-', '_')}=str(error))"
            for rule, (kind, target) in attempts.items()
        ),
        "say(left=[str(x) for x in injector.undo_all()]); injector.release()",
    ]
    said = {key: value for line in faulty.run(faulty.folder(), "\n".join(statements)) for key, value in line.items()}
    for rule in attempts:
        assert f"refused. {rule}: " in said[rule] or f"| {rule}: " in said[rule], (rule, said.get(rule))
    assert said["left"] == []
    assert state(faulty) == before
    faulty.clean()


@pytest.fixture
def servers(faulty: Faulty) -> Tuple[str, str]:
    """A CephFS with an active ceph-mds and a standby, which are the names of their nodes."""
    names = ("node3", "node4")
    if faulty.lab.exec("node3", ["sh", "-c", "command -v ceph-mds"]).returncode:
        pytest.skip("no ceph-mds on the nodes (Debian: ceph-mds)")
    if not faulty.ceph("fs ls"):
        pools = "ceph osd pool create cephfs.meta 4 && ceph osd pool create cephfs.data 4"
        made = faulty.lab.exec("node0", ["sh", "-c", f"{pools} && ceph fs new lab cephfs.meta cephfs.data"])
        assert made.returncode == 0, made.stderr
    for name in names:
        folder = f"/var/lib/ceph/mds/ceph-{name}"
        caps = "mon 'profile mds' mgr 'profile mds' mds 'allow *' osd 'allow *'"
        key = f"mkdir -p {folder} && ceph auth get-or-create mds.{name} {caps} -o {folder}/keyring"
        start = f"ceph-mds -i {name} --keyring {folder}/keyring --pid-file /run/ceph/mds.{name}.pid"
        done = faulty.lab.exec(name, ["sh", "-c", f"pgrep -x ceph-mds || {{ {key} && {start}; }}"])
        assert done.returncode == 0, done.stderr
    wait_for(lambda: active_server(faulty) in names, "an active ceph-mds", 60.0)
    wait_for(lambda: len(faulty.ceph("mds metadata")) == 2, "two ceph-mdss", 60.0)
    faulty.clean()
    active = active_server(faulty)
    return active, names[1 - names.index(active)]


def active_server(faulty: Faulty) -> str:
    """The name of the active ceph-mds, "" without one."""
    (file_system,) = faulty.ceph("fs dump")["filesystems"]
    active = [info for info in file_system["mdsmap"]["info"].values() if info["state"] == "up:active"]
    return str(active[0]["name"]) if active else ""


@pytest.mark.parametrize("kind", ["stop", "crash", "pause"])
def test_a_ceph_mds_is_taken_and_comes_back_after_a_kill(faulty: Faulty, servers: Tuple[str, str], kind: str) -> None:
    """The standby takes over; the last ceph-mds is refused."""
    (active, standby), before, folder = servers, state(faulty), faulty.folder()
    running = held(faulty, inject(kind, f"mds.{active}"), folder)
    wait_for(lambda: active_server(faulty) == standby, "the standby to be active", 90.0)
    faulty.end_by_kill(running)
    left = sorted(mds["name"] for mds in faulty.ceph("mds metadata"))
    done = faulty.undo(folder)
    assert done.returncode == 0, done.stderr[-3000:]
    wait_for(lambda: len(faulty.ceph("mds metadata")) == 2, f"two ceph-mdss; without it there were {left}", 60.0)
    assert state(faulty) == before
    both = tuple(f"mds.{name}" for name in servers)
    (said,) = faulty.run(
        faulty.folder(),
        f"p = injector.prepare(Fault('m', {kind!r}, {both!r}, accept={ALL!r}))\n"
        "say(rules=[f.rule for f in p.refused])",
    )
    assert said["rules"] == ["mds"], said
    faulty.clean()


def test_a_rack_is_a_target(faulty: Faulty) -> None:
    """Pools over hosts: half of the hosts in a rack; refused, and by its consent for real."""
    before = state(faulty)
    said = faulty.run(
        faulty.folder(),
        "injector.acquire()\n"
        f"try: {inject('stop', 'crush:rack2', accept=BUSY)}\n"
        "except FaultError as error: say(refused=str(error))\n"
        f"p = {inject('stop', 'crush:rack2')}\n"
        "osds = json.loads(remote.run(['node0'], 'ceph osd dump -f json')['node0'].stdout)['osds']\n"
        "say(down=[o['osd'] for o in osds if not o['up']], steps=[step.node for step in p.steps])\n"
        "say(left=[str(x) for x in injector.undo_all()]); injector.release()",
    )
    told = {key: value for line in said for key, value in line.items()}
    assert "inactive: " in told["refused"]
    assert told["down"] == [2, 3] and told["steps"] == ["node3", "node4"] and told["left"] == []
    assert state(faulty) == before
    faulty.clean()


HAPROXY = """\
global
    stats socket {folder}/admin.sock level admin
    pidfile {folder}/pid
defaults
    mode http
    timeout connect 5s
    timeout client 60s
    timeout server 60s
frontend s3
    bind *:8080
    default_backend s3
backend s3
    balance roundrobin
"""


@contextmanager
def balancing(faulty: Faulty) -> Iterator[str]:
    """Run a haproxy on node0 in front of all gateways; yields the path of its admin socket."""
    if not shutil.which("haproxy"):
        pytest.skip("no haproxy (Debian: apt-get install haproxy): drain was not tried")
    program = faulty.lab.exec("node0", ["sh", "-c", "command -v haproxy"]).stdout.strip()
    if not program:
        pytest.skip("no haproxy in the root folder of this release: drain was not tried")
    folder = faulty.folder()
    addresses = {node: faulty.lab.nodes[node].address for node in faulty.gateways}
    servers = "".join(f"    server {node} {address}:7480 check inter 500\n" for node, address in addresses.items())
    (folder / "haproxy.cfg").write_text(HAPROXY.format(folder=folder) + servers)
    started = faulty.lab.exec("node0", [program, "-D", "-f", str(folder / "haproxy.cfg")])
    assert started.returncode == 0, started.stderr
    try:
        yield f"{folder}/admin.sock"
    finally:
        faulty.lab.exec("node0", ["sh", "-c", f"kill $(cat {folder}/pid)"])


@pytest.fixture
def balancer(faulty: Faulty) -> Iterator[str]:
    with balancing(faulty) as admin_socket:
        yield admin_socket


def test_a_gateway_is_drained_before_it_is_stopped(faulty: Faulty, balancer: str) -> None:
    drained_under_requests(faulty, "rgw.rgw1", balancer)


def drained_under_requests(faulty: Faulty, gateway: str, balancer: str) -> None:
    """No request through the balancer fails while its first gateway goes, is killed with its run, and comes back."""
    before, folder = state(faulty), faulty.folder()
    log = folder / "requests"
    loop = (
        "while [ ! -e {0}.end ]; do for i in 1 2 3 4 5; do curl -s -o /dev/null -w '%{{http_code}}\\n' -m 20 "
        "http://node0:8080/ >> {0}; done; sleep 0.1; done"
    )
    asking = faulty.lab.lab.enter("client1", ["sh", "-c", loop.format(log)])
    client = subprocess.Popen(asking, env=faulty.lab.lab.environment(), stdin=subprocess.DEVNULL)
    try:
        wait_for(lambda: log.exists() and log.read_text().count("200") > 20, "requests")
        running = held(faulty, inject("drain", gateway, balancers=["node0"], socket=balancer), folder)
        assert answering(faulty) == list(faulty.gateways[1:])
        faulty.end_by_kill(running)
        done = faulty.undo(folder)
        assert done.returncode == 0, done.stderr[-3000:]
    finally:
        Path(f"{log}.end").touch()
        client.wait(60)
    assert set(log.read_text().split()) == {"200"}
    assert state(faulty) == before
    shown = faulty.lab.exec("node0", ["python3", "-c", SERVERS, balancer]).stdout
    assert json.loads(shown) == dict.fromkeys(faulty.gateways, "0")


SERVERS = """
import json, socket, sys
c = socket.socket(socket.AF_UNIX); c.connect(sys.argv[1]); c.sendall(b"show servers state\\n")
rows = [line.split() for line in c.makefile() if line[:1].isdigit() and " " in line]
print(json.dumps({row[3]: row[6] for row in rows}))
"""


def test_faults_beside_a_load(faulty: Faulty) -> None:
    """A cycle of cbt-load with a fault of each family in it: complete, with its milestones, the cluster as before."""
    first, before = leader(faulty), state(faulty)
    hybrid = {
        "duration": "200s",
        "mix": {"get": 80, "put": 20},
        "events": [
            {"at": "10s", "fault": {"label": "gateway", "kind": "stop", "daemons": ["rgw.rgw1"]}},
            {"at": "40s", "undo": "gateway"},
            {"at": "60s", "fault": {"label": "mgr", "kind": "failover", "daemon_number": 1}},
            {"at": "80s", "undo": "mgr"},
            {"at": "100s", "fault": {"label": "mon", "kind": "crash", "daemons": [f"mon.{first}"]}},
            {"at": "130s", "undo": "mon"},
            {"at": "155s", "fault": {"label": "hang", "kind": "pause", "osds": [2], "accept": list(BUSY)}},
            {"at": "180s", "undo": "hang"},
        ],
    }
    phases = [{"fill": {"objects": 500}}, {"hybrid": hybrid}]
    section = {"s3": S3, "engine": "cbt-load", "size": "4KiB", "workers": 4, "cycle": {"phases": phases}}
    # events wait for the rules, which ask the cluster: on two cores at a load of 50 each takes half a minute
    section["scale"] = min(3.0, max(1.0, busy() / 8))
    cycle = Cycle(faulty.lab, faulty.folder(), warp=section)
    done = cycle.run()
    assert done.returncode == 0, done.stderr[-3000:]
    events = [json.loads(line) for line in next(cycle.folder.glob("events.jsonl")).read_text().splitlines()]
    begun = {event["label"]: event["t"] for event in events if event["event"] == "fault-inject-begin"}
    effects = {event["label"]: event for event in events if event["event"] == "fault-in-effect"}
    milestones = {"gateway": "refused", "mgr": "active", "mon": "quorum", "hang": "paused"}
    for label, milestone in milestones.items():
        after = effects[label]["milestones"][milestone] - begun[label]
        print(f"{label}: {milestone} {after:.2f} s after the begin of the fault")
        assert 0 <= after <= effects[label]["t"] - begun[label] + 0.1
    assert {event["label"] for event in events if event["event"] == "fault-undone"} >= set(milestones)
    assert state(faulty) == before
    faulty.clean()


def test_the_seed_of_a_thrash_repeats_kinds_and_targets(faulty: Faulty) -> None:
    """Two runs; a failover hits whichever ceph-mgr is active then, and a rule may have it skipped."""
    before = state(faulty)
    kinds = ["pause", "failover", "crash", "stop rgw", "pause mon"]
    thrash = {"for": "100s", "every": "20s", "kinds": kinds, "seed": 4, "accept": list(ALL)}
    hybrid = {"duration": "130s", "events": [{"at": "5s", "thrash": thrash}]}
    phases = [{"fill": {"objects": 300}}, {"hybrid": hybrid}]
    section = {"s3": S3, "engine": "cbt-load", "size": "4KiB", "workers": 2, "cycle": {"phases": phases}}
    runs = []
    for _ in range(2):
        cycle = Cycle(faulty.lab, faulty.folder(), warp=section)
        done = cycle.run()
        assert done.returncode == 0, done.stderr[-3000:]
        events = [json.loads(line) for line in next(cycle.folder.glob("events.jsonl")).read_text().splitlines()]
        drawn = [e for e in events if e["event"] in ("fault-inject-begin", "fault-skipped") and "thrash" in e["label"]]
        targets = {e["label"]: e.get("targets") for e in drawn if e["kind"] != "failover"}
        runs.append(([(e["label"], e["kind"]) for e in drawn], targets))
        print(runs[-1])
        assert state(faulty) == before
        faulty.clean()
    assert runs[0] == runs[1] and {kind for _, kind in runs[0][0]} == {"pause", "failover", "crash", "stop"}
