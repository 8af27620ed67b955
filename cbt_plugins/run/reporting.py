"""What a run lets `cbt-tools report` make: its summary and its page at the end, and the numbers of phases."""

from __future__ import annotations

import importlib.util
import json
import logging
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any, Dict, Sequence

from cbt_plugins.cbt_run import RunFailed
from cbt_plugins.checksums import END, PAGE
from cbt_plugins.checksums import FILE as SUMS
from cbt_plugins.programs import own_environment, own_tool

#: seconds for the numbers of phases, for which a ladder waits between two steps
NUMBERS_LIMIT = 1800.0

log = logging.getLogger(__name__)


def run_report(folder: Path, *words: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run `cbt-tools report` on the folder of a run; `options` are of subprocess.run."""
    line = own_tool("report", str(folder), *words)
    return subprocess.run(line, env=own_environment(), check=False, text=True, **options)


def numbers_of_phases(folder: Path, names: Sequence[str]) -> Dict[str, Any]:
    """Return the summary of these phases, which have ended. Raises RunFailed when there is none."""
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "summary.json"
        words = [f"--phase={name}" for name in names]
        pipes: Dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
        try:
            done = run_report(folder, *words, "--format", "json", "-o", str(path), timeout=NUMBERS_LIMIT, **pipes)
        except subprocess.TimeoutExpired:
            raise RunFailed(f"the results of {', '.join(names)} were not ready within {NUMBERS_LIMIT:g} s") from None
        try:
            summary: Dict[str, Any] = json.loads(path.read_text())
        except (OSError, ValueError):
            raise RunFailed(f"no results of {', '.join(names)}: {done.stderr.strip()[-500:]}") from None
        return summary


def summarize(folder: Path) -> None:
    """Make summary and report in a process of their own: analysis is no part of a run, and may need much memory."""
    log.info("making the report")
    before = _written(folder)
    status = run_report(folder).returncode
    if _written(folder) == before:  # a status alone also means that the run is incomplete
        log.error("the report failed (exit status %d); try again: cbt-tools report %s", status, folder)


def is_reported(folder: Path) -> bool:
    """Tell whether the report of a complete run was made after its end, and after all files that came since.

    Without jinja2 no page can be made: the summary counts.
    """
    can_make_pages = importlib.util.find_spec("jinja2") is not None
    try:
        page = (folder / (PAGE if can_make_pages else "summary.json")).lstat().st_mtime_ns
        return all(page >= path.lstat().st_mtime_ns for path in (folder / END, folder / SUMS) if os.path.lexists(path))
    except FileNotFoundError:
        return False


def _written(folder: Path) -> int:
    """Return the time at which the summary of a run was written, in ns; 0 when there is none."""
    try:
        return (folder / "summary.json").stat().st_mtime_ns
    except FileNotFoundError:
        return 0
