"""Summaries of runs that have not come to their end, and of archives with damaged documents."""

from __future__ import annotations

import contextlib
import json
import shutil
from pathlib import Path

import archive_builder as made
import pytest
from archive_builder import codes

from cbt_plugins.journal import Journal
from cbt_plugins.results.summary_file import summarize
from cbt_plugins.tools.__main__ import main


def test_without_the_end_marker_a_run_is_partial(tmp_path: Path) -> None:
    summary = summarize(made.small(tmp_path, complete=False))
    assert (summary["usable"], summary["run"]["complete"]) == (False, False)
    assert "incomplete" in codes(summary)
    (text,) = [warning["text"] for warning in summary["warnings"] if warning["code"] == "incomplete"]
    assert text == "the run has no end marker: it was interrupted, or is still running on another machine"
    assert summary["phases"][0]["ops"]["GET"]["obj_per_s"] == 200.0


def test_the_reason_of_a_failed_run_is_in_the_report(tmp_path: Path) -> None:
    directory = made.small(tmp_path, complete=False)
    path = directory / "events.jsonl"
    before = path.read_text() if path.exists() else ""
    failed = json.dumps({"t": 9e9, "event": "run-failed", "why": "crash: refused by\n rule inactive"}) + "\n"
    for lines, reason in [
        (failed, "it failed: crash: refused by rule inactive"),
        (failed + '{"t": 9e9, "event": "run-begun"}\n', "it was interrupted, or is still running on another machine"),
    ]:
        path.write_text(before + lines)
        (text,) = [warning["text"] for warning in summarize(directory)["warnings"] if warning["code"] == "incomplete"]
        assert text == f"the run has no end marker: {reason}"


def test_pgs_that_the_autoscaler_has_split_are_a_warning(tmp_path: Path) -> None:
    directory = made.small(tmp_path)
    changed = {"t": 1.0, "event": "setting-overwritten", "label": "settings"}
    lines = [
        {**changed, "what": "pools.pool_name=.rgw.root.pg_num_target", "was": 32, "back": 4},
        {**changed, "what": "pools.pool_name=rbd.pg_autoscale_mode", "was": "warn", "back": "on"},
    ]
    with (directory / "events.jsonl").open("a") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)
    (text,) = [w["text"] for w in summarize(directory)["warnings"] if w["code"] == "pgs-split"]
    assert text.startswith("autoscaler: on changed the number of PGs: .rgw.root from 4 to 32; ")


def test_attempts_and_missing_phases(tmp_path: Path) -> None:
    directory = made.small(tmp_path)
    shutil.copytree(directory / "phases" / "01-new", directory / "phases" / "01-new.partial-1")
    (directory / "phases" / "02-aged" / "phase.json").unlink()
    summary = summarize(directory)
    assert [phase["name"] for phase in summary["phases"]] == ["new"]
    assert codes(summary) == ["missing-phase", "partial-attempt"]
    assert not summary["usable"]
    (directory / "phases" / "01-new" / "phase.json").write_text("{")
    assert "unreadable-phase" in codes(summarize(directory))
    (directory / "phases" / "01-new" / "phase.json").write_text('{"version": 1}')
    assert "this program reads version 2" in " ".join(w["text"] for w in summarize(directory)["warnings"])


def test_damaged_documents_are_named(tmp_path: Path) -> None:
    directory = made.small(tmp_path)
    (directory / "plan.json").write_text("[1]")
    (directory / "manifest.json").write_text("{")
    (directory / "benchmark_config.yaml").write_text("a: [")
    texts_ = [w["text"] for w in summarize(directory)["warnings"] if w["code"] == "damaged-archive"]
    assert [text.split()[0] for text in texts_] == ["plan.json", "manifest.json", "benchmark_config.yaml"]


@pytest.mark.parametrize("key", ["ended", "started"])
@pytest.mark.parametrize("value", ["noon", [1], float("inf")])
def test_a_time_that_is_none_costs_its_phase_only(tmp_path: Path, key: str, value: object) -> None:
    directory = made.small(tmp_path)
    path = directory / "phases" / "02-aged" / "phase.json"
    facts = json.loads(path.read_text())
    facts["jobs"][0][key] = value
    path.write_text(json.dumps(facts))
    summary = summarize(directory)
    assert [phase["name"] for phase in summary["phases"]] == ["new"]
    assert "unreadable-phase" in codes(summary)


def test_a_run_that_is_going_on_is_not_called_interrupted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = made.small(tmp_path, complete=False)
    plan = json.loads((directory / "plan.json").read_text())
    plan["phases"].append({**plan["phases"][-1], "name": "to-come"})
    (directory / "plan.json").write_text(json.dumps(plan))
    (directory / "phases" / "03-to-come.running").mkdir()
    journal, events = Journal(directory / "journal.jsonl"), Journal(directory / "events.jsonl")
    with contextlib.closing(journal), contextlib.closing(events):
        journal.write("invocation")
        warnings = {its["code"]: its for its in summarize(directory)["warnings"]}
        assert "to come: to-come" in warnings["going-on"]["text"]
        assert not {"incomplete", "missing-phase", "partial-attempt"} & set(warnings)
        assert main(["report", str(tmp_path), "--format", "text"]) == 0
        assert "This run has not finished: 2 phases so far." in capsys.readouterr().out
        # it makes its report before it ends
        events.write("run-failed")
        assert "incomplete" in {its["code"] for its in summarize(directory)["warnings"]}
    assert {"incomplete", "missing-phase", "partial-attempt"} <= set(codes(summarize(directory)))
