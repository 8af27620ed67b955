"""Numbers of docs/TRUST.md and docs/PR.md are those of the recorded scores of failures, and of the recorded blocks."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_table_of_trust_is_made_of_the_recorded_scores() -> None:
    files = sorted((ROOT / "tests" / "data" / "failures").glob("*.jsonl"))
    line = [sys.executable, "tests/perf/failures.py", "table", *map(str, files)]
    done = subprocess.run(line, capture_output=True, text=True, cwd=ROOT, check=True)
    table, _, drawn = done.stdout.partition("computed\n")
    document = (ROOT / "docs" / "TRUST.md").read_text()
    assert "\n".join(row.rstrip() for row in table.splitlines()) in document
    assert "false alarms 0.2 %" in drawn
    assert "1000 gates on repetitions drawn from all archives, 0.2 % were false alarms" in document


def test_the_scatter_of_a_pull_request_is_that_of_the_recorded_blocks() -> None:
    document = (ROOT / "docs" / "PR.md").read_text()
    file = "tests/data/pull_requests/2026-11-27.json"
    blocks = json.loads((ROOT / file).read_text())
    scatter = {row: 100 * math.sqrt(sum(block[row] ** 2 for block in blocks) / len(blocks)) for row in blocks[0]}
    throughput, p99 = f"{scatter['obj_per_s']:.1f} %", f"{scatter['p99_ms']:.1f} %"
    assert f"scatter of {throughput} in throughput, and of {p99} in\np99" in document
    assert file in document and f"made {len(blocks)} blocks of equal sides" in document
