"""The summary that `report` has made: taken again only where it says what a new one would say."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any, Callable, Dict

import pytest
from archive_builder import T0, job, phase, run, steady

from cbt_plugins import checksums, programs
from cbt_plugins.cluster import user_seal
from cbt_plugins.results import summary_file
from cbt_plugins.results.summary_file import FILE
from cbt_plugins.tools import report_signature
from cbt_plugins.tools.__main__ import main

PAGE = "report.html"


@pytest.fixture
def reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a sealed run with a failure, of which this user has made the report."""
    monkeypatch.setattr(user_seal, "cache_dir", lambda: tmp_path / "cache")
    return run_of(tmp_path, as_aggregates=True)


def run_of(folder_of_archive: Path, as_aggregates: bool) -> Path:
    folder = run(folder_of_archive / "archive", phases=["new", "hurt"])
    for index, (name, begin) in enumerate((("new", 0), ("hurt", 100)), 1):
        rows = steady("GET", workers=2, seconds=14, latency=0.02 * index, begin=begin - 2, size=4096, first=0.005)
        window = (begin, begin + 10)
        phase(folder, index, name, [job("d1-get", "GET", rows)], window=window, as_aggregates=as_aggregates)
    events = [
        {"t": T0 - 2.0, "event": "phase-begin", "phase": "new"},
        {"t": T0 + 98.0, "event": "phase-begin", "phase": "hurt"},
        {"t": T0 + 105.0, "event": "fault-inject-begin", "phase": "hurt", "label": "node4 down"},
        {"t": T0 + 108.0, "event": "fault-undo-begin", "phase": "hurt", "label": "node4 down"},
    ]
    (folder / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    facts = json.loads((folder / "complete").read_text())
    (folder / "complete").unlink()
    checksums.end_run(folder, facts)
    report(folder)
    return folder


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """Return how many summaries were made anew until now."""
    number = 0
    summarize = summary_file.summarize

    def counted(*arguments: Any) -> Dict[str, Any]:
        nonlocal number
        number += 1
        return summarize(*arguments)

    monkeypatch.setattr(summary_file, "summarize", counted)
    return lambda: number


def report(folder: Path, *words: str) -> int:
    return main(["report", str(folder), *words])


def test_what_it_shows_and_writes_is_the_same(
    reported: Path, made: Callable[[], int], capsys: pytest.CaptureFixture[str]
) -> None:
    def shown(*words: str) -> str:
        capsys.readouterr()
        report(reported, *words)
        return capsys.readouterr().out

    written = {name: (reported / name).read_bytes() for name in (FILE, PAGE)}
    taken = {form: shown("--format", form) for form in ("text", "md", "csv", "json", "html")}
    text = shown()
    assert made() == 0
    assert {name: (reported / name).read_bytes() for name in (FILE, PAGE)} == written
    (reported / FILE).unlink()
    assert {form: shown("--format", form) for form in taken} == taken
    assert shown() == text
    assert made() == len(taken) + 1
    assert {name: (reported / name).read_bytes() for name in (FILE, PAGE)} == written


def test_a_signed_one_fits_the_schema(reported: Path) -> None:
    signed = json.loads((reported / FILE).read_text())
    assert signed["seal"]["made"]
    summary_file.validator().validate(signed)


def test_numbers_of_one_phase_are_those_of_one_phase(
    reported: Path, made: Callable[[], int], capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    report(reported, "--phase=new", "--format", "json")
    assert [phase["name"] for phase in json.loads(capsys.readouterr().out)["phases"]] == ["new"]
    assert made() == 1


def forge(folder: Path) -> None:
    """Change a number, and bind the summary to its files again, as anybody can; the signature stays."""
    data = json.loads((folder / FILE).read_text())
    seal = data.pop("seal")
    data["phases"][0]["total"]["errors"] = 7
    text = summary_file.dumps(data, "\n")
    seal["summary"] = hashlib.sha256(text.encode()).hexdigest()
    (folder / FILE).write_text(text.replace("{\n", f'{{\n "seal": {json.dumps(seal)},\n', 1))
    assert summary_file.read_summary(folder / FILE)["phases"][0]["total"]["errors"] == 7


def test_a_forged_one_is_made_anew(reported: Path, made: Callable[[], int]) -> None:
    written = (reported / FILE).read_bytes()
    forge(reported)
    report(reported)
    assert made() == 1
    assert (reported / FILE).read_bytes() == written


@pytest.mark.parametrize("change", ["user", "program", "file", "added", "unsealed", "renamed"])
def test_one_of_something_else_is_made_anew(
    reported: Path, made: Callable[[], int], change: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if change == "user":
        monkeypatch.setattr(user_seal, "cache_dir", lambda: tmp_path / "another cache")
    elif change == "program":
        monkeypatch.setattr(report_signature, "program_sum", lambda: "another program")
    elif change == "file":
        (reported / "events.jsonl").write_text("")
    elif change == "added":
        (reported / "monitors").mkdir()
        (reported / "monitors" / "late.jsonl").write_text("{}\n")
    elif change == "unsealed":
        (reported / checksums.FILE).unlink()
    else:
        reported = reported.rename(reported.with_name("id-2b3c4d5e"))
    report(reported)
    assert made() == 1
    summary = summary_file.read_summary(reported / FILE)
    assert summary["run"]["name"] == f"{reported.parent.name}/{reported.name}"
    codes = {warning["code"] for warning in summary["warnings"]}
    assert ("changed-file" in codes) == (change in ("file", "added", "unsealed"))


@pytest.mark.skipif(programs.own_program("cbt-rows") is None, reason="NO cbt-rows (cbt-tools build makes it)")
def test_numbers_of_rows_are_made_anew(
    made: Callable[[], int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """No reader looks whether rows have changed that it does not read."""
    monkeypatch.setattr(user_seal, "cache_dir", lambda: tmp_path / "cache")
    folder = run_of(tmp_path, as_aggregates=False)
    (rows,) = folder.glob("phases/01-new/rows/*")
    rows.write_bytes(b"")
    report(folder)
    assert made() == 2
    assert "changed since the run ended" in capsys.readouterr().out


def test_without_a_key_each_is_made_anew(
    reported: Path, made: Callable[[], int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "no folder").write_text("")
    monkeypatch.setattr(user_seal, "cache_dir", lambda: tmp_path / "no folder")
    report(reported)
    report(reported)
    assert made() == 2
    assert "made" not in json.loads((reported / FILE).read_text())["seal"]


def test_a_user_without_a_home_has_a_report(
    reported: Path, made: Callable[[], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(user_seal, "cache_dir", programs.cache_dir)
    monkeypatch.setattr(Path, "home", no_home)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    report(reported)
    assert made() == 1
    assert programs.own_program("sh") == Path(shutil.which("sh") or "")
