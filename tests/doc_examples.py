"""Examples in a page of docs/: `    $ command`, and below it what it prints, in which `...` stands for anything."""

from __future__ import annotations

import doctest
import shutil
from pathlib import Path
from typing import Callable, Dict, Iterator, List, Tuple

ROOT = Path(__file__).resolve().parents[1]
PROMPT = "    $ "


def sections(page: str) -> Dict[str, List[Tuple[str, str]]]:
    """Return title -> its examples: (command, output)."""
    parts = (ROOT / "docs" / page).read_text(encoding="utf-8").split("\n## ")[1:]
    return {part.partition("\n")[0]: list(_examples(part)) for part in parts}


def _examples(text: str) -> Iterator[Tuple[str, str]]:
    blocks = text.split("\n" + PROMPT)[1:]
    for block in blocks:
        command, *lines = block.split("\n")
        output = [line[4:] for line in lines if line.startswith("    ")]
        yield command, "".join(f"{line}\n" for line in output)


def play(title: str, folder: Path, run: Callable[[str], str]) -> int:
    """Run the examples of a section of docs/TOUR.md in a folder; returns how many there are. Raises AssertionError."""
    for name, copy in (("quickstart", "my"), ("campaign-lab", "campaign"), ("bisect", "bisect")):
        shutil.copy(ROOT / "benchmark_configs" / f"{name}.yaml", folder / f"{copy}.yaml")
    examples = sections("TOUR.md")[title]
    for command, output in examples:
        if command.startswith("cat "):
            (folder / command.split()[1]).write_text(output)
            continue
        told = run(command)
        if output != "...\n" and not doctest.OutputChecker().check_output(output, told, doctest.ELLIPSIS):
            raise AssertionError(f"$ {command}\n{told}\nis not\n{output}")
    return len(examples)
