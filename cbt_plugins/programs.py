"""Our own programs on this machine, as `cbt-tools build` makes them: warp, cbt-load, cbt-rows."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Optional


def cache_dir() -> Path:
    """Return the folder of all that set-up makes outside the checkout."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "cbt-plugins"


def own_program(name: str) -> Optional[Path]:
    """Return where a program is: what `cbt-tools build` made, else the one on PATH; None when it is missing."""
    built = cache_dir() / "bin" / name
    found = str(built) if built.exists() else shutil.which(name)
    return Path(found) if found else None
