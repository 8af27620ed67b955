"""Tables of docs/ that tests write, and what the last row of tests/upstream says of today's bridge to CBT."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
import tables
from config_files import stand_in_checkout
from tables import PROJECT, ROOM, TESTED, bridge, cells_of, upstream_row, write_rows

PAGE = """\
before | after
<!-- rows: lab -->
| file | result |
| --- | --- |
| `a.yaml` | old |
| `b.yaml` | old |
<!-- end of rows -->
| after | `a.yaml` |
"""


def test_a_row_replaces_the_one_with_its_key_and_a_new_one_is_appended(tmp_path: Path) -> None:
    page = tmp_path / "PAGE.md"
    page.write_text(PAGE)
    write_rows(page, "lab", [["`c.yaml`", "new"], ["`a.yaml`", "new"]])
    rows = "| `a.yaml` | new |\n| `b.yaml` | old |\n| `c.yaml` | new |\n"
    assert page.read_text() == PAGE.replace("| `a.yaml` | old |\n| `b.yaml` | old |\n", rows)
    with pytest.raises(LookupError, match="no table of rows: other"):
        write_rows(page, "other", [])


def report(outcome: str, name: str, reason: str = "") -> SimpleNamespace:
    return SimpleNamespace(nodeid=f"{ROOM}/{name}", outcome=outcome, longrepr=("file", 1, f"Skipped: {reason}"))


@pytest.mark.parametrize(
    ("changes", "recorded"),
    [
        ({}, True),
        ({"args": ["tests/upstream/test_loop.py"]}, False),
        ({"keyword": "loop"}, False),
        ({"failed": True}, False),
        ({"home": False}, False),
    ],
)
def test_a_session_is_recorded_when_all_of_the_room_passed(
    changes: dict, recorded: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(PROJECT)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("CBT_HOME", str(stand_in_checkout(tmp_path)) if changes.get("home", True) else "")
    options = dict.fromkeys(("markexpr", "deselect", "lf", "stepwise"))
    option = SimpleNamespace(keyword=changes.get("keyword", ""), **options)
    config = SimpleNamespace(args=changes.get("args", [ROOM]), option=option)
    stats = {"passed": [report("passed", "a"), report("passed", "b")], "skipped": [report("skipped", "c", "long")]}
    row = upstream_row(config, {**stats, "failed": [report("failed", "d")] if changes.get("failed") else []})
    assert bool(row) == recorded
    if recorded:
        assert row[3:] == [f"`{bridge()}`", "2 passed", "1 skipped (long)"]


def test_upstream_tests_have_proved_this_bridge() -> None:
    """Skipped, not failed: where no checkout is, nobody can run them."""
    table = (PROJECT / TESTED).read_text().split("<!-- rows: upstream -->\n")[1]
    (row,) = [cells_of(line) for line in table.split("<!-- end")[0].splitlines()[2:]]
    if row[3] != f"`{tables.bridge()}`":
        pytest.skip(f"the bridge to CBT changed since {row[1]} ({TESTED}): ./run test upstream, with a CBT checkout")
