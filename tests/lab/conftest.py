"""One real Ceph cluster for all tests of the session."""

from __future__ import annotations

from typing import Any, Dict, Generator, Iterator, List

import pytest
from cluster_state import clean, facts, moving
from cycles import Cycle
from running_lab import RunningLab, lost_writes, need_machine
from waiting import wait_for

from cbt_plugins.tools.lab import Lab, Topology

#: the session's lab, once there is one
SHARED: List[RunningLab] = []


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
        SHARED.append(RunningLab(made, log))
        yield SHARED[0]
    finally:
        SHARED.clear()
        made.down(wipe=True)


@pytest.fixture
def before(lab: RunningLab) -> Iterator[Dict[str, Any]]:
    """What the cluster was like; a test that fails must not spoil the next."""
    wait_for(lambda: clean(lab), "a clean cluster", moving=lambda: moving(lab))
    known = facts(lab)
    yield known
    back = lambda: facts(lab)["osds"] == known["osds"] and clean(lab)  # noqa: E731
    wait_for(back, "the OSDs to be back", moving=lambda: moving(lab))


def free(lab: RunningLab) -> None:
    """End the runs that are under way, undo what they changed, release the cluster, and bring every node back."""
    for cycle in Cycle.started:
        cycle.end()
        if list(cycle.archive.rglob("undo.jsonl")):
            cycle.undo()
    for name, node in lab.nodes.items():
        if lab.lab.spaces.first(name) is None:
            lab.lab.boot(name)
        lab.lab.link(name, up=True)
        lab.exec(name, ["pkill", "-CONT", "-x", "radosgw|ceph-mon|ceph-osd"])
        if node.osds:
            lab.lab.start_osds(name)
    for key in facts(lab)["lock"]:
        lab.exec("node0", ["ceph", "config-key", "rm", key])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A test that failed frees what it held; one that failed because the machine's disk loses writes is skipped."""
    report = yield
    # the session's lab only: in others OSDs are made anew, and what a checksum says may be our own fault
    shared = getattr(item, "funcargs", {}).get("lab")
    lost = lost_writes(shared.dir) if report.failed and isinstance(shared, RunningLab) else []
    if report.failed and SHARED:
        try:
            free(SHARED[0])
        except Exception as error:
            report.sections.append(("freeing the lab", repr(error)))
    if report.when == "teardown":
        for cycle in Cycle.started:
            cycle.end()
        Cycle.started.clear()
    if lost:
        report.outcome = "skipped"
        report.longrepr = (str(item.path), 0, f"Skipped: this machine's disk lost a write. {lost[0]}")
    return report
