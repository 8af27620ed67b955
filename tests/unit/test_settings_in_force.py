"""Settings that daemons say they run with, and the limits of the commands that set them."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any, Dict, List, Mapping, Tuple, cast

import pytest
from faults_world import CLUSTER, Connections, injector

from cbt_plugins.cluster.ceph import Ceph, CommandTimes
from cbt_plugins.cluster.remote import Result
from cbt_plugins.faults import FaultError, Injector, settings_in_force
from cbt_plugins.faults.cluster_facts import Facts
from cbt_plugins.faults.pool_settings import PoolMaker
from cbt_plugins.faults.scene import ClusterLimits
from cbt_plugins.faults.settings_in_force import daemons_of, needs_restart, not_in_force
from cbt_plugins.plan import RunPool, Settings

NINE = ("osd", "osd_max_backfills", "9")


@pytest.fixture
def world() -> Connections:
    return Connections()


def ceph(world: Connections) -> Ceph:
    remote: Any = world
    return Ceph(remote, CLUSTER)


def shows(world: Connections, **values: str) -> None:
    """What daemons run with, whatever the monitors store: osd_2 is osd.2."""
    usual = world.world.ceph_config_show

    def show(who: str, name: str) -> Any:
        said = values.get(who.replace(".", "_"))
        return (said + "\n" if said else "", "", 0) if said is not None else usual(who, name)

    world.world.ceph_config_show = show


def applied(tmp_path: Path, world: Connections, *config: Tuple[str, str, str], **more: Any) -> Injector:
    made = injector(tmp_path, world, Settings(config=config), **more)
    made.acquire()
    made.apply()
    return made


def test_each_command_has_a_limit_of_its_own(tmp_path: Path, world: Connections) -> None:
    made = applied(tmp_path, world, NINE, ("osd", "osd_max_scrubs", "2"), ("mon", "x", "1"))
    (record,) = made.open_changes
    assert [(len(its), {c.timeout for c in its}) for its in (record.step.inject, record.step.undo)] == [(3, {30.0})] * 2
    assert made.undo_all() == [] and world.differences() == set()


def test_a_limit_grows_with_the_time_that_commands_take() -> None:
    times = CommandTimes()
    assert times.limit(30.0) == 30.0
    times.add(2.0, cut=False)
    assert times.limit(30.0) == 30.0
    times.add(8.0, cut=False)
    assert times.limit(30.0) == 80.0
    for _ in range(CommandTimes.REMEMBERED):
        times.add(0.5, cut=False)
    assert times.limit(30.0) == 30.0
    for expected in (60.0, 120.0, 240.0, 300.0, 300.0):  # each that hit its limit doubles the next one's
        times.add(times.limit(30.0), cut=True)
        assert times.limit(30.0) == expected
    assert times.limit(600.0) == 600.0


def test_the_clusters_commands_teach_the_limit(world: Connections) -> None:
    limits: List[float] = []

    def run(nodes: Any, command: str, timeout: float = 60.0, check: bool = True) -> Dict[str, Result]:
        limits.append(timeout)
        return {nodes[0]: Result("", "", 124)}

    world.run = run  # type: ignore[method-assign, assignment]
    its = ceph(world)
    for _ in range(3):
        assert its.run("ceph status", 30.0).status == 124
    its.run("radosgw-admin bucket rm", 3600.0)  # it is work, and teaches nothing
    its.run("ceph status", 30.0)
    assert limits == [30.0, 60.0, 120.0, 3600.0, 240.0]


def test_a_value_counts_when_the_daemons_run_with_it(tmp_path: Path, world: Connections) -> None:
    shows(world, osd_2="4")
    with pytest.raises(FaultError, match=r"osd\.2: osd_max_backfills is 4, not 9; a ceph\.conf on the node"):
        applied(tmp_path, world, NINE)
    assert world.differences() == set()


def test_a_daemon_may_take_some_time(tmp_path: Path, world: Connections) -> None:
    usual, asked = world.world.ceph_config_show, []

    def show(who: str, name: str) -> Any:
        asked.append(who)
        return ("4\n", "", 0) if len(asked) < 10 else usual(who, name)

    world.world.ceph_config_show = show
    made = applied(tmp_path, world, NINE)
    assert asked[-4:] == ["osd.0", "osd.1", "osd.2", "osd.3"] and made.undo_all() == []


def test_what_is_said_of_fewer_daemons_wins(world: Connections) -> None:
    shows(world, osd_0="9", osd_1="5", osd_2="9", osd_3="9")
    assert not_in_force(ceph(world), [("osd.1", "osd_max_backfills", "5"), NINE], 30.0) == []
    (wrong,) = not_in_force(ceph(world), [NINE], 30.0)
    assert str(wrong) == "osd.1: osd_max_backfills is 5, not 9"


def test_daemons_with_one_value_are_told_together(world: Connections) -> None:
    (wrong,) = not_in_force(ceph(world), [NINE], 30.0)
    assert str(wrong) == "osd.0, osd.1, osd.2 and 1 more: osd_max_backfills is 4, not 9"


def test_an_osd_that_is_down_is_not_asked(world: Connections) -> None:
    world.state["osds"]["2"]["up"] = 0
    shows(world, osd_2="4")
    world.world.ceph_config_set(*NINE)
    assert not_in_force(ceph(world), [NINE], 30.0) == []


def test_a_daemon_that_says_nothing_is_told(world: Connections) -> None:
    """Also where `ceph` passes no input on: each is asked by itself."""
    shows(world, osd_3="")
    usual, asked = world.run, []

    def run(nodes: Any, command: str, timeout: float = 60.0, check: bool = True) -> Dict[str, Result]:
        if not command.startswith("echo"):
            return usual(nodes, command, timeout, check)
        asked.append(command)
        return {nodes[0]: Result("".join(f"cbt-plugins: {value}\n" for value in ("9", "9", "9", "")), "", 0)}

    world.run = run  # type: ignore[method-assign]
    (wrong,) = not_in_force(ceph(world), [NINE], 30.0)
    assert str(wrong) == "osd.3: osd_max_backfills is unknown, not 9"
    assert asked[0].count("config show osd.") == 4


@pytest.mark.parametrize(
    ("option", "who"), [("osd_op_num_shards", "osd"), ("rgw_thread_pool_size", "client.rgw.rgw1")]
)
def test_what_is_read_at_the_start_is_refused_before_it_is_set(
    tmp_path: Path, world: Connections, option: str, who: str
) -> None:
    """Ceph says itself that the second can be changed at runtime."""
    with pytest.raises(FaultError, match=rf"{option} is .*, not 600: daemons read this option only at their start"):
        applied(tmp_path, world, (who, option, "600"))
    assert not any("config set" in text for _, text in world.said)
    shows(world, **{"osd_0": "600", "osd_1": "600", "osd_2": "600", "osd_3": "600", "rgw_4114": "600"})
    assert needs_restart(ceph(world), [(who, option, "600")], 30.0) == []


def facts() -> Facts:
    nodes = [
        {"id": -1, "name": "default", "type": "root", "children": [-2, -3]},
        {"id": -2, "name": "node1", "type": "host", "children": [0, 1]},
        {"id": -3, "name": "node2", "type": "host", "children": [2]},
        *({"id": n, "name": f"osd.{n}", "type": "osd", "device_class": "hdd" if n else "ssd"} for n in range(3)),
    ]
    gateways = {key: {"metadata": {"id": id}} for key, id in (("41", "a"), ("42", "a.host.xyz"), ("43", "b"))}
    answers: Mapping[str, Any] = {
        "osd dump": {"osds": [{"osd": n, "up": 1} for n in range(3)]},
        "osd tree": {"nodes": nodes},
        "osd metadata": [],
        "quorum_status": {"quorum_names": ["x", "y"]},
        "mgr stat": {"active_name": "m"},
        "service dump": {"services": {"rgw": {"daemons": {"summary": "", **gateways}}}},
    }
    return Facts(answers)


def test_thousands_of_questions_fit_into_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    """Linux takes 128 KiB as an argument; and a daemon that says nothing costs those of its own command alone."""
    each: List[str] = []

    def run(command: str, timeout: float) -> Result:
        assert len(command) < 128 << 10
        questions = re.findall(r"config show (osd\.\d+) osd_max_backfills", command)
        if command.startswith("echo"):
            each.extend(questions)
            return Result("".join(f"cbt-plugins: {'' if osd == 'osd.7' else 9}\n" for osd in questions), "", 0)
        return Result("".join("9\n" for osd in questions if osd != "osd.7"), "", 0)

    ceph = Ceph(cast(Any, None), {"head": "node0", "ceph_cmd": "sudo cephadm shell -- ceph"})
    monkeypatch.setattr(ceph, "run", run)
    said = settings_in_force.shown_values(ceph, [(f"osd.{osd}", "osd_max_backfills") for osd in range(5000)], 30.0)
    assert len(said) == 5000 and [osd for osd, value in enumerate(said) if value != "9"] == [7]
    assert 1 < len(each) < 1000


@pytest.mark.parametrize(
    ("who", "daemons"),
    [
        ("osd", "osd.0 osd.1 osd.2"),
        ("osd.1", "osd.1"),
        ("osd/class:hdd", "osd.1 osd.2"),
        ("osd/host=node1", "osd.0 osd.1"),
        ("osd/root:default", "osd.0 osd.1 osd.2"),
        ("mon", "mon.x mon.y"),
        ("mon.y", "mon.y"),
        ("mgr", "mgr.m"),
        ("client", "rgw.41 rgw.42 rgw.43"),
        ("client.rgw", "rgw.41 rgw.42 rgw.43"),
        ("client.rgw.a", "rgw.41 rgw.42"),
        ("client.b", "rgw.43"),
        ("client.fio", ""),
        ("global", "osd.0 osd.1 osd.2 mon.x mon.y mgr.m rgw.41 rgw.42 rgw.43"),
    ],
)
def test_the_daemons_of_a_section(who: str, daemons: str) -> None:
    assert list(daemons_of(facts(), who)) == daemons.split()


def test_a_gateway_that_was_restarted_is_asked_as_its_new_instance() -> None:
    """The old one stays in the map of services for a minute, and tells nothing."""
    its = facts()
    rows = its.answers["service dump"]["services"]["rgw"]["daemons"]
    for key, host in (("99", "node1"), ("100", "node1"), ("101", "node2")):
        rows[key] = {"gid": int(key), "metadata": {"id": "c", "hostname": host}}
    assert list(daemons_of(its, "client.c")) == ["rgw.100", "rgw.101"]


# ---- pools that go or come during the run ----


def test_what_was_set_of_a_pool_that_is_gone_is_undone(
    tmp_path: Path, world: Connections, caplog: pytest.LogCaptureFixture
) -> None:
    made = injector(tmp_path, world, Settings(autoscaler=False))
    made.acquire()
    made.apply()
    world.state["pools"] = [pool for pool in world.state["pools"] if pool["pool_name"] != "data"]
    del world.state["autoscale"]["data"]
    play = world.world.ceph_osd_pool_set
    gone = ("", "Error ENOENT: unrecognized pool 'data'", 2)
    world.world.ceph_osd_pool_set = lambda pool, *rest: gone if pool == "data" else play(pool, *rest)
    world.fail = ["osd dump"]  # no reply says nothing of a pool
    (left,) = made.undo_all()
    assert "could not parse the reply" in str(left)
    world.fail = []
    assert made.undo_all() == []
    assert world.state["autoscale"] == {"rbd": "on"}
    assert "pool_name=data no longer exists, so its former values cannot be restored" in caplog.text
    assert not [r for r in made.records if r["event"] == "overwritten"]


@pytest.mark.parametrize(
    ("pool", "number_and_kind"),
    [
        (RunPool("a", replicas=3), "1 1 replicated --autoscale-mode=on"),
        (RunPool("a", ec=(2, 1), bulk=True), "1 1 erasure cbtp-r1-a cbtp-r1-a --autoscale-mode=on"),
        (RunPool("a", replicas=3, pg_num=8, rule="ssd"), "8 8 replicated ssd --autoscale-mode=off"),
    ],
)
def test_a_new_pool_has_both_numbers(pool: RunPool, number_and_kind: str) -> None:
    """Without them Ceph makes 1 PG, and refuses the osd_pool_default_pgp_num of a ceph.conf if that is more."""

    class Empty:
        head, command = "node0", "ceph"

        @staticmethod
        def json(question: str, timeout: float) -> Any:
            return ["ssd"] if question == "osd crush rule ls" else []

    ceph: Any = Empty()
    ((_, make),) = PoolMaker(ceph, ClusterLimits(), "r1").parts([pool])
    (command,) = make().inject
    assert f"ceph osd pool create cbtp-r1-a {number_and_kind} && " in command.text


def test_what_was_set_of_a_pool_of_others_is_undone_with_it(tmp_path: Path) -> None:
    former = {"compression_mode": "force"}

    class Known:
        head, command = "node0", "ceph"

        @staticmethod
        def json(question: str, timeout: float) -> Any:
            return {"bulk": True} if "get" in question else [{"pool_name": "rbd", "options": former}]

    ceph: Any = Known()
    options = (("compression_mode", "passive"),)
    pool = RunPool("rbd", existing=True, bulk=False, options=options)
    ((_, make),) = PoolMaker(ceph, ClusterLimits(), "r1").parts([pool])
    rows, bulk = make().checks
    assert rows.differs(json.dumps([{"pool_name": "rbd", "options": former}])) is None
    ours = json.dumps([{"pool_name": "rbd", "options": dict(options)}])
    assert "is 'passive', not 'force'" in str(rows.differs(ours))
    assert rows.differs(json.dumps([{"pool_name": "data", "options": {}}])) is None
    assert rows.missing_entries("[]") == ["pool_name=rbd"] and rows.differs("null") is not None
    says, answers = tmp_path / "ceph", {"osd pool ls": "rbd", "osd pool get": '{"pool": "rbd", "bulk": true}'}
    told = [({**answers}, None), ({**answers, "osd pool get": '{"pool": "rbd", "bulk": false}'}, "False, not True")]
    told += [({"osd pool ls": "data"}, None), ({"osd pool ls": "rbd"}, "parse"), ({}, "parse")]
    for known, why in told:
        cases = "".join(f"'{question}'*) echo '{reply}';; " for question, reply in known.items())
        says.write_text(f'#!/bin/sh\ncase "$*" in {cases} *) exit 1;; esac\n')
        says.chmod(0o755)
        environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
        done = subprocess.run(["sh", "-c", bulk.text], env=environment, capture_output=True, text=True, check=False)
        found = bulk.differs(done.stdout)
        assert found is None if why is None else why in str(found), known


def test_pools_that_come_later_are_looked_at_again(tmp_path: Path, world: Connections) -> None:
    made = injector(tmp_path, world, Settings(autoscaler=False, flags=("noscrub",)))
    made.acquire()
    made.apply()
    world.state["pools"].append({**world.state["pools"][0], "pool": 9, "pool_name": "rgw"})
    world.state["autoscale"]["rgw"] = world.first["autoscale"]["rgw"] = "on"
    made.apply(Settings(autoscaler=False))
    assert world.state["autoscale"]["rgw"] == "off"
    records = len(made.open_changes)
    made.apply(Settings(autoscaler=False))
    assert len(made.open_changes) == records
    assert made.undo_all() == [] and world.differences() == set()
