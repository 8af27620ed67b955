"""The `faults` profile beside CBT's own benchmarks: when it begins."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Dict, List

import pytest

from cbt_plugins.cbt import delegate
from cbt_plugins.cbt_run import RunFailed
from cbt_plugins.cluster.remote import Result
from cbt_plugins.faults import faults_profile as faults
from cbt_plugins.monitors import lifecycle

START = subprocess.Popen
_ENDED = "faults: `cbt-tools inject` ended with exit status 1: see"
LOAD = "/tmp/cbt/00000000/LibrbdFio/op_size-00016384/randwrite"


def profile_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str) -> faults.Faults:
    """The profile, with a program of Python in the place of `cbt-tools inject`."""

    def start(line: List[str], **options: Any) -> Any:
        if line[0] == "sh":  # the folder of the seal's key
            return START(line, **options)
        assert line[3:6] == ["inject", "faults.yaml", "--tied"]
        return START([sys.executable, "-c", program], **options)

    monkeypatch.setattr(faults.subprocess, "Popen", start)
    cluster: Dict[str, Any] = {"head": "node0", "archive_dir": str(tmp_path)}
    return faults.Faults({"file": "faults.yaml"}, cluster, {})


@pytest.mark.parametrize("preparation", ["idle_monitoring", "pool_monitoring", "recovery_pool_monitoring"])
def test_nothing_is_broken_before_the_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, preparation: str) -> None:
    """CBT starts its profiles for an idle cluster, and while it makes pools: an event at 0s is not meant for these."""
    profile = profile_of(tmp_path, monkeypatch, "raise SystemExit(1)")
    profile.start(f"/tmp/cbt/00000000/LibrbdFio/{preparation}")
    profile.stop("")
    assert not (tmp_path / "faults").exists()


def test_the_load_begins_when_the_clock_of_the_events_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings and a look at the first fault take their time: CBT's load must not run ahead of its faults."""
    said = tmp_path / "said"
    program = f"import sys, time; time.sleep(0.5); open({str(said)!r}, 'w').write(repr(time.time()))\n"
    program += "print('begun', flush=True); sys.stdin.read()"
    profile = profile_of(tmp_path, monkeypatch, program)
    profile.start(LOAD)
    assert float(said.read_text()) <= time.time()
    profile.stop(LOAD)


def test_it_is_heard_beside_a_thousand_other_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process of cbt.py may hold more files than select() takes."""
    profile = profile_of(tmp_path, monkeypatch, "import sys; print('begun', flush=True); sys.stdin.read()")
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limits[1], limits[1]))
    with contextlib.ExitStack() as files:
        files.callback(resource.setrlimit, resource.RLIMIT_NOFILE, limits)
        while files.enter_context(open(os.devnull)).fileno() < 1024:
            pass
        profile.start(LOAD)
        profile.stop(LOAD)
    assert profile.failure is None


def test_the_archive_keeps_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    profile = profile_of(tmp_path, monkeypatch, "print('begun', flush=True); import sys; sys.stdin.read()")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "faults.yaml").write_text("events: []\n")
    profile.start(LOAD)
    profile.stop(LOAD)
    (kept,) = (tmp_path / "faults").glob("*/faults.yaml")
    assert kept.read_text() == "events: []\n"


def test_a_refused_fault_does_not_keep_cbts_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    profile = profile_of(tmp_path, monkeypatch, "raise SystemExit(1)")
    profile.start(LOAD)
    assert str(profile.failure).startswith("faults: `cbt-tools inject` ended with exit status 1 before the load")
    assert str(profile.failure) in caplog.text
    caplog.clear()
    profile.stop(LOAD)
    assert caplog.text == ""  # it has been said


def test_a_fault_that_fails_in_the_middle_is_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for status in (0, 1):
        program = f"import sys; print('begun', flush=True); sys.stdin.read(); sys.exit({status})"
        profile = profile_of(tmp_path, monkeypatch, program)
        profile.start(LOAD)
        assert profile.failure is None
        profile.stop(LOAD)
        assert str(profile.failure).startswith(_ENDED if status else "None")


def test_one_that_is_still_at_it_is_left_to_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An undo may take longer than anybody waits: CBT continues, and the process too."""
    monkeypatch.setattr(faults, "UNDO_TIMEOUT", 0.0)
    ended = tmp_path / "ended"
    os.mkfifo(ended)
    profile = profile_of(tmp_path, monkeypatch, f"print('begun', flush=True); open({str(ended)!r}).read()")
    started: List[subprocess.Popen[bytes]] = []
    begin = faults.subprocess.Popen

    def noted(*line: Any, **options: Any) -> Any:
        started.append(begin(*line, **options))
        return started[-1]

    monkeypatch.setattr(faults.subprocess, "Popen", noted)
    try:
        profile.start(LOAD)
        process = started[-1]
        profile.stop(LOAD)
        assert process.returncode is None and f"process {process.pid} still tries to undo" in str(profile.failure)
        ended.write_text("")
        assert process.wait(600) == 0
    finally:
        for its in started:
            its.kill()


def test_two_loads_within_a_second_have_folders_and_runs_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(faults.time, "strftime", lambda form: "20260101T000000")
    profiles = [profile_of(tmp_path, monkeypatch, "print('begun', flush=True); input()") for _ in range(2)]
    for profile in profiles:
        profile.start(LOAD)
    for profile in profiles:
        profile.stop(LOAD)
    files = sorted((tmp_path / "faults").glob("*/cluster.json"))
    assert [file.parent.name for file in files] == ["20260101T000000", "20260101T000000-2"]
    assert len({json.loads(file.read_text())["run_id"] for file in files}) == 2


def test_our_own_loop_fails_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Refused before the load: no load of hours for nothing. Failed in the middle: no success either."""
    remote = SimpleNamespace(
        run=lambda nodes, *_, **__: {node: Result("", "", 0) for node in nodes}, transport_name=lambda node: "ssh"
    )
    monkeypatch.setattr(lifecycle.Remote, "of_cluster", lambda *_: remote)
    monkeypatch.setattr(lifecycle, "fetch_files", lambda *_: None)

    def watch(program: str) -> Any:
        profile = profile_of(tmp_path, monkeypatch, program)
        return lifecycle.watch(lambda: [profile], {"head": "node0"}, {}, "/tmp/x", tmp_path / "local")

    with pytest.raises(RunFailed, match="before the load"), watch("raise SystemExit(1)"):
        raise AssertionError("the context must not be entered")
    loads = []
    with pytest.raises(RunFailed, match="exit status 1: "), watch("print('begun', flush=True); input()"):
        loads.append("whole")
    assert loads == ["whole"]
    with pytest.raises(KeyboardInterrupt), watch("print('begun', flush=True); input()"):
        raise KeyboardInterrupt  # why the run ended is not hidden by it


def test_a_benchmark_of_ours_under_cbt_fails_with_it_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """CBT wraps our monitors in a class of its own; who leads the load asks that one."""
    base = type("Monitoring", (), {"__init__": lambda self, config: None})
    profile = profile_of(tmp_path, monkeypatch, "print('begun', flush=True); input()")
    monkeypatch.setitem(sys.modules, "settings", SimpleNamespace(cluster=profile.cluster, common={}))
    wrapped = delegate.monitor_class("faults", lambda: faults.Faults, base)({"file": "faults.yaml"})
    wrapped.start(LOAD)
    assert wrapped.failure is None
    wrapped.stop(LOAD)
    assert wrapped.failure.startswith(_ENDED)
