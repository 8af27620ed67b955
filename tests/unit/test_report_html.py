"""The page: everything in it, nothing from elsewhere, and nothing of the archive is taken for markup."""

from __future__ import annotations

import html.parser
import json
import re
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple

import archive_builder as made
import pytest
from page_archive import add_failure, add_resources, both_engines, without_windows

from cbt_plugins.formatting.formats.terminal import Terminal
from cbt_plugins.report.chart_data import factor, flight_data, highs, lows, means, phase_charts, series_data, weighted
from cbt_plugins.results.environment import hardware
from cbt_plugins.results.histogram import tail_quantiles
from cbt_plugins.results.summary_file import summarize

pytest.importorskip("jinja2")

from cbt_plugins.metrics import LATENCIES, RATES
from cbt_plugins.report import result_text
from cbt_plugins.report.page import headline, index_page, run_page


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


def data_of(page: str) -> Dict[str, Any]:
    """What the page's charts are drawn from."""
    found: Dict[str, Any] = json.loads(page.split('id="data">')[1].split("</script>")[0])
    return found


def rendered(tmp_path: Path) -> str:
    directory = made.small(tmp_path)
    return run_page(summarize(directory), directory)


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
    bad, name = '</script><script>alert("1")</script>', "<script>alert(1)<!--"
    rows = [made.row("GET", 1 + i / 10, 0.1, error=bad if i % 2 else "") for i in range(50)]
    made.phase(
        directory,
        1,
        name,
        [made.job("g", "GET", rows, driver=bad, node=bad)],
        accounting=[{"bucket": bad, "ok": False}],
    )
    text = run_page(summarize(directory), directory)
    assert "<script>alert" not in text and "&lt;script&gt;alert(1)&lt;!--" in text
    assert text.count("<script") == 2
    assert "fsid = &lt;/script&gt;&lt;b&gt;&amp;" in text


def test_what_is_in_it(tmp_path: Path) -> None:
    text = " ".join(elements(rendered(tmp_path)).text.split())
    for part in (
        "Complete run, 1 warning",
        "GET is 50.0 % of the requests, 67 % were asked for",
        "New and aged",
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


def test_an_arrow_shows_the_better_way_and_claims_nothing(tmp_path: Path) -> None:
    directory = made.small(tmp_path)
    summary = summarize(directory)
    changes = {"obj_per_s": -0.2, "mean_ms": 0.3, "p99_ms": -0.4}
    for line in summary["new_vs_aged"]["lines"]:
        line["change"] = changes.get(line["metric"], 0.0) if line["op"] == "GET" else 0.01
    html = run_page(summary, directory)
    table = html[html.index('id="aging"') :].split("</table>")[0]
    cells = re.findall(r'<td class="main">([^<]*)</td>', table)
    assert cells[:4] == ["\u25bc -20.0 %", "\u25bc +30.0 %", "\u25b2 -40.0 %", "+1.0 %"]
    assert "better" not in "".join(re.findall(r'class="([^"]*)"', table)), "a colour is a verdict"


def test_every_number_is_the_summary_s(tmp_path: Path) -> None:
    directory = made.small(tmp_path)
    summary = summarize(directory)
    summary["phases"][0]["ops"]["GET"]["latency_ms"]["p99"] = 1234567.0
    summary["phases"][1]["total"]["obj_per_s"] = 7654321.0
    text = run_page(summary, directory)
    # in the summary and in the phase's table
    assert text.count("1,234,567") == 2
    assert text.count("7,654,321") == 2


def test_a_run_with_nothing(tmp_path: Path) -> None:
    directory = made.run(tmp_path, complete=False)
    text = run_page(summarize(directory), directory)
    assert "Incomplete run: do not use these numbers" in text
    assert "the run has no end marker" in text


def test_phases_without_a_window_are_in_no_time_of_the_run(tmp_path: Path) -> None:
    pages = []
    for directory in (made.small(tmp_path / "a"), without_windows(tmp_path / "b")):
        summary = summarize(directory)
        pages.append(run_page(summary, directory))
    headers = [page[page.index("<header") : page.index("</header>")] for page in pages]
    assert "2023-11-14 22:13:20 UTC to 2023-11-14 22:15:10 UTC, 110.0 s" in headers[0]
    assert headers[1] == headers[0]
    index = index_page([(directory, summary)], tmp_path)
    assert "2023-11-14 22:13:20 UTC" in index


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
    data = series_data({**bins, "percentiles": bins, "ops": {"GET": its}, "pgs": pgs})
    assert data["step"] == 76
    assert {len(v) for v in data["ops"]["GET"].values()} == {1800}
    assert sum(data["ops"]["GET"]["errors"]) == n
    assert len(data["pgs"]["t"]) == len(data["pgs"]["not_clean"]) == 1800
    assert data["pgs"]["not_clean"][-1] == 7


def test_a_time_without_samples_is_a_hole_between_the_pgs() -> None:
    bins = {"start": 0, "step": 1, "percentiles": {"start": 0, "step": 1}, "ops": {}}
    t = [*range(0, 100, 2), *range(3700, 3800, 2)]
    pgs = series_data({**bins, "pgs": {"t": t, "not_clean": [1] * len(t)}})["pgs"]
    at = [i for i, value in enumerate(pgs["not_clean"]) if value is None]
    assert at == [50] and pgs["t"][49:52] == [98, 98.01, 3700]
    t = [*range(0, 36_000, 1), *range(40_000, 76_000, 1)]  # points of 36 samples; PGs that are not clean are sampled
    t[100:100] = [100 + i / 4 for i in range(4)] * 2  # four times as often
    pgs = series_data({**bins, "pgs": {"t": sorted(t), "not_clean": [1] * len(t)}})["pgs"]
    assert [pgs["t"][i] for i, value in enumerate(pgs["not_clean"]) if value is None] == [35_999.01]
    assert len(pgs["t"]) <= 2003


@pytest.mark.parametrize(
    ("window", "rates"),
    [
        ((100.0, 105.0), [900.0, 2.0, 3.0, 4.0, 700.0]),
        ((100.4, 104.6), [900.0, 2.0, 3.0, 4.0, 700.0]),
        ((100.9, 104.1), [None, 2.0, 3.0, 4.0, None]),
    ],
)
def test_a_splinter_of_a_second_has_no_rate(window: Tuple[float, float], rates: List[Optional[float]]) -> None:
    its: Dict[str, Any] = {"obj_per_s": [900.0, 2.0, 3.0, 4.0, 700.0], "mean_ms": [1.0] * 5, "errors": [0] * 5}
    its.update(p99_ms=[1.0] * 5)
    series = {"start": 100, "step": 1, "percentiles": {"start": 100, "step": 1}, "ops": {"GET": its}}
    series["pgs"] = {"t": [], "not_clean": []}
    data = series_data(series, window={"start": window[0], "end": window[1]})
    assert data["ops"]["GET"]["rate"] == rates


def test_percentiles_have_bins_of_their_own() -> None:
    its: Dict[str, Any] = {"obj_per_s": [1.0] * 10, "mib_per_s": None, "mean_ms": [1.0] * 10, "errors": [0] * 10}
    its.update(p50_ms=[1.0] * 3, p99_ms=[5.0, None, 7.0], max_ms=[1.0] * 10)
    # points of 20 s from 130 on, percentiles of a minute from 120 on
    series = {"start": 130, "step": 10, "percentiles": {"start": 120, "step": 60}, "ops": {"GET": its}}
    data = series_data({**series, "pgs": {"t": [], "not_clean": [], "total": []}}, points=5)
    assert data["step"] == 20
    assert data["ops"]["GET"]["p99"] == [5.0, 5.0, 5.0, None, None]


def test_many_drivers_are_three_lines_and_the_worst_is_named() -> None:
    drivers = {f"c{i}": {"in_flight": [i, i, None], "oldest_seconds": [1.0, i / 4, None]} for i in range(20)}
    drivers["c7"]["oldest_seconds"][0] = 99.0
    said = {"start": 0, "step": 60, "drivers": drivers}
    data = flight_data(said)
    assert data is not None
    assert data["in_flight"] == {"highest": [19, 19, None], "median": [9.5, 9.5, None], "sum": [190, 190, None]}
    assert data["oldest_seconds"] == {"highest": [99.0, 4.75, None], "median": [1.0, 2.375, None]}
    phase = {"step": 1, "ops": {}, "failure": None, "cores": None, "under_way": data, "pgs": {"not_clean": []}}
    assert [its["caption"] for its in phase_charts(phase)] == [
        "Requests in flight of 20 drivers; most: c19; points of 60 s",
        "Age of the oldest request in flight of 20 drivers, s; oldest: c7; points of 60 s",
    ]
    drivers["c4"]["in_flight"] = [4, None, None]  # which falls silent
    silent = flight_data(said)
    assert silent is not None and silent["in_flight"]["sum"] == [190, None, None]
    few = flight_data({**said, "drivers": {name: drivers[name] for name in list(drivers)[:15]}})
    assert few is not None and list(few["in_flight"]) == [f"c{i}" for i in range(15)]


def test_a_single_second_without_a_beat_is_jitter() -> None:
    beats = [5, None, 6, None, None, 7]
    said = {"start": 0, "drivers": {"c": {"in_flight": beats, "oldest_seconds": beats}}}
    held, holes = (flight_data({**said, "step": step}) for step in (1, 2))
    assert held and held["in_flight"] == {"c": [5, 5, 6, None, None, 7]}
    assert holes and holes["in_flight"] == {"c": beats}


def test_what_cbt_load_adds_is_in_it(tmp_path: Path) -> None:
    directory = both_engines(tmp_path)
    summary = summarize(directory)
    assert summary["warnings"] == []
    text = " ".join(elements(run_page(summary, directory)).text.split()).replace(" ,", ",")
    for part in (
        "cbt-load and warp",
        "warp mixed reads objects that it has just written itself",
        "open loop: target 350.0 requests/s, 350.0 issued (0.0 %)",
        "requests in flight: 5 at the start, 5 at the end",
        "4 KiB GET 200.0",
        "64 KiB to 128 KiB GET 50.00",
        "3,600 objects read and compared: all that were read had the content of one of their PUTs; 0 could not be read",
        "Requests in flight, by driver",
    ):
        assert part in text, part


def test_what_was_broken_is_shaded_and_in_tables(tmp_path: Path) -> None:
    directory = made.small(tmp_path)
    summary = summarize(directory)
    name = summary["phases"][0]["name"]
    add_failure(summary, name)
    html = run_page(summary, directory)
    text = " ".join(elements(html).text.split())
    for part in (
        "Failure of node-a: all PGs were active+clean after 42.5 s",
        "first OSD down 0.250",
        "Percentages are relative to calm",
        "degraded 2.000 12.00 54.50",
        "node-a failure total 2 2 7 1,234 2.50 54.50 3.000 99.00 - 3.300",
        "bad second: p99 of total 90.10 ms or more (3 times the p99 of the baseline), success of less than 99.9 %",
        "for 30 s: not in 2 s; http://rgw2:7480 answered nothing for 2 s; 5 due requests never started",
    ):
        assert part in text, part
    assert 'data-chart="copies"' in html
    drawn = data_of(html)
    assert drawn["phases"][0]["failure"]["degraded"] == [0, 9, 4]
    assert drawn["phases"][0]["failure"]["bad"] == [[1, 3]]
    curves = {curve["name"]: curve for curve in drawn["tails"][0]["curves"]}
    assert list(curves) == ["new", "new: degraded", "aged"]
    assert curves["new: degraded"]["ms"][:3] == [1.0, 1.5, 2.25] and curves["new: degraded"]["dash"]
    summary["failure"]["timelines"][name]["windows"][0]["state"] = "no failure"
    assert 'data-chart="copies"' not in run_page(summary, directory)


def test_percentile_curves_are_the_histogram_s(tmp_path: Path) -> None:
    directory = made.small(tmp_path)
    summary = summarize(directory)
    drawn = data_of(run_page(summary, directory))["tails"]
    assert [(its["op"], [curve["name"] for curve in its["curves"]]) for its in drawn] == [
        ("GET", ["new", "aged"]),
        ("PUT", ["new", "aged"]),
    ]
    its = drawn[0]["curves"][0]
    # 2,000 GETs: 33 tenths of a nine, every one of 10 ms
    assert len(its["ms"]) == 34 and its["ms"][-1] == pytest.approx(10, rel=0.001)
    assert its["dash"] == 0 and its["colour"] != drawn[0]["curves"][1]["colour"]


def test_a_tail_has_a_request_for_each_of_its_points() -> None:
    assert tail_quantiles(0) == []
    assert tail_quantiles(1) == [0.0]
    assert tail_quantiles(100)[-1] == pytest.approx(0.99) and tail_quantiles(99)[-1] < 0.99
    assert len(tail_quantiles(10**12)) == 71
    assert tail_quantiles(1000)[20] == pytest.approx(0.99)


def test_processors_are_in_it(tmp_path: Path) -> None:
    directory = made.small(tmp_path)
    summary = summarize(directory)
    assert "Processors" not in elements(run_page(summary, directory)).text
    add_resources(summary, "new")
    html = run_page(summary, directory)
    text = " ".join(elements(html).text.split())
    for part in (
        "new : nvme0n1 of osd1 was busy for 97 % of the time",
        "bottleneck new 3.250 1.500 0.462 63.16 7.125 media",
        "osd 8 3.250 4.500 2048 10.00 20.00",
        "osd1 64 25.0 % 1.0 % 1.500 2048 0 100.0 %",
        "osd1 osd.3 0.500",
        "osd1 nvme0n1 3 87.5 %",
        "osd1 eth0 5.000 6.000 25,000 50.0 %",
    ):
        assert part in text, part
    drawn = data_of(html)["phases"]
    assert drawn[0]["cores"]["classes"] == {"osd": [3.0, 3.5] * 5, "rgw": [1.0, None] * 5}
    assert drawn[1]["cores"] is None
    assert html.count('data-chart="cores"') == 1


def test_the_ceiling_of_the_network_and_what_was_measured(tmp_path: Path) -> None:
    directory = made.small(tmp_path)
    summary = summarize(directory)
    assert "The most that the interfaces allow" not in run_page(summary, directory)
    line = {"put_mib_s": 400.0, "put_measured": 100.0, "put_share": 0.25, "get_mib_s": None, "get_measured": 7.5}
    full = {"node": "osd1", "way": "sends", "network": "cluster"}
    phases = {"new": {**line, "get_share": None, "share": 0.3, "full": full}}
    made_up = {"layout": "4 OSD nodes, 3 copies", "nics": "25 Gbit/s as given", "phases": phases}
    text = " ".join(elements(run_page(summary, directory, made_up)).text.split())
    assert "4 OSD nodes, 3 copies; 25 Gbit/s as given" in text
    assert "new 100.0 400.0 25.0 % 7.500 - - 30.0 % osd1 sends (cluster network)" in text


def test_the_order_is_result_warnings_summary_phases_plan(tmp_path: Path) -> None:
    directory = both_engines(tmp_path)
    (directory / "config.yaml").write_text("benchmarks: {the: whole}\n")
    text = elements(run_page(summarize(directory), directory).split("</nav>")[1]).text
    parts = ("new: 350.0 obj/s", "Complete run", "Summary", "Timeline of the run", "Latency percentiles", "By gateway")
    places = [text.index(part) for part in (*parts, "Environment", "Plan", "benchmarks: {the: whole}")]
    assert places == sorted(places)


def test_a_headline_without_a_measurement_is_of_all_that_was_loaded(tmp_path: Path) -> None:
    summary = summarize(made.small(tmp_path))
    assert [line["phase"] for line in headline(summary)] == ["new", "aged"]
    summary["phases"][0]["role"] = "none"
    assert [line["phase"] for line in headline(summary)] == ["aged"]
    summary["phases"][1]["role"] = "none"
    assert [line["phase"] for line in headline(summary)] == ["new", "aged"]
    assert headline(summary)[0]["read"] == pytest.approx(0.7812) and headline(summary)[0]["limit"] is None


def test_the_top_says_how_long_and_how_many(tmp_path: Path) -> None:
    """As other programs' reports do: failed requests mean little without the number of all."""
    directory = made.small(tmp_path)
    summary = summarize(directory)
    phases = summary["phases"]
    text = " ".join(elements(run_page(summary, directory)).text.split())
    assert f"{phases[-1]['window']['end'] - phases[0]['window']['start']:.1f} s" in text.split("Summary")[0]
    total = phases[0]["total"]
    assert f"{total['requests']:,} {total['errors']:,}" in text.split("ok failed")[1].split("aged")[0]


def test_a_table_of_operations_has_a_column_for_each_metric_of_the_registry(tmp_path: Path) -> None:
    summary = summarize(made.small(tmp_path))
    page, text = run_page(summary, tmp_path), Terminal().text(result_text.blocks(summary))
    head = re.findall(r"<tr><th></th>(?:<th[^>]*>[^<]*</th>)+", page.split('id="phases"')[-1])
    shown = next(re.findall(r"<th[^>]*>([^<]+)</th>", row) for row in head if ">max<" in row)
    wanted = [metric.heading for metric in (*RATES, *LATENCIES)]
    assert shown[: len(wanted)] == wanted
    line = next(line for line in text.splitlines() if "TTFB" in line)
    assert re.findall(r"\S+", line.replace(" ms", "").split("TTFB")[0]) == wanted


def test_what_is_left_out_is_not_in_the_contents_either(tmp_path: Path) -> None:
    """No chart of PGs that were clean all the time, of nodes that nobody watched, of a failure that was none."""
    directory = made.small(tmp_path)
    summary = summarize(directory)
    html = run_page(summary, directory)
    assert re.findall(r'data-chart="([a-z_-]+)"', html) == ["run", "tail", "tail", *["rate", "latency"] * 2]
    links = re.findall(r'href="#([a-z-]+)"', html.split("</nav>")[0])
    assert "failure" not in links and "resources" not in links and links[:2] == ["result", "warnings"]
    assert all(f'id="{link}"' in html for link in links)
    for pgs in (phase["series"]["pgs"] for phase in summary["phases"][:1]):
        pgs["t"], pgs["not_clean"] = [1, 2], [0, 3]
    add_failure(summary, "new")
    summary["failure"]["timelines"]["new"]["cluster"]["objects_per_s"] = [0.0, 0.0, 0.0]
    html = run_page(summary, directory)
    kinds = re.findall(r'data-chart="([a-z_-]+)"', html)
    assert kinds[:3] == ["run", "run-copies", "run-pgs"] and kinds.count("pgs") == kinds.count("copies") == 1
    assert "recovered" not in kinds


def test_a_line_says_what_the_run_was_made_on(tmp_path: Path) -> None:
    directory = made.small(tmp_path)
    nodes = {name: {"cores": "64", "memory_kib": "528280977"} for name in ("n1", "n2", "c1", "</p>")}
    manifest = json.loads((directory / "manifest.json").read_text())
    (directory / "manifest.json").write_text(json.dumps({**manifest, "nodes": nodes}))
    cluster: Dict[str, Any] = {"osds": ["n1", "n2"], "clients": ["c1"]}
    (directory / "cluster.json").write_text(json.dumps({"cluster": cluster}))
    osd = {"device_class": "<b>", "kb": 7813529600}
    (directory / "cluster" / "before" / "osd_df.json").write_text(json.dumps({"nodes": [osd, osd, {"kb": "x"}]}))
    summary = summarize(directory)
    add_resources(summary, "new")
    told = ["2 OSD nodes, 1 client: 64 cores, 504 GiB each", "2 OSDs of 7.28 TiB (<b>)", "25 Gbit/s"]
    assert hardware(directory, summary) == told
    assert "2 OSDs of 7.28 TiB (&lt;b&gt;) · 25 Gbit/s" in run_page(summary, directory)
    nodes["c1"]["cores"], nodes["n1"]["memory_kib"] = "32", "1" * 99
    (directory / "manifest.json").write_text(json.dumps({**manifest, "nodes": nodes}))
    nodes_told = "2 OSD nodes (64 cores or 64 cores, 504 GiB), 1 client (32 cores, 504 GiB)"
    assert hardware(directory, summary)[0] == nodes_told
    for damaged in ("[]", '{"cluster": [1]}', '{"cluster": {"osds": {"a": {"b": 1}}}}', "{"):
        (directory / "cluster.json").write_text(damaged)
        (directory / "manifest.json").write_text('{"nodes": [3]}')
        assert told[1] in hardware(directory, summary)
