"""Every published number against what its own inputs give: it must come out, or must not, as its verdict says."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from published_numbers import ROOT, VERDICTS, Row, rows

ROWS = rows()


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.id)
def test_the_model_gives_what_is_written_down(row: Row) -> None:
    shown = len(f"{row.exact:.10f}".rstrip("0").partition(".")[2])
    assert row.value() == pytest.approx(row.exact, abs=0.51 * 10.0**-shown, rel=2e-6)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.id)
def test_verdicts(row: Row) -> None:
    assert row.verdict in VERDICTS
    assert row.judged() == row.verdict
    if row.verdict == "rounded":
        assert row.tolerance is not None and row.tolerance > row.digit / 2
    if row.verdict in ("rounded", "mistake"):
        assert row.note, "what is wrong with it?"


def test_the_statements_of_all_studies_are_there() -> None:
    found = {re.match(r"N(\d+)", row.id).group(1) for row in ROWS}  # type: ignore[union-attr]
    wanted = [*range(1, 18), *range(20, 36), *range(40, 46), *range(50, 54), *range(60, 64), *range(70, 76)]
    assert found == {str(number) for number in wanted}
    assert len({row.id for row in ROWS}) == len(ROWS)
    told = (ROOT / "tests" / "data" / "published" / "README.md").read_text()
    assert all(row.source in told for row in ROWS)


@pytest.mark.parametrize("row", [row for row in ROWS if row.published is not None], ids=lambda row: row.id)
def test_another_number_would_have_another_verdict(row: Row) -> None:
    """A verdict that fits anything checks nothing."""
    assert row.published is not None
    limit = max(row.tolerance or 0.0, row.digit / 2)
    assert replace(row, published=row.value()).judged() == "ok"
    assert replace(row, published=row.value() + 1.01 * limit).judged() == "mistake"
