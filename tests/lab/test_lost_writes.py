"""A disk that loses writes is the machine's fault, and said so; all else that fails has failed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
LOG = HERE.parent / "data" / "ceph" / "osd-lost-write.log"

TEST = """
import types
from pathlib import Path
import pytest
from running_lab import RunningLab

@pytest.fixture
def lab():
    return RunningLab(types.SimpleNamespace(dir=Path({folder!r}), nodes={{}}), [])

def test_fails(lab):
    assert not "an OSD comes back"
"""


def outcome(folder: Path) -> str:
    (folder / "test_it.py").write_text(TEST.format(folder=str(folder)))
    options = ["-q", "-rA", "-p", "conftest", "-p", "no:cacheprovider", "--rootdir", str(folder)]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, "test_it.py"],
        env={**os.environ, "PYTEST_ADDOPTS": "", "PYTHONPATH": os.pathsep.join([str(HERE), str(HERE.parent)])},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=100,
    )
    return done.stdout


def test_what_a_disk_has_lost_is_skipped_and_said(tmp_path: Path) -> None:
    log = tmp_path / "nodes" / "node4" / "log" / "ceph-osd.7.log"
    log.parent.mkdir(parents=True)
    log.write_text("")
    said = outcome(tmp_path)
    assert "1 failed" in said
    assert "freeing the lab" in said  # was tried, in vain, though it is not the session's
    log.write_bytes(LOG.read_bytes())
    said = outcome(tmp_path)
    assert "1 skipped" in said and "lost a write. ceph-osd.7.log: bluestore" in said, said
    assert "bad crc32c/0x1000 checksum at blob offset 0x0, got 0x87e25a4a, expected 0xd60de796" in said
