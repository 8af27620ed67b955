"""Releases of Ceph that the lab can run: the machine's own, and those in root folders."""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Dict, List, Optional, Tuple

from cbt_plugins.programs import cache_dir

from .requirements import LabError, LabUsage, unshare_flags

#: more root folders, as PATH is a list
ELSEWHERE = "CBT_LAB_ROOTS"
#: A store goes from a release to one of the next two, as Ceph's manual has it.
STEPS = 2


@dataclass(frozen=True, order=True)
class Release:
    """A version of Ceph, such as 18.2.7 reef; ordered by its numbers."""

    numbers: Tuple[int, ...]
    name: str

    def __str__(self) -> str:
        return f"{'.'.join(map(str, self.numbers))} {self.name}"

    @classmethod
    def parse(cls, text: str) -> Optional[Release]:
        """Return the release that `ceph --version`, or str() of a Release, names; None when there is none."""
        match = re.search(r"(?:ceph version )?(\d+)\.(\d+)\.(\d+)\S*(?: \([^)]*\))? ([a-z]+)", text)
        return cls(tuple(map(int, match.group(1, 2, 3))), match[4]) if match else None

    def refusal(self, newer: Release) -> str:
        """Return the reason why Ceph does not open this release's stores with another one; "" when it does."""
        if newer.numbers < self.numbers:
            return f"Ceph {self} wrote the snapshot, and an older release ({newer}) cannot open the snapshot"
        if newer.numbers[0] - self.numbers[0] > STEPS:
            return (
                f"Ceph upgrades over at most {STEPS} releases, and from {self} to {newer} there are "
                f"{newer.numbers[0] - self.numbers[0]}: restore the snapshot with a release in between, and make a new "
                "snapshot of the result"
            )
        return ""


def roots_folder() -> Path:
    """Return the folder where `lab root` keeps what it makes."""
    return cache_dir() / "roots"


def roots() -> List[str]:
    """Return the root folders that there are, the machine's own first."""
    folders = (path for path in roots_folder().glob("*") if not path.name.startswith(".") and path.is_dir())
    return ["/", *sorted(map(str, folders)), *(folder for folder in os.environ.get(ELSEWHERE, "").split(":") if folder)]


def output_in_root(root: str, *words: str) -> str:
    """Return the output of a command in a root folder, "" when it fails or is not there."""
    user = [] if os.geteuid() == 0 else ["unshare", *unshare_flags(privileged=False)]
    line = [*([*user, "chroot", root] if root != "/" else []), *words]
    try:
        done = subprocess.run(line, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120)
    except OSError:
        return ""
    return done.stdout.strip()


def release_of(root: str) -> Release:
    """Return the release of a root folder; LabError when no Ceph is in it."""
    release = Release.parse(output_in_root(root, "ceph-mon", "--version"))
    if not release:
        raise LabError(f"{root}: no Ceph in it (`ceph-mon --version` printed no version)")
    return release


def releases() -> Dict[Release, str]:
    """Return each release that there is, and its root folder: of several the one with its name, else the first."""
    roots_by_release: Dict[Release, str] = {}
    for root in roots():
        release = Release.parse(output_in_root(root, "ceph-mon", "--version"))
        if release and (release not in roots_by_release or Path(root).name == release.name):
            roots_by_release[release] = root
    return roots_by_release


def root_of(wanted: str) -> str:
    """Return the root folder of a release by its name, its version or a folder that `lab root` made; LabUsage."""
    if re.fullmatch(r"[\w.-]+", wanted) and (roots_folder() / wanted).is_dir():
        return str(roots_folder() / wanted)
    roots_by_release = releases()
    fitting = [r for r in roots_by_release if wanted == r.name or f"{str(r).split()[0]}.".startswith(f"{wanted}.")]
    if not fitting:
        names = ", ".join(str(release) for release in sorted(roots_by_release)) or "none"
        has = f"releases on this machine: {names}"
        raise LabUsage(f"no release {wanted}; {has}; `cbt-tools lab root {wanted}` makes its root folder")
    return roots_by_release[max(fitting)]
