"""Every reader of archives on archives that a disk, a kill or a stranger has damaged."""

from __future__ import annotations

import errno
import os
import random
import re
import shutil
from pathlib import Path
from typing import Any, Callable, List

import archive_builder
import pytest
import sql_archive

from cbt_plugins.results.record_reader import records_of
from cbt_plugins.results.result_file import Unreadable, reading
from cbt_plugins.results.summary_file import FILE, summarize, write_summary
from cbt_plugins.tools.__main__ import main

LONG = bool(os.environ.get("CBT_PLUGINS_LONG"))
#: how many damages; each by its number, so that one that fails can be tried again
DAMAGES = range(500 if LONG else 25)
HSBENCH = Path(__file__).parent.parent / "data" / "imported" / "hsbench" / "twice.csv"
SCRIPT = "<script>alert(1)</script>"
#: exit statuses that a reader of archives may have, by its manual
GOOD = (0, 1, 2, 3, 4)


@pytest.fixture
def no_error_of_ours_passes_for_damage() -> None:
    """Not here: values of another kind lead to any error."""


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An archive of two runs with everything that the readers know."""
    folder = tmp_path_factory.mktemp("whole")
    sql_archive.sql_run(folder / "archive")
    archive_builder.small(folder / "small")
    (folder / "small" / "results" / "00000000").rename(folder / "archive" / "results" / "00000001")
    return folder / "archive"


def cut(data: bytes, chance: random.Random) -> bytes:
    return data[: chance.randrange(len(data) + 1)]


def flip(data: bytes, chance: random.Random) -> bytes:
    made = bytearray(data)
    for _ in range(chance.choice((1, 8, 64))):
        if made:
            made[chance.randrange(len(made))] = chance.randrange(256)
    return bytes(made)


def other_values(data: bytes, chance: random.Random) -> bytes:
    """One value of JSON or YAML becomes another kind, too large, or a script."""
    places = list(re.finditer(rb"(?<=[:\[,] )(\d+(\.\d+)?|\"[^\"]*\"|null|true|false)|(?<=:)\d+|(?<=: )\w+", data))
    other = [b"null", b"-1", b"1e400", b"[]", b"{}", b'"x"', b"true", b"9" * 400, f'"{SCRIPT}"'.encode(), b"[" * 5000]
    for place in chance.sample(places, min(len(places), chance.choice((1, 3, 20)))):
        data = data[: place.start()] + chance.choice(other) + data[place.end() :]
        break
    return data


def lines_gone(data: bytes, chance: random.Random) -> bytes:
    return b"\n".join(line for line in data.split(b"\n") if chance.random() > 0.3)


CONTENT: List[Callable[[bytes, random.Random], bytes]] = [cut, flip, other_values, other_values, lines_gone]


def damage(archive: Path, number: int) -> str:
    """Damage a file or two; returns what was done."""
    chance = random.Random(number)
    files = sorted(path for path in archive.rglob("*") if path.is_file())
    done = []
    for path in chance.sample(files, chance.choice((1, 1, 2))):
        name = str(path.relative_to(archive))
        how = chance.randrange(8)
        if how < 5:
            path.write_bytes(CONTENT[how](path.read_bytes(), chance))
            done.append(f"{name}: {CONTENT[how].__name__}")
            continue
        path.unlink()
        if how == 6:
            os.mkfifo(path)
        elif how == 7:
            path.symlink_to(chance.choice(["/dev/zero", "/nowhere", ".", "/proc/self/mem"]))
        done.append(f"{name}: {('gone', 'a pipe', 'a link')[how - 5]}")
    return ", ".join(done)


@pytest.mark.parametrize("number", DAMAGES)
def test_no_damage_ends_in_a_traceback(whole: Path, tmp_path: Path, number: int) -> None:
    """No traceback, no hang, no other exit status than those of the manual, no script in a page."""
    archive = tmp_path / "archive"
    shutil.copytree(whole, archive)
    done = damage(archive, number)
    sql = ["SELECT * FROM ops", "SELECT op, sum(count) FROM histograms GROUP BY ALL", "SELECT * FROM events"]
    calls = [
        ["report", str(archive)],
        ["compare", str(whole), str(archive)],
        ["gate", str(whole), str(archive), *LIMIT],
        ["history", str(archive), str(whole)],
        ["export", str(archive), "-o", str(tmp_path / random.Random(number).choice(["x.csv", "x.prom"]))],
        ["sql", str(archive), random.Random(number).choice(sql)],
    ]
    if not LONG:
        calls = [calls[0], calls[1 + number % 5]]
    for call in calls:
        assert main(call) in GOOD, (done, call)
    for page in archive.rglob("*.html"):
        assert SCRIPT not in page.read_text(), (done, page)


@pytest.mark.parametrize(("error", "said"), [(TypeError("x"), "please report it"), (ValueError("x"), ": damaged: ")])
def test_an_error_of_ours_is_not_called_damage(error: Exception, said: str, tmp_path: Path) -> None:
    with pytest.raises(Unreadable, match=said), reading(tmp_path):
        raise error


def test_one_damaged_run_does_not_hide_the_others(
    whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    archive = tmp_path / "archive"
    shutil.copytree(whole, archive)
    first, *others = sorted(archive.glob("results/*/id-*"))
    assert others
    (first / "manifest.json").write_text('{"version": 1}')  # of another format
    (first / "summary.json").unlink(missing_ok=True)
    assert main(["report", str(archive)]) == 4
    told = capsys.readouterr()
    assert all(f"{run.parent.name}/{run.name}" in told.out for run in others) and str(first) in told.err
    assert main(["history", str(archive)]) == 4
    assert str(first) in capsys.readouterr().err
    assert main(["sql", str(archive), "SELECT run FROM ops GROUP BY ALL"]) == 4
    told = capsys.readouterr()
    assert str(first) in told.err and others[0].name in told.out


@pytest.fixture(scope="module")
def nights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Archives of one run: two, one of a folder of archives, and one that the tests make unreadable."""
    place = tmp_path_factory.mktemp("nights")
    for name in ("one", "two", "folder/below", "locked"):
        run = archive_builder.renamed(archive_builder.small(place / name), f"run of {name}")
        write_summary(summarize(run), run / FILE)
    return place


LIMIT = ["--limit", "p99_ms=5%"]
#: verbs that read several archives
SEVERAL = [
    ["history"],
    ["history", "-o", "site/"],
    ["export"],
    ["export", "--format", "parquet", "-o", "lake"],
    ["export", "--format", "cbt", "-o", "cbt"],
    ["compare", "--new", "two", "--base"],
    ["gate", *LIMIT, "--new", "two", "--base"],
]


#: what is asked of a path of an archive that this user has no permission to read: root may read all
FORBIDDEN = {"locked": (Path, "is_dir", "phases"), "locked/results": (os, "scandir", "")}


@pytest.mark.parametrize("unreadable", ["folder", *FORBIDDEN])
@pytest.mark.parametrize("verb", SEVERAL, ids=" ".join)
def test_one_unreadable_archive_does_not_hide_the_others(
    nights: Path,
    tmp_path: Path,
    verb: List[str],
    unreadable: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if "site/" in verb:  # the folder has cbt-rows, too, which other verbs need
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    for archive in nights.iterdir():
        (tmp_path / archive.name).symlink_to(archive)
    if unreadable in FORBIDDEN:
        owner, name, below = FORBIDDEN[unreadable]
        _forbid(owner, name, nights / unreadable / below, monkeypatch)
    words = [*verb, "one", unreadable.split("/")[0], *([] if "--base" in verb else ["two"])]
    assert main(words) == 4
    said = capsys.readouterr()
    (line,) = [line for line in said.err.splitlines() if unreadable in line]
    assert said.out and line.startswith(("Error: ", "Warning: "))
    assert main([*words, "none"]) == 2
    assert capsys.readouterr().err.endswith("Error: none: no such file or directory\n")


def _forbid(owner: Any, name: str, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = getattr(owner, name)

    def call(of: Any, *rest: Any) -> Any:
        if not isinstance(of, int) and os.path.realpath(of) == str(path):
            raise PermissionError(errno.EACCES, "Permission denied", str(of))
        return real(of, *rest)

    monkeypatch.setattr(owner, name, call)


def test_a_device_is_no_part_of_an_archive(whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    archive = tmp_path / "archive"
    shutil.copytree(whole, archive)
    for path in archive.rglob("manifest.json"):
        path.unlink()
        path.symlink_to("/dev/zero")
    assert main(["report", str(archive)]) in GOOD
    assert "manifest.json cannot be read" in capsys.readouterr().out


def test_a_folder_that_is_no_archive_is_not_searched_for_minutes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("cbt_plugins.results.record_reader.MOST_FILES", 10)
    for number in range(12):
        (tmp_path / f"{number}.txt").touch()
    assert main(["report", str(tmp_path)]) == 4
    assert "no run in it" in capsys.readouterr().err


READERS = [["report"], ["history"], ["export"], ["sql"], ["compare"], ["gate", *LIMIT]]


@pytest.mark.parametrize("verb", READERS)
def test_a_path_that_does_not_exist_is_wrong_use(
    verb: List[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    more = {"sql": ["SELECT 1"], "compare": [str(tmp_path)], "gate": [str(tmp_path)]}.get(verb[0], [])
    assert main([*verb, str(tmp_path / "none"), *more]) == 2
    assert "none: no such file or directory" in capsys.readouterr().err


@pytest.mark.parametrize("verb", [*READERS, ["verify"], ["watch"]])
def test_rows_of_archives_below_a_folder_are_no_result_of_another_program(
    verb: List[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The rows alone have no warnings, and the runs of several archives are not clients of one run."""
    run = archive_builder.small(tmp_path / "nights" / "night1")
    nights = str(tmp_path / "nights")
    shutil.copytree(tmp_path / "nights" / "night1", tmp_path / "nights" / "2026" / "night2")
    (run / "complete").unlink()
    more = {"sql": ["SELECT * FROM ops"], "compare": [nights], "gate": [nights]}.get(verb[0], [])
    assert main([*verb, nights, *more]) == 4
    said = capsys.readouterr()
    below = f"{nights}/night1, {nights}/2026/night2"
    assert said.err.startswith(f"Error: {nights}: no run in it; archives below it: {below}")
    assert not said.out


def test_a_part_of_a_run_is_known_by_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = archive_builder.small(tmp_path / "archive")
    (tmp_path / "beside").mkdir()
    shutil.copy(HSBENCH, tmp_path / "beside")
    monkeypatch.chdir(run)
    for path in ("../../../../beside", f"../../../../beside/{HSBENCH.name}"):
        assert main(["report", path]) == 0
        assert "hsbench" in capsys.readouterr().out
    (tmp_path / "link").symlink_to(next(run.glob("phases/*/rows")))
    assert main(["report", str(tmp_path / "link")]) == 4
    assert f"is a part of a run: name the run, {run}" in capsys.readouterr().err


def test_results_of_another_program_are_read_beside_archives_below_their_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of an archive below the folder nothing counts, and the clients in other folders below it do."""
    archive_builder.small(tmp_path / "results of hsbench" / "old" / "archive")
    for client in ("client1", "."):
        (tmp_path / "results of hsbench" / client).mkdir(exist_ok=True)
        shutil.copy(HSBENCH, tmp_path / "results of hsbench" / client)
    for place, path in ((tmp_path, "results of hsbench"), (tmp_path / "results of hsbench", ".")):
        monkeypatch.chdir(place)
        (first, _) = records_of(Path(path))
        assert (first.kind, first.config["load.processes"]) == ("hsbench", 2)
        (note,) = [warning.text for warning in first.warnings if warning.code == "archives-below"]
        assert note == f"not in the result: {Path(path) / 'old' / 'archive'}"
        for verb in (["report", path], ["sql", path, "SELECT kind FROM runs"]):
            assert main(verb) == 0
            assert "hsbench" in capsys.readouterr().out


@pytest.mark.parametrize("part", ["phases", "phases/*", "phases/*/rows", "phases/*/rows/*.csv.gz", "cluster"])
@pytest.mark.parametrize("verb", READERS)
def test_a_part_of_a_run_has_no_numbers_of_its_own(
    verb: List[str], part: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = archive_builder.small(tmp_path)
    path = str(next(run.glob(part)))
    more = {"sql": ["SELECT 1 FROM ops"], "compare": [str(run)], "gate": [str(run)]}.get(verb[0], [])
    assert main([*verb, path, *more]) == 4
    said = capsys.readouterr().err
    assert f"{path}: is a part of a run: name the run, {run}" in said or f"{path}: no directory" in said
