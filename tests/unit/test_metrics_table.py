"""The table of metrics in docs/SUMMARY.md is that of cbt_plugins/metrics.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from cbt_plugins.compare.gate import limit
from cbt_plugins.metrics import METRICS, Metric, MetricSource

PAGE = Path(__file__).parents[2] / "docs" / "SUMMARY.md"
OF = {
    MetricSource.OPERATION: "an operation, or all",
    MetricSource.NODES: "all operations",
    MetricSource.CLASS: "a class of daemons",
    MetricSource.THREADS: "a class of daemons, or a thread group",
    MetricSource.LADDER: "a ladder",
    MetricSource.EPISODE: "a failure or return",
    MetricSource.LOSS: "a failure or return, and an operation or all",
    MetricSource.LOSSES: "a failure or return",
    MetricSource.IMPORTED: "results of other programs",
}


def row(metric: Metric) -> str:
    first = metric.text[0] if metric.text[1].isupper() else metric.text[0].lower()
    text = f"{metric.title}: {first}{metric.text[1:-1]}"
    return f"| `{metric.key}` | {metric.unit or 'ratio'} | {metric.direction.value} | {text} | {OF[metric.source]} |"


def test_each_metric_has_its_row() -> None:
    table = PAGE.read_text().partition("\n## Metrics\n")[2].partition("\n## ")[0]
    assert [line for line in table.splitlines() if line.startswith("| `")] == [row(m) for m in METRICS.values()]


def test_an_unknown_metric_of_a_limit_is_answered_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match="unknown metric p99ms: did you mean p99_ms"):
        limit("GET.p99ms", "10%")
    with pytest.raises(ValueError, match=r"unknown metric foo: the metrics are obj_per_s, mib_per_s, .*rgw_osd_ratio"):
        limit("foo", "10%")
