"""Archives of strangers: who reads one gets numbers or an error, and nothing outside it is read or written."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Callable, Dict

import archive_builder as made
import pytest

from cbt_plugins.programs import own_tool
from cbt_plugins.tools.__main__ import main

SECRET = "a line of the reader's own file"


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """A run with one phase, and beside it a file of whoever reads it."""
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "private").write_text(SECRET)
    directory = made.run(tmp_path / "archive", phases=["x"])
    get = made.steady("GET", workers=2, seconds=12, latency=0.1)
    folder = made.phase(directory, 1, "x", [made.job("g", "GET", get)])
    (folder / "json_output.1.former").write_text("{}")  # of an earlier report, which a report replaces
    return directory


def outside(tmp_path: Path) -> Dict[str, bytes]:
    files = (path for path in tmp_path.rglob("*") if path.is_file() and "archive" not in path.parts)
    return {str(path): path.read_bytes() for path in files}


def change(directory: Path, **facts: Any) -> None:
    path = directory / "phases" / "01-x" / "phase.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **facts}))


def name_that_leads_out(directory: Path) -> None:
    name = "x/../../../../../../home/x"
    change(directory, name=name)
    plan = directory / "plan.json"
    plan.write_text(plan.read_text().replace('"x"', json.dumps(name)))


def folder_that_leads_out(directory: Path) -> None:
    away = directory.parents[3] / "home" / "01-x"
    (directory / "phases" / "01-x").rename(away)
    (directory / "phases" / "01-x").symlink_to(away)


def rows_that_lead_out(directory: Path) -> None:
    job = json.loads((directory / "phases" / "01-x" / "phase.json").read_text())["jobs"][0]
    away = "../../../../../../home/private"
    change(directory, jobs=[{**job, "rows": away}, {**job, "aggregates": str(directory.parents[3] / away[-12:])}])


def links_to_private_files(directory: Path) -> None:
    for name in ("config.yaml", "events.jsonl", "report.html", "cluster/before/osd_df.json"):
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        path.symlink_to(directory.parents[3] / "home" / "private")
    path = directory / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "head": "/../../../../../../home/x"}))


def moved_out(directory: Path, name: str) -> None:
    """A folder or a file of the archive becomes a link to where it was moved."""
    path, away = directory / name, directory.parents[3] / "home" / Path(name).name
    path.rename(away)
    path.symlink_to(away)


@pytest.mark.parametrize(
    "prepare", [name_that_leads_out, folder_that_leads_out, rows_that_lead_out, links_to_private_files]
)
def test_nothing_outside_is_read_or_written(
    prepare: Callable[[Path], None], archive: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert archive.parents[3] == tmp_path
    prepare(archive)
    before = outside(tmp_path)
    assert main(["report", str(archive)]) in (0, 1, 4)
    said = capsys.readouterr()
    assert outside(tmp_path) == before
    written = "".join(p.read_text() for p in archive.rglob("*.html") if not p.is_symlink())
    assert SECRET not in said.out + said.err + written and "Traceback" not in said.err


@pytest.mark.parametrize("name", ["phases/01-x/rows/g.csv.gz", "phases", "manifest.json", "events.jsonl", ".", ".."])
def test_numbers_come_only_from_the_archive(name: str, archive: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The file or folder was moved out of it, and a link leads there."""
    path = Path(os.path.normpath(archive / name))
    away = archive.parents[3] / "home" / path.name
    path.rename(away)
    path.symlink_to(away)
    before = outside(archive.parents[3])
    for verb in ("report", "export", "history", "sql"):
        more = ["SELECT * FROM ops"] if verb == "sql" else ["-o", str(archive.parents[3] / "x.csv")]
        assert main([verb, str(archive.parents[2]), *(more if verb != "report" else [])]) in (0, 1, 2, 4), verb
        said = capsys.readouterr()
        assert "Traceback" not in said.err
        assert "240" not in said.out  # its requests
    (archive.parents[3] / "x.csv").unlink(missing_ok=True)
    assert outside(archive.parents[3]) == before


def pipe(path: Path) -> None:
    os.mkfifo(path)


def endless(path: Path) -> None:
    with open(path, "wb") as file:
        file.truncate(1 << 42)


def device(path: Path) -> None:
    path.symlink_to("/dev/zero")


@pytest.mark.parametrize("make", [pipe, endless, device])
def test_no_file_holds_a_reader(make: Callable[[Path], None], archive: Path, tmp_path: Path) -> None:
    """A verb that hangs, or reads a file without end, is ended by the timeout of the test."""
    (archive / "monitors" / "01").mkdir(parents=True)
    for name in ("recovery.jsonl", "resources.node1.jsonl", "backlog.node1.jsonl"):
        (archive / "monitors" / "01" / name).touch()
    names = [path.relative_to(archive) for path in sorted(archive.rglob("*")) if path.is_file()]
    for name in [*names, Path("summary.json"), Path("undo.jsonl")]:
        copy = tmp_path / "copy" / "results" / "00000000" / archive.name
        shutil.copytree(archive, copy)
        (copy / name).unlink(missing_ok=True)
        make(copy / name)
        for call in (["report"], ["export", "-o", str(tmp_path / "x.csv")], ["undo", "--dry-run"]):
            assert main([call[0], str(tmp_path / "copy"), *call[1:]]) in (0, 1, 2, 4), name
        shutil.rmtree(tmp_path / "copy")


@pytest.mark.parametrize("form", ["txt", "md", "csv", "json", "html", "prom"])
def test_halves_of_a_pair_are_no_end(form: str, archive: Path, tmp_path: Path) -> None:
    """In JSON of a node, and in the name of a folder that was made where names are latin-1."""
    manifest = json.loads((archive / "manifest.json").read_text())
    manifest["ceph"]["overall"] = {"ceph version 18.2 \ud800": 4}
    (archive / "manifest.json").write_text(json.dumps(manifest))
    (archive / "benchmark_config.yaml").write_text('cluster:\n  benchmark: "\\ud800"\n')
    moved = (tmp_path / "archive").rename(tmp_path / os.fsdecode(b"arch-\xff"))
    out = tmp_path / f"x.{form}"
    assert main(["export" if form == "prom" else "report", str(moved), "-o", str(out)]) in (0, 4)
    assert out.read_text(encoding="utf-8")
    if form == "txt":
        assert main(["report", str(moved)]) in (0, 4)


@pytest.mark.parametrize("module", ["json", "platform", "numpy", "http"])
def test_no_program_of_ours_imports_from_the_current_folder(module: str, tmp_path: Path) -> None:
    """It may be /tmp, where anybody can put a module."""
    (tmp_path / f"{module}.py").write_text("print('imported'); raise SystemExit(9)")
    done = subprocess.run(own_tool("--version"), cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, "imported" in done.stdout) == (0, False), done.stderr
    from cbt_plugins.cluster.stream import NodeProgram
    from cbt_plugins.run.endpoints import PROBE
    from cbt_plugins.run.preflight import FACTS

    (tmp_path / "program").write_text(f"import {module}\nprint('ran')\n" if module != "numpy" else "print('ran')\n")
    program = NodeProgram(tmp_path / "program")
    for line, text in (
        ([sys.executable, *program.words()], program.text),
        ([sys.executable, *PROBE.words()], f'{PROBE.text}{{"urls": [], "keys": []}}\n'),
        (["sh", "-c", FACTS], ""),
    ):
        done = subprocess.run(line, cwd=tmp_path, input=text, capture_output=True, text=True, check=False)
        assert (done.returncode, "imported" in done.stdout) == (0, False), done.stderr
    assert os.listdir(tmp_path)


@pytest.mark.parametrize("form", ["txt", "md", "csv", "html", "prom", "sql", "export"])
def test_nothing_that_a_terminal_obeys_leaves_an_archive(form: str, archive: Path, tmp_path: Path) -> None:
    """Colours, a bell, text from right to left: in the name of a release, of a node, of a phase's bucket."""
    bad = "\x1b[2J\x07\u202e\x7f\u200b"
    manifest = json.loads((archive / "manifest.json").read_text())
    manifest["ceph"]["overall"] = {f"ceph version 18.2{bad} (x)": 4}
    (archive / "manifest.json").write_text(json.dumps({**manifest, "run_id": f"r{bad}", "benchmark": f"warp{bad}"}))
    job = json.loads((archive / "phases" / "01-x" / "phase.json").read_text())["jobs"][0]
    change(archive, jobs=[{**job, "node": f"node{bad}", "driver": f"driver{bad}"}])
    (archive / "config.yaml").write_text(f"a: {bad}\n")
    verb = {"prom": "export", "export": "export", "sql": "sql"}.get(form, "report")
    out = tmp_path / f"x.{'csv' if form in ('sql', 'export') else form}"
    more = ["SELECT * FROM runs"] if form == "sql" else []
    assert main([verb, str(archive), *more, "-o", str(out)]) in (0, 4)
    assert not set(bad) & set(out.read_text(encoding="utf-8")) - set("[2J")
