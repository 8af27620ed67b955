"""Bad seconds and the other losses of clients, against counts of the requests themselves."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional

import jsonschema
import pytest
from aggregates_writer import NS, Request
from counted_seconds import bad
from impact_phases import FAULT, T0, load, phase, recovery, usual

from cbt_plugins.formatting.formats.terminal import Terminal
from cbt_plugins.results.archive import ArchivedLoop
from cbt_plugins.results.recovery.client_losses import loss_sentences
from cbt_plugins.results.recovery.impact import blocks, impact
from cbt_plugins.results.run_record import of_losses, result_warnings
from cbt_plugins.warning_kinds import caps

RETURN = ("return", 70.0, 100.0, {"undone": 71.0, "all-up": 72.0, "recovery-starts": 73.0, "clean": 90.0})
ROOT = Path(__file__).resolve().parents[2]
Losses = Dict[str, Dict[str, Any]]


def losses(made: Mapping[str, Any]) -> Losses:
    return {line["name"]: line for line in made["episodes"]}


def noisy(seed: int) -> List[Request]:
    """Two operations, one of them rare, with slow requests, failures, and a stall of each kind."""
    chance = random.Random(seed)
    requests = []
    for op, per_s in (("GET", 60.0), ("DELETE", 3.0)):
        t = 0.0
        while True:
            t += chance.expovariate(per_s)
            if t >= 100:
                break
            if 31.2 < t < 34.9 or (op == "GET" and 80 < t < 80.9):
                continue
            took = 0.01 * chance.lognormvariate(0, 0.7) * (4 if 36 < t < 40 else 1)
            took += 1.5 if chance.random() < 0.002 else 0
            error = "http: 503" if chance.random() < (0.2 if 45 < t < 50 else 0.0004) else ""
            requests.append(Request(op, T0 * NS + round(t * NS), round(took * NS), error=error))
    return requests


@pytest.mark.parametrize("seed", range(5))
def test_bad_seconds_are_those_that_are_counted_one_by_one(tmp_path: Path, seed: int) -> None:
    requests = noisy(seed)
    events = recovery(("failure", 20.3, 70.0, FAULT[3]), RETURN)
    made = impact([phase(tmp_path, requests)], events)
    base, seen = made["baseline"], 0
    assert set(made["objective"]) == {"total", "GET"}  # of 60 DELETEs there is no p99
    for op in ("total", "GET"):
        own = [request for request in requests if op in ("total", request.op)]
        calm = [request for request in own if request.end // NS - T0 < 20 and not request.error]
        line = base["total"] if op == "total" else base["ops"][op]
        assert 1 <= made["objective"][op]["p99_ms"] / (3 * line["p99_ms"]) < 1.016
        counted = {second - T0 for second in bad(own, made["objective"][op], len(calm) / 20, range(T0, T0 + 100))}
        for name, low, high in (("a failure", 20, 70), ("a return", 70, 100)):
            episode = losses(made)[name]
            numbers = episode["total"] if op == "total" else episode["ops"][op]
            inside = [request for request in own if low <= request.end // NS - T0 < high]
            assert numbers["bad_seconds"] == len([second for second in counted if low <= second < high])
            assert numbers["errors"] == sum(bool(request.error) for request in inside)
            assert numbers["waited"] == sum(not r.error and r.duration >= 1_006_632_960 for r in inside)
            seen += numbers["bad_seconds"]
        states = [state for state in made["phases"][0]["states"]]
        each = [state["total"] if op == "total" else state["ops"][op] for state in states]
        assert sum(numbers["bad_seconds"] for numbers in each) == len(counted)
    assert seen > 20


def test_an_operation_that_is_too_rare_for_a_p99_has_no_bad_seconds(tmp_path: Path) -> None:
    made = impact([phase(tmp_path, [*load(0, 100, 0.1, 0.01), *load(0, 100, 2.0, 0.01, op="PUT")])], recovery(FAULT))
    assert set(made["objective"]) == {"total", "GET"}
    (line,) = made["episodes"]
    assert line["ops"]["PUT"]["bad_seconds"] is None and line["ops"]["GET"]["bad_seconds"] == 0
    given = impact([phase(tmp_path, load(0, 100, 0.1, 0.01))], recovery(FAULT), objective={"GET/p99_ms": 9.0})
    assert given["objective"]["GET"] == {"p99_ms": pytest.approx(9.0, rel=0.016), "success_rate": 0.999, "given": True}
    assert given["episodes"][0]["ops"]["GET"]["bad_seconds"] == 80 and given["episodes"][0]["total"]["bad_seconds"] == 0


def test_a_limit_below_each_latency_makes_every_second_bad(tmp_path: Path) -> None:
    made = impact([phase(tmp_path, load(0, 100, 0.1, 0.01))], recovery(FAULT), objective={"p99_ms": 1e-7})
    assert made["episodes"][0]["ops"]["GET"]["bad_seconds"] == made["episodes"][0]["total"]["bad_seconds"] == 80


@pytest.mark.parametrize(("per_s", "silent", "bad_seconds"), [(20.0, 1, 1), (5.0, 2, 0), (5.0, 4, 4)])
def test_a_second_without_any_request_is_bad_unless_it_is_chance(
    tmp_path: Path, per_s: float, silent: int, bad_seconds: int
) -> None:
    """A closed loop asks nothing while the cluster stalls; of 5 requests/s none ends in a second now and then."""
    calm = [*load(0, 40, 1 / per_s, 0.01), *load(40 + silent, 100, 1 / per_s, 0.01)]
    made = impact([phase(tmp_path, calm)], recovery(FAULT), objective={"p99_ms": 1000})
    assert made["episodes"][0]["total"]["bad_seconds"] == bad_seconds
    assert made["episodes"][0]["total"]["silent_seconds"] == silent


def test_an_operation_of_which_no_request_ended_lost_every_second(tmp_path: Path) -> None:
    mix = {"GET": 70.0, "PUT": 30.0}
    calm = [*load(0, 100, 0.1, 0.01), *load(0, 100, 0.2, 0.01, op="PUT")]
    before = phase(tmp_path, calm, name="before", mix=mix)
    hung = phase(tmp_path, load(100, 200, 0.1, 0.01), name="hung", begin=100.0, mix=mix)
    made = impact([before, hung], recovery(("failure", 99.9, 1000.0, {"injected": 101.0})))
    (line,) = made["episodes"]
    assert (line["ops"]["PUT"]["bad_seconds"], line["ops"]["PUT"]["longest_gap"]) == (100, 100.0)
    assert line["ops"]["GET"]["bad_seconds"] == line["total"]["bad_seconds"] == 0


def test_an_outage_without_a_baseline_is_bad_all_the_same(tmp_path: Path) -> None:
    failed = load(0, 100, 1.0, 0.5, error="refused: no connection")
    events = recovery(("failure", -5.0, 100.0, {"injected": -4.0}))
    made = impact([phase(tmp_path, failed)], events, objective={"p99_ms": 9})
    assert made["baseline"] is None and made["episodes"][0]["total"]["bad_seconds"] == 100


def test_an_outage_after_a_baseline_without_any_success_is_bad_all_the_same(tmp_path: Path) -> None:
    """The silence is judged by the rate of the phase."""
    requests = [*load(0, 20, 1.0, 0.01, error="refused: no connection"), *load(20, 50, 0.1, 0.01)]
    made = impact([phase(tmp_path, requests)], recovery(FAULT), objective={"p99_ms": 9000})
    total = made["episodes"][0]["total"]
    assert (made["baseline"]["total"]["requests"], total["bad_seconds"], total["silent_seconds"]) == (0, 50, 50)


def test_the_losses_of_a_failure_in_two_phases_are_added(tmp_path: Path) -> None:
    """The failure goes on in the next phase, 50 s later; percentiles are those of all of its requests."""
    first = phase(tmp_path, [*load(0, 20, 0.1, 0.01), *load(20, 100, 0.1, 0.05)], name="first")
    second = phase(tmp_path, load(150, 250, 0.1, 0.2), name="second", begin=150.0)
    made = impact([first, second], recovery(("failure", 20.3, 1000.0, {**FAULT[3], "clean": 200.0})))
    (line,) = made["episodes"]
    total = line["total"]
    assert (line["seconds"], total["requests"], total["bad_seconds"]) == (180.0, 1800, 180)
    assert total["p50_ms"] == pytest.approx(200, rel=0.008) and total["p999_ms"] == pytest.approx(200, rel=0.008)
    assert total["p99_ratio"] == pytest.approx(20, rel=0.02) and total["obj_per_s_percent"] == 100.0


@pytest.mark.parametrize(("slow_from", "slow_to", "waited"), [(24, 29, None), (92, 95, None), (42, 52, 20), (0, 23, 0)])
def test_requests_that_waited_in_a_part_of_a_block_are_in_no_count(
    tmp_path: Path, slow_from: float, slow_to: float, waited: Optional[int]
) -> None:
    """Of 23 to 93 only the blocks of 10 s from 30 to 90 have latencies; the slowest one of each second is known."""
    times = ((0, slow_from, 0.01), (slow_from, slow_to, 2.0), (slow_to, 100, 0.01))
    requests = [request for begin, end, took in times for request in load(begin, end, 0.5, took)]
    events = recovery(("failure", 23.0, 93.0, {"injected": 24.0}), ("return", 93.0, 100.0, {"undone": 94.0}))
    total = losses(impact([phase(tmp_path, requests, block=10)], events))["a failure"]["total"]
    assert total["waited"] == waited and total["requests"] == 140
    p99 = None if waited is None else pytest.approx(2000.0 if waited else 10.0, rel=0.008)
    assert total["p99_ms"] == p99


def test_the_first_block_of_a_window_counts_though_the_window_begins_within_it(tmp_path: Path) -> None:
    """A phase that ends with its last object: its window is from the first request to the last one, 3.5 to 96.5."""
    requests = [*load(3.5, 8.5, 0.5, 2.0), *load(8.5, 96.5, 0.5, 0.01)]
    until_done = phase(tmp_path, requests, block=10, window=(3.5, 96.5), duration=None)
    made = impact([until_done], recovery(("failure", 3.0, 200.0, {"injected": 3.2})))
    assert (made["episodes"][0]["total"]["requests"], made["episodes"][0]["total"]["waited"]) == (186, 10)


def test_the_longest_silence_of_a_gateway_is_in_whole_blocks(tmp_path: Path) -> None:
    both = load(0, 100, 0.1, 0.01, endpoint="http://rgw1:7480")
    times = ((0, 30), (38.5, 100))
    other = [request for time in times for request in load(*time, 0.1, 0.01, endpoint="http://rgw2:7480")]
    made = impact([phase(tmp_path, [*both, *other], urls=("http://rgw1:7480", "http://rgw2:7480"))], recovery(FAULT))
    (line,) = made["episodes"]
    assert [gateway["longest_gap"] for gateway in line["gateways"]] == [0.0, 8.0] and line["gateway_gap"] == 8.0
    measured = {(m.op, m.metric): m.value for m in of_losses(line)}
    assert measured["total", "gateway_gap_s"] == 8.0 and measured["GET", "bad_s"] == 0.0


def test_an_availability_is_1_only_if_no_request_was_lost(tmp_path: Path) -> None:
    failed = [Request("GET", (T0 + 30) * NS, NS, error="http: 500")]
    (line,) = impact([phase(tmp_path, [*load(0, 100, 0.1, 0.01), *failed])], recovery(FAULT))["episodes"]
    assert line["total"]["availability"] == line["total"]["requests"] / (line["total"]["requests"] + 1)
    line["total"]["availability"] = 3_000_000 / 3_000_001
    measured = {(m.op, m.metric): m.value for m in of_losses(line)}
    assert measured["total", "availability"] == 3_000_000 / 3_000_001


OPEN = {"cbt_load": True, "rate_limit": 10.0, "loops": (ArchivedLoop("", 8, 10.0),), "rate": 10.0}


def availability(line: Mapping[str, Any]) -> Dict[str, Optional[float]]:
    return {op: numbers["availability"] for op, numbers in (("total", line["total"]), *line["ops"].items())}


@pytest.mark.parametrize(("waiting", "share"), [(1.0, 0.0), (0.5, 0.5), (0.02, 1.0)])
def test_requests_of_an_open_loop_that_wait_for_a_failure_to_end_were_due(
    tmp_path: Path, waiting: float, share: float
) -> None:
    """10/s; from 20 to 80 some wait, and succeed at 80; one in fifty may be chance."""
    in_time = load(20, 80, 0.1 / (1 - waiting), 0.01) if waiting < 1 else []
    late = load(80, 81, 1 / round(600 * waiting), 30.0)
    requests = [*load(0, 20, 0.1, 0.01), *in_time, *late, *load(81, 100, 0.1, 0.01)]
    events = recovery(("failure", 20.3, 80.0, FAULT[3]), ("return", 80.0, 100.0, RETURN[3]))
    made = losses(impact([phase(tmp_path, requests, mix={"GET": 100.0}, **OPEN)], events))
    assert availability(made["a failure"]) == {"total": pytest.approx(share), "GET": pytest.approx(share, abs=0.01)}
    assert availability(made["a return"]) == {"total": 1.0, "GET": 1.0}


def test_an_operation_of_an_open_loop_was_due_by_its_share_of_the_mix(tmp_path: Path) -> None:
    """Only GETs hang: 7 of 10 requests a second."""
    calm = [*load(0, 20, 1 / 7, 0.01), *load(0, 100, 1 / 3, 0.01, op="PUT")]
    made = impact([phase(tmp_path, calm, mix={"GET": 70.0, "PUT": 30.0}, **OPEN)], recovery(FAULT))
    (line,) = made["episodes"]
    assert availability(line) == {"total": pytest.approx(0.3), "GET": 0.0, "PUT": 1.0}


@pytest.mark.parametrize("more", [{"driver_end": {"dry": {"DELETE": 200}}}, {"duration": None}])
def test_no_request_was_due_by_the_rate_where_a_driver_had_nothing_left_to_do(
    tmp_path: Path, more: Dict[str, Any]
) -> None:
    """From 20 on there are no objects to delete, and GETs take their place; or the driver ends with its last object."""
    ops = [*load(0, 100, 1 / 7, 0.01), *load(0, 20, 1 / 3, 0.01, op="DELETE"), *load(20, 100, 1, 0.01, op="DELETE")]
    mix = {"GET": 70.0, "DELETE": 30.0}
    made = impact([phase(tmp_path, ops, mix=mix, **OPEN, **more)], recovery(FAULT))
    assert availability(made["episodes"][0])["DELETE"] == 1.0


def test_a_closed_loop_of_which_no_request_ended_had_some_due_if_the_baseline_had_many(tmp_path: Path) -> None:
    calm = [*load(0, 20, 0.1, 0.01), *load(0, 20, 10.0, 0.01, op="DELETE")]
    made = impact([phase(tmp_path, calm, mix={"GET": 99.0, "DELETE": 1.0})], recovery(FAULT))
    assert availability(made["episodes"][0]) == {"total": 0.0, "GET": 0.0, "DELETE": None}


def test_failed_requests_have_times_and_the_load_of_each_gateway_a_baseline(tmp_path: Path) -> None:
    """rgw2 answers nothing for half a minute, and rgw1 takes its load."""
    times = {1: (0, 30, 0.1, 30, 60, 0.05, 60, 100, 0.1), 2: (0, 30, 0.1, 60, 100, 0.1)}
    requests = [
        request
        for number, of in times.items()
        for part in range(0, len(of), 3)
        for request in load(of[part], of[part + 1], of[part + 2], 0.01, endpoint=f"http://rgw{number}:7480")
    ]
    failed = {"error": "timeout: 1 s", "endpoint": "http://rgw2:7480"}
    requests += [Request("GET", T0 * NS + round(at * NS), NS, **failed) for at in (30.4, 31.2, 45.9)]
    urls = ("http://rgw1:7480", "http://rgw2:7480")
    made = impact([phase(tmp_path, requests, urls=urls)], recovery(("failure", 29.3, 60.0, FAULT[3]), RETURN))
    line, back = made["episodes"]
    assert line["failed_span"] == {"first": 0.7, "last": 15.7} and back["failed_span"] is None
    # from 29 s to 70 s: 41 s
    assert line["endpoints"] == [
        {"endpoint": urls[0], "per_s": 17.3171, "share": 0.865854, "base_per_s": 10.0, "base_share": 0.5},
        {"endpoint": urls[1], "per_s": 2.6829, "share": 0.134146, "base_per_s": 10.0, "base_share": 0.5},
    ]
    text = " ".join(Terminal().text(list(blocks(made))).split())
    assert "first failed request after 1 s, last after 16 s; http://rgw1:7480 had 17.32 requests/s, 86.6 %" in text
    assert "of all (baseline: 10.00 requests/s, 50.0 %)" in text
    (after,) = [sentence for sentence in loss_sentences(made) if sentence.startswith("a return")]
    assert "had" not in after and "failed" not in after
    schema = json.loads((ROOT / "cbt_plugins/results/summary.schema.json").read_text(encoding="utf-8"))
    episodes = schema["properties"]["failure"]["properties"]["impact"]["properties"]["episodes"]
    validator = jsonschema.Draft202012Validator({**episodes, "$defs": schema["$defs"]})
    assert [error.message for error in validator.iter_errors(made["episodes"])] == []


@pytest.mark.parametrize(
    ("requests", "seconds", "reason"),
    [
        (load(0, 100, 0.1, 0.01), 0.0, None),  # it was never away
        ([*load(0, 30, 0.1, 0.01), *load(30, 55, 1.0, 0.01), *load(55, 100, 0.1, 0.01)], 34.7, None),
        # away in two steps: the first return does not last
        ([*load(0, 21, 0.1, 0.01), *load(23, 60, 0.1, 0.01), *load(60, 100, 1.0, 0.01)], None, "not in 80 s"),
    ],
)
def test_throughput_is_back_after_its_lowest_30_seconds(
    tmp_path: Path, requests: List[Request], seconds: float, reason: str
) -> None:
    made = impact([phase(tmp_path, requests)], recovery(FAULT))
    back = made["episodes"][0]["back"]
    assert (back["seconds"], back["reason"]) == (pytest.approx(seconds) if seconds is not None else None, reason)


@pytest.mark.parametrize("rate", [10, 30, 87, 100, 333])
def test_a_mean_of_exactly_the_share_is_back(tmp_path: Path, rate: int) -> None:
    """3 of 30 seconds without a request are 90 % of the baseline, however that is rounded."""
    requests = [*load(0, 40, 1 / rate, 0.001), *load(43, 100, 1 / rate, 0.001)]
    made = impact([phase(tmp_path, requests)], recovery(FAULT))
    assert made["episodes"][0]["back"] == {"seconds": 0.0, "between": None, "reason": None}


def test_throughput_that_came_back_while_there_was_no_load_is_unknown(tmp_path: Path) -> None:
    first = phase(tmp_path, [*load(0, 20, 0.1, 0.01), *load(20, 100, 1.0, 0.01)], name="first")
    second = phase(tmp_path, load(150, 250, 0.1, 0.01), name="second", begin=150.0)
    made = impact([first, second], recovery(("failure", 20.3, 1000.0, {**FAULT[3], "clean": 200.0})))
    assert made["episodes"][0]["back"] == {
        "seconds": None,
        "between": [79.7, 129.7],
        "reason": "unknown, between 79.7 s and 129.7 s: no load",
    }


@pytest.mark.parametrize(("pause", "back_at", "between"), [(1.0, 85, [64.7, 80.7]), (50.0, 85, [64.7, 129.7])])
def test_throughput_that_comes_back_at_the_end_of_a_phase_is_back_between_the_phases(
    tmp_path: Path, pause: float, back_at: int, between: List[float]
) -> None:
    """15 s of the phase are left: too few for a mean of 30 s, and the failure goes on in the next phase."""
    again = 100.0 + pause
    slow = load(20, back_at, 1.0, 0.01)
    first = phase(tmp_path, [*load(0, 20, 0.1, 0.01), *slow, *load(back_at, 100, 0.1, 0.01)], name="first")
    second = phase(tmp_path, load(again, again + 100, 0.1, 0.01), name="second", begin=again)
    made = impact([first, second], recovery(("failure", 20.3, 1000.0, {**FAULT[3], "clean": 200.0})))
    assert (made["episodes"][0]["back"]["seconds"], made["episodes"][0]["back"]["between"]) == (None, between)


def test_throughput_that_comes_back_long_after_the_begin_of_a_phase_is_exact(tmp_path: Path) -> None:
    """The end of the phase before was no return: with the next one it has too little."""
    slow = [*load(20, 85, 1.0, 0.01), *load(85, 100, 0.1, 0.01)]
    first = phase(tmp_path, [*load(0, 20, 0.1, 0.01), *slow], name="first")
    requests = [*load(101, 140, 0.5, 0.01), *load(140, 201, 0.1, 0.01)]
    second = phase(tmp_path, requests, name="second", begin=101.0)
    made = impact([first, second], recovery(("failure", 20.3, 1000.0, {**FAULT[3], "clean": 200.0})))
    back = made["episodes"][0]["back"]
    assert back["between"] is None and back["seconds"] == pytest.approx(140 - 20.3)


def test_the_baseline_has_the_load_of_the_failure(tmp_path: Path) -> None:
    """A closed loop comes first; the failure is measured with an open one, which has its own phase before."""
    phases = [
        phase(tmp_path, load(-300, -200, 0.02, 0.5), name="closed", begin=-300.0),
        phase(tmp_path, load(-200, -100, 0.1, 0.01), name="open", begin=-200.0, rate=10.0),
        phase(tmp_path, load(0, 100, 0.1, 0.01), name="broken", rate=10.0),
    ]
    made = impact(phases, recovery(FAULT))
    assert made["baseline"]["phase"] == "open" and made["episodes"][0]["total"]["obj_per_s_percent"] == 100.0
    assert "other-load" not in {w["code"] for w in made["warnings"]}
    alone = impact([phases[0], phases[2]], recovery(FAULT))
    assert alone["baseline"]["phase"] == "broken" and "other-load" not in {w["code"] for w in alone["warnings"]}
    assert alone["episodes"][0]["total"]["obj_per_s_percent"] == 100.0


def test_losses_of_broken_off_attempts_are_no_result(tmp_path: Path) -> None:
    events = recovery(FAULT)
    events["episodes"][0]["aborted"] = "01-hybrid"
    assert impact([usual(tmp_path)], events)["episodes"] == []


def test_the_text_has_the_losses_and_what_a_bad_second_is(tmp_path: Path) -> None:
    text = Terminal().text(list(blocks(impact([usual(tmp_path)], recovery(FAULT)))))
    (total,) = [line for line in text.splitlines() if line.startswith("a failure")][:1]
    assert total.split()[:7] == ["a", "failure", "total", "39", "80", "3", "0"]
    assert "bad second: p99 of total 30.15 ms" in text
    given = impact([usual(tmp_path / "given")], recovery(FAULT), objective={"GET/p99_ms": 9.0})
    by_file = "p99 of GET 9.044 ms or more (the objective of the file)"
    usually = "p99 of total 30.15 ms or more (3 times the p99 of the baseline)"
    assert f"bad second: {by_file}, {usually}, success of less than 99.9 %" in " ".join(loss_sentences(given))


def test_warnings_about_the_load_are_about_what_clients_lost() -> None:
    """An open loop's throughput is the rate of the file, beside a failure too; recovery is not the generator's."""
    episode = {"kind": "failure", "labels": ["a"], "begin": 10.0, "until": 20.0, "end": 60.0}
    summary: Dict[str, Any] = {"failure": {"milestones": {"episodes": [episode]}}}
    summary["warnings"] = [{"code": "generator-bound", "text": "it was the limit", "phase": "hit"}]
    summary["phases"] = [
        {"name": name, "window": {"start": start, "end": start + 30.0}, "loop": "open", "rate": {"asked": 9.0},
         "littles_law": {"jobs": []}, "ops": {}}
        for name, start in (("before", -30.0), ("hit", 30.0), ("after", 60.0))
    ]  # fmt: skip
    about = {
        (warning.code, warning.phase)
        for warning in result_warnings(summary)
        if warning.is_about("a failure", "total") and not warning.is_about("a failure", "cluster")
    }
    assert about == {("generator-bound", "hit"), ("rate-given", "hit")}
    assert caps("rate-given", "throughput_share") and not caps("rate-given", "bad_s")
    assert caps("generator-bound", "bad_s")
