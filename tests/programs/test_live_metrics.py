"""The metrics of a run that goes on, as prometheus_client's parser reads them, and Grafana's dashboard."""

from __future__ import annotations

import json
import re
import shutil
from contextlib import closing
from pathlib import Path
from typing import Any, Dict, Iterator, List, Tuple

import pytest
from archive_builder import COPIED, HALF
from prometheus_client.openmetrics import parser

from cbt_plugins.journal import Journal
from cbt_plugins.report.live_metrics import BORDERS, histogram_lines, metrics
from cbt_plugins.results.histogram import Histogram
from cbt_plugins.results.live_run import LiveRun

DASHBOARD = Path(__file__).resolve().parents[2] / "cbt_plugins" / "report" / "grafana-live.json"


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LiveRun]:
    folder = tmp_path / "results" / "00000000" / "id-1a2b3c4d"
    shutil.copytree(HALF, folder)
    monkeypatch.setattr("time.time", lambda: COPIED)
    with closing(Journal(folder / "journal.jsonl")):
        yield LiveRun(folder)


def families(run: LiveRun) -> Dict[str, Any]:
    text = metrics(run.moment(), run.aggregates)
    assert text.endswith("# EOF\n")
    return {family.name: family for family in parser.text_string_to_metric_families(text)}


def test_the_metrics_are_openmetrics_with_histograms(run: LiveRun) -> None:
    found = families(run)
    assert found["cbt_request_latency_seconds"].type == "histogram"
    assert found["cbt_request_latency_seconds"].unit == "seconds"
    assert {sample.labels["op"] for sample in found["cbt_object_bytes"].samples} == {"GET", "PUT", "STAT", "DELETE"}
    (fault,) = found["cbt_fault_in_force"].samples
    assert (fault.labels["label"], fault.labels["kind"], fault.value) == ("node-a", "stop", 1.0)
    assert not any("quantile" in sample.labels for family in found.values() for sample in family.samples)


def test_the_buckets_are_those_of_the_requests(run: LiveRun) -> None:
    samples = families(run)["cbt_request_latency_seconds"].samples
    assert run.aggregates is not None
    for op, of in run.aggregates.ops.items():
        mine = [sample for sample in samples if sample.labels["op"] == op]
        buckets = {sample.labels["le"]: sample.value for sample in mine if sample.name.endswith("_bucket")}
        assert list(buckets.values()) == sorted(buckets.values())
        assert buckets["+Inf"] == of.latency.n
        assert next(sample.value for sample in mine if sample.name.endswith("_sum")) == of.latency.total / 1e9
        for q in (0.5, 0.99):
            ms = of.latency.quantile(q) / 1e6
            below = max((float(le) for le, n in buckets.items() if n < q * of.latency.n), default=0.0)
            above = min(float(le) for le, n in buckets.items() if n >= q * of.latency.n)
            assert below * 1e3 <= ms * 1.001 and ms <= above * 1e3 * 1.001


def test_a_border_counts_what_is_below_it() -> None:
    histogram = Histogram()
    histogram.record([50_000, 99_000, 101_000, 1_000_000_000, 200_000_000_000])
    lines = {labels["le"]: value for suffix, labels, value in histogram_lines({}, histogram) if suffix == "_bucket"}
    assert len(BORDERS) == len(set(BORDERS)) and list(BORDERS) == sorted(BORDERS)
    assert (lines["0.0001"], lines["0.00015"], lines["0.7"], lines["1.5"], lines["100.0"]) == (2, 3, 3, 4, 4)
    assert lines["+Inf"] == 5


def test_latencies_without_buckets_are_no_histogram(run: LiveRun) -> None:
    """Of hsbench only the count and the sum are known: buckets without requests would give a p50 of 100 s."""
    moment = run.moment()
    assert run.aggregates is not None
    latency = run.aggregates.ops["GET"].latency
    latency.drop_buckets()
    text = metrics(moment, run.aggregates)
    by_name = {family.name: family for family in parser.text_string_to_metric_families(text)}
    with_buckets = {sample.labels["op"] for sample in by_name["cbt_request_latency_seconds"].samples}
    assert with_buckets == {"PUT", "STAT", "DELETE"}
    samples = by_name["cbt_request_mean_latency_seconds"].samples
    assert {sample.name.rpartition("_")[2]: (sample.labels["op"], sample.value) for sample in samples} == {
        "count": ("GET", latency.n),
        "sum": ("GET", latency.total / 1e9),
    }


def test_texts_of_an_archive_end_no_label(run: LiveRun) -> None:
    moment = {**run.moment(), "run": 'a"b\\c\nd', "phase": None}
    found = {family.name: family for family in parser.text_string_to_metric_families(metrics(moment, None))}
    assert found["cbt_run_going_on"].samples[0].labels["run"].startswith('a"b\\c')
    assert "cbt_request_latency_seconds" not in found


def test_the_dashboard_asks_for_metrics_that_exist(run: LiveRun) -> None:
    names = {sample.name for family in families(run).values() for sample in family.samples}
    dashboard = json.loads(DASHBOARD.read_text())
    queries: List[str] = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())]
    queries += [v["query"] for v in dashboard["templating"]["list"] if v["type"] == "query"]
    asked = {name for query in queries for name in re.findall(r"\bcbt_[a-z_]+", query)}
    assert asked and asked <= names
    assert {"cbt_request_latency_seconds_bucket", "cbt_pgs_not_clean", "cbt_fault_in_force"} <= asked


def lost(given: Any, kept: Any, path: Tuple[Any, ...] = ()) -> Iterator[Tuple[Any, ...]]:
    """Yield where `kept` lacks a value of `given`."""
    if isinstance(given, dict) and isinstance(kept, dict):
        for key, value in given.items():
            yield from lost(value, kept.get(key), (*path, key))
    elif isinstance(given, list) and isinstance(kept, list) and len(given) == len(kept):
        for i, value in enumerate(given):
            yield from lost(value, kept[i], (*path, i))
    elif given != kept:
        yield path


def test_the_types_of_grafana_have_all_of_the_dashboard() -> None:
    """But for fields of an annotation that are those of Prometheus: the types have the fields of all databases."""
    pytest.importorskip(
        "grafana_foundation_sdk", reason="NO GRAFANA SDK (PyPI: grafana-foundation-sdk): nobody has read the dashboard"
    )
    from grafana_foundation_sdk.cog.encoder import JSONEncoder
    from grafana_foundation_sdk.cog.plugins import register_default_plugins
    from grafana_foundation_sdk.models.dashboard import Dashboard

    register_default_plugins()
    dashboard = json.loads(DASHBOARD.read_text())
    kept = json.loads(JSONEncoder().encode(Dashboard.from_json(dashboard)))
    annotation = ("annotations", "list", 0)
    assert set(lost(dashboard, kept)) <= {(*annotation, key) for key in ("titleFormat", "textFormat", "step")}
