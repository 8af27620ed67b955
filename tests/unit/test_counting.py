"""Objects are counted around phases, also where the index of the buckets is what was broken."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, Dict, List, cast

import pytest

from cbt_plugins.cluster.ceph import Ceph, NoAnswer
from cbt_plugins.cluster.result import Result
from cbt_plugins.journal import Journal
from cbt_plugins.plan import S3, Bucket, Plan
from cbt_plugins.run.buckets import BROKEN_PATIENCE, PATIENCE, Buckets
from cbt_plugins.run.load_phase import Loader


class Silent:
    """Connections on which commands run into their time limit."""

    def __init__(self) -> None:
        self.limits: List[float] = []

    def run(self, nodes: List[str], command: str, timeout: float, check: bool) -> Dict[str, Result]:
        self.limits.append(timeout)
        return {nodes[0]: Result("", "", 124)}


def loader(folder: Path, remote: Silent, *in_force: str) -> Loader:
    plan = Plan("warp", S3(urls=("http://a",)), (Bucket("4KiB", ((1, 1, 1.0),)),), (), ())
    journal = Journal(folder / "journal.jsonl")
    buckets = Buckets(plan, "r1", Ceph(cast(Any, remote), {"head": "node0"}), journal)
    journal.close()
    injector = SimpleNamespace(open=[SimpleNamespace(label=label) for label in in_force])
    nothing = cast(Any, None)
    return Loader(nothing, plan, nothing, nothing, nothing, buckets, nothing, "r1", cast(Any, injector), nothing)


def test_an_index_that_a_fault_took_along_costs_the_books_and_not_the_phase(tmp_path: Path) -> None:
    remote = Silent()
    assert loader(tmp_path, remote, "settings", "recovery", "node-a")._counts(settle=True) == {}
    assert remote.limits == [BROKEN_PATIENCE] and BROKEN_PATIENCE < PATIENCE


def test_an_index_that_does_not_answer_without_a_fault_ends_the_run(tmp_path: Path) -> None:
    remote = Silent()
    with pytest.raises(NoAnswer, match="no answer within 120 s"):
        loader(tmp_path, remote, "settings", "recovery")._counts()
    assert remote.limits == [PATIENCE]
