"""Single request rows, for tests that look at each of them."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Dict, List

from cbt_plugins.results.result_file import PackedFile

#: the columns of rows that come without a header: those of warp 1.1 to 1.4, and of cbt-load
STREAMED = (
    "idx", "thread", "op", "client_id", "n_objects", "bytes", "endpoint", "file", "error", "start", "first_byte", "end",
    "duration_ns", "cat",
)  # fmt: skip


def rows_of(path: Path) -> List[Dict[str, str]]:
    """Return all whole rows of a rows file, by column."""
    text = b"".join(PackedFile(path).chunks()).decode()
    names = None if text.startswith("idx\t") else STREAMED
    whole = text[: text.rfind("\n") + 1]
    found = csv.DictReader(io.StringIO(whole, newline=""), names, delimiter="\t")
    return [row for row in found if row["idx"].isdigit()]
