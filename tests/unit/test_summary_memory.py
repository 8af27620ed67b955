"""The memory that it takes to write the summary and the page of a large cluster."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path

import archive_builder as made
import pytest
from resources_lines import OSDS, Made, phase_of, write

from cbt_plugins import checksums
from cbt_plugins.report.page import run_page
from cbt_plugins.results.summary_file import dumps, summarize, write_summary


@pytest.mark.parametrize("sealed", [False, True])
def test_a_summary_of_many_daemons_takes_little_more_than_its_file(sealed: bool, tmp_path: Path) -> None:
    summary = {"daemons": [{f"key{key}": key + 0.5 for key in range(20)} for _ in range(5000)]}
    if sealed:
        (tmp_path / checksums.FILE).write_text("")
    path = tmp_path / "summary.json"
    tracemalloc.start()
    write_summary(summary, path)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    text = path.read_text()
    assert most < 2 * len(text)
    assert [line for line in text.splitlines() if '"seal"' not in line] == dumps(summary).splitlines()
    assert ("seal" in json.loads(text)) == sealed


def test_the_page_of_many_daemons_takes_little_more_than_its_file(tmp_path: Path) -> None:
    directory = made.small(tmp_path / "run")
    summary = summarize(directory)
    write(tmp_path / "monitors", "n1", Made(OSDS))
    usage = phase_of(tmp_path / "monitors")
    usage["daemons"] *= 20_000
    summary["resources"] = {"nodes": [], "phases": {summary["phases"][0]["name"]: usage}}
    run_page(summary, directory)
    tracemalloc.start()
    page = run_page(summary, directory)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 4 * len(page)  # a character of the page has two bytes in memory
