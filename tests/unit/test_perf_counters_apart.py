"""Samples of `perf_counters` that are too far apart for a phase: what daemons did beside it is in no number of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple

import numpy as np
import pytest
from counters_archive import T0, archive, made_of

from cbt_plugins.results.nodes.daemon_counters import CounterSeries
from cbt_plugins.results.nodes.perf_counters import counter_warnings


def hits(t: float, loads: List[Tuple[float, float]]) -> float:
    """Return what an OSD has counted by then that does 1000 a second in these times, and else nothing."""
    return 1000 * sum(max(0.0, min(t, end) - begin) for begin, end in loads)


@pytest.mark.parametrize(
    ("heavy", "light"),
    [
        ([(4400, 5045), (5655, 6300)], (5050, 5650)),
        ([(900, 1004), (1066, 1200)], (1005, 1065)),
        ([(900, 1001)], (1001, 1065)),
        ([(900, 1004), (1066, 1200)], (1005, 1005)),  # a wait
    ],
)
def test_a_light_load_has_nothing_of_a_busy_neighbour(
    tmp_path: Path, heavy: List[Tuple[float, float]], light: Tuple[float, float]
) -> None:
    """1000 requests a second of 1 s, and 10 a second of 50 ms."""
    lines: List[Dict[str, Any]] = [{"version": 1, "interval": 10, "t": T0}]
    for t in [*range(0, 3600, 10), *range(3600, 9000, 100)]:
        busy, calm = hits(t, heavy), hits(t, [light]) / 100
        counters = {"onode_hits": busy + calm, "op_latency": [busy + calm, busy + calm / 20]}
        lines.append({"t": T0 + t, "d": {"osd.1": counters}})
    window = (heavy[0][1] + 1.0, heavy[-1][0] - 1.0) if light[0] == light[1] else light
    made = made_of(archive(tmp_path, {"perf_counters.n1/n1.jsonl": lines}), window)
    values = {line["name"]: line["value"] for line in made["phases"]["x"]["lines"]}
    expected = (0.0, None) if light[0] == light[1] else (10.0, 50.0)
    assert (values["onode_hits"], values["op_latency"]) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("beside_per_s", "counted"),
    [
        (0.0, 180.0),  # nothing rises further away: all is of the phase, and counts by time
        (5.0, 300.0),
        (20.0, None),  # more than the load beside it can explain
    ],
)
def test_what_a_phase_does_near_its_begin_is_its_own(beside_per_s: float, counted: Optional[float]) -> None:
    """300 requests fail in the first 40 s of the phase, and none later; of a load before it some fail each second.

    Samples are each 100 s, 40 s before the begin of the phase.
    """
    times = np.arange(0.0, 2000.0, 100.0)
    failed = np.array([beside_per_s * min(t, 1040.0) + 7.5 * min(max(t - 1040.0, 0.0), 40.0) for t in times])
    series = CounterSeries(times, np.full(20, 100.0), failed.reshape(-1, 1), False)
    values = series.at((1040.0, 1640.0))
    assert (values if counted is None else values[1] - values[0]) == (counted and pytest.approx(counted))


@pytest.mark.parametrize(
    ("first", "last", "busy", "counted"),
    [
        (0, 70, (0.0, 0.0), 300.0),  # nothing rises faster near an end
        (0, 70, (-60.0, 5.0), None),
        (0, 70, (-60.0, 12.0), None),  # it might have ended at 5, and 400 others be of later
        (0, 200, (-60.0, 5.0), None),
        (-10, 70, (-60.0, 5.0), 300.0),
        (-10, 70, (-60.0, 12.0), 1700.0),
        (-50, 70, (65.0, 130.0), None),
        (-50, 80, (65.0, 130.0), 300.0),
    ],
)
def test_what_one_sample_beside_a_phase_shows_may_be_of_the_phase_or_not(
    first: int, last: int, busy: Tuple[float, float], counted: Optional[float]
) -> None:
    """5 a second, and 200 more of a load; samples are each 10 s, and the phase is from 5 to 65."""
    times = np.arange(first, last + 1.0, 10.0)
    values = 200 * (np.clip(times, *busy) - busy[0]) + 5 * (times - first)
    series = CounterSeries(times, np.full(len(times), 10.0), values.reshape(-1, 1), False)
    levels = series.at((5.0, 65.0))
    assert (levels if counted is None else levels[1] - levels[0]) == (counted and pytest.approx(counted))


@pytest.mark.parametrize(("beside", "rate_of_window"), [(True, None), (False, 980.0)])
def test_without_two_samples_inside_what_is_further_away_tells(
    tmp_path: Path, beside: bool, rate_of_window: Optional[float]
) -> None:
    """Samples are 1 s before the window and 1 s behind it."""
    window = (5001.0, 5099.0)
    loads = [(4000.0, 5001.0), (5099.0, 6000.0)] if beside else [window]
    assert rate(sampled(tmp_path, *loads), window) == (rate_of_window and pytest.approx(rate_of_window, rel=0.01))


def sampled(tmp_path: Path, *loads: Tuple[float, float]) -> Path:
    """Return an archive with samples each 10 s for an hour, then each 100 s."""
    lines: List[Dict[str, Any]] = [{"version": 1, "interval": 10, "t": T0}]
    for t in [*range(0, 3600, 10), *range(3600, 7200, 100)]:
        counters = {"onode_hits": hits(t, list(loads)), "allocated_bytes": 7}
        lines.append({"t": T0 + t, "d": {"osd.1": counters}})
    return archive(tmp_path, {"perf_counters.n1/n1.jsonl": lines})


def rate(folder: Path, window: Tuple[float, float]) -> Optional[float]:
    numbers = made_of(folder, window)["phases"]["x"]
    values = {line["name"]: line["value"] for line in numbers["lines"]}
    assert values["allocated_bytes"] == 7 and (numbers.get("coarse") is True) is ("onode_hits" not in values)
    value: Optional[float] = values.get("onode_hits")
    return value


def test_a_short_load_and_its_idle_neighbour_have_no_rates(tmp_path: Path) -> None:
    """Both are between two samples: 600 a second would be in each."""
    folder = sampled(tmp_path, (5020.0, 5080.0))
    assert rate(folder, (5020.0, 5080.0)) is None and rate(folder, (5080.0, 5140.0)) is None
    (warning,) = counter_warnings(made_of(folder, (5020.0, 5080.0)))
    assert (warning["code"], warning["phase"]) == ("counters-coarse", "x")


@pytest.mark.parametrize("window", [(5050.0, 5290.0), (5001.0, 5299.0), (5099.0, 5201.0)])
def test_samples_inside_say_nothing_of_what_is_beside(window: Tuple[float, float], tmp_path: Path) -> None:
    assert rate(sampled(tmp_path, window), window) == pytest.approx(1000, rel=0.1)
    beside = [(window[0] - 500, window[0]), (window[1], window[1] + 500)]
    assert rate(sampled(tmp_path / "beside", *beside), window) == pytest.approx(0, abs=100)


def test_long_loads_and_early_ones_have_the_rates_of_all_their_time(tmp_path: Path) -> None:
    folder = sampled(tmp_path, (1003.0, 1062.0), (4050.0, 4650.0))
    assert rate(folder, (1003.0, 1062.0)) == pytest.approx(1000, rel=0.1)
    assert rate(folder, (4050.0, 4650.0)) == pytest.approx(1000, rel=0.1)


def test_where_nothing_was_counted_beside_the_phase_any_distance_will_do(tmp_path: Path) -> None:
    assert rate(sampled(tmp_path), (5020.0, 5080.0)) == 0.0


@pytest.mark.parametrize("other", [0, 1000], ids=["idle", "busy"])
def test_a_sum_without_a_daemon_of_the_class_is_none(tmp_path: Path, other: int) -> None:
    """The samples of the second OSD are 5 s later: two of them are in the phase, and one of the first OSD."""
    files: Dict[str, List[Dict[str, Any]]] = {}
    for node, (begin, hits_per_s) in enumerate([(0, 1000), (5, other)], 1):
        lines: List[Dict[str, Any]] = [{"version": 1, "interval": 10, "t": T0}]
        for t in range(begin, 100, 10):
            counters = {"onode_hits": hits_per_s * t, "allocated_bytes": 7}
            lines.append({"t": T0 + t, "d": {f"osd.{node}": counters}})
        files[f"perf_counters.n{node}/n{node}.jsonl"] = lines
    numbers = made_of(archive(tmp_path, files), (34.0, 46.0))["phases"]["x"]
    assert {line["name"]: line["value"] for line in numbers["lines"]} == {"allocated_bytes": 14}
    assert numbers["coarse"] is True


def rare(tmp_path: Path, events_of_osds: List[np.ndarray]) -> Dict[str, Any]:
    """Return the numbers of a phase of 600 s, with one sample beside each end, of OSDs with events at these times."""
    lines: List[Dict[str, Any]] = [{"version": 1, "interval": 10, "t": T0}]
    for t in range(0, 611, 10):
        of_osds = {f"osd.{osd}": {"onode_misses": int((at < t).sum())} for osd, at in enumerate(events_of_osds)}
        lines.append({"t": T0 + t, "d": of_osds})
    numbers = made_of(archive(tmp_path, {"perf_counters.n1/n1.jsonl": lines}), (5.0, 605.0))
    phase: Dict[str, Any] = numbers["phases"]["x"]
    return phase


@pytest.mark.parametrize("per_osd", [1, 3, 10, 30])
def test_rare_events_near_an_end_take_no_counter_of_the_class_away(tmp_path: Path, per_osd: int) -> None:
    chance = np.random.default_rng(per_osd)
    events = [chance.uniform(0, 610, chance.poisson(per_osd)) for _ in range(100)]
    (line,) = rare(tmp_path, events)["lines"]
    counted = sum(int(((at > 5) & (at < 605)).sum()) for at in events)
    assert line["value"] * 600 == pytest.approx(counted, rel=0.04)


@pytest.mark.parametrize(
    ("of_all", "of_first", "inside", "rate_of_phase"),
    [
        (0, 1, 3, 60.5 / 600),
        (0, 20, 3, None),  # more than one OSD has by chance
        (2, 0, 0, None),  # one OSD may have them by chance, all may not
        (2, 0, 3, None),
    ],
)
def test_events_of_a_load_beside_a_phase_are_not_rare(
    tmp_path: Path, of_all: int, of_first: int, inside: int, rate_of_phase: Optional[float]
) -> None:
    """20 OSDs have events in the last 10 s, which may be behind the phase, and some in the phase."""
    events = [np.array([*[608.0] * of_all, *[300.0] * inside]) for _ in range(20)]
    events[7] = np.append(events[7], [608.0] * of_first)
    numbers = rare(tmp_path, events)
    values = [pytest.approx(line["value"]) for line in numbers["lines"]]
    assert (values, numbers.get("coarse")) == (([rate_of_phase], None) if rate_of_phase else ([], True))


def clocked(tmp_path: Path, step: float, lost: int = -1) -> Path:
    """Return an archive of an OSD with 100 hits a second; the clock of its node is set at second 300."""
    lines: List[Dict[str, Any]] = [{"version": 1, "interval": 10, "t": T0, "i": 0}]
    for number, t in enumerate(range(0, 600, 10), 1):
        shown = T0 + t + (step if t >= 300 else 0.0)
        lines.append({"t": shown, "s": 10.0, "d": {"osd.1": {"onode_hits": 10**6 + 100 * t}}, "i": number})
    return archive(tmp_path, {"perf_counters.n1/n1.jsonl": [line for line in lines if line["i"] != lost]})


def test_a_clock_that_is_set_back_moves_no_rate(tmp_path: Path) -> None:
    folder = clocked(tmp_path, -60.0)
    for window in ((200.0, 290.0), (250.0, 350.0), (310.0, 590.0)):
        numbers = made_of(folder, window)
        ((line,),) = (numbers["phases"]["x"]["lines"],)
        assert line["value"] == pytest.approx(100.0)
        (warning,) = counter_warnings(numbers)
        text = "perf_counters on n1: its clock was set by -60 s, or it was paused"
        assert warning["code"] == "clock-offset" and warning["text"].startswith(text)


def test_nothing_is_known_of_the_time_by_which_a_clock_is_set_forward(tmp_path: Path) -> None:
    folder = clocked(tmp_path, 600.0)
    assert made_of(folder, (250.0, 500.0)) == {"phases": {}}
    assert list(made_of(folder, (950.0, 1150.0))["clocks"]) == ["n1"]


def test_a_lost_line_is_no_step_of_the_clock(tmp_path: Path) -> None:
    assert "clocks" not in made_of(clocked(tmp_path, 0.0, lost=20), (100.0, 500.0))
