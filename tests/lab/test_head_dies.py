"""A run whose head dies under load in its hour 30: it says what it lacks, and is resumed when the head is back:

    CBT_PLUGINS_LONG=1 ./run test tests/lab/test_head_dies.py
"""

from __future__ import annotations

import signal
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Dict, Iterator, Set

import pytest
from cycles import CLUSTER, S3, Cycle, generators
from long_past import is_under_load, lengthen
from running_lab import RunningLab, need_machine

from cbt_plugins.tools.lab import Lab, Topology

pytestmark = [pytest.mark.lab, pytest.mark.long]


class LedByAClient(Cycle):
    """A run that a client leads: its head is another machine, with one of three ceph-mons."""

    cluster: ClassVar[Dict[str, Any]] = {
        **CLUSTER,
        "clients": ["client2"],
        "osds": ["node1", "node2"],
        "mons": ["node0", "node1", "node2"],
        "rgws": ["rgw1"],
        "transport": "ssh",
    }
    leader = "client1"


@pytest.fixture
def quorum(tmp_path: Path) -> Iterator[RunningLab]:
    need_machine(1)
    lab = Lab(tmp_path / "lab", say=lambda _: None)
    try:
        lab.up(Topology(2, 1, 1, 2, mons=3, mgrs=2, bind=(str(tmp_path),)), detach=False)
        yield RunningLab(lab, [])
    finally:
        lab.down(wipe=True)


def test_a_head_that_dies_in_hour_30(quorum: RunningLab, tmp_path: Path) -> None:
    load = {"duration": "90s", "warmup": "5s", "mix": {"get": 60, "put": 40}}
    section = {
        "s3": {**S3, "urls": ["http://rgw1:7480"]},
        "engine": "cbt-load",
        "size": "4KiB",
        "workers": 2,
        "cycle": {"phases": [{"fill": {"objects": 800}}, {"hybrid": load, "name": "measure"}]},
    }
    cycle = LedByAClient(quorum, tmp_path, {"resources": {}, "recovery": {}}, warp=section)
    assert cycle.broken_off(partial(is_under_load, cycle, 1), "the load", signal.SIGINT) == 130
    lengthen(cycle.folder, "fill", 29)
    assert cycle.broken_off(partial(is_under_load, cycle, 2), "the load again") == -9
    cycle.start()
    cycle.await_moment(partial(is_under_load, cycle, 3), "the load once more")
    assert quorum.exec("node0", ["ip", "link", "set", "eth0", "down"]).returncode == 0
    # the load goes on to its end; then the state of the cluster is needed
    assert cycle.ended() == 1
    log = cycle.log.read_text()
    assert "measure: ok, 90 s" in log and "on node0: ssh: connect to host node0" in log.splitlines()[-1], log[-3000:]
    # a warning for each reason, not one for each attempt
    assert 0 < log.count("no samples of the cluster from node0") <= 6, log
    assert {"incomplete", "state-unknown", "no-accounting", "resources-gap"} <= codes(cycle)
    assert not cycle.summary()["usable"]
    processes = quorum.exec("client2", ["ps", "-eo", "args"]).stdout
    assert "cbt-load" not in processes and "agent" not in processes
    assert quorum.exec("node0", ["ip", "link", "set", "eth0", "up"]).returncode == 0
    resumed = cycle.run()
    assert resumed.returncode == 0 and "phase 2 of 2, measure: done already" in resumed.stderr, resumed.stderr[-3000:]
    assert {"state-unknown", "no-accounting"} <= codes(cycle) and "incomplete" not in codes(cycle)
    assert not generators(quorum) and not cycle.left()


def codes(cycle: Cycle) -> Set[str]:
    return {warning["code"] for warning in cycle.summary()["warnings"]}
