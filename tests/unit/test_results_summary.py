"""Archive -> summary: exact numbers of archives with known load, and every warning."""

from __future__ import annotations

import concurrent.futures
import json
import re
import shutil
from pathlib import Path
from typing import Any, Dict

import archive_builder as made
import pytest
from archive_builder import codes, summary_of_phase

from cbt_plugins.cluster_conditions import is_clean
from cbt_plugins.formatting.formats.terminal import Terminal
from cbt_plugins.report.result_text import blocks
from cbt_plugins.results.archive import find_runs, read_run, texts
from cbt_plugins.results.environment import ceph_version
from cbt_plugins.results.histogram import Histogram
from cbt_plugins.results.requests import job_files
from cbt_plugins.results.requests import rates_and_latencies as of_phase
from cbt_plugins.results.requests.job_aggregates import OpAggregates
from cbt_plugins.results.requests.phase_reading import read_phases
from cbt_plugins.results.result_file import Unreadable
from cbt_plugins.results.summary_file import check, dumps, json_schema, read_summary, summarize, write_summary
from cbt_plugins.warning_kinds import KINDS, Severity

GET = {"workers": 2, "seconds": 14, "latency": 0.01, "begin": -2, "size": 4096}


def test_known_load_gives_known_numbers(tmp_path: Path) -> None:
    summary = summarize(made.small(tmp_path))
    new, aged = summary["phases"]
    get, put = new["ops"]["GET"], new["ops"]["PUT"]
    assert (get["requests"], get["obj_per_s"], get["mib_per_s"]) == (
        2000,
        200.0,
        round(200 * 4096 / 2**20, 4),
    )
    assert (put["requests"], put["obj_per_s"], put["errors"], put["success_rate"]) == (1000, 100.0, 0, 1.0)
    assert get["latency_ms"] == {
        "n": 2000,
        **dict.fromkeys(("mean", "p50", "p90", "p99", "p999", "max"), 10.0),
    }
    assert get["ttfb_ms"]["p50"] == 5.0
    assert put["ttfb_ms"] is None
    assert get["outside"] == {"requests": 800, "errors": 0, "cut": 0}
    assert new["total"]["obj_per_s"] == 300.0
    assert new["total"]["latency_ms"]["mean"] == pytest.approx((2000 * 10 + 1000 * 20) / 3000)
    assert new["mix"] == {"asked": {"GET": 67, "PUT": 33}, "measured": {"GET": 66.667, "PUT": 33.333}}
    law = new["littles_law"]
    assert (law["workers"], law["in_flight"], law["concurrency"], law["deviation"]) == (4, 4.0, 4.0, 0.0)
    counts = {"endpoint": "http://rgw1:7480", "op": "GET", "requests": 1000, "errors": 0}
    assert new["endpoints"][0] == {**counts, "mean_ms": 10.0, "max_ms": 10.0}
    assert new["drivers"][0]["ops"]["GET"]["obj_per_s"] == 200.0
    assert new["drivers"][0]["workers"] == 4
    assert new["series"]["ops"]["GET"]["obj_per_s"] == [200.0] * 10
    assert new["series"]["ops"]["GET"]["p99_ms"] == [10.0] * 10
    assert new["series"]["pgs"] == {"t": [0, 2, 4, 6, 8], "not_clean": [0] * 5, "total": [31] * 5}
    assert aged["ops"]["GET"]["latency_ms"]["p99"] == 20.0
    assert Histogram.from_json(get["histogram_ns"]).quantile(0.5) == 10_000_000


def test_new_against_aged(tmp_path: Path) -> None:
    aging = summarize(made.small(tmp_path))["new_vs_aged"]
    assert (aging["new"], aging["aged"]) == ("new", "aged")
    change = {(line["op"], line["metric"]): line["change"] for line in aging["lines"]}
    assert change["GET", "obj_per_s"] == -0.5
    assert change["GET", "mean_ms"] == 1.0
    assert change["PUT", "p99_ms"] == 0
    assert change["total", "obj_per_s"] == pytest.approx(-1 / 3, abs=1e-6)
    assert "no significance" in aging["note"]


def test_one_measurement_is_compared_with_nothing(tmp_path: Path) -> None:
    assert summary_of_phase(tmp_path, [made.job("g", "GET", made.steady("GET", **GET))])["new_vs_aged"] is None


def test_a_good_run_has_no_warnings(tmp_path: Path) -> None:
    summary = summary_of_phase(
        tmp_path, [made.job("g", "GET", made.steady("GET", **GET), cut=True, signal=15, ended=made.T0 + 12.0)]
    )
    assert summary["warnings"] == []
    assert summary["usable"]


def test_schema(tmp_path: Path) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    validator = jsonschema.Draft202012Validator(json_schema())
    jsonschema.Draft202012Validator.check_schema(json_schema())
    whole = summarize(made.small(tmp_path / "a"))
    empty = summarize(made.run(tmp_path / "b", complete=False))
    for good in (whole, empty):
        validator.validate(json.loads(dumps(good)))
        check(good)
    for path, value in (
        (("version",), 1),
        (("usable",), "yes"),
        (("phases", 0, "role"), "odd"),
        (("phases", 0, "ops", "GET", "errors"), -1),
        (("phases", 0, "ops", "GET", "latency_ms", "p51"), 3),
        (("phases", 0, "series", "ops", "GET", "max_ms", 0), "x"),
        (("new_vs_aged", "lines", 0, "better"), None),
    ):
        bad = json.loads(dumps(whole))
        place = bad
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = value
        assert not validator.is_valid(bad), path
        with pytest.raises(ValueError, match="not a valid summary"):
            check(bad)
    no_number = json.loads(dumps(whole))
    for value in ("nan", "inf"):
        no_number["phases"][0]["series"]["ops"]["GET"]["obj_per_s"][1] = float(value)
        with pytest.raises(ValueError, match="not a valid summary"):
            check(no_number)
    del whole["phases"][0]["total"]
    with pytest.raises(ValueError, match=r"phases\[0\]: 'total' is a required"):
        check(whole)


def test_written_completely_and_with_the_same_bytes_again(tmp_path: Path) -> None:
    directory = made.small(tmp_path / "a")
    write_summary(summarize(directory), directory / "summary.json")
    first = (directory / "summary.json").read_bytes()
    write_summary(summarize(directory), directory / "summary.json")
    assert (directory / "summary.json").read_bytes() == first
    assert read_summary(directory / "summary.json") == json.loads(first) == summarize(directory)
    assert not list(directory.glob("*.new"))


def test_readers_refuse_what_they_do_not_know(tmp_path: Path) -> None:
    path = tmp_path / "summary.json"
    for text, why in (
        ('{"version": 9}', "version 9"),
        ("{", "no summary"),
        ('{"version": 2}', "'run' is a required"),
        ("[]", "no summary"),
    ):
        path.write_text(text)
        with pytest.raises(Unreadable, match=why):
            read_summary(path)


def test_moving_the_archive_changes_nothing(tmp_path: Path) -> None:
    directory = made.small(tmp_path / "a")
    before = dumps(summarize(directory))
    shutil.move(str(tmp_path / "a"), str(tmp_path / "b"))
    assert dumps(summarize(find_runs(tmp_path / "b")[0])) == before


# --- warnings
# ---------------------------------------------------------------------------------------------------------


def test_the_page_has_the_severity_of_each_kind() -> None:
    page = (Path(__file__).parents[2] / "docs" / "SUMMARY.md").read_text()
    table = page[page.index("| code | when |") :]
    listed = set(re.findall(r"[a-z]+(?:-[a-z]+)*", " ".join(re.findall(r"^\| (.*?) \|", table, re.MULTILINE))))
    assert listed - {"code"} <= set(KINDS)
    for mark, severity in (("**", Severity.INVALID), ("_", Severity.INFO)):
        marked = set(re.findall(re.escape(mark) + r"([a-z-]+)" + re.escape(mark), table))
        assert marked == {code for code in listed - {"code"} if KINDS[code].severity is severity}


def aged_archive(tmp_path: Path, limit: int) -> Dict[str, Any]:
    """Filled with 200 objects, aged with 600, and read: names of the aging come before those of the fill."""
    directory = made.run(tmp_path, phases=["fill", "age", "measure"])
    plan = json.loads((directory / "plan.json").read_text())
    (directory / "plan.json").write_text(json.dumps({**plan, "read_objects": limit}))
    for index, (name, wrote) in enumerate((("fill", 2), ("age", 6)), 1):
        rows = made.steady("PUT", workers=wrote, seconds=10, latency=0.1, size=4096)
        jobs = [made.job("p", "PUT", rows, role="put-keep", prefix=f"keep/01-4KiB/{name}", workers=wrote)]
        made.phase(directory, index, name, jobs, role="age")
    made.phase(directory, 3, "measure", [made.job("g", "GET", made.steady("GET", **GET))])
    return summarize(directory)


def test_the_share_of_the_objects_that_reads_could_find(tmp_path: Path) -> None:
    for limit, listed, unread, warned in ((500, 500, ["fill"], True), (700, 700, [], True), (800, 800, [], False)):
        summary = aged_archive(tmp_path / str(limit), limit)
        assert [phase["readable"] for phase in summary["phases"][:2]] == [[], []]
        (line,) = summary["phases"][2]["readable"]
        assert line == {
            "bucket": "cbtp-1-4kib", "objects": 800, "listed": listed, "share": listed / 800, "unread": unread
        }  # fmt: skip
        texts_ = [its["text"] for its in summary["warnings"] if its["code"] == "read-share"]
        assert bool(texts_) == warned and all(f"reads know {limit} of 800 objects" in text for text in texts_)
        assert ("no objects of fill" in " ".join(texts_)) == bool(unread)
        assert ("reads know" in Terminal().text(blocks(summary))) == warned


@pytest.mark.parametrize(
    ("more", "code", "text"),
    [
        ({"exit": 2}, "generator-died", "g ended with exit status 2"),
        ({"signal": 9}, "generator-died", "g ended by signal 9"),
        ({"restarts": 1}, "job-restarted", "g was restarted once"),
        ({"clock_offset": 1.5}, "clock-offset", "client1 is +1.500 s off"),
        ({"rows_total": 9999}, "lost-rows", "2800 rows are in the archive, 9999 were counted"),
    ],
)
def test_jobs(tmp_path: Path, more: Dict[str, Any], code: str, text: str) -> None:
    job = made.job("g", "GET", made.steady("GET", **GET), **more)
    summary = summary_of_phase(tmp_path, [job])
    assert [w["text"] for w in summary["warnings"] if w["code"] == code and text in w["text"] and w["job"] == "g"]


def test_a_job_that_left_no_rows(tmp_path: Path) -> None:
    directory = made.run(tmp_path, phases=["new"])
    path = made.phase(directory, 1, "new", [made.job("g", "GET", made.steady("GET", **GET))]) / "phase.json"
    data = json.loads(path.read_text())
    data["jobs"][0]["rows"] = None
    path.write_text(json.dumps(data))
    summary = summarize(directory)
    text = "g: no aggregates file, and no rows; its requests are not in the numbers"
    assert text in [w["text"] for w in summary["warnings"]]
    assert not summary["usable"]


def test_a_torn_file(tmp_path: Path) -> None:
    directory = made.run(tmp_path, phases=["new"])
    path = made.phase(directory, 1, "new", [made.job("g", "GET", made.steady("GET", **GET))]) / "rows" / "g.csv.gz"
    path.write_bytes(path.read_bytes()[:-12])
    summary = summarize(directory)
    assert "torn-rows" in codes(summary)
    assert summary["usable"]
    path.unlink()
    summary = summarize(directory)
    assert "no-rows" in codes(summary)
    assert not summary["usable"]


def test_phase_states(tmp_path: Path) -> None:
    jobs = [made.job("g", "GET", made.steady("GET", **GET))]
    said = [{"code": "agent-lost", "text": "it went", "job": "g"}, {"code": "accounting", "text": "said before"}]
    accounting = [
        {
            "bucket": "b",
            "before": 1,
            "put": 2,
            "delete": 0,
            "prepared": 0,
            "after": 2,
            "expected": 3,
            "in_flight": 1,
            "ok": False,
        }
    ]
    asked = {"duration": 20.0, "mix": {"GET": 90, "PUT": 10}}
    summary = summary_of_phase(tmp_path, jobs, status="degraded", warnings=said, accounting=accounting, asked=asked)
    assert codes(summary) == ["accounting", "agent-lost", "mix", "short-window"]
    by = {w["code"]: w for w in summary["warnings"]}
    lost = {"code": "agent-lost", "severity": "warning", "text": "it went", "job": "g", "phase": "new"}
    assert by["agent-lost"] == lost
    assert len(summary["warnings"]) == 4
    assert "1 object fewer than counted (2 at the end, 3 expected)" in by["accounting"]["text"]
    assert by["mix"]["text"] == "GET is 100.0 % of the requests, 90 % were asked for"
    assert by["short-window"]["text"] == "the window is 10.0 s, 20 s were asked for"


def test_mix_has_a_tolerance(tmp_path: Path) -> None:
    jobs = [made.job("g", "GET", made.steady("GET", **GET))]
    for share, expected in ((98.6, []), (98.4, ["mix"])):
        asked = {"duration": 10.0, "mix": {"GET": share, "STAT": 100 - share}}
        assert codes(summary_of_phase(tmp_path / str(share), jobs, asked=asked)) == expected


def test_a_calibration_has_no_mix_to_keep(tmp_path: Path) -> None:
    asked = {"duration": 20.0, "mix": {"GET": 50, "PUT": 50}}
    jobs = [made.job("g", "GET", made.steady("GET", **GET))]
    for name, expected in (("calibrate", []), ("other", ["mix", "short-window"])):
        directory = made.run(tmp_path / name)
        made.phase(directory, 1, name, jobs, asked=asked, role="none")
        assert codes(summarize(directory)) == expected


def test_a_degraded_phase_says_why_once(tmp_path: Path) -> None:
    jobs = [made.job("g", "GET", made.steady("GET", **GET))]
    said = [{"code": "agent-lost", "text": "it went"}]
    assert codes(summary_of_phase(tmp_path / "a", jobs, status="degraded", warnings=said)) == ["agent-lost"]
    assert codes(summary_of_phase(tmp_path / "b", jobs, status="degraded")) == ["phase-status"]
    failed = summary_of_phase(tmp_path / "c", jobs, status="failed", warnings=said)
    assert codes(failed) == ["agent-lost", "phase-status"]


def test_a_stall(tmp_path: Path) -> None:
    rows = made.steady("GET", workers=2, seconds=5, latency=0.01, begin=-1)
    rows += [made.row("GET", 7.5, 3.5, thread=w) for w in (0, 1)]
    rows += made.steady("GET", workers=2, seconds=4, latency=0.01, begin=7.5)
    summary = summary_of_phase(tmp_path, [made.job("g", "GET", rows)])
    assert codes(summary) == ["stall"]
    assert (
        "nothing succeeded in 2 of 10 seconds; the longest gap is 3.5 s, 4.0 s after the start"
        in summary["warnings"][-1]["text"]
    )
    assert summary["phases"][0]["ops"]["GET"]["longest_gap"] == {"seconds": 3.5, "at": made.T0 + 4.0}


def test_percentiles_need_samples(tmp_path: Path) -> None:
    jobs = [
        made.job("g", "GET", made.steady("GET", workers=1, seconds=10, latency=0.02), workers=1),
        made.job("s", "STAT", made.steady("STAT", workers=1, seconds=10, latency=0.5), workers=1),
    ]
    summary = summary_of_phase(tmp_path, jobs)
    ops = summary["phases"][0]["ops"]
    assert ops["GET"]["latency_ms"]["p99"] == 20.0
    assert (ops["GET"]["latency_ms"]["p999"], ops["STAT"]["latency_ms"]["p99"]) == (None, None)
    assert ops["STAT"]["mib_per_s"] is None
    texts_ = [w["text"] for w in summary["warnings"] if w["code"] == "few-samples"]
    assert texts_ == ["p99 needs 100 requests and p99.9 needs 1000; there are 499 GET, 19 STAT"]
    assert codes(summary_of_phase(tmp_path / "age", jobs, role="age")) == []


def test_a_success_rate_is_1_only_if_no_request_failed() -> None:
    of = OpAggregates()
    of.latency.n, of.failed.n = 3_000_000, 1
    assert of_phase.numbers("GET", of, 10.0)["success_rate"] == 3_000_000 / 3_000_001
    of.failed.n = 0
    assert of_phase.numbers("GET", of, 10.0)["success_rate"] == 1.0


def test_the_samples_that_a_percentile_needs() -> None:
    for n, there in ((9, 1), (10, 2), (99, 2), (100, 3), (999, 3), (1000, 4)):
        its = Histogram()
        its.record([1000] * n)
        made_of = of_phase.latency_numbers(its)
        assert made_of is not None
        assert sum(made_of[key] is not None for key in ("p50", "p90", "p99", "p999")) == there


def test_a_request_that_never_came_back(tmp_path: Path) -> None:
    rows = made.steady("GET", workers=1, seconds=12, latency=0.01)
    rows += made.steady("GET", workers=1, seconds=3, latency=0.01)[:-1]
    rows[-299:] = [row.replace("\t0\tGET", "\t1\tGET", 1) for row in rows[-299:]]
    summary = summary_of_phase(tmp_path, [made.job("g", "GET", rows, cut=True, signal=15, ended=made.T0 + 12.0)])
    assert summary["phases"][0]["in_flight_at_end"] == {"requests": 1, "oldest_seconds": 9.01}
    assert codes(summary) == ["littles-law", "unfinished-request"]


def test_phases_without_a_window(tmp_path: Path) -> None:
    jobs = [made.job("g", "GET", made.steady("GET", **GET))]
    summary = summary_of_phase(tmp_path, jobs, window=(0, 0), status="failed")
    assert codes(summary) == ["no-window", "phase-status"]
    assert not summary["usable"]
    get = summary["phases"][0]["ops"]["GET"]
    assert (get["obj_per_s"], get["latency_ms"], get["outside"]["requests"]) == (None, None, 2800)


def test_a_wait_has_no_numbers_and_no_warnings(tmp_path: Path) -> None:
    directory = made.run(tmp_path, phases=["wait"])
    made.phase(directory, 1, "wait", [], kind="wait", role="none")
    summary = summarize(directory)
    assert summary["warnings"] == []
    assert summary["phases"][0]["ops"] == {}


def test_find_runs(tmp_path: Path) -> None:
    directory = made.run(tmp_path)
    for path in (tmp_path, tmp_path / "results", tmp_path / "results" / "00000000", directory):
        assert find_runs(path) == [directory]
    for path in (tmp_path / "none", directory / "cluster"):
        with pytest.raises(Unreadable):
            find_runs(path)


def test_environment(tmp_path: Path) -> None:
    environment = summarize(made.small(tmp_path))["environment"]
    assert environment["versions"]["warp"] == "1.3.1"
    assert environment["versions"]["ceph"] == "18.2.7 reef"
    assert environment["versions"]["cbt"] == "9d6480f 2025-05-16"
    assert environment["nodes"] == [
        {"node": "node0", "kernel": "6.1.0-44-amd64", "clock_offset": 0.0},
        {"node": "client1", "kernel": "6.1.0-44-amd64", "clock_offset": 0.0002},
    ]
    other = "ceph version 19.2.3 (c92aebb279828e9c3c1f5d24613efca272649e62) squid (stable)"
    mixed = {"overall": {"ceph version 18.2.7 (6b0e98) reef (stable)": 5, other: 1, "odd": 2}}
    assert ceph_version(mixed) == "18.2.7 reef (5 daemons), 19.2.3 squid (1 daemons), odd (2 daemons)"
    assert [ceph_version(odd) for odd in (None, {}, {"overall": {}}, "18.2")] == [None, None, None, "18.2"]
    assert list(texts(find_runs(tmp_path)[0])) == [
        "plan.json",
        "benchmark_config.yaml",
        "manifest.json",
        "events.jsonl",
        "cluster/before/ceph.conf",
        "cluster/before/pools.json",
    ]
    (find_runs(tmp_path)[0] / "cluster" / "before" / ".pools.json.swp").write_text("x")
    assert "cluster/before/.pools.json.swp" not in texts(find_runs(tmp_path)[0])


def test_the_same_with_several_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = made.small(tmp_path)
    expected = dumps(summarize(directory))
    used, begun = [], []

    class Pool(concurrent.futures.ProcessPoolExecutor):
        def __init__(self, processes: int, *more: Any, **options: Any) -> None:
            used.append(processes)
            super().__init__(processes, *more, **options)

        def submit(self, *work: Any) -> Any:
            begun.append(len(used))
            return super().submit(*work)

    monkeypatch.setattr(job_files, "MANY", 0)
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    monkeypatch.setattr("concurrent.futures.ProcessPoolExecutor", Pool)
    assert dumps(summarize(directory)) == expected
    assert (used, begun) == ([2], [1] * 4), "two phases, each of which is a large part of the run"
    begun.clear()
    phases = read_phases(read_run(directory).phases)
    next(phases)
    assert len(begun) == 4, "the next phase is read while the caller works on the first"
    phases.close()


@pytest.mark.parametrize("state", ["active+clean", "active+clean+scrubbing+deep", "active+clean+snaptrim"])
def test_clean_states(state: str) -> None:
    assert is_clean(state)
    assert not is_clean(state.replace("clean", "undersized"))


def test_a_short_wait_is_as_long_as_it_was(tmp_path: Path) -> None:
    directory = made.run(tmp_path, phases=["settle"])
    asked = {"duration": 2.0}
    made.phase(directory, 1, "settle", [], kind="wait", role="none", window=(3.4, 5.4), block=10, asked=asked)
    (phase,) = summarize(directory)["phases"]
    assert phase["window"]["seconds"] == pytest.approx(2.0)


def test_what_was_replaced_or_filled_twice_is_said_of_the_whole_run(tmp_path: Path) -> None:
    directory = made.run(tmp_path, phases=("fill", "more", "measure"))
    twice = [{"code": "repeated", "text": "an earlier attempt at this phase was broken off"}]
    for index, name in enumerate(("fill", "more", "measure"), 1):
        jobs = [made.job(f"{index}-p", "PUT", made.steady("PUT", **GET))]
        kind = "hybrid" if name == "measure" else "fill"
        made.phase(directory, index, name, jobs, kind=kind, warnings=twice if name != "fill" else [])
    manifest = json.loads((directory / "manifest.json").read_text())
    more = {"replaced": ["ceph: 18.2.4 -> 18.2.7"], "moved_clocks": ["the clock of node0 moved by +1.200 s"]}
    more["lost_events"] = ["events.jsonl has 1 damaged line"]
    (directory / "manifest.json").write_text(json.dumps({**manifest, **more}))
    codes = ["replaced", "lost-events", "clock-offset", "refilled"]
    warnings = [warning for warning in summarize(directory)["warnings"] if warning["code"] in codes]
    assert [(warning["code"], warning.get("phase")) for warning in warnings] == [(code, None) for code in codes]
    assert "18.2.4 -> 18.2.7" in warnings[0]["text"] and "more was filled again" in warnings[3]["text"]
    assert [KINDS[warning["code"]].forbids_verdict for warning in warnings] == [True, True, False, True]
