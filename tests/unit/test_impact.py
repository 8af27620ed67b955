"""What a failure costs the clients, of aggregates whose every request is known."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence, Tuple

import archive_builder
import pytest
from aggregates_writer import NS, Request
from impact_phases import FAULT, T0, load, phase, recovery, usual

from cbt_plugins.formatting.formats.terminal import Terminal
from cbt_plugins.results import summary_numbers
from cbt_plugins.results.archive import ArchivedLoop, ArchivedRun
from cbt_plugins.results.recovery.cluster_samples import Sample, Samples
from cbt_plugins.results.recovery.impact import blocks, breaks, failure, impact, timeline
from cbt_plugins.results.requests.rates_and_latencies import PhaseAggregates


def by_state(made: Dict[str, Any]) -> Dict[str, Dict[str, Any]]:
    return {line["state"]: line for line in made["phases"][0]["states"]}


@pytest.mark.parametrize(("kind", "broken"), [("stop", True), ("settings", False)])
def test_a_fault_whose_injection_was_killed_may_have_been_in_force(tmp_path: Path, kind: str, broken: bool) -> None:
    begun = {"t": T0, "event": "fault-inject-begin", "label": "a", "kind": kind}
    (tmp_path / "events.jsonl").write_text(json.dumps(begun) + "\n")
    assert breaks(ArchivedRun(tmp_path, "run")) == broken


def test_every_state_has_its_aggregates(tmp_path: Path) -> None:
    made = impact([usual(tmp_path)], recovery(FAULT))
    states = by_state(made)
    assert [(s, line["seconds"]) for s, line in states.items()] == [
        ("no failure", 20.0),
        ("failing", 6.0),
        ("degraded", 14.0),
        ("recovering", 20.0),
        ("clean without them", 40.0),
    ]
    calm, failing, degraded = (states[name]["total"] for name in ("no failure", "failing", "degraded"))
    assert (calm["obj_per_s"], calm["mib_per_s"], calm["obj_per_s_percent"]) == (10.0, 30.0, 100.0)
    assert calm["p99_ms"] == pytest.approx(10, rel=0.008) and calm["errors"] == 0
    # three requests of the second in which the fault begins were still served
    assert failing["requests"] == 3 and failing["errors"] == 3
    assert failing["longest_gap"] == pytest.approx(26 - 20.25) and failing["silent_seconds"] == 5
    assert degraded["requests"] == 65 and degraded["obj_per_s_percent"] == pytest.approx(65 / 14 * 10, abs=0.01)
    assert degraded["silent_seconds"] == 1 and degraded["longest_gap"] == pytest.approx(1.1)
    assert degraded["p50_ms"] == pytest.approx(40, rel=0.008)
    assert degraded["p99_ms"] is None  # of 65 requests
    assert states["recovering"]["total"]["obj_per_s_percent"] == 50.0
    assert states["clean without them"]["ops"]["GET"]["mib_per_s_percent"] == 100.0
    assert {w["code"] for w in made["warnings"]} == {"closed-loop-failure", "errors-in-state"}


def test_the_worst_stretch_is_that_after_the_osds_are_out(tmp_path: Path) -> None:
    """10/s, and more while PGs recover; 1/s for 20 s from `out` on: a mean of both would hide it."""
    times = {"injected": 20.9, "all-down": 25.6, "recovery-starts": 26.0, "out": 40.0, "clean": 70.0}
    calm = load(0, 40, 0.1, 0.01)
    made = impact(
        [phase(tmp_path, [*calm, *load(40, 60, 1.0, 0.5), *load(60, 100, 0.1, 0.01)])],
        recovery(("failure", 20.3, 100.0, times)),
    )
    states = by_state(made)
    assert states["recovering"]["total"]["obj_per_s_percent"] == 100.0
    assert (states["rebuilding"]["seconds"], states["rebuilding"]["total"]["obj_per_s_percent"]) == (30.0, 40.0)
    where = {"phase": "hybrid", "state": "rebuilding", "start": T0 + 40.0}
    assert made["worst"] == {**where, "seconds": 20, "lowest": 1.0, "percent": 10.0}
    assert [warning["code"] for warning in made["warnings"]] == ["closed-loop-failure"]


def test_clients_that_had_half_of_the_baseline_had_no_worst_stretch(tmp_path: Path) -> None:
    made = impact([phase(tmp_path, load(0, 100, 0.1, 0.01))], recovery(FAULT))
    assert made["worst"] is None


def test_a_baseline_that_halves_is_unsteady(tmp_path: Path) -> None:
    def warned(low: float) -> List[str]:
        calm = [*load(0, 8, 0.1, 0.01), *load(8, 13, low, 0.01), *load(13, 100, 0.1, 0.01)]
        made = impact([phase(tmp_path / str(low), calm)], recovery(FAULT))
        return [w["text"] for w in made["warnings"] if w["code"] == "unsteady-baseline"]

    assert warned(0.125) == []
    (text,) = warned(0.5)
    assert text.startswith("for 5 s from second 8 of the time without a failure, throughput was 25 % of its mean")


def test_the_longest_gap_of_a_phase_is_not_cut_at_states(tmp_path: Path) -> None:
    line = impact([usual(tmp_path)], recovery(FAULT))["phases"][0]
    assert line["longest_gap"]["seconds"] == pytest.approx(27.1 - 20.25)
    assert line["longest_gap"]["state"] == "failing"


def test_operations_are_told_apart(tmp_path: Path) -> None:
    stats = load(0, 20, 0.5, 0.002, op="STAT", size=0) + load(20, 100, 1.0, 0.002, op="STAT", size=0)
    made = impact([phase(tmp_path, [*load(0, 100, 0.1, 0.01), *stats])], recovery(FAULT))
    recovering = by_state(made)["recovering"]["ops"]
    assert list(recovering) == ["GET", "STAT"]
    assert recovering["STAT"]["obj_per_s_percent"] == 50.0 and recovering["STAT"]["mib_per_s"] is None
    assert recovering["GET"]["obj_per_s_percent"] == 100.0
    assert by_state(made)["recovering"]["total"]["obj_per_s"] == 11.0


def test_requests_that_were_lost(tmp_path: Path) -> None:
    cut = [Request("GET", (T0 + 99) * NS, NS, error="cut: the run ends")] * 4
    made = impact([phase(tmp_path, [*load(0, 98, 0.1, 0.01), *cut], cut=True, ended=T0 + 100.0)], recovery(FAULT))
    assert made["phases"][0]["lost"] == {"unfinished": 1, "oldest_seconds": 1.0, "cut": 4, "unstarted": 0}
    assert any("1 unfinished, 4 cut, 0 unstarted" in line for line in Terminal().text(list(blocks(made))).splitlines())


def test_a_failure_needs_no_jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of all phases of a long run by many drivers would take gigabytes."""
    lost = phase(tmp_path / "lost", load(0, 98, 0.1, 0.01), cut=True, ended=T0 + 100.0)
    made = impact([lost], recovery(FAULT))
    lost.drop_jobs()
    assert impact([lost], recovery(FAULT)) == made and made["phases"][0]["lost"]["unfinished"] == 1
    kept: List[PhaseAggregates] = []

    def failure_of(run: ArchivedRun, phases: Sequence[PhaseAggregates], samples: Samples) -> Dict[str, Any]:
        kept.extend(phases)
        return failure(run, phases, samples)

    monkeypatch.setattr(summary_numbers, "failure", failure_of)
    run = archive_builder.small(tmp_path)
    fault = {"t": archive_builder.T0 + 3.0, "event": "fault-inject-begin", "label": "a", "kind": "stop"}
    (run / "events.jsonl").write_text(json.dumps(fault) + "\n")
    summary = summary_numbers.numbers_of(run)
    assert [line["phase"] for line in summary["failure"]["impact"]["phases"]] == ["new", "aged"]
    assert all(latencies.packed for aggregates in kept for latencies in aggregates.timeline.blocks.values())
    assert [len(aggregates.jobs) for aggregates in kept] == [0, 0]
    assert not any(of.latency.has_buckets for aggregates in kept for of in aggregates.ops.values())


def test_a_phase_without_failure_is_the_baseline(tmp_path: Path) -> None:
    before = phase(tmp_path, load(0, 100, 0.05, 0.01), name="before")
    later = recovery(("failure", -5.0, 100.0, {"all-down": -4.0, "recovery-starts": None, "clean": None}))
    calm = impact([before], {"episodes": []})
    assert calm["baseline"]["phase"] == "before" and calm["baseline"]["total"]["obj_per_s"] == 20.0
    nothing = impact([usual(tmp_path)], later)
    assert nothing["baseline"] is None and by_state(nothing)["degraded"]["total"]["obj_per_s_percent"] is None
    assert "no-baseline" in {w["code"] for w in nothing["warnings"]}


def test_only_phases_of_a_failure_must_have_the_load_of_the_baseline(tmp_path: Path) -> None:
    """warp's phase beside them has another load, and no part in the failure."""
    before = phase(tmp_path, load(-300, -200, 0.1, 0.01), name="before", begin=-300.0)
    warp = phase(tmp_path, load(-200, -100, 0.1, 0.01), name="warp-mixed", begin=-200.0, workers=16)
    found = [
        {w["code"] for w in impact([before, *others], recovery(("failure", 8.3, *FAULT[2:])))["warnings"]}
        for others in ([warp, usual(tmp_path)], [phase(tmp_path, load(0, 100, 0.1, 0.01), name="other", workers=16)])
    ]
    assert ["other-load" in codes for codes in found] == [False, True]


def test_a_named_baseline(tmp_path: Path) -> None:
    one, other = usual(tmp_path), phase(tmp_path, load(0, 100, 0.05, 0.01), name="other")
    made = impact([one, other], recovery(FAULT), baseline="other")
    assert made["baseline"]["phase"] == "other"
    assert by_state(made)["no failure"]["total"]["obj_per_s_percent"] == 50.0


def test_blocks_of_a_minute_give_latencies_of_whole_minutes_only(tmp_path: Path) -> None:
    at = -(T0 % 60) % 60  # the first minute that begins in the window
    times = {"all-down": 5.0, "recovery-starts": 6.0, "clean": at + 5.0}
    made = impact([phase(tmp_path, load(0, 100, 0.1, 0.01), block=60)], recovery(("failure", 4.0, 100.0, times)))
    states = by_state(made)
    assert all(line["total"]["p99_ms"] is None for line in states.values())
    assert "coarse-latencies" in {w["code"] for w in made["warnings"]}


def test_the_cluster_on_the_time_axis_of_the_client(tmp_path: Path) -> None:
    client = usual(tmp_path)
    state = {"osds": 8, "down": [], "out": [], "pgs": {"active+clean": 10}, "num_pgs": 10, "degraded": [0, 0]}
    degraded = {**state, "down": [7], "degraded": [40, 100]}
    samples = Samples(samples=[Sample(T0 + t + 0.5, degraded if t >= 21 else state, t < 21, False) for t in range(100)])
    made = timeline(client, samples, recovery(FAULT))
    assert (made["start"], made["step"]) == (T0, 1)
    assert made["cluster"]["degraded"][20:22] == [0, 40] and len(made["cluster"]["osds_up"]) == 100
    assert made["windows"][1] == {"state": "failing", "labels": ["a"], "from": 20.0, "to": 26.0}
    assert [(m["at"], m["title"]) for m in made["marks"]][:2] == [(20.3, "fault"), (20.9, "injected")]


def test_the_text_has_a_line_for_each_state(tmp_path: Path) -> None:
    lines = Terminal().text(list(blocks(impact([usual(tmp_path)], recovery(FAULT))))).splitlines()
    assert len(lines[:6]) == 6 and not lines[6]
    numbers = ["20", "5.0", "50.0", "15.0", "50.0", "40.0", "0.20", "0", "20", "0"]
    assert lines[4].split() == ["hybrid", "recovering", *numbers]


@pytest.mark.parametrize(
    ("loops", "closed"),
    [
        (None, True),
        ((ArchivedLoop("", 8, 10.0),), False),
        ((ArchivedLoop("readers", 8, 10.0), ArchivedLoop("writers", 8, 0.0)), True),
    ],
)
def test_a_failure_in_a_closed_loop_has_a_warning(
    tmp_path: Path, loops: Optional[Tuple[ArchivedLoop, ...]], closed: bool
) -> None:
    """The phase before it has the same load, and no failure: it needs no warning."""
    job: Dict[str, Any] = {"cbt_load": True, "rate_limit": 10.0, "loops": loops, "rate": 10.0} if loops else {}
    before = phase(tmp_path, load(-100, 0, 0.1, 0.01), name="before", begin=-100.0, **job)
    made = impact([before, usual(tmp_path, **job)], recovery(FAULT))
    about = [warning["phase"] for warning in made["warnings"] if warning["code"] == "closed-loop-failure"]
    assert about == (["hybrid"] if closed else [])


def test_a_closed_loop_after_a_failure_has_no_warning(tmp_path: Path) -> None:
    """The failure and its return were measured in an open loop, until all PGs were active+clean."""
    job: Dict[str, Any] = {"cbt_load": True, "rate_limit": 10.0, "rate": 10.0}
    job["loops"] = (ArchivedLoop("", 8, 10.0),)
    back = ("return", 70.0, 200.0, {"undone": 70.5, "all-up": 72.0, "recovery-starts": 73.0, "clean": 80.0})
    after = phase(tmp_path, load(100, 200, 0.1, 0.01), name="after", begin=100.0)
    made = impact([usual(tmp_path, **job), after], recovery(FAULT, back))
    assert [state["state"] for state in made["phases"][1]["states"]] == ["clean again"]
    assert "closed-loop-failure" not in {warning["code"] for warning in made["warnings"]}


def test_the_baseline_has_the_mix_of_the_failure(tmp_path: Path) -> None:
    """Reads alone are twice as fast as beside writes: a failure that costs nothing would cost half."""
    mixed = {"GET": 50.0, "PUT": 50.0}
    read_only = phase(tmp_path, load(-300, -200, 0.1, 0.01), name="reads", begin=-300.0, mix={"GET": 100.0})
    calm = phase(tmp_path, load(-200, -100, 0.2, 0.02), name="mixed", begin=-200.0, mix=mixed)
    broken = phase(tmp_path, load(0, 100, 0.2, 0.02), name="mixed-down", mix=mixed)
    told = impact([read_only, calm, broken], recovery(FAULT))
    assert told["baseline"]["phase"] == "mixed" and "other-load" not in {w["code"] for w in told["warnings"]}
    alone = impact([read_only, broken], recovery(FAULT))
    assert alone["baseline"]["phase"] == "mixed-down" and "other-load" not in {w["code"] for w in alone["warnings"]}
    assert alone["baseline"]["seconds"] == 20.0
    soon = recovery(("failure", 8.3, 100.0, {"all-down": 12.0, "clean": 60.0}))
    short = impact([read_only, broken], soon)
    assert short["baseline"]["phase"] == "reads" and "other-load" in {w["code"] for w in short["warnings"]}


@pytest.mark.parametrize(("kind", "phases"), [("hybrid", ["mixed-down", "after"]), ("verify", ["mixed-down"])])
def test_reading_each_object_once_after_a_failure_is_no_load_of_it(
    tmp_path: Path, kind: str, phases: Sequence[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    back = ("return", 70.0, 200.0, {"undone": 70.5, "all-up": 72.0, "recovery-starts": 73.0, "clean": 80.0})
    monkeypatch.setattr("cbt_plugins.results.recovery.impact.milestones", lambda *_: recovery(FAULT, back))
    monkeypatch.setattr("cbt_plugins.results.recovery.impact.timeline", lambda *_: {})
    broken = phase(tmp_path, load(0, 100, 0.2, 0.02), name="mixed-down")
    after = phase(tmp_path, load(100, 200, 0.05, 0.02), name="after", begin=100.0)
    after.phase = replace(after.phase, kind=kind)
    told = failure(ArchivedRun(tmp_path, "run"), [broken, after], Samples())
    assert [line["phase"] for line in told["impact"]["phases"]] == phases
