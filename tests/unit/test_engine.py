"""What the engine does when it is called again after a kill; whole runs are in tests/lab."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any, cast

import pytest

from cbt_plugins.host import HostRun
from cbt_plugins.plan import S3, Plan
from cbt_plugins.run.engine import Engine


def test_a_snapshot_of_a_killed_invocation_is_taken_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kill while buckets are removed, which takes long: the snapshot "after" is there, the run is not complete."""
    host = HostRun(
        benchmark="warp",
        config={},
        iteration=0,
        archive_dir=tmp_path,
        run_dir="/nowhere",
        cluster={"head": "node0"},
        common={},
        endpoints={},
        config_file=None,
        checkout=None,
        monitors=lambda folder: cast(Any, contextlib.nullcontext()),
    )
    engine = Engine(host, Plan("warp", S3(urls=("http://a",)), (), (), ()))
    taken = []

    def snapshot(folder: Path) -> None:
        taken.append(folder)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{len(taken)}.json").write_text("{}")

    monkeypatch.setattr(engine._ceph, "snapshot", snapshot)
    engine._snapshot("after")
    engine._snapshot("after")
    assert [p.name for p in (tmp_path / "cluster" / "after").iterdir()] == ["2.json"]
