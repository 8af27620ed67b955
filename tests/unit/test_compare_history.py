"""Metrics through many runs: the order is that of time, changes are found where they are, and explained."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any, Dict, List, Sequence, Tuple

import pytest
from compare_records import noise, record, warning

from cbt_plugins.compare.history import AlarmBudget, History, blocks, data, histories, no_change_text, table
from cbt_plugins.compare.table import Choice
from cbt_plugins.formatting.formats.terminal import Terminal
from cbt_plugins.report.text_page import history_page, sentence_of
from cbt_plugins.results.run_record import ResultWarning, RunRecord

GET, P99 = ("measure-new", "GET", "obj_per_s"), ("measure-new", "GET", "p99_ms")
DAY = 86400.0


def nights(levels: Sequence[float], *, change_at: int = 10**6, **more: Any) -> List[RunRecord]:
    values = noise(1.0, len(levels), scatter=0.01, seed=5)
    made = []
    for i, (level, value) in enumerate(zip(levels, values)):
        config = {"version.ceph": "18.2.7 reef" if i >= change_at else "17.2.6 quincy"}
        label = config["version.ceph"]
        about: Dict[str, Any] = {"config": config, "label": label, "started": i * DAY, "name": f"{i:02d}", **more}
        made.append(record({GET: level * value, P99: 20 * value}, **about))
    return made


def one(records: List[RunRecord], **more: Any) -> History:
    (found,) = histories(records, Choice(), **more)
    return found


def test_a_planted_change_is_found_and_explained() -> None:
    runs = nights([100] * 9 + [85] * 9, change_at=9)
    get, p99 = one(list(reversed(runs))).tracks  # the order given is not that of time
    (change,) = get.changes
    assert (change.before_run.name, change.run.name) == ("08", "09")
    assert change.before == pytest.approx(100, rel=0.02) and change.after == pytest.approx(85, rel=0.02)
    assert [(its.key, its.base, its.new) for its in change.differences] == [
        ("version.ceph", "17.2.6 quincy", "18.2.7 reef")
    ]
    assert get.verdict(change) == "worse" and p99.changes == ()


def test_better_is_what_the_metric_says() -> None:
    up = one(nights([100] * 9 + [120] * 9)).tracks[0]
    assert [up.verdict(change) for change in up.changes] == ["better"]
    values = [20.0, 20.1, 20.2] * 3 + [30.0, 30.1, 30.2] * 3
    runs = [record({P99: value}, started=i * DAY) for i, value in enumerate(values)]
    (slower,) = one(runs).tracks
    assert [slower.verdict(change) for change in slower.changes] == ["worse"]


def test_nights_whose_warnings_forbid_a_verdict_are_named_and_from_half_of_a_level_on_decide_nothing() -> None:
    down = (ResultWarning("daemon-down", "osd.5 was down", "measure-new"),)
    other = (ResultWarning("daemon-down", "osd.5 was down", "measure-aged"), ResultWarning("scrubbing", "1 PG"))
    for warned, wanted in ((range(9, 13), "worse"), (range(9, 14), "inconclusive"), (range(4, 9), "inconclusive")):
        runs = nights([100] * 9 + [85] * 9)
        runs = [replace(its, warnings=down if i in warned else other) for i, its in enumerate(runs)]
        history = one(runs)
        (change,) = history.tracks[0].changes
        assert history.tracks[0].verdict(change) == wanted
        level = "before" if warned[0] < 9 else "after"
        said = f"daemon-down in {len(warned)} of 9 runs {level} it: osd.5 was down"
        (night,) = [line for line in Terminal().text(blocks([history])).splitlines() if said in line]
        assert night.strip().startswith("- 1970-01-10 00:00:00 UTC (measure-new GET throughput)")
        (told,) = data([history])[0]["tracks"][0]["changes"]
        assert told["verdict"] == wanted and told["warnings"] == [
            {"code": "daemon-down", "level": level, "runs": len(warned), "of": 9, "text": "osd.5 was down"}
        ]


@pytest.mark.parametrize(
    ("code", "nights_with", "get", "p99"),
    [
        ("generator-bound", range(9, 18), "worse", "worse"),  # of a phase that has another name
        ("generator-bound", range(9, 13), "worse", "better"),
        ("generator-bound", range(9, 14), "inconclusive", "inconclusive"),
        ("generator-bound", range(9), "worse", "inconclusive"),
        ("paced", range(18), "worse", "inconclusive"),
        ("rate-given", range(18), "worse", "better"),
    ],
)
def test_a_change_that_limits_of_the_load_may_have_made_is_not_better_and_not_always_worse(
    code: str, nights_with: range, get: str, p99: str
) -> None:
    limit = (ResultWarning(code, "it was limited", "measure-new" if p99 != "worse" else "measure-aged"),)
    runs = nights([100] * 9 + [85] * 9)
    for i, run in enumerate(runs):
        p99_of_run = 20.0 + 0.1 * (i % 3) + (5.0 * (i >= 9) if p99 == "worse" else -5.0 * (i >= 9))
        values = (run.measurements[0], replace(run.measurements[1], value=p99_of_run))
        runs[i] = replace(run, measurements=values, warnings=limit if i in nights_with else ())
    history = one(runs)
    verdicts = [track.verdict(change) for track in history.tracks for change in track.changes]
    assert verdicts == [get, p99]
    text = " ".join(Terminal().text(blocks([history])).split())
    for metric, verdict in (("throughput", get), ("p99", p99)):
        if verdict == "inconclusive":
            told = rf"measure-new GET {metric}\): {code} in \d of 9 runs (before|after) it: it was limited"
            assert re.search(told, text)
    assert (code in text) == ("inconclusive" in verdicts or len(nights_with) == 4)
    assert ("levels with warnings" in text) == (code in text) and "forbid" not in text


def test_a_level_that_looks_better_than_it_is_hides_whether_the_next_one_is_worse() -> None:
    lacks = (ResultWarning("unfinished-request", "5 requests", "measure-new", metrics=("p99_ms",)),)
    values = [20.0, 20.1, 20.2] * 3 + [30.0, 30.1, 30.2] * 3
    for warned, wanted in ((range(9), "inconclusive"), (range(9, 18), "worse")):
        runs = [
            record({P99: value}, started=i * DAY, warnings=lacks if i in warned else ())
            for i, value in enumerate(values)
        ]
        (track,) = one(runs).tracks
        assert [track.verdict(change) for change in track.changes] == [wanted]


def test_nights_that_did_not_recover_are_counted() -> None:
    key = ("kill failure", "cluster", "recovery_s")
    values = noise(100, 20, scatter=0.01, seed=1)
    runs = [record({key: its if i < 12 else None}, started=i * DAY) for i, its in enumerate(values)]
    told = (
        "unrecovered-runs (kill failure cluster to active+clean): 8 of 20 runs have no time, the last one of "
        "1970-01-20 00:00:00 UTC: not reached, or not seen; the levels are of the other runs"
    )
    assert told in " ".join(Terminal().text(blocks([one(runs)])).split())
    assert "unrecovered" not in Terminal().text(blocks([one(runs[:12])]))


@pytest.mark.parametrize(("lost", "verdict"), [(range(0), "better"), (range(12, 24, 2), "inconclusive")])
def test_a_level_of_which_half_of_the_runs_did_not_recover_has_no_verdict(lost: range, verdict: str) -> None:
    key = ("kill failure", "cluster", "recovery_s")
    values = noise(1.0, 24, scatter=0.01, seed=1)
    runs = [
        record({key: None if i in lost else its * (100 if i < 12 else 60)}, started=i * DAY)
        for i, its in enumerate(values)
    ]
    (track,) = one(runs).tracks
    (change,) = track.changes
    assert track.verdict(change) == verdict
    warnings = [(its.code, its.level, its.runs, its.of) for its in change.warnings]
    assert warnings == ([("unrecovered-runs", "after", 6, 12)] if lost else [])


def test_last_runs_without_a_number_are_no_steady_level() -> None:
    key = ("kill failure", "cluster", "recovery_s")
    values = noise(100, 20, scatter=0.01, seed=1)
    for lost, text in ((8, "among runs that have a number; the last 8 runs have no number of kill"), (0, "found")):
        runs = [record({key: its if i < 20 - lost else None}, started=i * DAY) for i, its in enumerate(values)]
        history = one(runs)
        assert text in no_change_text(history) and (";" in no_change_text(history)) == bool(lost)
        assert ("No level change found." in history_page([history])) == (not lost)


def test_a_change_of_a_number_that_may_be_0_is_a_difference() -> None:
    """Nights without bad seconds, then nights with four to six: a share of 0 would be none."""
    bad, available = ("node down", "GET", "bad_s"), ("node down", "GET", "availability")
    levels = [(0.0, 1.0)] * 9 + [(5.0 + i % 3 - 1, 0.99) for i in range(9)]
    runs = [record({bad: seconds, available: share}, started=i * DAY) for i, (seconds, share) in enumerate(levels)]
    (history,) = histories(runs, Choice(phases=("node down",), metrics=("bad_s", "availability")))
    assert [track.verdict(change) for track in history.tracks for change in track.changes] == ["worse", "worse"]
    lines = Terminal().text(blocks([history])).splitlines()
    (seconds_line,) = [line for line in lines if "bad seconds" in line and "worse" in line]
    (share_line,) = [line for line in lines if "availability" in line and "worse" in line]
    assert "+5 s" in seconds_line and "-1.0 %" in share_line
    assert "+5 s." in sentence_of(history.tracks[0], history.tracks[0].changes[0]).text


@pytest.mark.parametrize(
    ("seconds", "limits", "verdict"),
    [
        ((20.0, 5.0), (30.0, 90.0), "inconclusive"),
        ((20.0, 5.0), (90.0, 90.0), "better"),
        ((5.0, 20.0), (30.0, 90.0), "worse"),
        ((5.0, 20.0), (90.0, 30.0), "inconclusive"),
    ],
)
def test_bad_seconds_by_the_baselines_of_the_nights(
    seconds: Tuple[float, float], limits: Tuple[float, float], verdict: str
) -> None:
    """A slower release has a higher limit, and with it fewer bad seconds."""
    bad = ("node down", "GET", "bad_s")
    runs = []
    for i in range(18):
        night = record({bad: seconds[i // 9] + i % 2}, started=i * DAY)
        measured = tuple(replace(m, limit_ms=limits[i // 9]) for m in night.measurements)
        runs.append(replace(night, measurements=measured))
    (history,) = histories(runs, Choice(phases=("node down",), metrics=("bad_s",)))
    ((track, change),) = [(track, change) for track in history.tracks for change in track.changes]
    assert track.verdict(change) == verdict
    text = "limits in 9 of 9 runs after it: p99 of a bad second"
    assert (text in " ".join(Terminal().text(blocks([history])).split())) == (verdict == "inconclusive")


def test_percentiles_of_a_failure_are_tracks_only_by_name() -> None:
    """More tracks make each change harder to find, so those of failures wait until somebody asks."""
    key = ("node down", "GET", "p99_ms")
    values = {P99: 20.0, key: 90.0, (*key[:2], "failed"): 0.0}
    runs = [record(values, started=i * DAY) for i in range(9)]
    assert [track.phase for track in one(runs).tracks] == ["measure-new"]
    (named,) = histories(runs, Choice(phases=("node down",), metrics=("p99_ms",)))
    assert [(track.phase, track.metric) for track in named.tracks] == [key[::2]]


def test_noise_has_no_changes() -> None:
    found = 0
    for seed in range(20):
        values = {GET: noise(100, 24, scatter=0.03, seed=seed), P99: noise(20, 24, scatter=0.1, seed=100 + seed)}
        runs = [record({key: its[i] for key, its in values.items()}, started=i * DAY) for i in range(24)]
        found += any(track.changes for track in one(runs).tracks)
    assert found <= 2


def test_a_budget_is_of_false_alarms_a_year() -> None:
    """Each look has its share: nightly runs are looked at daily, weekly ones weekly, ten in a night once."""
    day = 86400.0
    nightly, weekly, hourly = ([i * step for i in range(30)] for step in (day, 7 * day, 3600.0))
    assert AlarmBudget().of(nightly) == pytest.approx(1 / 365.25)
    assert AlarmBudget(2).of(weekly) == pytest.approx(2 / 52.18, rel=1e-3)
    assert AlarmBudget().of(hourly) == pytest.approx(1 / 365.25) == AlarmBudget().of([])
    assert AlarmBudget(100).of(weekly) == 0.05 and AlarmBudget(alpha=0.2).of(nightly) == 0.2
    night = [start + hour * 3600.0 for start in weekly for hour in range(10)]
    assert AlarmBudget().of(night) == AlarmBudget().of(weekly)
    told = Terminal().text(blocks(histories(nights([100] * 9), Choice())))
    assert "false alarms: at most 1 a year" in told


def test_the_rate_of_looks_is_that_of_the_last_runs() -> None:
    """... not of an old run, or of one with a wrong clock; where the rate changed, the last runs count."""
    now = 2000 * DAY
    nightly = [now + i * DAY + 1800 * (i % 3) for i in range(30)]
    for others in ([now - 730 * DAY], [now + 3000 * DAY], [now - 7 * DAY * i for i in range(1, 150)]):
        assert AlarmBudget().of([*others, *nightly]) == pytest.approx(1 / 365.25)
    assert AlarmBudget().looks([now, *nightly[:5]]) == AlarmBudget().looks([0.0, *nightly[:5]]) == 365.25
    weekdays = [now + i * DAY for i in range(60) if i % 7 < 5]
    assert AlarmBudget().looks(weekdays) == 365.25
    in_bursts = [now + day * DAY for week in range(10) for day in (7 * week, 7 * week + 1, 7 * week + 4)]
    assert AlarmBudget().looks(in_bursts) == pytest.approx(3 * 52.18, rel=0.02)  # gaps of 1, 3 and 3 days


def test_alpha_is_shared_by_the_tracks(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def found(values: List[float], alpha: float, seed: int, settled: Any) -> List[Any]:
        asked.append((len(values), alpha, seed))
        return []

    monkeypatch.setattr("cbt_plugins.compare.history.change_points", found)
    one(nights([100] * 9), budget=AlarmBudget(alpha=0.04), seed=3)
    assert asked == [(9, 0.02, 3), (9, 0.02, 3)]


def test_all_configurations_share_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def found(values: List[float], alpha: float, seed: int, settled: Any) -> List[Any]:
        asked.append(alpha)
        return []

    monkeypatch.setattr("cbt_plugins.compare.history.change_points", found)
    runs = [*nights([100] * 9), *nights([100] * 9, name="other")]
    runs[9:] = [replace(run, config={**run.config, "phase.measure-new.workers": 8}) for run in runs[9:]]
    made = histories(runs, Choice())
    assert asked == [pytest.approx(1 / 365.25 / 4, rel=0.02)] * 4
    assert [one_case["false_alarms_a_year"] for one_case in data(made)] == [0.5, 0.5]
    assert Terminal().text(blocks(made)).count("false alarms: at most 0.5 a year") == 2


def test_the_same_runs_give_the_same_bytes() -> None:
    runs = nights([100] * 9 + [85] * 9)
    backwards = blocks(histories(runs[::-1], Choice()))
    assert Terminal().text(blocks(histories(runs, Choice()))) == Terminal().text(backwards)


def test_other_configurations_have_a_history_of_their_own() -> None:
    other = record({GET: 50.0}, config={"phase.measure-new.workers": 8}, started=3.5 * DAY)
    runs = [*nights([100] * 8), other]
    first, second = histories(runs, Choice())
    assert (len(first.runs), len(second.runs)) == (8, 1)
    assert second.case == "phase.measure-new.workers=8"
    assert Terminal().text(blocks([first, second])).count("=====") >= 2


def test_runs_that_are_not_usable_are_left_out_and_named() -> None:
    runs = nights([100] * 8)
    bad = record({GET: 1.0, P99: 1.0}, started=9 * DAY, usable=False, name="bad", warnings=warning("phase-status"))
    made = one([*runs, bad])
    assert made.tracks[0].values[-1] is None and min(made.tracks[0].known_values) > 90
    text = Terminal().text(blocks([made]))
    assert "not-usable (runs/bad): its numbers are left out; because of phase-status" in text


def test_a_run_that_was_killed_before_its_first_phase_ended() -> None:
    killed = record({}, usable=False, name="killed", started=None)
    made = one([*nights([100] * 8), killed])
    text = Terminal().text(blocks([made]))
    assert "9 runs, " in text and "not-usable (runs/killed)" in text
    assert Terminal().text(blocks([one([killed])])).startswith("1 runs, at unknown times")


def test_few_runs_and_runs_without_a_time() -> None:
    assert "too-few-runs: 2 of 2 series" in Terminal().text(blocks([one(nights([100] * 5))]))
    text = "1 of 3 results have no time, so they cannot be ordered: the first is late of hsbench in runs/late"
    with pytest.raises(ValueError, match=text):
        histories([*nights([100] * 2), record({GET: 1.0}, name="late", kind="hsbench")], Choice())


def test_one_result_without_a_time_has_its_levels() -> None:
    """hsbench writes no time; of one result there is nothing to order."""
    history = one([record({GET: 100.0}, kind="hsbench")])
    text = Terminal().text(blocks([history]))
    assert text.startswith("1 runs, at unknown times") and "100.0" in text
    assert table([history])[1][0] == "" and "100.0" in history_page([history])


def test_success_rates_only_where_one_is_not_1() -> None:
    rate = ("measure-new", "GET", "success_rate")
    runs = [record({GET: 100.0, rate: 1.0}, started=i) for i in range(3)]
    assert [track.metric for track in one(runs).tracks] == ["obj_per_s"]
    runs.append(record({GET: 100.0, rate: 0.5}, started=4))
    assert [track.metric for track in one(runs).tracks] == ["obj_per_s", "success_rate"]


def test_csv_has_a_line_for_each_run_and_a_column_for_each_metric() -> None:
    head, *lines = table(histories(nights([100] * 3), Choice()))
    rows = [dict(zip(head, line)) for line in lines]
    assert [row["time"] for row in rows] == ["1970-01-01T00:00:00Z", "1970-01-02T00:00:00Z", "1970-01-03T00:00:00Z"]
    assert rows[0]["release"] == "17.2.6 quincy" and 95 < float(rows[2]["measure-new/GET/obj_per_s"]) < 105


def test_json_has_everything() -> None:
    (told,) = data(histories(nights([100] * 9 + [85] * 9, change_at=9), Choice()))
    assert told["tracks"][0]["id"] == "measure-new/GET/obj_per_s" and len(told["tracks"][0]["values"]) == 18
    (change,) = told["tracks"][0]["changes"]
    assert change["run"] == 9 and change["verdict"] == "worse" and change["p"] < 0.05
