"""CBT source trees: where one is, and which commit."""

from __future__ import annotations

import os
import subprocess
from functools import cache
from pathlib import Path
from typing import Optional

from cbt_plugins.cbt_run import Checkout
from cbt_plugins.programs import cache_dir

#: what makes a directory a CBT tree; the import hook asks the same of a module's origin
MARKS = ("cbt.py", "settings.py", "common.py", "benchmarkfactory.py")


def is_checkout(path: Path) -> bool:
    """Return whether a directory is a CBT tree."""
    return all((path / mark).is_file() for mark in MARKS)


def cache_path() -> Path:
    """Return the folder of a checkout without CBT_HOME."""
    return cache_dir() / "cbt"


def find() -> Optional[Path]:
    """Return $CBT_HOME, else the checkout in the cache. Raises ValueError when CBT_HOME is none, or NoHome."""
    home = os.environ.get("CBT_HOME")
    if home:
        if not is_checkout(Path(home)):
            raise ValueError(f"CBT_HOME={home} is not a CBT checkout: it must contain {', '.join(MARKS)}")
        return Path(home).resolve()
    return cache_path() if is_checkout(cache_path()) else None


@cache
def describe(path: Path) -> Checkout:
    """Return the tree's commit and date when it is a git tree, else its path."""
    if (path / ".git").exists():
        try:
            done = subprocess.run(
                ["git", "-C", str(path), "log", "-1", "--format=%H %h %cs"],
                timeout=30,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                check=True,
            )
            commit, short, date = done.stdout.split()
            return Checkout(path, commit, f"{short} {date}")
        except (OSError, subprocess.SubprocessError, ValueError):
            pass  # no git, or a tree of another user that git refuses to read
    return Checkout(path, None, str(path))
