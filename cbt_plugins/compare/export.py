"""A comparison for programs: CSV with a line for each row of the table, JSON with everything."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import asdict
from typing import Any, Dict, List, Optional

from cbt_plugins.compare.scaling import gains
from cbt_plugins.compare.statistics.verdicts import Estimate
from cbt_plugins.compare.table import Compared, Row, Rules, Section

#: of the form of the JSON
VERSION = 1

COLUMNS = (
    *("contender", "case", "phase", "op", "metric", "unit"),
    *("base", "base_low", "base_high", "base_n", "new", "new_low", "new_high", "new_n"),
    *("change", "change_low", "change_high", "p", "p_holm", "within", "way", "method", "verdict", "warnings"),
)


def flat(row: Row) -> Dict[str, Any]:
    """A row under COLUMNS; numbers with ten digits, changes as shares."""
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
        "p_holm": number(its.adjusted),
        "within": number(its.within),
        "way": row.way,
        "method": its.method,
        "verdict": row.verdict.value,
        "warnings": " ".join(dict.fromkeys(c.code for c in (*its.base.warnings, *its.new.warnings, *its.warnings))),
    }


def number(value: Optional[float]) -> Optional[float]:
    """Ten digits: the last ones of a sum depend on the machine. Infinite is unknown."""
    if value is None or value != value or value in (float("inf"), float("-inf")):
        return None
    return float(f"{value:.10g}")


def _estimate(name: str, its: Estimate) -> Dict[str, Any]:
    low, high = number(its.low), number(its.high)
    return {name: number(its.value), f"{name}_low": low, f"{name}_high": high, f"{name}_n": number(its.n)}


def to_csv(compared: Compared) -> str:
    out = io.StringIO()
    writer = csv.DictWriter(out, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(flat(row) for row in compared.rows)
    return out.getvalue()


def to_json(compared: Compared) -> str:
    return json.dumps(data(compared), indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def data(compared: Compared) -> Dict[str, Any]:
    """Plain values. `rows` have an `id` that is equal for the same line of two comparisons."""
    rules = compared.rules
    return {
        "version": VERSION,
        "rules": {
            "margin": rules.margin,
            "alpha": rules.alpha,
            "confidence": rules.confidence,
            "paired": rules.paired,
            "scatter": rules.scatter,
            "scale": [rules.scale.base, rules.scale.new] if rules.scale else None,
        },
        "usable": compared.usable,
        "base": _side(compared.base.name, compared.base.runs),
        "contenders": [_side(side.name, side.runs) for side in compared.contenders],
        "sections": [_section(section, rules) for section in compared.sections],
        "not_compared": list(compared.alone),
    }


def _side(name: str, runs: Any) -> Dict[str, Any]:
    return {
        "name": name,
        "runs": [
            {"source": run.source, "name": run.name, "release": run.label, "started": run.started, "usable": run.usable}
            for run in runs
        ],
    }


def _section(section: Section, rules: Rules) -> Dict[str, Any]:
    rows: List[Dict[str, Any]] = []
    for row in section.rows:
        its = row.comparison
        warnings = dict.fromkeys((*its.base.warnings, *its.new.warnings, *its.warnings))
        rows.append({"id": row.id, **flat(row), "warnings": [{"code": c.code, "text": c.text} for c in warnings]})
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
        "warnings": [{"code": its.code, "where": its.where, "text": its.text} for its in section.warnings],
    }
