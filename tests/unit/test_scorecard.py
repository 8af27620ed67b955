"""The scorecard: losses from a fault to the end of its phase, repetitions, refusals, and two of them side by side."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence

import pytest
from aggregates_writer import Request
from impact_phases import FAULT, MIB, T0, load, phase, recovery

from cbt_plugins.compare import gate, output
from cbt_plugins.compare import scorecard as side_by_side
from cbt_plugins.compare.sides import Side
from cbt_plugins.compare.table import Choice, Rules, compare
from cbt_plugins.formatting.formats.terminal import Terminal
from cbt_plugins.report import scorecard as card
from cbt_plugins.report.sentence import of_run as sentence_of_run
from cbt_plugins.results.archive import ArchivedRun
from cbt_plugins.results.recovery.failure_scores import scorecard
from cbt_plugins.results.recovery.impact import impact
from cbt_plugins.results.run_record import Measurement, RunRecord, measurements, of_failure, result_warnings

BACK = ("return", 60.0, 300.0, {"undone": 61.0, "clean": 72.5})
URL = "http://rgw1:7480"


def episodes(*lines: Any) -> Dict[str, Any]:
    """Of tests/unit/impact_phases.py, with what the cluster did."""
    made = recovery(*lines)
    for line in made["episodes"]:
        line["recovery"] = {"bytes": 3 * MIB}
        for milestone in line["milestones"]:
            milestone["seconds"] = None if milestone["t"] is None else milestone["t"] - line["begin"]
    return made


def scored(tmp_path: Path, requests: Sequence[Request], made: Dict[str, Any], **more: Any) -> List[Dict[str, Any]]:
    calm = phase(tmp_path, load(-200, -100, 0.1, 0.01), name="no-failure", begin=-200.0)
    hit = phase(tmp_path, requests, name="node-down", **more)
    section = impact([calm, hit], made, failure_of_phase={"node-down": "node down"})
    return list(section["scores"])


def test_a_score_is_about_the_time_from_the_fault_to_the_end_of_the_phase(tmp_path: Path) -> None:
    """20 s before the fault are not in it; the return is, and what follows the phase is not."""
    failed = load(30, 32, 0.1, 0.01, error="refused: no connection")
    requests = [*load(0, 30, 0.1, 0.01), *failed, *load(32, 100, 0.1, 0.01)]
    (score,) = scored(tmp_path, requests, episodes(FAULT, BACK))
    assert (score["failure"], score["phase"], score["labels"]) == ("node down", "node-down", ["a"])
    total = score["total"]
    assert (score["seconds"], total["requests"], total["errors"]) == (80.0, 780, 20)
    assert total["availability"] == pytest.approx(780 / 800) and total["bad_seconds"] == 2
    assert score["cluster"] == {"touched": True, "recovery_s": 12.5, "moved_mib": 6.0}


def test_an_attempt_that_was_broken_off_has_no_score(tmp_path: Path) -> None:
    made = episodes(FAULT, BACK)
    for line in made["episodes"]:
        line["aborted"] = "04-node-down"
    assert scored(tmp_path, load(0, 100, 0.1, 0.01), made) == []


def test_a_failure_that_changes_no_osd_has_no_time_of_recovery(tmp_path: Path) -> None:
    made = episodes(FAULT, BACK)
    for line in made["episodes"]:
        line.update(effect=False, recovery=None)
    (score,) = scored(tmp_path, load(0, 100, 0.1, 0.01), made)
    assert score["cluster"]["touched"] is False
    found = list(of_failure({"name": "rgw down", "scores": [score]}))
    assert {m.op for m in found} == {"GET", "total"} and {m.phase for m in found} == {"rgw down"}


def test_what_osds_moved_unseen_is_unknown(tmp_path: Path) -> None:
    """The OSDs changed in a gap, so no map tells when; or the undo is not in the phase."""
    requests = load(0, 100, 0.1, 0.01)
    for unseen in (0, 1):
        made = episodes(FAULT, BACK)
        made["episodes"][unseen]["recovery"] = None
        (score,) = scored(tmp_path, requests, made)
        assert score["cluster"] == {"touched": True, "recovery_s": 12.5, "moved_mib": None}
    (score,) = scored(tmp_path, requests, episodes(FAULT))
    assert score["cluster"] == {"touched": True, "recovery_s": None, "moved_mib": None}
    # the failure itself has moved nothing
    made = episodes(FAULT, BACK)
    made["episodes"][0].update(effect=False, recovery=None)
    (score,) = scored(tmp_path, requests, made)
    assert score["cluster"]["moved_mib"] == 3.0


def test_what_recovery_moves_until_osds_return_is_moved_too(tmp_path: Path) -> None:
    """Of the return; before the failure it was of something else."""
    made = episodes(FAULT, BACK)
    for line, before in zip(made["episodes"], (7 * MIB, 4 * MIB)):
        line["recovery"]["bytes_before"] = before
    (score,) = scored(tmp_path, load(0, 100, 0.1, 0.01), made)
    assert score["cluster"]["moved_mib"] == 10.0


def a_score(number: int, **more: Any) -> Dict[str, Any]:
    total: Dict[str, Any] = dict.fromkeys(("p50_ms", "p99_ms", "p999_ms"), 9.0)
    total.update(requests=900, errors=number, waited=0, bad_seconds=10 + number, obj_per_s=9.0)
    total.update(longest_gap=1.0 + number, obj_per_s_percent=99.0, p99_ratio=1.5 + 0.1 * number, availability=0.99)
    cluster = {"touched": True, "recovery_s": 20.0 + number, "moved_mib": 5.0, **more}
    about = {"phase": f"node-down-{number}", "labels": [f"node-down-{number}"], "begin": T0, "seconds": 80.0}
    gateways = {"gateways": [], "gateway_gap": None, "unstarted": 0}
    back = {"seconds": 0.0, "between": None, "reason": None}
    return {**about, "total": total, "ops": {"GET": total}, **gateways, "back": back, "cluster": cluster}


def line(scores: Sequence[Dict[str, Any]], **more: Any) -> Dict[str, Any]:
    return {"name": "node down", "kind": "stop", "planned": len(scores), "scores": list(scores), "refused": [], **more}


def values(found: Sequence[Measurement], op: str, metric: str) -> Optional[Measurement]:
    return next((m for m in found if (m.op, m.metric) == (op, metric)), None)


def test_the_value_of_a_failure_is_the_median_of_its_repetitions() -> None:
    found = list(of_failure(line([a_score(1), a_score(5), a_score(2)])))
    bad = values(found, "GET", "bad_s")
    assert bad is not None and (bad.phase, bad.n) == ("node down", 2700)
    assert (bad.value, bad.repeats) == (12.0, (11.0, 15.0, 12.0))
    moved, back = values(found, "cluster", "moved_mib"), values(found, "cluster", "recovery_s")
    assert moved is not None and moved.value == 5.0 and back is not None and back.value == 22.0
    unrecovered = list(of_failure(line([a_score(1), a_score(2, recovery_s=None)])))
    without = values(unrecovered, "cluster", "recovery_s")
    assert without is not None and without.value is None and without.repeats is None


@pytest.mark.parametrize("worst", [0, 2])
def test_a_repetition_without_a_number_leaves_the_failure_without_one(worst: int) -> None:
    """Fewer than 100 requests succeeded in the worst one, so it has no p99: the others are not its median."""
    scores = [a_score(i) for i in range(3)]
    total = {**scores[worst]["total"], "p99_ratio": None, "availability": None}
    scores[worst].update(total=total, ops={"GET": total})
    found = list(of_failure(line(scores)))
    for metric in ("p99_ratio", "availability"):
        without = values(found, "GET", metric)
        assert without is not None and (without.value, without.repeats) == (None, None)
    bad = values(found, "GET", "bad_s")
    assert bad is not None and bad.repeats == (10.0, 11.0, 12.0)
    base, new = sides([a_score(0)] * 3, scores)
    gated = gate.gate(base, [new], gate.GateLimits(tuple(gate.of_texts(["node down.GET.p99_ratio=20%"]))), Rules())
    assert gated.outcome.word not in ("ok", "regression")


def test_repetitions_that_were_refused_leave_the_failure_without_a_number() -> None:
    """Those in which the cluster could be judged are no fair choice."""
    refused = [{"phase": "node-down-4", "why": "clean: 3 PGs are not active+clean"}]
    bad = values(list(of_failure(line([a_score(i) for i in range(3)], refused=refused))), "GET", "bad_s")
    assert bad is not None and (bad.value, bad.repeats) == (None, None)


def test_a_failure_of_unknown_availability_is_not_the_one_that_cost_most() -> None:
    scores = [a_score(0), a_score(1)]
    scores[1]["total"] = {**scores[1]["total"], "availability": None}
    failures = [line(scores), {**line([a_score(3)]), "name": "rgw down"}]
    (sentence,) = sentence_of_run({"usable": True, "failure": None, "scorecard": {"failures": failures}}, {})
    assert sentence.text == (
        "2 failures measured; clients lost most by rgw down: availability 99.000 %, 13 bad seconds."
    )
    (sentence,) = sentence_of_run({"usable": True, "failure": None, "scorecard": {"failures": failures[:1]}}, {})
    assert sentence.text == "1 failure measured."


def test_repetitions_without_an_effect_have_moved_nothing() -> None:
    calm = {"touched": False, "recovery_s": None, "moved_mib": 0.0}
    found = list(of_failure(line([a_score(0, **calm), a_score(1, **calm), a_score(2, moved_mib=300.0)])))
    moved, back = values(found, "cluster", "moved_mib"), values(found, "cluster", "recovery_s")
    assert moved is not None and (moved.value, moved.repeats) == (0.0, (0.0, 0.0, 300.0))
    assert back is not None and back.value is None
    assert "cluster" not in {m.op for m in of_failure(line([a_score(0, **calm)] * 3))}


def test_repetitions_have_an_interval_from_three_on_and_one_has_none() -> None:
    several = card.rows({"failures": [line([a_score(1), a_score(2), a_score(3)])]})
    assert several[0] == card.HEAD and several[1][:3] == ("node down", "stop", "3")
    by_head = dict(zip(*several))
    assert by_head["bad seconds s"].startswith("12.00 ±") and by_head["moved MiB"] == "5.000 ±0.0 %"
    assert by_head["availability"] == "99.000 % ±0.000"
    (single,) = card.rows({"failures": [line([a_score(1)])]})[1:]
    assert "±" not in "".join(single)


def archived(tmp_path: Path, events: Sequence[Dict[str, Any]], repeat: int = 2) -> ArchivedRun:
    (tmp_path / "events.jsonl").write_text("".join(f"{json.dumps(event)}\n" for event in events))
    phases = [
        {"name": f"{name}-{i}", "failure": name.replace("-", " "),
         "events": [{"at": 1, "inject": {"label": f"{name}-{i}", "kind": "stop"}}, {"at": 2, "undo": [f"{name}-{i}"]}]}
        for i in range(1, repeat + 1) for name in ("node-down", "rgw-down")
    ]  # fmt: skip
    return ArchivedRun(tmp_path, "run", plan={"phases": [{"name": "fill"}, *phases]})


def test_what_was_refused_is_in_the_scorecard_with_its_reason(tmp_path: Path) -> None:
    skipped = [
        {"event": "fault-skipped", "label": f"rgw-down-{i}", "kind": "stop", "why": f"rgw-down-{i}: none left"}
        for i in (1, 2)
    ]
    # refused at first, and injected when the run was resumed
    skipped.append({"event": "fault-skipped", "label": "node-down-1", "kind": "stop", "why": "not clean"})
    run = archived(tmp_path, skipped)
    failure = {"impact": {"scores": [{"failure": "node down", **a_score(1)}]}}
    made = scorecard(run, failure)
    assert made is not None and "scores" not in failure["impact"]
    node, rgw = made["failures"]
    assert (node["planned"], len(node["scores"]), node["refused"]) == (2, 1, [])
    assert [refused["phase"] for refused in rgw["refused"]] == ["rgw-down-1", "rgw-down-2"]
    assert list(card.refusals(made)) == ["rgw down (2 of 2 times): none left"]
    text = Terminal().text(list(card.blocks(made)))
    assert "node down" in text and "rgw down (2 of 2 times): none left" in text
    assert scorecard(ArchivedRun(tmp_path, "run", plan={"phases": [{"name": "fill"}]}), None) is None
    assert scorecard(run, None) is not None


def record(name: str, scores: Sequence[Dict[str, Any]], started: float, **more: Any) -> RunRecord:
    found = tuple(of_failure(line(scores, **more)))
    return RunRecord(name, name, "cbt-plugins", {"benchmark": "resilience"}, found, True, (), started=started)


def sides(base: Sequence[Dict[str, Any]], new: Sequence[Dict[str, Any]]) -> List[Side]:
    return [Side("16.2", (record("16.2", base, 1.0),)), Side("18.2", (record("18.2", new, 2.0),))]


def test_two_scorecards_are_one_table_with_verdicts() -> None:
    base, new = sides([a_score(i % 3) for i in range(6)], [a_score(20 + i % 3) for i in range(6)])
    compared = compare(base, [new])
    text = Terminal().text(list(side_by_side.blocks(side_by_side.of(compared))))
    (verdicts,) = [row for row in text.splitlines() if row.split()[:1] == ["verdict"]]
    assert verdicts.count("worse") == 3  # bad seconds, gap, recovery; both runs have one baseline for all p99 ratios
    by_key = {row.key: row for row in compared.rows}
    bad = by_key["node down", "GET", "bad_s"]
    assert (bad.way, bad.runs, bad.comparison.change) == ("repetitions", (6, 6), pytest.approx(20.0))
    assert "within-run" in {warning.code for warning in bad.comparison.warnings}
    assert "repetitions in the run of each side" in " ".join(output.legend(compared.rules, compared.rows))


@pytest.mark.parametrize(("gap", "cell"), [(0.3, "< 1"), (1.2, "1.200")])
def test_a_gap_below_a_second_is_a_lower_bound(gap: float, cell: str) -> None:
    score = a_score(0)
    score["total"] = {**score["total"], "longest_gap": gap}
    head, row = card.rows({"failures": [line([score])]})
    assert row[head.index("longest gap s")] == cell


def test_a_comparison_without_a_scorecard_has_no_such_table() -> None:
    plain = [Measurement("measure", "GET", "obj_per_s", 10.0)]
    runs = [RunRecord(name, name, "fio", {}, tuple(plain), True, ()) for name in ("a", "b")]
    assert side_by_side.of(compare(Side("a", (runs[0],)), [Side("b", (runs[1],))])) is None
    assert list(side_by_side.blocks(None)) == []


@pytest.mark.parametrize(("worse", "outcome"), [(0, "ok"), (20, "regression")])
def test_the_gate_takes_limits_of_failures(worse: int, outcome: str) -> None:
    texts = ["node down.GET.bad_s=20%", "node down.longest_gap_s=+2s", "node down.recovery_s=20%"]
    base, new = sides([a_score(i % 2) for i in range(8)], [a_score(worse + i % 2) for i in range(8)])
    gated = gate.gate(base, [new], gate.GateLimits(tuple(gate.of_texts(texts))), Rules())
    assert {ruling.outcome.word for ruling in gated.rulings} == {outcome}
    assert [ruling.row for ruling in gated.rulings] == [
        *("node down/GET/bad_s", "node down/total/longest_gap_s", "node down/cluster/recovery_s"),
    ]


def slow(score: Dict[str, Any]) -> Dict[str, Any]:
    return {**score, "ops": {"GET": {**score["ops"]["GET"], "p50_ms": 3.0, "p99_ms": 300.0, "p999_ms": None}}}


def test_percentiles_of_a_failure_are_rows_only_by_name() -> None:
    base, new = sides([a_score(i % 3) for i in range(6)], [slow(a_score(i % 3)) for i in range(6)])
    quantiles = ("p50_ms", "p99_ms", "p999_ms")
    assert not [row.key for row in compare(base, [new]).rows if row.metric in quantiles]
    named = compare(base, [new], Choice(phases=("node down",), ops=("GET",), metrics=quantiles))
    assert [row.metric for row in named.rows] == ["p50_ms", "p99_ms"]
    assert [warning.where for warning in named.sections[0].missing] == ["node down/GET/p999_ms"]
    assert [row.comparison.new.value for row in named.rows] == [3.0, 300.0]
    limits = gate.GateLimits(tuple(gate.of_texts(["node down.GET.p99_ms=+50ms", "node down.GET.bad_s=+3s"])))
    assert [ruling.outcome.word for ruling in gate.gate(base, [new], limits, Rules()).rulings] == ["regression", "ok"]
    with pytest.raises(ValueError, match="matches nothing"):  # without a name it is about phases
        gate.gate(base, [new], gate.GateLimits(tuple(gate.of_texts(["GET.p99_ms=10%"]))), Rules())
    patterns = ("GET.p99_ms", "*.p99_ms", "node*.GET.p99_ms")
    assert [Choice(keys=(text,)).names(("node down", "GET", "p99_ms")) for text in patterns] == [False, False, True]


def test_one_run_of_each_side_without_repetitions_is_inconclusive() -> None:
    base, new = sides([a_score(0)], [a_score(20)])
    gated = gate.gate(base, [new], gate.GateLimits(tuple(gate.of_texts(["node down.GET.bad_s=20%"]))), Rules())
    assert gated.outcome.word == "inconclusive"


@pytest.mark.parametrize(
    ("n", "refused", "outcome"), [(60, 0, "ok"), (110, 0, "inconclusive"), (20, 1, "inconclusive")]
)
@pytest.mark.parametrize("limit", ["GET.p99_ms<=50", "GET.p99_ratio<=3", "p99_ratio<=3"])
def test_a_percentile_of_a_failure_needs_its_requests(limit: str, n: int, refused: int, outcome: str) -> None:
    """One of two configurations has no such number."""
    scores = [a_score(i) for i in range(3)]
    few = [{**score, "total": {**score["total"], "requests": n, "p99_ms": None, "p99_ratio": None}} for score in scores]
    few = [{**score, "ops": {"GET": score["total"]}} for score in few]
    records = [
        replace(record(f"run {workers}", of, float(workers), **more), config={"phase.no-failure.workers": workers})
        for workers, of, more in ((8, scores, {}), (1, few, {"refused": [{}] * refused}))
    ]
    limits = gate.GateLimits(tuple(gate.of_texts([f"node down.{limit}"])))
    for base in (records, records[:1]):
        gated = gate.gate(Side("a", tuple(base)), [Side("b", tuple(records))], limits, Rules())
        assert gated.outcome.word == outcome


def summary(scores: Sequence[Dict[str, Any]], warnings: Sequence[Dict[str, Any]]) -> Dict[str, Any]:
    made = [
        {"kind": kind, "labels": score["labels"], "begin": T0 + 100.0 * i + at, "until": T0 + 100.0 * i + at + 9,
         "end": T0 + 100.0 * i + at + 50, "effect": True, "recovery": None, "milestones": []}
        for i, score in enumerate(scores) for kind, at in (("failure", 10.0), ("return", 60.0))
    ]  # fmt: skip
    phases = [
        {"name": score["phase"], "role": "measure", "window": {"start": T0 + 100.0 * i, "end": T0 + 100.0 * (i + 1)},
         "loop": "closed", "ops": {}, "series": None}
        for i, score in enumerate(scores)
    ]  # fmt: skip
    return {
        "phases": phases,
        "failure": {"milestones": {"episodes": made}, "impact": {"phases": [], "episodes": []}},
        "scorecard": {"failures": [line(scores)]},
        "warnings": list(warnings),
    }


def test_what_a_scorecard_has_is_not_compared_once_more() -> None:
    names = {m.phase for m in measurements(summary([a_score(1), a_score(2)], []))}
    assert names == {"node down"}


def test_warnings_of_a_phase_or_a_fault_are_about_its_failure() -> None:
    given = [
        {"code": "generator-bound", "text": "x", "phase": "node-down-2"},
        {"code": "fault-time", "text": "x", "episode": "node-down-1 failure"},
        {"code": "errors", "text": "x", "phase": "no-failure"},
    ]
    of_load, of_fault, other = result_warnings(summary([a_score(1), a_score(2)], given))
    assert of_load.is_about("node down", "GET") and not of_load.is_about("node down", "cluster")
    assert of_fault.is_about("node down", "GET") and of_fault.is_about("node down", "cluster")
    assert not other.is_about("node down", "GET")
