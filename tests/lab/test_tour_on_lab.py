"""The examples of docs/TOUR.md that need a cluster, each in a shell, as a stranger types them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from doc_examples import make_files, play
from running_lab import need_machine

from cbt_plugins.programs import cache_dir

pytestmark = [pytest.mark.lab, pytest.mark.long]


def test_a_cluster(tmp_path: Path) -> None:
    need_machine()
    make_files(tmp_path)
    cache = tmp_path / "cache" / "cbt-plugins"
    cache.mkdir(parents=True)
    (cache / "bin").symlink_to(cache_dir() / "bin")
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache"), "PATH": path}

    def run(command: str) -> str:
        done = subprocess.run(
            ["bash", "-c", command], cwd=tmp_path, env=environment, text=True, stdout=-1, stderr=subprocess.STDOUT
        )
        assert done.returncode == 0, done.stdout
        return done.stdout

    try:
        assert play("A cluster: build, lab, inject, undo", tmp_path, run) == 8
    finally:
        subprocess.run(["cbt-tools", "lab", "down", "--wipe"], env=environment, check=False)
