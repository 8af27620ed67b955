"""docs/STATISTICS.md: its examples are run, what takes seconds of its tables is made again, its codes are all there."""

from __future__ import annotations

import doctest
import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, Dict, Iterator

import pytest

import cbt_plugins.compare.statistics
from cbt_plugins.warning_kinds import KINDS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "STATISTICS.md").read_text()


@pytest.fixture(scope="module")
def chance() -> Iterator[ModuleType]:
    folder = ROOT / "tests" / "perf"
    sys.path.insert(0, str(folder))  # as for a script
    spec = importlib.util.spec_from_file_location("chance", folder / "chance.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    sys.path.remove(str(folder))


def test_the_examples_say_what_the_page_says() -> None:
    names: Dict[str, Any] = {}
    blocks = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    runner = doctest.DocTestRunner(optionflags=doctest.REPORT_NDIFF)
    for number, block in enumerate(blocks):
        example = doctest.DocTestParser().get_doctest(block, names, f"block {number}", "docs/STATISTICS.md", 0)
        assert example.examples
        runner.run(example, clear_globs=False)
        names.update(example.globs)
    assert len(blocks) >= 4
    assert runner.summarize().failed == 0


@pytest.mark.parametrize("table", ["single"])
def test_the_tables_are_those_of_the_program(
    table: str, chance: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    getattr(chance, table)()
    lines = [line for line in capsys.readouterr().out.splitlines() if line]
    assert len(lines) > 2
    for line in lines:
        assert line in PAGE.splitlines()


def test_every_warning_is_on_the_page() -> None:
    folder = Path(cbt_plugins.compare.statistics.__file__).parent
    used = {
        code
        for path in folder.glob("*.py")
        for code in re.findall(r'StatisticsWarning\(\s*"([a-z-]+)"', path.read_text())
    }
    listed = PAGE[PAGE.index("## Warnings") :]
    assert len(used) >= 15
    assert {code for code in used if not re.search(rf"[| *]{code}[ ,*]", listed)} == set()
    bold = set(re.findall(r"\*\*([a-z-]+)\*\*", listed))
    assert bold == {kind.code for kind in KINDS.values() if kind.forbids_verdict} & used
