"""Runs as records: the numbers of their summaries, series whose mean is the number, and what they were."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any, Dict, List, Optional

import archive_builder
import pytest
from archive_builder import Cluster, Load

from cbt_plugins.compare.gate import GateLimits, GateOutcome, gate, of_texts
from cbt_plugins.compare.sides import forbidding, sides
from cbt_plugins.compare.table import Rules
from cbt_plugins.metrics import CLUSTER, METRICS
from cbt_plugins.results.record_reader import record_of_summary, records_of
from cbt_plugins.results.result_file import Unreadable
from cbt_plugins.results.run_record import Measurement, RunRecord, measurements, result_warnings
from cbt_plugins.results.summary_file import summarize, write_summary
from cbt_plugins.warning_kinds import caps


def of(record: RunRecord, *key: str) -> Measurement:
    (found,) = (m for m in record.measurements if (m.phase, m.op, m.metric) == key)
    return found


def test_each_number_is_that_of_the_summary(tmp_path: Path) -> None:
    run = archive_builder.small(tmp_path)
    summary = summarize(run)
    (record,) = records_of(tmp_path)
    get = summary["phases"][0]["ops"]["GET"]
    assert record.kind == "cbt-plugins" and record.name == "00000000/id-1a2b3c4d" and record.source == str(run)
    assert record.usable and record.label == "18.2.7 reef" and record.started == archive_builder.T0
    assert of(record, "new", "GET", "obj_per_s").value == get["obj_per_s"] == 200
    assert of(record, "new", "GET", "p99_ms").value == get["latency_ms"]["p99"]
    assert of(record, "new", "GET", "ttfb_p50_ms").value == get["ttfb_ms"]["p50"]
    assert of(record, "new", "GET", "obj_per_s").n == get["requests"]
    assert of(record, "aged", "total", "mib_per_s").value == summary["phases"][1]["total"]["mib_per_s"]
    assert {m.metric for m in record.measurements} <= set(METRICS)


def test_a_run_begins_with_its_first_phase_that_has_a_window(tmp_path: Path) -> None:
    """Not in 1970: a phase whose window was not reached has one from 0 to 0."""
    summary = summarize(archive_builder.small(tmp_path))
    summary["phases"][0]["window"] = {"start": 0.0, "end": 0.0, "seconds": 0}
    record = record_of_summary(summary, tmp_path, None)
    assert record.started == summary["phases"][1]["window"]["start"] > archive_builder.T0
    summary["phases"] = summary["phases"][:1]
    assert record_of_summary(summary, tmp_path, None).started is None


def test_the_mean_of_a_series_is_the_number_of_the_run(tmp_path: Path) -> None:
    archive_builder.archive(tmp_path, Load(latency={"GET": 0.05}, noise=1.0, seconds=40))
    (record,) = records_of(tmp_path)
    seen = 0
    for metric in ("obj_per_s", "mib_per_s", "mean_ms"):
        for op in ("GET", "PUT", "total"):
            its = of(record, "measure", op, metric)
            assert its.series is not None and len(its.series) == 40
            assert sum(its.series) / 40 == pytest.approx(its.value, rel=1e-3), (op, metric)
            seen += len(set(its.series)) > 10
    assert seen == 9  # and it is no constant


def test_only_one_run_of_a_configuration_keeps_its_series(tmp_path: Path) -> None:
    """Series of many long runs would take gigabytes, and are compared only where a side has one run."""
    several, single = tmp_path / "several", tmp_path / "single"
    archive_builder.archive(several, Load(seconds=20), runs=3)
    archive_builder.archive(single, Load(seconds=20), runs=1, seed=7)
    (of_several, of_single) = sides([[several], [single]])
    has_series = [[any(m.series for m in run.measurements) for run in side.runs] for side in (of_several, of_single)]
    assert has_series == [[False] * 3, [True]]
    # a run that cannot be read has no configuration, and is no second run of one
    for damaged in sorted(several.glob("results/*/id-*"))[:2]:
        (damaged / "summary.json").unlink(missing_ok=True)
        for part in (damaged / "manifest.json", *damaged.glob("phases/*/phase.json")):
            part.write_text('{"version": 1}')
    (of_damaged,) = sides([[several]])
    assert len(of_damaged.unreadable) == 2 and any(m.series for m in of_damaged.runs[0].measurements)


def test_means_of_seconds_are_weighted_by_their_requests(tmp_path: Path) -> None:
    """A slow second has few requests: the mean of the seconds' means would be far off."""
    run = archive_builder.run(tmp_path, phases=["new"])
    fast = archive_builder.steady("GET", workers=1, seconds=10, latency=0.01)
    slow = archive_builder.steady("GET", workers=1, seconds=10, latency=0.5, begin=10)
    archive_builder.phase(run, 1, "new", [archive_builder.job("a", "GET", fast + slow)], window=(0, 20))
    (record,) = records_of(run)
    its = of(record, "new", "GET", "mean_ms")
    assert its.value == pytest.approx((1000 * 10 + 19 * 500) / 1019)  # the last request ends with the window
    assert its.series is not None and sum(its.series) / len(its.series) == pytest.approx(its.value, rel=1e-3)


def test_percentiles_have_no_series_and_short_phases_have_none(tmp_path: Path) -> None:
    archive_builder.archive(tmp_path / "long", Load(seconds=20))
    archive_builder.archive(tmp_path / "short", Load(seconds=9))
    (long,), (short,) = records_of(tmp_path / "long"), records_of(tmp_path / "short")
    assert of(long, "measure", "GET", "p99_ms").series is None
    assert of(long, "measure", "GET", "obj_per_s").series is not None
    assert of(short, "measure", "GET", "obj_per_s").series is None


def test_seconds_that_the_window_cuts_are_no_samples(tmp_path: Path) -> None:
    """A fill by number of objects has the window from its first request to its last."""
    run = archive_builder.run(tmp_path, phases=["fill"])
    rows = archive_builder.steady("PUT", workers=1, seconds=20, latency=0.01, begin=1.5)
    asked = {"duration": None, "mix": {}}
    job = archive_builder.job("a", "PUT", rows)
    archive_builder.phase(run, 1, "fill", [job], window=(1.55, 21.45), asked=asked)
    (record,) = records_of(run)
    its = of(record, "fill", "PUT", "obj_per_s")
    assert its.series is not None and set(its.series) == {100.0} and len(its.series) == 19


def test_iterations_are_records_of_their_own(tmp_path: Path) -> None:
    archive_builder.archive(tmp_path, Load(seconds=2), runs=3)
    assert [record.name[:8] for record in records_of(tmp_path)] == ["00000000", "00000001", "00000002"]
    started = [record.started for record in records_of(tmp_path)]
    assert started == sorted(started) and len(set(started)) == 3


def test_a_summary_is_believed_until_the_run_went_on(tmp_path: Path) -> None:
    run = archive_builder.small(tmp_path)
    summary = summarize(run)
    summary["phases"][0]["ops"]["GET"]["obj_per_s"] = 1.0
    write_summary(summary, run / "summary.json")
    assert of(records_of(run)[0], "new", "GET", "obj_per_s").value == 1.0
    for change in (
        {"resources": None, "phases": summary["phases"][:1]},  # made before the second phase had ended
        {"run": {**summary["run"], "complete": False}},
    ):
        write_summary({**summary, **change}, run / "summary.json")
        assert of(records_of(run)[0], "new", "GET", "obj_per_s").value == 200.0, change
    old = {key: value for key, value in summary.items() if key != "resources"}
    write_summary(old, run / "summary.json")
    assert of(records_of(run)[0], "new", "GET", "obj_per_s").value == 200.0
    (run / "summary.json").write_text("{")
    assert of(records_of(run)[0], "new", "GET", "obj_per_s").value == 200.0
    assert (run / "summary.json").read_text() == "{"  # nothing is written


def test_a_summary_alone_is_enough(tmp_path: Path) -> None:
    run = archive_builder.small(tmp_path / "archive")
    write_summary(summarize(run), tmp_path / "mine.json")
    write_summary(summarize(run), run / "summary.json")
    (alone,), (beside,) = records_of(tmp_path / "mine.json"), records_of(run / "summary.json")
    assert alone.measurements == beside.measurements
    assert alone.config["phase.new.workers"] == 4 and alone.config["phase.new.mix"] == "GET:67 PUT:33"
    assert "pool.data.size" not in alone.config and "host.kernel" in beside.config
    shutil.rmtree(run / "phases")  # somebody needed the room, and kept the summary
    assert records_of(run)[0].measurements == alone.measurements


def test_what_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "summary.json").write_text('{"version": 99, "run": {}, "phases": [], "usable": true}')
    (tmp_path / "other.json").write_text("[1, 2]")
    for name, text in (
        ("nowhere", "no such"),
        ("empty", "no run"),
        ("summary.json", "version 99"),
        ("other.json", "other.json"),
    ):
        with pytest.raises(Unreadable, match=text):
            records_of(tmp_path / name)


def test_a_damaged_run_is_a_record_that_is_not_usable(tmp_path: Path) -> None:
    archive_builder.archive(tmp_path, Load(seconds=2))
    (run,) = tmp_path.glob("results/*/*")
    for path in run.glob("phases/*/rows/*"):
        path.unlink()
    (record,) = records_of(tmp_path)
    assert not record.usable and "no-rows" in {warning.code for warning in record.warnings}


def test_the_configuration_of_an_archive(tmp_path: Path) -> None:
    pool = {"size": 6, "type": 3, "erasure_code_profile": "ec"}
    cluster = Cluster(config={"osd_max_backfills": "4", "rgw_secret": "s"}, pool=pool)
    archive_builder.archive(tmp_path, Load(seconds=2), cluster)
    config = records_of(tmp_path)[0].config
    wanted = {
        "benchmark": "warp",
        "engine": "warp",
        "phases": "measure",
        "objects.sizes": "4096",
        "load.drivers": 1,
        "phase.measure.workers": 4,
        "phase.measure.seconds": 2.0,
        "phase.measure.role": "measure",
        "phase.measure.loop": "closed",
        "phase.measure.events": "none",
        "pool.data.type": "erasure",
        "pool.data.size": 6,
        "pool.data.k": 4,
        "pool.data.m": 2,
        "cluster.osds": 8,
        "cluster.osd_nodes": 4,
        "cluster.clients": 1,
        "cluster.endpoints": 2,
        "ceph.osd.osd_max_backfills": "4",
        "conf.global.rgw_thread_pool_size": "64",
        "version.ceph": "18.2.7 reef",
        "host.kernel": "6.1.0-44-amd64 (2)",
        "loops.measure": "GET:2 PUT:2",
    }
    assert {key: config.get(key) for key in wanted} == wanted
    assert not [key for key in config if "secret" in key or "password" in key or "fsid" in key]


def test_only_osds_that_serve_are_counted(tmp_path: Path) -> None:
    """An OSD that is down, and one that is out, have no data: runs with and without them are not alike."""
    archive_builder.archive(tmp_path, Load(seconds=2))
    (tree,) = tmp_path.rglob("before/osd_tree.json")
    nodes = json.loads(tree.read_text())["nodes"]
    osds = [node for node in nodes if node["type"] == "osd"]
    for osd in osds:
        osd.update(status="up", reweight=1.0)
    osds[0]["status"], osds[1]["reweight"] = "down", 0
    tree.write_text(json.dumps({"nodes": nodes}))
    config = records_of(tmp_path)[0].config
    assert (config["cluster.osds"], config["cluster.osd_nodes"]) == (6, 3)


def test_faults_of_a_phase_are_part_of_what_it_is(tmp_path: Path) -> None:
    archive_builder.archive(tmp_path, Load(seconds=2))
    (run,) = tmp_path.glob("results/*/*")
    plan = json.loads((run / "plan.json").read_text())
    stop = {"kind": "stop", "label": "a", "targets": ["node4", "node5"]}
    plan["phases"][0].update(events=[{"at": 5.0, "inject": stop}, {"at": 60.0, "undo": ["a"]}], rate_share=0.5)
    (run / "plan.json").write_text(json.dumps(plan))
    config = records_of(tmp_path)[0].config
    assert config["phase.measure.events"] == "5s:stop*2 60s:undo*1"
    assert config["phase.measure.rate_share"] == 0.5 and "phase.measure.rate" not in config


def failed(*warnings: Dict[str, Any]) -> RunRecord:
    """A run with a failure from 100 s that has recovered at 180 s, in two phases of 100 s from 50 s on."""
    phases = [{"name": n, "loop": "closed", "jobs": (), "window": {"start": a, "end": b}} for n, a, b in _PHASES]
    episode = {"kind": "failure", "labels": ["kill"], "begin": 100.0, "until": 180.0, "end": 900.0}
    summary = {"warnings": warnings, "phases": phases, "failure": {"milestones": {"episodes": [episode]}}}
    return RunRecord("x", "x", "cbt-plugins", {}, (), True, tuple(result_warnings(summary)))


_PHASES = (("before", 0.0, 50.0), ("fail", 50.0, 150.0), ("later", 150.0, 250.0), ("last", 250.0, 350.0))


def forbidden(record: RunRecord, phase: str, op: str = CLUSTER) -> List[str]:
    return [its.code for its in forbidding("new", (record,), (phase, op, "recovery_s"))]


@pytest.mark.parametrize("code", ["daemon-down", "near-full", "not-clean"])
@pytest.mark.parametrize(("phase", "meets"), [("before", False), ("fail", True), ("later", True), ("last", False)])
def test_a_condition_of_a_phase_is_one_of_the_recoveries_in_it(code: str, phase: str, meets: bool) -> None:
    record = failed({"code": code, "text": "x", "phase": phase})
    assert forbidden(record, "kill failure") == ([code] if meets else [])
    assert forbidden(record, phase, "GET") == [code]
    assert forbidden(record, "other failure") == []


def test_what_limits_a_load_says_nothing_of_the_recovery_in_it() -> None:
    record = failed({"code": "at-limit", "text": "x", "phase": "fail"})
    assert forbidden(record, "kill failure") == [] and forbidden(record, "fail", "GET") == ["at-limit"]


@pytest.mark.parametrize(("metrics", "capped"), [(None, ["max_ms"]), (["p99_ms"], ["p99_ms"])])
def test_an_unfinished_request_of_an_earlier_version_is_about_the_maximum(
    metrics: Optional[List[str]], capped: List[str]
) -> None:
    named: Dict[str, Any] = {"metrics": metrics} if metrics else {}
    record = failed({"code": "unfinished-request", "text": "x", "phase": "fail", **named})
    keys = ("max_ms", "p99_ms", "mean_ms", "success_rate")
    assert [key for key in keys if forbidding("new", (record,), ("fail", "GET", key))] == capped


def test_a_warning_about_a_failure_is_about_its_rows_only() -> None:
    record = failed({"code": "not-clean-before", "text": "x", "episode": "kill failure"})
    assert forbidden(record, "kill failure") == ["not-clean-before"]
    assert forbidden(record, "fail", "GET") == forbidden(record, "kill return") == []


def test_a_phase_that_is_not_to_be_trusted_makes_its_run_not_usable(tmp_path: Path) -> None:
    said = [{"code": "accounting", "text": "3 objects fewer than counted"}]
    for name, about in (("good", {}), ("bad", {"status": "degraded", "warnings": said})):
        run = archive_builder.run(tmp_path / name, phases=["fill", "new"])
        Load(seconds=12).write(run, 1, "fill", 0, kind="fill", role="none", **about)
        Load(seconds=12).write(run, 2, "new", 100)
        archive_builder.renamed(run, name)
        write_summary(summarize(run), tmp_path / f"{name}.json")
    good, bad = sides([[tmp_path / "good"], [tmp_path / "bad"]])
    assert good.runs[0].usable and not bad.runs[0].usable
    assert not records_of(tmp_path / "bad.json")[0].usable
    assert "not to be trusted: fill (see the report)" in {warning.text for warning in bad.runs[0].warnings}
    made = gate(good, [bad], GateLimits(tuple(of_texts(["new.GET.obj_per_s>=1"]))), Rules())
    assert made.outcome is GateOutcome.UNUSABLE


def test_a_degraded_failure_of_a_scorecard_limits_this_failure_only() -> None:
    phases = [{"name": n, "loop": "closed", "kind": "hybrid", "window": {"start": a, "end": b}} for n, a, b in _PHASES]
    phases[1]["status"] = "degraded"
    scores = [{"phase": "fail", "labels": ["kill"]}]
    card = {"failures": [{"name": "node down", "scores": scores}, {"name": "rgw down", "scores": []}]}
    summary = {"warnings": (), "phases": phases, "failure": None, "scorecard": card}
    record = RunRecord("x", "x", "cbt-plugins", {}, (), True, tuple(result_warnings(summary)))
    assert [its.phase for its in record.warnings] == ["fail"]
    assert forbidden(record, "node down") == forbidden(record, "node down", "GET") == ["phase-status"]
    assert forbidden(record, "rgw down") == forbidden(record, "last", "GET") == []


def test_a_wait_that_was_given_up_limits_the_recovery_that_it_waited_for() -> None:
    for faults, about in ((True, "fail"), (False, None)):
        wait = {"name": "fail", "status": "degraded", "kind": "wait", "loop": None, "window": {"start": 90, "end": 99}}
        episode = {"kind": "failure", "labels": ["kill"], "begin": 50.0, "until": 180.0, "end": 900.0}
        failure = {"milestones": {"episodes": [episode]}} if faults else None
        (its,) = result_warnings({"warnings": (), "phases": [wait], "failure": failure})
        assert (its.code, its.phase) == ("phase-status", about)
        assert its.is_about("kill failure", CLUSTER)


@pytest.mark.parametrize("code", ["job-lost", "generator-died", "torn-rows", "lost-rows", "aggregates"])
def test_what_lost_a_part_of_the_requests_forbids_a_verdict(code: str) -> None:
    record = failed({"code": code, "text": "x", "phase": "last"})
    assert forbidden(record, "last", "GET") == [code] and forbidden(record, "before", "GET") == []


def test_the_calibration_is_no_measurement(tmp_path: Path) -> None:
    run = archive_builder.run(tmp_path, phases=["calibrate", "new"])
    rows = archive_builder.steady("GET", workers=1, seconds=5, latency=0.01)
    for index, (name, role) in enumerate((("calibrate", "none"), ("new", "measure")), 1):
        archive_builder.phase(run, index, name, [archive_builder.job("a", "GET", rows)], window=(0, 5), role=role)
    assert {m.phase for m in records_of(run)[0].measurements} == {"new"}


def test_what_the_daemons_took(tmp_path: Path) -> None:
    """Of the phases that were asked for, with the series that lets single runs be compared."""
    run = archive_builder.small(tmp_path)
    summary = summarize(run)
    classes = {"osd": {"cores": 2.0, "rss_mib": 512.0}, "rgw": {"cores": None, "rss_mib": None}}
    series = {"start": 0, "step": 2, "cores": {"osd": [2.0, None, *[2.0] * 9], "rgw": [1.0]}}
    used = {"classes": classes, "ops_per_core": 300.0, "cores_per_gb_s": None, "series": series}
    summary["resources"] = {"nodes": [], "phases": {"new": used, "calibrate": used}}
    (record,) = [record_of_summary(summary, run, run)]
    cores = of(record, "new", "osd", "cores")
    assert cores.value == 2.0 and cores.step == 2 and cores.series is not None
    assert len(cores.series) == 11 and math.isnan(cores.series[1])
    assert of(record, "new", "total", "ops_per_core").value == 300.0
    assert of(record, "new", "osd", "rss_mib").value == 512
    found = {(m.phase, m.op, m.metric) for m in record.measurements}
    assert not {("new", "rgw", "cores"), ("new", "total", "cores_per_gb_s")} & found
    assert not any(phase == "calibrate" for phase, _, _ in found)


def test_a_mean_of_nothing_is_no_series() -> None:
    from cbt_plugins.results.run_record import weighted_bins

    assert weighted_bins([0, 0], [None, None]) == []
    assert not any(math.isnan(value) for value in weighted_bins([1, 0, 3], [2.0, None, 4.0]))


@pytest.mark.parametrize("planned", [True, False])
def test_workers_of_a_calibration_are_no_reason_to_refuse(tmp_path: Path, planned: bool) -> None:
    """A closed loop for each operation gets what a short phase has measured: other numbers in every run."""
    configs = []
    for name, workers in (("one", 2), ("other", 3)):
        run = archive_builder.run(tmp_path / name, phases=["calibrate", "mix"])
        for index, (phase, role) in enumerate((("calibrate", "none"), ("mix", "measure")), 1):
            rows = archive_builder.steady("GET", workers=workers, seconds=4, latency=0.01, begin=10 * index)
            window = (10 * index, 10 * index + 3)
            job = archive_builder.job("01-4KiB-get", "GET", rows, workers=workers)
            archive_builder.phase(run, index, phase, [job], window=window, role=role)
        plan = {"benchmark": "warp", "phases": [{"name": "calibrate"}, {"name": "mix"}]}
        (run / "plan.json").write_text(json.dumps({**plan, "drivers": [{"workers": 8}]} if planned else plan))
        configs.append(records_of(run)[0].config)
    assert [config.get("phase.mix.workers") for config in configs] == ([8, 8] if planned else [None, None])
    assert [config["loops.mix"] for config in configs] == ["GET:2", "GET:3"]


@pytest.mark.parametrize(("high", "is_open"), [(None, True), (10760.0, False)])
def test_a_ladder_without_a_miss_has_no_upper_bound(high: Optional[float], is_open: bool) -> None:
    """Two ladders that met the objective at the highest load may differ by any factor."""
    ladder = {"name": "find", "unit": "rate", "low": 9051.0, "high": high, "steps": [{"phase": "find-step-1"}]}
    summary: Dict[str, Any] = {"phases": [], "warnings": [], "failure": None, "ladders": [ladder], "usable": True}
    assert [warning.code for warning in result_warnings(summary)] == (["ladder-open"] if is_open else [])
    (found,) = measurements(summary)
    assert (found.value, found.bin) == (9051.0, 0.0 if is_open else 1709.0)
    assert caps("ladder-open", found.metric)


@pytest.mark.parametrize("code", ["recovering", "generator-bound", "late-starts"])
def test_what_limits_a_step_limits_the_answer_of_its_ladder(code: str) -> None:
    ladder = {"name": "find", "unit": "workers", "low": 8, "high": 9, "steps": [{"phase": "find-step-1"}]}
    warnings = [{"code": code, "phase": phase, "text": "x"} for phase in ("find-step-1", "fill")]
    summary = {"phases": [], "warnings": warnings, "failure": None, "ladders": [ladder], "usable": True}
    of_step, of_fill = result_warnings(summary)
    assert of_step.is_about("find", "total", "highest_workers") == (code != "late-starts")  # overload is looked for
    assert of_step.is_about("find-step-1", "GET") and not of_fill.is_about("find", "total")
    assert caps(code, "highest_workers") == (code == "generator-bound")


def test_a_ladder_that_misses_with_each_load_has_an_answer_without_a_number() -> None:
    ladder = {"name": "find", "unit": "workers", "low": None, "high": 8, "steps": [{"phase": "find-step-1"}]}
    (answer,) = measurements({"phases": [], "failure": None, "ladders": [ladder]})
    assert (answer.key, answer.value, answer.bin) == (("find", "total", "highest_workers"), None, 0.0)
