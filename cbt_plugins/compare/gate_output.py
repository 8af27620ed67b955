"""The result of a gate as blocks, plain values and a table."""

from __future__ import annotations

from typing import Any, Dict, List, Sequence, Tuple

from cbt_plugins.compare import output
from cbt_plugins.compare.gate import Gated, Ruling
from cbt_plugins.compare.table import Row
from cbt_plugins.formatting import several
from cbt_plugins.formatting.blocks import Block, Heading, Notes, TableGrid, Words

HEAD = ("phase", "op", "metric", "limit", "base", "new", "change", "p", "n", "outcome")
#: the columns of HEAD that begin at the left
_LEFT = tuple(name in ("phase", "op", "metric", "outcome") for name in HEAD)


def blocks(gated: Gated) -> List[Block]:
    """Return the gate as blocks, the outcome last."""
    compared = gated.compared
    parts: List[Block] = [Words(tuple(output.side_lines(compared)))]
    several = len(compared.contenders) > 1
    rulings = iter(gated.rulings)
    for section in compared.sections:
        if several or section.case:
            parts.append(Heading(" ".join(filter(None, (section.contender if several else "", section.case)))))
        parts += [
            TableGrid(output.DIFFERENCES, tuple(output.differences(section)), left=3),
            TableGrid(HEAD, tuple(_line(row, next(rulings)) for row in section.rows), left=_LEFT),
            output.notes([*section.warnings, *output.of_rows(section.rows)]),
        ]
    parts.append(Notes("missing numbers", tuple(f"{ruling.row}: {ruling.why}" for ruling in rulings)))
    alone = tuple(f"{ruling.row}: {ruling.outcome.word}: {ruling.why}" for ruling in gated.rulings_alone)
    parts.append(Notes("limits of values in configurations that the base does not have", alone))
    parts.append(Notes("limits without effect: all of their rows have a later limit", gated.shadowed))
    parts.append(Notes("not compared", compared.not_compared))
    parts.append(Words((outcome_line(gated),)))
    return parts


def _line(row: Row, ruling: Ruling) -> Tuple[str, ...]:
    cells = output.line(row)
    metric = f"{cells[2]} {cells[3]}".strip()
    return (*cells[:2], metric, ruling.limit.text, *cells[4:9], f"{ruling.outcome.word}: {ruling.why}")


def outcome_line(gated: Gated) -> str:
    """Return the outcome, its exit status and the numbers of rulings."""
    counts: Dict[str, int] = {}
    for ruling in gated.every_ruling:
        counts[ruling.outcome.word] = counts.get(ruling.outcome.word, 0) + 1
    summary = ", ".join(f"{n} {word}" for word, n in sorted(counts.items()))
    added = sum(alone.side != gated.compared.base.name for alone in gated.compared.alone)
    if added:
        summary += f"; not compared: {several(added, 'configuration')} that the base does not have"
    return f"{gated.outcome.word} (exit status {gated.outcome.value}): {summary}"


def data(gated: Gated) -> Dict[str, Any]:
    """Return the comparison as plain values, with the rulings."""
    texts = [(ruling.row, ruling.limit.text, ruling.outcome.word, ruling.why) for ruling in gated.every_ruling]
    rulings = [dict(zip(("row", "limit", "outcome", "why"), ruling)) for ruling in texts]
    about = {"rulings": rulings, "shadowed": list(gated.shadowed), "outcome": gated.outcome.word}
    return {**output.data(gated.compared), **about}


def table(gated: Gated) -> List[Sequence[Any]]:
    """Return the comparison's columns and a line for each row, with its limit, outcome and reason."""
    head, *lines = output.table(gated.compared)
    rulings = [(ruling.limit.text, ruling.outcome.word, ruling.why) for ruling in gated.rulings]
    return [(*head, "limit", "outcome", "why"), *((*line, *cells) for line, cells in zip(lines, rulings))]
