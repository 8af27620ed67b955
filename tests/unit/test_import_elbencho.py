"""elbencho's table and JSON: recorded phases, some of them twice."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cbt_plugins.results.record import RunRecord
from cbt_plugins.results.records import read_imported
from cbt_plugins.results.source import Unreadable

DATA = Path(__file__).parent.parent / "data" / "imported" / "elbencho"


def value(record: RunRecord, phase: str, op: str, metric: str) -> Any:
    (its,) = [its for its in record.measurements if (its.phase, its.op, its.metric) == (phase, op, metric)]
    return its.value


@pytest.mark.parametrize(("name", "exact"), [("phases.json", 1e-6), ("phases.csv", 0.03)])
def test_a_phase_is_what_its_line_says(name: str, exact: float) -> None:
    """Against what elbencho calculated; its times are rounded to ms, and the phases are short."""
    first, again = read_imported(DATA / name)
    lines = [json.loads(line) for line in (DATA / "phases.json").read_text().splitlines()]
    write, mixed = lines[1]["last_done"], lines[5]["last_done"]
    seconds = int(mixed["elapsed_time_ms"]) / 1000
    assert value(first, "write", "write", "obj_per_s") == pytest.approx(int(write["entries/s"]), rel=0.02)
    assert value(first, "write", "write", "mean_ms") == int(write["latency"]["entries"]["avg_us"]) / 1000
    assert value(first, "write", "write", "max_ms") == int(write["latency"]["entries"]["max_us"]) / 1000
    assert value(first, "mixed rwmix30", "read", "obj_per_s") == pytest.approx(
        int(mixed["rwmix_read"]["bytes"]) / 4096 / seconds, rel=exact
    )
    mean = int(mixed["latency"]["IO"]["avg_us"]) / 1000
    assert value(first, "mixed rwmix30", "write", "mean_ms") == pytest.approx(mean)
    assert value(first, "rmfiles", "delete", "obj_per_s") and value(first, "stat", "stat", "obj_per_s")
    assert {its.phase for its in again.measurements} == {"mixed rwmix30"}  # the one that came a second time
    assert first.config["load.threads"] == 2 and first.config["version.elbencho"] == "3.0-37"
    assert first.started == pytest.approx(1795340256.424) and first.usable


def test_directories_are_not_measured() -> None:
    (first, _) = read_imported(DATA / "phases.json")
    assert not [its for its in first.measurements if its.phase == "mkdirs" and its.metric == "obj_per_s"]


def test_threads_that_did_not_run_together_are_said() -> None:
    (first, _) = read_imported(DATA / "phases.csv")
    assert {"common-window", "no-series"} <= {warning.code for warning in first.warnings}


def test_what_is_torn_is_refused(tmp_path: Path) -> None:
    text = (DATA / "phases.json").read_text()
    (tmp_path / "x.json").write_text(text[: len(text) - 200])
    with pytest.raises(Unreadable, match="no JSON of elbencho"):
        read_imported(tmp_path / "x.json")
    (tmp_path / "x.csv").write_text((DATA / "phases.csv").read_text().splitlines()[0] + "\n")
    with pytest.raises(Unreadable, match="no phase"):
        read_imported(tmp_path / "x.csv")
