"""Tables of docs/ whose rows the tests write that measured them.

In a page a table stands between `<!-- rows: NAME -->` and `<!-- end of rows -->`; its first cell is the key of a row. A
test gives its row by `record_property("row", ["docs/STUDIES.md", "lab", KEY, CELL...])`, and the session writes it.
"""

from __future__ import annotations

import hashlib
import re
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any, Dict, Iterable, List, Sequence, Tuple

PROJECT = Path(__file__).resolve().parents[1]
TESTED = "docs/TESTED.md"
ROOM = "tests/upstream"


def cells_of(line: str) -> List[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def write_rows(page: Path, name: str, rows: Iterable[Sequence[str]]) -> None:
    """Replace the rows with these keys, in their places; append new ones. Raises LookupError without the table."""
    text = page.read_text(encoding="utf-8")
    table = re.search(rf"(?<=<!-- rows: {name} -->\n)(.*\n)(\|[ |-]*\n)((?:\|.*\n)*)(?=<!-- end of rows -->)", text)
    if table is None:
        raise LookupError(f"{page}: no table of rows: {name}")
    lines = {cells_of(line)[0]: line for line in table[3].splitlines()}
    lines.update({row[0]: f"| {' | '.join(row)} |" for row in rows})
    body = table[1] + table[2] + "".join(f"{line}\n" for line in lines.values())
    if body != table[0]:
        page.write_text(text[: table.start()] + body + text[table.end() :], encoding="utf-8")


def bridge() -> str:
    """Return a digest of what stands between this project and a CBT tree: tests/upstream prove it."""
    package = PROJECT / "cbt_plugins"
    files = [*(package / "cbt").glob("*.py"), *(package / "report" / "export").glob("*.py"), package / "autoload.py"]
    digest = hashlib.sha256()
    for path in sorted(files):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:12]


def upstream_row(config: Any, stats: Dict[str, List[Any]]) -> List[str]:
    """Return the row of a session that ran all of tests/upstream, with a checkout and no failure; else []."""
    from cbt_plugins.cbt import checkout

    of_room = {
        outcome: [report for report in stats.get(outcome, []) if getattr(report, "nodeid", "").startswith(ROOM)]
        for outcome in ("passed", "failed", "error", "skipped", "deselected")
    }
    everything = {Path(word).resolve() for word in config.args} <= {PROJECT, PROJECT / "tests", PROJECT / ROOM}
    chosen = any(getattr(config.option, name, None) for name in ("keyword", "markexpr", "deselect", "lf", "stepwise"))
    try:
        home = checkout.find()
    except ValueError:
        home = None
    if not everything or chosen or home is None or of_room["failed"] or of_room["error"] or not of_room["passed"]:
        return []
    reasons = Counter(report.longrepr[2].removeprefix("Skipped: ") for report in of_room["skipped"])
    skipped = "; ".join(f"{number} skipped ({reason})" for reason, number in sorted(reasons.items()))
    about = checkout.describe(home).describe
    python = ".".join(map(str, sys.version_info[:2]))
    passed = f"{len(of_room['passed'])} passed"
    return [f"`{ROOM}`", today(), f"CBT {about}, Python {python}", f"`{bridge()}`", passed, skipped or "none skipped"]


def today() -> str:
    return time.strftime("%Y-%m-%d")


def rows_of(stats: Dict[str, List[Any]]) -> Dict[Tuple[str, str], List[List[str]]]:
    """(page, table) -> rows that tests gave which passed."""
    rows: Dict[Tuple[str, str], List[List[str]]] = {}
    for report in stats.get("passed", []):
        for name, value in report.user_properties:
            if name == "row":
                page, table, *cells = value
                rows.setdefault((page, table), []).append(cells)
    return rows
