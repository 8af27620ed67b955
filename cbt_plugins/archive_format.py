"""The version of the archive's format, which its manifest and its phases say; and what an archive of another is told.

A module of its own, because what runs (resume, undo) and what answers (report, compare) both ask it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Optional

from cbt_plugins import __version__

#: 1 (cbt-plugins 0.1). 2 (0.2.0): the terms of docs/GLOSSARY.md in all files
VERSION = 2

#: files of a run's directory that have the version; each is there before anything on the cluster is changed
_FILES = ("manifest.json", "cluster.json")


def refusal(run: Path) -> Optional[str]:
    """Return why this program cannot use a run's directory, as one sentence; None where it can."""
    for name in _FILES:
        try:
            data = json.loads((run / name).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue  # whoever needs the file says what is wrong with it
        version = data.get("version", VERSION) if isinstance(data, dict) else VERSION
        if version != VERSION:
            writer = data.get("cbt_plugins") or ("0.1" if version == 1 else "another version")
            return (
                f"{run}: this archive was written by cbt-plugins {writer} (format {version}), "
                f"this is {__version__} (format {VERSION}): read it with that version"
            )
    return None
