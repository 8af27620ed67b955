"""`cbt-tools` itself: its verbs, its errors, its version, its start-up and the completion of its words."""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Iterator, List

import pytest

from cbt_plugins import __version__
from cbt_plugins.exit_status import STATUSES
from cbt_plugins.tools.__main__ import VERBS, main, parser_of

HEAVY = ("numpy", "scipy", "jinja2", "pydantic", "yaml", "duckdb", "matplotlib", "argcomplete")


def test_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"cbt-tools {__version__}\n"


def test_a_wrong_verb(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reprot", "a"]) == 2
    assert capsys.readouterr().err == "Error: unknown verb reprot: did you mean report?\n"
    assert main(["qqq"]) == 2
    assert capsys.readouterr().err.startswith("Error: unknown verb qqq: the verbs are build, lab")


def test_a_user_without_a_home(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container without HOME, whose user is a number only."""

    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", no_home)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv("CBT_HOME", raising=False)
    assert main(["lab", "status"]) == 2
    text = f"Error: the user {os.getuid()} has no home folder: set HOME or XDG_CACHE_HOME\n"
    assert capsys.readouterr().err == text
    assert main(["plan", str(Path(__file__).parents[2] / "benchmark_configs" / "quickstart.yaml")]) == 0


def test_without_a_verb_the_help_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    told = capsys.readouterr()
    assert told.out == "" and all(f"    {verb} " in told.err for verb in VERBS)
    assert told.err.endswith("Error: missing VERB\n")


WRONG = [["report", "a", "b"], ["report"], ["compare", "--format", "x", "a", "b"], ["size", "pgs", "--what"]]


@pytest.mark.parametrize("words", WRONG)
def test_wrong_use(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    said = capsys.readouterr().err.splitlines()
    assert said[0].startswith(f"usage: cbt-tools {words[0]}")
    assert said[-1].startswith("Error: ")


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_says_what_it_does(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([verb, "--help"])
    assert ended.value.code == 0
    told = capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["--help"])
    listed = " ".join(capsys.readouterr().out.split())
    line = " ".join(told.split("\n\n")[1].split())
    assert line[0].isupper() and line.endswith(".")
    assert f" {verb} {line.rstrip('.')}" in listed


def parsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """A parser and those of its verbs."""
    yield parser
    for action in parser._actions:
        if isinstance(action.choices, dict):
            for its in action.choices.values():
                yield from parsers(its)


@pytest.mark.parametrize("verb", ["", *VERBS])
def test_every_help_has_examples_that_are_good_and_its_exit_statuses(verb: str) -> None:
    found = list(parsers(parser_of(verb)))[1 if verb else 0 :]
    for parser in found if verb else found[:1]:
        assert parser.epilog, parser.prog
        examples, statuses = parser.epilog.split("\n\nexit status:\n")
        lines = examples.splitlines()[1:]
        assert lines and all(line.startswith("  cbt-tools ") for line in lines), parser.prog
        for line in lines:
            words = shlex.split(line)[1:]
            assert line.split("cbt-tools ")[1].startswith(parser.prog.partition(" ")[2]), line
            if "--help" not in words:
                args = parser_of(words[0]).parse_args(words)
                assert callable(args.run)
        listed = [int(line[2:8]) for line in statuses.splitlines() if line[2:3].isdigit()]
        assert {0, 2} <= set(listed) <= set(STATUSES) and listed == sorted(listed)


@pytest.mark.parametrize("verb", VERBS)
def test_only_verbs_that_compare_list_runs_that_cannot_be_compared(verb: str) -> None:
    epilogs = [" ".join((parser.epilog or "").split()) for parser in parsers(parser_of(verb))]
    is_listed = any("runs that cannot be compared" in epilog for epilog in epilogs)
    assert is_listed == (verb in ("compare", "gate", "campaign"))


PATHS: List[List[str]] = [
    ["plan", "NONE"],
    ["inject", "NONE", "--cluster", "HERE", "--archive", "x"],
    ["inject", "FAULTS", "--cluster", "NONE", "--archive", "x"],
    ["import", "cosbench", "NONE"],
    ["undo", "NONE"],
    ["snapshot", "check", "NONE", "x"],
    ["report", "NONE"],
    ["sql", "NONE", "SELECT 1"],
    ["export", "NONE"],
    ["export", "NONE", "--format", "cbt", "-o", "x"],
    ["compare", "NONE", "NONE"],
    ["gate", "NONE", "NONE", "--limit", "p99_ms=5%"],
    ["gate", "a", "b", "--limits", "NONE"],
    ["history", "NONE"],
    ["size", "capacity", "--df", "NONE"],
    ["size", "workers", "--workers", "8", "--latency", "1ms", "-o", "NONE/x"],
    ["lab", "up", "--dir", "x", "--root", "NONE"],
]


@pytest.mark.parametrize("words", PATHS, ids=" ".join)
def test_a_path_that_does_not_exist_is_status_2_and_is_named(
    words: List[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    configs = Path(__file__).parents[2] / "benchmark_configs"
    for name in ("HERE", "FAULTS"):
        (tmp_path / name).symlink_to(configs / "faults-one-node.yaml")
    assert main(words) == 2
    told = capsys.readouterr()
    assert "NONE" in told.err and told.err.count("\n") <= 2 and "Errno" not in told.err, told.err
    assert told.out == ""


def test_a_mistyped_option_is_answered_with_the_right_one(capsys: pytest.CaptureFixture[str]) -> None:
    for words, hint in ((["gate", "--limt", "x"], "--limit"), (["size", "pgs", "--osds", "3", "--dta=3"], "--data")):
        with pytest.raises(SystemExit) as ended:
            main(words)
        assert ended.value.code == 2
        assert capsys.readouterr().err.endswith(f": did you mean {hint}?\n")


def test_help_of_a_verb_by_its_name(capsys: pytest.CaptureFixture[str]) -> None:
    told = []
    for words in (["help", "gate"], ["gate", "--help"]):
        with pytest.raises(SystemExit) as ended:
            main(words)
        assert ended.value.code == 0
        told.append(capsys.readouterr().out)
    assert told[0] == told[1]


def test_the_list_of_verbs_loads_no_library() -> None:
    program = (
        "import sys\nfrom cbt_plugins.tools.__main__ import main\ntry: main(['--help'])\nexcept SystemExit: pass\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stderr == "[]\n"


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("cbt-tools re", ["report "]),
        ("cbt-tools report --pl", ["--plots "]),
        ("cbt-tools hi", ["history "]),
        ("cbt-tools gate --format m", ["md "]),
    ],
)
def test_completion(line: str, words: list[str], tmp_path: Path) -> None:
    pytest.importorskip("argcomplete")
    found = tmp_path / "found"
    asked = {
        **{"_ARGCOMPLETE": "1", "_ARGCOMPLETE_IFS": "\n", "_ARGCOMPLETE_STDOUT_FILENAME": str(found)},
        **{"COMP_LINE": line, "COMP_POINT": str(len(line))},
    }
    command = [sys.executable, "-m", "cbt_plugins.tools"]
    subprocess.run(command, env={**os.environ, **asked}, check=True, capture_output=True)
    assert found.read_text().split("\n") == words
