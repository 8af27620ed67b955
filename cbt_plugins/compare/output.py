"""A comparison as blocks for people, rows for CSV and data for JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, Dict, Iterable, Iterator, List, Optional, Sequence, Set, Tuple, Union

from cbt_plugins.compare.configuration_differences import short
from cbt_plugins.compare.scaling_gains import gains
from cbt_plugins.compare.sides import ComparisonWarning, Side
from cbt_plugins.compare.statistics.verdicts import Comparison, Estimate, StatisticsWarning, Verdict
from cbt_plugins.compare.table import Compared, Row, Rules, Section
from cbt_plugins.formatting import NONE, in_percent, percent, plain, short_percent, signed_in_percent, signed_percent
from cbt_plugins.formatting.blocks import Block, Heading, Notes, TableGrid, Words
from cbt_plugins.formatting.screen import RED, YELLOW
from cbt_plugins.metrics import MARGIN, METRICS, Metric
from cbt_plugins.warning_kinds import Severity, severity_of

HEAD = ("phase", "op", "metric", "unit", "base", "new", "change", "p", "n", "verdict")
DIFFERENCES = ("configuration differences", "base", "new")
#: paths of a side that are all named
_FEW = 6


def blocks(compared: Compared) -> List[Block]:
    """Return the comparison as blocks, in the order of reading."""
    parts: List[Block] = [Words(tuple(side_lines(compared)))]
    several = len(compared.contenders) > 1
    for section in compared.sections:
        if several or section.case:
            parts.append(Heading(" ".join(filter(None, (section.contender if several else "", section.case)))))
        parts += [
            TableGrid(DIFFERENCES, tuple(differences(section)), left=3),
            *_tables(section.rows),
            *_scale(section, compared.rules),
            Notes("missing numbers", tuple(f"{warning.where}: {warning.text}" for warning in section.missing)),
            notes([*section.warnings, *of_rows(section.rows)]),
        ]
    parts.append(Notes("not compared", compared.not_compared))
    parts.append(Words(tuple(legend(compared.rules, compared.rows))))
    return parts


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
    places = f" in {_places(side.given)}" if side.given != (side.name,) else ""
    bad = sum(not run.usable for run in side.runs)
    warning = f", {bad} unusable" if bad else ""
    return f"{which + ':':<5} {side.name}, {len(side.runs)} {'run' if len(side.runs) == 1 else 'runs'}{places}{warning}"


def _places(given: Sequence[str]) -> str:
    """Return the paths of a side; of many paths the number, the first and the last."""
    return ", ".join(given) if len(given) <= _FEW else f"{len(given)} paths, from {given[0]} to {given[-1]}"


def _scale(section: Section, rules: Rules) -> Iterator[Block]:
    if rules.scale is None:
        return
    head = ("scale-out", "op", "gain", "gain / added", "mean latency", "closed loop predicts")
    rows = []
    for gain in gains(section, rules.scale):
        latency, predicted = map(signed_percent, (gain.latency, gain.predicted))
        rows.append(
            (gain.phase, gain.op, signed_percent(gain.gain), percent(gain.efficiency), latency, predicted)
        )
    yield TableGrid(head, tuple(rows), left=2)


def differences(section: Section) -> Iterator[Tuple[str, ...]]:
    """Yield the rows under DIFFERENCES."""
    for difference in section.differences:
        yield difference.key, short(difference.base), short(difference.new)


def line(row: Row) -> Tuple[str, ...]:
    """Return the cells of a row under HEAD."""
    comparison = row.comparison
    metric = METRICS[row.metric]
    return (
        row.phase,
        row.op,
        metric.title,
        metric.unit,
        value(comparison.base),
        value(comparison.new),
        change_text(comparison),
        chance(comparison.p if comparison.adjusted is None else comparison.adjusted),
        _n(row),
        verdict(comparison),
    )


def verdict(comparison: Comparison) -> str:
    """Return the verdict in words: "worse"; "equivalent (worse)": surely so, and surely within the margin."""
    word = (comparison.verdict or Verdict.INCONCLUSIVE).value
    return f"{word} ({comparison.differs})" if comparison.verdict is Verdict.EQUIVALENT and comparison.differs else word


#: relative width from which on an interval tells nothing; of a change, where its ends are so many times apart, too
_WIDE, _APART = 1.0, 10.0


def value(estimate: Estimate) -> str:
    """Return "100.4 ±2.1 %": the value and the farther end of the interval, relative; without a known interval "100.4".
    """
    if estimate.low is None or estimate.high is None:
        return plain(estimate.value)
    if not estimate.value:
        return f"{plain(estimate.value)} ±{plain(max(estimate.high, -estimate.low))}"
    wide = max(estimate.high - estimate.value, estimate.value - estimate.low) / abs(estimate.value)
    return f"{plain(estimate.value)} ±{percent(wide)}" if wide < _WIDE else plain(estimate.value)


def change_text(comparison: Comparison) -> str:
    """Return "-10.3 % [-12.1, -8.4]": the change, and the interval that the verdict is of."""
    if comparison.change is None:
        return "-"
    low, high = comparison.deciding
    if comparison.unit:
        text = f"{_signed(comparison.change)} {comparison.unit}"
        return text if low is None or high is None else f"{text} [{_signed(low)}, {_signed(high)}]"
    text = signed_percent(comparison.change)
    if low is None or high is None:
        return text
    if high - low >= 2 * _WIDE and 1 + high >= _APART * (1 + low):
        return f"{text} [no bounds]"
    return f"{text} [{signed_in_percent(low)}, {signed_in_percent(high)}]"


def _signed(value: float) -> str:
    return f"{'+' if value > 0 else ''}{_short(value)}"


def _short(value: float) -> str:
    """Return 2 and not 2.000: counts are whole numbers."""
    text = plain(value)
    return text.rstrip("0").rstrip(".") if "." in text else text


def amount(value: float, unit: str) -> str:
    """Return "5 %"; of an additive metric "5 s"."""
    return f"{_short(value)} {unit}" if unit else short_percent(value)


def signed_amount(value: float, unit: str) -> str:
    """Return "+5 %"; of an additive metric "+5 s"."""
    return f"{_signed(value)} {unit}" if unit else signed_percent(value)


def bare_amount(value: float, unit: str) -> str:
    """Return the same without % or the unit, in front of another amount."""
    return _short(value) if unit else in_percent(value)


def change_of(metric: Metric, base: float, new: float) -> str:
    """Return "-10.3 %", "-" from nothing; of an additive metric "+5 s"."""
    if metric.additive:
        return signed_amount(new - base, metric.unit)
    return signed_percent(new / base - 1) if base else NONE


def chance(p: Optional[float]) -> str:
    return "-" if p is None else "<0.001" if p < 0.001 else f"{p:.3f}"


def _n(row: Row) -> str:
    if row.way == "seconds":
        return f"~{row.comparison.base.n:.0f}+{row.comparison.new.n:.0f}"
    return f"{row.comparison.blocks} {row.way}" if row.comparison.blocks else f"{row.runs[0]}+{row.runs[1]}"


def of_rows(rows: Sequence[Row]) -> Iterator[ComparisonWarning]:
    """Yield the warnings of the rows."""
    for row in rows:
        for warning in row.comparison.all_warnings:
            yield ComparisonWarning(warning.code, f"{row.phase} {row.op} {row.metric}", warning.text, row.key)


_COLOURS = {Severity.INVALID: RED, Severity.WARNING: YELLOW, Severity.INFO: ""}


def notes(warnings: Sequence[ComparisonWarning]) -> Notes:
    """Return the warnings as a list in the colours of their severities."""
    codes = dict.fromkeys(warning.code for warning in warnings)
    return Notes("warnings", tuple(merged_warnings(warnings)), tuple(_COLOURS[severity_of(code)] for code in codes))


def merged_warnings(warnings: Sequence[ComparisonWarning]) -> Iterator[str]:
    """Yield one sentence for each code: its first warning, and how many more places have it.

    The rows of a run's warning are no more places.
    """
    codes: Dict[str, List[ComparisonWarning]] = {}
    for warning in warnings:
        codes.setdefault(warning.code, []).append(warning)
    for code, group in codes.items():
        of_runs = [warning for warning in group if not any(warning.key)]
        places = list(dict.fromkeys(warning.where for warning in of_runs or group))
        suffix = f" and {len(places) - 1} more" if len(places) > 1 else ""
        yield f"{code} ({places[0]}{suffix}): {(of_runs or group)[0].text}"


def legend(rules: Rules, rows: Sequence[Row], counts: bool = True) -> Iterator[str]:
    """Yield the lines that explain the table; `counts`: it has the column n."""
    inner = any(row.verdict is Verdict.EQUIVALENT for row in rows)
    of_equivalent = (
        f"; of equivalent rows at {percent(2 * rules.confidence - 1, 'g')}, which decides them" if inner else ""
    )
    in_units = " or in the unit of the metric" if any(row.comparison.unit for row in rows) else ""
    yield (
        f"±: {percent(rules.confidence, 'g')} confidence interval; in brackets: interval of the change, in "
        f"percent{in_units}{of_equivalent}"
    )
    yield from _of_values({row.way for row in rows}, counts)
    keys = sum(row.comparison.key for row in rows)
    corrections = {"Holm's correction over {}": keys, "a false discovery rate over {}": len(rows) - keys}
    phrases = (
        way.format(f"{n} {name} {'row' if n == 1 else 'rows'}" if 0 < keys < len(rows) else f"{n} rows")
        for (way, n), name in zip(corrections.items(), ("key", "other"))
        if n
    )
    yield f"p: after {', '.join(phrases)}"
    yield (
        f"better and worse need p < {rules.alpha:g}, equivalent needs a change that is surely within "
        f"{margins(rules, [row.metric for row in rows])}"
    )
    if any(row.verdict is Verdict.EQUIVALENT and row.comparison.differs for row in rows):
        yield "equivalent (worse), (better): the change is surely not 0, and surely smaller than the margin"


def _of_values(ways: Set[str], counts: bool) -> Iterator[str]:
    """Yield the lines about the column n, if there is one, and about the values."""
    if "seconds" in ways:
        of_n = "n with ~: independent seconds of single runs; values" if counts else "values of single runs"
        yield f"{of_n} are means over the seconds"
    if "repetitions" in ways:
        of_n = "n of a failure: its repetitions in the run of each side; values" if counts else "values of failures"
        yield f"{of_n} are medians"
    if ways & {"runs", "pairs", "blocks"}:
        interleaved = ", or interleaved ones that are compared in pairs or blocks" if ways - {"seconds", "runs"} else ""
        of_n = f"n: runs of the base and of the other side{interleaved}; values" if counts else "values of several runs"
        yield f"{of_n} are medians"
    if ways & {"runs", "pairs", "blocks", "repetitions"}:
        yield "change: estimated from all runs together, not from the two medians"


def margins(rules: Rules, metrics: Iterable[str]) -> str:
    """Return "±5 % (success rate: ±0.1 %)": the margin, and the margins of metrics that have another."""
    usual = MARGIN if rules.margin is None else rules.margin
    by_title = {METRICS[metric].title: (rules.margin_of(metric), METRICS[metric]) for metric in metrics}
    own = ", ".join(
        f"{title}: ±{f'{margin:g} {metric.unit}' if metric.additive else percent(margin, 'g')}"
        for title, (margin, metric) in by_title.items()
        if metric.additive or margin != usual
    )
    return f"±{percent(usual, 'g')}" + (f" ({own})" if own else "")


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
    comparison = row.comparison
    return {
        "contender": row.contender,
        "case": row.case,
        "phase": row.phase,
        "op": row.op,
        "metric": row.metric,
        "unit": row.unit,
        **_estimate("base", comparison.base),
        **_estimate("new", comparison.new),
        "change": number(comparison.change),
        "change_low": number(comparison.change_low),
        "change_high": number(comparison.change_high),
        "p": number(comparison.p),
        "p_adjusted": number(comparison.adjusted),
        "key": comparison.key,
        "within": number(comparison.within),
        "margin": number(comparison.margin),
        "inner_low": number(comparison.inner_low),
        "inner_high": number(comparison.inner_high),
        "differs": comparison.differs,
        "way": row.way,
        "method": comparison.method,
        "verdict": row.verdict.value,
        "warnings": " ".join(dict.fromkeys(warning.code for warning in comparison.all_warnings)),
    }


def number(value: Optional[float]) -> Optional[float]:
    """Round to ten digits, because the last digits of a sum depend on the machine; None for nan and infinity."""
    if value is None or value != value or value in (float("inf"), float("-inf")):
        return None
    return float(f"{value:.10g}")


def _estimate(name: str, estimate: Estimate) -> Dict[str, Any]:
    low, high = number(estimate.low), number(estimate.high)
    return {name: number(estimate.value), f"{name}_low": low, f"{name}_high": high, f"{name}_n": number(estimate.n)}


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


def _warning(warning: Union[ComparisonWarning, StatisticsWarning]) -> Dict[str, str]:
    return {"code": warning.code, "severity": severity_of(warning.code).value, "text": warning.text}


def _section_data(section: Section, rules: Rules) -> Dict[str, Any]:
    rows: List[Dict[str, Any]] = [
        {"id": row.id, **flat(row), "warnings": list(map(_warning, row.comparison.all_warnings))}
        for row in section.rows
    ]
    return {
        "contender": section.contender,
        "case": section.case,
        "differences": [
            {"key": difference.key, "base": difference.base, "new": difference.new}
            for difference in section.differences
        ],
        "rows": rows,
        "scale": [
            {key: number(value) if isinstance(value, float) else value for key, value in asdict(gain).items()}
            for gain in (gains(section, rules.scale) if rules.scale else ())
        ],
        "missing": [{"row": warning.where, "text": warning.text} for warning in section.missing],
        "warnings": [{**_warning(warning), "where": warning.where} for warning in section.warnings],
    }
