"""The published numbers: read, calculated anew and judged; `python tests/unit/published_numbers.py --write` puts them
into docs/MODELS.md.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional

import yaml

from cbt_plugins.models import capacity, closed_loop, network, pools
from cbt_plugins.models.pools import Redundancy

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "tests" / "data" / "published" / "published_numbers.yaml"
PAGE = ROOT / "docs" / "MODELS.md"
BEGIN = "<!-- published numbers: made by `python tests/unit/published_numbers.py --write` -->"
END = "<!-- end of published numbers -->"
VERDICTS = ("ok", "rounded", "mistake", "derived")
_MODELS = {
    module.__name__.rpartition(".")[2]: module
    for module in (capacity, closed_loop, network, pools)
}


@dataclass(frozen=True)
class Row:
    """A number of a study; see the head of the YAML."""

    id: str
    source: str
    says: str
    inputs: Mapping[str, Any]
    model: str
    exact: float
    verdict: str
    published: Optional[float] = None
    digit: float = 0.0
    tolerance: Optional[float] = None
    unit: str = ""
    note: str = ""
    shown: Optional[List[str]] = None

    def value(self) -> float:
        """What the model gives."""
        names: Dict[str, Any] = {**_MODELS, **self.inputs}
        if "pool" in names:
            names["pool"] = Redundancy.parse(names["pool"])
        return float(eval(self.model, {"__builtins__": {"sum": sum}}, names))

    def judged(self) -> str:
        """The verdict that the numbers themselves give."""
        if self.published is None:
            return "derived"
        off = abs(self.value() - self.published)
        if off <= self.digit / 2 * (1 + 1e-9):
            return "ok"
        return "rounded" if self.tolerance is not None and off <= self.tolerance else "mistake"


def rows() -> List[Row]:
    """All of them, in the order of the file."""
    return [Row(**entry) for entry in yaml.safe_load(FILE.read_text(encoding="utf-8"))]


def table() -> str:
    """Every row, in Markdown."""
    lines = ["| | source | says | printed | gives | verdict | |", "| --- | --- | --- | ---: | ---: | --- | --- |"]
    for row in rows():
        verdict = f"**{row.verdict}**" if row.verdict == "mistake" else row.verdict
        printed, exact = row.shown or [_text(row.published, row.unit), _text(row.exact, row.unit)]
        cells = [row.id, row.source, row.says, printed, exact, verdict, row.note]
        lines.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |".replace("|  |", "| |"))
    found = [row.verdict for row in rows()]
    counts = ", ".join(f"{found.count(verdict)} {verdict}" for verdict in VERDICTS)
    return "\n".join([f"{len(found)} numbers: {counts}.", "", *lines, ""])


def refresh(page: str) -> str:
    """Return the page with its table made anew."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    assert begin and end, f"{PAGE.name} lacks {BEGIN} and {END}"
    return f"{before}{BEGIN}\n\n{table()}\n{END}{after}"


def _text(number: Optional[float], unit: str) -> str:
    if number is None:
        return ""
    text = f"{number:,.0f}" if abs(number) >= 10_000 and number == int(number) else f"{number:g}"
    return f"{text} {unit}".strip()


if __name__ == "__main__" and sys.argv[1:] == ["--write"]:
    PAGE.write_text(refresh(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
