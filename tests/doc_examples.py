"""Examples in a page of docs/: `    $ command`, and below it what it prints, in which `...` stands for anything."""

from __future__ import annotations

import doctest
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Callable, Dict, Iterator, List, Tuple

ROOT = Path(__file__).resolve().parents[1]
PROMPT = "    $ "
#: section of docs/TOUR.md that makes what its steps use
FILES = "The files of the steps below"


def sections(page: str) -> Dict[str, List[Tuple[str, str]]]:
    """Return title -> its examples: (command, output)."""
    parts = (ROOT / "docs" / page).read_text(encoding="utf-8").split("\n## ")[1:]
    return {part.partition("\n")[0]: list(_examples(part)) for part in parts}


def files_in(page: str) -> Dict[str, str]:
    """Return title -> the complete YAML file, from `cluster:` to `benchmarks:`, that a section of a page has."""
    parts = (ROOT / "docs" / page).read_text(encoding="utf-8").split("\n## ")[1:]
    # below a key of the file are lines with more spaces, or none
    file = re.compile(r"^    cluster:\n(?:(?:     .*|    \w+:)?\n)+", re.MULTILINE)
    matches = {part.partition("\n")[0]: file.search(part) for part in parts}
    texts = {title: textwrap.dedent(match.group(0)) for title, match in matches.items() if match}
    return {title: text for title, text in texts.items() if "\nbenchmarks:\n" in text}


def changed(text: str, changes: Dict[str, str]) -> str:
    """Return the text of a file with the words of a test in the place of those of the page, which must be there."""
    for old, new in changes.items():
        assert old in text, old
        text = text.replace(old, new)
    return text


def make_files(folder: Path) -> None:
    """Make what the steps of docs/TOUR.md use, in a folder, as the page says."""
    for name in ("benchmark_configs", "tests"):
        (folder / name).symlink_to(ROOT / name)
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)}
    commands = [command for command, _ in sections("TOUR.md")[FILES]]
    assert commands
    for command in commands:
        subprocess.run(["bash", "-c", command], cwd=folder, env=environment, check=True)


def _examples(text: str) -> Iterator[Tuple[str, str]]:
    blocks = text.split("\n" + PROMPT)[1:]
    for block in blocks:
        command, *lines = block.split("\n")
        output = [line[4:] for line in lines if line.startswith("    ")]
        yield command, "".join(f"{line}\n" for line in output)


def play(title: str, folder: Path, run: Callable[[str], str]) -> int:
    """Run the examples of a section of docs/TOUR.md in a folder; returns how many there are. Raises AssertionError."""
    examples = sections("TOUR.md")[title]
    for command, output in examples:
        if command.startswith("cat "):
            (folder / command.split()[1]).write_text(output)
            continue
        told = run(command)
        if output != "...\n" and not doctest.OutputChecker().check_output(output, told, doctest.ELLIPSIS):
            raise AssertionError(f"$ {command}\n{told}\nis not\n{output}")
    return len(examples)
