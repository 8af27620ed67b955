"""Other releases of Ceph: root folders that are there, and what our programs need to run in their nodes."""

from __future__ import annotations

import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Dict, List

import pytest
from running_lab import PROJECT

from cbt_plugins.programs import cache_dir
from cbt_plugins.tools.lab.installed_releases import Release, output_in_root
from cbt_plugins.tools.lab.installed_releases import releases as found_releases

#: those of which each is tried where it is there
RELEASES = ("16.2", "18.2", "20.2")
#: how to get them, for people who read why a test was skipped
BRING = "`cbt-tools lab root reef` makes one; or CBT_LAB_ROOTS=DIR[:DIR...] names them"


def roots() -> List[str]:
    """Return the root folders but for the machine's own."""
    return [root for root in releases().values() if root != "/"]


@cache
def releases() -> Dict[str, str]:
    """Return {"18.2.7": root folder}; the machine's own programs of a release come before a root folder of it."""
    by_version = {str(release).split()[0]: root for release, root in found_releases().items()}
    own = Release.parse(output_in_root("/", "ceph-mon", "--version"))
    return {**by_version, str(own).split()[0]: "/"} if own else by_version


def root_of(release: str) -> str:
    """Return the root folder of a release ("18.2"); skips the test where there is none."""
    root = next((root for version, root in releases().items() if version.startswith(release + ".")), None)
    if root is None:
        pytest.skip(f"no Ceph {release}: {BRING}")
    return root


def home_of(root: str, folder: Path) -> Path:
    """Install this project and what it needs for the Python of a root folder below `folder`; return where.

    Wheels of other Pythons, by this one's pip: a root folder needs no compiler and no pip. What comes from PyPI is kept
    in the cache, for each Python once.
    """
    version = output_in_root(root, "python3", "-c", "import sys; print('%d.%d' % sys.version_info[:2])")
    kept = cache_dir() / f"python-{version}"
    source, wheel = folder / "source", folder / "wheel"
    leave = shutil.ignore_patterns(".*", "build", "archive-*", "*.egg-info", "__pycache__", "tests")
    shutil.copytree(PROJECT, source, ignore=leave)  # a build leaves files in its tree
    pip = [sys.executable, "-m", "pip", "-q", "--disable-pip-version-check"]
    _run([*pip, "wheel", "--no-deps", "--no-build-isolation", "-w", str(wheel), str(source)], cwd=folder)
    (made,) = map(str, wheel.glob("*.whl"))
    if not (kept / "complete").exists():
        which = ["--target", str(kept), "--upgrade", "--python-version", version, "--only-binary=:all:"]
        _run([*pip, "install", *which, f"{made}[report]"], cwd=folder)
        (kept / "complete").touch()
    home = folder / "home"
    home.mkdir()
    for path in kept.iterdir():
        if not path.name.startswith("cbt_plugins"):
            (home / path.name).symlink_to(path)
    _run([*pip, "install", "--target", str(home), "--no-deps", "--no-compile", made], cwd=folder)
    return home


def _run(line: List[str], cwd: Path) -> None:
    done = subprocess.run(line, cwd=cwd, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"{' '.join(line)}: {done.stderr.strip()[-300:]}")
