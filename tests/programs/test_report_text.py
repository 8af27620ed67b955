"""The table in the terminal, and the command that prints it."""

from __future__ import annotations

import csv
import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, Dict, Iterator, Tuple

import archive_builder as made
import pytest

from cbt_plugins import formatting
from cbt_plugins.checksums import end_run
from cbt_plugins.formatting import screen
from cbt_plugins.formatting.blocks import TableGrid, TitledBlocks
from cbt_plugins.formatting.formats.terminal import Terminal
from cbt_plugins.report.result_text import blocks, imported_blocks
from cbt_plugins.results.record_reader import read_imported
from cbt_plugins.results.summary_file import summarize
from cbt_plugins.tools.__main__ import main

RESULT = """\
Aged operations were 33.3 % slower than new operations in this run; one run is inconclusive. How much repeated
runs differ is not known: repeat the run.

"""
EXPECTED = """\
00000000/id-1a2b3c4d  warp  run k3j9
ceph: 18.2.7 reef, warp: 1.3.1, cbt: 9d6480f 2025-05-16, cbt_plugins: 0.1.0

01 new  measure  10.0 s  4 workers, throughput x latency = 4.00 (0.0 %)
          obj/s  MiB/s  mean ms    p50    p90    p99  p99.9    max  TTFB p50  errors     mix  target
   GET    200.0  0.781    10.00  10.00  10.00  10.00  10.00  10.00     5.000       0  66.7 %    67 %
   PUT    100.0  0.391    20.00  20.00  20.00  20.00  20.00  20.00         -       0  33.3 %    33 %
   total  300.0  1.172    13.33  10.00  20.00  20.00  20.00  20.00     5.000       0

02 aged  measure  10.0 s  4 workers, throughput x latency = 4.00 (0.0 %)
          obj/s  MiB/s  mean ms    p50    p90    p99  p99.9    max  TTFB p50  errors     mix  target
   GET    100.0  0.391    20.00  20.00  20.00  20.00  20.00  20.00     10.00       0  50.0 %    67 %
   PUT    100.0  0.391    20.00  20.00  20.00  20.00  20.00  20.00         -       0  50.0 %    33 %
   total  200.0  0.781    20.00  20.00  20.00  20.00  20.00  20.00     10.00       0

aged (aged) compared with new (new): one measurement each: a difference may be chance, no significance is
claimed
                     new   aged    change
   GET    obj/s    200.0  100.0   -50.0 %
   GET    MiB/s    0.781  0.391   -50.0 %
   GET    mean ms  10.00  20.00  +100.0 %
   GET    p99 ms   10.00  20.00  +100.0 %
   PUT    obj/s    100.0  100.0     0.0 %
   PUT    MiB/s    0.391  0.391     0.0 %
   PUT    mean ms  20.00  20.00     0.0 %
   PUT    p99 ms   20.00  20.00     0.0 %
   total  obj/s    300.0  200.0   -33.3 %
   total  MiB/s    1.172  0.781   -33.3 %
   total  mean ms  13.33  20.00   +50.0 %
   total  p99 ms   20.00  20.00     0.0 %

1 warning
   warning: aged: GET is 50.0 % of the requests, 67 % were asked for [mix]
"""


def test_the_complete_text(tmp_path: Path) -> None:
    assert Terminal().text(blocks(summarize(made.small(tmp_path)))) == EXPECTED


def test_it_fits_the_terminal(tmp_path: Path) -> None:
    directory = made.run(tmp_path, phases=["new"], complete=False)
    jobs = [
        made.job(
            f"{i}-{op}",
            op,
            [made.row(op, 1 + j / 7, 12.3456, size=2**26, error="x" * 150 if j else "") for j in range(60)],
            driver=f"{i:02d}-256MiB",
            sizes=[[2**28, 2**28, 0.5], [2**30, 2**30, 0.5]],
        )
        for i in range(5)
        for op in ("GET", "PUT", "STAT", "DELETE")
    ]
    made.phase(directory, 1, "new", jobs)
    text = Terminal().text(blocks(summarize(directory)))
    assert max(map(len, text.splitlines())) <= screen.WIDTH
    assert "INCOMPLETE" in text
    assert "04-256MiB" in text


def test_errors_are_those_that_the_summary_counts(tmp_path: Path) -> None:
    directory = made.run(tmp_path, phases=["m"])
    rows = [*made.steady("GET", workers=2, seconds=14, latency=0.01, begin=-2, size=4096)]
    rows += [made.row("GET", at, 0.2, error="e", size=4096) for at in (-1, -0.9, 5)]
    made.phase(directory, 1, "m", [made.job("g", "GET", rows)])
    summary = summarize(directory)
    assert (summary["phases"][0]["ops"]["GET"]["errors"], *next(_errors(summary))) == (1, "1")


def _errors(summary: Dict[str, Any]) -> Iterator[Tuple[str, ...]]:
    for block in blocks(summary):
        for grid in block.blocks if isinstance(block, TitledBlocks) else ():
            if isinstance(grid, TableGrid) and "errors" in grid.head:
                yield tuple(row[grid.head.index("errors")] for row in grid.rows)


def test_a_cut_is_shown(tmp_path: Path) -> None:
    directory = made.run(tmp_path, phases=["new"])
    ops = ("GET", "PUT", "STAT", "DELETE", "LIST", "MULTIPART")
    sizes = [[2**i, 2**i, 1 / 3] for i in (12, 16, 20)]
    jobs = [
        made.job(f"{i}-{op}", op, made.steady(op, workers=1, seconds=12, latency=0.5), driver=f"d{i}", sizes=sizes)
        for i in range(2)
        for op in ops
    ]
    made.phase(directory, 1, "new", jobs)
    text = Terminal().text(blocks(summarize(directory)))
    assert "by driver, obj/s and mean ms; the first 5 of 6 operations\n" in text
    assert "   d1  4 KiB, 64 KiB, ...  " in text


def test_a_failed_request_of_another_program_is_never_100_percent() -> None:
    (record,) = read_imported(made.DATA / "imported" / "warp" / "aggregated.json.zst")
    few = tuple(replace(its, value=0.999999) if its.metric == "success_rate" else its for its in record.measurements)
    assert "99.999 %" in Terminal().text(imported_blocks([replace(record, measurements=few)]))


def test_what_cbt_load_adds(tmp_path: Path) -> None:
    directory = made.run(tmp_path)
    rows = made.steady("GET", workers=2, seconds=14, latency=0.01, begin=-2, size=4096)
    rows += made.steady("GET", workers=2, seconds=14, latency=0.02, begin=-2, size=70_000)
    more = {"engine": "cbt-load", "as_aggregates": True}
    made.phase(directory, 1, "open", [made.cbt_load("h", rows, rate_limit=300.0)], **more)
    deletes = [row.replace("GET", "DELETE") for row in rows]
    made.phase(directory, 2, "delete", [made.cbt_load("d", deletes)], kind="delete", **more)
    text = Terminal().text(blocks(summarize(directory)))
    assert "01 open  measure  10.0 s  open loop, target 300.0 requests/s, 300.0 issued (0.0 %)\n" in text
    assert "   01-4KiB  64 KiB to 128 KiB  GET  100.0  6.676    20.00  20.00  20.00  20.00  20.00  20.00\n" in text
    assert "\n   4,200 objects deleted, 0 could not be; 9 are left\n" in text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "-"),
        (0, "0"),
        (0.12345, "0.123"),
        (1.2345, "1.234"),
        (9.9996, "10.00"),
        (99.996, "100.0"),
        (999.96, "1000"),
        (0.00042, "0.0004"),
        (-0.00004, "-4e-05"),
        (1234.5, "1234"),
        (9999.7, "10,000"),
        (123456.7, "123,457"),
        (-12.345, "-12.35"),
    ],
)
def test_plain_numbers(value: float, text: str) -> None:
    assert formatting.plain(value) == text


def test_other_numbers() -> None:
    assert [formatting.signed_percent(v) for v in (0.1234, -0.00001, None)] == ["+12.3 %", "0.0 %", "-"]
    assert [formatting.success(v) for v in (1, 0.9999999, 0.5, None)] == ["100 %", "99.999 %", "50.000 %", "-"]
    assert [formatting.seconds(v) for v in (59.96, 120, 725, 86400, 91800)] == [
        "60.0 s",
        "2 min",
        "12 min 5 s",
        "24 h",
        "25 h 30 min",
    ]
    assert [formatting.size(v) for v in (4096, 4000, 2**20, 3 * 2**30)] == ["4 KiB", "4 KB", "1 MiB", "3 GiB"]
    assert formatting.when(made.T0) == "2023-11-14 22:13:20 UTC"


# --- the command
# --------------------------------------------------------------------------------------------------------


def test_report_writes_and_prints(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("jinja2")
    directory = made.small(tmp_path)
    assert main(["report", str(tmp_path)]) == 0
    assert capsys.readouterr().out == f"{RESULT}{EXPECTED}\n{directory}/report.html\n"
    before = [(directory / name).read_bytes() for name in ("summary.json", "report.html")]
    assert main(["report", str(directory)]) == 0
    assert [(directory / name).read_bytes() for name in ("summary.json", "report.html")] == before


def test_a_partial_run_is_reported_and_status_4(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory = made.small(tmp_path, complete=False)
    assert main(["report", str(directory), "--format", "text"]) == 4
    out = capsys.readouterr().out
    assert "INCOMPLETE" in out
    assert "GET    200.0" in out
    assert not (directory / "summary.json").exists()


def test_a_table_says_what_limits_the_trust_in_its_numbers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    archives = [made.small(tmp_path / "a"), made.small(tmp_path / "b", complete=False)]
    for archive, status, usable, new in zip(archives, (0, 4), ("True", "False"), ("", "incomplete")):
        assert main(["report", str(archive), "--format", "csv"]) == status
        lines = list(csv.DictReader(capsys.readouterr().out.splitlines()))
        assert {line["usable"] for line in lines} == {usable}
        told = {(line["phase"], line["op"]): line["warnings"] for line in lines}
        assert told["new", "GET"] == told["aged", "PUT"] == new
        assert told["aged", "GET"].split(" ") == [*([new] if new else []), "mix"]


def test_imported_tables_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(made.DATA / "imported" / "fio" / "stopped.json"), "--format", "csv"]) == 4
    (line, *_) = csv.DictReader(capsys.readouterr().out.splitlines())
    assert line["usable"] == "False" and line["warnings"]


@pytest.mark.parametrize(("option", "value"), [("--plots", "plots"), ("--nic", "25Gbit")])
def test_an_option_that_imported_results_do_not_have_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, option: str, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    hsbench = next((made.DATA / "imported" / "hsbench").glob("*.json"))
    assert main(["report", str(hsbench), option, value]) == 0
    error = capsys.readouterr().err
    assert error == f"Warning: {hsbench}: {option} has no effect on results of other programs\n"
    assert list(tmp_path.iterdir()) == []


def test_no_such_path_is_wrong_use(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(tmp_path / "none")]) == 2
    assert "no such file or directory" in capsys.readouterr().err
    assert main(["report", str(tmp_path)]) == 4
    assert "no run in it" in capsys.readouterr().err


def test_files_by_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory = made.small(tmp_path / "a")
    assert main(["report", str(directory), "--format", "json", "-o", str(tmp_path / "s.json")]) == 0
    assert json.loads((tmp_path / "s.json").read_text())["version"] == 2
    assert not (directory / "summary.json").exists()
    assert not (directory / "report.html").exists()
    other = directory.with_name("id-ffffffff")
    other.mkdir()
    capsys.readouterr()
    assert main(["report", str(tmp_path / "a"), "--format", "json", "-o", str(tmp_path / "t.json")]) == 2
    assert "has 2 runs" in capsys.readouterr().err


def test_a_place_that_cannot_be_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory = made.small(tmp_path)
    (tmp_path / "no").touch()
    assert main(["report", str(directory), "--format", "json", "-o", str(tmp_path / "no" / "s.json")]) == 2
    assert "Error: cannot write " in capsys.readouterr().err


def test_an_archive_that_cannot_be_written_is_shown_in_full(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = made.small(tmp_path / "a")
    second = first.with_name("id-ffffffff")
    shutil.copytree(first, second)
    (first / "summary.json").mkdir()
    assert main(["report", str(tmp_path / "a")]) == 2
    said = capsys.readouterr()
    assert all(f"{run.parent.name}/{run.name}" in said.out for run in (first, second))
    assert said.err == f"Error: cannot write {first}/summary.json: Is a directory; --format text writes nothing\n"
    (tmp_path / "no").touch()
    assert main(["report", str(first), "--plots", str(tmp_path / "no" / "plots")]) == 2
    assert capsys.readouterr().err == f"Error: cannot write {tmp_path}/no/plots: Not a directory\n"


def without(packages: str, directory: Path) -> subprocess.CompletedProcess[str]:
    """The report in a process of its own, in which these packages cannot be imported."""
    program = (
        "import sys\n"
        "class No:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.split('.')[0] in sys.argv[2].split():\n"
        "            raise ModuleNotFoundError(f'no {name}', name=name)\n"
        "sys.meta_path.insert(0, No())\n"
        "from cbt_plugins.tools.__main__ import main\n"
        "sys.exit(main(['report', sys.argv[1]]))\n"
    )
    return subprocess.run(
        [sys.executable, "-c", program, str(directory), packages],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parent.parent.parent,
    )


def test_without_jinja2_there_is_no_page_and_all_the_rest(tmp_path: Path) -> None:
    directory = made.small(tmp_path)
    done = without("jinja2 markupsafe rich", directory)
    assert (done.returncode, done.stdout) == (0, RESULT + EXPECTED), done.stderr
    assert "Warning: report.html not written: missing Python package jinja2" in done.stderr
    assert (directory / "summary.json").exists()
    assert not (directory / "report.html").exists()


def test_without_numpy_it_says_what_to_install(tmp_path: Path) -> None:
    done = without("numpy", made.small(tmp_path))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "Error: missing Python package numpy: pip install 'cbt-plugins[report]'\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to read as somebody else")
@pytest.mark.parametrize("closed", [".", "results", "results/00000000", "results/00000000/id-1a2b3c4d"])
def test_an_archive_that_one_may_not_read_is_not_called_damaged(tmp_path: Path, closed: str) -> None:
    archive = tmp_path / "archive"
    made.small(archive)
    for folder in (*tmp_path.parents, tmp_path):
        if str(folder).startswith("/tmp/"):
            folder.chmod(folder.stat().st_mode | 0o55)
    subprocess.run(["chmod", "-R", "go=rX", str(archive)], check=True)
    (archive / closed).chmod(0o700)
    nobody = ["setpriv", "--reuid", "65534", "--clear-groups", "env", "HOME=/nonexistent", "PYTHONDONTWRITEBYTECODE=1"]

    def as_nobody(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*nobody, sys.executable, *words], capture_output=True, text=True, check=False)

    if as_nobody("-c", "import os, sys, cbt_plugins.tools; os.stat(sys.argv[1])", str(tmp_path)).returncode:
        pytest.skip("somebody else cannot read this project here")
    for words in (["report", str(archive), "--format", "text"], ["verify", str(archive)]):
        done = as_nobody("-m", "cbt_plugins.tools", *words)
        assert done.returncode == 4 and "no permission to read it" in done.stderr, done.stderr
        assert "damaged" not in done.stderr and "no run in it" not in done.stderr and done.stdout == ""


def test_a_missing_document_is_named_once(tmp_path: Path) -> None:
    run = made.small(tmp_path)
    end_run(run, json.loads((run / "complete").read_text()))
    (run / "plan.json").unlink()
    warnings = [warning for warning in summarize(run)["warnings"] if "plan.json" in warning["text"]]
    assert [(warning["code"], warning["severity"]) for warning in warnings] == [("changed-file", "invalid")]


def test_all_workers_of_a_phase_with_and_without_a_rate_are_counted(tmp_path: Path) -> None:
    summary = summarize(made.small(tmp_path))
    jobs = summary["phases"][0]["littles_law"]["jobs"]
    jobs.append({**jobs[0], "workers": 16, "paced": True})
    text = Terminal().text(blocks(summary))
    assert "20 workers; 4 without a given rate, throughput x latency = 4.00 (0.0 %)" in text
