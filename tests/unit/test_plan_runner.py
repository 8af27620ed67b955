"""What the runner does when it is called again after a kill; whole runs are in tests/lab."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import signal
import stat
import subprocess
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Dict, Iterator, List, Mapping, cast

import pytest
import sql_archive
from run_context import context, runner_of

from cbt_plugins import checksums
from cbt_plugins.cbt_run import RunFailed
from cbt_plugins.cluster.ceph import CephError
from cbt_plugins.cluster.cluster_watch import NoWatch
from cbt_plugins.faults import undo_seal
from cbt_plugins.journal import Journal, json_lines
from cbt_plugins.plan import Event, Phase, Plan, Upgrade
from cbt_plugins.run import leftover_files, plan_runner
from cbt_plugins.run.plan_runner import PlanRunner, clean_nodes, summarize
from cbt_plugins.run.preflight import UNKNOWN
from cbt_plugins.run.run_archive import RunArchive


def test_a_snapshot_is_taken_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kill while buckets are removed: the cluster is no longer as it was after the phases."""
    runner = runner_of(tmp_path)
    taken = []

    def snapshot(folder: Path) -> None:
        taken.append(folder)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{len(taken)}.json").write_text("{}")

    monkeypatch.setattr(runner.ceph, "snapshot", snapshot)
    runner.snapshot("after")
    runner.snapshot("after")
    assert [p.name for p in (tmp_path / "cluster" / "after").iterdir()] == ["1.json"]


@pytest.mark.parametrize("phases", [[], ["01-fill", "02-age.partial-1"]])
@pytest.mark.parametrize(
    ("error", "event"),
    [
        (CephError("no reply"), "run-failed"),
        (OSError(errno.ENOSPC, "No space left on device"), "run-failed"),
        (KeyboardInterrupt(), "run-interrupted"),
    ],
)
def test_a_run_without_an_end_is_reported_once_it_has_a_phase(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, phases: List[str], error: BaseException, event: str
) -> None:
    for name in phases:
        (tmp_path / "phases" / name / "rows").mkdir(parents=True)
    runner, reported = runner_of(tmp_path), []

    def fail(run: object) -> List[str]:
        raise error

    monkeypatch.setattr(runner, "context", lambda journal, events: contextlib.nullcontext())
    monkeypatch.setattr(runner, "run_phases", fail)
    monkeypatch.setattr("cbt_plugins.run.plan_runner.summarize", reported.append)
    with pytest.raises((RunFailed, KeyboardInterrupt, OSError)):
        runner.execute()
    assert reported == ([tmp_path] if phases else [])
    assert [line["event"] for line in json_lines(tmp_path / "events.jsonl")] == [event]


def ending(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PlanRunner:
    """A runner whose run has nothing left to do but to end."""
    runner = runner_of(tmp_path)
    monkeypatch.setattr(runner, "context", lambda journal, events: contextlib.nullcontext())
    monkeypatch.setattr(runner, "run_phases", lambda run: [])
    with contextlib.closing(Journal(tmp_path / "journal.jsonl")) as journal:
        journal.write("run", run_id="r1")
    return runner


@pytest.mark.parametrize("error", [KeyboardInterrupt(), CephError("no reply")])
def test_an_error_of_the_report_changes_no_file_of_a_complete_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    def report(folder: Path) -> None:
        raise error

    monkeypatch.setattr(plan_runner, "summarize", report)
    with pytest.raises((RunFailed, KeyboardInterrupt)):
        ending(tmp_path, monkeypatch).execute()
    assert checksums.check_sums(tmp_path) == checksums.FileSums(True, 2)


@pytest.mark.parametrize("name", ["journal.jsonl", "events.jsonl"])
def test_a_journal_of_another_user_is_an_error_with_a_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """On NFS with root_squash a file that was just made belongs to another user."""
    runner, user, fstat = ending(tmp_path, monkeypatch), os.geteuid(), os.fstat

    def squashed(handle: int) -> os.stat_result:
        facts = list(fstat(handle))
        facts[stat.ST_UID] = user + (os.readlink(f"/proc/self/fd/{handle}") == str(tmp_path / name))
        return os.stat_result(facts)

    monkeypatch.setattr(os, "fstat", squashed)
    remedy = "run this as that user, or use another archive folder"
    with pytest.raises(RunFailed, match=f"{name}: belongs to another user .*: {remedy}") as failure:
        runner.execute()
    assert str(failure.value).startswith(str(tmp_path))
    monkeypatch.undo()
    with contextlib.closing(Journal(tmp_path / "journal.jsonl")):
        pass  # it is closed


@pytest.mark.parametrize(
    ("lost", "left"),
    [
        ("journal.jsonl", ["phases/01-fill", "cluster.json"]),
        ("journal.jsonl", ["cluster"]),
        ("journal.jsonl", ["phases/01-fill.running"]),
        ("plan.json", []),
    ],
)
def test_a_run_whose_begin_is_lost_is_not_begun_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lost: str, left: List[str]
) -> None:
    """Its phases would be those of the new run: another user's, who could not copy the journal, or on other buckets."""
    runner = begun(tmp_path, monkeypatch)
    for name in left:
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / lost).unlink()
    if lost == "journal.jsonl":
        (tmp_path / lost).write_text('{"t": 1.0, "event": "r\n')
        (tmp_path / "plan.json").write_text("another plan")
    with pytest.raises(RunFailed, match=rf"{lost}: .*: use another archive directory \(`cbt-tools undo "):
        runner.execute()
    assert lost == "plan.json" or (tmp_path / "plan.json").read_text() == "another plan"


def test_a_run_that_was_killed_before_its_journal_had_it_is_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = begun(tmp_path, monkeypatch)
    (tmp_path / "journal.jsonl").write_bytes(b"")
    with pytest.raises(KeyboardInterrupt):
        runner.execute()
    assert [line["event"] for line in json_lines(tmp_path / "journal.jsonl")] == ["run"]


def begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PlanRunner:
    """A runner whose run was interrupted as soon as it had begun, as each of its further attempts is."""
    runner = runner_of(tmp_path)

    def interrupted(run: object) -> List[str]:
        raise KeyboardInterrupt

    @contextlib.contextmanager
    def beginning(journal: Journal, events: Journal) -> Iterator[None]:
        runner.begin_or_resume(journal)
        yield

    monkeypatch.setattr(runner, "context", beginning)
    monkeypatch.setattr(runner, "run_phases", interrupted)
    with pytest.raises(KeyboardInterrupt):
        runner.execute()
    return runner


def test_a_signal_while_a_run_ends_waits_for_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    end_run = checksums.end_run

    def interrupted(run: Path, facts: Mapping[str, Any]) -> None:
        signal.raise_signal(signal.SIGTERM)
        end_run(run, facts)

    monkeypatch.setattr(checksums, "end_run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        ending(tmp_path, monkeypatch).execute()
    assert checksums.check_sums(tmp_path) == checksums.FileSums(True, 2)
    assert "SIGTERM: writing the sums of the run's files first" in caplog.text and "undoing" not in caplog.text


@pytest.mark.parametrize(("status", "made"), [(4, True), (4, False), (1, False)])
def test_only_a_report_that_was_not_made_is_called_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, status: int, made: bool
) -> None:
    """Status 4 of a report says that its run is incomplete."""

    def report(line: List[str], **_: object) -> subprocess.CompletedProcess[str]:
        if made:
            (tmp_path / "summary.json").write_text("{}")
        return subprocess.CompletedProcess(line, status)

    monkeypatch.setattr(subprocess, "run", report)
    summarize(tmp_path)
    assert ("the report failed" in caplog.text) is not made


@pytest.mark.parametrize("came", [True, False])
def test_a_complete_run_is_summarized_again_when_files_came_home_late(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, came: bool
) -> None:
    asked: List[Any] = []
    summarized: List[Path] = []

    def bring(*its: Any) -> List[Path]:
        asked.append(its[:-1])
        if came:
            late.write_text("{}")
            its[-1]([late])
        return [late] if came else []

    late = tmp_path / "monitors" / "01" / "late.jsonl"
    late.parent.mkdir(parents=True)
    checksums.end_run(tmp_path, {"t": 1.0})
    (tmp_path / "report.html").write_text("")
    monkeypatch.setattr(plan_runner, "bring_noted", bring)
    monkeypatch.setattr(plan_runner, "summarize", summarized.append)
    runner_of(tmp_path).check_complete()
    assert asked == [({"head": "node0"}, {}, "nowhere", tmp_path / "monitors")]
    assert summarized == ([tmp_path] if came else [])
    assert checksums.check_sums(tmp_path) == checksums.FileSums(True, 2 if came else 1)


def test_a_complete_run_whose_report_was_interrupted_gets_it_by_the_same_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sql_archive.sql_run(tmp_path)
    run = next(tmp_path.glob("results/*/id-*"))
    facts = json.loads((run / "complete").read_text())
    (run / "complete").unlink()
    page = run / "report.html"
    page.write_text("of the run that was broken off")
    checksums.end_run(run, facts)
    os.utime(page, ns=(1, 1))
    runner = runner_of(run)
    monkeypatch.setattr(runner, "check_plan", lambda: None)  # the archive has one of its own
    runner.check_complete()
    made = page.read_text()
    assert "broken off" not in made and "<html" in made
    page.unlink()
    runner.check_complete()
    assert page.read_text() == made
    monkeypatch.setattr(plan_runner, "summarize", pytest.fail)
    runner.check_complete()
    page.unlink()
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)  # no jinja2: there will be no page
    runner.check_complete()
    assert checksums.check_sums(run).changed == {}


def test_late_files_are_fetched_by_a_single_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    note = tmp_path / "monitors" / "01" / "left.json"
    note.parent.mkdir(parents=True)
    note.write_text("{}")
    monkeypatch.setattr(plan_runner, "is_reported", lambda folder: True)
    runner = runner_of(tmp_path)
    runner.check_complete()
    with contextlib.closing(Journal(RunArchive(tmp_path).journal)):
        with pytest.raises(RunFailed, match="another process is using"):
            runner.check_complete()
        note.unlink()
        runner.check_complete()


@pytest.mark.parametrize(
    ("run_dir", "facts", "fetches"),
    [("/tmp/cbt/warp-1", {}, True), ("/home/warp-1", {}, False), ("/tmp/cbt/warp-1", {"seal": "0"}, False)],
)
def test_files_of_an_earlier_version_are_fetched_from_the_folder_of_the_run_only(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, run_dir: str, facts: Dict[str, str], fetches: bool
) -> None:
    fetched: List[str] = []
    monkeypatch.setattr(leftover_files, "bring_left", lambda _, common, nodes, folder, also: fetched.append(folder))
    host = SimpleNamespace(cluster={"head": "node0"}, common={}, run_dir="/tmp/cbt/warp-1")
    last = {"event": "invocation", "run_dir": run_dir, "clients": [], **facts}
    journal = SimpleNamespace(last=lambda event: last, all=lambda event: [])
    plan = SimpleNamespace(admin=True, drivers=[], phases=[])
    archive = RunArchive(tmp_path)
    leftover_files.fetch_leftovers(context(cbt_run=host, plan=plan, remote=None, journal=journal, archive=archive))
    assert fetched == ([run_dir] if fetches else [])


@pytest.mark.parametrize(("begun", "collected"), [(3, {"1": "1", "2": "2"}), (4, {})])
def test_rows_of_all_attempts_at_a_phase_are_collected(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, begun: int, collected: Dict[str, str]
) -> None:
    """A client was unreachable when the first attempt ended and when the run was resumed; the third has finished."""
    came: Dict[str, str] = {}
    monkeypatch.setattr(leftover_files, "bring_left", lambda *_: None)
    monkeypatch.setattr(
        leftover_files, "collect", lambda _, nodes, folder, into: came.update({folder[-1]: into.name[-1]})
    )
    for name in ("02-age.partial-1", "02-age.partial-2", "02-age"):
        (tmp_path / "phases" / name).mkdir(parents=True)
    last = {"event": "invocation", "run_dir": "/tmp/cbt/warp-1", "clients": []}
    scratch = [{"phase": "age", "scratch": f"/tmp/cbt/warp-1/load/r1-02-age.{i + 1}"} for i in range(begun)]
    of_event = {"invocation": [last], "phase-begun": [{"phase": "fill", "scratch": "/x"}, *scratch]}
    journal = SimpleNamespace(last=lambda event: last, all=lambda event: of_event[event])
    host = SimpleNamespace(cluster={"head": "node0"}, common={}, run_dir="/tmp/cbt/warp-1")
    plan = SimpleNamespace(admin=True, drivers=[], phases=[Phase("fill", "fill"), Phase("age", "hybrid")])
    run = context(cbt_run=host, plan=plan, remote=None, journal=journal, archive=RunArchive(tmp_path))
    leftover_files.fetch_leftovers(run)
    assert came == collected


def test_clients_that_make_no_load_are_watched_and_so_cleaned(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    cleaned: List[str] = []
    fetched: List[str] = []
    monkeypatch.setattr(leftover_files, "bring_left", lambda cluster, common, nodes, *folders: fetched.extend(nodes))
    remote = SimpleNamespace(run=lambda nodes, command, timeout: cleaned.extend(nodes))
    cluster = {"head": "node0", "clients": ["client1", "client2"], "osds": ["osd1"]}
    host = SimpleNamespace(cluster=cluster, common={}, run_dir="/var/tmp/cbt/00000000/warp-1")
    plan = SimpleNamespace(admin=True, drivers=[SimpleNamespace(node="client1")], phases=[])
    last = {"event": "invocation", "run_dir": host.run_dir, "clients": ["client1"]}
    last.update(undo_seal.mark(last, "r1"))
    journal = SimpleNamespace(last=lambda event: last, all=lambda event: [])
    run = context(cbt_run=host, plan=plan, remote=remote, journal=journal, archive=RunArchive(tmp_path))
    leftover_files.fetch_leftovers(run)
    clean_nodes(run)
    assert run.nodes == ["node0", "client1", "osd1"] and cleaned == fetched == [*run.nodes, "client2"]


def test_the_folders_of_all_processes_of_a_run_are_cleaned(tmp_path: Path) -> None:
    """CBT's default tmp_dir has the number of the process in its name."""
    commands: List[str] = []
    remote = SimpleNamespace(run=lambda nodes, command, timeout: commands.append(command))
    folders = [f"/tmp/cbt.{pid}/00000000/warp-r1" for pid in (7, 8)]
    lines = [{"event": "invocation", "run_dir": folder, "pid": pid} for folder, pid in zip(folders, (7, 8))]
    foreign = {"event": "invocation", "run_dir": "/tmp/cbt.9/00000000/warp-r1", "pid": 9}  # without our seal
    sealed = [{**line, **undo_seal.mark(line, "r1")} for line in lines]
    journal = SimpleNamespace(all=lambda event: [*sealed, foreign])
    host = SimpleNamespace(cluster={"head": "node0"}, common={}, run_dir=folders[1])
    plan = SimpleNamespace(admin=True, drivers=[], phases=[])
    clean_nodes(context(cbt_run=host, plan=plan, remote=remote, journal=journal, archive=RunArchive(tmp_path)))
    assert [folder in command for folder, command in zip(folders, commands)] == [True, True] and len(commands) == 2
    assert "/tmp/cbt.7 " in commands[0] and "load/*_ceiling.*" in commands[0]


MOVED = "the clock of node0 moved by -1.700 s while the run was interrupted"
CORRECTED = " (a steady drift is corrected in its samples of the cluster)"
WATCH = SimpleNamespace(node="node0")


@pytest.mark.parametrize(
    ("seconds", "watch", "moved"),
    [
        (-0.8, SimpleNamespace(node="node1"), [MOVED]),
        (-0.8, WATCH, [MOVED + CORRECTED]),
        (-0.8, NoWatch(cast(Any, None), "node0", Path(), {}), [MOVED]),
        (0.7, WATCH, []),
    ],
)
def test_a_clock_that_was_set_while_the_run_was_interrupted(
    tmp_path: Path, seconds: float, watch: Any, moved: List[str]
) -> None:
    """The first offset stays that of the samples, once there are some; the release is that of before the upgrade."""
    runner = runner_of(tmp_path)
    upgraded = Phase("p", "hybrid", engine="cbt-load", events=(Event(5.0, upgrade=Upgrade("new", "20.2")),))
    plan = replace(runner.plan, phases=(upgraded,))
    journal: Any = SimpleNamespace(all=lambda event: [])
    parts = {"plan": plan, "journal": journal, "archive": RunArchive(tmp_path)}
    phase = tmp_path / "phases" / "01-p" / "phase.json"
    for now, ceph in ((5.0, "18.2.7"), (0.9, "18.2.7"), (seconds, "20.2.4"), (0.9, "20.2.4")):
        if ceph == "20.2.4":
            phase.parent.mkdir(parents=True, exist_ok=True)
            phase.write_text("{}")
        clocks = {"node0": {"seconds": now, "error": 0.01}}
        ready: Any = SimpleNamespace(manifest={"ceph": {"overall": {ceph: 3}}, "cbt": None, "clock_offsets": clocks})
        runner.describe(context(cbt_run=SimpleNamespace(config_text=f"now: {now}\n"), watch=watch, **parts), ready)
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    assert manifest["clock_offsets"]["node0"]["seconds"] == 0.9 and manifest["ceph"] == {"overall": {"18.2.7": 3}}
    assert manifest.get("moved_clocks", []) == moved
    assert (tmp_path / "config.yaml").read_text() == "now: 5.0\n", "the file that began the run"


def test_what_is_replaced_between_two_processes_of_a_run_is_in_its_manifest(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    runner = runner_of(tmp_path)
    load = Phase("p", "hybrid", engine="cbt-load")
    plan = replace(runner.plan, phases=(load,))
    journal: Any = SimpleNamespace(all=lambda event: [])

    def replaced(plan: Plan, ceph: str, program: str) -> Any:
        versions = {version: 3 for version in ceph.split()}
        ready: Any = SimpleNamespace(manifest={"ceph": {"overall": versions}, "cbt-load": program, "cbt": None})
        parts = {"plan": plan, "journal": journal, "archive": RunArchive(tmp_path)}
        runner.describe(context(cbt_run=SimpleNamespace(config_text=None), **parts), ready)
        return json.loads((tmp_path / "manifest.json").read_text()).get("replaced")

    assert replaced(plan, "18.2.4", "0.2") is None
    assert replaced(plan, "18.2.4", "0.2") is None
    assert replaced(plan, "18.2.4", UNKNOWN) is None, "it was not asked"
    assert sorted(replaced(plan, "18.2.7", "0.3")) == ["cbt-load: 0.2 -> 0.3", "ceph: 18.2.4 -> 18.2.7"]
    assert len(replaced(plan, "18.2.7", "0.3")) == 2, "it stays known"
    for of_daemons in ("18.2.7 20.2.4", "20.2.4", "18.2.7 20.2.4"):  # the only one of a version is down
        assert len(replaced(plan, of_daemons, "0.3")) == 3
    for damaged in ("[]", "{"):
        (tmp_path / "manifest.json").write_text(damaged)
        assert replaced(plan, "18.2.7", "0.3") is None
    assert caplog.text.count("manifest.json is written anew") == 2
    assert len(replaced(plan, "18.2.8", "0.3")) == 1
    upgrade = Event(5.0, upgrade=Upgrade("new", "21.2"))
    assert len(replaced(replace(plan, phases=(replace(load, events=(upgrade,)),)), "21.2.0", "0.3")) == 1
