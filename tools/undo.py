"""`cbt-tools undo ARCHIVE`: put back what a run has changed on the cluster, whatever became of the run."""

from __future__ import annotations

import argparse
import logging
import sys
from pathlib import Path
from typing import Any, List, Mapping

from cbt_plugins.cycle.archive import RunArchive
from cbt_plugins.faults import FaultError, Injector, StillOpen, access, record
from cbt_plugins.host.monitoring import stop_by_pid_files
from cbt_plugins.host.run import RunFailed
from cbt_plugins.journal import read

UNDONE, OPEN, USAGE = 0, 1, 2


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.add_argument("archive", type=Path, help="an archive (all of its runs), or one run's id-... directory")
    parser.add_argument("--dry-run", action="store_true", help="say what is open and what would be done; do nothing")


def run(args: argparse.Namespace) -> int:
    """0: nothing is open; 1: something is, and is named with the commands for a human; 2: no such archive."""
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    if not args.archive.is_dir():
        print(f"cbt-tools undo: {args.archive}: no such directory", file=sys.stderr)
        return USAGE
    # the newest run first: what was changed last is undone first
    folders = sorted(_runs(args.archive), key=lambda f: (f / record.FILE).stat().st_mtime, reverse=True)
    statuses = [_dry(folder) if args.dry_run else _undo(folder) for folder in folders]
    if not folders:
        print(f"{args.archive}: no run has changed anything on a cluster")
    return max(statuses, default=UNDONE)


def _runs(archive: Path) -> List[Path]:
    if (archive / record.FILE).exists():
        return [archive]
    found = [path.parent for path in archive.glob(f"results/*/id-*/{record.FILE}")]
    return found or [path.parent for path in archive.glob(f"*/id-*/{record.FILE}")]


def _dry(folder: Path) -> int:
    left = record.open_in(folder)
    print(f"{folder}: {len(left)} open" if left else f"{folder}: nothing is open")
    for entry in reversed(left):
        print(f"  {entry.label}: {entry.step.what}")
        for command in entry.step.undo:
            print(f"    undo    {command}")
        for check in entry.step.checks:
            print(f"    undone  {check}")
    return OPEN if left else UNDONE


def _undo(folder: Path) -> int:
    try:
        cluster, remote, ceph, run_id = access.read(folder)
        injector = Injector(folder, remote, ceph, cluster, run_id=run_id)
    except (FaultError, RunFailed) as error:
        left = record.open_in(folder)
        print(f"{folder}: {error}", file=sys.stderr)
        return OPEN if left else UNDONE
    try:
        number = len(injector.open)
        still = injector.undo_all()
        _end_monitors(folder, cluster, remote)
        for entry in still:
            _explain(entry)
        if still:
            return OPEN
        print(f"{folder}: {number} undone" if number else f"{folder}: nothing is open")
        injector.release()
    except FaultError as error:  # all is undone, and the cluster may still count as in use
        print(f"{folder}: {error}", file=sys.stderr)
        return OPEN
    finally:
        injector.close()
    return UNDONE


def _end_monitors(folder: Path, cluster: Mapping[str, Any], remote: Any) -> None:
    """What outlives a run that was killed, such as collectl. Its files are brought in when the run goes on."""
    begun = [line["run_dir"] for line in read(RunArchive(folder).journal) if line["event"] == "invocation"]
    for run_dir in dict.fromkeys(begun):
        stop_by_pid_files(remote, access.nodes_of(cluster), run_dir, "monitors-*")


def _explain(entry: StillOpen) -> None:
    print(f"still open: {entry}", file=sys.stderr)
    print("  by hand:", file=sys.stderr)
    for command in entry.commands:
        print(f"    {command}", file=sys.stderr)
