"""json_output.N.HOST: what teuthology's cbt task finds in an archive, and what CBT's formatters must not find."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import List

import archive_builder as ea
import pytest

from cbt_plugins.tools.__main__ import main

CONFIG = {"benchmark": "warp", "iteration": 0}


def collected(archive: Path) -> List[Path]:
    """What the consumer takes: `find -name json_output.*`, then this expression anywhere in the path."""
    found = sorted(path for path in archive.rglob("json_output.*") if path.is_file())
    return [path for path in found if re.search(r"/json_output\.(?P<json>\d+)", str(path))]


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    ea.cbt_run(tmp_path / "A", CONFIG, phases=("fill", "measure-new"))
    return tmp_path / "A"


def test_a_report_leaves_a_file_for_each_phase_with_load(archive: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(archive)]) == 0
    found = collected(archive)
    assert [f"{path.parent.name}/{path.name}" for path in found] == [
        "01-fill/json_output.1.node0",
        "02-measure-new/json_output.2.node0",
    ]
    data = json.loads(found[1].read_text())
    assert (data["benchmark"], data["phase"], data["index"], data["seconds"]) == ("warp", "measure-new", 2, 10.0)
    assert data["total"]["obj_per_s"] == 300.0
    assert data["ops"]["PUT"]["latency_ms"]["mean"] == 20.0
    assert data["workers"] == 4
    assert "histogram_ns" not in data["ops"]["PUT"], "a column of a table"
    before = {path: path.read_bytes() for path in found}
    assert main(["report", str(archive)]) == 0
    assert {path: path.read_bytes() for path in collected(archive)} == before


def test_the_names_do_not_fit_the_formatters_of_cbt(archive: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(archive)]) == 0
    assert collected(archive)
    assert list(archive.glob("**/json_output.?")) == []
    assert [path for path in archive.glob("**/json_output.*") if re.search(r"json_output.\d+$", str(path))] == []


def test_a_calibration_is_no_result(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = ea.cbt_run(tmp_path / "A", CONFIG, phases=("calibrate", "measure-new"))
    phase = run / "phases" / "01-calibrate" / "phase.json"
    phase.write_text(json.dumps({**json.loads(phase.read_text()), "role": "none"}))
    assert main(["report", str(tmp_path / "A")]) == 0
    assert [path.name for path in collected(tmp_path / "A")] == ["json_output.2.node0"]


def test_an_incomplete_run_is_not_exported(archive: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(archive)]) == 0
    marker = next(archive.rglob("complete"))
    marker.write_text('{"degraded": ["measure-new"]}')
    assert collected(archive)
    main(["report", str(archive)])
    assert collected(archive) == []
    marker.unlink()
    assert main(["report", str(archive)]) == 4
    assert collected(archive) == []


def test_what_is_asked_for_by_name_is_all_that_is_written(
    archive: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", str(archive), "--format", "json", "-o", str(tmp_path / "s.json")]) == 0
    assert main(["report", str(archive), "--format", "text"]) == 0
    assert collected(archive) == []


@pytest.mark.parametrize(
    ("manifest", "host"),
    [
        ('{"head": "mon1.lab"}', "mon1.lab"),
        ('{"head": "fd00::1", "nodes": {"a": {}}}', "fd00::1"),
        ('{"head": "a/b c"}', "a-b-c"),
        ('{"nodes": {"a": {}, "b": {}}}', "a"),
        ("{}", "head"),
        ("[]", "head"),
    ],
)
def test_the_host_is_the_head_of_the_archive(
    archive: Path, manifest: str, host: str, capsys: pytest.CaptureFixture[str]
) -> None:
    next(archive.rglob("manifest.json")).write_text(manifest)
    main(["report", str(archive)])
    assert {path.name.split(".", 2)[2] for path in collected(archive)} == {host}
