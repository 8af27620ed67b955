"""Where our programs are on this machine: those of `cbt-tools build`, those on PATH, and our own verbs."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import sys
from functools import lru_cache
from pathlib import Path
from typing import Dict, List, Optional

#: the program that is a server which keeps nothing, for the generators' ceilings
NULL_SERVER = "cbt-load"


class NoHome(ValueError):
    """The user has no home folder; the text is for the user."""


def cache_home() -> Path:
    """Return the folder of all caches of the user. Raises NoHome."""
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except RuntimeError:
        raise NoHome(f"the user {os.getuid()} has no home folder: set HOME or XDG_CACHE_HOME") from None


def cache_dir() -> Path:
    """Return the folder of all that set-up makes outside the checkout."""
    return cache_home() / "cbt-plugins"


def own_tool(*words: str) -> List[str]:
    """Return the command line of `cbt-tools WORDS` with this Python."""
    return own_module("cbt_plugins.tools", *words)


def own_module(name: str, *words: str) -> List[str]:
    """Return the command line of a module with this Python; it imports nothing from the current folder."""
    text = f"import runpy; runpy.run_module({name!r}, run_name='__main__')"
    return [sys.executable, "-c", f"import sys; sys.path[:] = [path for path in sys.path if path]; {text}", *words]


def own_environment() -> Dict[str, str]:
    """Return the environment in which `own_tool` imports this installation, or this checkout."""
    paths = str(Path(__file__).resolve().parents[1]), os.environ.get("PYTHONPATH")
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}


@lru_cache(maxsize=1)
def program_sum() -> str:
    """Return the SHA-256 of this program: a developer's version does not change with each edit."""
    package = Path(__file__).parent
    digest = hashlib.sha256()
    for path in sorted(path for kind in ("*.py", "*.json") for path in package.rglob(kind) if path.is_file()):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(package)} {len(content)}\n".encode() + content)
    return digest.hexdigest()


def own_program(name: str) -> Optional[Path]:
    """Return the path of warp, cbt-load or cbt-rows: of `cbt-tools build`, else on PATH; None when it is missing."""
    with contextlib.suppress(NoHome):
        built = cache_dir() / "bin" / name
        if built.exists():
            return built
    path = shutil.which(name)
    return Path(path) if path else None
