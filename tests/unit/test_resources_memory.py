"""Memory limits of cgroups and OOM kills: the numbers of a phase, and the warning."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Sequence

import pytest
from resources_lines import T0, Made, write

from cbt_plugins.results.nodes import resources
from cbt_plugins.results.nodes.node_files import read_nodes
from cbt_plugins.results.nodes.node_samples import MachineKills, NodeSamples
from cbt_plugins.results.nodes.usage import Networks

NO_LOAD = {"made": False, "per_s": 0.0, "bytes_per_s": 0.0, "ops": {}}


def sampled(
    folder: Path,
    node: Made,
    rows: Mapping[int, Sequence[Any]] = {},
    kills: Mapping[int, int] = {},
    seconds: int = 20,
    begin: int = 0,
) -> None:
    """Write samples from a second on, with the agent's rows of memory and kills of the machine in some seconds."""
    path = write(folder, "n1", node, seconds, T0 + begin)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line in lines:
        second = round(line["t"] - T0)
        if "s" in line and second in kills and second >= begin:
            line.update({"look": 5.0, "q": [], "m": rows.get(second, []), "o": kills[second]})
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def usage_of(folder: Path, seconds: float = 20.0) -> Dict[str, Any]:
    """The usage as summary.json has it."""
    usage = resources.of_window(read_nodes(folder, {}), (T0, T0 + seconds), NO_LOAD, {}, Networks())
    made: Dict[str, Any] = json.loads(json.dumps(usage))
    return made


def warnings_of(usage: Dict[str, Any]) -> List[str]:
    warnings = resources.resource_warnings({"phases": {"x": usage}}, [])
    return [warning["text"] for warning in warnings if warning["code"] == "memory-limit"]


def memory_of(daemon: Mapping[str, Any]) -> List[Optional[float]]:
    return [daemon[key] for key in ("memory_limit_mib", "memory_share", "oom_kills")]


OSDS = Made([("osd", "0", 1.0, 100), ("osd", "1", 1.0, 100)])


def test_a_daemon_near_its_limit_is_a_warning(tmp_path: Path) -> None:
    limit = 4 << 20
    rows = {5: [[0, limit, limit // 2, 0], [1, limit, limit // 2, 0]], 10: [[1, limit, int(limit * 0.97), 0]]}
    sampled(tmp_path, OSDS, rows, {5: 0, 10: 0, 15: 0})
    usage = usage_of(tmp_path)
    assert memory_of(usage["daemons"][0]) == [4096, 0.5, 0]
    assert memory_of(usage["daemons"][1]) == pytest.approx([4096, 0.97, 0])
    assert warnings_of(usage) == ["memory of 1 daemon was near the limit of a cgroup: osd.1 (97 % of 4096 MiB)"]
    assert warnings_of(usage_of(tmp_path, 8.0)) == []  # before it


def test_kills_in_the_cgroup_of_a_daemon_are_a_warning(tmp_path: Path) -> None:
    sampled(tmp_path, OSDS, {10: [[0, 0, 0, 2]], 15: [[0, 0, 0, 1]]}, {5: 0, 10: 2, 15: 3})
    usage = usage_of(tmp_path)
    assert memory_of(usage["daemons"][0]) == [None, None, 3]
    assert warnings_of(usage) == ["OOM kills of 1 daemon, or of other processes in the same cgroup: osd.0 (3)"]
    assert memory_of(usage_of(tmp_path, 12.0)["daemons"][0])[2] == 2


@pytest.mark.parametrize("started_again", [[], [("osd", "1", 1.0, 100, 13, 99)]])
def test_a_daemon_that_ended_when_the_machine_counted_a_kill_was_killed(
    tmp_path: Path, started_again: List[Any]
) -> None:
    """The cgroup of its service ends with it, and so do the counters there."""
    killed = Made([("osd", "0", 1.0, 100), ("osd", "1", 1.0, 100, -100, 12), *started_again])
    sampled(tmp_path, killed, kills={5: 4, 10: 4, 15: 5})
    usage = usage_of(tmp_path)
    assert [daemon["oom_kills"] for daemon in usage["daemons"]] == [0, 1]
    assert warnings_of(usage) == ["OOM kills of 1 daemon, or of other processes in the same cgroup: osd.1 (1)"]


@pytest.mark.parametrize("kills", [0, 1])
def test_a_cgroup_that_outlives_a_daemon_knows_better_than_the_machine(tmp_path: Path, kills: int) -> None:
    ended = Made([("osd", "0", 1.0, 100), ("osd", "1", 1.0, 100, -100, 12)])
    sampled(tmp_path, ended, {15: [[1, 0, 0, kills]]}, {5: 4, 10: 4, 15: 5})
    assert [daemon["oom_kills"] for daemon in usage_of(tmp_path)["daemons"]] == [0, kills]


@pytest.mark.parametrize(("second", "kills"), [(11, 0), (10, 1), (7, 1), (6, 0)])
def test_a_kill_and_an_end_at_other_times_do_not_belong_together(tmp_path: Path, second: int, kills: int) -> None:
    """The last sample of the OSD is in second 10; its end may take 2 s after the kill."""
    ended = Made([("osd", "0", 1.0, 100), ("osd", "1", 1.0, 100, -100, 10)])
    sampled(tmp_path, ended, kills={i: 4 + (i > second) for i in range(1, 21)})
    assert [daemon["oom_kills"] for daemon in usage_of(tmp_path)["daemons"]] == [0, kills]


def test_a_daemon_that_ended_without_a_kill_was_not_killed(tmp_path: Path) -> None:
    stopped = Made([("osd", "0", 1.0, 100), ("osd", "1", 1.0, 100, -100, 8)])
    sampled(tmp_path, stopped, kills={5: 4, 10: 4, 15: 5})
    assert [daemon["oom_kills"] for daemon in usage_of(tmp_path)["daemons"]] == [0, 0]


@pytest.mark.parametrize(("boot", "kills"), [("machine1", 1), ("machine2", 0)])
def test_a_pod_that_ends_with_its_daemon(tmp_path: Path, boot: str, kills: int) -> None:
    """The monitor ends with it; the next one, in the new pod, sees what the machine has counted, if it is the same."""
    pod, osd = ("osd", "0", 1.0, 100), {"machine1": 4, "machine2": 9}
    sampled(tmp_path, Made([pod], boot="machine1", pidns="pid:[1]"), kills={5: 4}, seconds=8)
    sampled(tmp_path, Made([pod], boot=boot, pidns="pid:[2]"), kills={17: osd[boot] + kills}, seconds=8, begin=12)
    (daemon,) = usage_of(tmp_path)["daemons"]
    assert daemon["restarts"] == 1 and daemon["oom_kills"] == kills


def test_a_kill_long_after_the_end_of_a_pod_is_of_another_process(tmp_path: Path) -> None:
    """A fault has stopped the OSD for ten minutes; no monitor saw the machine in between."""
    pod = ("osd", "0", 1.0, 100)
    sampled(tmp_path, Made([pod], boot="machine1", pidns="pid:[1]"), kills={5: 4, 8: 4}, seconds=8)
    sampled(tmp_path, Made([pod], boot="machine1", pidns="pid:[2]"), kills={605: 5}, seconds=8, begin=600)
    (daemon,) = usage_of(tmp_path, 610.0)["daemons"]
    assert daemon["restarts"] == 1 and daemon["oom_kills"] == 0


@pytest.mark.parametrize(
    ("interval", "seconds", "kill"), [(1.0, 20, True), (1.0, 21, False), (5.0, 50, True), (5.0, 53, False)]
)
def test_the_next_count_may_be_ten_intervals_after_the_end(interval: float, seconds: int, kill: bool) -> None:
    """So far apart are the samples of an agent from the 7200th on."""
    counts = [MachineKills(0.0, 1000.0, "machine1", 3), MachineKills(1000.0 + seconds, 2000.0, "machine1", 4)]
    assert NodeSamples("n1", interval=interval, oom_kills=counts).has_kill_at(1000.0) == kill


def test_a_new_connection_to_the_same_process_is_no_end(tmp_path: Path) -> None:
    sampled(tmp_path, Made([("osd", "0", 1.0, 100, -100, 99)]), kills={5: 4}, seconds=8)
    sampled(tmp_path, Made([("osd", "0", 1.0, 100, -112, 99)]), kills={17: 5}, seconds=8, begin=12)
    (daemon,) = usage_of(tmp_path)["daemons"]
    assert daemon["restarts"] == 0 and daemon["oom_kills"] == 0


def test_samples_of_before_say_nothing_of_memory_limits(tmp_path: Path) -> None:
    write(tmp_path, "n1", OSDS)
    usage = usage_of(tmp_path)
    assert memory_of(usage["daemons"][0]) == [None, None, None] and warnings_of(usage) == []
    old = {**usage, "daemons": [{"class": "osd", "id": "0", "throttled": 0.0}]}  # of a summary of before
    assert warnings_of(old) == []
