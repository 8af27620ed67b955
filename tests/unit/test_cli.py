"""`cbt-tools` itself: its verbs, its errors, its version, its start-up and the completion of its words."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cbt_plugins import __version__
from cbt_plugins.tools.__main__ import VERBS, main

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


@pytest.mark.parametrize("words", [[], ["report"], ["compare", "--format", "x", "a", "b"], ["size", "pgs", "--what"]])
def test_wrong_use(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    said = capsys.readouterr().err.splitlines()
    assert said[0].startswith("usage: cbt-tools")
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


def test_the_list_of_verbs_loads_no_library() -> None:
    program = (
        "import sys\nfrom cbt_plugins.tools.__main__ import main\ntry: main(['--help'])\nexcept SystemExit: pass\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stderr == "[]\n"


@pytest.mark.parametrize(
    ("line", "words"),
    [("cbt-tools re", ["report "]), ("cbt-tools report --pl", ["--plots "]), ("cbt-tools hi", ["history "])],
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
