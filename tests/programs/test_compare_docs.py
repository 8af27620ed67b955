"""The examples of docs/COMPARE.md and docs/HISTORY.md give what the pages say; `...` stands for what is left out.

After a change that is meant: UPDATE_DOCS=1 pytest tests/programs/test_compare_docs.py, and read the difference.
"""

from __future__ import annotations

import doctest
import os
import re
import shlex
from pathlib import Path
from typing import Iterator, List, Tuple

import example_archives
import pytest

from cbt_plugins.programs import cache_dir
from cbt_plugins.tools.__main__ import main

DOCS = Path(__file__).parents[2] / "docs"
PAGE = DOCS / "COMPARE.md"
PROMPT = "    $ "
Example = Tuple[str, List[str]]  # command, output


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("archives")
    example_archives.make(place)
    (place / "cache" / "cbt-plugins").mkdir(parents=True)  # the index of a history is none of this user's
    (place / "cache" / "cbt-plugins" / "bin").symlink_to(cache_dir() / "bin")
    return place


def parts(text: str) -> Iterator[Tuple[str, List[Example]]]:
    """Stretches of prose, each with the examples that follow it."""
    prose: List[str] = []
    examples: List[Example] = []
    for line in text.split("\n"):
        if line.startswith(PROMPT):
            examples.append((line[len(PROMPT) :], []))
        elif examples and (line.startswith("    ") or not line):
            examples[-1][1].append(line[4:])
        else:
            if examples:
                yield "\n".join(prose), examples
                prose, examples = [], []
            prose.append(line)
    yield "\n".join(prose), examples


def _each(match: re.Match[str]) -> str:
    return " ".join(f"{match[1]}{number}" for number in range(int(match[2]), int(match[3]) + 1))


def run(command: str, capsys: pytest.CaptureFixture[str]) -> str:
    status = command.endswith("; echo $?")
    line = command[: -len("; echo $?")] if status else command
    numbered = re.sub(r"(\w+){(\d+)\.\.(\d+)}", _each, line)  # as bash does
    words = shlex.split(numbered)
    assert words[0] == "cbt-tools"
    code = main(words[1:])
    said = capsys.readouterr()
    return said.out + said.err + (f"{code}\n" if status else "")


@pytest.mark.parametrize(("name", "fewest"), [("COMPARE.md", 3), ("HISTORY.md", 2)])
def test_the_examples_give_what_the_page_says(
    name: str, fewest: int, archives: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(archives)
    monkeypatch.setenv("XDG_CACHE_HOME", str(archives / "cache"))
    page, made, count = (DOCS / name).read_text(encoding="utf-8"), [], 0
    for prose, examples in parts(page):
        made.append(prose)
        lines = []
        for command, output in examples:
            if command.startswith("cat "):
                Path(command.split()[1]).write_text("\n".join(output).rstrip("\n") + "\n")
                told = "\n".join(output)
            else:
                told, shown = run(command, capsys), "\n".join(output).rstrip("\n")
                told = "\n".join(line.rstrip() for line in told.rstrip("\n").split("\n"))
                if doctest.OutputChecker().check_output(f"{shown}\n", f"{told}\n", doctest.ELLIPSIS):
                    told = shown
                count += 1
            lines += [f"    $ {command}", *(f"    {line}".rstrip() for line in told.rstrip("\n").split("\n"))]
        if lines:
            made[-1] += "\n" + "\n".join(lines) + "\n"
    whole = "\n".join(made)
    if os.environ.get("UPDATE_DOCS"):
        (DOCS / name).write_text(whole, encoding="utf-8")
    assert count >= fewest
    assert whole == page


def test_the_page_names_what_there_is() -> None:
    """Codes of warnings that comparison makes are on the page."""
    source = (PAGE.parents[1] / "cbt_plugins" / "compare").glob("*.py")
    made = re.compile(r'(?:ComparisonWarning|StatisticsWarning)\(\s*"([a-z-]+)"')
    codes = {code for path in source for code in made.findall(path.read_text())}
    assert codes >= {"not-usable", "mixed-side", "missing"}
    page = PAGE.read_text(encoding="utf-8")
    assert not {code for code in codes if f"| {code} |" not in page}
