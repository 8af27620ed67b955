"""SHA256SUMS of a finished run: any damage of an archive is named, or changes no number."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Callable, Dict, List, Tuple

import pytest
import sql_archive

from cbt_plugins import checksums
from cbt_plugins.results.recovery.cluster_samples import files_of
from cbt_plugins.results.result_file import Unreadable
from cbt_plugins.results.summary_file import FILE, summarize, summary_of, write_summary
from cbt_plugins.tools.__main__ import main

LONG = bool(os.environ.get("CBT_PLUGINS_LONG"))
DAMAGES = 500 if LONG else 25


@pytest.fixture
def no_error_of_ours_passes_for_damage() -> None:
    """Not here: values of another kind lead to any error."""


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An archive with everything that readers know, sealed."""
    archive = tmp_path_factory.mktemp("whole") / "archive"
    sql_archive.sql_run(archive)
    return seal(next(archive.glob("results/*/id-*")))


@pytest.fixture(scope="module")
def base(whole: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Another run: a gate of a run and of a copy of it checks nothing."""
    run = copy_of(whole, tmp_path_factory.mktemp("base"))
    run_id = summary_of(whole)["run"]["run_id"]
    for name in ("manifest.json", "complete"):
        (run / name).write_text((run / name).read_text().replace(run_id, "another1"))
    (run / checksums.FILE).unlink()
    return seal(run)


@pytest.fixture(scope="module")
def expected(whole: Path) -> str:
    return numbers(summary_of(whole))


def seal(run: Path) -> Path:
    facts = json.loads((run / "complete").read_text())
    (run / "complete").unlink()
    checksums.end_run(run, facts)
    write_summary(summarize(run), run / FILE)
    return run


def cut(data: bytes, chance: random.Random) -> bytes:
    return data[: chance.randrange(len(data) + 1)]


def flip(data: bytes, chance: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(chance.choice((1, 8))):
        if changed:
            changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
    return bytes(changed)


def double(data: bytes, chance: random.Random) -> bytes:
    lines = data.splitlines(keepends=True)
    return b"".join(line * chance.choice((1, 1, 2)) for line in lines)


def swap(data: bytes, chance: random.Random) -> bytes:
    lines = data.splitlines(keepends=True)
    chance.shuffle(lines)
    return b"".join(lines)


def lose(data: bytes, chance: random.Random) -> bytes:
    return b"".join(line for line in data.splitlines(keepends=True) if chance.random() > 0.2)


def other_type(data: bytes, chance: random.Random) -> bytes:
    others = data.replace(b"1", b'"1"'), data.replace(b"0", b"9")
    return chance.choice((b"[]", b"null", b'"x"', b"7", b"{}\n" * 3, *others))


CONTENT: List[Callable[[bytes, random.Random], bytes]] = [cut, flip, double, swap, lose, other_type]


def damage(run: Path, chance: random.Random) -> Tuple[str, str]:
    """Damage one file; return its path in the run, and how."""
    files = sorted(str(path.relative_to(run)) for path in run.rglob("*") if path.is_file())
    name, how = chance.choice(files), chance.randrange(9)
    path = run / name
    if how < len(CONTENT):
        path.write_bytes(CONTENT[how](path.read_bytes(), chance))
        return name, CONTENT[how].__name__
    if how == 6:
        path.unlink()
        return name, "lost"
    other = run / chance.choice(files)
    if how == 7:
        copy = path.read_bytes()
        path.write_bytes(other.read_bytes())
        other.write_bytes(copy)
        return name, f"swapped with {other.relative_to(run)}"
    shutil.copy(path, path.with_name(f"x{path.name}"))
    return name, "copied"


def numbers(summary: Dict[str, Any]) -> str:
    return json.dumps({key: value for key, value in summary.items() if key not in ("warnings", "usable")})


@pytest.mark.parametrize("number", range(DAMAGES))
def test_damage_is_named_or_changes_no_number(number: int, whole: Path, expected: str, tmp_path: Path) -> None:
    run = tmp_path / "results" / "00000000" / whole.name
    shutil.copytree(whole, run)
    chance = random.Random(number)
    name, how = damage(run, chance)
    for read in (summary_of, summarize):  # as compare, gate, history and export read it, and as report does
        try:
            summary = read(run)
        except Unreadable:
            continue
        told = " ".join(warning["text"] for warning in summary["warnings"] if warning["code"] != "aggregates")
        named = name in told or "SHA256SUMS" in told or not summary["usable"]
        assert named or numbers(summary) == expected, (number, name, how)


def copy_of(whole: Path, folder: Path) -> Path:
    run = folder / "results" / "00000000" / whole.name
    shutil.copytree(whole, run)
    return run


def test_sums_are_those_of_sha256sum(whole: Path, tmp_path: Path) -> None:
    run = copy_of(whole, tmp_path)
    check = ["sha256sum", "--check", "--strict", "--quiet", checksums.FILE]
    assert subprocess.run(check, cwd=run, check=False).returncode == 0
    name = run / "a\nname\\of two lines"
    name.write_text("x")
    checksums.add_sums(run, [name])
    assert subprocess.run(check, cwd=run, check=False).returncode == 0
    assert checksums.check_sums(run).changed == {}


def test_verify_says_what_was_changed(whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = copy_of(whole, tmp_path)
    assert main(["verify", str(tmp_path)]) == 0
    assert f"SHA-256 of SHA256SUMS is {checksums.sum_of_sums(whole)}" in capsys.readouterr().out
    rows = next(run.glob("phases/01-*/rows/*"))
    rows.write_bytes(rows.read_bytes() + b"x")
    (run / "events.jsonl").unlink()
    shutil.copy(run / "plan.json", run / "phases" / "01-new" / "x.json")
    assert main(["verify", str(tmp_path)]) == 1
    said = capsys.readouterr().out
    assert f"changed since the run ended: {rows.relative_to(run)}" in said and "is missing: events.jsonl" in said
    assert "came after the run ended: phases/01-new/x.json" in said
    (run / checksums.FILE).unlink()
    assert main(["verify", str(tmp_path)]) == 1 and "is missing: SHA256SUMS" in capsys.readouterr().out
    (run / "complete").write_text('{"run_id": "x"}')
    assert main(["verify", str(tmp_path)]) == 4
    assert "not verified: written by a version that made no SHA256SUMS" in capsys.readouterr().out
    assert summarize(run)["usable"] is not None  # and is read all the same


@pytest.mark.parametrize("verb", ["report", "compare", "gate", "history", "export"])
def test_readers_name_a_changed_file(
    verb: str, whole: Path, base: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = copy_of(whole, tmp_path)
    events = run / "events.jsonl"
    events.write_text(events.read_text() + events.read_text().splitlines()[-1] + "\n")
    first = [str(base)] if verb in ("compare", "gate") else []
    limit = ["--limit", "p99_ms=5%"] if verb == "gate" else []
    assert main([verb, *first, str(run), *limit]) == 4
    output = " ".join("".join(capsys.readouterr()).split())  # a line is broken where the path of the run is long
    assert "changed since the run ended: events.jsonl" in output


def test_what_is_no_readable_file_keeps_no_run_from_its_end(
    whole: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = copy_of(whole, tmp_path)
    for name in ("complete", "SHA256SUMS"):
        (run / name).unlink()
    folder = run / "monitors" / "01" / "perf.node1"
    folder.mkdir(parents=True)
    (folder / "gone").symlink_to(tmp_path / "nowhere")
    os.mkfifo(folder / "pipe")
    (run / "latest").symlink_to("nowhere")
    checksums.end_run(run, {"t": 1.0})
    assert caplog.text.count("has no sum in SHA256SUMS") == 3
    odd = dict(checksums.check_sums(run).changed)
    assert odd.pop("latest") == checksums.ADDED
    assert set(odd) == {"monitors/01/perf.node1/gone", "monitors/01/perf.node1/pipe"}
    assert all("cannot be read" in why for why in odd.values())
    checksums.add_sums(run, [run / "monitors"])
    assert set(checksums.check_sums(run).changed) == {*odd, "latest"}


def test_a_disk_that_fails_under_a_late_file_is_named_by_readers(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = copy_of(whole, tmp_path)
    late = "monitors/01/late.jsonl"
    (run / late).parent.mkdir(parents=True, exist_ok=True)
    (run / late).write_text("{}\n")
    real = checksums.open_regular

    def failing(path: Path, *most: Any, **how: Any) -> Any:
        if path == run / late:
            raise OSError(errno.EIO, "Input/output error")
        return real(path, *most, **how)

    monkeypatch.setattr(checksums, "open_regular", failing)
    assert checksums.check_sums(run).changed == {late: "cannot be read: Input/output error"}


def test_a_name_that_is_no_utf8_has_a_sum_as_sha256sum_reads_it(whole: Path, tmp_path: Path) -> None:
    run = copy_of(whole, tmp_path)
    for name in ("complete", "SHA256SUMS"):
        (run / name).unlink()
    name = os.fsdecode(b"monitors/01/node\xff.jsonl")
    (run / name).parent.mkdir(parents=True, exist_ok=True)
    (run / name).write_text("{}\n")
    checksums.end_run(run, {"t": 1.0})
    assert checksums.check_sums(run).changed == {}
    subprocess.run(["sha256sum", "--check", "--strict", "--quiet", "SHA256SUMS"], cwd=run, check=True)
    (run / name).write_text("{} \n")
    assert list(checksums.check_sums(run).changed) == [name]
    assert main(["verify", str(run)]) == 1


def test_a_disk_that_fails_at_the_end_is_an_error(whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = copy_of(whole, tmp_path)
    (run / "complete").unlink()

    def failing(*_: Any, **__: Any) -> Any:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(checksums, "open_regular", failing)
    with pytest.raises(OSError, match="Input/output error"):
        checksums.end_run(run, {"t": 1.0})


@pytest.mark.parametrize("forged", ["complete", "complete and its sum"])
@pytest.mark.parametrize("data", [0, 1 << 19], ids=["no data", "data in the middle"])
def test_a_file_of_holes_is_named_and_not_read(
    forged: str, data: int, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What `complete` says of the size of files costs a forger nothing, nor does a file without data."""
    run = copy_of(whole, tmp_path)
    late = run / "monitors" / "01" / "late.jsonl"
    late.parent.mkdir(parents=True, exist_ok=True)
    late.write_text("{}\n")
    checksums.add_sums(run, [late])
    marker = json.loads((run / "complete").read_text())
    marker["sealed"]["bytes"] = 1 << 60
    (run / "complete").write_text(json.dumps(marker))
    if forged != "complete":
        forge_sum(run, "complete")
    os.truncate(late, 1 << 32)
    if data:
        with open(late, "r+b") as file:
            file.seek(data)
            file.write(b"x")
    real = checksums.open_regular

    def limited(path: Path, most: Any = None, **how: Any) -> Any:
        assert path != late or most == (1 << 30 if forged == "complete" else 1 << 60)
        return real(path, most, **how)

    monkeypatch.setattr(checksums, "open_regular", limited)
    changed = dict(checksums.check_sums(run).changed)
    assert changed.pop("monitors/01/late.jsonl").startswith("cannot be read: has more than ")
    assert list(changed) == (["complete"] if forged == "complete" else [])
    assert checksums.row_change(late) and "has more than" in str(checksums.row_change(late))


def test_a_small_hole_is_read_as_zeros(whole: Path, tmp_path: Path) -> None:
    run = copy_of(whole, tmp_path)
    late = run / "monitors" / "01" / "late.raw"
    late.parent.mkdir(parents=True, exist_ok=True)
    late.write_bytes(b"x" * 10)
    os.truncate(late, (1 << 26) + 10)
    checksums.add_sums(run, [late])
    assert checksums.check_sums(run).changed == {}


def forge_sum(run: Path, name: str) -> None:
    """Give a file of a run the sum that fits it."""
    lines = (run / checksums.FILE).read_text().splitlines()
    digest = hashlib.sha256((run / name).read_bytes()).hexdigest()
    lines = [f"{digest}  {name}" if line.endswith(f"  {name}") else line for line in lines]
    (run / checksums.FILE).write_text("".join(f"{line}\n" for line in lines))


def test_late_files_get_sums_and_no_others_do(whole: Path, tmp_path: Path) -> None:
    run = copy_of(whole, tmp_path)
    (run / "plan.json").write_text("{}")
    late = run / "monitors" / "01" / "resources.node9"
    late.mkdir(parents=True)
    (late / "node9.jsonl").write_text("{}\n")
    (late.parent / "left.json").write_text("{}")
    foreign = "monitors/01/resources.node99/node99.jsonl"
    (run / foreign).parent.mkdir()
    (run / foreign).write_text("{}\n")
    (late.parent / ".fetch-x1" / "node9").mkdir(parents=True)  # of a fetch that was killed
    for name in ("node9.jsonl", "recovery.jsonl"):
        (late.parent / ".fetch-x1" / "node9" / name).write_text("{}\n")
    assert not any(".fetch-" in str(path) for path in files_of(run))  # neither are they read
    assert set(checksums.check_sums(run).changed) == {"plan.json", "monitors/01/resources.node9/node9.jsonl", foreign}
    checksums.add_sums(run, [late])
    assert set(checksums.check_sums(run).changed) == {"plan.json", foreign}
    assert ".fetch-" not in (run / checksums.FILE).read_text()
    write_summary(summarize(run), run / FILE)
    assert "plan.json" in str(summary_of(run)["warnings"])


def test_a_stored_summary_belongs_to_its_run(whole: Path, tmp_path: Path) -> None:
    """Neither one that was edited nor that of another run is taken."""
    run = copy_of(whole, tmp_path)
    before = summary_of(run)
    text = (run / FILE).read_text()
    (run / FILE).write_text(text.replace('"requests": 3', '"requests": 4'))
    assert summary_of(run) == summarize(run)
    (run / FILE).write_text(text)
    assert summary_of(run) == before
    (run / checksums.FILE).write_text((run / checksums.FILE).read_text() + "# another\n")
    assert summary_of(run) == summarize(run)


def test_a_run_without_its_end_marker_has_lost_it_until_it_is_resumed(
    whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = copy_of(whole, tmp_path)
    (run / "complete").unlink()
    assert checksums.check_sums(run).changed == {"complete": "is missing"}
    assert main(["verify", str(run)]) == 1 and "is missing: complete" in capsys.readouterr().out
    sums = (run / checksums.FILE).read_bytes()
    (run / checksums.FILE).write_bytes(b"")
    assert list(checksums.check_sums(run).changed) == [checksums.FILE, "complete"]
    (run / checksums.FILE).write_bytes(sums)
    checksums.reopen(run)
    (run / "events.jsonl").write_text("")
    assert checksums.check_sums(run) == checksums.FileSums(note="the run has not ended")


def test_a_run_with_its_end_marker_keeps_its_sums(whole: Path, tmp_path: Path) -> None:
    run = copy_of(whole, tmp_path)
    checksums.reopen(run)
    assert checksums.check_sums(run).changed == {} and checksums.check_sums(run).sealed


def add_collectl(run: Path) -> Path:
    """Add collectl's plot files of two nodes to an archive, and seal it."""
    for name in ("node1", "node2"):
        folder = run / "monitors" / "01" / f"collectl.{name}"
        folder.mkdir(parents=True)
        for kind in ("cpu", "dsk"):
            (folder / f"{name}-20261124.{kind}").write_text("# a header\n")
    (run / "SHA256SUMS").unlink()
    return seal(run)


def cut_sums(run: Path, how: str) -> None:
    path = run / checksums.FILE
    lines = path.read_text().splitlines(keepends=True)
    kept = {
        "emptied": [],
        "cut to a half": lines[: len(lines) // 2],
        "torn": [*lines[:-1], lines[-1].rstrip("\n")],
        "damaged": [lines[0].replace(" ", "x"), *lines[1:]],
        "two lines lost": [line for line in lines if "manifest.json" not in line and "events.jsonl" not in line],
        "end marker lost": [line for line in lines if not line.endswith("  complete\n")],
    }[how]
    path.write_text("".join(kept))


CUTS = ["emptied", "cut to a half", "torn", "damaged", "two lines lost", "end marker lost"]


@pytest.mark.parametrize("how", CUTS)
def test_sums_that_are_cut_are_named_and_cost_no_report(
    how: str, whole: Path, expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = add_collectl(copy_of(whole, tmp_path))
    before = numbers(summary_of(run))
    cut_sums(run, how)
    assert main(["verify", str(run)]) == 1
    output = capsys.readouterr().out
    assert "is cut: " in output and checksums.ADDED not in output
    if how == "two lines lost":
        assert "without a sum: events.jsonl, manifest.json: SHA256SUMS" in output
    summary = summary_of(run)
    assert numbers(summary) == before and not summary["usable"]
    assert "is cut: " in str(summary["warnings"])
    assert main(["report", str(run)]) == 4
    assert "is cut: " in " ".join("".join(capsys.readouterr()).split())
    for name in sorted(path.name for path in run.glob("phases/01-*/rows/*")):
        assert checksums.row_change(next(run.glob(f"phases/01-*/rows/{name}"))) is None
    text = (run / checksums.FILE).read_text()
    checksums.add_sums(run, [run / "monitors"])
    assert (run / checksums.FILE).read_text() == text  # which would hide that it is cut


@pytest.mark.parametrize("verb", ["report", "compare", "gate", "history", "export"])
def test_readers_name_sums_that_are_cut(
    verb: str, whole: Path, base: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = copy_of(whole, tmp_path)
    cut_sums(run, "cut to a half")
    first = [str(base)] if verb in ("compare", "gate") else []
    limit = ["--limit", "p99_ms=5%"] if verb == "gate" else []
    assert main([verb, *first, str(run), *limit]) == 4
    output = " ".join("".join(capsys.readouterr()).split())
    assert "is cut: " in output and "SHA256SUMS" in output


def test_every_file_that_is_refused_costs_only_what_comes_from_it(whole: Path, tmp_path: Path) -> None:
    run = add_collectl(copy_of(whole, tmp_path))
    names = sorted(str(path.relative_to(run)) for path in run.rglob("*") if path.is_file())
    for name in (name for name in names if name not in ("SHA256SUMS", "summary.json", "report.html")):
        path = run / name
        content = path.read_bytes()
        path.write_bytes(content + b"\n")
        summary = summarize(run)
        rows = "/rows/" in name and "its requests are not in the numbers"
        assert (rows or name) in " ".join(warning["text"] for warning in summary["warnings"]), name
        path.write_bytes(content)


@pytest.mark.parametrize("name", ["new.txt", "phases.json", "generator.json", "folder/file"])
def test_a_file_that_is_added_anywhere_is_named_and_not_read(
    name: str, whole: Path, expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = copy_of(whole, tmp_path)
    (run / name).parent.mkdir(exist_ok=True)
    (run / name).write_text('{"phases": 1}')
    (run / "link").symlink_to(run / "phases")
    assert main(["verify", str(run)]) == 1
    output = capsys.readouterr().out
    assert f"{checksums.ADDED}: {name}" in output and f"{checksums.ADDED}: link" in output
    summary = summary_of(run)
    assert numbers(summary) == expected
    assert summary["usable"] == summary_of(whole)["usable"]  # nothing is read from there
    assert name in " ".join(w["text"] for w in summary["warnings"] if w["code"] == "changed-beside")


@pytest.mark.parametrize("name", ["phases", "manifest.json"])
@pytest.mark.parametrize("mode", [0o000, 0o111])
def test_what_this_user_may_not_read_is_not_called_missing(whole: Path, tmp_path: Path, name: str, mode: int) -> None:
    run = copy_of(whole, tmp_path)
    (run / name).chmod(mode)
    line = [sys.executable, "-m", "cbt_plugins.tools", "verify", str(run)]
    if os.geteuid() == 0:  # which may read everything
        line = ["setpriv", "--bounding-set", "-dac_override,-dac_read_search", *line]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    (run / name).chmod(0o755)
    lines = done.stdout.splitlines()
    assert done.returncode == 1 and lines, done.stderr
    assert {line.removeprefix(f"{run}: ").partition(name)[0] for line in lines} == {
        "cannot be read: Permission denied: "
    }


def test_what_the_tools_write_into_a_run_is_no_addition(whole: Path, tmp_path: Path) -> None:
    run = copy_of(whole, tmp_path)
    for verb in ("report", "export", "verify"):
        assert main([verb, str(run)]) == 0, verb


def test_a_run_of_cbt_is_no_run_that_has_not_ended(capsys: pytest.CaptureFixture[str]) -> None:
    archive = Path(__file__).parents[1] / "data" / "imported" / "cbt"
    assert main(["verify", str(archive)]) == 4
    lines = capsys.readouterr().out.splitlines()
    text = "not verified: no run of cbt-plugins: only such a run has a SHA256SUMS"
    assert len(lines) == 8 and all(line.endswith(text) for line in lines)
