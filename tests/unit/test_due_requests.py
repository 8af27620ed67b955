"""Requests that were due in a failure: not those without an object, and each of them once."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, Mapping

import pytest
from impact_phases import FAULT, T0, load, phase, recovery

from cbt_plugins.results.archive import ArchivedLoop
from cbt_plugins.results.recovery.client_losses import loss_sentences
from cbt_plugins.results.recovery.impact import impact

OPEN = {"cbt_load": True, "rate_limit": 10.0, "loops": (ArchivedLoop("", 8, 10.0),), "rate": 10.0}
MIX = {"GET": 70.0, "DELETE": 30.0}


def numbers(section: Mapping[str, Any], name: str) -> Dict[str, Any]:
    (line,) = [line for line in section["episodes"] if line["name"] == name]
    return {
        op: (numbers["requests"], numbers["availability"], numbers["bad_seconds"])
        for op, numbers in (("total", line["total"]), *line["ops"].items())
    }


@pytest.mark.parametrize(("dry", "lost"), [({"DELETE": 240}, (0, None, 0)), ({}, (0, 0.0, 80))])
def test_an_operation_without_objects_has_lost_nothing(tmp_path: Path, dry: Dict[str, int], lost: Any) -> None:
    """From the fault on there are no objects to delete, and GETs take their place."""
    calm_ops = [*load(-200, -100, 1 / 7, 0.01), *load(-200, -100, 1 / 3, 0.01, op="DELETE")]
    calm = phase(tmp_path, calm_ops, name="calm", begin=-200.0, mix=MIX, **OPEN)
    ops = [*load(0, 20, 1 / 7, 0.01), *load(0, 20, 1 / 3, 0.01, op="DELETE"), *load(20, 100, 0.1, 0.01)]
    section = impact([calm, phase(tmp_path, ops, mix=MIX, driver_end={"dry": dry}, **OPEN)], recovery(FAULT))
    assert numbers(section, "a failure") == {
        "total": (800, 1.0, 0), "GET": (800, 1.0, 0), "DELETE": lost
    }  # fmt: skip


@pytest.mark.parametrize("back", [70, 50])
def test_objects_that_ran_out_after_an_outage_do_not_hide_it(tmp_path: Path, back: int) -> None:
    """Nothing succeeds from 20 to 50; DELETEs succeed until `back`, and have no objects after that."""
    calm_ops = [*load(-200, -100, 1 / 7, 0.01), *load(-200, -100, 1 / 3, 0.01, op="DELETE")]
    calm = phase(tmp_path, calm_ops, name="calm", begin=-200.0, mix=MIX, **OPEN)
    ops = [*load(0, 20, 1 / 7, 0.01), *load(0, 20, 1 / 3, 0.01, op="DELETE"), *load(50, 100, 0.1, 0.01)]
    ops += load(50, back, 1 / 3, 0.01, op="DELETE")
    ends = {"dry": {"DELETE": 3 * (100 - back)}}
    section = impact([calm, phase(tmp_path, ops, mix=MIX, driver_end=ends, **OPEN)], recovery(FAULT))
    assert {op: bad for op, (_, _, bad) in numbers(section, "a failure").items()} == dict.fromkeys(
        ("total", "GET", "DELETE"), 30
    )


@pytest.mark.parametrize(("dry", "lost"), [(800, (0, None, 0)), (300, (0, 0.0, 80))])
def test_a_phase_whose_only_operation_has_no_objects_has_lost_nothing(tmp_path: Path, dry: int, lost: Any) -> None:
    ends = {"dry": {"DELETE": dry}}
    ops = load(0, 20, 0.1, 0.01, op="DELETE")
    section = impact([phase(tmp_path, ops, mix={"DELETE": 100.0}, driver_end=ends, **OPEN)], recovery(FAULT))
    assert numbers(section, "a failure") == {"total": lost, "DELETE": lost}


RETURN = ("return", 70.0, 100.0, {"undone": 70.5, "all-up": 71.0})


def unstarted_loop(unstarted: int) -> Dict[str, Any]:
    loop = ArchivedLoop("", 8, 10.0, unstarted=unstarted)
    ends = {"began": T0 - 1, "ended": T0 + 100, "issued": {"GET": 1000 - unstarted}}
    return {**OPEN, "loops": (loop,), "driver_end": ends, "mix": {"GET": 100.0}}


def test_a_request_that_never_started_is_lost_in_the_failure_or_in_the_return(tmp_path: Path) -> None:
    """No request ends from 20 to 70; those of this time never start, and those of the return do."""
    ops = [*load(0, 20, 0.1, 0.01), *load(70, 100, 0.1, 0.01)]
    events = recovery(("failure", 20.0, 70.0, FAULT[3]), RETURN)
    section = impact([phase(tmp_path, ops, **unstarted_loop(500))], events)
    availabilities = {name: numbers(section, name)["total"][1] for name in ("a failure", "a return")}
    assert availabilities == {"a failure": 0.0, "a return": 1.0}
    (whole,) = impact([phase(tmp_path, ops, **unstarted_loop(500))], recovery(("failure", 20.0, 100.0, FAULT[3])))[
        "episodes"
    ]
    assert whole["total"]["availability"] == pytest.approx(300 / 800)


def test_requests_too_few_to_be_missing_by_the_rate_are_lost_where_the_phase_ends(tmp_path: Path) -> None:
    ops = [*load(0, 20, 0.1, 0.01), *load(20, 70, 1 / 8.4, 0.01), *load(70, 100, 0.1, 0.01)]
    events = recovery(("failure", 20.0, 70.0, FAULT[3]), RETURN)
    section = impact([phase(tmp_path, ops, **unstarted_loop(80))], events)
    availabilities = [numbers(section, name)["total"][1] for name in ("a failure", "a return")]
    assert availabilities == [1.0, pytest.approx(300 / 380, abs=1e-6)]


def test_few_requests_that_never_started_are_lost(tmp_path: Path) -> None:
    """Too few for the rate to show that they are missing."""
    ops = [*load(0, 98, 0.1, 0.01)]
    section = impact([phase(tmp_path, ops, **unstarted_loop(20))], recovery(("failure", 20.0, 100.0, FAULT[3])))
    assert numbers(section, "a failure")["total"][1] == pytest.approx(780 / 800)


@pytest.mark.parametrize("key", ["success_rate", "PUT/success_rate"])
def test_a_rare_operation_is_judged_by_its_success_rate_alone(tmp_path: Path, key: str) -> None:
    """Too few PUTs for a p99 of the baseline; from 20 on all of them fail."""
    failed = load(20, 100, 1.0, 0.01, op="PUT", error="http: 503")
    ops = [*load(0, 100, 0.1, 0.01), *load(0, 20, 1.0, 0.01, op="PUT"), *failed]
    for objective, bad in (({key: 0.999}, 80), ({}, None)):
        section = impact([phase(tmp_path, ops)], recovery(FAULT), objective=objective)
        assert numbers(section, "a failure")["PUT"] == (0, 0.0, bad)
        limit = section["objective"].get("PUT")
        assert limit == ({"p99_ms": None, "success_rate": 0.999, "given": False} if objective else None)
        (text,) = [text for text in loss_sentences(section) if text.startswith("bad second")]
        assert "PUT" not in text and "99.9 %" in text
