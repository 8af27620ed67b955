"""Requests that were due in a failure: not those without an object, and each of them once."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, Mapping

import pytest
from impact_phases import FAULT, load, phase, recovery

from cbt_plugins.results.archive import ArchivedLoop
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


@pytest.mark.parametrize(("dry", "lost"), [(800, (0, None, 0)), (300, (0, 0.0, 80))])
def test_a_phase_whose_only_operation_has_no_objects_has_lost_nothing(tmp_path: Path, dry: int, lost: Any) -> None:
    ends = {"dry": {"DELETE": dry}}
    ops = load(0, 20, 0.1, 0.01, op="DELETE")
    section = impact([phase(tmp_path, ops, mix={"DELETE": 100.0}, driver_end=ends, **OPEN)], recovery(FAULT))
    assert numbers(section, "a failure") == {"total": lost, "DELETE": lost}
