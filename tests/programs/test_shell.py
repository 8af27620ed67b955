"""The shell programs of the project, those that run on nodes among them, are checked by shellcheck."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[2]


def test_shellcheck_finds_nothing() -> None:
    program = shutil.which("shellcheck", path=str(Path(sys.executable).parent)) or shutil.which("shellcheck")
    if program is None:
        pytest.skip("needs shellcheck: pip install -e '.[lint]'")
    found = [path for folder in ("cbt_plugins", "monitors", "tools") for path in (PROJECT / folder).rglob("*.sh")]
    files = [str(path) for path in (PROJECT / "run", PROJECT / ".ci" / "run", PROJECT / ".ci" / "lock", *sorted(found))]
    done = subprocess.run([program, *files], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
