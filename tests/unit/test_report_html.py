"""The page: everything in it, nothing from elsewhere, and nothing of the archive is taken for markup."""

from __future__ import annotations

import html.parser
import json
import re
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple

import analysis_archives as made
import pytest

from cbt_plugins.analysis.summary import summarize
from cbt_plugins.report.downsample import chart_data, factor, highs, lows, means, weighted

pytest.importorskip("jinja2")

from cbt_plugins.report.html import page


class Elements(html.parser.HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: List[Tuple[str, Dict[str, Optional[str]]]] = []
        self.text = ""
        self._inside = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        self._inside = tag

    def handle_data(self, data: str) -> None:
        if self._inside not in ("script", "style"):
            self.text += data + " "


def elements(text: str) -> Elements:
    parser = Elements()
    parser.feed(text)
    return parser


def rendered(tmp_path: Path) -> str:
    directory = made.small(tmp_path)
    return page(summarize(directory), directory)


def test_nothing_is_loaded_from_elsewhere(tmp_path: Path) -> None:
    for tag, attributes in elements(rendered(tmp_path)).found:
        assert tag not in ("link", "img", "iframe", "object", "embed", "base", "form")
        assert not {"src", "style", "onclick", "onload"} & set(attributes), (tag, attributes)
        assert str(attributes.get("href", "#")).startswith("#"), (tag, attributes)


def test_the_policy_allows_its_own_blocks_only(tmp_path: Path) -> None:
    policy = next(a["content"] for t, a in elements(rendered(tmp_path)).found if a.get("http-equiv"))
    assert policy is not None
    assert re.fullmatch(
        r"default-src 'none'; style-src 'sha256-[\w+/]{43}='; script-src 'sha256-[\w+/]{43}='; "
        r"base-uri 'none'; form-action 'none'",
        policy,
    )


def test_texts_of_the_archive_are_no_markup(tmp_path: Path) -> None:
    directory = made.run(tmp_path, phases=["<i>x</i>"])
    bad = '</script><script>alert("1")</script>'
    rows = [made.row("GET", 1 + i / 10, 0.1, error=bad if i % 2 else "") for i in range(50)]
    made.phase(
        directory,
        1,
        "x",
        [made.job("g", "GET", rows, driver=bad, node=bad)],
        books=[{"bucket": bad, "ok": False}],
    )
    data = json.loads((directory / "phases" / "01-x" / "phase.json").read_text())
    (directory / "phases" / "01-x" / "phase.json").write_text(json.dumps({**data, "name": bad}))
    text = page(summarize(directory), directory)
    assert "<script>alert" not in text
    assert text.count("<script") == 2
    assert "fsid = &lt;/script&gt;&lt;b&gt;&amp;" in text


def test_what_is_in_it(tmp_path: Path) -> None:
    text = " ".join(elements(rendered(tmp_path)).text.split())
    for part in (
        "Whole run, 1 warning",
        "GET is 50.0 % of the requests, 67 % were asked for",
        "New against aged",
        "no significance is claimed",
        "-50.0 %",
        "latency = 4.00 requests in flight for 4 workers (0.0 %)",
        "http://rgw2:7480",
        "cbt_plugins 0.1.0",
        "6.1.0-44-amd64",
        "default.rgw.buckets.data",
        "replicated, 3 copies",
        "cluster/before/ceph.conf",
        "plan.json",
        "Little's law",
    ):
        assert part in text, part


def test_every_number_is_the_summary_s(tmp_path: Path) -> None:
    directory = made.small(tmp_path)
    summary = summarize(directory)
    summary["phases"][0]["ops"]["GET"]["latency_ms"]["p99"] = 1234567.0
    summary["phases"][1]["total"]["obj_per_s"] = 7654321.0
    text = page(summary, directory)
    # in the summary and in the phase's table
    assert text.count("1,234,567") == 2
    assert text.count("7,654,321") == 2


def test_a_run_with_nothing(tmp_path: Path) -> None:
    directory = made.run(tmp_path, complete=False)
    text = page(summarize(directory), directory)
    assert "Partial: these are not the numbers of a whole run" in text
    assert "the run has no end marker" in text


def test_downsampling_keeps_means_and_extremes() -> None:
    values = [float(i % 17) for i in range(6000)]
    group = factor(len(values))
    assert group == 3
    assert len(means(values, group)) == 2000
    assert sum(v or 0 for v in means(values, group)) / 2000 == pytest.approx(sum(values) / 6000)
    assert (min(lows(values, group)), max(highs(values, group))) == (0, 16)  # type: ignore[type-var]
    assert factor(2000) == 1
    assert (factor(2001), len(means([1.0] * 2001, 2))) == (2, 1001)


def test_downsampling_weighs_means_and_keeps_holes() -> None:
    assert weighted([10.0, 40.0, None, None], [2.0, 1.0, 0.0, 0.0], 2) == [20.0, None]
    assert means([None, None, 1.0, None], 2) == [None, 1.0]
    assert highs([None, None, 1.0, 3.0], 2) == [None, 3.0]


def test_a_long_phase_stays_small() -> None:
    n = 7200
    its: Dict[str, Any] = {
        key: [1.5] * n for key in ("obj_per_s", "mib_per_s", "mean_ms", "p50_ms", "p99_ms", "max_ms")
    }
    its["errors"] = [1] * n
    pgs = {"t": list(range(n)), "not_clean": [0] * (n - 1) + [7], "total": [9] * n}
    bins = {"start": 0, "step": 19}
    data = chart_data({**bins, "percentiles": bins, "ops": {"GET": its}, "pgs": pgs})
    assert data["step"] == 76
    assert {len(v) for v in data["ops"]["GET"].values()} == {1800}
    assert sum(data["ops"]["GET"]["errors"]) == n
    assert len(data["pgs"]["t"]) == len(data["pgs"]["not_clean"]) == 1800
    assert data["pgs"]["not_clean"][-1] == 7


def test_percentiles_have_bins_of_their_own() -> None:
    its: Dict[str, Any] = {"obj_per_s": [1.0] * 10, "mib_per_s": None, "mean_ms": [1.0] * 10, "errors": [0] * 10}
    its.update(p50_ms=[1.0] * 3, p99_ms=[5.0, None, 7.0], max_ms=[1.0] * 10)
    # points of 20 s from 130 on, percentiles of a minute from 120 on
    series = {"start": 130, "step": 10, "percentiles": {"start": 120, "step": 60}, "ops": {"GET": its}}
    data = chart_data({**series, "pgs": {"t": [], "not_clean": [], "total": []}}, points=5)
    assert data["step"] == 20
    assert data["ops"]["GET"]["p99"] == [5.0, 5.0, 5.0, None, None]


def both_engines(tmp_path: Path) -> Path:
    """A run with what cbt-hybrid adds: an open loop, beats, two sizes, a verify phase, warp on the same mix."""
    directory = made.run(tmp_path, phases=["new", "open", "warp", "verify"])
    rows = [*made.steady("GET", workers=2, seconds=14, latency=0.01, begin=-2, size=4096)]
    rows += made.steady("PUT", workers=2, seconds=14, latency=0.02, begin=-2, size=70_000)
    rows += made.steady("GET", workers=1, seconds=14, latency=0.02, begin=-2, size=70_000)
    asked = {"duration": 10.0, "mix": {"GET": 71.4, "PUT": 28.6}}
    one = made.hybrid("h", rows, workers=5)
    path = made.phase(directory, 1, "new", [one], engine="hybrid", asked=asked, as_figures=True)
    beat = {"node": "client1", "jobs": {"h": {"ops": 1, "state": "running", "in_flight": 5, "oldest": 0.25}}}
    (path / "heartbeat.jsonl").write_text("".join(json.dumps({"t": made.T0 + i, **beat}) + "\n" for i in range(10)))
    count = len(rows)
    end = {"issued": {"GET": count}, "began": made.T0 - 2.0, "ended": made.T0 + 12.0}
    two = made.hybrid("o", rows, rate_limit=count / 14, end=end)
    more = {**asked, "rate": count / 14, "arrivals": "even"}
    made.phase(directory, 2, "open", [two], engine="hybrid", asked=more, as_figures=True, role="none")
    made.phase(directory, 3, "warp", [made.job("w", "MIXED", rows, workers=5)], kind="warp", asked=asked, role="none")
    three = made.hybrid("v", made.steady("GET", workers=4, seconds=9, latency=0.01, size=4096))
    about: Dict[str, Any] = {"kind": "verify", "role": "none", "engine": "hybrid", "asked": {"duration": None}}
    made.phase(directory, 4, "verify", [three], window=(0.01, 9.0), as_figures=True, **about)
    return directory


def test_what_cbt_hybrid_adds_is_in_it(tmp_path: Path) -> None:
    directory = both_engines(tmp_path)
    summary = summarize(directory)
    assert summary["warnings"] == []
    text = " ".join(elements(page(summary, directory)).text.split()).replace(" ,", ",")
    for part in (
        "Two engines, one mix",
        "warp mixed reads objects that it has just written itself",
        "open loop: 350.0 requests/s asked, 350.0 issued (0.0 %)",
        "in flight at its begin 5, at its end 5",
        "4 KiB to 8 KiB GET 200.0",
        "64 KiB to 128 KiB GET 50.00",
        "3,600 objects read and compared: all that were read are what had been written; 0 could not be read",
        "Requests under way, per driver",
    ):
        assert part in text, part


def test_what_was_broken_is_shaded_and_in_tables(tmp_path: Path) -> None:
    directory = made.small(tmp_path)
    summary = summarize(directory)
    (name, *_) = [phase["name"] for phase in summary["phases"]]
    line = {"obj_per_s": 12.0, "obj_per_s_percent": 54.5, "mib_per_s": 1.0, "mib_per_s_percent": 54.5, "p50_ms": 3.0}
    line.update(p99_ms=99.0, longest_gap=2.5, silent_seconds=2, errors=7)
    episode = {"kind": "failure", "labels": ["node-a"], "outcome": "recovered", "recovery": None}
    episode["milestones"] = [{"title": "first OSD down", "seconds": 0.25, "reason": None, "value": None}]
    cluster = {"degraded": [0, 9, 4], "misplaced": [0, 0, 1], "objects_per_s": [0.0, 3.0, 2.0]}
    summary["failure"] = {
        "milestones": {"episodes": [episode]},
        "impact": {"baseline": {"phase": "calm"}, "phases": [{"phase": name, "states": [{"state": "degraded"}]}]},
        "timelines": {
            name: {
                "start": 100,
                "step": 1,
                "windows": [{"state": "degraded", "labels": ["node-a"], "from": 1.0, "to": 3.0}],
                "marks": [{"at": 1.0, "title": "first OSD down", "kind": "failure", "labels": ["node-a"]}],
                "cluster": cluster,
            }
        },
    }
    summary["failure"]["impact"]["phases"][0]["states"][0].update(seconds=2.0, total=line)
    html = page(summary, directory)
    text = " ".join(elements(html).text.split())
    parts = ("failure of node-a: recovered", "first OSD down 0.250", "percent of calm", "degraded 2.000 12.00 54.50")
    for part in parts:
        assert part in text, part
    assert 'data-chart="copies"' in html
    data = json.loads(html.split('id="data">')[1].split("</script>")[0])
    assert data["phases"][0]["failure"]["degraded"] == [0, 9, 4]
    summary["failure"]["timelines"][name]["windows"][0]["state"] = "no failure"
    assert 'data-chart="copies"' not in page(summary, directory)
