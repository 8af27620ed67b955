"""The table of docs/TRUST.md is that of the recorded scores of equal failures."""

from __future__ import annotations

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
