"""One real Ceph cluster for all tests of the session."""

from __future__ import annotations

from typing import Any, Dict, Generator, Iterator, List

import pytest
from cluster_state import clean, facts
from cycles import wait_for
from running_lab import RunningLab, lost_writes, need_machine

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


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A machine whose disk loses writes lacks what a lab needs: what fails there is skipped, with BlueStore's words."""
    report = yield
    # the session's lab only: in others OSDs are made anew, and what a checksum says may be our own fault
    shared = getattr(item, "funcargs", {}).get("lab")
    lost = lost_writes(shared.dir) if report.failed and isinstance(shared, RunningLab) else []
    if lost:
        report.outcome = "skipped"
        report.longrepr = (str(item.path), 0, f"Skipped: this machine's disk lost a write. {lost[0]}")
    return report
