"""Journal, archive, outcome of a phase, progress and keys: what a run rests on."""

from __future__ import annotations

import json
import random
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Tuple, cast

import pytest
from run_context import context

from cbt_plugins.cluster.ceph import CephError
from cbt_plugins.cluster.clock_offsets import Offset
from cbt_plugins.cluster.s3_keys import S3Keys
from cbt_plugins.formatting.progress_line import Now, Rate, RateMeter, clock
from cbt_plugins.journal import Journal, JournalInUse, json_lines, write_json
from cbt_plugins.load.generator import Counts, JobEnd, LoadJob, LoadStart
from cbt_plugins.plan import S3, Bucket, Phase, Plan
from cbt_plugins.run import load_phase, preflight, reporting
from cbt_plugins.run.buckets import account
from cbt_plugins.run.load_phase import LoadPhase
from cbt_plugins.run.phase_outcome import PhaseOutcome
from cbt_plugins.run.progress import remainder_of
from cbt_plugins.run.run_archive import RunArchive
from cbt_plugins.run.s3_key_sources import renewed_keys, s3_keys


def test_what_takes_long_is_named_when_it_begins(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level("INFO")
    monkeypatch.setattr(reporting, "run_report", lambda folder: SimpleNamespace(returncode=4))
    reporting.summarize(tmp_path)
    plan = SimpleNamespace(admin=False, drivers=[SimpleNamespace(node="c1"), SimpleNamespace(node="c2")])
    with pytest.raises(AttributeError):  # nothing here can be asked
        preflight.check(context(plan=plan, cbt_run=SimpleNamespace(cluster={"head": "n0"})))
    begun = [record.message for record in caplog.records if record.levelname == "INFO"]
    assert begun == ["making the report", "checking 3 nodes and the cluster"]


def test_a_torn_journal_keeps_all_whole_records(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    journal = Journal(path)
    for number in range(3):
        journal.write("step", number=number)
    journal.close()
    whole = path.read_bytes()
    last = whole.rstrip(b"\n").rfind(b"\n") + 1
    for cut in range(last, len(whole)):
        path.write_bytes(whole[:cut])
        again = Journal(path)
        assert [r["number"] for r in again.records] == [0, 1]
        again.write("step", number=9)
        again.close()
        assert [r["number"] for r in json_lines(path)] == [0, 1, 9]


def test_a_phase_is_there_whole_or_not_at_all(tmp_path: Path) -> None:
    archive = RunArchive(tmp_path)
    archive.running(1, "fill").mkdir(parents=True)
    (archive.running(1, "fill") / "rows").mkdir()
    assert archive.finished(1, "fill") is None
    kept = archive.keep_partial(1, "fill")
    assert kept is not None and kept.name == "01-fill.partial-1"
    archive.running(1, "fill").mkdir()
    second = archive.keep_partial(1, "fill")
    assert second is not None and second.name == "01-fill.partial-2"
    assert archive.keep_partial(1, "fill") is None
    assert archive.attempts(1, "fill") == [kept, second]
    archive.running(1, "fill").mkdir()
    assert archive.attempts(1, "fill") == [kept, second, archive.running(1, "fill")]
    archive.finish(1, "fill", {"status": "ok"})
    assert archive.finished(1, "fill") == {"status": "ok"}
    assert not archive.running(1, "fill").exists()
    assert archive.attempts(1, "fill") == [kept, second, archive.phase(1, "fill")] and archive.attempts(2, "load") == []


def test_the_line_of_a_phase_says_what_held_its_load() -> None:
    jobs = [{"op": "GET", "rate_limit": 39.6}, {"op": "GET", "rate_limit": 39.6}, {"op": "PUT", "rate_limit": 0}]
    assert PhaseOutcome(1, Phase("a", "hybrid"), jobs=jobs).rate_limits == "; LIMITED: GET to 79.2/s"
    assert PhaseOutcome(1, Phase("a", "hybrid"), jobs=jobs[2:]).rate_limits == ""
    assert PhaseOutcome(1, Phase("a", "hybrid"), rate=500.0, jobs=jobs).rate_limits == "; an open loop of 500/s"


def test_a_file_is_never_half_written(tmp_path: Path) -> None:
    write_json(tmp_path / "a.json", {"x": 1})
    with pytest.raises(TypeError):
        write_json(tmp_path / "a.json", {"x": object()})
    assert json.loads((tmp_path / "a.json").read_text()) == {"x": 1}


def job(name: str, op: str, workers: int = 4, prepared: int = 0) -> LoadJob:
    return LoadJob(name, "01", "c1", op, "r", "b", "", ((1, 1, 1.0),), workers, (), ("warp", op), prepared=prepared)


def end(cut: bool = False, passes: int = 1, **counts: Any) -> JobEnd:
    return JobEnd({op: Counts(good=g, failed=f) for op, (g, f) in counts.items()}, exit=0, cut=cut, passes=passes)


def test_the_accounting_balances() -> None:
    jobs = [job("p", "PUT"), job("d", "DELETE"), job("g", "GET")]
    ends = {"p": end(PUT=(100, 0)), "d": end(DELETE=(30, 0)), "g": end(GET=(999, 5), cut=True)}
    (count,) = account({"b": 50}, {"b": 120}, jobs, ends)
    assert (count.expected, count.ok, count.in_flight) == (120, True, 8)


@pytest.mark.parametrize(("after", "ok"), [(145, False), (146, True), (154, True), (155, False)])
def test_warp_may_end_before_it_prints_the_last_row_of_each_worker(after: int, ok: bool) -> None:
    (count,) = account({"b": 50}, {"b": after}, [job("p", "PUT")], {"p": end(PUT=(100, 0))})
    assert count.ok is ok


def test_a_job_that_is_started_again_and_again_hides_no_lost_objects() -> None:
    (count,) = account({"b": 400}, {"b": 300}, [job("d", "DELETE")], {"d": end(DELETE=(100, 0), passes=50)})
    assert count.in_flight == 4 + 49


def test_cut_and_failed_requests_are_an_allowance_and_no_more() -> None:
    jobs = [job("p", "PUT", workers=4)]
    ends = {"p": end(PUT=(100, 3), cut=True)}
    assert account({"b": 0}, {"b": 107}, jobs, ends)[0].ok
    assert not account({"b": 0}, {"b": 108}, jobs, ends)[0].ok


def test_a_warp_that_is_ended_has_rows_that_it_did_not_print() -> None:
    """On a busy node it is late: 0.2 s at 20 requests a second are four, beside one for each worker."""
    late = {"p": JobEnd({"PUT": Counts(good=100)}, cut=True, first_row=10.0, last_row=15.0, ended=15.2)}
    found = [account({"b": 0}, {"b": after}, [job("p", "PUT", workers=4)], late)[0].ok for after in (108, 109)]
    assert found == [True, False]
    hung = {"p": JobEnd({"PUT": Counts(good=100)}, cut=True, first_row=10.0, last_row=15.0, ended=99.0)}
    assert account({"b": 0}, {"b": 100}, [job("p", "PUT", workers=4)], hung)[0].in_flight == 24


def test_objects_that_mixed_prepares_have_no_rows_but_are_accounted_for() -> None:
    ends = {"m": end(PUT=(150, 0), DELETE=(40, 0))}
    (count,) = account({"b": 0}, {"b": 1110}, [job("m", "MIXED", prepared=1000)], ends)
    assert count.ok and count.prepared == 1000


def test_bucket_names_are_valid() -> None:
    assert Bucket("64KiB", ()).name("0a1b2c3d") == "cbtp-0a1b2c3d-64kib"
    assert len(Bucket("x" * 90, ()).name("0a1b2c3d")) <= 63
    assert Bucket("Mine", (), existing=True).name("0a1b2c3d") == "Mine"


def test_a_generator_that_died_fails_its_phase() -> None:
    outcome = PhaseOutcome(1, Phase(name="m", kind="hybrid"))
    dead = JobEnd({"PUT": Counts(good=5)}, exit=2, passes=1)
    outcome.add_jobs([job("p", "PUT")], {"p": dead}, {"c1": Offset(0.0, 0.0)}, {"c1": {"warp": "warp"}}, False)
    assert outcome.status == "failed"
    assert [w["code"] for w in outcome.warnings] == ["generator-died"]


def test_many_errors_degrade_few_only_warn() -> None:
    for failed, status in ((6, "degraded"), (1, "ok")):
        outcome = PhaseOutcome(1, Phase(name="m", kind="hybrid"))
        ends = {"p": end(PUT=(100 - failed, failed))}
        outcome.add_jobs([job("p", "PUT")], ends, {"c1": Offset(0.0, 0.0)}, {"c1": {"warp": "warp"}}, False)
        assert outcome.status == status
        assert [w["code"] for w in outcome.warnings] == ["errors"]


def test_times_are_turned_into_the_heads_clock() -> None:
    outcome = PhaseOutcome(1, Phase(name="m", kind="hybrid"))
    late = JobEnd({"PUT": Counts(good=1)}, exit=0, started=100.5, first_row=101.5, last_row=102.5, ended=103.5)
    outcome.add_jobs([job("p", "PUT")], {"p": late}, {"c1": Offset(0.5, 0.0)}, {"c1": {"warp": "warp"}}, False)
    assert [outcome.jobs[0][k] for k in ("started", "first_row", "ended")] == [100.0, 101.0, 103.0]


def test_rows_of_preparation_do_not_stretch_a_job() -> None:
    outcome = PhaseOutcome(1, Phase(name="fill", kind="fill"))
    counts = {"PUT": Counts(good=9, first=10.0, last=20.0), "STAT": Counts(good=9, first=22.0, last=30.0)}
    done = JobEnd(counts, exit=0, first_row=10.0, last_row=30.0)
    outcome.add_jobs([job("p", "PUT")], {"p": done}, {"c1": Offset(0.0, 0.0)}, {"c1": {"warp": "warp"}}, False)
    assert (outcome.jobs[0]["first_row"], outcome.jobs[0]["last_row"]) == (10.0, 20.0)


def test_a_delete_that_ran_dry_says_so() -> None:
    def warned(last_row: float, restarts: int) -> bool:
        outcome = PhaseOutcome(1, Phase(name="m", kind="hybrid"), window=(0.0, 20.0))
        outcome.jobs = [{"id": "d", "role": "delete", "exit": 0, "last_row": last_row, "restarts": restarts}]
        outcome.note_dry()
        return [w["code"] for w in outcome.warnings] == ["ran-dry"]

    assert warned(16.5, 0) and warned(19.9, 2)
    assert not warned(19.9, 0)


@pytest.mark.parametrize(
    ("end", "status"),
    [
        (JobEnd({"PUT": Counts(good=9)}, exit=0, cut=True, driver_end={"spaces": []}), "ok"),
        (JobEnd({"PUT": Counts(good=9, failed=4)}, exit=0, cut=True, driver_end={"spaces": [], "cut": 4}), "ok"),
        (JobEnd({"PUT": Counts(good=9)}, exit=1, cut=True, driver_end={"spaces": []}, message="no state"), "failed"),
        (JobEnd({"PUT": Counts(good=9)}, signal=9, cut=True), "failed"),
        (JobEnd({"PUT": Counts(good=9)}, exit=0, cut=True), "failed"),
    ],
)
def test_a_fill_that_is_stopped_has_to_say_what_it_wrote(end: JobEnd, status: str) -> None:
    """A fill by share is always stopped. Without its state the next phase begins with no objects, and nothing says so.
    """
    outcome = PhaseOutcome(1, Phase("fill", "fill", engine="cbt-load"))
    filling = replace(job("p", "PUT"), spec={"state_out": "x"}, argv=("cbt-load", "run"))
    outcome.add_jobs([filling], {"p": end}, {"c1": Offset(0.0, 0.0)}, {"c1": {}}, False)
    assert outcome.status == status
    assert [warning["code"] for warning in outcome.warnings] == (["generator-died"] if status == "failed" else [])


def test_where_a_plan_differs_from_that_of_the_archive(tmp_path: Path) -> None:
    archive = RunArchive(tmp_path)
    plan = Plan("warp", S3(urls=("http://a", "http://b")), (), (), (Phase("w", "wait", duration=1.0),))
    assert archive.other_plan(plan) is None
    write_json(archive.plan, asdict(plan))
    assert archive.other_plan(plan) is None
    assert archive.other_plan(replace(plan, s3=S3(urls=("http://a", "http://c")))) == "s3.urls[1]"
    assert archive.other_plan(replace(plan, phases=())) == "phases"
    assert archive.other_plan(replace(plan, s3=replace(plan.s3, user="cbt"))) == "s3.user"
    older = asdict(plan)
    del older["s3"]["user"], older["s3"]["region"]  # fields that a newer version has
    write_json(archive.plan, older)
    assert archive.other_plan(replace(plan, s3=replace(plan.s3, region=""))) is None
    assert archive.other_plan(plan) == "s3.region"
    archive.plan.write_text("{")
    assert archive.other_plan(plan) == "plan.json"


def test_one_process_at_a_time_works_in_an_archive(tmp_path: Path) -> None:
    first = Journal(tmp_path / "journal.jsonl")
    with pytest.raises(JournalInUse, match="another process"):
        Journal(tmp_path / "journal.jsonl")
    first.close()
    Journal(tmp_path / "journal.jsonl").close()


def test_the_progress_line() -> None:
    assert clock(3723) == "1:02:03" and clock(59.9) == "0:59"
    line = str(Now("age", "running", 65, 5, Rate(1234.4, 5.25), 2, None, "stalled: x"))
    assert line == "age: 1:05, 0:05 left  1,234 obj/s 5.2 MiB/s  2 errors  PGs ?  stalled: x"
    # no rate is no rate of 0
    assert str(Now("wait", "waiting", 65, None, not_clean=2)) == "wait: 1:05, waiting  0 errors  2 PGs not clean"
    garbage = Now("gc", "waiting", 65, None, not_clean=2, counted="entries of garbage")
    assert str(garbage) == "gc: 1:05, waiting  0 errors  2 entries of garbage"
    assert str(replace(garbage, not_clean=None)) == "gc: 1:05, waiting  0 errors  entries of garbage ?"


def test_the_progress_line_has_the_time_left_of_the_run() -> None:
    timed, counted = Phase("m", "hybrid", duration=60.0, ramp=20.0, engine="cbt-load"), Phase("v", "verify")
    line = str(Now("age", "running", 65, 5, None, 0, 0, after=remainder_of([timed, timed])))
    assert line.startswith("age: 1:05, 0:05 left, 2:45 left in the run  0 errors")
    line = str(Now("fill", "running", 65, None, None, 0, 0, after=remainder_of([timed, counted])))
    assert line.startswith("fill: 1:05, running, more than 1:20 left in the run  ")


def test_rates_of_progress_are_those_of_the_seconds() -> None:
    """Two jobs with beats late by up to a second, polled at any time: each line against the rows of its seconds."""
    chance = random.Random(7)
    meter, rates = RateMeter(), [chance.randrange(100, 600) for _ in range(60)]

    def made(until: float) -> Tuple[int, int]:
        whole = int(until)
        good = sum(rates[:whole]) + (rates[whole] * (until - whole) if whole < len(rates) else 0.0)
        return round(good), round(good) * 1024

    assert meter.rate() is None
    shown = []
    for beat in range(1, 59):
        for job in ("a", "b"):
            at = beat + chance.random() * 0.9
            meter.take(job, at, *made(at))
            meter.take(job, at, 0, 0)  # the same line of counts once more
        rate = meter.rate()
        if rate:
            # of two jobs: no second was faster or slower
            seconds = rates[max(0, beat - 7) : beat + 1]
            assert 2 * min(seconds) <= rate.objects_per_second + 1 and rate.objects_per_second - 1 <= 2 * max(seconds)
            assert rate.mib_per_second == pytest.approx(rate.objects_per_second / 1024)
            shown.append(rate.objects_per_second)
        assert beat <= 6 or rate
    assert len(shown) <= 54  # five seconds at least
    # a job that has ended, and one that is not heard of for long
    meter.take("a", 70.0, *made(59.0))
    meter.take("b", 70.0, *made(59.0))
    later = meter.rate()
    assert later is not None and later.objects_per_second < 600


def test_the_accounting_of_the_driver_is_its_own() -> None:
    """An overwritten object is no new one, and a DELETE of nothing removes nothing: rows cannot tell."""
    spaces = [{"bucket": "b", "created": 70, "removed": 30, "unknown": 1}, {"bucket": "c", "created": 5, "removed": 0}]
    spaces[1]["unknown"] = 0
    ends = {"h": JobEnd({"PUT": Counts(good=100), "DELETE": Counts(good=60)}, exit=0, driver_end={"spaces": spaces})}
    b, c = account({"b": 50, "c": 0}, {"b": 91, "c": 5}, [job("h", "MIXED")], ends)
    assert (b.put, b.delete, b.expected, b.in_flight, b.ok) == (70, 30, 90, 1, True)
    assert (c.put, c.expected, c.ok) == (5, 5, True)
    assert not account({"b": 50}, {"b": 92}, [job("h", "MIXED")], ends)[0].ok


def test_what_was_only_seen_at_the_object_may_be_missing_in_the_index() -> None:
    """A RGW that hangs between an object and its index entry: the other one finds the object, and no count has it."""
    spaces = [{"bucket": "b", "created": 1800, "removed": 36, "unknown": 3, "seen": 5}]
    ends = {"h": JobEnd({}, exit=0, driver_end={"spaces": spaces})}
    (count,) = account({"b": 200}, {"b": 1959}, [job("h", "MIXED")], ends)
    assert (count.expected, count.in_flight, count.ok) == (1964, 8, True)
    assert not account({"b": 200}, {"b": 1955}, [job("h", "MIXED")], ends)[0].ok


def test_aggregates_that_are_not_whole_degrade() -> None:
    outcome = PhaseOutcome(1, Phase(name="m", kind="hybrid"))
    ends = {"p": JobEnd({"PUT": Counts(good=5)}, exit=0, reducer="cbt-rows ended with status 1: no space")}
    outcome.add_jobs([job("p", "PUT")], ends, {"c1": Offset(0.0, 0.0)}, {"c1": {"warp": "/x/warp"}}, True)
    assert (outcome.status, outcome.warnings[0]["code"]) == ("degraded", "aggregates")
    assert (outcome.jobs[0]["aggregates"], outcome.jobs[0]["rows"]) == ("aggregates/p.aggregates", "rows/p.csv.zst")


CREDENTIALS = """\
[default]
aws_access_key_id = A%1
aws_secret_access_key=S/+=
[perf.lab]
aws_access_key_id = B
aws_secret_access_key = T
aws_session_token = U
[half]
aws_access_key_id = C
"""


def write_token(path: Path, token: str) -> None:
    path.write_text(f"[lab]\naws_access_key_id = A\naws_secret_access_key = S\naws_session_token = {token}\n")


def test_each_phase_has_the_token_of_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A token ends within hours, and a run may take days."""

    class Begun(Exception):
        """The keys of the phase are read."""

    def begun(*_: Any) -> None:
        raise Begun

    path = tmp_path / "credentials"
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(path))
    monkeypatch.setattr(LoadPhase, "jobs_of", begun)
    monkeypatch.setattr(load_phase, "offsets", lambda *_: {})
    plan = Plan("warp", S3(("http://a",), profile="lab"), (), (), ())
    nothing = cast(Any, None)
    ready = preflight.Ready(S3Keys("A", "S", "first"), {}, {}, {})
    load = LoadPhase(context(plan=plan), ready, nothing, nothing)
    for token, expected in (("second", "second"), ("", "second"), ("third", "third")):
        write_token(path, token) if token else path.unlink()
        with pytest.raises(Begun):
            load.run(1, Phase("a", "hybrid"), LoadStart(), nothing, "/nowhere")
        assert load.ready.keys.all == ("A", "S", expected)
    (warning,) = caplog.messages
    assert "the keys could not be read again; the earlier keys are used: s3.profile: " in warning
    constant = S3Keys("A", "S")
    assert renewed_keys(plan.s3, constant, nothing) is constant


def test_keys_of_a_profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "credentials"
    path.write_text(CREDENTIALS)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(path))
    ceph = cast(Any, None)
    assert s3_keys(S3(("http://a",), profile="default"), ceph).all == ("A%1", "S/+=", "")
    keys = s3_keys(S3(("http://a",), profile="perf.lab"), ceph)
    assert keys.all == ("B", "T", "U") and "T" not in repr(keys)
    given = keys.environment("/x/ca.pem")
    assert {given[f"{name}_TOKEN"] for name in ("AWS_SESSION", "AWS_SECURITY", "WARP_SESSION")} == {"U"}
    assert given["SSL_CERT_FILE"] == "/x/ca.pem"
    without_token = S3Keys("B", "T").environment()
    tokens = {"AWS_SESSION_TOKEN", "AWS_SECURITY_TOKEN"}  # of an environment that the programs inherit
    assert {without_token[name] for name in tokens} == {""} and set(without_token) - tokens == {
        f"{name}_KEY" for name in ("WARP_ACCESS", "WARP_SECRET", "AWS_SECRET_ACCESS")
    } | {"AWS_ACCESS_KEY_ID"}
    for name, said in (("none", "no profile none; there are: default, half, perf.lab"), ("half", "no aws_secret")):
        with pytest.raises(CephError, match=said):
            s3_keys(S3(("http://a",), profile=name), ceph)
    path.write_text("AKIA-of-somebody")
    with pytest.raises(CephError, match="cannot be read as a file of AWS's profiles"):
        s3_keys(S3(("http://a",), profile="default"), ceph)
    path.unlink()
    with pytest.raises(CephError, match="no profile default; there are: none"):
        s3_keys(S3(("http://a",), profile="default"), ceph)
