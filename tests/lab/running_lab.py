"""What tests do with a lab, and what they skip without."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Sequence

import pytest
from waiting import wait_for

from cbt_plugins.tools.lab import Lab, LabError
from cbt_plugins.tools.lab.namespaces import SHOW_GROUPS
from cbt_plugins.tools.lab.requirements import missing, refuse_without_aio, refuse_without_namespaces
from cbt_plugins.tools.lab.topology import LabNode

PROJECT = Path(__file__).resolve().parents[2]


class RunningLab:
    """What a test does with a lab. `exec` runs in a node; `tool` runs `cbt-tools lab VERB` on the machine.

    `python` runs our programs in its nodes, in the folder `home`, where it finds them first.
    """

    def __init__(self, lab: Lab, log: List[str], python: str = sys.executable, home: Path = PROJECT) -> None:
        self.lab, self.log, self.dir = lab, log, lab.dir
        self.python, self.home = python, home
        self.nodes: Mapping[str, LabNode] = lab.nodes
        #: node and path of the cluster's log
        self.cluster_log = ("node0", "/var/log/ceph/cluster.log")

    def exec(self, node: str, argv: Sequence[str], **options: Any) -> subprocess.CompletedProcess[str]:
        return self.lab.exec(node, argv, **{"timeout": 600, **options})

    def tool(self, verb: str, *words: str, **options: Any) -> subprocess.CompletedProcess[str]:
        return lab_tool(verb, "--dir", str(self.dir), *words, **options)


def lost_writes(folder: Path) -> List[str]:
    """OSDs of a lab whose disk gave back something else than what they had written: BlueStore's checksums tell."""
    return [
        f"{log.name}: {line.split(' -1 ', 1)[-1]}"
        for log in sorted(folder.glob("nodes/*/log/ceph-osd.*.log"))
        for line in log.read_text(errors="replace").splitlines()
        if "_verify_csum bad" in line
    ]


def lab_tool(
    *words: str, env: Optional[Dict[str, str]] = None, **options: Any
) -> subprocess.CompletedProcess[str]:
    """`cbt-tools lab WORDS` in a process of its own, output captured."""
    argv = [sys.executable, "-m", "cbt_plugins.tools", "lab", *words]
    options = {"timeout": 900, "capture_output": True, "text": True, "cwd": str(PROJECT), **options}
    return subprocess.run(argv, env={**os.environ, **(env or {})}, **options)


def need_systemd() -> None:
    """Skip, with the reason, where no node can have a systemd of its own."""
    need_machine()
    faults, _ = missing(systemd=True)
    if faults:
        pytest.skip("; ".join(faults))
    top = "/sys/fs/cgroup"
    script = f'{SHOW_GROUPS} && mkdir "{top}/cbt-lab-$$" && rmdir "{top}/cbt-lab-$$"'
    argv = ["unshare", "--mount", "--propagation", "private", "sh", "-c", script]
    tried = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False)
    if tried.returncode:
        pytest.skip(f"no control groups of version 2 can be made here: {tried.stderr.strip()}")


def await_room(osds: int) -> None:
    """Wait until other labs of the machine leave asynchronous requests for so many OSDs."""

    def there() -> bool:
        try:
            refuse_without_aio(osds)
        except LabError:
            return False
        return True

    wait_for(there, f"room for {osds} OSDs: fs.aio-max-nr", 300.0)


def need_machine(osds: int = 8) -> None:
    """Skip, with the reason, where no lab can be; wait for room for its OSDs."""
    if os.geteuid() != 0:
        pytest.skip("the lab tests need root")
    faults, warnings = missing()
    if faults or warnings:
        pytest.skip("; ".join([*faults, *warnings]))
    try:
        refuse_without_namespaces(privileged=True)
    except LabError as fault:
        pytest.skip(str(fault))
    await_room(osds)
