"""One real Ceph cluster for all tests of the session."""

from __future__ import annotations

from typing import Any, Dict, Iterator, List

import pytest
from cluster_state import clean, facts
from cycles import wait_for
from running_lab import RunningLab, need_machine

from cbt_plugins.tools.lab import Lab, Topology


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


@pytest.fixture
def before(lab: RunningLab) -> Iterator[Dict[str, Any]]:
    """What the cluster was like; a test that fails must not spoil the next."""
    wait_for(lambda: clean(lab), "a clean cluster", 240)
    known = facts(lab)
    yield known
    if facts(lab)["osds"] != known["osds"]:
        lab.lab.start_osds("node4")
    wait_for(lambda: facts(lab)["osds"] == known["osds"] and clean(lab), "the OSDs to be back", 240)
