"""The parts of a fault: steps as data, daemons, targets, kinds."""

from __future__ import annotations

import base64
import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Iterator, List, Optional

import pytest
from faults_world import ANYTHING, CLUSTER, MADE, Connections, injector

from cbt_plugins.cluster.ceph import Ceph, json_values
from cbt_plugins.config import plugins
from cbt_plugins.config.fault import kind_class
from cbt_plugins.faults import FaultError, Injector, Prepared, preview
from cbt_plugins.faults.cluster_access import read
from cbt_plugins.faults.cluster_facts import DaemonName, osd_names
from cbt_plugins.faults.cluster_lock import started
from cbt_plugins.faults.kind import Kind
from cbt_plugins.faults.scene import ClusterLimits, Scene
from cbt_plugins.faults.service_managers import DaemonProcess, Service, daemon_of, kill, services_from_probe
from cbt_plugins.faults.service_managers import signal as send_signal
from cbt_plugins.faults.step import Check, Command, Step, agrees, equals, find
from cbt_plugins.plan import Fault, Settings

# ---- steps as data ----


def test_a_step_survives_its_journal() -> None:
    check = Check("n", "ceph osd dump", ((("osds", {"osd": 3}, "up"), 1), (("flags_set", {"=": "noout"}), None)), 5.0)
    command = Command("n", "x", 3.0, True, ("NAME",))
    step = Step("what", "n", (command,), (command,), (check,), (check,), {"a": [1]}, ("osd.3", "rgw.a"), command, 9.0)
    assert Step.parse(json.loads(json.dumps(step.plain()))) == step
    assert step.osds == (3,)


def test_a_step_of_an_older_journal_is_read() -> None:
    check, command = Check("n", "echo there", (((), "there"),)), Command("n", "x")
    plain = json.loads(json.dumps(Step("what", "n", (command,), (command,), (check,)).plain()))
    for name in ("lapses", "refused"):
        del plain["checks"][0][name]
    assert Step.parse(plain).counting(1e9, False) == (check,)


def test_checks_read_answers() -> None:
    dump = {"osds": [{"osd": 2, "up": 0}, {"osd": 3, "up": 1, "weight": 0.800003}], "flags_set": ["noout"]}
    assert find(dump, ("osds", {"osd": 3}, "up")) == 1
    assert find(dump, ("osds", {"osd": 9}, "up")) is None
    assert find(dump, ("flags_set", {"=": "noout"})) is True
    assert find(dump, ("flags_set", {"=": "noup"})) is None
    assert find(dump, ("osds", "up", {"osd": 1})) is None
    another = Check("n", "x", (((), {"not": "boot-1"}),))
    assert another.differs("boot-2\n") is None
    assert another.differs("boot-1\n") == "the reply is 'boot-1', not anything but 'boot-1'"
    assert another.differs("")  # no answer is no other boot
    assert equals(0.800003, 0.8) and not equals(0.81, 0.8) and not equals(None, 0) and not equals("1", 1)
    check = Check("n", "ceph osd dump", ((("osds", {"osd": 2}, "up"), 1),))
    assert check.differs(json.dumps(dump)) == "osds.osd=2.up is 0, not 1"
    assert "could not parse the reply" in str(check.differs(""))
    assert Check("n", "x", (((), "whole"),)).differs("whole\n") is None
    assert Check("n", "x", (((), "whole"),)).differs("") == "the reply is '', not 'whole'"


@pytest.mark.parametrize(
    ("shown", "given", "agree"),
    [
        ("true", "1", True),
        ("true", "True", True),
        ("false", "1", False),
        ("true", "false", False),
        ("4194304", "4M", True),
        ("4000000", "4M", True),
        ("4000000", "4Mi", False),
        ("8388608", "4M", False),
        ("0.500000", "0.5", True),
        ("0.600000", "0.5", False),
        ("10", "3", False),
        ("high_recovery_ops", "balanced", False),
        ("wpq", " WPQ", True),
        ("20/20", "20", True),
        ("600", "10m", True),
        ("v1:10.0.0.1:0/0", "10.0.0.1", True),
    ],
)
def test_ceph_writes_values_in_words_of_its_own(shown: str, given: str, agree: bool) -> None:
    assert agrees(shown, given) is agree
    assert equals(shown, {"like": given}) is agree and not equals(None, {"like": given})


def test_many_answers_in_one_text() -> None:
    assert json_values('\n{"a":\n 1}\n\n0.750000\n\n[1]\nError: no') == [{"a": 1}, 0.75, [1]]


# ---- daemons ----


def line(pid: int, *argv: str) -> str:
    words, around = chr(0).join([*argv, ""]).encode(), b"0 0\n/\n"
    coded = " ".join(base64.b64encode(part).decode() for part in (words, around))
    return f"process {argv[0].rpartition('/')[2]} {pid} 77 1024 {coded}\n"


def run_by(*daemons: str, answer: str, manager: str = "") -> List[Service]:
    return list(services_from_probe("n", [DaemonName.parse(name) for name in daemons], answer, manager).values())


FSID = "35488bad-fc53-478d-bd88-f0c5b5e8aaa0"


def test_how_daemons_are_run_is_found_out() -> None:
    answer = (
        "unit osd.1 ceph-osd@1.service active\n"
        f"unit osd.2 ceph-{FSID}@osd.2.service active\n"
        "unit osd.3 ceph-osd@3.service inactive\n"
        "unit osd.5 ceph-osd@5.service failed\n"
        "unit rgw.a ceph-radosgw@rgw.a.service active\n"
        + line(11, "/usr/bin/ceph-osd", "-f", "--cluster", "ceph", "--id", "1")
        + line(12, "/usr/bin/ceph-osd", "-n", "osd.2", "-f")
        + line(13, "ceph-osd", "-c", "/tmp/ceph.conf", "-i", "3", "--pid-file=/run/osd.3.pid")
        + line(14, "ceph-osd", "-i", "30")
        + line(15, "radosgw", "-n", "client.rgw.b")
    )
    found = run_by("osd.1", "osd.2", "osd.3", "rgw.a", "rgw.b", answer=answer)
    assert [one.manager for one in found] == ["systemd", "cephadm", "process", "systemd", "process"]
    assert found[1].unit == f"ceph-{FSID}@osd.2.service"
    assert [one.process and one.process.pid for one in found] == [11, 12, 13, None, 15]
    assert run_by("osd.2", answer=answer, manager="systemd")[0].manager == "systemd"
    assert run_by("osd.5", answer=answer)[0].unit == "ceph-osd@5.service"
    with pytest.raises(FaultError, match=r"osd\.2 is run by ceph-.*@osd\.2\.service on n"):
        run_by("osd.2", answer=answer, manager="process")
    with pytest.raises(FaultError, match=r"ceph-osd@1\.service on n is not a unit of cephadm"):
        run_by("osd.1", answer=answer, manager="cephadm")
    with pytest.raises(FaultError, match=r"osd\.3 is not a unit of systemd on n"):
        run_by("osd.3", answer=answer, manager="systemd")
    with pytest.raises(FaultError, match=r"osd\.4 does not run"):
        run_by("osd.4", answer=answer)
    with pytest.raises(FaultError, match=r"2 processes of osd\.3, but there must"):
        run_by("osd.3", answer=answer + line(99, "ceph-osd", "-i", "3"))


def test_a_unit_of_another_cluster_on_the_host_does_not_count() -> None:
    """It has the name of our daemon: a stop of it would be the other cluster's."""
    other = FSID.replace("35488bad", "12345678")
    ours, others = (f"unit osd.2 ceph-{fsid}@osd.2.service active\n" for fsid in (FSID, other))
    (service,) = services_from_probe("n", osd_names([2]), ours + others, fsid=FSID).values()
    assert service.unit == f"ceph-{FSID}@osd.2.service"
    with pytest.raises(FaultError, match="does not run as a process"):
        services_from_probe("n", osd_names([2]), others, fsid=FSID)


@pytest.mark.parametrize(
    ("argv", "name"),
    [
        (["ceph-osd", "-i", "3"], "osd.3"),
        (["ceph-osd", "-i3"], "osd.3"),
        (["ceph-osd", "--id=12"], "osd.12"),
        (["ceph-osd", "--name", "osd.4"], "osd.4"),
        (["ceph-osd", "-n", "osd.4"], "osd.4"),
        (["ceph-osd", "-i", "x"], None),
        (["ceph-osd", "--id"], None),
        (["ceph-osd", "-c", "-i.conf"], None),
        (["ceph-mon", "-i", "node1"], "mon.node1"),
        (["ceph-mgr", "-n", "mgr.x.y"], "mgr.x.y"),
        (["radosgw", "-n", "client.rgw.realm.zone.host.abc"], "rgw.realm.zone.host.abc"),
        (["radosgw", "--id", "rgw.a"], "rgw.a"),
        (["radosgw", "--name=client.radosgw.a"], "rgw.radosgw.a"),
        (["other", "-i", "3"], None),
    ],
)
def test_the_daemon_of_a_process(argv: List[str], name: Optional[str]) -> None:
    assert daemon_of(argv[0], argv) == (name and DaemonName.parse(name))


def test_only_the_process_that_was_meant_is_killed() -> None:
    """A pid that another process has by now is left alone, and what follows, `systemctl stop`, does not happen."""
    sleepers = [subprocess.Popen(["sleep", "1000"]) for _ in range(2)]

    def kill_them(later: int) -> Any:
        begun = [started(sleeper.pid) or 0 for sleeper in sleepers]
        known = [(sleepers[0].pid, begun[0]), (sleepers[1].pid, begun[1] + later)]
        text = send_signal("KILL", [DaemonProcess(pid, start, 0, ()) for pid, start in known])
        return subprocess.run(["sh", "-c", f"{text}\necho stopped"], capture_output=True, text=True, timeout=600)

    try:
        refused = kill_them(later=1)
        assert (refused.returncode, refused.stdout) == (3, "")
        assert f"process {sleepers[1].pid} " in refused.stderr
        assert [sleeper.poll() for sleeper in sleepers] == [None, None]  # none without the other
        assert kill_them(later=0).stdout == "stopped\n"
        assert [sleeper.wait(600) for sleeper in sleepers] == [-signal.SIGKILL] * 2
    finally:
        for sleeper in sleepers:
            sleeper.kill()
            sleeper.wait()


@pytest.mark.parametrize(
    ("client", "name"), [("rgw.a", "rgw.a"), ("foo", "rgw.foo"), ("radosgw.gw1", "rgw.radosgw.gw1")]
)
@pytest.mark.parametrize("is_unit", [True, False], ids=["systemd", "process"])
def test_a_gateway_is_killed_whatever_client_of_the_cluster_it_is(client: str, name: str, is_unit: bool) -> None:
    """ceph-deploy made client.radosgw.NAME. Of a name, the service map lacks `client.rgw.` or `client.`, no more."""
    unit = f"unit {name} ceph-radosgw@{client}.service active\n" if is_unit else ""
    (gateway,) = run_by(name, answer=unit + line(7, "radosgw", "-f", "--name", f"client.{client}"))
    assert gateway.manager == ("systemd" if is_unit else "process")
    (command,) = kill(Scene(ANYTHING, ANYTHING, (), "r1", ClusterLimits()), [gateway])
    assert "processes=7:77" in command.text


def test_nothing_is_killed_that_is_not_seen() -> None:
    scene: Any = None
    with pytest.raises(FaultError, match="nothing to kill"):
        kill(scene, run_by("osd.1", answer="unit osd.1 ceph-osd@1.service active\n"))


# ---- targets, options, kinds ----


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Injector]:
    one = injector(tmp_path, Connections(hosts=4, per_host=2))
    one.acquire()
    yield one
    while MADE:
        MADE.pop().close()


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (Fault("f", "stopp", ("node1",)), "unknown kind of fault 'stopp'.*did you mean 'stop'"),
        (Fault("f", "stop", ("node1",), options={"deamons": "x"}), r"options\.deamons: unknown key"),
        (Fault("f", "stop", ("node1",), options={"service_manager": "x"}), "be systemd or cephadm or rook or process"),
        (Fault("f", "stop"), "no targets: name targets"),
        (Fault("f", "stop", ("node9",)), "node9 is not a node of `cluster:` with osd daemons; nodes with"),
        (Fault("f", "stop", ("node0",)), "node0 is not a node of `cluster:` with osd daemons"),
        (Fault("f", "stop", ("osd.9",)), r"the cluster has no osd\.9"),
        (Fault("f", "out", ("node1",)), "out hits osd daemons"),
        (Fault("f", "reboot", ("osd.1",)), "reboot hits whole nodes"),
        (Fault("f", "stop", choose=5), "need 5 healthy nodes, found 4: node1, node2"),
        (Fault("f", "stop", choose=9, choose_of="osd"), "need 9 healthy osd daemons, found 8"),
        (Fault("f", "out", choose=1, choose_of="node"), "out hits osd daemons, not node"),
        (Fault("f", "out", choose=9), "need 9 healthy osd daemons, found 8"),
        (Fault("f", "replace", ("osd.1",)), "give the option consent: 'osd.1 will be destroyed', word for word"),
        (
            Fault("f", "replace", ("osd.1",), options={"consent": "osd.2 will be destroyed"}),
            "word for word",
        ),
        (Fault("f", "network", ("node1",)), "needs the option interfaces"),
        (Fault("f", "network", ("node1",), options={"method": "x"}), "method: must be link or nft"),
        (Fault("f", "network", ("node1",), options={"deadline": 1}), "deadline: must be 5s to 7d"),
        (Fault("f", "power", ("node1",), options={"off": "x"}), "needs the option on"),
        (
            Fault("f", "power", ("node1",), options={"off": "x", "on": "y", "secrets": ["CBT_NO_SUCH"]}),
            "not set in the environment: CBT_NO_SUCH",
        ),
    ],
)
def test_what_cannot_be_made_says_why(fault: Fault, message: str, made: Injector) -> None:
    with pytest.raises(FaultError, match=message):
        made.prepare(fault)


@pytest.mark.parametrize("host", ["osd", "osd.lab.local", "osd.9"])
def test_a_node_may_be_called_as_a_type_of_daemons(host: str, tmp_path: Path) -> None:
    """osd.3 is the daemon, wherever it is, and never all that runs on a node named osd."""
    world = Connections(hosts=4, per_host=2)
    world.state["links"][host] = True
    for osd in world.state["osds"].values():
        osd["host"] = host if osd["host"] == "node1" else osd["host"]
    one = injector(tmp_path, world, cluster={**CLUSTER, "osds": [host, "node2", "node3", "node4"]})
    (step,) = one.prepare(Fault("f", "stop", ("osd.3",))).steps
    assert (step.node, step.osds) == ("node2", (3,))
    (step,) = one.prepare(Fault("f", "stop", (host,))).steps
    assert (step.node, step.osds) == (host, (0, 1))
    assert one.prepare(Fault("f", "out", ("osd.0",))).targets.osds == (0,)
    with pytest.raises(FaultError, match=r"the cluster has no osd\.77"):
        one.prepare(Fault("f", "stop", ("osd.77",)))
    MADE.pop().close()


def test_choices_leave_out_what_is_taken_or_broken(tmp_path: Path) -> None:
    world = Connections(hosts=4, per_host=2)
    world.state["osds"]["6"]["up"] = 0
    one = injector(tmp_path, world)
    one.acquire()
    one.inject(Fault("a", "stop", ("node1",), accept=ANYTHING))
    chosen = [
        one.prepare(Fault("b", "stop", choose=1, seed=seed, accept=ANYTHING)).targets.named[0] for seed in range(20)
    ]
    assert set(chosen) == {"node2", "node3"}
    assert chosen[3] == one.prepare(Fault("b", "stop", choose=1, seed=3)).targets.named[0]
    with pytest.raises(FaultError, match=r"osd\.0, osd\.1: already hit by another open fault"):
        one.prepare(Fault("c", "stop", ("node1",)))
    with pytest.raises(FaultError, match=r"osd\.6: already down"):
        one.prepare(Fault("c", "stop", ("node4",)))
    MADE.pop().close()


def test_all_osds_of_a_node_are_one_step(made: Injector) -> None:
    (step,) = made.prepare(Fault("f", "stop", ("node2",))).steps
    assert step.osds == (2, 3)
    assert step.inject[0].text == "systemctl stop ceph-osd@2.service ceph-osd@3.service"
    assert step.inject[0].root and step.undo[0].root
    assert step.undo[1].text.endswith("osd in 2 3")
    (step,) = made.prepare(Fault("f", "stop", ("osd.3",))).steps
    assert step.osds == (3,) and "ceph-osd@2" not in step.inject[0].text


def test_daemons_of_cephadm_are_stopped_and_started_by_their_units(tmp_path: Path) -> None:
    """An order to the orchestrator would begin at a time that nobody knows, and needs a mgr."""
    world, unit = Connections(), f"ceph-{FSID}@osd.0.service"
    world.probe = lambda node, text: f"unit osd.0 {unit} active\n"  # type: ignore[method-assign]
    one = injector(tmp_path, world)
    one.acquire()
    (step,) = one.prepare(Fault("f", "stop", ("osd.0",))).steps
    assert step.former["service_manager"] == "cephadm" and step.inject[0].root and step.undo[0].root
    assert step.inject[0].text == f"systemctl stop {unit}" and step.inject[0].node == step.undo[0].node == "node1"
    assert step.undo[0].text.endswith(f"systemctl start {unit}")
    MADE.pop().close()


def test_what_is_destroyed_must_be_safe_to_destroy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ceph is asked for what a run destroys, also in a plan, and right before it; not for what it only stops."""
    world: Any = Connections()
    monkeypatch.setattr("cbt_plugins.faults.kinds.out_replace.volume_commands", lambda *a: ((), (), {}))
    one = injector(tmp_path, world)
    one.acquire()
    fault = Fault("f", "replace", ("osd.0",), options={"consent": "osd.0 will be destroyed"})
    reason = r"safe-to-destroy: ceph osd safe-to-destroy says no: osd\.0 .*accept: \[safe-to-"
    with pytest.raises(FaultError, match=reason):
        one.ready(fault)
    ((_, planned),) = preview(Ceph(world, CLUSTER), CLUSTER, [(fault, ())])
    assert isinstance(planned, Prepared) and [f.rule for f in planned.refused] == ["safe-to-destroy"]
    ready = one.prepare(fault)
    elsewhere = [{**pg, "up": [1, 2, 3], "acting": [1, 2, 3]} for pg in world.world.pgs()]
    world.world.pgs = lambda: iter(elsewhere)
    assert [f.rule for f in one.ready(ready).refused] == []
    world.said.clear()
    one.prepare(Fault("s", "stop", ("osd.0",)))
    assert not [text for _, text in world.said if "safe-to-destroy" in text]
    MADE.pop().close()


def test_a_kind_of_another_distribution(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made: Injector
) -> None:
    class Blink(Kind):
        takes = "node"

        def steps(self, scene: Any, targets: Any) -> List[Step]:
            command = Command(scene.head, f"{scene.ceph.command} osd set noscrub")
            back = Command(scene.head, f"{scene.ceph.command} osd unset noscrub")
            check = scene.says("osd dump", [(("flags_set", {"=": "noscrub"}), None)], 5.0)
            return [Step("blink", scene.head, (command,), (back,), (check,))]

    package = tmp_path / "blink-1.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Name: blink\nVersion: 1\n")
    (package / "entry_points.txt").write_text("[cbt_plugins.faults]\nblink = blink_kinds:Blink\n")
    (tmp_path / "blink_kinds.py").write_text("Blink = None\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    import blink_kinds

    monkeypatch.setattr(blink_kinds, "Blink", Blink)
    assert {"blink", "stop"} <= set(plugins.names(plugins.FAULTS))
    made.inject(Fault("f", "blink", ("node1",), accept=ANYTHING))
    with pytest.raises(FaultError, match="already hit by another open fault"):  # although its step names no daemons
        made.prepare(Fault("g", "stop", ("node1",)))
    assert made.undo_all() == []


def test_all_built_in_kinds_can_be_made() -> None:
    for name in plugins.built_in(plugins.FAULTS):
        assert issubclass(kind_class(name), Kind)


def test_power_runs_here_and_tells_no_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made: Injector) -> None:
    monkeypatch.setenv("IPMI_PASSWORD", "hunter2")
    say = 'echo "{node}" >> ' + str(tmp_path / "said") + '; echo "no $IPMI_PASSWORD" >&2; exit 1'
    fault = Fault(
        "p", "power", ("node1",), options={"off": say, "on": say, "secrets": "IPMI_PASSWORD"}, accept=ANYTHING
    )
    units = "unit osd.0 a active\nunit osd.1 b active\n"
    monkeypatch.setattr("cbt_plugins.faults.scene.Scene.ask", lambda *a, **k: units)
    with pytest.raises(FaultError, match=r"exit status 1: no \*\*\*"):
        made.inject(fault)
    assert (tmp_path / "said").read_text().split()[0] == "node1"
    assert "hunter2" not in (tmp_path / "undo.jsonl").read_text()


def test_unknown_flags_and_speeds(made: Injector) -> None:
    with pytest.raises(FaultError, match="unknown flag: nofun"):
        made.apply(Settings(flags=("nofun",)))


def test_values_with_masks_are_told_apart(tmp_path: Path) -> None:
    world = Connections()
    world.state["config"].append(["osd", "class:ssd", "osd_max_backfills", "2"])
    world.first["config"].append(["osd", "class:ssd", "osd_max_backfills", "2"])
    one = injector(
        tmp_path, world, Settings(config=(("osd/class:ssd", "osd_max_backfills", "9"),), recovery="aggressive")
    )
    one.acquire()
    one.apply()
    assert ["osd", "class:ssd", "osd_max_backfills", "9"] in world.state["config"]
    assert ["osd", "", "osd_max_backfills", "4"] in world.state["config"]
    one.speed_up_recovery()
    assert ["osd", "class:ssd", "osd_max_backfills", "10"] in world.state["config"]  # it would win over the general one
    assert one.undo_all() == []
    assert world.differences() == set()
    MADE.pop().close()


def test_the_archive_says_how_the_cluster_is_reached(tmp_path: Path, made: Injector) -> None:
    cluster = {**CLUSTER, "mons": {"node0": {"a": "1.2.3.4:6789"}}, "conf_file": "/c", "password": "no"}
    one = injector(tmp_path / "x", Connections(), cluster=cluster) if (tmp_path / "x").mkdir() is None else None
    assert one is not None
    text = (tmp_path / "x" / "cluster.json").read_text()
    assert "password" not in text
    again = read(tmp_path / "x")
    assert again.cluster["mons"] == ["node0"] and again.run_id == "r1"
    assert again.ceph.head == "node0" and again.ceph.command == "ceph -c /c"
    assert again.remote.login("node1") == "ssh root@node1"
    with pytest.raises(FaultError, match="without this file the cluster cannot be reached"):
        read(tmp_path / "nowhere")


def test_faults_import_nothing_above_them() -> None:
    code = "import sys, cbt_plugins.faults; print([m for m in sys.modules if m.startswith('cbt_plugins.')])"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert not any(f"'cbt_plugins.{room}." in loaded for room in ("run", "load", "results", "report", "benchmarks"))


def test_a_plan_is_looked_at_without_a_run() -> None:
    """A fault that comes while another is in force is judged as if that one were."""
    world: Any = Connections()
    before = json.dumps(world.state)
    first, second = Fault("a", "stop", ("node1",)), Fault("b", "stop", choose=1)
    wrong = Fault("c", "stop", ("node1",))
    asked = [(first, ()), (second, ("a",)), (second, ()), (wrong, ("a",))]
    found = [made for _, made in preview(Ceph(world, CLUSTER), CLUSTER, asked)]
    assert isinstance(found[0], Prepared) and found[0].refused == ()
    assert isinstance(found[1], Prepared) and {"inactive", "domain"} <= {f.rule for f in found[1].refused}
    assert found[1].targets.named != ("node1",)
    assert isinstance(found[2], Prepared) and found[2].refused == ()
    assert isinstance(found[3], FaultError)
    assert json.dumps(world.state) == before
