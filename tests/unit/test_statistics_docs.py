"""docs/STATISTICS.md: its examples are run, what takes seconds of its tables is made again, its codes are all there."""

from __future__ import annotations

import doctest
import re
from pathlib import Path
from typing import Any, Dict

import pytest

import cbt_plugins.compare.statistics
from cbt_plugins.compare.statistics import Campaign, chances
from cbt_plugins.warning_kinds import KINDS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "STATISTICS.md").read_text()


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


def test_the_table_of_verdicts_is_that_of_the_code() -> None:
    """Coarsely: with a fifth of its comparisons."""
    row = re.compile(r"^\| (-?\d+)%, (\d)% \| (\d+) \| (\S+) \| (\S+) \| (\S+) \| (\S+) \|$", re.MULTILINE)
    lines = row.findall(PAGE)
    assert len(lines) == 28
    for change, scatter, runs, *shares in lines:
        its = chances(int(runs), int(change) / 100, Campaign(int(scatter) / 100), 200, seed=1)
        parts = its.found, its.small + its.equivalent, its.small, its.inconclusive
        assert list(map(float, shares)) == pytest.approx(parts, abs=0.13), (change, scatter, runs)


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
