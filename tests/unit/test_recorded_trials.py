"""Numbers of docs/TRUST.md and docs/PR.md are those of the recorded scores of failures, and of the recorded blocks."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.long  # draws thousands of gates
def test_the_table_of_trust_is_made_of_the_recorded_scores() -> None:
    files = sorted((ROOT / "tests" / "data" / "failures").glob("*.jsonl"))
    line = [sys.executable, "tests/perf/failures.py", "table", *map(str, files)]
    done = subprocess.run(line, capture_output=True, text=True, cwd=ROOT, check=True)
    table, _, alarms = done.stdout.partition("from this scatter\n")
    document = " ".join((ROOT / "docs" / "TRUST.md").read_text().split())
    assert " ".join(table.split()) in document
    between = "  gates between any two archives, both ways: 6; false alarms 0"
    drawn = "  gates on repetitions drawn from all archives: 1000; false alarms {} %"
    labs = [part.splitlines()[1:] for part in alarms.split("tests/data/failures/")[1:]]
    shares = [("0.1", "0.5"), ("0.0", "0.0")]
    assert [lab[1:3] + lab[4:6] for lab in labs[:2]] == [
        [between, drawn.format(own), between, drawn.format(advertised)] for own, advertised in shares
    ]
    fewer = between.replace("6;", "2;")
    assert labs[2][1:4:2] == [fewer, fewer], "too few repetitions to draw from"
    assert "each with each in both directions: 14, with 0 false alarms" in document
    assert "0.1 % were false alarms on the first lab, and 0.0 % on the second lab" in document
    assert "`bad_s=20%` and `longest_gap_s=+1s` of each failure, 0.5 % and 0.0 % were" in document


@pytest.mark.long  # draws thousands of gates
def test_the_table_of_a_busy_machine_is_made_of_the_recorded_scores() -> None:
    files = sorted((ROOT / "tests" / "data" / "failures" / "busy").glob("*.jsonl"))
    line = [sys.executable, "tests/perf/failures.py", "table", *(str(file.relative_to(ROOT)) for file in files)]
    done = subprocess.run(line, capture_output=True, text=True, cwd=ROOT, check=True)
    table, _, alarms = done.stdout.partition("median, scatter: ")
    document = (ROOT / "docs" / "TRUST.md").read_text()
    assert table in document
    days = [part.split("bad_s=20%")[0] for part in alarms.split("tests/data/failures/busy/")[1:]]
    assert "both ways: 2; false alarms 1" in days[0]
    assert "both ways: 6; false alarms 0" in days[1] and "both ways: 2; false alarms 0" in days[2]
    for row in table.splitlines()[1:]:
        ratio, p99 = (float(row.split("%")[place].split()[-1]) for place in (0, 1))
        assert p99 < ratio


def test_the_scatter_of_a_pull_request_is_that_of_the_recorded_blocks() -> None:
    document = (ROOT / "docs" / "PR.md").read_text()
    file = "tests/data/pull_requests/2026-11-27.json"
    blocks = json.loads((ROOT / file).read_text())
    scatter = {row: 100 * math.sqrt(sum(block[row] ** 2 for block in blocks) / len(blocks)) for row in blocks[0]}
    throughput, p99 = f"{scatter['obj_per_s']:.1f} %", f"{scatter['p99_ms']:.1f} %"
    assert f"scatter of {throughput} in throughput, and of {p99} in\np99" in document
    assert file in document and f"made {len(blocks)} blocks of equal sides" in document
