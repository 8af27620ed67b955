"""Packets between two nodes that are dropped, lost and slowed down, and those of ssh that pass: in namespaces."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any, Iterator, NamedTuple

import pytest
from faults_scene import scene_of
from faults_world import ANYTHING, Connections, injector

from cbt_plugins.cluster.remote import Result
from cbt_plugins.faults.cluster_facts import osd_names
from cbt_plugins.faults.kind import Kind, make
from cbt_plugins.faults.kinds.links import LinkEnds, Links, nft_rules
from cbt_plugins.faults.node_shell import script_text
from cbt_plugins.faults.scene import Targets
from cbt_plugins.faults.step import Command, FaultError
from cbt_plugins.plan import Fault

NEAR, FAR, SSH, TABLE = "10.9.0.1", "10.9.0.2", 22, "cbt_plugins_t"
#: datagrams to NEAR or FAR, from a node: argument 1 = where to, 2 = port, 3 = how many, 4 = bytes of each. Prints when
#: it began and ended, by the clock that all processes share
SEND = """import socket, sys, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
begin = time.monotonic()
for i in range(int(sys.argv[3])):
    i % 50 or time.sleep(0.002)
    s.sendto(bytes(int(sys.argv[4])), (sys.argv[1], int(sys.argv[2])))
print(begin, time.monotonic())
"""
#: bytes that the shaper lets pass at once
BURST = 131_072
#: argument 1 = port; a quiet second ends it. Prints datagrams, and when the last one was read
RECEIVE = """import socket, sys, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.setsockopt(socket.SOL_SOCKET, 33, 1 << 26)  # SO_RCVBUFFORCE
s.bind(("0.0.0.0", int(sys.argv[1])))
print("ready", flush=True)
n, last = 0, 0.0
s.settimeout(60)
try:
    while True:
        s.recv(65536)
        n, last = n + 1, time.monotonic()
        s.settimeout(1)
except OSError:
    print(n, last)
"""
LISTEN = """import socket, sys, time
s = socket.create_server(("0.0.0.0", int(sys.argv[1])))
print("ready", flush=True)
time.sleep(600)
"""


class Arrived(NamedTuple):
    """Datagrams that arrived; seconds for which they were sent, and until the last one was read."""

    number: int
    sending: float
    until_read: float


class Pair:
    """Two nodes with a link; faults are on the near one."""

    def __init__(self, near: int, far: int) -> None:
        self._enter = {name: ["nsenter", "-t", str(pid), "-n", "-m"] for name, pid in (("near", near), ("far", far))}

    def run(self, node: str, text: str) -> subprocess.CompletedProcess[str]:
        line = [*self._enter[node], "sh", "-c", text]
        return subprocess.run(line, capture_output=True, text=True, timeout=600, check=False)

    def near(self, action: str, **values: str) -> str:
        done = self.run("near", script_text("links", action=action, **values))
        assert (done.returncode, done.stderr) in ((0, ""), (1, "")), done.stderr
        return done.stdout

    def arriving(self, sender: str, packets: int = 4000, size: int = 100) -> Arrived:
        """Send datagrams to the other node."""
        receiver, to = ("far", FAR) if sender == "near" else ("near", NEAR)
        listen = [*self._enter[receiver], "python3", "-c", RECEIVE, "4000"]
        with subprocess.Popen(listen, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None and process.stdout.readline() == "ready\n"
            words = ["python3", "-c", SEND, to, "4000", str(packets), str(size)]
            sent = subprocess.run([*self._enter[sender], *words], check=True, stdout=subprocess.PIPE, text=True)
            begin, end = map(float, sent.stdout.split())
            number, last = process.stdout.read().split()
        return Arrived(int(number), end - begin, float(last) - begin)

    def connects(self, sender: str, port: int) -> bool:
        """Tell whether a connection to the other node is made within a second."""
        receiver, to = ("far", FAR) if sender == "near" else ("near", NEAR)
        listen = [*self._enter[receiver], "python3", "-c", LISTEN, str(port)]
        with subprocess.Popen(listen, stdout=subprocess.PIPE) as it:
            try:
                assert it.stdout is not None and it.stdout.readline() == b"ready\n"
                text = f"import socket; socket.create_connection(('{to}', {port}), 1)"
                return not subprocess.run(
                    [*self._enter[sender], "python3", "-c", text], stderr=subprocess.PIPE, check=False
                ).returncode
            finally:
                it.kill()


def values(kind: Kind) -> Any:
    assert isinstance(kind, Links)
    done = kind.disturbance(10000)
    rules = "\n".join(nft_rules(TABLE, LinkEnds("near", ["far"], [FAR], [SSH]), done))
    return {"table": TABLE, "devices": "eth9" if done.leaf else "", "htb": done.htb, "leaf": done.leaf, "rules": rules}


def effect_of(kind: Kind) -> Any:
    """Return the values of the actions `effect` and `reading`, from the fault's own check."""
    scene = scene_of()
    (step,) = kind.steps(scene, Targets(("node1",), osd_names(scene.on_node("node1")), ("node1",)))
    first = next(check for check in step.took if "action=effect" in check.text).text.splitlines()[0]
    words = dict(word.partition("=")[::2] for word in shlex.split(first.replace("; ", " ")))
    del words["action"]
    return {**words, "table": TABLE, "devices": "eth9" if words["leaf"] else ""}


@pytest.fixture
def pair() -> Iterator[Pair]:
    if os.geteuid() != 0 or not shutil.which("nft"):
        pytest.skip("needs root and nft (Debian: nftables)")
    line = ["unshare", "-n", "-m", "sh", "-c", "mount -t sysfs s /sys && ip link set lo up && echo ready && exec cat"]
    holders = [subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE) for _ in range(2)]
    try:
        for holder in holders:
            assert holder.stdout is not None
            if holder.stdout.readline() != b"ready\n":
                pytest.skip("no namespaces here")
        near, far = (holder.pid for holder in holders)
        nodes = Pair(near, far)
        made = nodes.run(
            "near",
            f"set -e; ip link add eth9 type veth peer name p; ip link set p netns {far}\n"
            f"ip addr add {NEAR}/24 dev eth9; ip link set eth9 up\n"
            f"nsenter -t {far} -n sh -c 'ip addr add {FAR}/24 dev p; ip link set p up'",
        )
        assert made.returncode == 0, made.stderr
        yield nodes
    finally:
        for holder in holders:
            assert holder.stdin is not None and holder.stdout is not None
            holder.stdin.close()
            holder.stdout.close()
            holder.wait()


@pytest.mark.parametrize(("kind", "options"), [("loss", {"share": 0.3}), ("rate", {}), ("partition", {})])
def test_what_is_set_is_taken_away_and_twice_is_once(pair: Pair, kind: str, options: Any) -> None:
    given = values(make(kind, options))
    own = {name: given[name] for name in ("table", "devices")}
    assert pair.near("unset_seen", **own) == "recovered\n"
    pair.near("set", **given)
    assert pair.near("unset_seen", **own) == ""
    assert pair.near("unset_seen", table=TABLE) == ""
    pair.run("near", "nft flush ruleset")  # as a firewall does that is started again: the queue alone slows nothing
    assert pair.near("unset_seen", table=TABLE) == "recovered\n"
    for _ in range(2):
        pair.near("unset", **own)
        assert pair.near("unset_seen", **own) == "recovered\n"
    assert pair.run("near", "nft list ruleset; tc qdisc show dev eth9").stdout == "qdisc noqueue 0: root refcnt 2 \n"


@pytest.mark.parametrize("sender", ["near", "far"])
def test_a_share_of_the_packets_is_lost_in_both_directions(pair: Pair, sender: str) -> None:
    """The sender is told nothing of what is lost on its way out: a bad cable tells nothing either."""
    given = values(make("loss", {"share": 0.3}))
    own = {name: given[name] for name in ("table", "devices")}
    pair.near("set", **given)
    assert 2500 < pair.arriving(sender).number < 3100  # of 4000; 2800 +- 29 are expected
    pair.near("unset", **own)
    assert pair.arriving(sender).number == 4000


def test_a_loss_is_in_effect_when_packets_of_one_direction_were_lost(pair: Pair) -> None:
    kind = make("loss", {"share": 0.5})
    pair.near("set", **values(kind))
    effect = effect_of(kind)
    assert pair.near("effect", **effect) == "no packet was dropped, held or delayed yet: arriving leaving\n"
    arrived = pair.arriving("near", 200).number
    assert pair.near("effect", **effect) == "in effect\n"
    reading = json.loads(pair.near("reading", **effect))
    # as the queue itself has counted
    assert reading["links"] == {"arriving": 0, "leaving": 200 - arrived}
    assert reading["warnings"] == ["no packet that is arriving was disturbed yet"]
    pair.arriving("far", 200)
    assert json.loads(pair.near("reading", **effect))["warnings"] == []


@pytest.mark.parametrize(("direction", "sender"), [("in", "near"), ("out", "far")])
def test_the_other_direction_loses_nothing(pair: Pair, direction: str, sender: str) -> None:
    pair.near("set", **values(make("loss", {"share": 0.5, "direction": direction})))
    assert pair.arriving(sender).number == 4000


def test_what_leaves_faster_than_the_rate_waits_and_what_arrives_faster_is_dropped(pair: Pair) -> None:
    """1 MB/s, and a queue of 200 kB on both ways; a machine that is busy only makes the times longer."""
    rate, queue = 1e6, 200_000
    kind = make("rate", {"rate": rate})
    effect = effect_of(kind)

    def packets() -> Any:
        return json.loads(pair.near("reading", **effect))["links"]

    pair.near("set", **values(kind))
    for sender in ("near", "far"):  # slower than the rate, also as one packet of many fragments
        assert pair.arriving(sender, 10, 10).number == 10
        assert pair.arriving(sender, 1, 60_000).number == 1
    idle = "no packet was dropped, held or delayed yet: arriving leaving; the fault needs a load above the rate\n"
    assert pair.near("effect", **effect) == idle
    left = pair.arriving("near", 180, 1000)
    assert left.number == 180  # all of them have room in the queue, behind the burst
    assert left.until_read > (180 * 1000 - BURST) / rate
    assert packets()["leaving"] > 0 and packets()["arriving"] == 0
    assert pair.near("effect", **effect) == "in effect\n"
    came = pair.arriving("far", 8000, 1000)
    assert packets()["arriving"] == 8000 - came.number
    # nft lets a second of the rate and its burst pass at once
    assert 100 < came.number <= (queue + rate * (1 + came.sending)) / 1000
    assert "bfifo cb1: parent cb:1 limit 200000b" in pair.run("near", "tc qdisc show dev eth9").stdout


@pytest.mark.parametrize("direction", ["both", "in", "out"])
@pytest.mark.parametrize("sender", ["near", "far"])
def test_no_connection_is_made_across_a_partition_but_those_of_ssh(pair: Pair, direction: str, sender: str) -> None:
    given = values(make("partition", {"direction": direction}))
    assert pair.connects(sender, 4000)
    pair.near("set", **given)
    assert not pair.connects(sender, 4000)
    assert pair.connects(sender, SSH)
    assert pair.near("effect", **effect_of(make("partition", {"direction": direction}))) == "in effect\n"


def test_a_qdisc_of_somebody_else_is_no_place_for_ours(pair: Pair) -> None:
    look = {"table": TABLE, "peers": FAR, "leaf": "blackhole"}
    assert pair.near("look", **look).split()[:2] == ["dev", "eth9"]
    pair.run("near", "tc qdisc add dev eth9 root handle 7: htb")
    done = pair.run("near", script_text("links", action="look", **look))
    assert done.returncode == 1 and "the root qdisc of eth9 is htb 7:, not the kernel's own" in done.stderr
    assert pair.near("look", **{**look, "leaf": ""}).split()[:2] == ["dev", "eth9"]  # nft alone harms no qdisc


def test_nothing_has_recovered_where_the_programs_fail(pair: Pair) -> None:
    """The drops are still in force when nft, or tc, is there but does not answer: the undo has not been made."""
    given = values(make("rate", {"rate": 1e6}))
    pair.near("set", **given)
    own = {"table": given["table"], "devices": given["devices"]}

    def all_fail(program: str, **values: str) -> None:
        for action in ("unset", "unset_seen"):
            text = f"{program}() {{ echo 'no memory' >&2; return 1; }}\n{script_text('links', action=action, **values)}"
            done = pair.run("near", text)
            assert (done.returncode, done.stdout) == (1, "") and "no memory" in done.stderr

    all_fail("nft", **{**own, "devices": ""})
    pair.run("near", f"nft delete table inet {own['table']}")
    all_fail("tc", **own)
    pair.near("unset", **own)
    assert pair.near("unset_seen", **{**own, "devices": "gone9"}) == "recovered\n"  # a device may be gone


def test_netem_is_told_what_it_understands(pair: Pair) -> None:
    """tc reads the arguments before the kernel is asked: a kernel without netem knows no such kind, and no usage."""
    given = values(make("delay", {"delay": 0.05}))
    assert given["leaf"] == "netem delay 50000us limit 41667"
    tried = pair.run("near", script_text("links", **{**given, "devices": ""}, action="try"))
    assert tried.returncode == 0 or tried.stderr.startswith("Error: Specified qdisc kind is unknown."), tried.stderr
    wrong = pair.run("near", f"unshare -n sh -c 'tc qdisc add dev lo root {given['leaf']} limt 1'")
    assert 'What is "limt"?' in wrong.stderr


#: the last line of ping: iputils, and busybox
RTT = {"iputils": "rtt min/avg/max/mdev = {}/60.1/70.1/1.0 ms", "busybox": "round-trip min/avg/max = {}/60.1/70.1 ms"}


@pytest.mark.parametrize("program", RTT)
def test_a_delay_is_in_effect_when_the_round_trip_is_as_long(pair: Pair, program: str) -> None:
    """A plain queue stands for netem, and a function of the shell for ping."""
    own = {"table": TABLE, "devices": "eth9", "leaf": "netem delay 50000us", "directions": "leaving"}
    given = {**values(make("delay", {"delay": 0.05})), "leaf": "pfifo limit 1000"}

    def near(action: str, milliseconds: str, **more: str) -> str:
        answer = RTT[program].format(milliseconds)
        text = script_text("links", action=action, **{**own, **more})
        return pair.run("near", f"ping() {{ [ {milliseconds} = - ] || echo '{answer}'; }}\n{text}").stdout

    pair.near("set", **given)
    trips = {"ping": FAR, "before": "300", "delay": "50000"}
    assert near("effect", "50.412", **trips) == "no packet was dropped, held or delayed yet: leaving\n"
    pair.arriving("near", 10)
    assert near("effect", "0.087", **trips) == f"the round trip to {FAR} takes 87 us, and 300 us without the delay\n"
    assert near("effect", "-", **trips) == f"the round trip to {FAR} takes ? us, and 300 us without the delay\n"
    assert near("effect", "50.412", **trips) == near("effect", "-") == "in effect\n"
    assert near("effect", "50.412", **{**trips, "before": "40000"}) == "in effect\n"  # measured under load
    assert near("effect", "44.999", **trips) != "in effect\n" == near("effect", "-", **{**trips, "delay": "0"})
    reading = json.loads(near("reading", "50.412", **trips))
    trip = {"before": 300, "in force": 50412}
    assert reading == {"links": {"leaving": 10, "round_trip_us": trip}, "warnings": []}
    assert json.loads(near("reading", "-", **trips))["links"]["round_trip_us"]["in force"] is None


def test_a_round_trip_is_measured_before_the_delay(pair: Pair) -> None:
    look = script_text("links", action="look", table=TABLE, peers=f"10.9.0.7 {FAR}", leaf="netem delay 50000us")
    answers = f"ping() {{ case $* in *{FAR}) echo '{RTT['iputils'].format('0.040')}' ;; esac; }}\n"
    assert pair.run("near", answers + look).stdout.splitlines()[-1] == f"ping {FAR} 40"
    assert "ping" not in pair.run("near", f"ping() {{ return 127; }}\n{look}").stdout


@pytest.mark.parametrize(("speed", "refused"), [("1000", True), ("1001", False), ("-1", False), ("", False)])
def test_a_rate_that_is_no_limit_is_refused(speed: str, refused: bool) -> None:
    kind, scene = make("rate", {"rate": 125e6}), scene_of(links=f"dev eth0 {speed}\n")
    targets = Targets(("node1",), osd_names(scene.on_node("node1")), ("node1",))
    if refused:
        with pytest.raises(FaultError, match=r"^node1: rate: .* would limit nothing on eth0, which is not faster$"):
            kind.steps(scene, targets)
    else:
        assert kind.steps(scene, targets)


@pytest.mark.parametrize(("delay", "limit", "warned"), [(0.001, "1000", []), (0.0009, "0", ["a delay below 1 ms"])])
def test_a_delay_that_no_round_trip_shows_is_named(delay: float, limit: str, warned: Any) -> None:
    kind, scene = make("delay", {"delay": delay}), scene_of(links="dev eth0 1000\nping 10.0.0.2 300\n")
    (step,) = kind.steps(scene, Targets(("node1",), osd_names(scene.on_node("node1")), ("node1",)))
    assert f"before=300; delay={limit}\n" in step.took[0].text
    assert [text.split(":")[0] for text in kind.warnings()] == warned


@pytest.mark.parametrize("trip", ["", "ping 10.0.0.2 300\n"])
def test_a_delay_that_cannot_be_measured_is_named(trip: str) -> None:
    kind, scene = make("delay", {"delay": 0.05}), scene_of(links=f"dev eth0 1000\n{trip}")
    (step,) = kind.steps(scene, Targets(("node1",), osd_names(scene.on_node("node1")), ("node1",)))
    effect, reading, *_ = step.took
    assert ("ping=10.0.0.2; before=300; delay=50000" in effect.text) is bool(trip) and reading.reading == "links"
    assert [text.split(":")[0] for text in kind.warnings()] == ([] if trip else ["node1"])


class LinkNodes(Connections):
    """Nodes on which every fault of links is in effect at once, and undone at once."""

    def play(self, node: str, text: str) -> Result:
        replies = {
            "ip -o addr": f"10.0.0.{node[-1]}\n",
            "echo possible": "possible\n",
            "action=arm": "armed process 1 2\n",
            "echo disarmed": "disarmed\n",
            "action=look": "dev eth0 1000\nping 10.0.0.2 200\n",
            "action=unset_seen": "recovered\n",
            "action=effect": "in effect\n",
            "action=reading": '{"links": {}}',
        }
        if not any(word in text for word in (*replies, "table=", "action=disarm")):
            return super().play(node, text)
        return Result(next((reply for word, reply in replies.items() if word in text), ""), "", 0)


@pytest.mark.parametrize(("kind", "left"), [("stop", (0, 1)), ("out", (1, 0))])
def test_the_undo_of_a_delay_leaves_out_osds_that_another_fault_has(
    kind: str, left: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    world = LinkNodes(hosts=4, per_host=3)
    osds = world.state["osds"]
    made = injector(tmp_path, world)
    made.acquire()
    made.inject(Fault("slow", "delay", ("node1", "node2"), options={"delay": 0.05}, accept=ANYTHING))
    made.inject(Fault("gone", kind, ("osd.0",), accept=ANYTHING))
    for osd in ("0", "1", "3"):  # have ended because of the delay, also on the node of the fault
        osds[osd].update(up=0, unit="inactive")
    for osd in ("2", "4"):
        osds[osd].update(**{"in": 0})
    world.fail.append("osd in 1")
    (still,) = made.undo(["slow"])  # its commands are for an undo by hand
    by_hand = "\n".join(still.commands)
    assert ("ceph-osd@0.service" in by_hand) is (kind == "out") and "osd in 0" not in by_hand
    assert all(text in by_hand for text in ("ceph-osd@1.service", "osd in 1", "osd in 2", "ceph-osd@3.service"))
    assert "osds.osd=0.in" not in by_hand and ("osds.osd=0.up" in by_hand) is (kind == "out")
    world.fail.clear()
    assert made.undo(["slow"]) == []
    assert "slow: the undo leaves out `in` of osd.0, which the undo of gone restores" in caplog.text
    assert world.differences() == {"osd.0"} and [record.label for record in made.open_changes] == ["gone"]
    assert (osds["0"]["up"], osds["0"]["in"]) == left
    assert made.undo(["gone"]) == [] and world.differences() == set()
    made.inject(Fault("again", "delay", ("node1",), options={"delay": 0.05}, accept=ANYTHING))
    osds["1"].update(**{"in": 0})
    assert made.undo(["again"]) == [] and world.differences() == set()


def test_a_partition_is_undone_after_the_fault_that_had_an_osd_of_the_far_side_out(tmp_path: Path) -> None:
    """Its check must not want the OSD out for good; an undo before that of the other fault leaves it out."""
    world = LinkNodes(hosts=4, per_host=2)
    made = injector(tmp_path, world)
    made.acquire()
    accept = (*ANYTHING, "quorum", "head", "mgr")
    cut = Fault("cut", "partition", ("node1", "node2", "node3"), options={"peers": ["node4"]}, accept=accept)
    for first, second in (("gone", "cut"), ("cut", "gone")):
        made.inject(Fault("gone", "out", ("osd.7",), accept=accept))
        assert 7 in made.inject(cut, wait=False).taken.osds
        assert made.undo([first]) == [] and (world.state["osds"]["7"]["in"] == 1) is (first == "gone")
        assert made.undo([second]) == [] and world.differences() == set()


def test_a_part_that_fails_keeps_none_from_being_done_and_fails_the_command(tmp_path: Path) -> None:
    parts = tuple(((osd, "up"), text) for osd, text in enumerate(("true", "exit 3", f"touch {tmp_path}/done; exit 0")))
    left = Command("node1", "all", parts=parts).without({(0, "up")})
    assert left is not None and subprocess.run(["sh", "-c", left.text], check=False).returncode == 1
    assert (tmp_path / "done").exists()
