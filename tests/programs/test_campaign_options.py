"""Code or defaults: which defaults differ between two releases, four arms from two, effects of each."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any, Dict, List, Optional, Set, Tuple

import fake_cycle
import pytest
import yaml
from config_files import CLUSTER, CYCLE, WARP
from test_campaign import after
from test_campaign import made as made  # a fixture
from test_campaign import world as world  # a fixture

from cbt_plugins.campaigns.default_options import SCRIPT, OptionReader, describe_swap, differing
from cbt_plugins.campaigns.loop import CampaignRun
from cbt_plugins.campaigns.output import blocks, left_set
from cbt_plugins.campaigns.schedule import Schedule, ceph_command, schedule_of
from cbt_plugins.campaigns.trial import Cycle
from cbt_plugins.compare.statistics.verdicts import Verdict
from cbt_plugins.config.file_check import load_file

OLD = {
    "osd_max_backfills": ("1", "default"),
    "osd_op_queue": ("wpq", "default"),
    "osd_pool_default_size": ("3", "file"),
    "osd_gone": ("1", "default"),
    "bluestore_min_alloc_size": ("65536", "default"),
    "osd_same": ("7", "default"),
    "osd_class_dir": ("/usr/lib/a", "default"),
    "osd_empty": ("", "default"),
    "container_image": ("ceph:v16", "default"),
}
NEW = {
    **OLD,
    "osd_max_backfills": ("3", "default"),
    "osd_op_queue": ("mclock_scheduler", "default"),
    "osd_pool_default_size": ("2", "default"),
    "bluestore_min_alloc_size": ("4096", "default"),
    "osd_class_dir": ("/usr/lib/b", "default"),
    "osd_empty": ("x", "default"),
    "container_image": ("ceph:v18", "default"),
    "osd_fresh": ("1", "default"),
}
del NEW["osd_gone"]
HELP = {
    "osd_op_queue": {"name": "osd_op_queue", "can_update_at_runtime": False, "flags": []},
    "bluestore_min_alloc_size": {"name": "bluestore_min_alloc_size", "flags": ["create"]},
    "osd_max_backfills": {"name": "osd_max_backfills", "can_update_at_runtime": True, "flags": ["runtime"]},
}
#: answers as `ceph` does, for the release in FOLDER/release
CEPH = """#!/bin/sh
cat >>"$(dirname "$0")/input" # as ssh does
[ "$1" != -c ] || shift 2 # ceph.conf
here=$(dirname "$0"); release=$(cat "$here/release"); echo "$release: $*" >>"$here/calls"
case "$*" in
"quorum_status -f json") echo '{"quorum_leader_name":"a"}' ;;
"mgr stat -f json") echo '{ "active_name": "x" }' ;;
"osd ls") printf '0\\n1\\n' ;;
"service dump -f json") echo '{"services":{}}' ;;
"config show-with-defaults osd.0 -f json") cat "$here/$release.json" ;;
"config show-with-defaults"*) echo '[]' ;;
"config help osd_op_queue -f json") printf '\\n{"name":"osd_op_queue",\\n"can_update_at_runtime":false}\\n' ;;
"config help bluestore_min"*) echo '{"name":"bluestore_min_alloc_size","flags":["create"]}' ;;
"config help"*) echo '{"name":"other","can_update_at_runtime":true}' ;;
esac
"""


def table(options: Dict[str, Any]) -> Dict[str, Dict[str, str]]:
    return {name: {"name": name, "value": value, "source": source} for name, (value, source) in options.items()}


@pytest.mark.parametrize(
    ("value", "limits", "swapped"),
    [
        ("999999", {"min": 0, "max": 1}, False),  # osd_mclock_scheduler_background_best_effort_lim of 16.2 on 18.2
        ("-1", {"min": 0, "max": ""}, False),
        ("1", {"min": 0, "max": 1}, True),
        ("4K", {"min": 0, "max": 1}, True),
        ("0.000000", {"type": "uint", "min": "", "max": ""}, False),  # ..._best_effort_res of 18.2 on 16.2
        ("4K", {"type": "size"}, True),
        ("1e-05", {"type": "float"}, True),
        ("on", {"type": "bool"}, False),
        ("none", {"enum_values": ["a", "b"]}, False),
        ("a", {"enum_values": ["a", "b"]}, True),
    ],
)
@pytest.mark.parametrize("other", ["newer", "older"])
def test_a_default_that_the_other_release_refuses_is_left_out(
    value: str, limits: Dict[str, Any], swapped: bool, other: str
) -> None:
    about: Dict[str, Any] = {"osd_x": {"name": "osd_x", "can_update_at_runtime": True, **limits}}
    values, helps = [value, "0.5"], [{}, about]
    if other == "older":
        values, helps = values[::-1], helps[::-1]
    tables = [{"osd": table({"osd_x": (its, "default")})} for its in values]
    its = differing(tables, helps, ["old", "new"])
    assert ("osd_x" in its.running["new"].get("osd", {})) is swapped
    own = "older" if other == "newer" else "newer"
    assert swapped or its.left_out == {f"the {other} release does not take the {own} default": ("osd_x",)}


def test_what_differs_is_swapped_and_the_rest_is_named() -> None:
    its = differing([{"osd": table(OLD)}, {"osd": table(NEW)}], [{}, HELP], ["old", "new"])
    assert its.running == {"old": {"osd": {"osd_max_backfills": "3"}}, "new": {"osd": {"osd_max_backfills": "1"}}}
    assert its.at_start["old"] == {"osd": {"osd_op_queue": "mclock_scheduler"}}
    assert its.at_start["new"] == {"osd": {"osd_op_queue": "wpq"}}
    assert its.left_out == {
        "only old has the option": ("osd_gone",),
        "only new has the option": ("osd_fresh",),
        "the cluster sets the option itself": ("osd_pool_default_size",),
        "the option has an effect only when something is created": ("bluestore_min_alloc_size",),
        "it is a name, a path, an address, or depends on the installation": ("container_image", "osd_class_dir"),
        "one default is empty, which cannot be set": ("osd_empty",),
    }
    said = list(describe_swap(its, restarts=False))
    assert said[0] == "old gets the other release's defaults of 1 options: osd_max_backfills"
    assert "left out, daemons read these options only at their start (give each arm `restart:`): osd_op_queue" in said
    assert "left out, only new has the option: osd_fresh" in said


@pytest.mark.parametrize(
    ("option", "services", "kinds"),
    [
        ("osd_op_queue", [], {"osd"}),  # as 16.2 has it
        ("osd_op_queue", ["osd"], {"osd"}),
        ("osd_erasure_code", ["mon", "osd"], {"mon", "osd"}),
        ("rgw_ops_log_rados", ["rgw"], {"client"}),
        ("mds_x", [], set()),
        ("ms_bind_port_max", [], {"mon", "mgr", "osd", "client"}),
    ],
)
def test_an_option_is_set_for_the_daemons_that_use_it(option: str, services: List[str], kinds: Set[str]) -> None:
    """Every daemon's table has every option, and a gateway does not tell those of OSDs."""
    sides = [dict.fromkeys(("mon", "mgr", "osd", "client"), table({option: (its, "default")})) for its in "12"]
    its = differing(sides, [{}, {option: {"name": option, "services": services}}], ["old", "new"])
    assert its.running["old"].keys() == its.running["new"].keys() == kinds


@pytest.mark.parametrize("runtime", [(True, False), (False, True), (False, False)])
def test_an_option_that_one_release_reads_at_its_start_is_set_before(runtime: Tuple[bool, bool]) -> None:
    tables = [{"osd": table({"osd_x": (its, "default")})} for its in "12"]
    helps = [{"osd_x": {"name": "osd_x", "can_update_at_runtime": its}} for its in runtime]
    its = differing(tables, helps, ["old", "new"])
    assert its.running == {"old": {}, "new": {}}
    assert its.at_start == {"old": {"osd": {"osd_x": "2"}}, "new": {"osd": {"osd_x": "1"}}}


def test_a_long_list_of_options_is_counted() -> None:
    fresh = {f"osd_{number}": ("1", "default") for number in range(31)}
    its = differing([{"osd": table(OLD)}, {"osd": table({**OLD, **fresh})}], [{}, {}], ["old", "new"])
    text = "left out, only new has the option: 31 options, named in options/options.json"
    assert text in describe_swap(its, restarts=False)


def crossed(tmp_path: Path, **arm: Any) -> Schedule:
    arms = {name: {"prepare": [f"echo {name} >{tmp_path}/release"], **arm} for name in ("old", "new")}
    section = {"arms": arms, "code_or_defaults": True, "keys": ["total.obj_per_s"], "seed": 6}
    section["program"] = fake_cycle.PROGRAM
    path = tmp_path / "my.yaml"
    cluster = CLUSTER + f"  ceph_cmd: {tmp_path}/ceph\n"
    path.write_text(cluster + WARP + CYCLE + yaml.safe_dump({"campaign": section}, sort_keys=False))
    return schedule_of(load_file(path), tmp_path / "folder")


def read(tmp_path: Path, its: Schedule, answers: str = CEPH) -> Schedule:
    """Have the stand-in's options read."""
    ceph = tmp_path / "ceph"
    ceph.write_text(answers)
    ceph.chmod(0o755)
    for name, options in (("old", OLD), ("new", NEW)):
        (tmp_path / f"{name}.json").write_text(json.dumps(list(table(options).values())))
    its.begin()
    its.options_reader().read()
    made = schedule_of(its.config, its.folder)
    made.begin()
    return made


def test_tables_are_read_from_the_cluster_of_each_arm_once(tmp_path: Path) -> None:
    its = read(tmp_path, crossed(tmp_path))
    calls = (tmp_path / "calls").read_text()
    assert "old: config show-with-defaults osd.0" in calls and "new: config help osd_op_queue" in calls
    assert "old: config help osd_op_queue" in calls
    assert its.swapped and its.swapped.at_start["new"] == {"osd": {"osd_op_queue": "wpq"}}
    its.options_reader().read()
    assert (tmp_path / "calls").read_text() == calls


@pytest.mark.parametrize(
    ("gateways", "asked"),
    [
        # the instance before a restart is listed for a minute more
        ('"4131":{"gid":4131,"metadata":{"id":"a"}},"14302":{"gid":14302,"metadata":{"id":"a"}}', "rgw.14302"),
        ('"a":{"gid":4131,"metadata":{"id":"a"}}', "rgw.a"),  # before Pacific
        ("", None),
    ],
)
def test_the_newest_gateway_is_asked(tmp_path: Path, gateways: str, asked: Optional[str]) -> None:
    daemons = f'"daemons":{{"summary":""{"," if gateways else ""}{gateways}}}'
    said = f'{{"services":{{"cephfs-mirror":{{"daemons":{{"summary":"","9":{{"gid":99999}}}}}},"rgw":{{{daemons}}}}}}}'
    read(tmp_path, crossed(tmp_path), CEPH.replace('{"services":{}}', said))
    calls = (tmp_path / "calls").read_text()
    assert (f"config show-with-defaults {asked} -f" in calls) if asked else "show-with-defaults rgw" not in calls


def test_all_options_are_set_by_a_command_that_reads_its_input(tmp_path: Path) -> None:
    its = read(tmp_path, crossed(tmp_path))
    assert (tmp_path / "input").read_text() == ""
    folder = tmp_path / "set-it"
    folder.mkdir()
    for name, lines in (("all", "osd a\nosd b\n"), ("set", "osd a 1 2\nosd b 3\n")):
        (folder / name).write_text(lines)
    subprocess.run(["sh", str(SCRIPT), "set", str(folder), *ceph_command(its.config.cluster).split()], check=True)
    calls = [line.partition(": ")[2] for line in (tmp_path / "calls").read_text().splitlines()]
    assert calls[-4:] == ["config rm osd a", "config rm osd b", "config set osd a 1 2", "config set osd b 3"]


def test_an_option_without_help_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no help of the option osd_class_dir"):
        read(tmp_path, crossed(tmp_path), CEPH.replace('"config help"*', '"config help container"*'))


def test_a_reading_that_resumes_asks_the_release_that_it_means(tmp_path: Path) -> None:
    its = crossed(tmp_path)
    with pytest.raises(ValueError, match="no help of the option"):
        read(tmp_path, its, CEPH.replace('"config help"*', '"config help container"*'))
    assert (tmp_path / "release").read_text() == "new\n"
    (tmp_path / "release").write_text("old\n")  # somebody has used the cluster meanwhile
    (tmp_path / "calls").unlink()
    assert read(tmp_path, its).swapped
    asked = [line.partition(":")[0] for line in (tmp_path / "calls").read_text().splitlines() if "help" in line]
    assert asked[0] == "new" and asked[-1] == "old" and asked.count("new") == asked.count("old")


def test_four_arms_have_the_defaults_of_both(tmp_path: Path) -> None:
    its = read(tmp_path, crossed(tmp_path))
    assert its.arms == ("old", "old+new-defaults", "new+old-defaults", "new")
    config = {arm: its.data_of(arm)["benchmarks"]["warp"].get("settings", {}).get("config") for arm in its.arms}
    assert config == {
        "old": None,
        "old+new-defaults": {"osd": {"osd_max_backfills": "3"}},
        "new+old-defaults": {"osd": {"osd_max_backfills": "1"}},
        "new": None,
    }
    assert its.cycle("new+old-defaults").prepare == (f"echo new >{tmp_path}/release",)
    assert [load_file(its.file_of(arm)).campaign for arm in its.arms] == [None] * 4


def test_what_is_read_at_the_start_is_set_before_a_restart(tmp_path: Path) -> None:
    its = read(tmp_path, crossed(tmp_path, restart="systemctl restart ceph.target"))
    for arm in its.arms:
        *_, setting, restart = its.cycle(arm).prepare
        assert "default_options.sh set" in setting and restart == "systemctl restart ceph.target"
        assert (its.folder / "arms" / f"{arm}.options" / "all").read_text() == "osd osd_op_queue\n"
    assert (its.folder / "arms" / "new+old-defaults.options" / "set").read_text() == "osd osd_op_queue wpq\n"
    assert (its.folder / "arms" / "new.options" / "set").read_text() == ""
    assert its.data_of("new+old-defaults")["benchmarks"]["warp"]["settings"]["config"]["osd"]["osd_op_queue"] == "wpq"


def test_it_says_how_to_remove_the_options_that_stay_set(tmp_path: Path, made: Path) -> None:
    its = read(tmp_path, crossed(tmp_path, restart="restart-it"))
    state = after(made, its, 1, {})
    told = {its.arm: list(left_set(replace(state, trials=((its, trial),)))) for its, trial in state.trials}
    assert {arm for arm, lines in told.items() if lines} == {"old+new-defaults", "new+old-defaults"}
    (line,) = told["new+old-defaults"]
    assert line.startswith("options of new+old-defaults are still set") and line.endswith(" && restart-it")
    assert f"default_options.sh set {its.folder}/arms/new.options " in line
    assert line in str(blocks(replace(state, trials=state.trials[: list(told).index("new+old-defaults") + 1])))


def test_the_last_words_of_a_campaign_are_about_options_that_stay_set(tmp_path: Path, world: Any) -> None:
    its = read(tmp_path, crossed(tmp_path, restart="true"))
    said: List[str] = []
    state = CampaignRun(its, said.append).run()
    assert state.decided and state.trials[-1][0].arm == "new+old-defaults"
    assert said[-1] == next(left_set(state))


def test_a_cluster_that_does_not_answer_is_an_error(tmp_path: Path) -> None:
    cycles = {name: Cycle(name, Path("x")) for name in ("old", "new")}
    with pytest.raises(ValueError, match="the options of old could not be read"):
        OptionReader(tmp_path / "options", cycles, "false").read()


def test_the_effects_of_code_and_of_defaults_are_told_apart(tmp_path: Path, made: Path) -> None:
    """The new code is 20 % slower, its defaults make it 10 % faster."""
    effects = {"new": 0.8 * 1.1, "new+old-defaults": 0.8, "old+new-defaults": 1.1}
    state = after(made, crossed(tmp_path), 6, effects)
    found = {row.id.contrast: (row.verdict, round(row.decision.change or 0, 2)) for row in state.rows}
    assert [its for its, _ in found.values()] == [Verdict.WORSE, Verdict.BETTER, Verdict.WORSE]
    changes = [change for _, change in found.values()]
    assert changes == pytest.approx([-0.2, 0.1, -0.12], abs=0.02)
