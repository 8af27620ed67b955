"""Files of the monitor `resources`: clocks that are set, lines that are torn or missing, counters of their pieces."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from resources_lines import OSDS, T0, Made, phase_of, write

from cbt_plugins.results import worker_processes
from cbt_plugins.results.nodes import resources
from cbt_plugins.results.nodes.node_files import read_nodes
from cbt_plugins.results.nodes.node_samples import Counter


def test_the_nodes_clock_is_the_heads(tmp_path: Path) -> None:
    write(tmp_path, "n1", Made([("osd", "1", 1.0, 100, 0.0, 10.0)]), offset=100.0)
    assert phase_of(tmp_path, (0.0, 20.0), offsets={"n1": 100.0})["daemons"][0]["cores"] == pytest.approx(0.5)


def numbered(path: Path, step: float, first: int) -> None:
    """Number the lines of each connection, and set the clock by `step` seconds before the line `first` of the file."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    number = 0
    for place, line in enumerate(lines):
        number = 0 if "version" in line else number + 1
        line["i"] = number
        if place >= first:
            line["t"] += step
            for daemon in line.get("names", {}).get("d", {}).values():
                daemon["since"] += step
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


@pytest.mark.parametrize("step", [-600.0, -12.0])
def test_a_clock_that_is_set_back_moves_no_sample(tmp_path: Path, step: float) -> None:
    """The clock of n1 is set in second 9; then its monitor is connected anew, at 30."""
    made = Made(OSDS, busy=0.25, disks={"sda": (0.5, 10.0, 20.0)}, nets={"eth0": (5.0, 5.0)})
    for begin in (0, 30):
        path = write(tmp_path, "n1", made, begin=T0 + begin)
    windows = ((0.0, 20.0), (5.0, 15.0), (30.0, 50.0), (0.0, 50.0))
    before = [phase_of(tmp_path, window) for window in windows]
    numbered(path, step, 10)
    assert [phase_of(tmp_path, window) for window in windows] == before
    assert before[0]["nodes"][0]["busy"] == 0.25 and before[3]["nodes"][0]["watched"] == 0.8
    (node,) = read_nodes(tmp_path, {})
    text = f"its clock was set by {step:+.0f} s, or it was paused: samples may be in another phase than theirs"
    assert node.clock == text
    (warning,) = resources.resource_warnings({"nodes": [{"node": "n1", "clock": node.clock}], "phases": {}}, [])
    assert warning == {"code": "resources-gap", "text": f"n1: {node.clock}"}


@pytest.mark.parametrize("step", [12.0, 600.0])
def test_nothing_is_known_of_the_time_by_which_a_clock_is_set_forward(tmp_path: Path, step: float) -> None:
    """A node that was paused looks the same, and its later samples are in their place."""
    path = write(tmp_path, "n1", Made(OSDS, busy=0.25))
    numbered(path, step, 10)
    (before,) = phase_of(tmp_path, (0.0, 8.0))["nodes"]
    (while_set,) = phase_of(tmp_path, (0.0, 8.0 + step))["nodes"]
    (behind,) = phase_of(tmp_path, (8.0 + step, 18.0 + step))["nodes"]
    assert [(node["busy"], node["watched"]) for node in (before, behind)] == [(0.25, 1.0)] * 2
    assert while_set["busy"] == 0.25 and while_set["watched"] == pytest.approx(8.0 / (8.0 + step), abs=1e-3)
    (node,) = read_nodes(tmp_path, {})
    assert node.clock and f"its clock was set by {step:+.0f} s" in node.clock


@pytest.mark.parametrize("step", [-600.0, 600.0])
def test_a_clock_that_is_set_and_mended_is_right_again(tmp_path: Path, step: float) -> None:
    """It is set in second 5, and mended in second 12."""
    path = write(tmp_path, "n1", Made(OSDS, busy=0.25))
    numbered(path, step, 6)
    numbered(path, -step, 13)
    for window in ((0.0, 4.0), (13.0, 16.0), (17.0, 20.0)):
        (seen,) = phase_of(tmp_path, window)["nodes"]
        assert (seen["watched"], seen["busy"]) == (1.0, 0.25)
    (node,) = read_nodes(tmp_path, {})
    assert node.clock_steps == [step, -step]


def test_lines_that_are_missing_do_not_set_the_clock(tmp_path: Path) -> None:
    for damaged in ("", "{", '{"t": 1, "s": 1, "c": [], "i": %d}'):
        path = write(tmp_path / f"n{len(damaged)}", "n1", Made(OSDS, busy=0.25))
        numbered(path, 0.0, 0)
        lines = path.read_text().splitlines()
        lines[6:12] = [damaged % i if "%" in damaged else damaged for i in range(6, 12)]
        path.write_text("\n".join(filter(None, lines)) + "\n")
        (node,) = read_nodes(tmp_path / f"n{len(damaged)}", {})
        assert node.clock is None and node.damage
        assert node.processors.rise(T0 + 12, T0 + 20)[0] == pytest.approx(8 * 2.0)


def test_a_counter_has_no_values_outside_its_pieces() -> None:
    import numpy as np

    counter = Counter(1)
    counter.add(0.0, np.array([1.0, 2.0]), np.array([[2.0], [4.0]]))
    counter.add(5.0, np.array([6.0]), np.array([[8.0]]))
    assert counter.rises([0, 0.5, 1, 1.5, 3, 5, 7])[:, 0].tolist() == [1.0, 1.0, 2.0, 2.0, 0.0, 8.0]
    assert counter.watched_seconds([0, 1, 4, 7]).tolist() == [1.0, 1.0, 1.0]
    assert not counter.meets(2.0, 5.0)


def test_many_bytes_are_read_by_several_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "n1", Made(OSDS), offset=3.0)
    write(tmp_path, "n2", Made([("osd", "10", 1.0, 600)]))
    alone = phase_of(tmp_path, offsets={"n1": 3.0})
    monkeypatch.setattr(worker_processes, "MANY", 0)
    assert phase_of(tmp_path, offsets={"n1": 3.0}) == alone


def test_a_torn_line_is_left_out(tmp_path: Path) -> None:
    path = write(tmp_path, "n1", Made(OSDS))
    data = path.read_bytes()
    path.write_bytes(data[: data.rindex(b'"end"') - 400])
    made = phase_of(tmp_path, (0.0, 19.0))
    assert made["classes"]["osd"]["cores"] == pytest.approx(0.75)
    assert made["nodes"][0]["watched"] < 1


@pytest.mark.parametrize("torn", [b'{"t": 1700000021.0, "s": 1.0, "c": [10', bytes(300)], ids=["a line", "NULs"])
def test_a_torn_line_ends_its_connection(tmp_path: Path, torn: bytes) -> None:
    """The next connection's header is behind it: it numbers daemons anew, and nobody watched in between."""
    path = write(tmp_path, "n1", Made([("osd", "1", 1.9, 100), ("osd", "2", 0.1, 100)]))
    with path.open("ab") as file:
        file.write(torn)
    write(tmp_path, "n1", Made([("osd", "2", 0.1, 100), ("osd", "1", 1.9, 100)]), begin=T0 + 400)
    made = phase_of(tmp_path, (0.0, 420.0))
    assert {its["id"]: its["cores"] for its in made["daemons"]} == {"1": pytest.approx(1.9), "2": pytest.approx(0.1)}
    assert made["nodes"][0]["watched"] == pytest.approx(40 / 420, abs=1e-4)


def test_a_torn_header_ends_the_connection_before_it(tmp_path: Path) -> None:
    path = write(tmp_path, "n1", Made(OSDS))
    other = write(tmp_path / "other", "n1", Made([("rgw", "1", 3.0, 100)]), begin=T0 + 100).read_bytes()
    path.write_bytes(path.read_bytes() + b'{"t": 1{"version": 1, "t": 17\n' + other.split(b"\n", 1)[1])
    assert list(phase_of(tmp_path, (0.0, 120.0))["classes"]) == ["osd"]
