"""The clock of the node that samples the cluster is set during a run: what its agent writes, and what is read of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Dict, List, Optional

import pytest
from recovery_times import seconds
from watched_failures import BACK, CLEAN, DEGRADED, DOWN, FAULT, SETTLED, watched

from cbt_plugins.cluster.state_sampler_agent import SampleClock, StateLines, longest_interval
from cbt_plugins.results.recovery.cluster_samples import Samples, read_samples
from cbt_plugins.results.recovery.milestones import milestones

LINES = [DOWN, {"t": 13.0, "pgs": DEGRADED, "degraded": [40, 100]}, SETTLED]
LINES += [{"t": 45.0, "pgs": CLEAN, "degraded": [0, 0]}]


def set_at(tmp_path: Path, steps: Dict[float, float], said: bool = True, connected: Optional[float] = None) -> Samples:
    """Set the clock at some times by some seconds; the agent says so, or not; it is connected anew at a time."""
    watched(tmp_path, *LINES)
    path, shift = tmp_path / "recovery.jsonl", 0.0
    lines: List[Dict[str, Any]] = []
    for number, line in enumerate(map(json.loads, path.read_text().splitlines())):
        step = steps.get(line["t"], 0.0) if number else 0.0
        shift += step
        if number and line["t"] == connected:
            lines.append({"version": 1, "t": line["t"] + shift, "via": "librados", "interval": 1.0})
        lines.append({**line, "t": line["t"] + shift, **({"step": step} if step and said else {})})
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return read_samples([path])


def times(samples: Samples) -> List[float]:
    return [sample.t for sample in samples.samples]


@pytest.mark.parametrize("said", [True, False])
@pytest.mark.parametrize("connected", [None, 50.0])
def test_a_clock_that_is_set_back_moves_no_sample(tmp_path: Path, said: bool, connected: Optional[float]) -> None:
    """By 20 s, at 30: the cluster before the fault would be among that of the failure."""
    before = milestones(watched(tmp_path, *LINES), [*FAULT, *BACK])
    samples = set_at(tmp_path, {30.0: -20.0}, said, connected)
    assert times(samples) == [float(t) for t in range(101)] and samples.gaps == []
    made = milestones(samples, [*FAULT, *BACK])
    assert [seconds(episode) for episode in made["episodes"]] == [seconds(episode) for episode in before["episodes"]]
    (warning,) = (warning for warning in made["warnings"] if warning["code"] == "recovery-gap")
    assert warning["text"] == (
        "the node that samples the cluster: its clock was set by -20 s, or it was paused: "
        "samples may be in another phase than theirs"
    )
    assert "recovery-gap" not in [warning["code"] for warning in before["warnings"]]


def test_a_clock_that_is_set_back_and_mended_is_right_again(tmp_path: Path) -> None:
    assert times(set_at(tmp_path, {30.0: -20.0, 60.0: 20.0})) == [float(t) for t in range(101)]


def test_nothing_is_known_of_the_time_by_which_a_clock_is_set_forward(tmp_path: Path) -> None:
    """A node that was paused looks the same, and its later samples are in their place."""
    samples = set_at(tmp_path, {30.0: 600.0})
    assert times(samples)[28:32] == [28.0, 29.0, 630.0, 631.0] and samples.clock_steps == [600.0]
    assert [(gap["t"], gap["seconds"]) for gap in samples.gaps] == [(630.0, 601.0)]


def test_a_run_that_is_resumed_later_has_a_clock_that_was_not_set(tmp_path: Path) -> None:
    """The clock was set back by 20 s; the next agent begins 40 s after it was, on a clock that is right."""
    samples = set_at(tmp_path, {30.0: -20.0, 60.0: 20.0}, said=False, connected=60.0)
    assert times(samples)[59:62] == [59.0, 60.0, 61.0]


def test_the_agent_compares_its_clock_with_the_time_that_passes() -> None:
    clock = SampleClock(None)
    assert clock.follow(1000.0, 50.0) == (0.0, 0.0)
    assert clock.follow(1001.5, 51.0) == (1.5, 0.0)
    assert clock.follow(401.5, 52.0) == (1.0, -601.0)
    assert clock.follow(1003.5, 53.0) == (602.0, 601.0)
    # of an agent before it only the time of its last sample is known
    assert SampleClock(990.0).follow(1000.0, 50.0) == (10.0, 0.0)


@pytest.mark.parametrize("interval", [0.25, 1.0, 1.5, 5.0])
def test_the_agent_and_the_reports_agree_when_samples_have_a_gap(interval: float) -> None:
    assert longest_interval(interval) == Samples(interval=interval).longest_interval


def test_a_step_is_in_the_line_of_its_sample(capfd: pytest.CaptureFixture[str]) -> None:
    lines = StateLines()
    for t, step in ((100.0, 0.0), (100.2, 0.0), (40.4, -60.0), (40.6, 0.0)):
        lines.sample({"t": t, "pgs": CLEAN}, [], [], None, step)
    lines.flush()
    written = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert [(line["t"], line.get("step")) for line in written] == [
        *((100.0, None), (100.2, None), (40.4, -60.0), (40.6, None)),
    ]
