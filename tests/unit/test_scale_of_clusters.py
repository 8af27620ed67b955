"""What a fault costs on a large cluster: work in proportion to the cluster, questions in no proportion to it."""

from __future__ import annotations

import json
import threading
from typing import Any, Callable, Dict, List, Tuple

import pytest
from counted_work import growth
from faults_world import ANYTHING, Connections

from cbt_plugins.cluster.ceph import Ceph
from cbt_plugins.cluster.remote import Result
from cbt_plugins.faults import preview
from cbt_plugins.faults.prepared_fault import Prepared
from cbt_plugins.faults.step import Check
from cbt_plugins.inventory import HostTable
from cbt_plugins.plan import Fault

#: nodes of the smaller and of the larger cluster
SIZES = (60, 240)
#: work may grow by this factor more than the cluster: what is sorted
ALMOST_LINEAR = 1.2


def of_nodes(nodes: int) -> Tuple[Connections, Dict[str, Any]]:
    connections = Connections(hosts=nodes, per_host=2)
    names = [f"node{number}" for number in range(1, nodes + 1)]
    return connections, {"head": "node0", "user": "root", "osds": names, "mons": ["node0"]}


def stopped(nodes: int, many: int) -> List[Fault]:
    """A fault of a tenth of the nodes, and others of one node each."""
    every = [f"node{number}" for number in range(1, nodes + 1)]
    faults = [Fault("rack", "stop", tuple(every[: nodes // 10]), accept=ANYTHING)]
    return faults + [Fault(f"node-{n}", "stop", (every[-n],), accept=ANYTHING) for n in range(1, many)]


def judged(connections: Connections, cluster: Dict[str, Any], faults: List[Fault]) -> List[Any]:
    remote: Any = connections
    results = [result for _, result in preview(Ceph(remote, cluster), cluster, [(fault, ()) for fault in faults])]
    assert all(isinstance(result, Prepared) for result in results), results
    return results


def test_the_judgement_of_a_fault_is_linear_in_the_cluster() -> None:
    def of(nodes: int) -> Callable[[], Any]:
        connections, cluster = of_nodes(nodes)
        return lambda: judged(connections, cluster, stopped(nodes, 1))

    assert growth(of, SIZES) < ALMOST_LINEAR


def test_a_table_of_hosts_is_linear_in_the_hosts() -> None:
    def of(nodes: int) -> Callable[[], Any]:
        names = [f"root@node{number}.example:2222" for number in range(nodes)]
        return lambda: list(map(HostTable(names).find, (f"node{number}" for number in range(nodes))))

    assert growth(of, SIZES) < ALMOST_LINEAR


def test_a_check_of_many_osds_is_linear_in_them() -> None:
    def of(osds: int) -> Callable[[], Any]:
        reply = json.dumps({"osds": [{"osd": n, "up": 1, "in": 1} for n in range(osds)]})
        want = tuple((("osds", {"osd": n}, name), 1) for n in range(osds) for name in ("up", "in"))
        check = Check("head", "ceph osd dump", want)
        return lambda: check.differs(reply)

    assert growth(of, SIZES) < ALMOST_LINEAR


def test_a_cluster_is_asked_once_for_all_faults_of_a_preview() -> None:
    connections, cluster = of_nodes(20)
    judged(connections, cluster, stopped(20, 5))
    assert sum("pg dump pgs_brief" in text for _, text in connections.said) == 1


def test_nodes_are_asked_for_their_daemons_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each reply waits for the questions to all others."""
    connections, cluster = of_nodes(30)
    (fault,) = stopped(30, 1)
    together, play = threading.Barrier(len(fault.targets), timeout=10), connections.play

    def late(node: str, text: str) -> Result:
        if "daemons=" in text[:40]:
            together.wait()
        return play(node, text)

    monkeypatch.setattr(connections, "play", late)
    judged(connections, cluster, [fault])
