"""What a run lets other processes make of its files: summary and page at the end, and the numbers of phases."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import logging
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any, BinaryIO, Dict, List, Optional, Sequence

from cbt_plugins.cbt_run import RunFailed
from cbt_plugins.checksums import END, PAGE
from cbt_plugins.checksums import FILE as SUMS
from cbt_plugins.programs import own_environment, own_module, own_tool

#: seconds for the numbers of phases, for which a ladder waits between two steps
NUMBERS_LIMIT = 1800.0

#: bytes of aggregates of a phase that takes some tenths of a second to read, as long as to start a process
LONG = 8 << 20
#: seconds for what is still being read at the end of a run, and for the end of its process
EARLY_LIMIT, _END_LIMIT = 300.0, 10.0
_NOT_READ = "long phases are not read while the run goes on (%s): its report takes longer"
EARLY_READS = "cbt_plugins.results.requests.early_reads"

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


class EarlyReader:
    """Lets a process of low priority read long phases while the run goes on: its report then takes seconds."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._waiting: List[str] = []  # phases that are to be read
        self.process: Optional[subprocess.Popen[bytes]] = None
        self._errors: BinaryIO = io.BytesIO()  # of the process

    def phase_ended(self, name: str, files: Path) -> None:
        """Begin to read a phase, whose files are in this folder, if it is a long one.

        While an earlier one is still read, it waits for the end of a later phase, or for the report.
        """
        try:
            if sum(path.stat().st_size for path in files.glob("aggregates/*.aggregates")) > LONG:
                self._waiting.append(name)
            if self._waiting and self._is_idle():
                line = own_module(EARLY_READS, str(self._folder), *self._waiting)
                self._errors = tempfile.TemporaryFile()  # noqa: SIM115  # closed when the process has ended
                nowhere: Dict[str, Any] = dict.fromkeys(("stdin", "stdout"), subprocess.DEVNULL)
                self.process = subprocess.Popen(line, env=own_environment(), stderr=self._errors, **nowhere)
                self._waiting = []
        except OSError as error:
            log.warning(_NOT_READ, error)

    def wait(self) -> None:
        """Wait until the phases that it reads are read, if that takes no longer than the report would take for it."""
        if self.process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(EARLY_LIMIT)
            self._is_idle()

    def close(self) -> None:
        """End it; what it has not read, the report reads."""
        if self.process is not None:
            self.process.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):  # its disk does not answer
                self.process.wait(_END_LIMIT)
        self._errors.close()

    def _is_idle(self) -> bool:
        """Tell whether no process reads; warn if the last one could not."""
        if self.process is not None and self.process.poll() is None:
            return False
        if self.process is not None and self.process.returncode:
            self._errors.seek(0)
            lines = self._errors.read().decode(errors="replace").split("\n")
            why = next((line for line in reversed(lines) if line.strip()), "it was killed")
            log.warning(_NOT_READ, why)
        self.process = None
        self._errors.close()
        return True


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
