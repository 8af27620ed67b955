"""The programs that a run sends to nodes need nothing of this project there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from cbt_plugins.cluster.stream import NodeProgram
from cbt_plugins.monitors.backlog import Backlog
from cbt_plugins.monitors.perf_counters import PerfCounters
from cbt_plugins.monitors.recovery import Recovery
from cbt_plugins.monitors.resources import Resources


@pytest.mark.parametrize(
    ("program", "argument"),
    [
        (NodeProgram(Resources.AGENT, Resources.PARTS), "1"),
        (NodeProgram(Recovery.AGENT, Recovery.PARTS), '[{"interval": 1, "ceph": "false", "conf": "x"}]'),
        (NodeProgram(PerfCounters.AGENT, PerfCounters.PARTS), "1"),
        (NodeProgram(Backlog.AGENT, Backlog.PARTS), '{"interval": 1, "admin": "false"}'),
    ],
    ids=["resources", "recovery", "perf_counters", "backlog"],
)
def test_a_program_for_nodes_brings_its_parts_along(program: NodeProgram, argument: str, tmp_path: Path) -> None:
    """A Python without this project runs it to its end."""
    line = [sys.executable, "-IS", *program.words(argument)]
    done = subprocess.run(line, input=program.text, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert '"end":"told"' in done.stdout.splitlines()[-1]
