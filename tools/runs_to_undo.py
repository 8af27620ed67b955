"""Runs of an archive whose changes `cbt-tools undo` may have to undo."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Dict, List, Tuple

from cbt_plugins.cluster_conditions import UNDO_BY_USER
from cbt_plugins.faults import FaultError
from cbt_plugins.faults.undo_journal import FILE, read_lines, still_open
from cbt_plugins.formatting import first_texts
from cbt_plugins.journal import journal_lines
from cbt_plugins.results.archive import find_runs
from cbt_plugins.results.result_file import ArchivesBelow, NoRun, Unreadable

from .command import CommandError, warn

EVENTS = "events.jsonl"
#: folders of a campaign, a bisect and a pull request have an archive for each trial
_OF_TRIALS = ("campaign.jsonl", "bisect.jsonl", "pr.jsonl")
#: runs of an archive, of its results/ or of one iteration (as `find_runs` has them), and of its profile `faults`
_OWN = re.compile(r"((results/)?[^/]+/)?id-[^/]+|(faults/)?[0-9]{8}T[0-9]{6}(-[0-9]+)?")
_IN_ARCHIVE = re.compile(r"/(results/[^/]+/id-[^/]+|faults/[0-9]{8}T[0-9]{6}(-[0-9]+)?)$")
#: archives that an error names
SHOWN = 5
#: files of a run, or of `cbt-tools inject`; an archive of CBT has others
_FILES_OF_RUN = (FILE, EVENTS, "plan.json", "cluster.json")
#: what a run has made until it ends
_OF_RUN = "pools and users of the run"
#: folders in which runs stand, by their names
_PLACE = re.compile(r"results|[0-9]+|id-.*")
#: places of runs below the target of a link: of one run, of an archive or a part of it, of a trial, of several of them
_RUN = "results/*/id-*/"
_PLACES = ("", "id-*/", "[0-9]*/id-*/", _RUN, f"*/{_RUN}", f"*/*/{_RUN}")


def find_runs_to_undo(archive: Path) -> Tuple[List[Path], List[str]]:
    """Return the folders with an undo journal, and errors about changes that may be open elsewhere in the archive.

    Raises CommandError for a folder that is no archive: its undo would end the runs of all archives below it.
    """
    folders, unknown = _runs(archive)
    own = [folder for folder in folders if _is_own(folder, archive)]
    others = [folder for folder in folders if folder not in own]
    if not (own or unknown or _has_run(archive)):
        below = list(dict.fromkeys(str(_archive_of(folder)) for folder in sorted(others)))
        give = f"; give one of the archives below it: {first_texts(below, SHOWN)}" if below else ""
        raise CommandError(f"{archive}: no run in it (looked for {FILE} and results/*/id-*){give}")
    for folder in others:
        if _may_be_open(folder):
            text = f"{folder} is a run of another archive: its open changes are unknown: give {_archive_of(folder)}"
            unknown.append(text)
    return own, unknown


def _is_own(folder: Path, archive: Path) -> bool:
    """Tell whether a folder below an archive is a run of it, or one of the trials of a campaign."""
    if any((archive / journal).exists() for journal in _OF_TRIALS):
        return True
    return folder == archive or bool(_OWN.fullmatch(folder.relative_to(archive).as_posix()))


def _archive_of(folder: Path) -> Path:
    """Return the archive of a run."""
    match = _IN_ARCHIVE.search(folder.as_posix())
    return Path(folder.as_posix()[: match.start()]) if match else folder


def _has_run(archive: Path) -> bool:
    if any((archive / name).exists() for name in _FILES_OF_RUN):
        return True
    try:
        return bool(find_runs(archive))
    except (ArchivesBelow, NoRun):
        return False
    except Unreadable:  # a folder that may have runs
        return True


def _runs(archive: Path) -> Tuple[List[Path], List[str]]:
    """Return the folders with an undo journal, and errors about others: unreadable, links, without their journal."""
    folders, unknown, waiting = [], [], [str(archive)]
    while waiting:
        top, files = waiting.pop(), set()
        try:
            with os.scandir(top) as entries:  # only names are read: an archive may have a million files
                for entry in entries:
                    if entry.is_symlink():
                        text = f"{entry.path} is a link: its open changes are unknown: give its target"
                        unknown += [text] if _hides_runs(entry, archive) else []
                    elif entry.name in (FILE, EVENTS):
                        files.add(entry.name)
                    elif entry.is_dir(follow_symlinks=False) and not _is_of_commits(entry):
                        waiting.append(entry.path)
        except OSError as error:
            unknown.append(f"{error.filename}: {error.strerror}: its open changes are unknown")
        if FILE in files:
            folders.append(Path(top))
        elif files:
            unknown += _without_journal(Path(top))
    return folders, unknown


def _without_journal(folder: Path) -> List[str]:
    """Return an error if the event log of a run shows changes without their undo, and the undo journal is missing."""
    changes: Dict[str, None] = {}
    try:
        for line in journal_lines(folder / EVENTS):
            if line["event"] == "fault-inject-begin":
                changes[str(line.get("label"))] = None
            elif line["event"] == "fault-undone":
                changes.pop(str(line.get("label")), None)
            elif line["event"] == "run-begun":
                changes[_OF_RUN] = None
            elif line["event"] in ("run-done", UNDO_BY_USER):
                changes.pop(_OF_RUN, None)
    except OSError as error:
        return [f"{folder / EVENTS}: {error.strerror}, and {FILE} is missing: its open changes are unknown"]
    if not changes:
        return []
    shown = f"{folder / FILE} is missing, but {EVENTS} shows changes without an undo: {', '.join(changes)}"
    advice = "undo the archive of which this is a copy, or look at the cluster and undo by hand what is left"
    return [f"{shown}: its open changes are unknown: {advice}"]


def _is_of_commits(folder: os.DirEntry[str]) -> bool:
    """Return whether pr or bisect has its checkout or its builds there: these may have any files."""
    parent = Path(folder.path).parent
    if folder.name not in ("worktree", "builds"):
        return False
    return any((parent / journal).exists() for journal in _OF_TRIALS)


def _hides_runs(link: os.DirEntry[str], archive: Path) -> bool:
    """Return whether a link may stand in the place of a journal, or of runs with open changes outside of the archive.
    """
    target, own = Path(os.path.realpath(link.path)), Path(os.path.realpath(archive))
    if link.name == FILE:
        return True
    if not os.path.exists(target):  # on a disk that is not mounted, for example
        if _PLACE.fullmatch(link.name):
            return True
        warn(f"{link.path} is a link to nothing that can be seen: whether it hides runs is unknown")
        return False
    if not os.path.isdir(target) or own in (target, *target.parents):
        return False
    if not os.access(target, os.R_OK | os.X_OK):
        return True
    hidden = (journal.parent for place in _PLACES for journal in target.glob(f"{place}{FILE}"))
    return any(own not in folder.parents and _may_be_open(folder) for folder in hidden)


def _may_be_open(folder: Path) -> bool:
    try:
        lines, unknown = read_lines(folder)
        return bool(unknown or still_open(lines))
    except (OSError, FaultError):
        return True
