"""docs/MODELS.md: what it shows is what the commands say; `...` stands for what is left out."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import pytest

from cbt_plugins.tools.__main__ import main

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "MODELS.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"```console\n\$ cbt-tools (.*?)\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize(("command", "output"), COMMANDS, ids=lambda text: text[:30])
def test_commands(command: str, output: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(command.split()) == 0
    said = capsys.readouterr().out
    assert doctest.OutputChecker().check_output(output, said, doctest.ELLIPSIS), said


def test_every_part_of_size_has_an_example() -> None:
    shown = {command.split()[1] for command, _ in COMMANDS}
    assert shown == {"capacity", "pgs", "network", "workers", "mix", "scale", "odds"}
