"""The first sentence of a page: each verdict in words, and no more than the statistics allow."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any, Dict, List, Sequence

import archive_builder as made
import pytest
from compare_records import noise, record, runs, side
from impact_phases import FAULT, load, phase, recovery
from page_archive import add_failure

pytest.importorskip("scipy")
pytest.importorskip("jinja2")

from cbt_plugins.compare.table import Rules, compare
from cbt_plugins.formatting.formats.terminal import Terminal
from cbt_plugins.report import result_text
from cbt_plugins.report.page import run_page
from cbt_plugins.report.sentence import Sentence, first, of_aging, of_comparison, of_run
from cbt_plugins.results.recovery.impact import impact
from cbt_plugins.results.run_record import ResultWarning, RunRecord
from cbt_plugins.results.summary_file import summarize
from cbt_plugins.results.summary_numbers import new_vs_aged

RATE, P99 = ("measure-new", "GET", "obj_per_s"), ("measure-new", "GET", "p99_ms")


def told(base: Sequence[RunRecord], new: Sequence[RunRecord], **rules: Any) -> List[Sentence]:
    return of_comparison(compare(side("17.2.6", base), [side("18.2.7", new)], rules=Rules(**rules)))


def repeated(rate: float, p99: float, seed: int, **more: Any) -> List[RunRecord]:
    values = {RATE: noise(rate, 6, scatter=0.005, seed=seed), P99: noise(p99, 6, scatter=0.005, seed=seed + 1)}
    return runs(values, begin=0.5 * seed, **more)


def test_better_and_worse_have_their_interval() -> None:
    (sentence,) = told(repeated(100, 50, 1), repeated(88, 50, 2))
    assert sentence.kind == "worse"
    assert sentence.text.startswith("Reads of 18.2.7 are 1") and " % slower than reads of 17.2.6 (" in sentence.text
    assert sentence.text.endswith(" %); p99 is equivalent within 5 %.")
    (sentence,) = told(repeated(100, 50, 1), repeated(112, 60, 2))
    assert sentence.kind == "worse", "a worse p99 is not hidden by a better throughput"
    assert " % faster than reads of 17.2.6 (" in sentence.text
    assert "; p99 is " in sentence.text and "higher (" in sentence.text
    (sentence,) = told(repeated(100, 50, 1), repeated(112, 40, 2))
    assert sentence.kind == "better" and "lower (" in sentence.text


def test_equivalent_names_its_margin() -> None:
    (sentence,) = told(repeated(100, 50, 1), repeated(100, 50, 2), margin=0.03)
    text = "Reads of 18.2.7 are as fast as reads of 17.2.6 within 3 %; p99 is equivalent within 3 %."
    assert sentence == Sentence(text, "equivalent", "Intervals of 90 %, from 6 and 6 runs.")


def test_one_run_is_inconclusive_however_clear_its_seconds_are() -> None:
    base, new = (record({RATE: noise(level, 300, scatter=0.02, seed=7)}, name=str(level)) for level in (100.0, 88.0))
    (sentence,) = told([base], [new])
    assert sentence.kind == "inconclusive"
    text = "Reads of 18.2.7 were 12 % slower than reads of 17.2.6 in these runs; one run is inconclusive."
    assert sentence.text == text
    assert sentence.more.startswith("By the seconds of these runs: 1")
    assert sentence.more.endswith("is not known: repeat the run.")
    (sentence,) = told([base], [replace(base, source="runs/again")])
    assert "were as fast as reads of 17.2.6 in these runs; one run is inconclusive" in sentence.text


def test_noise_says_between_what_it_is() -> None:
    values = [{RATE: noise(100, 4, scatter=0.2, seed=seed)} for seed in (1, 2)]
    (sentence,) = told(runs(values[0]), runs(values[1], begin=0.5))
    assert sentence.kind == "inconclusive" and sentence.more == "More runs, or longer runs, are needed."
    assert "inconclusive, from " in sentence.text
    assert "slower to " in sentence.text and sentence.text.endswith("faster.")


def test_a_correction_that_takes_a_verdict_away_is_the_reason() -> None:
    base = {RATE: [100.0, 104.0, 97.0], P99: [50.0, 60.0, 40.0]}
    new = {RATE: [90.0, 95.0, 91.0], P99: [50.0, 40.0, 61.0]}
    (sentence,) = told(runs(base), runs(new, begin=0.5))
    assert sentence.kind == "inconclusive" and sentence.text.endswith(" % slower.")
    assert re.match(r"p is 0\.062 \(adjusted for the number of key rows\)\. More runs", sentence.more)


def test_a_warning_that_forbids_a_verdict_is_the_reason() -> None:
    moved = (ResultWarning("recovering", "the cluster moved data", "measure-new"),)
    (sentence,) = told(repeated(100, 50, 1), repeated(88, 50, 2, warnings=moved))
    assert sentence.kind == "inconclusive"
    assert sentence.more == "No verdict: the cluster recovered or moved data (recovering)."


def test_a_rate_that_was_asked_for_is_no_result() -> None:
    """The throughput of an open loop is the file's: p99 is said first."""
    given = (ResultWarning("rate-given", "asked for", "measure-new"),)
    (sentence,) = told(repeated(100, 50, 1, warnings=given), repeated(100, 60, 2, warnings=given))
    assert sentence.text.startswith("The p99 of reads of 18.2.7 is ")
    assert " % higher than the p99 of reads of 17.2.6 (" in sentence.text


def test_the_answer_of_a_ladder_is_said() -> None:
    key = ("find", "total", "highest_per_s")
    base, new = (
        runs({RATE: [100, 101, 100.5], key: [rate, rate + 5, rate + 2]}, begin=0.5 * i)
        for i, rate in enumerate((1000, 600))
    )
    worst = told(base, new)[0].text
    assert worst.startswith("find: the highest rate of ladders of 18.2.7 is 39.9 % lower than the highest rate of ")


def test_the_top_of_a_page_is_short() -> None:
    found = [Sentence(str(i)) for i in range(7)]
    assert first(found) == [*found[:5], Sentence("2 more results: see the tables.")]
    assert first(found[:5]) == found[:5] and first([]) == []


def test_the_worst_is_first() -> None:
    other = {(f"measure-{name}", "GET", "obj_per_s"): name for name in ("new", "aged")}
    base, new = (
        runs({key: noise(level[name], 6, scatter=0.005, seed=i) for key, name in other.items()}, begin=0.5 * i)
        for i, level in ((1, {"new": 100, "aged": 100}), (2, {"new": 112, "aged": 88}))
    )
    sentences = told(base, new)
    assert [its.kind for its in sentences] == ["worse", "better"]
    assert sentences[0].text.startswith("measure-aged: reads of 18.2.7 are ")


CONFIG: Dict[str, Any] = {"benchmark": "rgwtest"}


def test_what_aging_did_in_one_run_is_inconclusive(tmp_path: Path) -> None:
    """`small` has two thirds of the rate when it is aged."""
    (sentence,) = of_run(summarize(made.small(tmp_path)), CONFIG)
    assert sentence.kind == "inconclusive"
    told_text = "Aged operations were 33.3 % slower than new operations in this run; one run is inconclusive."
    assert sentence.text == told_text


def test_what_aging_did_in_repeated_runs(tmp_path: Path) -> None:
    summaries = [summarize(made.small(tmp_path / str(i))) for i in range(4)]
    for i, summary in enumerate(summaries):
        for line in summary["phases"]:
            line["total"]["obj_per_s"] *= 1 + 0.001 * i
            line["series"] = None  # as in the overview of an archive
        summary["phases"][1]["total"]["obj_per_s"] *= 1.5 - 0.0005 * i
    (sentence,) = of_aging([(CONFIG, summary) for summary in summaries])
    assert sentence.text.startswith("Aged operations are as fast as new operations within 5 %")
    assert sentence.more == "Intervals of 90 %, from 4 runs, in pairs."
    summaries[0]["usable"] = False
    assert of_run(summaries[0], CONFIG) == [
        Sentence("This run is invalid: do not use its numbers.", "invalid"),
    ]


def test_what_happened_in_a_failure(tmp_path: Path) -> None:
    summary = summarize(made.small(tmp_path))
    add_failure(summary, "new")
    _, impact = of_run(summary, CONFIG)
    assert impact.text == (  # its share is of two seconds, and says nothing
        "Until all PGs were active+clean again, in 2.0 s with load: 2 seconds were bad; 7 requests failed; "
        "the longest time without a success was 2.5 s."
    )
    for state in summary["failure"]["impact"]["phases"][0]["states"]:
        state["seconds"] = 12.0
    failure, impact = of_run(summary, CONFIG)
    assert failure == Sentence("Failure of node-a: all PGs were active+clean after 42.5 s.")
    assert impact.text == (
        "Until all PGs were active+clean again, in 12.0 s with load: clients had 54 % (degraded) of the throughput "
        "without a failure; "
        "2 seconds were bad; 7 requests failed; the longest time without a success was 2.5 s."
    )
    worst = {"phase": "new", "state": "rebuilding", "seconds": 23, "lowest": 2.0, "percent": 16.2}
    side = summary["failure"]["impact"]
    side["phases"][0].update(phase="new", start=100.0)
    side.update(worst={**worst, "start": 140.0}, baseline={"total": {"obj_per_s": 434.0}})
    _, impact = of_run(summary, CONFIG)
    least = "down to 2 of 434 obj/s, for 23 s from second 40 of new on (rebuilding)"
    worst_second = f"at worst clients had 16 % of the throughput without a failure, {least}"
    assert f"{worst_second}; clients had 54 % (degraded)" in impact.text
    side["warnings"] = [{"code": "other-load", "text": "the phases have different loads"}]
    _, other = of_run(summary, CONFIG)
    assert other.text == (
        "Until all PGs were active+clean again, in 12.0 s with load: 2 seconds were bad; 7 requests failed; "
        "the longest time without a success was 2.5 s."
    )
    (episode,) = summary["failure"]["milestones"]["episodes"]
    episode["milestones"][1].update(seconds=None, reason="not until the run's end")
    episode.update(outcome="not recovered", osds=[6, 7], begin=10.0, end=58.0, end_why="the return of node-a begins")
    peak = {"name": "degraded-peak", "seconds": 1.0, "value": {"objects": 1, "total": 4}}
    episode["milestones"].append(peak)
    failure, _ = of_run(summary, CONFIG)
    assert failure.kind == "warning"
    assert failure.text == (
        "Failure of node-a (2 OSDs): not recovered in 48.0 s, until the return of node-a begins; "
        "up to 25 % of the object copies were degraded."
    )


def test_a_silence_goes_on_when_the_state_of_the_cluster_changes(tmp_path: Path) -> None:
    """Nothing succeeds from 22 to 42; at 32 the OSDs are marked down. A silence before the fault is another one."""
    events = recovery(("failure", 20.3, 100.0, {**FAULT[3], "all-down": 32.0, "recovery-starts": 50.0}))
    calm = [*load(-100, -70, 0.1, 0.01), *load(-30, 0, 0.1, 0.01)]
    hurt = [*load(0, 22, 0.1, 0.01), *load(42, 100, 0.1, 0.01)]
    made_of = impact([phase(tmp_path, calm, name="calm", begin=-100.0), phase(tmp_path, hurt)], events)
    assert [line["failure_gap"] for line in made_of["phases"]] == [None, 20.1]
    summary = summarize(made.small(tmp_path / "run"))
    summary["failure"] = {"milestones": {"episodes": []}, "impact": made_of}
    assert of_run(summary, CONFIG)[0].text.endswith("the longest time without a success was 20.1 s.")
    for line in made_of["phases"]:  # as in an older archive
        del line["failure_gap"]
    assert of_run(summary, CONFIG)[0].text.endswith("the longest time without a success was 10.1 s.")


def test_two_equal_measurements_without_aging_are_compared_by_their_names(tmp_path: Path) -> None:
    summary = summarize(made.small(tmp_path))
    text = json.dumps(summary).replace('"aged": "aged"', '"aged": "two"').replace('"name": "aged"', '"name": "two"')
    renamed = json.loads(text)
    (sentence,) = of_run(renamed, CONFIG)
    words = "Operations of phase two were 33.3 % slower than operations of phase new in this run;"
    assert sentence.text.startswith(words)
    text = Terminal().text(result_text.blocks(renamed))
    assert "two compared with new: " in text and "(aged)" not in text and "(new)" not in text
    page = run_page(renamed, tmp_path)
    assert "First and last measurement" in page and ">aged<" not in page and "(aged)" not in page
    renamed["phases"].insert(1, {**renamed["phases"][0], "name": "load", "role": "age"})
    (sentence,) = of_run(renamed, CONFIG)
    assert sentence.text.startswith("Aged operations were 33.3 % slower than new operations in this run;")


def test_a_run_without_anything_to_compare_has_its_numbers(tmp_path: Path) -> None:
    summary = summarize(made.small(tmp_path))
    summary["new_vs_aged"] = None
    (sentence,) = of_run(summary, CONFIG)
    assert sentence == Sentence("new: 300.0 obj/s, 1.172 MiB/s, p50 10.00 ms, p99 20.00 ms; no request failed.")


def test_phases_with_other_loads_are_not_new_and_aged(tmp_path: Path) -> None:
    """Sequential reads and a mix were."""
    phases = summarize(made.small(tmp_path))["phases"]
    assert new_vs_aged(phases)
    phases[-1]["mix"]["asked"] = {"GET": 60.0, "PUT": 40.0}
    assert new_vs_aged(phases) is None
    phases[-1]["mix"]["asked"], phases[-1]["loop"] = phases[0]["mix"]["asked"], "open"
    assert new_vs_aged(phases) is None
