"""The `faults` profile beside CBT's own benchmarks: when it begins."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any, Dict, List

import pytest

from cbt_plugins.monitors import faults

LOAD = "/tmp/cbt/00000000/LibrbdFio/op_size-00016384/randwrite"


def profile_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str) -> faults.Faults:
    """The profile, with a program of Python in the place of `cbt-tools inject`."""
    real = faults.subprocess.Popen

    def start(line: List[str], **options: Any) -> Any:
        assert line[2:6] == ["cbt_plugins.tools", "inject", "faults.yaml", "--tied"]
        return real([sys.executable, "-c", program], **options)

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


def test_the_archive_keeps_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    profile = profile_of(tmp_path, monkeypatch, "print('begun', flush=True); import sys; sys.stdin.read()")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "faults.yaml").write_text("events: []\n")
    profile.start(LOAD)
    profile.stop(LOAD)
    (kept,) = (tmp_path / "faults").glob("*/faults.yaml")
    assert kept.read_text() == "events: []\n"


def test_a_refused_fault_does_not_keep_the_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    profile = profile_of(tmp_path, monkeypatch, "raise SystemExit(1)")
    profile.start(LOAD)
    assert "the load begins without them" in caplog.text
    profile.stop(LOAD)
    assert "exit status 1" in caplog.text
