"""Shell programs of the package: shellcheck has nothing to say of any."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[2]
SHELLCHECK = shutil.which("shellcheck", path=str(Path(sys.executable).parent)) or shutil.which("shellcheck")


def test_shellcheck_has_nothing_to_say() -> None:
    if not SHELLCHECK:
        pytest.skip("needs shellcheck: pip install -e '.[lint]'")
    listed = subprocess.run(["git", "ls-files", "*.sh"], cwd=PROJECT, stdout=subprocess.PIPE, text=True)
    files = listed.stdout.split() or [str(path) for path in sorted(PROJECT.glob("[cmt]*/**/*.sh"))]
    assert files
    found = subprocess.run([SHELLCHECK, *files], cwd=PROJECT, stdout=subprocess.PIPE, text=True)
    assert found.returncode == 0, found.stdout
