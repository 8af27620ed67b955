"""Faults beside a benchmark that knows nothing of them: their folders in an archive, and what went wrong there."""

from __future__ import annotations

import contextlib
import itertools
import time
from pathlib import Path
from typing import List, Tuple

from cbt_plugins.journal import Journal, json_lines

FOLDER = "faults"
#: is there only when something went wrong
FAILED = "failed.jsonl"


def make(archive: Path) -> Path:
    """A new folder for the faults of one load: named by the time, and by a number where several begin in a second."""
    begun = time.strftime("%Y%m%dT%H%M%S")
    (archive / FOLDER).mkdir(parents=True, exist_ok=True)
    for number in itertools.count(1):
        folder = archive / FOLDER / (begun if number == 1 else f"{begun}-{number}")
        with contextlib.suppress(FileExistsError):
            folder.mkdir()
            return folder
    raise AssertionError("there is always another number")


def fail(folder: Path, why: str) -> None:
    """Write down that the load was not disturbed as it should have been."""
    with contextlib.closing(Journal(folder / FAILED)) as journal:
        journal.write("failed", why=why)


def failures(archive: Path) -> List[Tuple[str, str]]:
    """(folder's name in the archive, why), oldest first."""
    found = sorted((archive / FOLDER).glob(f"*/{FAILED}"))
    return [(f"{FOLDER}/{path.parent.name}", str(line["why"])) for path in found for line in json_lines(path)]
