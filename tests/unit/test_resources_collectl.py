"""collectl's plot files, recorded, as counters."""

from __future__ import annotations

import gzip
import re
import shutil
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, Dict, List, Sequence

import archive_builder
import pytest

from cbt_plugins.results.nodes import collectl, resources
from cbt_plugins.results.nodes.node_files import read_nodes
from cbt_plugins.results.nodes.node_samples import NodeSamples
from cbt_plugins.results.nodes.usage import Networks
from cbt_plugins.results.summary_file import summarize

DATA = Path(__file__).parent.parent / "data" / "resources"
SECOND = 1795275201.0  # 15:33:21, when the first line of node2 ends


def node(name: str, **more: Any) -> Any:
    made = collectl.read_node(DATA / name, "x", **more)
    assert made is not None
    return made


def test_processors_and_disks_of_a_node() -> None:
    its = node("collectl.node2")
    assert (its.source, its.cpus, its.interval) == ("collectl", 2, 1.0)
    # [CPU:0] 11 59 8, [CPU:1] 7 37 8 percent in the second that ends at 15:33:21
    busy, waiting = its.processors.rise(SECOND - 1, SECOND)
    assert busy == pytest.approx(1.30) and waiting == 0
    assert its.processors.watched_seconds((SECOND - 1, SECOND + 100))[0] == pytest.approx(15)
    reads, read, _, writes, written, _, busy_ms, weighted = its.disks["vda"].used.rise(SECOND - 1, SECOND + 1)
    assert (reads, read, writes) == (13, 52 * 1024, 650 + 2114)
    assert written == (2147 + 6854) * 1024
    assert busy_ms == pytest.approx(20 + 70) and weighted == pytest.approx(4000)


def test_the_clock_of_the_node() -> None:
    ahead = node("collectl.node2", offset=100.0)
    assert ahead.processors.rise(SECOND - 101, SECOND - 100)[0] == pytest.approx(1.30)


def test_interfaces_with_another_separator() -> None:
    its = node("collectl-semicolons")
    assert set(its.interfaces) == {"ifb0", "ifb1", "eth0"} and set(its.disks) == {"vda"}
    assert its.interfaces["eth0"].speed is None  # it said -1
    assert its.disks["vda"].used.rise(0, 2e9)[4] > 3521 * 1024


def test_traffic_of_an_interface(tmp_path: Path) -> None:
    shutil.copytree(DATA / "collectl-semicolons", tmp_path / "c")
    (net,) = (tmp_path / "c").glob("*.net")
    text = net.read_text().replace("eth0:-1", "eth0:25000")
    first = "eth0;0;0;0;0;0;0;"
    assert first in text
    net.write_text(text.replace(first, "eth0;11;12;1024;2048;0;3;", 1))
    its = collectl.read_node(tmp_path / "c", "x")
    assert its is not None
    eth0 = its.interfaces["eth0"]
    assert eth0.speed == 25000
    assert eth0.used.rise(0, 2e9).tolist() == [1 << 20, 11, 3, 2 << 20, 12, 0]


def test_totals_where_there_are_no_details() -> None:
    its = node("collectl-totals")
    # 20 43 30 1 0 2 0 6 percent: of both processors
    end = 1795277282.0
    assert its.processors.rise(end - 1, end)[0] == pytest.approx(2 * 0.95)
    assert not its.disks


def test_compressed_and_with_epoch_seconds() -> None:
    its = node("collectl-utc-gz")
    assert its.processors.watched_seconds((0, 2e9))[0] >= 2
    assert its.disks["vda"].used.meets(1795277285.0, 1795277287.0)


def test_a_compressed_file_may_have_several_parts(tmp_path: Path) -> None:
    """collectl appends a part when it is started anew; the last one is torn by a kill."""
    shutil.copytree(DATA / "collectl.node2", tmp_path / "plain")
    whole = collectl.read_node(tmp_path / "plain", "x")
    (source,) = (tmp_path / "plain").glob("*.cpu")
    lines = source.read_text().splitlines(keepends=True)
    source.unlink()
    cut = len(lines) - 5
    parts = [gzip.compress("".join(part).encode()) for part in (lines[:cut], lines[cut:])]
    (tmp_path / "plain" / f"{source.name}.gz").write_bytes(b"".join(parts))
    again = collectl.read_node(tmp_path / "plain", "x")
    assert whole is not None and again is not None
    assert again.processors.watched_seconds((0, 2e9)) == pytest.approx(whole.processors.watched_seconds((0, 2e9)))
    (tmp_path / "plain" / f"{source.name}.gz").write_bytes(parts[0] + parts[1][: len(parts[1]) // 2])
    torn = collectl.read_node(tmp_path / "plain", "x")
    assert torn is not None and torn.processors.meets(0, 2e9)


def test_another_time_zone_and_a_line_that_is_none(tmp_path: Path) -> None:
    source = next((DATA / "collectl.node2").glob("*.cpu")).read_text()
    (tmp_path / "x.cpu").write_text(source.replace("TZ: +0000", "TZ: -0330") + "20261121 15:33:36 11 59\n")
    its = collectl.read_node(tmp_path, "x")
    assert its is not None
    west = 3.5 * 3600
    assert its.processors.rise(SECOND - 1 + west, SECOND + west)[0] == pytest.approx(1.30)
    assert its.processors.watched_seconds((0, 2e9))[0] == pytest.approx(15)


def jumping(folder: Path, begin: str, end: str, seconds: int = 30) -> Any:
    """Read a file in which local time jumps from `begin` to `end`, with as many seconds before as after."""
    head, first, *_ = next((DATA / "collectl.node2").glob("*.cpu")).read_text().split("\n2026")
    zone = timezone(timedelta(hours=2.5))
    spans = [(datetime.fromisoformat(begin), range(-seconds, 1)), (datetime.fromisoformat(end), range(seconds))]
    moments = [moment + timedelta(seconds=second) for moment, of in spans for second in of]
    row = " 50" + (len(first.split()) - 3) * " 0"
    lines = "".join(f"{moment:%Y%m%d %H:%M:%S}{row}\n" for moment in moments)
    folder.mkdir()
    (folder / "x.cpu").write_text(head.replace("TZ: +0000", "TZ: +0230") + "\n" + lines)
    its = collectl.read_node(folder, "x")
    assert its is not None
    return its, datetime.fromisoformat(begin).replace(tzinfo=zone).timestamp()


def test_the_end_and_the_begin_of_summer_time(tmp_path: Path) -> None:
    for name, end in (("back", "02:00:00"), ("forward", "04:00:00")):
        its, begin = jumping(tmp_path / name, "2026-10-25 02:59:59", f"2026-10-25 {end}")
        assert its.processors.watched_seconds((begin - 100, begin + 4000))[0] == pytest.approx(61)
        assert its.processors.rise(begin, begin + 30)[0] == pytest.approx(15) and its.clock is None


def test_a_jump_that_is_no_summer_time_ends_what_is_known(tmp_path: Path) -> None:
    for name, end in (("back", "02:15:00"), ("forward", "03:30:01")):
        its, begin = jumping(tmp_path / name, "2026-10-25 02:30:00", f"2026-10-25 {end}")
        assert its.processors.watched_seconds((begin - 4000, begin + 4000))[0] == pytest.approx(31)
        assert "its local time jumps by" in its.clock
        about = {"nodes": [{"node": "x", "clock": its.clock}], "phases": {}}
        (warning,) = resources.resource_warnings(about, [])
        assert warning["code"] == "resources-gap" and its.clock in warning["text"]


def test_a_torn_line_and_a_second_start_of_collectl(tmp_path: Path) -> None:
    source = next((DATA / "collectl.node2").glob("*.cpu")).read_text()
    folder = tmp_path / "c"
    folder.mkdir()
    later = source.replace("20261121 15:33:", "20261121 15:43:")
    (folder / "x.cpu").write_text(source + later[:-60])
    its = collectl.read_node(folder, "x")
    assert its is not None
    assert its.processors.watched_seconds((0, 2e9))[0] == pytest.approx(15 + 14)
    assert its.processors.rise(SECOND + 599, SECOND + 600)[0] == pytest.approx(1.30)


def test_time_without_lines_is_not_watched(tmp_path: Path) -> None:
    """Of the 15 s of the file, six lines are lost. Lines of a busy node may be late: two are no gap."""
    source = next((DATA / "collectl.node2").glob("*.cpu")).read_text()
    head, *rows = source.split("\n2026")
    whole = node("collectl.node2").processors
    (tmp_path / "x.cpu").write_text("\n2026".join([head, *rows[:3], *rows[9:]]))
    its = collectl.read_node(tmp_path, "x")
    assert its is not None
    for begin, end in ((-1, 2), (8, 14)):
        edges = (SECOND + begin, SECOND + end)
        assert its.processors.rise(*edges).tolist() == pytest.approx(whole.rise(*edges).tolist())
    assert its.processors.watched_seconds((SECOND + 2, SECOND + 8)).tolist() == [0]
    assert its.processors.watched_seconds((0, 2e9))[0] == 15 - 6
    late = "\n2026".join([head, *rows[:3], *rows[5:]])
    (tmp_path / "x.cpu").write_text(late)
    its = collectl.read_node(tmp_path, "x")
    assert its is not None and its.processors.rise(SECOND + 2, SECOND + 5)[0] > 0


@pytest.mark.parametrize("damaged", ["\0\0\0\0" + "20261121 15:33:25", "20261121 15:33:2x", "20261141 15:33:25"])
def test_a_line_without_a_time_is_left_out(tmp_path: Path, damaged: str) -> None:
    source = next((DATA / "collectl.node2").glob("*.cpu")).read_text()
    assert source.count("20261121 15:33:25") == 1
    (tmp_path / "x.cpu").write_text(source.replace("20261121 15:33:25", damaged))
    its = collectl.read_node(tmp_path, "x")
    assert its is not None and its.processors.watched_seconds((0, 2e9))[0] == pytest.approx(15)
    (tmp_path / "x.cpu").write_text(re.sub(r"(?m)^2026\S+ \S+", damaged, source))
    assert collectl.read_node(tmp_path, "x") is None


@pytest.mark.parametrize("name", ["empty", "raw"])
def test_files_that_say_nothing(tmp_path: Path, name: str) -> None:
    folder = tmp_path / name
    folder.mkdir()
    if name == "raw":
        (folder / "node1-20261121-152516.raw.gz").write_bytes(b"x")
        (folder / "node1.cpu").write_text("# Collectl: V4\n#Date Time [CPU:0]User%\n")
        (folder / "node1.dsk.gz").write_bytes(b"\x1f\x8bxxxx")
    assert collectl.read_node(folder, "x") is None


def test_nodes_of_one_machine_are_found(tmp_path: Path) -> None:
    for name in ("node2", "rgw1"):
        shutil.copytree(DATA / f"collectl.{name}", tmp_path / f"collectl.{name}")
    nodes = read_nodes(tmp_path, {})
    roles = {"node2": ["osd"], "rgw1": ["rgw"]}
    load: Dict[str, Any] = {"made": True, "per_s": 75.0, "bytes_per_s": 1e6, "ops": {"GET": 75.0}}
    made = resources.of_window(nodes, (SECOND + 7, SECOND + 10), load, roles, Networks())
    assert made["source"] == "collectl" and made["classes"] == {}
    assert [line["machine"] for line in made["nodes"]] == ["node2", "node2"]
    assert [disk["node"] for disk in made["devices"]] == ["node2"]
    assert made["nodes"][0]["busy"] > 0.9
    assert made["bottleneck"]["what"] == "unknown"
    assert "the programs that use them are unknown" in made["bottleneck"]["evidence"][0]


def share(folder: Path, *nodes: str, hosts: Sequence[str] = ("node2", "rgw1")) -> List[NodeSamples]:
    """Read nodes whose `tmp_dir` is one directory: the files of all hosts came from each node."""
    for node in nodes:
        (folder / f"collectl.{node}").mkdir(parents=True)
        for name, host in zip(("node2", "rgw1"), hosts):
            for path in (DATA / f"collectl.{name}").iterdir():
                shutil.copy(path, folder / f"collectl.{node}" / path.name.replace(name, host))
    return read_nodes(folder, {})


@pytest.mark.parametrize(
    ("nodes", "hosts"),
    [
        (["node2", "rgw1"], ["node2", "rgw1"]),
        (["node2", "rgw1"], ["node2.a.example", "rgw1.a.example"]),
        (["node2.a.example", "rgw1.a.example"], ["NODE2", "rgw1"]),
        (["node2", "node2.a.example"], ["node2", "node2.a.example"]),
    ],
)
def test_nodes_that_share_a_directory_have_the_samples_of_their_own_hosts(
    tmp_path: Path, nodes: List[str], hosts: List[str]
) -> None:
    shared = share(tmp_path, *nodes, hosts=hosts)
    for its, name in zip(shared, ("node2", "rgw1")):
        alone = node(f"collectl.{name}")
        assert its.processors.watched_seconds((0, 2e9)) == alone.processors.watched_seconds((0, 2e9))
        assert its.disks["vda"].used.rise(0, 2e9).tolist() == alone.disks["vda"].used.rise(0, 2e9).tolist()
        assert not its.damage


def test_files_of_several_hosts_without_the_name_of_the_node_are_left_out(tmp_path: Path) -> None:
    run = archive_builder.small(tmp_path)
    nodes = share(run / "monitors" / "01", "10.0.0.1", "rgw1", "node2.x", hosts=("node2.b", "node2.a"))
    assert not any(its.processors.meets(0, 2e9) or its.disks for its in nodes)
    found = [warning["text"] for warning in summarize(run)["warnings"] if warning["code"] == "damaged-lines"]
    text = "files of several hosts (node2.a, node2.b), and which is {0} is unknown: left out"
    assert found == [f"01/collectl.{name}: {text.format(name)}" for name in ("10.0.0.1", "node2.x", "rgw1")]


def test_the_monitor_of_daemons_goes_before_it(tmp_path: Path) -> None:
    from resources_lines import Made, write

    shutil.copytree(DATA / "collectl.node2", tmp_path / "collectl.node2")
    write(tmp_path, "node2", Made([("osd", "1", 1.0, 1)]))
    assert [n.source for n in read_nodes(tmp_path, {})] == ["resources"]
