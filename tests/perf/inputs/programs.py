"""Programs of others that ours are measured against, each set in an environment of its own in the cache: no dependency.
"""

from __future__ import annotations

import json
import subprocess
import sys
import venv
from pathlib import Path
from typing import Any, Sequence

from cbt_plugins.programs import cache_dir


def environment(name: str, *packages: str) -> Path:
    """Return a Python that has these packages of PyPI; installs them where they are missing."""
    folder = cache_dir() / "bench" / name
    done = folder / "packages"
    if not done.exists() or done.read_text() != " ".join(packages):
        print(f"installing {', '.join(packages)} (PyPI) into {folder}", file=sys.stderr)
        venv.create(folder, clear=True, with_pip=True)
        pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
        subprocess.run([*pip, *packages], check=True)
        done.write_text(" ".join(packages))
    return folder / "bin" / "python"


def answer(python: Path, script: Path, question: Any, *words: str) -> Any:
    """Return the JSON that a script prints for a question that it reads from its standard input."""
    line: Sequence[str] = [str(python), str(script), *words]
    done = subprocess.run(line, input=json.dumps(question), capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{script}: {done.stderr[-2000:]}")
    return json.loads(done.stdout)
