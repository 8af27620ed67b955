"""The scorecard of a run: the cost of each failure for clients and cluster, and the refused failures."""

from __future__ import annotations

from typing import Any, Dict, Iterator, List, Mapping, Optional, Tuple

from cbt_plugins.compare.scorecard import HEADINGS, cells
from cbt_plugins.compare.statistics.assumption import FEWEST
from cbt_plugins.formatting.blocks import Block, Notes, TableGrid, Words
from cbt_plugins.results.run_record import of_failure

HEAD = ("failure", "kind", "n", *HEADINGS)


def rows(scorecard: Mapping[str, Any]) -> List[Tuple[str, ...]]:
    """Return the failures that were injected as a table, its header first; [] when none was."""
    lines = [
        (line["name"], line["kind"], str(len(line["scores"])), *cells(list(of_failure(line))))
        for line in scorecard["failures"]
        if line["scores"]
    ]
    return [HEAD, *lines] if lines else []


def refusals(scorecard: Mapping[str, Any]) -> Iterator[str]:
    """Yield each failure that was refused, or did not happen, and why."""
    for line in scorecard["failures"]:
        for why in dict.fromkeys(refused["why"] for refused in line["refused"]):
            number = sum(refused["why"] == why for refused in line["refused"])
            times = f" ({number} of {line['planned']} times)" if line["planned"] > 1 else ""
            yield f"{line['name']}{times}: {why}"


def sentences(scorecard: Mapping[str, Any]) -> Iterator[str]:
    """Yield the meaning of the columns."""
    yield "clients: from the fault to the end of its phase; recovery: from the undo until all PGs are active+clean"
    most = max((len(line["scores"]) for line in scorecard["failures"]), default=0)
    if most >= FEWEST:
        yield "medians of n repetitions in this run; ±: 95 % confidence interval"
    elif most:
        yield f"n: number of repetitions; {FEWEST} or more give an interval"


def parts(scorecard: Optional[Mapping[str, Any]]) -> Optional[Dict[str, Any]]:
    """Return the table, the sentences and the refusals, for a page; None without a scorecard."""
    if not scorecard:
        return None
    texts = {"sentences": list(sentences(scorecard)), "refusals": list(refusals(scorecard))}
    return {"table": rows(scorecard), **texts}


def blocks(scorecard: Mapping[str, Any]) -> Iterator[Block]:
    """Yield the table, and what was refused."""
    table = rows(scorecard)
    if table:
        yield TableGrid(table[0], tuple(table[1:]), left=2, title="scorecard: cost of each failure")
        yield Words(tuple(sentences(scorecard)))
    yield Notes("refused", tuple(refusals(scorecard)))
