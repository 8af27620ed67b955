"""Which tests are run, in which order, and with which signals; what tests of faults and of archives share."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Iterator, List

import pytest

if TYPE_CHECKING:
    from faults_world import Connections

#: why a test that is marked `long` is not run
LONG = "long: ./run test all"


def pytest_configure() -> None:
    """What a shell starts in the background, or nohup, is deaf to some signals, and all that it starts."""
    usual = {signal.SIGINT: signal.default_int_handler, signal.SIGQUIT: signal.SIG_DFL, signal.SIGHUP: signal.SIG_DFL}
    for number, handler in usual.items():
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, handler)
    os.environ.pop("AWS_PROFILE", None)  # a file that names no keys would have those of whoever runs the tests
    gc.disable()  # while tests are collected: all of that stays; to look for garbage in it takes a third of the time


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


def pytest_unconfigure() -> None:
    gc.unfreeze()


#: the order of the files when workers share them: clusters first, of them what takes longest, and seconds come last
ORDER = (
    "lab/test_osdfailure",
    "lab/test_cycle",
    "lab/test_faults",
    "lab/test_systemd",
    "lab/test_cbt_load",
    "lab/test_lab",
    "lab",
    "upstream/test_eras",
    "crash/test_undo_at_each_call",
    "crash",
    "upstream",
    "programs/test_load_session",
    "programs/test_companion",
    "programs",
    "unit",
)


def place(item: pytest.Item) -> int:
    within = item.path.relative_to(Path(__file__).parent).as_posix()
    return next((number for number, start in enumerate(ORDER) if within.startswith(start)), len(ORDER))


def pytest_collection_modifyitems(items: List[pytest.Item]) -> None:
    """Sort files by ORDER; skip what is marked `long`, unless CBT_PLUGINS_LONG is set."""
    items.sort(key=place)
    if not os.environ.get("CBT_PLUGINS_LONG"):
        for item in items:
            if item.get_closest_marker("long"):
                item.add_marker(pytest.mark.skip(reason=LONG))


def pytest_terminal_summary(terminalreporter: Any, exitstatus: int) -> None:
    """Say which long tests were left out and how to run them; write what was measured into docs/."""
    reports = terminalreporter.stats
    left = Counter(
        report.nodeid.split("::")[0] for report in reports.get("skipped", []) if report.longrepr[2].endswith(LONG)
    )
    if left:
        terminalreporter.section(f"{sum(left.values())} long tests were left out")
        for file, number in sorted(left.items()):
            terminalreporter.line(f"{number:4} in {file}")
        terminalreporter.line("./run test all runs them, CBT_PLUGINS_LONG=1 ./run test FILE those of one file")
    cells = [dict(report.user_properties) for report in reports.get("passed", []) if report.when == "call"]
    rows = [(cell["ceph"], *cell["tested"], f"{cell['seconds']} s") for cell in cells if "tested" in cell]
    if rows:
        terminalreporter.section("tested (docs/TESTED.md)")
        head = ("Ceph", "engine", "cycle", "requests", "warnings", "took")
        for row in [head, ("---",) * len(head), *sorted(rows)]:
            terminalreporter.line(f"| {' | '.join(row)} |")
    write_tables(terminalreporter, interrupted=exitstatus not in (0, 1))


def write_tables(terminalreporter: Any, interrupted: bool) -> None:
    """Write what was measured into the tables of docs/, and say so."""
    import tables

    rows = tables.rows_of(terminalreporter.stats)
    upstream = tables.upstream_row(terminalreporter.config, terminalreporter.stats)
    if upstream and not interrupted:
        rows[tables.TESTED, "upstream"] = [upstream]
    if rows:
        terminalreporter.section("rows of docs/")
    for (page, table), lines in rows.items():
        for line in lines:
            terminalreporter.line(f"{page}: | {' | '.join(line)} |")
        try:
            tables.write_rows(tables.PROJECT / page, table, lines)
        except OSError as error:
            terminalreporter.line(f"not written: {error}")


@pytest.fixture(autouse=True)
def closed_injectors() -> Iterator[None]:
    """Other tests do not pay for the import."""
    yield
    known = sys.modules.get("faults_world")
    while known is not None and known.MADE:
        known.MADE.pop().close()


@pytest.fixture(autouse=True)
def no_error_of_ours_passes_for_damage(monkeypatch: pytest.MonkeyPatch) -> None:
    """What readers of archives raise beyond the errors of damaged data is raised as it is."""
    source = sys.modules.get("cbt_plugins.results.result_file")
    if source is not None:
        monkeypatch.setattr(source, "unexpected", lambda path, error: error)


@pytest.fixture
def world() -> Connections:
    """A healthy cluster of four nodes with an OSD each."""
    from faults_world import Connections

    return Connections()
