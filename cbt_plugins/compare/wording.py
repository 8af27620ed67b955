"""A comparison in words and tables: first what differs, then what changed, then what is to be doubted."""

from __future__ import annotations

from typing import Dict, Iterator, List, Optional, Sequence, Tuple

from cbt_plugins.compare.cases import Side
from cbt_plugins.compare.differences import short
from cbt_plugins.compare.layout import Block, Grid, Heading, Notes, Words
from cbt_plugins.compare.scaling import gains
from cbt_plugins.compare.statistics.verdicts import Comparison, Estimate
from cbt_plugins.compare.table import Compared, Row, Rules, Section
from cbt_plugins.compare.warnings import ComparisonWarning
from cbt_plugins.formatting import plain
from cbt_plugins.metrics import METRICS

HEAD = ("phase", "op", "metric", "unit", "base", "new", "change", "p", "n", "verdict")
DIFFERENCES = ("configuration that differs", "base", "new")


def blocks(compared: Compared) -> List[Block]:
    """Everything that is to be read, in order."""
    found: List[Block] = [Words(tuple(side_lines(compared)))]
    several = len(compared.contenders) > 1
    for section in compared.sections:
        if several or section.case:
            found.append(Heading(" ".join(filter(None, (section.contender if several else "", section.case)))))
        found += [
            Grid(DIFFERENCES, tuple(differences(section)), left=3),
            Grid(HEAD, tuple(map(line, section.rows)), left=4),
            *_scale(section, compared.rules),
            Notes("no number", tuple(f"{its.where}: {its.text}" for its in section.missing)),
            Notes("warnings", tuple(merged([*section.warnings, *of_rows(section.rows)]))),
        ]
    found.append(Notes("not compared", compared.alone))
    found.append(Words(tuple(legend(compared.rules, compared.rows))))
    return found


def side_lines(compared: Compared) -> Iterator[str]:
    """What is compared."""
    yield _side("base", compared.base)
    for side in compared.contenders:
        yield _side("new", side)


def _side(which: str, side: Side) -> str:
    places = f" in {', '.join(side.given)}" if side.given != (side.name,) else ""
    bad = sum(not run.usable for run in side.runs)
    warning = f", {bad} of them not usable" if bad else ""
    return f"{which + ':':<5} {side.name}, {len(side.runs)} {'run' if len(side.runs) == 1 else 'runs'}{places}{warning}"


def _scale(section: Section, rules: Rules) -> Iterator[Block]:
    if rules.scale is None:
        return
    head = ("scale-out", "op", "gain", "efficiency", "mean latency", "closed loop predicts")
    rows = []
    for its in gains(section, rules.scale):
        latency, predicted = (_percent(x) + "%" if x is not None else "-" for x in (its.latency, its.predicted))
        rows.append((its.phase, its.op, _percent(its.gain) + "%", f"{100 * its.efficiency:.1f}%", latency, predicted))
    yield Grid(head, tuple(rows), left=2)


def differences(section: Section) -> Iterator[Tuple[str, ...]]:
    """The cells under DIFFERENCES."""
    for its in section.differences:
        yield its.key, short(its.base), short(its.new)


def line(row: Row) -> Tuple[str, ...]:
    """The cells under HEAD."""
    its = row.comparison
    metric = METRICS[row.metric]
    return (
        row.phase,
        row.op,
        metric.title,
        metric.unit,
        value(its.base),
        value(its.new),
        change(its),
        chance(its.p if its.adjusted is None else its.adjusted),
        _n(row),
        row.verdict.value,
    )


def value(its: Estimate) -> str:
    """ "100.4 ±2.1%": the farther end of the interval, relative; without an interval "±inf"."""
    if its.low is None or its.high is None:
        return f"{plain(its.value)} ±inf"
    if not its.value:
        return f"{plain(its.value)} ±{plain(max(its.high, -its.low))}"
    wide = 100 * max(its.high - its.value, its.value - its.low) / abs(its.value)
    return f"{plain(its.value)} ±{wide:.1f}%"


def change(its: Comparison) -> str:
    """ "-10.3% [-12.1, -8.4]"."""
    if its.change is None:
        return "-"
    text = _percent(its.change) + "%"
    if its.change_low is None or its.change_high is None:
        return text
    return f"{text} [{_percent(its.change_low)}, {_percent(its.change_high)}]"


def change_of(base: float, new: float) -> str:
    """ "-10.3%"; "-" from nothing."""
    return _percent(new / base - 1) + "%" if base else "-"


def _percent(share: float) -> str:
    text = f"{100 * share:+.1f}"
    return text if float(text) else "0.0"


def chance(p: Optional[float]) -> str:
    return "-" if p is None else "<0.001" if p < 0.001 else f"{p:.3f}"


def _n(row: Row) -> str:
    if row.way == "seconds":
        return f"~{row.comparison.base.n:.0f}+{row.comparison.new.n:.0f}"
    return f"{row.runs[0]} pairs" if row.way == "pairs" else f"{row.runs[0]}+{row.runs[1]}"


def of_rows(rows: Sequence[Row]) -> Iterator[ComparisonWarning]:
    """What the statistics warning of each row."""
    """What the statistics say of the rows, and the rows of themselves."""
    for row in rows:
        its = row.comparison
        for warning in dict.fromkeys((*its.base.warnings, *its.new.warnings, *its.warnings)):
            yield ComparisonWarning(warning.code, f"{row.phase} {row.op} {row.metric}", warning.text)


def merged(warnings: Sequence[ComparisonWarning]) -> Iterator[str]:
    """One sentence for each code: the first, and how many more there are like it."""
    codes: Dict[str, List[ComparisonWarning]] = {}
    for warning in warnings:
        codes.setdefault(warning.code, []).append(warning)
    for code, its in codes.items():
        places = list(dict.fromkeys(warning.where for warning in its))
        more = f" and {len(places) - 1} more" if len(places) > 1 else ""
        yield f"{code} ({places[0]}{more}): {its[0].text}"


def legend(rules: Rules, rows: Sequence[Row]) -> Iterator[str]:
    """How to read the table."""
    yield f"±: {_whole(rules.confidence)}% interval; in brackets: that of the change, in percent"
    ways = {row.way for row in rows}
    if "seconds" in ways:
        yield "n with ~: independent seconds in one run each; the values are means over its seconds"
    if "runs" in ways or "pairs" in ways:
        yield "n: runs of the base and of the other; the values are those of the middle run"
    family = f"{len(rows)} {'row' if len(rows) == 1 else 'rows'}"
    yield (
        f"p: after Holm over {family}; better and worse need p < {rules.alpha:g}, "
        f"equivalent needs a change that is surely within ±{_whole(rules.margin)}%"
    )


def _whole(share: float) -> str:
    return f"{round(100 * share, 9):g}"
