"""What the injector promises, case by case, on a stand-in cluster in memory."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, Dict, List, Mapping, Tuple

import pytest
from faults_world import ANYTHING, SETTINGS, STOP, Connections, Died, injector

from cbt_plugins.cluster.remote import Result
from cbt_plugins.cluster_conditions import OVERWRITTEN
from cbt_plugins.faults import FaultError, Injector
from cbt_plugins.faults.kinds.reboot_power import Power, Reboot
from cbt_plugins.faults.undo_journal import FILE, open_steps_in
from cbt_plugins.journal import JournalInUse
from cbt_plugins.plan import Fault, Settings


def ready(folder: Path, world: Connections, **more: Any) -> Injector:
    made = injector(folder, world, **more)
    made.acquire()
    return made


def test_the_record_is_on_disk_before_the_first_command(tmp_path: Path, world: Connections) -> None:
    made = ready(tmp_path, world)
    play, seen = world.play, []

    def look(node: str, text: str) -> Any:
        if "systemctl stop" in text:
            seen.append([record.step.undo[0].text for record in open_steps_in(tmp_path)])
        return play(node, text)

    world.play = look  # type: ignore[method-assign]
    made.inject(STOP[1])
    assert seen == [["systemctl reset-failed ceph-osd@0.service 2>/dev/null; systemctl start ceph-osd@0.service"]]


def test_what_is_undone_last_was_done_first(tmp_path: Path, world: Connections) -> None:
    events: List[Tuple[str, Mapping[str, Any]]] = []
    made = ready(tmp_path, world, settings=SETTINGS, events=events)
    made.apply()
    made.inject(STOP[1])
    made.inject(STOP[2])
    assert made.undo_all() == []
    undone = [facts["label"] for name, facts in events if name == "fault-undone"]
    assert undone == ["node2", "node1", "recovery", "settings"]
    assert world.differences() == set()


def test_the_events_say_whether_a_fault_ends_by_itself(tmp_path: Path, world: Connections) -> None:
    """An OSD that comes back before its undo is a warning, unless the fault is a reboot."""
    events: List[Tuple[str, Mapping[str, Any]]] = []
    made = ready(tmp_path, world, events=events)
    made.inject(STOP[1])
    begun = {name: facts["returns"] for name, facts in events if name in ("fault-inject-begin", "fault-injected")}
    assert begun == {"fault-inject-begin": False, "fault-injected": False}
    assert Power.lasts and not Reboot.lasts


def test_a_fault_without_an_undo_ends_by_itself(tmp_path: Path, world: Connections) -> None:
    """As the failover of a mgr: nothing of it is in force when the run is resumed."""
    events: List[Tuple[str, Mapping[str, Any]]] = []
    made = ready(tmp_path, world, events=events)
    prepared = made.ready(STOP[1])
    steps = tuple(replace(step, undo=()) for step in prepared.steps)
    made.inject_ready(replace(prepared, steps=steps))
    assert [facts["returns"] for name, facts in events if name == "fault-injected"] == [True]


def test_the_effect_of_a_fault_is_one_event_after_all_its_steps(tmp_path: Path, world: Connections) -> None:
    """None of settings, and none where nothing was asked."""
    events: List[Tuple[str, Mapping[str, Any]]] = []
    made = ready(tmp_path, world, settings=SETTINGS, events=events)
    made.apply()
    both = Fault("both", "stop", ("node1", "node2"), accept=ANYTHING)
    assert len(made.inject(both).steps) == 2
    begun = ["fault-inject-begin", "fault-injected"]
    for label, names in (("both", [*begun, "fault-in-effect"]), ("settings", begun)):
        assert [name for name, facts in events if facts["label"] == label] == names


def test_one_that_fails_stops_no_other(tmp_path: Path, world: Connections) -> None:
    made = ready(tmp_path, world, settings=SETTINGS)
    made.apply()
    made.inject(STOP[1])
    made.inject(STOP[2])
    world.fail = ["systemctl start ceph-osd@1"]
    (left,) = made.undo_all()
    assert left.label == "node2" and "osd=1.up is 0, not 1" in left.why and "the stand-in fails" in left.why
    assert any("systemctl start ceph-osd@1.service" in command for command in left.commands)
    assert world.differences() == {"osd.1"}
    world.fail = []
    assert made.undo_all() == []
    assert world.differences() == set()


def test_an_exit_status_is_no_proof(tmp_path: Path, world: Connections) -> None:
    """systemctl says 0 and the OSD stays down: open. It fails and the OSD is up: done."""
    made = ready(tmp_path, world)
    made.inject(STOP[1])
    play = world.world.systemctl
    world.world.systemctl = lambda node, words: ("", "", 0)
    assert [left.label for left in made.undo_all()] == ["node1"]

    def grumble(node: str, words: List[str]) -> Any:
        play(node, words)
        return "", "grumble", 1

    world.world.systemctl = grumble
    assert made.undo_all() == []


def test_a_fault_that_does_not_take_is_taken_back(tmp_path: Path, world: Connections) -> None:
    made = ready(tmp_path, world, settings=SETTINGS)
    world.fail = ["systemctl stop"]
    with pytest.raises(FaultError, match="stand-in fails; the steps so far are undone"):
        made.inject(STOP[1])
    world.fail = []
    world.world.systemctl = lambda node, words: ("", "", 0)
    with pytest.raises(FaultError, match="no effect"):
        made.inject(STOP[1])
    assert [record.label for record in made.open_changes] == ["recovery"]


def test_what_was_there_before_stays(tmp_path: Path, world: Connections) -> None:
    """noscrub was the operator's, so was a value; an OSD had a weight of its own."""
    world.state["flags"].append("noscrub")
    world.state["config"].append(["osd", "", "osd_max_scrubs", "3"])
    world.state["osds"]["0"]["weight"] = 0.8
    world.first = json.loads(json.dumps(world.state))
    made = ready(tmp_path, world, settings=SETTINGS)
    made.apply()
    made.inject(STOP[1])
    world.state["osds"]["0"].update({"in": 0, "weight": 1.0})  # the monitors mark it out meanwhile
    assert made.undo_all() == []
    assert world.differences() == set()
    assert "noscrub" in world.state["flags"]


def test_nothing_is_broken_while_an_earlier_process_has_something_open(tmp_path: Path, world: Connections) -> None:
    ready(tmp_path, world).inject(STOP[1])
    with pytest.raises(JournalInUse, match="another process"):
        injector(tmp_path, world)


def test_a_later_process_refuses_until_it_has_undone(tmp_path: Path, world: Connections) -> None:
    first = ready(tmp_path, world)
    first.inject(STOP[1])
    first.close()
    second = injector(tmp_path, world)
    with pytest.raises(FaultError, match=r"node1: stop osd\.0 on node1"):
        second.inject(STOP[2])
    with pytest.raises(FaultError, match="cbt-tools undo"):
        second.apply(SETTINGS)
    assert second.undo_all() == []
    second.inject(STOP[2])
    assert second.undo_all() == []


def test_a_refusal_names_rule_and_numbers_and_changes_nothing(tmp_path: Path, world: Connections) -> None:
    made = ready(tmp_path, world)
    made.inject(STOP[1])
    before = json.dumps(world.state)
    with pytest.raises(FaultError, match=r"inactive: \d+ of 16 PGs .*min_size 2.*accept: \[inactive, domain"):
        made.inject(Fault("second", "stop", ("node2",)))
    assert json.dumps(world.state) == before
    made.inject(STOP[2])
    (accepted,) = [r for r in made.records if r["event"] == "accepted" and r["label"] == "node2"]
    assert {"inactive", "domain"} <= {finding["rule"] for finding in accepted["findings"]}


def test_the_choice_is_written_down_and_made_again(tmp_path: Path, world: Connections) -> None:
    fault = Fault("any", "stop", choose=2, seed=5, accept=ANYTHING)
    made = ready(tmp_path, world)
    chosen = made.inject(fault).targets.named
    record = next(r for r in made.records if r["event"] == "chosen")
    assert (record["seed"], tuple(record["targets"])) == (5, chosen)
    assert made.undo_all() == []
    world.state["osds"]["9"] = {"host": "node4", "up": 1, "in": 1, "weight": 1.0, "unit": "active"}
    assert made.prepare(fault).targets.named == chosen


def test_a_dry_run_prints_what_a_run_executes(tmp_path: Path, world: Connections) -> None:
    made = ready(tmp_path, world)
    lines = "\n".join(made.prepare(STOP[1]).lines())
    before = len(world.said)
    prepared = made.inject(STOP[1])
    made.undo_all()
    executed = [text for _, text in world.said[before:]]
    for step in prepared.steps:
        for command in (*step.inject, *step.undo):
            assert command.text in lines and command.text in executed
    assert "systemctl stop ceph-osd@0.service" in lines


def test_a_torn_record_takes_no_other_along(tmp_path: Path, world: Connections) -> None:
    """At each byte of the last record: what came before is read, and everything can still be undone."""
    made = ready(tmp_path, world, settings=SETTINGS)
    made.apply()
    made.inject(STOP[1])
    made.close()
    path = tmp_path / FILE
    whole = path.read_bytes()
    last = whole.rstrip(b"\n").rfind(b"\n") + 1
    opens = [record.id for record in open_steps_in(tmp_path)]
    # the last one that opens something, too: it was never begun then
    begins = max(i for i, line in enumerate(whole.splitlines()) if b'"event": "open"' in line)
    start = sum(len(line) + 1 for line in whole.splitlines()[:begins])
    end = start + len(whole.splitlines()[begins]) + 1
    for cut in range(last, len(whole)):
        path.write_bytes(whole[:cut])
        assert [record.id for record in open_steps_in(tmp_path)] == opens
    for cut in range(start, end):
        path.write_bytes(whole[:cut])
        assert [record.id for record in open_steps_in(tmp_path)] == opens[:-1]
    path.write_bytes(whole[: end - 1])
    world.state["osds"]["0"].update(up=1, unit="active")  # the record of its stop was never whole: it did not happen
    again = injector(tmp_path, world)
    assert again.undo_all() == []
    assert world.differences() == set()


def test_recovery_is_hastened_with_the_first_fault(tmp_path: Path, world: Connections) -> None:
    made = ready(tmp_path, world, settings=Settings(recovery="aggressive"))
    made.apply()
    assert world.differences() == set()
    made.inject(STOP[1])
    values: Dict[str, str] = {row[2]: row[3] for row in world.state["config"]}
    assert values["osd_recovery_sleep_hdd"] == "0" and values["osd_max_backfills"] == "10"
    assert values["osd_recovery_sleep_degraded_hdd"] == "0"  # a release has it, or has not
    assert made.undo(["node1"]) == []
    assert [record.label for record in made.open_changes] == ["recovery"]  # until the end
    assert made.undo_all() == []
    assert world.differences() == set()


def test_mclock_takes_the_override_first_and_gives_it_back_last(tmp_path: Path, world: Connections) -> None:
    world.world.ceph_config_show = lambda who, name: ("mclock_scheduler\n", "", 0)
    made = ready(tmp_path, world, settings=Settings(recovery="aggressive"))
    made.speed_up_recovery()
    (record,) = made.open_changes
    do, undo = (" ".join(c.text for c in commands) for commands in (record.step.inject, record.step.undo))
    assert do.index("osd_mclock_override_recovery_settings true") < do.index("osd_max_backfills")
    assert undo.index("osd_max_backfills 4") < undo.index("rm osd osd_mclock_override_recovery_settings")
    assert "sleep" not in do
    assert made.undo_all() == []


def test_confirm_tells_what_the_cluster_has_not_seen_yet(tmp_path: Path, world: Connections) -> None:
    made = ready(tmp_path, world)
    play = world.world.systemctl
    world.world.systemctl = lambda node, words: ("", "", 0)
    made.inject(STOP[1], wait=False)
    assert "osd=0.up is 1, not 0" in str(made.confirm()["node1"])
    play("node1", ["stop", "ceph-osd@0.service"])
    assert made.confirm(["node1"]) == {"node1": None}


def test_what_an_operator_has_set_meanwhile_is_told(tmp_path: Path, world: Connections) -> None:
    """It goes back to what it was before the run, as everything does; journal and events have the other value."""
    for state in (world.state, world.first):
        state["config"].append(["osd", "", "osd_max_scrubs", "3"])
        state["config"].sort()
    events: List[Tuple[str, Mapping[str, Any]]] = []
    asked = Settings(
        config=(("osd", "osd_max_scrubs", "2"), ("osd", "osd_max_backfills", "9"), ("mon", "x", "1")), autoscaler=False
    )
    made = ready(tmp_path, world, settings=asked, events=events)
    made.apply()
    world.world.ceph_config_set("osd", "osd_max_scrubs", "1")
    world.world.ceph_config_set("osd", "osd_max_backfills", "4")  # as before: nothing is lost
    world.world.ceph_config_rm("mon", "x")
    world.world.ceph_osd_pool_set("rbd", "pg_autoscale_mode", "warn")
    assert made.undo_all() == [] and world.differences() == set()
    told = [facts for name, facts in events if name == "setting-overwritten"]
    assert [(fact["what"], fact["was"], fact["back"]) for fact in told] == [
        ("pools.pool_name=rbd.pg_autoscale_mode", "warn", "on"),
        ("section=osd,name=osd_max_scrubs.value", "1", "3"),
    ]
    notes = [r for r in made.records if r["event"] == "overwritten"]
    assert [note["was"] for note in notes] == ["warn", "1"]


def test_pgs_that_the_autoscaler_split_are_merged_again(tmp_path: Path, world: Connections) -> None:
    """In pools whose mode was off before: in others it would split them again."""
    for state in (world.state, world.first):
        state["autoscale"]["data"] = "off"
    events: List[Tuple[str, Mapping[str, Any]]] = []
    made = ready(tmp_path, world, settings=Settings(autoscaler=True), events=events)
    made.apply()
    for pool in ("rbd", "data"):
        world.world.ceph_osd_pool_set(pool, "pg_num", "32")
    assert made.undo_all() == [] and world.differences() == set()
    assert {pool["pool_name"]: pool["pg_num"] for pool in world.state["pools"]} == {"rbd": 32, "data": 8}
    ((_, split),) = [event for event in events if event[0] == OVERWRITTEN]
    assert (split["what"], split["was"], split["back"]) == ("pools.pool_name=data.pg_num_target", 32, 8)


def test_the_manager_is_asked_only_where_the_balancer_is_set(tmp_path: Path, world: Connections) -> None:
    """The autoscaler is looked at before each phase with load, also while a fault has taken the managers."""
    made = ready(tmp_path, world)
    world.world.ceph_balancer_status = lambda: ("", "no active mgr", 5)
    made.apply(Settings(autoscaler=False))
    assert made.undo_all() == [] and world.differences() == set()
    with pytest.raises(FaultError, match="2 of 3 replies"):
        made.apply(Settings(balancer=False))


def test_a_value_that_is_not_in_force_is_no_setting(tmp_path: Path, world: Connections) -> None:
    """The row is there, with another value than was asked for."""
    made = ready(tmp_path, world, settings=Settings(config=(("osd", "osd_max_backfills", "9"),)))
    real = world.world.ceph_config_set
    world.world.ceph_config_set = lambda who, name, value: real(who, name, "5" if value == "9" else value)
    with pytest.raises(FaultError, match=r"no effect: .*is '5', not '9'"):
        made.apply()
    assert world.differences() == set()


def test_a_cut_that_ended_by_itself_is_told(tmp_path: Path, world: Connections) -> None:
    events: List[Tuple[str, Mapping[str, Any]]] = []
    made = ready(tmp_path, world, events=events)
    made.inject(Fault("a", "stop", ("node1",)))
    real = world.play

    def play(node: str, text: str) -> Result:
        done = real(node, text)
        return Result("fired 1000.5 1020.75\n", "", 0) if "t=" in text[:20] and "systemctl start" in text else done

    world.play = play  # type: ignore[method-assign]
    before = time.time()
    assert made.undo_all() == []
    ((_, recovered),) = [event for event in events if event[0] == "fault-recovered"]
    assert (recovered["label"], recovered["osds"]) == ("a", [0])
    assert before <= recovered["at"] + 20.25 + 0.01 and recovered["at"] + 20.25 <= time.time() + 0.01
    assert [r["at"] for r in made.records if r["event"] == "recovered"] == [recovered["at"]]


def test_a_command_that_comes_after_its_undo_does_nothing(tmp_path: Path, world: Connections) -> None:
    """The run was killed with its command on the way; it is undone from another shell; then the command arrives."""
    first = ready(tmp_path, world)
    world.die_at_change = (world.changes + 1, "late")
    with pytest.raises(Died):
        first.inject(STOP[1])
    first.close()
    assert injector(tmp_path, world).undo_all() == []
    world.arrive()
    assert world.differences() == set()


def test_a_command_whose_connection_was_cut_may_come_after_its_undo(tmp_path: Path, world: Connections) -> None:
    made = ready(tmp_path, world)
    world.die_at_change = (world.changes + 1, "cut")
    with pytest.raises(FaultError, match="Connection reset by peer; the steps so far are undone"):
        made.inject(STOP[1])
    assert made.open_changes == []
    world.arrive()
    assert world.differences() == set()


def test_an_undo_that_did_not_arrive_is_none(tmp_path: Path, world: Connections) -> None:
    """All looks as before, because the killed run's command is still on its way: nothing is there to stop it yet."""
    first = ready(tmp_path, world)
    world.die_at_change = (world.changes + 1, "late")
    with pytest.raises(Died):
        first.inject(STOP[1])
    first.close()
    second = injector(tmp_path, world)
    world.lost = ["systemctl start"]
    (left,) = second.undo_all()
    assert "No route to host" in left.why and world.differences() == set()
    world.lost = []
    assert second.undo_all() == []
    world.arrive()
    assert world.differences() == set()


def test_a_weight_that_did_not_come_back_is_open(tmp_path: Path, world: Connections) -> None:
    world.state["osds"]["0"]["weight"] = 0.8
    made = ready(tmp_path, world)
    made.inject(STOP[1])
    world.state["osds"]["0"]["weight"] = 1.0
    world.world.ceph_osd_reweight = lambda number, weight: None
    (left,) = made.undo_all()
    assert "osds.osd=0.weight is 1.0, not 0.8" in left.why
