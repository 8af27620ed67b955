"""The `faults` profile beside CBT's own benchmarks: when it begins."""

from __future__ import annotations

from pathlib import Path
from typing import Any, List

import pytest

from cbt_plugins.monitors import faults


@pytest.mark.parametrize("preparation", ["idle_monitoring", "pool_monitoring", "recovery_pool_monitoring"])
def test_nothing_is_broken_before_the_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, preparation: str) -> None:
    """CBT starts its profiles for an idle cluster, and while it makes pools: an event at 0s is not meant for these."""
    started: List[Any] = []
    monkeypatch.setattr(faults.subprocess, "Popen", lambda line, **_: started.append(line))
    cluster = {"head": "node0", "archive_dir": str(tmp_path)}
    profile = faults.Faults({"file": "faults.yaml"}, cluster, {})
    profile.start(f"/tmp/cbt/00000000/LibrbdFio/{preparation}")
    assert not started and not (tmp_path / "faults").exists()
    profile.stop("")
    profile.start("/tmp/cbt/00000000/LibrbdFio/op_size-00016384/randwrite")
    assert len(started) == 1 and "faults.yaml" in started[0]
