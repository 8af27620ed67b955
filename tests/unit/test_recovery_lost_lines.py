"""Lines of the sampler that are lost: each line has only what changed, and now and then one has the complete state."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Dict, List, Tuple

import pytest
from recovery_times import reasons, seconds
from watched_failures import BACK, CLEAN, DEGRADED, FAULT, RECOVERING

from cbt_plugins.cluster import state_sampler_agent
from cbt_plugins.results.recovery.cluster_samples import Samples, read_samples
from cbt_plugins.results.recovery.milestones import milestones

HEALTHY: Dict[str, Any] = {"epoch": 1, "osds": 8, "down": [], "out": [], "pgs": CLEAN, "num_pgs": 10}
HEALTHY.update(degraded=[0, 0], unfound=[0, 0], settled=True, health="HEALTH_OK", checks=[], recovered=[0, 0, 0])
#: what changes at a time: two OSDs go down and their PGs recover on the others
CHANGES = {
    11.0: {"epoch": 2, "down": [6, 7], "settled": False, "health": "HEALTH_WARN"},
    13.0: {"pgs": DEGRADED, "degraded": [40, 100]},
    16.0: {"settled": True},
    50.0: {"pgs": CLEAN, "degraded": [0, 0], "health": "HEALTH_OK"},
}
MAPS = {11.0: [{"epoch": 2, "t": 10.4, "down": [6, 7]}]}


def lines_of(changes: Dict[float, Dict[str, Any]], maps: Dict[float, List[Dict[str, Any]]], end: int) -> None:
    """Write the lines of the agent, one a second, to standard output."""
    output, state = state_sampler_agent.StateLines(), HEALTHY
    output.write({"version": 1, "t": 0.0, "via": "librados", "interval": 1.0, "mgr_stats_period": 5.0})
    for number in range(end):
        state = {**state, "t": float(number), **changes.get(number, {})}
        output.sample(state, maps.get(number, []), ["rgw.a ended"] if number == 14 else [], None)
    output.flush()


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]) -> List[Dict[str, Any]]:
    monkeypatch.setattr(state_sampler_agent, "FULL_AFTER", 2)
    lines_of(CHANGES, MAPS, 80)
    return [json.loads(line) for line in capfdbinary.readouterr().out.splitlines()]


#: one OSD goes down, then the other; they return the same way, and PGs recover from the first one on
ONE_BY_ONE: Dict[float, Dict[str, Any]] = {
    11.0: {"epoch": 2, "down": [6], "settled": False, "health": "HEALTH_WARN"},
    13.0: {"epoch": 3, "down": [6, 7], "pgs": DEGRADED, "degraded": [40, 100]},
    25.0: {"settled": True},
    65.0: {"epoch": 4, "down": [7], "settled": False},
    66.0: {"pgs": RECOVERING},
    69.0: {"recovered": [100, 1 << 20, 0]},
    72.0: {"epoch": 5, "down": []},
    80.0: {"pgs": CLEAN, "degraded": [0, 0], "health": "HEALTH_OK", "settled": True},
}
TURNS: Dict[float, List[Dict[str, Any]]] = {
    11.0: [{"epoch": 2, "t": 10.4, "down": [6]}],
    13.0: [{"epoch": 3, "t": 12.6, "down": [7]}],
    65.0: [{"epoch": 4, "t": 64.5, "up": [6]}],
    72.0: [{"epoch": 5, "t": 71.5, "up": [7]}],
}


@pytest.mark.parametrize(("full_after", "until"), [(0, 2.0), (2, 2.6)])
def test_a_later_osd_map_is_not_the_first_one_where_that_is_lost(
    monkeypatch: pytest.MonkeyPatch,
    capfdbinary: pytest.CaptureFixture[bytes],
    tmp_path: Path,
    full_after: int,
    until: float,
) -> None:
    """The samples behind the lost line show one OSD down, or two of which maps tell of one."""
    monkeypatch.setattr(state_sampler_agent, "FULL_AFTER", full_after)
    lines_of(ONE_BY_ONE, TURNS, 100)
    lines = [json.loads(line) for line in capfdbinary.readouterr().out.splitlines()]
    events = [*FAULT, *BACK, {"t": 99.0, "event": "phase-end"}]
    all_lines = read_all(lines, tmp_path, events)
    failure, back = read_all(lines, tmp_path, events, 11.0, 65.0)
    assert reasons(failure)["first-down"] == f"unknown, between 0.0 s and {until} s: no samples"
    assert seconds(all_lines[0])["first-down"] == 0.4 and seconds(all_lines[1])["first-up"] == 4.5
    assert [each["recovery"]["objects"] for each in (all_lines[1], back)] == [100, 100]
    if full_after == 0:
        assert reasons(back)["first-up"] == "unknown, between 4.0 s and 6.0 s: no samples"
        assert seconds(back)["recovery-starts"] == seconds(all_lines[1])["recovery-starts"] == 6.0
        assert seconds(failure)["all-down"] is None


def read(lines: List[Dict[str, Any]], tmp_path: Path, *lost: float) -> Tuple[Samples, Dict[str, Any]]:
    """Return the samples and the failure without the lines of some times, or with a torn one."""
    samples = samples_without(lines, tmp_path, *lost)
    return samples, milestones(samples, [*FAULT, {"t": 79.0, "event": "phase-end"}])["episodes"][0]


def read_all(
    lines: List[Dict[str, Any]], tmp_path: Path, events: List[Dict[str, Any]], *lost: float
) -> List[Dict[str, Any]]:
    episodes: List[Dict[str, Any]] = milestones(samples_without(lines, tmp_path, *lost), events)["episodes"]
    return episodes


def samples_without(lines: List[Dict[str, Any]], tmp_path: Path, *lost: float) -> Samples:
    texts = [json.dumps(line) if line["t"] not in lost or "version" in line else '{"t"' for line in lines]
    path = tmp_path / "recovery.jsonl"
    path.write_text("".join(text + "\n" for text in texts))
    return read_samples([path])


def test_a_full_line_now_and_then_adds_a_part_that_is_known(written: List[Dict[str, Any]]) -> None:
    full = [line for line in written if "full" in line]
    assert [line["t"] for line in full[:1]] == [0.0] and all(HEALTHY.keys() < line.keys() for line in full)
    sizes = [len(json.dumps(line)) for line in written]
    assert 2 < len(full) < 7 and sum(len(json.dumps(line)) for line in full[1:]) < 0.5 * sum(sizes)


def test_full_lines_change_nothing(written: List[Dict[str, Any]], tmp_path: Path) -> None:
    samples, failure = read(written, tmp_path)
    assert seconds(failure)["clean"] == 40.0 and samples.gaps == [] and samples.damage == {}
    assert len({id(sample.state) for sample in samples.samples}) == 1 + len(CHANGES)


def test_a_lost_change_moves_no_milestone(written: List[Dict[str, Any]], tmp_path: Path) -> None:
    """The line that shows PGs degraded is lost: the state before it would say that all PGs stayed clean."""
    samples, failure = read(written, tmp_path, 13.0)
    again = next(line["t"] for line in written if "full" in line and line["t"] > 13.0)
    assert 13.0 < again < 40.0
    assert seconds(failure)["clean"] == 40.0 and seconds(failure)["first-down"] == 0.4
    assert samples.gaps == [{"t": again, "seconds": again - 12.0, "why": "lines of the sampler were lost"}]
    assert samples.before(again).t == 12.0 and samples.samples[13].changed == ("rgw.a ended",)  # type: ignore[union-attr]


def test_a_change_that_may_be_in_lost_lines_came_at_an_unknown_time(
    written: List[Dict[str, Any]], tmp_path: Path
) -> None:
    again = next(line["t"] for line in written if "full" in line and line["t"] > 50.0)
    _, failure = read(written, tmp_path, *(float(t) for t in range(40, 51)))
    assert reasons(failure)["clean"] == f"unknown, between 29.0 s and {again - 10:.1f} s: no samples"


def test_the_time_of_a_lost_osd_map_is_unknown(written: List[Dict[str, Any]], tmp_path: Path) -> None:
    _, failure = read(written, tmp_path, 11.0)
    assert reasons(failure)["all-down"].startswith("unknown, between 0.0 s and ")
    assert seconds(failure)["clean"] == 40.0


def test_an_osd_map_behind_a_lost_line_keeps_its_time(written: List[Dict[str, Any]], tmp_path: Path) -> None:
    samples, failure = read(written, tmp_path, 5.0)
    assert seconds(failure)["all-down"] == 0.4 and samples.skew == 0.0


def test_without_full_lines_nothing_is_known_until_the_next_agent(
    written: List[Dict[str, Any]], tmp_path: Path
) -> None:
    """Agents of earlier versions write none."""
    old = [{key: value for key, value in line.items() if key != "full" or line["t"] == 0.0} for line in written]
    _, failure = read(old, tmp_path, 13.0)
    assert failure["outcome"] == "unknown"
    connected = [{**line, "t": 100.0 + line["t"]} for line in old]
    samples, _ = read([*old, *connected], tmp_path, 13.0)
    assert [(gap["t"], gap["seconds"]) for gap in samples.gaps] == [(100.0, 88.0)] and len(samples.samples) == 93
