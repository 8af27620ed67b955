"""Check that the files of a run are unchanged since its end."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from cbt_plugins.checksums import check_sums, sum_of_sums
from cbt_plugins.exit_status import FAILED, OK, UNUSABLE
from cbt_plugins.results.archive import find_runs
from cbt_plugins.results.result_file import NOT_ALLOWED

from .command import explain, say


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    statuses = {FAILED: "a file was changed, lost or added", UNUSABLE: "a run has no SHA256SUMS"}
    explain(parser, ("cbt-tools verify archive",), statuses)
    parser.add_argument("archive", type=Path, help="an archive (all of its runs), or a run's id-... directory")


def run(args: argparse.Namespace) -> int:
    """Read every file of every run, also rows; return the exit status."""
    statuses = [_verify(folder) for folder in find_runs(args.archive)]
    return FAILED if FAILED in statuses else max(statuses)


def _verify(folder: Path) -> int:
    if not os.access(folder, os.R_OK | os.X_OK):
        return say("Error", f"{folder}: {NOT_ALLOWED}", UNUSABLE)
    evidence = check_sums(folder, rows=True)
    if not evidence.sealed:
        print(f"{folder}: not verified: {evidence.note}")
        return UNUSABLE
    for name, why in evidence.changed.items():
        print(f"{folder}: {why}: {name}")
    if evidence.changed:
        return FAILED
    print(f"{folder}: {evidence.files} files are unchanged since the end of the run")
    print(f"{folder}: the SHA-256 of SHA256SUMS is {sum_of_sums(folder)}")
    return OK
