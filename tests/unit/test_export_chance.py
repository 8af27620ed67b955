"""How often a statement rejects equal runs: against planted noise, and what compare.py's log says of it."""

from __future__ import annotations

import json
import math
import random
import sys
from pathlib import Path
from statistics import NormalDist, median
from typing import Any, Dict, List

import archive_builder as ea
import pytest

from cbt_plugins.config.acceptable import parse
from cbt_plugins.report.export.acceptance import check_statements, false_alarms

CONFIG = {"benchmark": "warp", "iteration": 0}


def phase(**ops: List[float]) -> Dict[str, Any]:
    return {"series": {"ops": {op: {"obj_per_s": values, "mib_per_s": None} for op, values in ops.items()}}}


def noise(seconds: int, deviation: float, seed: int = 1) -> List[float]:
    chance = random.Random(seed)
    return [chance.gauss(100.0, deviation) for _ in range(seconds)]


@pytest.mark.parametrize(("statement", "limit"), [("(or (greater) (near 0.05))", -0.05), ("(greater)", 0.0)])
def test_planted_noise_gives_the_share_of_the_normal_distribution(statement: str, limit: float) -> None:
    made = [false_alarms(phase(GET=noise(400, 60.0, i)), "GET", "iops_avg", parse(statement)) for i in range(9)]
    # the mean of 400 seconds has a standard error of 3 %, a change one of 4.2 %; estimates of it err on the high side
    right = NormalDist().cdf(limit / (math.sqrt(2) * 0.03))
    assert right - 0.01 < median(made) < right + 0.06


def test_a_long_quiet_run_is_not_rejected() -> None:
    assert false_alarms(phase(GET=noise(400, 2.0)), "GET", "obj_per_s", parse("(near 0.05)")) == 0


def test_the_seconds_of_all_operations_are_added() -> None:
    get, put = noise(400, 60.0), [200.0 - value for value in noise(400, 60.0)]
    both = phase(GET=get, PUT=put)
    assert false_alarms(both, "GET", "obj_per_s", parse("(near 0.05)")) > 0.15
    assert false_alarms(both, "total", "obj_per_s", parse("(near 0.05)")) == 0, "the sum does not scatter"


def test_what_is_no_rate_or_too_short_is_not_guessed(monkeypatch: pytest.MonkeyPatch) -> None:
    check = parse("(near 0.05)")
    assert false_alarms(phase(GET=noise(400, 60.0)), "GET", "p99_ms", check) is None
    assert false_alarms(phase(GET=noise(400, 60.0)), "GET", "bandwidth", check) is None
    assert false_alarms(phase(GET=[1.0]), "GET", "iops_avg", check) is None
    assert false_alarms(phase(GET=[0.0] * 60), "GET", "iops_avg", check) is None
    assert false_alarms(phase(), "total", "iops_avg", check) is None
    monkeypatch.setitem(sys.modules, "cbt_plugins.compare.statistics", None)
    assert false_alarms(phase(GET=noise(400, 60.0)), "GET", "iops_avg", check) is None


def test_the_log_says_it_of_the_baseline(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    quiet = ea.cbt_run(tmp_path / "quiet", CONFIG)
    noisy = ea.cbt_run(tmp_path / "noisy", CONFIG)
    summary = json.loads((noisy / "summary.json").read_text())
    for its in summary["phases"][0]["series"]["ops"].values():
        its["obj_per_s"] = noise(len(its["obj_per_s"]) * 6, 60.0)
    (noisy / "summary.json").write_text(json.dumps(summary))
    statement = "(or (greater) (near 0.05))"
    assert check_statements("w", noisy, quiet, {"iops_avg": statement})[0].accepted
    assert caplog.text == ""
    assert check_statements("w", quiet, noisy, {"iops_avg": statement})[0].accepted
    assert f"w/measure-new/total: iops_avg: {statement} rejects " in caplog.text
    assert "% of equal runs" in caplog.text
