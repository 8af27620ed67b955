"""Other interpreters of Python on this machine, and environments for them."""

from __future__ import annotations

import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any, Dict, List, Sequence, Tuple

import pytest


def run(argv: List[str], **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(argv, capture_output=True, text=True, timeout=600, **options)


def make_venv(interpreter: Path, directory: Path) -> Path:
    done = run([str(interpreter), "-m", "venv", str(directory)])
    if done.returncode != 0:
        pytest.skip(f"{interpreter} makes no venv: {(done.stdout + done.stderr).strip()[-300:]}")
    return directory / "bin" / "python"


def venv_with(name: str, directory: Path, packages: Sequence[str]) -> Path:
    """Return the interpreter of an environment with these packages; `name`: "3.9" or "newest"."""
    if name not in other_pythons():
        pytest.skip(f"Python {name}: none beside this one on PATH or in ~/.pyenv/versions")
    made = make_venv(other_pythons()[name], directory)
    done = run([str(made), "-m", "pip", "install", "-q", *packages])
    if done.returncode != 0:
        pytest.skip(f"{other_pythons()[name]}: {done.stderr.strip()[-300:]}")
    return made


@cache
def other_pythons() -> Dict[str, Path]:
    """ "3.9" and "newest" -> interpreters on PATH or of pyenv; this one's minor version is not another."""
    found: Dict[Tuple[int, int], Path] = {}
    candidates = [shutil.which(f"python3.{minor}") for minor in range(9, 30)]
    candidates += map(str, (Path.home() / ".pyenv" / "versions").glob("3.*/bin/python"))
    for candidate in filter(None, candidates):
        try:
            done = run([candidate, "-c", "import sys, venv; print(*sys.version_info[:2])"])
        except OSError:
            continue
        if done.returncode == 0:
            major, minor = map(int, done.stdout.split())
            found.setdefault((major, minor), Path(candidate))
    newest = max(found, default=(0, 0))
    chosen = {"3.9": found.get((3, 9)), "newest": found.get(newest)}
    own = {"3.9": sys.version_info[:2] == (3, 9), "newest": sys.version_info[:2] >= newest}
    return {name: path for name, path in chosen.items() if path and not own[name]}
