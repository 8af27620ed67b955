"""Warnings about the load itself: workers that were idle, and jobs that a rate holds."""

from __future__ import annotations

from pathlib import Path

import archive_builder as made
from archive_builder import codes, summary_of_phase

from cbt_plugins.formatting.formats.terminal import Terminal
from cbt_plugins.report.result_text import blocks
from cbt_plugins.results.summary_numbers import new_vs_aged

GET = {"workers": 2, "seconds": 14, "latency": 0.01, "begin": -2, "size": 4096}


def test_littles_law_sees_idle_workers(tmp_path: Path) -> None:
    rows = [
        made.row("GET", i / 50 - 2, 0.01, thread=w) for i in range(700) for w in range(2)
    ]  # 10 ms work, 10 ms pause
    summary = summary_of_phase(tmp_path, [made.job("g", "GET", rows)])
    assert codes(summary) == ["littles-law"]
    assert "= 1.00 requests in flight, but 2 workers (-50.0 %)" in summary["warnings"][0]["text"]
    law = summary["phases"][0]["littles_law"]
    assert (law["in_flight"], law["concurrency"], law["deviation"]) == (1.0, 1.0, -0.5)


def test_littles_law_leaves_paced_jobs_alsummary_of_phase(tmp_path: Path) -> None:
    rows = [made.row("GET", i / 50 - 2, 0.01, thread=w) for i in range(700) for w in range(2)]
    assert codes(summary_of_phase(tmp_path / "a", [made.job("g", "GET", rows, rate_limit=100)])) == ["at-limit"]
    jobs = [made.job("g", "GET", made.steady("GET", **GET), workers=1, rate_limit=100)]
    assert codes(summary_of_phase(tmp_path / "b", jobs)) == ["at-limit", "littles-law"]


def test_what_a_rate_holds_says_so_in_every_place(tmp_path: Path) -> None:
    """warp's limiter: GET at 100/s cannot become faster, on whatever cluster."""
    rows = [made.row("GET", i / 50 - 2, 0.01, thread=w) for i in range(700) for w in range(2)]
    jobs = [made.job("g", "GET", rows, rate_limit=100), made.job("h", "GET", rows, workers=2)]
    summary = summary_of_phase(tmp_path, jobs)
    (warning,) = (its for its in summary["warnings"] if its["code"] == "paced")
    assert warning["op"] == "GET" and "GET was limited to 100 requests/s in 1 of 2 jobs: it could" in warning["text"]
    # 100/s of 300/s: that it is slower than before would be no fault of the limit
    slow = summary_of_phase(tmp_path / "slow", [made.job("g", "GET", rows, rate_limit=300)])
    assert "paced" in codes(slow) and "at-limit" not in codes(slow)
    assert "LIMITED: GET to 100.0/s: these numbers do not show what" in Terminal().text(blocks(summary))
    again = {**summary["phases"][0], "name": "again"}
    assert "rate limited, so no answer on aging: GET" in (new_vs_aged([summary["phases"][0], again]) or {})["note"]


def test_littles_law_does_not_warn_of_a_job_that_had_nothing_to_delete(tmp_path: Path) -> None:
    rows = [made.row("DELETE", i / 50 - 2, 0.01, thread=w) for i in range(700) for w in range(2)]
    dry = [{"code": "ran-dry", "text": "d ran out of objects to delete", "job": "d"}]
    assert codes(summary_of_phase(tmp_path, [made.job("d", "DELETE", rows, restarts=1)], warnings=dry)) == ["ran-dry"]


def test_failed_requests_occupy_workers_too(tmp_path: Path) -> None:
    rows = [
        made.row("GET", (i + 1) / 100 - 2, 0.01, thread=w, error="503" if i % 2 else "")
        for i in range(1400)
        for w in (0, 1)
    ]
    summary = summary_of_phase(tmp_path, [made.job("g", "GET", rows)])
    assert codes(summary) == ["errors"]
    get = summary["phases"][0]["ops"]["GET"]
    assert (get["obj_per_s"], get["errors"], get["success_rate"]) == (100.0, 1000, 0.5)
    assert get["error_latency_ms"]["mean"] == 10.0
    assert get["error_kinds"] == [{"text": "503", "count": 1400}]
    assert "1400 of 2800 GET failed (50 % in the window)" in summary["warnings"][0]["text"]
