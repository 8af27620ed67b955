"""A gate: comparisons against limits, with an answer that a pipeline can act on."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any, Dict, Iterator, List, Sequence, Tuple

from cbt_plugins.compare import export, wording
from cbt_plugins.compare.cases import Side
from cbt_plugins.compare.layout import Block, Grid, Heading, Notes, Words
from cbt_plugins.compare.limits import Limit, Limits
from cbt_plugins.compare.statistics.verdicts import Verdict
from cbt_plugins.compare.table import Compared, Row, Rules, compare
from cbt_plugins.metrics import METRICS, Direction


class Outcome(Enum):
    """Of one row, and of the whole; the value is the exit status."""

    OK = 0
    REGRESSION = 1
    INCONCLUSIVE = 3
    UNUSABLE = 4

    @property
    def word(self) -> str:
        return self.name.lower().replace("_", " ")


@dataclass(frozen=True)
class Ruling:
    """One row, or a number that is not there, against its limit."""

    row: str
    limit: Limit
    outcome: Outcome
    why: str


@dataclass(frozen=True)
class Gated:
    """`rulings` are in the order of the rows, then of what is missing."""

    compared: Compared
    rulings: Tuple[Ruling, ...]

    @property
    def outcome(self) -> Outcome:
        if not self.compared.usable:
            return Outcome.UNUSABLE
        found = {ruling.outcome for ruling in self.rulings}
        order = (Outcome.REGRESSION, Outcome.INCONCLUSIVE)
        return next((outcome for outcome in order if outcome in found), Outcome.OK)


def gate(base: Side, contenders: Sequence[Side], limits: Limits, rules: Rules) -> Gated:
    """Rows that have a limit, judged together. Raises Incomparable, and ValueError for a limit of nothing.

    A share L: regression when the row is worse beyond chance (Holm over all rows of the gate) and by more than L; ok
    when the interval of the change ends before L, or the change is surely within +-L; inconclusive otherwise.
    A value: regression when the interval of the new runs lies beyond it, ok when it lies before it, inconclusive
    otherwise; of a single run its value decides.
    """
    compared = compare(base, contenders, limits, rules)
    keys = [row.key for row in compared.rows]
    missing = [(warning, section) for section in compared.sections for warning in section.missing]
    for limit in limits.idle([*keys, *(warning.key for warning, _ in missing)]):
        raise ValueError(f"nothing has the limit {_name(limit)}: {_there_is(compared)}")
    rulings = [_ruling(row, limits) for row in compared.rows]
    for warning, _ in missing:
        limit_of = limits.of(warning.key)
        assert limit_of is not None
        rulings.append(Ruling(warning.where, limit_of, Outcome.INCONCLUSIVE, warning.text))
    return Gated(compared, tuple(rulings))


def _ruling(row: Row, limits: Limits) -> Ruling:
    limit = limits.of(row.key)
    assert limit is not None
    outcome, why = _change(row, limit.share) if limit.share is not None else _value(row, limit)
    return Ruling(row.id, limit, outcome, why)


def _change(row: Row, share: float) -> Tuple[Outcome, str]:
    its = row.comparison
    lower = METRICS[row.metric].direction is Direction.LOWER
    if its.change is None:
        return Outcome.INCONCLUSIVE, "no change can be computed"
    worse, ends = (its.change, its.change_high) if lower else (-its.change, its.change_low)
    if row.verdict is Verdict.WORSE and worse > share:
        return Outcome.REGRESSION, "worse, and by more than the limit"
    if ends is None:
        return Outcome.INCONCLUSIVE, "no interval"
    if (ends if lower else -ends) < share:
        return Outcome.OK, "surely within the limit"
    if its.within is not None and its.within < share:
        return Outcome.OK, "surely within the limit"
    if worse > share:
        return Outcome.INCONCLUSIVE, "beyond the limit, and it may be chance"
    return Outcome.INCONCLUSIVE, "the interval passes the limit"


def _value(row: Row, limit: Limit) -> Tuple[Outcome, str]:
    its = row.comparison.new
    low, high = its.low, its.high
    if row.runs[1] == 1 or low is None or high is None:
        low = high = its.value
    beyond = low > limit.most if limit.most is not None else high < (limit.least or 0.0)
    before = high <= limit.most if limit.most is not None else low >= (limit.least or 0.0)
    what = "its value" if low == high else "its interval"
    if beyond or before:
        return (Outcome.REGRESSION, f"{what} is beyond") if beyond else (Outcome.OK, f"{what} keeps it")
    return Outcome.INCONCLUSIVE, "its interval holds the limit"


def _name(limit: Limit) -> str:
    return ".".join(filter(None, (limit.phase, limit.op, limit.metric)))


def _there_is(compared: Compared) -> str:
    keys = [(m.phase, m.op) for run in compared.base.runs for m in run.measurements]
    phases, ops = (", ".join(dict.fromkeys(names)) for names in zip(*keys)) if keys else ("none", "none")
    return f"phases are {phases}; operations are {ops}"


HEAD = ("phase", "op", "metric", "limit", "base", "new", "change", "p", "n", "outcome")


def blocks(gated: Gated) -> List[Block]:
    """What is to be read, the answer last."""
    compared = gated.compared
    found: List[Block] = [Words(tuple(wording.side_lines(compared)))]
    several = len(compared.contenders) > 1
    rulings = iter(gated.rulings)
    for section in compared.sections:
        if several or section.case:
            found.append(Heading(" ".join(filter(None, (section.contender if several else "", section.case)))))
        lines = [_line(row, next(rulings)) for row in section.rows]
        found += [
            Grid(wording.DIFFERENCES, tuple(wording.differences(section)), left=3),
            Grid(HEAD, tuple(lines), left=3),
            Notes("warnings", tuple(wording.merged([*section.warnings, *wording.of_rows(section.rows)]))),
        ]
    found.append(Notes("no number", tuple(f"{its.row}: {its.why}" for its in rulings)))
    found.append(Notes("not compared", compared.alone))
    found.append(Words(tuple(_answer(gated))))
    return found


def _line(row: Row, ruling: Ruling) -> Tuple[str, ...]:
    cells = wording.line(row)
    metric = f"{cells[2]} {cells[3]}".strip()
    outcome = ruling.outcome.word if ruling.outcome is Outcome.OK else f"{ruling.outcome.word}: {ruling.why}"
    return (*cells[:2], metric, ruling.limit.text, *cells[4:9], outcome)


def _answer(gated: Gated) -> Iterator[str]:
    counts: Dict[str, int] = {}
    for ruling in gated.rulings:
        counts[ruling.outcome.word] = counts.get(ruling.outcome.word, 0) + 1
    told = ", ".join(f"{n} {word}" for word, n in sorted(counts.items()))
    yield f"{gated.outcome.word} (exit status {gated.outcome.value}): {told}"


def data(gated: Gated) -> Dict[str, Any]:
    """The comparison's plain values, with the rulings."""
    rulings = [
        {"row": its.row, "limit": its.limit.text, "outcome": its.outcome.word, "why": its.why} for its in gated.rulings
    ]
    return {**export.data(gated.compared), "rulings": rulings, "outcome": gated.outcome.word}
