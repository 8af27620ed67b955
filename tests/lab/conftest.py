"""One real Ceph cluster for all tests of tests/lab."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, Generator, Iterator, List, Optional

import pytest
from cluster_state import clean, facts, moving
from cycles import Cycle, free
from releases import RELEASES, home_of, root_of
from running_lab import RunningLab, lost_writes, need_machine
from waiting import wait_for

from cbt_plugins.tools.lab import Lab, Topology

pytest.register_assert_rewrite("container_runs")


class SharedLab:
    """The lab of the default shape: up from the first test that asks for it until the last one of tests/lab.

    The session's temporary folder and the project are visible in every node. It hangs on this process: it ends with
    it, also after kill -9.
    """

    def __init__(self) -> None:
        self._running: Optional[RunningLab] = None

    def started(self, folders: pytest.TempPathFactory) -> RunningLab:
        """Return the lab, which is started where it does not run."""
        if self._running is None:
            need_machine()
            log: List[str] = []
            lab = Lab(folders.mktemp("lab"), say=log.append)
            try:
                lab.up(Topology(bind=(str(folders.getbasetemp()),)), detach=False)
            except BaseException:
                lab.down(wipe=True)
                raise
            self._running = RunningLab(lab, log)
        return self._running

    def end(self) -> None:
        running, self._running = self._running, None
        if running is not None:
            running.lab.down(wipe=True)


SHARED = SharedLab()


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> RunningLab:
    """The lab that all test files share."""
    return SHARED.started(tmp_path_factory)


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: Optional[pytest.Item]) -> None:
    """End the shared lab behind the last test of tests/lab: two dozen idle daemons take time from all others."""
    if nextitem is None or not nextitem.path.is_relative_to(Path(__file__).parent):
        SHARED.end()


def pytest_sessionfinish() -> None:
    """End it also where a session was broken off."""
    SHARED.end()


@pytest.fixture(scope="module", params=RELEASES)
def of_release(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningLab]:
    """A lab of a release; a run in it has the Python of that release's root folder."""
    need_machine()
    root = root_of(request.param)
    if root == "/":
        yield request.getfixturevalue("lab")
        return
    base = tmp_path_factory.mktemp(f"release-{request.param}")
    home = home_of(root, base)
    made = Lab(tmp_path_factory.mktemp("lab"), say=lambda text: None)
    try:
        made.up(Topology(root=root, bind=(str(tmp_path_factory.getbasetemp()),)), detach=False)
        yield RunningLab(made, [], "/usr/bin/python3", home)
    finally:
        made.down(wipe=True)


@pytest.fixture
def before(lab: RunningLab) -> Iterator[Dict[str, Any]]:
    """What the cluster was like; a test that fails must not spoil the next."""
    wait_for(lambda: clean(lab), "a clean cluster", moving=lambda: moving(lab))
    known = facts(lab)
    yield known
    back = lambda: facts(lab)["osds"] == known["osds"] and clean(lab)  # noqa: E731
    wait_for(back, "the OSDs to be back", moving=lambda: moving(lab))


def holders(item: pytest.Item) -> Iterator[Any]:
    """Yield the fixtures of a test that are a lab, or have one."""
    for value in getattr(item, "funcargs", {}).values():
        if isinstance(value, RunningLab) or isinstance(getattr(value, "lab", None), RunningLab):
            yield value


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A test that failed frees what it held; one that failed because the machine's disk loses writes is skipped."""
    report = yield
    # the session's lab only: in others OSDs are made anew, and what a checksum says may be our own fault
    shared = getattr(item, "funcargs", {}).get("lab")
    lost = lost_writes(shared.dir) if report.failed and isinstance(shared, RunningLab) else []
    for holder in holders(item) if report.failed else ():
        try:
            free(holder)
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
