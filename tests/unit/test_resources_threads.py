"""CPU time by what threads do: the names of three releases, looks at threads, time for each operation."""

from __future__ import annotations

import json
from collections import Counter as Count
from pathlib import Path
from statistics import fmean
from typing import Any, Dict, List, Sequence, Tuple

import pytest
from resources_lines import T0, Made, write

from cbt_plugins.results.nodes import resources
from cbt_plugins.results.nodes.cpu_time_per_request import cpu_time_rows
from cbt_plugins.results.nodes.node_files import read_nodes
from cbt_plugins.results.nodes.thread_groups import ENDED, OTHER_THREADS, group_of
from cbt_plugins.results.nodes.usage import Networks
from cbt_plugins.results.run_record import of_resources

#: what threads of an OSD, two gateways, mon and mgr had used after warp had run for 12 s: daemon, thread, number, ticks
RECORDED = Path(__file__).parent.parent / "data" / "resources" / "threads"
CLASS = {"ceph-osd": "osd", "radosgw": "rgw", "ceph-mon": "mon", "ceph-mgr": "mgr"}
Looks = Dict[int, List[Tuple[str, float]]]  # second of a look -> seconds of a processor that each thread had used


def looked(folder: Path, looks: Looks, seconds: int = 20) -> None:
    """A node with one OSD that uses a whole core; looks at its threads in some seconds."""
    path = write(folder, "n1", Made([("osd", "1", 1.0, 100)]), seconds)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    names = list(dict.fromkeys(name for its in looks.values() for name, _ in its))
    lines[1]["names"]["t"] = {i: {"name": name} for i, name in enumerate(names)}
    before = 0
    for line in lines:
        second = round(line["t"] - T0)
        if "s" in line and second in looks:
            line["look"], before = float(second - before), second
            line["u"] = [[0, names.index(name), 1000 * its] for name, its in looks[second]]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def of(folder: Path, window: Tuple[float, float] = (0.0, 20.0), rates: Sequence[float] = ()) -> Dict[str, Any]:
    served = resources.counter_of_rates([(T0, 1, rates)] if rates else [])
    load = {"made": True, "per_s": fmean(rates or [0]), "bytes_per_s": 1.0, "ops": {}, "served": served}
    low, high = window
    return resources.of_window(read_nodes(folder, {}), (T0 + low, T0 + high), load, {}, Networks())


def cores(made: Dict[str, Any]) -> Dict[Any, float]:
    return {line["group"]: line["cores"] for line in made["threads"]["lines"] if line["class"] == "osd"}


@pytest.mark.parametrize("release", ["16.2.15", "18.2.7", "20.2.4"])
def test_the_threads_of_a_release_are_in_groups(release: str) -> None:
    used: Dict[str, Count[str]] = {}
    for line in (RECORDED / f"{release}.tsv").read_text().splitlines():
        daemon, name, _, ticks = line.split("\t")
        group = group_of(CLASS[daemon], name)
        used.setdefault(CLASS[daemon], Count())[group] += int(ticks)
    for its, groups in (("osd", {"messenger", "rocksdb", "op-queue", "bluestore"}), ("rgw", {"messenger", "frontend"})):
        assert all(used[its][group] for group in groups), used[its]
        assert used[its][OTHER_THREADS] < 0.06 * sum(used[its].values())
    assert used["rgw"]["frontend"] > 0.4 * sum(used["rgw"].values())
    assert used["mon"]["rocksdb"] > 0 and used["osd"]["frontend"] == 0


def test_groups_sum_to_the_process_and_what_nobody_saw_has_ended(tmp_path: Path) -> None:
    look = [("tp_osd_tp", 2.0), ("msgr-worker-0", 1.0), ("msgr-worker-1", 0.5), ("who", 0.5)]
    looked(tmp_path, {5: look, 10: look, 15: look, 20: look})
    found = cores(of(tmp_path))
    wanted = {None: 1.0, "op-queue": 0.4, "messenger": 0.3, OTHER_THREADS: 0.1, ENDED: 0.2}
    assert found == pytest.approx(wanted)


def test_the_shares_of_a_look_are_those_of_the_time_before_it(tmp_path: Path) -> None:
    first, second = [("tp_osd_tp", 4.0), ("log", 1.0)], [("log", 10.0)]
    looked(tmp_path, {5: first, 15: second})
    assert cores(of(tmp_path, (0.0, 5.0))) == pytest.approx({None: 1.0, "op-queue": 0.8, "log": 0.2})
    # 2 s of the first look, 4 s of the second one
    assert cores(of(tmp_path, (3.0, 9.0))) == pytest.approx({None: 1.0, "op-queue": 1.6 / 6, "log": 4.4 / 6}, abs=1e-4)
    # behind the last look nothing is known but the sum
    assert cores(of(tmp_path, (15.0, 20.0))) == pytest.approx({None: 1.0, ENDED: 1.0})


def test_time_for_each_request_its_interval_and_its_series(tmp_path: Path) -> None:
    looked(tmp_path, {20: [("tp_osd_tp", 15.0), ("log", 5.0)]})
    made = of(tmp_path, rates=[100.0, 300.0] * 10)
    osd, log, queue = made["threads"]["lines"]
    assert [its["ms_per_op"] for its in (osd, log, queue)] == pytest.approx([5.0, 1.25, 3.75])
    assert osd["low"] == osd["high"] == pytest.approx(5.0)  # each tenth of the window has both rates
    assert len(osd["series"]) == 20 and fmean(osd["series"]) == pytest.approx(5.0)
    assert osd["series"][:2] == pytest.approx([5 + (1000 - 500) / 200, 5 + (1000 - 1500) / 200])
    found = {its.op: its for its in of_resources("x", made) if its.metric == "cpu_ms_per_op"}
    assert list(found) == ["osd", "osd:log", "osd:op-queue"] and found["osd:log"].value == pytest.approx(1.25)
    assert found["osd"].series == tuple(osd["series"])
    rows = cpu_time_rows({"x": made, "idle": of(tmp_path)})
    assert rows[0] == ["ms", "x"] and rows[1] == ["osd", "5.000 ±0"]
    times = {None: 10.0, "log": 0.1, "op-queue": 9.9}
    lines = [{"class": "osd", "group": group, "ms_per_op": ms, "high": None} for group, ms in times.items()]
    assert [row[0] for row in cpu_time_rows({"x": {"threads": {"lines": lines}}})] == ["ms", "osd", "osd:op-queue"]
    # more requests in the second half: a scatter, and an interval around the same mean
    wide = of(tmp_path, rates=[100.0] * 10 + [300.0] * 10)["threads"]["lines"][0]
    assert wide["low"] < wide["ms_per_op"] == 5.0 < wide["high"]


def test_limits_and_memory_are_warnings(tmp_path: Path) -> None:
    looked(tmp_path, {5: [], 10: [], 15: []})
    path = tmp_path / "resources.n1" / "n1.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for number, line in enumerate(line for line in lines if "look" in line):
        line["h"], line["q"] = [2.0 + number, 4096 - 1024 * number, 100, 412], [[0, 50, 20]] if number else []
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    made = of(tmp_path)
    (node,), (osd,) = made["nodes"], made["daemons"]
    assert (node["load"], node["available_mib"], node["swapped_mib"]) == (3.0, 2.0, 6.0)
    assert osd["throttled"] == pytest.approx(0.4)
    found = {its["code"]: its["text"] for its in resources.resource_warnings({"phases": {"x": made}}, [])}
    assert found == {
        "throttled": "CPU limits of cgroups stopped 1 daemon: osd.1 in 40 % of their periods",
        "swapping": "memory was swapped on n1 (6 MiB)",
    }
    before = of(tmp_path, (0.0, 4.0))  # no look in it
    assert before["daemons"][0]["throttled"] == 0 and before["nodes"][0]["load"] is None
    assert not resources.resource_warnings({"phases": {"x": before}}, [])


def test_files_of_before_say_nothing_of_threads(tmp_path: Path) -> None:
    write(tmp_path, "n1", Made([("osd", "1", 1.0, 100)]))
    made = of(tmp_path, rates=[100.0] * 20)
    assert made["threads"] is None and not [its for its in of_resources("x", made) if its.metric == "cpu_ms_per_op"]
