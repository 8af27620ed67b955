"""Objects are counted around phases, also where the index of the buckets is what was broken."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, Dict, List, cast

import pytest
from run_context import context

from cbt_plugins.cluster.ceph import Ceph, CephTimeout
from cbt_plugins.cluster.remote import Result
from cbt_plugins.journal import Journal
from cbt_plugins.plan import S3, Bucket, Plan
from cbt_plugins.run.buckets import FAULTY_STATS_TIMEOUT, STATS_TIMEOUT, Buckets
from cbt_plugins.run.load_phase import LoadPhase


class Silent:
    """Connections on which commands run into their time limit."""

    def __init__(self) -> None:
        self.limits: List[float] = []

    def run(self, nodes: List[str], command: str, timeout: float, check: bool) -> Dict[str, Result]:
        self.limits.append(timeout)
        return {nodes[0]: Result("", "", 124)}


def load_phase(folder: Path, remote: Silent, *in_force: str) -> LoadPhase:
    plan = Plan("warp", S3(urls=("http://a",)), (Bucket("4KiB", ((1, 1, 1.0),)),), (), ())
    journal = Journal(folder / "journal.jsonl")
    buckets = Buckets(plan, "r1", Ceph(cast(Any, remote), {"head": "node0"}), journal)
    journal.close()
    injector = SimpleNamespace(open=[SimpleNamespace(label=label) for label in in_force])
    nothing = cast(Any, None)
    return LoadPhase(context(plan=plan, injector=injector), nothing, buckets)


def test_an_index_that_a_fault_took_along_costs_the_accounting_and_not_the_phase(tmp_path: Path) -> None:
    remote = Silent()
    assert load_phase(tmp_path, remote, "settings", "recovery", "node-a")._counts(settle=True) == {}
    assert remote.limits == [FAULTY_STATS_TIMEOUT] and FAULTY_STATS_TIMEOUT < STATS_TIMEOUT


def test_an_index_that_does_not_answer_without_a_fault_ends_the_run(tmp_path: Path) -> None:
    remote = Silent()
    with pytest.raises(CephTimeout, match="no reply within 120 s"):
        load_phase(tmp_path, remote, "settings", "recovery")._counts()
    assert remote.limits == [STATS_TIMEOUT]
