"""Every warning has a kind, and every kind one severity."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Iterator

import archive_builder as made
import pytest

import cbt_plugins

pytest.importorskip("scipy")

from cbt_plugins.compare.output import data
from cbt_plugins.compare.sides import sides
from cbt_plugins.compare.table import compare
from cbt_plugins.formatting import several
from cbt_plugins.metrics import METRICS, MetricSource, from_source
from cbt_plugins.report.export.teuthology import write_collected
from cbt_plugins.results.run_record import UNREADABLE
from cbt_plugins.results.sql.summary_tables import TABLES
from cbt_plugins.results.sql.table_type import TableRun
from cbt_plugins.results.summary_file import summarize
from cbt_plugins.warning_kinds import KINDS, Severity, by_kind, counted, forbids_verdict, severity_of

_MAKERS = ("warn", "_abort", "ResultWarning", "StatisticsWarning", "ComparisonWarning")


def codes_of(tree: ast.AST) -> Iterator[str]:
    """Yield the codes of the warnings that a module makes: {"code": "x", ...}, warn("x", ...), ...Warning("x", ...)."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Dict):
            found += [value for key, value in zip(node.keys, node.values) if getattr(key, "value", None) == "code"]
        elif isinstance(node, ast.Call) and node.args:
            name = getattr(node.func, "attr", None) or getattr(node.func, "id", None)
            found += node.args[:1] if name in _MAKERS else []
    for value in found:
        ends = [value.body, value.orelse] if isinstance(value, ast.IfExp) else [value]
        yield from (end.value for end in ends if isinstance(end, ast.Constant) and isinstance(end.value, str))


def test_every_warning_of_the_program_is_a_kind() -> None:
    found = {UNREADABLE}
    for path in Path(cbt_plugins.__file__).parent.rglob("*.py"):
        found.update(codes_of(ast.parse(path.read_text(encoding="utf-8"))))
    assert len(found) > 90
    assert found - set(KINDS) == set()


def test_what_is_invalid_forbids_a_verdict_and_what_informs_forbids_none() -> None:
    for kind in KINDS.values():
        assert kind.text and kind.text == kind.text.rstrip(".")
        assert kind.forbids_verdict or kind.severity is not Severity.INVALID, kind
        assert not (kind.forbids_verdict and kind.severity is Severity.INFO), kind
    # another distribution's importer may have kinds of its own
    assert severity_of("agent-lost") is Severity.WARNING and not forbids_verdict("agent-lost")


def test_a_gap_forbids_verdicts_on_what_nodes_used_and_on_nothing_else() -> None:
    of_nodes = (MetricSource.CLASS, MetricSource.NODES, MetricSource.THREADS)
    used = {metric.key for source in of_nodes for metric in from_source(source)}
    assert {key for key in METRICS if forbids_verdict("resources-gap", key)} == used
    assert forbids_verdict("resources-gap") and forbids_verdict("job-lost", "p99_ms")


def test_one_text_for_each_kind_with_what_it_covers() -> None:
    said = [
        {"code": "few-samples", "text": "too few", "phase": "new"},
        {"code": "errors", "text": "3 of 9 GET failed", "phase": "new"},
        {"code": "incomplete", "text": "no end"},
        {"code": "errors", "text": "1 of 9 GET failed", "phase": "aged"},
        {"code": "agent-lost", "text": "it went"},
    ]
    groups = by_kind(said)
    assert [(its.word, its.text, its.about) for its in groups] == [
        ("invalid", "the run has no end marker", ("no end",)),
        ("warning", "requests failed", ("new: 3 of 9 GET failed", "aged: 1 of 9 GET failed")),
        ("warning", "agent-lost", ("it went",)),
        ("note", KINDS["few-samples"].text, ("new: too few",)),
    ]
    assert counted(said) == "3 warnings, 1 note"
    assert counted(said[:1]) == "no warnings, 1 note"
    assert counted(said[1:2]) == "1 warning"


@pytest.mark.parametrize(("n", "text"), [(0, "0 workers"), (1, "1 worker"), (2, "2 workers"), (2000, "2,000 workers")])
def test_one_is_no_plural(n: int, text: str) -> None:
    assert several(n, "worker") == text


def test_what_reads_results_gets_the_severity(tmp_path: Path) -> None:
    """The collected JSON, SQL's table and a comparison."""
    run, other = made.small(tmp_path / "a"), made.small(tmp_path / "b")
    summary = summarize(run)
    assert [(its["code"], its["severity"]) for its in summary["warnings"]] == [("mix", "warning")]
    _, aged = write_collected(summary, run)
    assert json.loads(aged.read_text())["warnings"] == {"mix": "warning"}
    (table,) = (its for its in TABLES if its.name == "warnings")
    (columns,) = table.fill(TableRun(run, run.name, True))
    assert (list(columns["code"]), list(columns["severity"])) == (["mix"], ["warning"])
    base, new = sides([[run], [other]])
    told = data(compare(base, [new]))["sections"][0]["warnings"]
    assert {(its["code"], its["severity"]) for its in told if its["code"] == "mix"} == {("mix", "warning")}
