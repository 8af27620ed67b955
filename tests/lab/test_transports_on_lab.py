"""A cycle with a fault that is killed, undone and resumed: through pdsh, and where no node has one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Iterator

import pytest
from cluster_state import clean, facts, moving
from cycles import CLUSTER, Cycle
from running_lab import RunningLab
from test_ends import warp
from waiting import wait_for

pytestmark = [pytest.mark.lab, pytest.mark.long]

MONITORS = {"resources": {}, "recovery": {}, "collectl": {"args": "-sCD -i 1 -P -oz -F0 -f {collectl_dir}"}}
FAULT = {"label": "a", "kind": "stop", "nodes": ["node1"]}
PHASES = (
    {"fill": {"objects": 100}},
    {"hybrid": {"duration": "20s", "events": [{"at": "2s", "fault": FAULT}, {"at": "12s", "undo": "a"}]}},
)
PDSH = "/usr/bin/pdsh"


@pytest.fixture(params=["pdsh", "ssh"])
def transport(request: pytest.FixtureRequest, lab: RunningLab) -> Iterator[str]:
    """The transport by which node0 reaches the others; for ssh, pdsh is hidden on all nodes."""
    nodes = list(lab.nodes) if request.param == "ssh" else []
    for node in nodes:
        assert lab.exec(node, ["mount", "--bind", "/dev/null", PDSH]).returncode == 0
        assert lab.exec(node, ["sh", "-c", "command -v pdsh"]).returncode != 0
    yield request.param
    for node in nodes:
        assert lab.exec(node, ["umount", PDSH]).returncode == 0


def test_killed_in_a_fault_undone_and_resumed(lab: RunningLab, transport: str, tmp_path: Path) -> None:
    wait_for(lambda: clean(lab), "a clean cluster", moving=lambda: moving(lab))
    before = facts(lab)
    cycle = Cycle(lab, tmp_path, MONITORS, warp=warp(*PHASES, engine="cbt-load"))
    is_down = lambda: not all(up for _, up, *_ in facts(lab)["osds"])  # noqa: E731
    assert cycle.broken_off(is_down, "OSDs of node1 to be down") != 0
    named = json.loads((cycle.folder / "cluster.json").read_text())["cluster"]["transport"]
    nodes = {"node0", *CLUSTER["clients"], *CLUSTER["osds"], *CLUSTER["rgws"]}
    assert named == {node: "local" if node == "node0" else transport for node in nodes}
    undone = cycle.undo()
    assert undone.returncode == 0 and not is_down(), undone.stderr
    assert facts(lab) == before
    wait_for(lambda: clean(lab), "a clean cluster", moving=lambda: moving(lab))
    done = cycle.run()
    assert done.returncode == 0, done.stderr[-3000:]
    assert {name: phase["status"] for name, phase in cycle.phases().items()} == {"fill": "ok", "hybrid": "ok"}
    assert sorted(path.name for path in cycle.folder.glob("monitors/*/resources.client*")) and facts(lab) == before
