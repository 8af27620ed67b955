"""One real Ceph cluster for all tests of the session."""

from __future__ import annotations

from typing import Iterator, List

import pytest
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
