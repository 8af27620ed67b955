"""Monitor `perf_counters`: recorded samples of three releases, numbers of phases, what its agent asks."""

from __future__ import annotations

import json
import os
import pickle
import socket
import struct
import subprocess
import tempfile
import threading
import tracemalloc
from pathlib import Path
from typing import Any, Dict, Iterator, List, Set, Tuple

import pytest
from counters_archive import T0, archive, made_of

from cbt_plugins.cluster.stream import NodeProgram
from cbt_plugins.monitors import perf_counters_agent
from cbt_plugins.monitors.perf_counters import PerfCounters
from cbt_plugins.results import worker_processes
from cbt_plugins.results.archive import read_run
from cbt_plugins.results.nodes import daemon_counters, perf_counters
from cbt_plugins.results.nodes.daemon_counters import CounterSeries, CountersFile, CountersReader, DaemonCounters
from cbt_plugins.results.nodes.perf_counters import counter_rows, counter_warnings
from cbt_plugins.results.summary_file import summarize

#: what the agent printed on a node with OSDs and then on one with a gateway
RECORDED = Path(__file__).parent.parent / "data" / "perf_counters"


def samples(*values: Dict[str, Any]) -> List[Dict[str, Any]]:
    """Samples of daemons, 10 s from one to the next."""
    return [{"version": 1, "t": T0}, *({"t": T0 + 10 * i, "d": its} for i, its in enumerate(values))]


#: counters that the recorded samples do not have yet, by the begin of the release; "": of all releases
NOT_RECORDED: Dict[str, Set[str]] = {"": set(), "20": {"compactions"}}


@pytest.mark.parametrize("release", ["16.2.15", "18.2.7", "20.2.4"])
def test_each_release_has_the_numbers(release: str) -> None:
    found: Dict[str, Dict[str, Any]] = {}
    for line in (RECORDED / f"{release}.jsonl").read_text().splitlines():
        found.update(json.loads(line).get("d") or {})
    assert set(found) == {"osd.0", "osd.1", "client.rgw1"}
    pools = {f"mempool_{name}_bytes" for name in perf_counters_agent.POOLS}
    not_recorded = set().union(*(names for begin, names in NOT_RECORDED.items() if release.startswith(begin)))
    for osd in ("osd.0", "osd.1"):
        assert set(perf_counters_agent.OF_OSDS) - set(found[osd]) <= not_recorded
        assert pools <= set(found[osd]) and 0 <= found[osd]["allocator_score"] < 1
    of_gateways = set(perf_counters_agent.OF_GATEWAYS)
    assert of_gateways - not_recorded <= set(found["client.rgw1"]) <= of_gateways


def test_osds_that_were_not_asked_beside_others_are_named(tmp_path: Path) -> None:
    values = {"osd.1": {"allocated_bytes": 1}, "client.rgw1": {"allocated_bytes": 1}}
    folder = archive(tmp_path, {"perf_counters.n1/n1.jsonl": samples(values, values)})
    assert "unwatched" not in made_of(folder, (0.0, 10.0))
    tree = folder / "cluster" / "before" / "osd_tree.json"
    tree.parent.mkdir(parents=True)
    tree.write_text(json.dumps({"nodes": [{"id": i, "type": "osd", "status": "up"} for i in range(1, 9)]}))
    made = made_of(folder, (0.0, 10.0))
    (warning,) = counter_warnings(made)
    names = "osd.2, osd.3, osd.4, osd.5, osd.6, ..."
    text = f"perf_counters did not watch 7 OSDs of the cluster, so sums are of the others: {names}"
    assert (warning["code"], warning["text"]) == ("monitor-limited", text)


def test_numbers_of_a_phase(tmp_path: Path) -> None:
    first = {"op_latency": [100, 1.0], "onode_hits": 1000, "allocated_bytes": 2**20, "allocator_score": 0.1}
    second = {"op_latency": [300, 2.0], "onode_hits": 2000, "allocated_bytes": 3 * 2**20, "allocator_score": 0.3}
    third = {"op_latency": [10, 0.5], "onode_hits": 500, "allocated_bytes": 3 * 2**20}  # it was restarted
    other = {"op_latency": [0, 0.0], "onode_hits": 0}
    lines = samples(*({"osd.1": its, "osd.2": other} for its in (first, second, third)))
    folder = archive(tmp_path, {"perf_counters.n1/n1.jsonl": lines})
    found = {line["name"]: line for line in made_of(folder, (0.0, 10.0))["phases"]["x"]["lines"]}
    assert found["op_latency"]["value"] == pytest.approx(5.0) and found["op_latency"]["of"] == "osd.1"
    assert (found["onode_hits"]["value"], found["onode_hits"]["unit"]) == (100.0, "1/s")
    assert (found["allocated_bytes"]["start"], found["allocated_bytes"]["end"]) == (2**20, 3 * 2**20)
    assert (found["allocator_score"]["start"], found["allocator_score"]["end"]) == (0.1, 0.3)
    again = {line["name"]: line for line in made_of(folder, (0.0, 20.0))["phases"]["x"]["lines"]}
    assert again["onode_hits"]["value"] == pytest.approx((1000 + 500) / 20, rel=1e-4)
    assert again["op_latency"]["value"] == pytest.approx(1000 * 1.5 / 210, rel=1e-4)
    lines = samples({"osd.1": {"op_latency": [0, 0.0]}}, {"osd.1": {"op_latency": [1, 0.5]}})
    rare_folder = archive(tmp_path / "rare", {"perf_counters.n1/n1.jsonl": lines})
    (rare,) = made_of(rare_folder, (0.0, 9.5))["phases"]["x"]["lines"]
    assert rare["highest"] == rare["value"] == 500.0  # a part of one operation
    assert made_of(folder, (100.0, 120.0)) == {"phases": {}}  # nobody looked
    rows = {row[0]: row[1:] for row in counter_rows(made_of(folder, (0.0, 10.0)))}
    assert rows["osd allocated"] == ["MiB", "1.000 → 3.000"] and rows["osd op latency"] == ["ms", "5.000"]


def rates_of(its: DaemonCounters, *windows: Tuple[float, float]) -> List[Any]:
    """The rise of "n" in each window, seconds after T0; None where it has none."""
    found = [its.series("n").at((T0 + low, T0 + high)) for low, high in windows]
    return [None if at is None else pytest.approx(at[1, 0] - at[0, 0]) for at in found]


def test_an_outage_has_no_numbers() -> None:
    """An OSD counts 10 a second, is down from second 25 to 95, and counts anew from 0."""
    its = DaemonCounters()
    for t in range(0, 200, 10):
        if not 25 <= t < 95:
            its.add(T0 + t, {"n": 10 * (t if t < 25 else t - 95)})
    before, inside, across, after = (0, 30), (40, 80), (10, 150), (90, 150)
    assert rates_of(its, before, inside, across, after) == [200, None, 100 + 550, 550]
    assert rates_of(its, (30, 90), (50, 150), (0, 50), (-60, 20), (170, 230), (300, 400)) == [0] + 5 * [None]


def left_out_of(folder: Path, window: Tuple[float, float]) -> Any:
    """The requests of all gateways a second, and the daemons that the sums of this window lack."""
    numbers = made_of(folder, window)["phases"]["x"]
    return numbers["lines"][0]["value"], numbers.get("left_out")


def test_a_gateway_that_ends_before_the_phase_does_is_named(tmp_path: Path) -> None:
    """Gateways with 100 requests a second: g3 ends at second 300 while its node is watched, g4's agent at 400."""
    times = range(0, 1000, 10)
    of_g3 = [{"client.g3": {"requests": 100 * t}} if t <= 300 else {} for t in times]
    values = {
        "n1": [{f"client.g{i}": {"requests": 100 * t} for i in (1, 2)} for t in times],
        "n3": of_g3,
        "n4": [{"client.g4": {"requests": 100 * t}} for t in times if t <= 400],
    }
    files = {f"perf_counters.{node}/{node}.jsonl": samples(*of_node) for node, of_node in values.items()}
    folder = archive(tmp_path, files)
    assert left_out_of(folder, (0.0, 300.0)) == (400.0, None)
    assert left_out_of(folder, (0.0, 340.0)) == (300.0, ["client.g3"])
    assert left_out_of(folder, (310.0, 400.0)) == (300.0, None)  # it is down, and its node was watched
    assert left_out_of(folder, (310.0, 450.0)) == (200.0, ["client.g4"])
    assert left_out_of(folder, (500.0, 700.0)) == (200.0, None)
    (warning,) = counter_warnings(made_of(folder, (500.0, 700.0)))
    text = "perf_counters no longer watched 1 daemon, so sums are of the others: client.g4"
    assert warning == {"code": "monitor-limited", "text": text, "phase": "x"}
    (warning,) = counter_warnings(made_of(folder, (0.0, 450.0)))
    text = "perf_counters has no sample of 2 daemons near the start or the end of the phase, so sums are of the others"
    assert warning == {"code": "counters-of-others", "text": f"{text}: client.g3, client.g4", "phase": "x"}


def test_gateways_of_one_name_on_two_machines_are_two(tmp_path: Path) -> None:
    """Two gateways with 100 requests a second; n3 is another name of the machine of n2, which is booted at 30."""
    times = {"n1": range(0, 100, 10), "n2": range(3, 53, 10), "n3": range(55, 100, 10)}
    header = {"version": 1, "interval": 10}
    files: Dict[str, List[Dict[str, Any]]] = {}
    for node, earlier in (("n1", 10**6), ("n2", 200), ("n3", 200)):
        lines = [{**header, "t": T0 + times[node][0], "machine": "boot1 1:1" if node == "n1" else "boot2 1:1"}]
        for t in times[node]:
            counters = {"client.rgw.a": {"requests": earlier + 100 * t}, "osd.1": {"onode_hits": 100 * t}}
            lines.append({"t": T0 + t, "d": counters if node != "n1" else {"client.rgw.a": counters["client.rgw.a"]}})
        files[f"perf_counters.{node}/{node}.jsonl"] = lines
    files["perf_counters.n2/n2.jsonl"].insert(4, {**header, "t": T0 + 33, "machine": "boot3 1:1"})
    lines = made_of(archive(tmp_path, files), (5.0, 90.0))["phases"]["x"]["lines"]
    values = {line["name"]: (line["value"], line["of"]) for line in lines}
    assert values["onode_hits"] == (pytest.approx(100.0), "osd.1")
    assert values["requests"] == (pytest.approx(200.0), "client.rgw.a on n1")


def test_samples_of_two_agents_are_no_restarts(tmp_path: Path) -> None:
    """Two pods of one machine ask the same daemons; the second agent is late, and what it says is older."""
    header: Dict[str, Any] = {"version": 1, "interval": 10, "machine": "boot 1:1"}
    files: Dict[str, List[Dict[str, Any]]] = {}
    for node, late, times in (("n1", 0.0, range(0, 300, 10)), ("n2", 0.01, range(100, 600, 10))):
        lines = [{**header, "t": T0 + times[0]}]
        lines += [{"t": T0 + t + late, "d": {"osd.1": {"onode_hits": 10**6 + 100 * t - (late > 0)}}} for t in times]
        files[f"perf_counters.{node}/{node}.jsonl"] = lines
    for window in ((150.0, 250.0), (200.0, 500.0)):
        folder = tmp_path / str(window[0])
        ((line,),) = (made_of(archive(folder, files), window)["phases"]["x"]["lines"],)
        assert line["value"] == pytest.approx(100.0, rel=0.001)


def test_an_agent_fills_the_gaps_of_another_one(tmp_path: Path) -> None:
    """A pod that moved and came back: its daemon was watched from elsewhere meanwhile."""
    header: Dict[str, Any] = {"version": 1, "interval": 10, "machine": "boot 1:1"}
    files: Dict[str, List[Dict[str, Any]]] = {}
    for node, times in (("n1", [*range(0, 310, 10), *range(710, 1000, 10)]), ("n2", [*range(305, 700, 10)])):
        lines = [{**header, "t": T0 + times[0]}]
        lines += [{"t": T0 + t, "d": {"osd.3": {"onode_hits": 10**6 + 400 * t}}} for t in times]
        files[f"perf_counters.{node}/{node}.jsonl"] = lines
    folder = archive(tmp_path, files)
    for window in ((400.0, 600.0), (350.0, 900.0)):
        ((line,),) = (made_of(folder, window)["phases"]["x"]["lines"],)
        assert line["value"] == pytest.approx(400.0, rel=0.001)


@pytest.mark.parametrize("resumed", [False, True])
def test_a_clock_that_is_set_back_is_no_restart(tmp_path: Path, resumed: bool) -> None:
    times = [t if t < 300 else t - 60 for t in range(0, 600, 10)]
    files: Dict[str, List[Dict[str, Any]]] = {}
    for node, begin in (("n1", 0), ("n2", 900))[: 2 if resumed else 1]:
        lines: List[Dict[str, Any]] = [{"version": 1, "interval": 10, "t": T0 + begin, "machine": "boot 1:1"}]
        for i, t in enumerate(times):
            lines.append({"t": T0 + begin + t, "d": {"osd.1": {"onode_hits": 10**6 + 1000 * i + 100 * begin}}})
        files[f"perf_counters.{node}/{node}.jsonl"] = lines
    folder = archive(tmp_path, files)
    for begin in (0.0, 900.0)[: 2 if resumed else 1]:
        ((line,),) = (made_of(folder, (begin + 50.0, begin + 500.0))["phases"]["x"]["lines"],)
        assert line["value"] == pytest.approx(100.0, rel=0.15)


def test_a_gateway_that_moves_to_another_machine_is_one(tmp_path: Path) -> None:
    header, files = {"version": 1, "interval": 10}, {}
    for node, times, lost in (("n2", range(310, 600, 10), 305), ("n1", range(0, 310, 10), 0)):
        lines: List[Dict[str, Any]] = [{**header, "t": T0 + times[0], "machine": f"{node} 1:1"}]
        lines += [{"t": T0 + t, "d": {"client.rgw.a": {"requests": 100 * (t - lost)}}} for t in times]
        files[f"perf_counters.{node}/{node}.jsonl"] = lines
    ((line,),) = (made_of(archive(tmp_path, files), (200.0, 500.0))["phases"]["x"]["lines"],)
    assert (line["of"], line["value"]) == ("client.rgw.a", pytest.approx(100.0, rel=0.02))


def test_a_daemon_that_was_seen_once_is_in_no_sum(tmp_path: Path) -> None:
    lines: List[Dict[str, Any]] = [{"version": 1, "interval": 10, "t": T0}]
    lines += [{"t": T0 + t, "d": {"client.rgw.a": {"requests": 100 * t}}} for t in range(0, 100, 10)]
    lines[5]["d"]["client.admin"] = {"requests": 1}
    files = {"perf_counters.n1/n1.jsonl": lines}
    assert "left_out" not in made_of(archive(tmp_path, files), (5.0, 85.0))["phases"]["x"]


def test_the_machine_is_where_the_sockets_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machines = []
    for name in ("one", "two", "one", "link"):
        folder = tmp_path / name
        if name == "link":
            folder.symlink_to(tmp_path / "one")
        folder.mkdir(exist_ok=True)
        monkeypatch.setattr(perf_counters_agent, "FOLDERS", (str(folder),))
        machines.append(perf_counters_agent.mark_of_sockets())
    assert machines[0] == machines[2] == machines[3] != machines[1]


def test_a_long_run_is_sampled_less_often(tmp_path: Path) -> None:
    assert (daemon_counters.FINE, daemon_counters.COARSER) == (perf_counters_agent.FINE, perf_counters_agent.COARSER)
    assert daemon_counters.SELDOM == {"allocator_score": perf_counters_agent.SCORE}
    times = [*range(daemon_counters.FINE), *range(daemon_counters.FINE + 9, daemon_counters.FINE + 100, 10)]
    lines: List[Dict[str, Any]] = [{"version": 1, "t": T0, "interval": 1}]
    lines += [{"t": T0 + t, "d": {"osd.1": {"onode_hits": 7 * t}}} for t in times]
    for line in (lines[1], lines[-1]):
        line["d"]["osd.1"]["allocator_score"] = 0.5
    folder = archive(tmp_path, {"perf_counters.n1/n1.jsonl": lines})
    for window in ((100.0, 120.0), (350.0, 375.0), (401.0, 423.0)):
        found = {line["name"]: line["value"] for line in made_of(folder, window)["phases"]["x"]["lines"]}
        assert found == {"onode_hits": pytest.approx(7.0), "allocator_score": 0.5}


def test_warnings(tmp_path: Path) -> None:
    lines = samples(*({"osd.1": {"slow_used_bytes": value}} for value in (0, 5 * 2**20)))
    looks: List[Dict[str, Any]] = [{"version": 1, "t": T0}]
    looks += [{"t": T0 - 5, "s": 1.0, "gc": 10, "reshard": ["before"], "sync": 0}]
    looks += [{"t": T0 + 5, "s": 1.0, "gc": 500, "reshard": ["b"], "sync": 3}]
    looks += [{"t": T0 + 15, "s": 1.0, "gc": 5000, "reshard": [], "sync": 4}]
    files = {"perf_counters.n1/n1.jsonl": lines, "backlog.n0/backlog.jsonl": looks}
    made = made_of(archive(tmp_path, files), (0.0, 10.0))
    found = {its["code"]: its["text"] for its in counter_warnings(made)}
    assert found == {
        "spillover": "RocksDB took 5.000 MiB more of slow devices, most on osd.1",
        "garbage-grew": "RGW's garbage grew from 10 to 5,000 entries: RGW collects it during the phases that follow",
        "resharded": "1 bucket had to be resharded: b",
        "sync-behind": "4 shards of this zone behind another zone at the end, 0 at the start",
    }
    assert not list(counter_warnings(None))


def test_what_a_monitor_could_not_see_is_a_warning(tmp_path: Path) -> None:
    closed, full = "/var/run/ceph may not be asked: this needs root", "no look any more: its file has 512 MiB"
    lines = [{"version": 1, "t": T0}, {"t": T0, "limit": closed}, {"t": T0, "d": {}}]
    stacks: List[Dict[str, Any]] = [{"version": 1, "t": T0, "hz": 49}, {"t": T0, "n": 1, "stacks": {"osd;limit": 1}}]
    bare = "rgw: no symbols: 90 of 100 samples are in functions without a name"
    stacks += [{"t": T0, "limit": text} for text in (bare, full, bare.replace("100", "101"))]
    files = {"perf_counters.n1/n1.jsonl": lines, "perf_counters.n2/n2.jsonl": lines, "stacks.n3/n3.jsonl": stacks}
    no_perf = {"error": "perf: No such file or directory", "t": T0, "i": 1}
    files["stacks.n4/n4.jsonl"] = [stacks[0], no_perf, {**no_perf, "i": 2}]
    files["stacks.n5/n5.jsonl"] = [stacks[0], {"error": "no Ceph daemon runs here", "t": T0}, stacks[1]]  # came later
    folder = archive(tmp_path, files)
    found = [its["text"] for its in summarize(folder)["warnings"] if its["code"] == "monitor-limited"]
    assert found == [
        f"perf_counters could not watch all of its targets on 2 nodes: n1: {closed}; n2: {closed}",
        f"stacks could not watch all of its targets on 2 nodes: n3: {bare}; n3: {full}; n4: {no_perf['error']}",
    ]


def test_samples_of_a_day_are_compact() -> None:
    counters = DaemonCounters()
    tracemalloc.start()
    for second in range(2000):
        counters.add(T0 + second, {f"n{i}": float(second) for i in range(20)})
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert used < 20 * 2000 * 24  # bytes


def test_samples_are_sorted_once_for_all_phases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = archive(tmp_path, {"perf_counters.n1/n1.jsonl": samples(*({"osd.1": {"n": i}} for i in range(4)))})
    sorted_names, series = [], DaemonCounters.series

    def noted(counters: DaemonCounters, name: str) -> CounterSeries:
        sorted_names.append(name)
        return series(counters, name)

    monkeypatch.setattr(DaemonCounters, "series", noted)
    phases = [{"name": f"p{i}", "window": {"start": T0 + 10 * i, "end": T0 + 10 * i + 10}} for i in range(3)]
    numbers = perf_counters.counters_of_phases(read_run(folder), phases)
    assert numbers is not None and list(numbers["phases"]) == ["p0", "p1", "p2"] and sorted_names == ["n"]


def test_a_damaged_line_is_left_out() -> None:
    its = DaemonCounters()
    for second, value in enumerate((5, [1, 2], [3], 7)):
        its.add(T0 + second, {"x": value})
    found = its.series("x").at((T0, T0 + 3))
    assert found is not None and found.tolist() == [[5.0], [7.0]]


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Tuple[Path, List[str]]]:
    """An admin socket that replies to each question with {"of": question}, torn into two pieces."""
    path, asked = tmp_path / "ceph-osd.3.asok", []
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen()

        def reply() -> None:
            for _ in range(2):
                its, _ = listening.accept()
                with its:
                    question = json.loads(its.recv(4096).rstrip(b"\0"))
                    asked.append(question["prefix"])
                    text = json.dumps({"of": question["prefix"]}).encode()
                    its.sendall(struct.pack(">I", len(text)) + text[:3])
                    its.sendall(text[3:] if len(asked) == 1 else b"")  # the second one ends early

        thread = threading.Thread(target=reply)
        thread.start()
        yield path, asked
        thread.join()


def test_an_admin_socket_is_asked(daemon: Tuple[Path, List[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    path, asked = daemon
    assert perf_counters_agent.ask(str(path), "perf dump") == {"of": "perf dump"}
    assert perf_counters_agent.ask(str(path), "dump_mempools") is None
    assert asked == ["perf dump", "dump_mempools"]
    (path.parent / "ceph-mon.a.asok").touch()
    monkeypatch.setattr(perf_counters_agent, "SOCKETS", (f"{path.parent}/*.asok",))
    assert set(perf_counters_agent.sockets()) == {"osd.3"}
    assert perf_counters_agent.ask(str(path.parent / "ceph-mon.a.asok"), "x") is None  # nobody is there


def replying(monkeypatch: pytest.MonkeyPatch, folder: Path, *names: str) -> None:
    """Gateways with these sockets, each of which has had as many requests as its name has characters."""
    monkeypatch.setattr(perf_counters_agent, "FOLDERS", (str(folder),))
    monkeypatch.setattr(perf_counters_agent, "SOCKETS", (f"{folder}/*.asok",))
    for name in names:
        (folder / name).touch()
    monkeypatch.setattr(perf_counters_agent, "ask", lambda path, prefix: {"rgw": {"req": len(Path(path).name)}})


def test_only_what_ceph_appends_to_a_gateways_name_is_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replying(
        monkeypatch,
        tmp_path,
        "ceph-client.rgw1.7.94.asok",  # $cluster-$name.$pid.$cctid.asok
        "ceph-client.rgw.8000.12.94.asok",
        "ceph-client.rgw.8080.13.94.asok",
        "ceph-client.rgw.0.asok",
        "ceph-client.rgw.1.asok",
        "ceph-client.rgw.10.0.0.5.17.94178231.asok",
        "ceph-client.rgw.10.0.0.6.18.94178231.asok",
    )
    shared: Dict[str, str] = {}
    names = {"rgw1", "rgw.8000", "rgw.8080", "rgw.0", "rgw.1", "rgw.10.0.0.5", "rgw.10.0.0.6"}
    assert set(perf_counters_agent.sample(False, shared)) == {f"client.{name}" for name in names} and not shared


def test_gateways_that_share_a_name_are_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replying(monkeypatch, tmp_path, "ceph-client.rgw.a.7.94.asok", "ceph-client.rgw.a.12.94.asok")
    shared: Dict[str, str] = {}
    both = {"client.rgw.a.7.94": {"requests": 27}, "client.rgw.a.12.94": {"requests": 28}}
    assert perf_counters_agent.sample(False, shared) == both
    (text,) = shared.values()
    assert text == "several daemons are called client.rgw.a: each is named with its process"
    (tmp_path / "ceph-client.rgw.a.12.94.asok").unlink()
    assert set(perf_counters_agent.sample(False, shared)) == {"client.rgw.a.7.94"}  # as before


@pytest.mark.parametrize("later", [False, True])
def test_a_name_is_a_limit_only_if_it_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, later: bool) -> None:
    """Several instances of one CephObjectStore always share a name."""
    names = ["ceph-client.rgw.a.7.94.asok", "ceph-client.rgw.a.12.94.asok"]
    replying(monkeypatch, tmp_path, *names[: 1 if later else 2])
    lines: List[Dict[str, Any]] = []

    def wait(*_: Any) -> Tuple[List[int], List[int], List[int]]:
        replying(monkeypatch, tmp_path, *names)
        return [0] if len(lines) > 2 else [], [], []

    monkeypatch.setattr(perf_counters_agent, "write_line", lines.append)
    monkeypatch.setattr(perf_counters_agent, "write_limit", lambda text: lines.append({"limit": text}))
    monkeypatch.setattr(perf_counters_agent.select, "select", wait)
    monkeypatch.setattr(perf_counters_agent.os, "read", lambda *_: b"")
    perf_counters_agent.main(0.1)
    text = "several daemons are called client.rgw.a: each is named with its process"
    assert [line["limit"] for line in lines if "limit" in line] == ([text] if later else [])
    assert len(lines[-2]["d"]) == 2 and lines[-1]["end"] == "told"
    passed = [line.get("s") for line in lines if "d" in line]
    assert passed[0] is None and all(0.0 <= seconds < 60.0 for seconds in passed[1:])


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")
def test_sockets_that_its_user_may_not_ask_are_told() -> None:
    """As another user: an OSD that is closed, containers in a closed folder, no daemon."""
    with tempfile.TemporaryDirectory() as made:  # pytest's own is root's
        os.chmod(made, 0o755)
        closed_to_another_user(Path(made))


def closed_to_another_user(tmp_path: Path) -> None:
    for folder in ("own", "containers", "none"):
        (tmp_path / folder).mkdir()
    with socket.socket(socket.AF_UNIX) as its:
        its.bind(str(tmp_path / "own" / "ceph-osd.3.asok"))
    (tmp_path / "containers" / "fsid").mkdir(mode=0o700)
    said = {}
    for folder in ("own", "containers", "none"):
        text = NodeProgram(PerfCounters.AGENT, PerfCounters.PARTS).text.replace("/var/run/ceph", f"{tmp_path}/{folder}")
        words = ["setpriv", "--reuid=65534", "--clear-groups", "/usr/bin/python3", "-c", f"import sys\n{text}", "1"]
        done = subprocess.run(words, input=b"", stdout=subprocess.PIPE, check=True, cwd="/")
        said[folder] = [its["limit"] for its in map(json.loads, done.stdout.splitlines()) if "limit" in its]
    text = "may not be asked: this needs root"
    assert said == {
        "own": [f"{tmp_path}/own/ceph-osd.3.asok {text}"],
        "containers": [f"{tmp_path}/containers/fsid {text}"],
        "none": [],
    }


def test_the_files_of_a_node_are_read_apart_from_those_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Daemons are in the order of their first samples, also if several processes read the files."""
    files = {
        f"perf_counters.n{node}/n{node}.jsonl": [
            {"version": 1, "interval": 10, "t": T0, "machine": f"boot{node} 1:1"},
            *({"t": T0 + t + (node == 1), "d": {f"osd.{node}": {"n": 100 * t}}} for t in range(0, 100, 10)),
        ]
        for node in range(4)
    }
    groups: List[int] = []
    of_group = CountersReader.of_group
    monkeypatch.setattr(
        CountersReader, "of_group", lambda self, files: [groups.append(len(files)), of_group(self, files)][1]
    )
    folder = archive(tmp_path, files)
    expected = made_of(folder, (5.0, 85.0))
    paths = sorted(folder.glob("monitors/01/*/*.jsonl"))
    counters_files = [CountersFile(number, path.stem, path, 0.0) for number, path in enumerate(paths)]
    reader = CountersReader([(T0 + 5.0, T0 + 85.0)])
    assert [daemon.name for daemon in reader.read(counters_files, {}, {})] == ["osd.0", "osd.2", "osd.3", "osd.1"]
    assert groups == [1] * 8
    monkeypatch.undo()
    monkeypatch.setattr(worker_processes, "MANY", 0)
    assert made_of(folder, (5.0, 85.0)) == expected


def test_of_a_file_of_counters_only_windows_leave_the_process(tmp_path: Path) -> None:
    sizes = []
    for number in (30, 3000):
        lines = [{"version": 1, "interval": 10, "t": T0, "machine": "boot 1:1"}]
        lines += [{"t": T0 + 10 * i, "d": {"osd.1": {"n": i, "latency": [i, 0.5 * i]}}} for i in range(number)]
        folder = archive(tmp_path / str(number), {"perf_counters.n1/n1.jsonl": lines})
        file = CountersFile(0, "n1", folder / "monitors/01/perf_counters.n1/n1.jsonl", 0.0)
        sizes.append(len(pickle.dumps(CountersReader([(T0 + 5.0, T0 + 85.0)]).of_group([file]))))
    assert sizes[1] == pytest.approx(sizes[0], rel=0.05)
