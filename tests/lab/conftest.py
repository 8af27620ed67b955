"""One real Ceph cluster for all tests of the session."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence

import pytest

from cbt_plugins.tools.lab import Lab, LabError, Topology
from cbt_plugins.tools.lab.needs import missing, refuse_without_namespaces
from cbt_plugins.tools.lab.topology import Node

PROJECT = Path(__file__).resolve().parents[2]


class RunningLab:
    """What a test does with a lab. `exec` runs in a node; `tool` runs `cbt-tools lab VERB` on the machine."""

    def __init__(self, lab: Lab, log: List[str]) -> None:
        self.lab, self.log, self.dir = lab, log, lab.dir
        self.nodes: Mapping[str, Node] = lab.nodes

    def exec(self, node: str, argv: Sequence[str], **options: Any) -> subprocess.CompletedProcess[str]:
        return self.lab.exec(node, argv, **{"timeout": 120, **options})

    def tool(self, verb: str, *words: str, **options: Any) -> subprocess.CompletedProcess[str]:
        return lab_tool(verb, "--dir", str(self.dir), *words, **options)


def lab_tool(
    *words: str, env: Optional[Dict[str, str]] = None, **options: Any
) -> subprocess.CompletedProcess[str]:
    """`cbt-tools lab WORDS` in a process of its own, output captured."""
    argv = [sys.executable, "-m", "cbt_plugins.tools", "lab", *words]
    options = {"timeout": 300, "capture_output": True, "text": True, "cwd": str(PROJECT), **options}
    return subprocess.run(argv, env={**os.environ, **(env or {})}, **options)


def need_machine() -> None:
    """Skip, with the reason, where no lab can be."""
    if os.geteuid() != 0:
        pytest.skip("the lab tests need root")
    faults, warnings = missing()
    if faults or warnings:
        pytest.skip("; ".join([*faults, *warnings]))
    try:
        refuse_without_namespaces(privileged=True)
    except LabError as fault:
        pytest.skip(str(fault))


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningLab]:
    """A lab of the default shape. The session's temporary folder and the project are visible in every node.

    It hangs on this process: it ends with it, also after kill -9.
    """
    need_machine()
    log: List[str] = []
    made = Lab(tmp_path_factory.mktemp("lab"), say=log.append)
    try:
        made.up(Topology(bind=(str(tmp_path_factory.getbasetemp()),)), detach=False)
        yield RunningLab(made, log)
    finally:
        made.down(wipe=True)
