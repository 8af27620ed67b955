"""A comparison as blocks for people, rows for CSV and data for JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, Dict, Iterable, Iterator, List, Optional, Sequence, Tuple, Union

from cbt_plugins.compare.differences import short
from cbt_plugins.compare.sides import ComparisonWarning, Side
from cbt_plugins.compare.statistics.verdicts import Comparison, Estimate, StatisticsWarning, Verdict
from cbt_plugins.compare.table import Compared, Row, Rules, Section, gains
from cbt_plugins.formatting import RED, YELLOW, Block, Heading, Notes, TableGrid, Words, plain
from cbt_plugins.metrics import MARGIN, METRICS
from cbt_plugins.warning_kinds import Severity, severity_of

HEAD = ("phase", "op", "metric", "unit", "base", "new", "change", "p", "n", "verdict")
DIFFERENCES = ("configuration differences", "base", "new")


def blocks(compared: Compared) -> List[Block]:
    """Return the comparison as blocks, in the order of reading."""
    found: List[Block] = [Words(tuple(side_lines(compared)))]
    several = len(compared.contenders) > 1
    for section in compared.sections:
        if several or section.case:
            found.append(Heading(" ".join(filter(None, (section.contender if several else "", section.case)))))
        found += [
            TableGrid(DIFFERENCES, tuple(differences(section)), left=3),
            *_tables(section.rows),
            *_scale(section, compared.rules),
            Notes("missing numbers", tuple(f"{its.where}: {its.text}" for its in section.missing)),
            notes([*section.warnings, *of_rows(section.rows)]),
        ]
    found.append(Notes("not compared", compared.not_compared))
    found.append(Words(tuple(legend(compared.rules, compared.rows))))
    return found


def _tables(rows: Sequence[Row]) -> Iterator[Block]:
    """Yield the key rows and the others; one table where there are none of either."""
    parts = [tuple(line(row) for row in rows if row.comparison.key is key) for key in (True, False)]
    titles = ("key rows", "other rows") if all(parts) else ("", "")
    for title, part in zip(titles, parts):
        yield TableGrid(HEAD, part, left=4, title=title)


def side_lines(compared: Compared) -> Iterator[str]:
    """Yield a line for each side."""
    yield _side("base", compared.base)
    for side in compared.contenders:
        yield _side("new", side)


def _side(which: str, side: Side) -> str:
    places = f" in {', '.join(side.given)}" if side.given != (side.name,) else ""
    bad = sum(not run.usable for run in side.runs)
    warning = f", {bad} unusable" if bad else ""
    return f"{which + ':':<5} {side.name}, {len(side.runs)} {'run' if len(side.runs) == 1 else 'runs'}{places}{warning}"


def _scale(section: Section, rules: Rules) -> Iterator[Block]:
    if rules.scale is None:
        return
    head = ("scale-out", "op", "gain", "gain / added", "mean latency", "closed loop predicts")
    rows = []
    for its in gains(section, rules.scale):
        latency, predicted = (_percent(x) + "%" if x is not None else "-" for x in (its.latency, its.predicted))
        rows.append((its.phase, its.op, _percent(its.gain) + "%", f"{100 * its.efficiency:.1f}%", latency, predicted))
    yield TableGrid(head, tuple(rows), left=2)


def differences(section: Section) -> Iterator[Tuple[str, ...]]:
    """Yield the rows under DIFFERENCES."""
    for its in section.differences:
        yield its.key, short(its.base), short(its.new)


def line(row: Row) -> Tuple[str, ...]:
    """Return the cells of a row under HEAD."""
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
        verdict(its),
    )


def verdict(comparison: Comparison) -> str:
    """ "worse"; "equivalent (worse)": surely so, and surely within the margin."""
    word = (comparison.verdict or Verdict.INCONCLUSIVE).value
    return f"{word} ({comparison.differs})" if comparison.verdict is Verdict.EQUIVALENT and comparison.differs else word


#: percent from which on an interval tells nothing; of a change, where its ends are so many times apart, too
_WIDE, _APART = 100.0, 10.0


def value(its: Estimate) -> str:
    """ "100.4 ±2.1%": the value and the farther end of the interval, relative; without a known interval "100.4"."""
    if its.low is None or its.high is None:
        return plain(its.value)
    if not its.value:
        return f"{plain(its.value)} ±{plain(max(its.high, -its.low))}"
    wide = 100 * max(its.high - its.value, its.value - its.low) / abs(its.value)
    return f"{plain(its.value)} ±{wide:.1f}%" if wide < _WIDE else plain(its.value)


def change(its: Comparison) -> str:
    """ "-10.3% [-12.1, -8.4]": the interval that the verdict is of."""
    if its.change is None:
        return "-"
    text = _percent(its.change) + "%"
    low, high = its.deciding
    if low is None or high is None:
        return text
    if 100 * (high - low) >= 2 * _WIDE and 1 + high >= _APART * (1 + low):
        return f"{text} [no bounds]"
    return f"{text} [{_percent(low)}, {_percent(high)}]"


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
    return f"{row.comparison.blocks} {row.way}" if row.comparison.blocks else f"{row.runs[0]}+{row.runs[1]}"


def of_rows(rows: Sequence[Row]) -> Iterator[ComparisonWarning]:
    """Yield the warnings of the rows."""
    for row in rows:
        its = row.comparison
        for warning in dict.fromkeys((*its.base.warnings, *its.new.warnings, *its.warnings)):
            yield ComparisonWarning(warning.code, f"{row.phase} {row.op} {row.metric}", warning.text)


_COLOURS = {Severity.INVALID: RED, Severity.WARNING: YELLOW, Severity.INFO: ""}


def notes(warnings: Sequence[ComparisonWarning]) -> Notes:
    """Return the warnings as a list in the colours of their severities."""
    codes = dict.fromkeys(warning.code for warning in warnings)
    return Notes("warnings", tuple(merged(warnings)), tuple(_COLOURS[severity_of(code)] for code in codes))


def merged(warnings: Sequence[ComparisonWarning]) -> Iterator[str]:
    """Yield one sentence for each code: its first warning, and how many more places have it."""
    codes: Dict[str, List[ComparisonWarning]] = {}
    for warning in warnings:
        codes.setdefault(warning.code, []).append(warning)
    for code, its in codes.items():
        places = list(dict.fromkeys(warning.where for warning in its))
        more = f" and {len(places) - 1} more" if len(places) > 1 else ""
        yield f"{code} ({places[0]}{more}): {its[0].text}"


def legend(rules: Rules, rows: Sequence[Row]) -> Iterator[str]:
    """Yield the lines that explain the table."""
    inner = any(row.verdict is Verdict.EQUIVALENT for row in rows)
    of_equivalent = f"; of equivalent rows at {_whole(2 * rules.confidence - 1)}%, which decides them" if inner else ""
    yield (
        f"±: {_whole(rules.confidence)}% confidence interval; in brackets: interval of the change, in percent"
        f"{of_equivalent}"
    )
    ways = {row.way for row in rows}
    if "seconds" in ways:
        yield "n with ~: independent seconds of single runs; values are means over the seconds"
    if ways & {"runs", "pairs", "blocks"}:
        interleaved = ", or interleaved ones that are compared in pairs or blocks" if ways - {"seconds", "runs"} else ""
        yield f"n: runs of the base and of the other side{interleaved}; values are medians"
    keys = sum(row.comparison.key for row in rows)
    corrections = {"Holm's correction over {}": keys, "a false discovery rate over {}": len(rows) - keys}
    told = (
        way.format(f"{n} {name} {'row' if n == 1 else 'rows'}" if 0 < keys < len(rows) else f"{n} rows")
        for (way, n), name in zip(corrections.items(), ("key", "other"))
        if n
    )
    yield f"p: after {', '.join(told)}"
    yield (
        f"better and worse need p < {rules.alpha:g}, equivalent needs a change that is surely within "
        f"{margins(rules, [row.metric for row in rows])}"
    )
    if any(row.verdict is Verdict.EQUIVALENT and row.comparison.differs for row in rows):
        yield "equivalent (worse), (better): it surely differs, and surely by less than the margin"


def margins(rules: Rules, metrics: Iterable[str]) -> str:
    """ "±5% (success rate: ±0.1%)": the margin, and those of metrics that have another."""
    usual = MARGIN if rules.margin is None else rules.margin
    known = {METRICS[metric].title: rules.margin_of(metric) for metric in metrics}
    own = ", ".join(f"{title}: ±{_whole(its)}%" for title, its in known.items() if its != usual)
    return f"±{_whole(usual)}%" + (f" ({own})" if own else "")


def _whole(share: float) -> str:
    return f"{round(100 * share, 9):g}"


#: of the form of the JSON
VERSION = 2

COLUMNS = (
    *("contender", "case", "phase", "op", "metric", "unit"),
    *("base", "base_low", "base_high", "base_n", "new", "new_low", "new_high", "new_n"),
    *("change", "change_low", "change_high", "p", "p_adjusted", "key", "within", "margin"),
    *("inner_low", "inner_high", "differs", "way", "method", "verdict", "warnings"),
)


def flat(row: Row) -> Dict[str, Any]:
    """Return a row under COLUMNS; numbers with ten digits, changes as shares."""
    its = row.comparison
    return {
        "contender": row.contender,
        "case": row.case,
        "phase": row.phase,
        "op": row.op,
        "metric": row.metric,
        "unit": row.unit,
        **_estimate("base", its.base),
        **_estimate("new", its.new),
        "change": number(its.change),
        "change_low": number(its.change_low),
        "change_high": number(its.change_high),
        "p": number(its.p),
        "p_adjusted": number(its.adjusted),
        "key": its.key,
        "within": number(its.within),
        "margin": number(its.margin),
        "inner_low": number(its.inner_low),
        "inner_high": number(its.inner_high),
        "differs": its.differs,
        "way": row.way,
        "method": its.method,
        "verdict": row.verdict.value,
        "warnings": " ".join(dict.fromkeys(c.code for c in (*its.base.warnings, *its.new.warnings, *its.warnings))),
    }


def number(value: Optional[float]) -> Optional[float]:
    """Round to ten digits, because the last digits of a sum depend on the machine; None for nan and infinity."""
    if value is None or value != value or value in (float("inf"), float("-inf")):
        return None
    return float(f"{value:.10g}")


def _estimate(name: str, its: Estimate) -> Dict[str, Any]:
    low, high = number(its.low), number(its.high)
    return {name: number(its.value), f"{name}_low": low, f"{name}_high": high, f"{name}_n": number(its.n)}


def table(compared: Compared) -> List[Sequence[Any]]:
    """Return COLUMNS and a line for each row."""
    return [COLUMNS, *(tuple(flat(row).values()) for row in compared.rows)]


def data(compared: Compared) -> Dict[str, Any]:
    """Return the comparison as plain values; `rows` have an `id` that is equal for the same line of two comparisons."""
    rules = compared.rules
    return {
        "version": VERSION,
        "rules": {
            "margin": MARGIN if rules.margin is None else rules.margin,
            "alpha": rules.alpha,
            "confidence": rules.confidence,
            "paired": rules.paired,
            "scatter": dict(rules.scatter),
            "scale": [rules.scale.base, rules.scale.new] if rules.scale else None,
        },
        "usable": compared.usable,
        "base": _side_data(compared.base.name, compared.base.runs),
        "contenders": [_side_data(side.name, side.runs) for side in compared.contenders],
        "sections": [_section_data(section, rules) for section in compared.sections],
        "not_compared": list(compared.not_compared),
    }


def _side_data(name: str, runs: Any) -> Dict[str, Any]:
    return {
        "name": name,
        "runs": [
            {"source": run.source, "name": run.name, "release": run.label, "started": run.started, "usable": run.usable}
            for run in runs
        ],
    }


def _warning(its: Union[ComparisonWarning, StatisticsWarning]) -> Dict[str, str]:
    return {"code": its.code, "severity": severity_of(its.code).value, "text": its.text}


def _section_data(section: Section, rules: Rules) -> Dict[str, Any]:
    rows: List[Dict[str, Any]] = []
    for row in section.rows:
        its = row.comparison
        warnings = dict.fromkeys((*its.base.warnings, *its.new.warnings, *its.warnings))
        rows.append({"id": row.id, **flat(row), "warnings": [_warning(its) for its in warnings]})
    return {
        "contender": section.contender,
        "case": section.case,
        "differences": [{"key": its.key, "base": its.base, "new": its.new} for its in section.differences],
        "rows": rows,
        "scale": [
            {key: number(value) if isinstance(value, float) else value for key, value in asdict(gain).items()}
            for gain in (gains(section, rules.scale) if rules.scale else ())
        ],
        "missing": [{"row": its.where, "text": its.text} for its in section.missing],
        "warnings": [{**_warning(its), "where": its.where} for its in section.warnings],
    }
