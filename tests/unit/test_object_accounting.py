"""Objects are counted around phases, also where the index of the buckets is what was broken."""

from __future__ import annotations

import contextlib
import json
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Dict, List, Mapping, Optional, cast

import pytest
from run_context import context

from cbt_plugins.cluster.ceph import BucketStats, Ceph, CephError, CephTimeout
from cbt_plugins.cluster.fan_out import ask_at_once
from cbt_plugins.cluster.remote import Result
from cbt_plugins.journal import Journal
from cbt_plugins.load.generator import JobEnd
from cbt_plugins.plan import S3, Bucket, Plan
from cbt_plugins.run import buckets as of_buckets
from cbt_plugins.run.buckets import FAULTY_STATS_TIMEOUT, FEW, STATS_TIMEOUT, Buckets, ObjectCount, account
from cbt_plugins.run.load_phase import LoadPhase
from cbt_plugins.run.phase_outcome import PhaseOutcome


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
    injector = SimpleNamespace(open_changes=[SimpleNamespace(kind=kind) for kind in in_force])
    nothing = cast(Any, None)
    return LoadPhase(context(plan=plan, injector=injector), nothing, buckets, nothing)


def test_an_index_that_a_fault_took_along_costs_the_accounting_and_not_the_phase(tmp_path: Path) -> None:
    remote = Silent()
    assert load_phase(tmp_path, remote, "settings", "recovery", "stop").counts_before() == {}
    assert remote.limits == [FAULTY_STATS_TIMEOUT] and FAULTY_STATS_TIMEOUT < STATS_TIMEOUT


class Cut:
    """Connections to the head that are lost so many times; then every bucket has seven objects."""

    def __init__(self, times: int) -> None:
        self.left = times
        self.asked: List[str] = []

    def run(self, nodes: List[str], command: str, timeout: float, check: bool) -> Dict[str, Result]:
        self.asked.append(command)
        self.left -= 1
        if self.left >= 0:
            return {nodes[0]: Result("", "Connection reset by peer", 255)}
        return {nodes[0]: Result(json.dumps({"id": "m", "usage": {"rgw.main": {"num_objects": 7}}}), "", 0)}


@pytest.mark.parametrize(("times", "counts"), [(2, {"cbtp-r1-4kib": 7}), (99, {})])
def test_a_lost_connection_costs_at_most_the_accounting(
    times: int, counts: Dict[str, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cbt_plugins.polling.TRY_AGAIN", 0.0)
    phase = load_phase(tmp_path, cast(Any, Cut(times)))
    assert phase.counts_after() == counts
    assert phase.buckets.untold == ("" if counts else "bucket stats of cbtp-r1-4kib: Connection reset by peer")


class Hundred:
    """A user with many buckets; one of them is no longer there."""

    def __init__(self) -> None:
        self.single: List[str] = []
        self.now = self.most = 0
        self.lock = threading.Lock()

    def buckets_of(self, user: str, timeout: float) -> Dict[str, BucketStats]:
        assert user == "perf$cbt"
        names = [f"cbtp-r1-b{n:02}" for n in range(90)] + ["another"]
        return {name: BucketStats(3, 0, 1, name) for name in names}

    def bucket(self, name: str, timeout: float) -> None:
        with self.lock:
            self.single.append(name)
            self.now += 1
            self.most = max(self.most, self.now)
        threading.Event().wait(0.01)
        with self.lock:
            self.now -= 1


def test_many_buckets_are_counted_by_few_connections(tmp_path: Path) -> None:
    keys = tuple(Bucket(f"b{n:02}", ((1, 1, 1.0),)) for n in range(100))
    plan = Plan("warp", S3(urls=("http://a",), user="perf$cbt"), keys, (), ())
    ceph = Hundred()
    with contextlib.closing(Journal(tmp_path / "journal.jsonl")) as journal:
        counts = Buckets(plan, "r1", cast(Any, ceph), journal).counts()
    assert list(counts) == [f"cbtp-r1-b{n:02}" for n in range(100)]
    assert set(list(counts.values())[:90]) == {3} and set(list(counts.values())[90:]) == {0}
    assert sorted(ceph.single) == [f"perf/cbtp-r1-b{n}" for n in range(90, 100)] and ceph.most <= FEW


def test_a_bucket_of_the_users_that_is_damaged_spoils_no_count(tmp_path: Path) -> None:
    class Damaged(Tenants):
        def buckets_of(self, user: str, timeout: float) -> Any:
            raise CephError("bucket stats of cbt: ERROR: another bucket")

    keys = tuple(Bucket(f"b{n}", ((1, 1, 1.0),)) for n in range(9))
    plan = Plan("warp", S3(urls=("http://a",), user="cbt"), keys, (), ())
    ceph = Damaged(*(f"cbtp-r1-b{n}" for n in range(9)))
    with contextlib.closing(Journal(tmp_path / "journal.jsonl")) as journal:
        assert set(Buckets(plan, "r1", cast(Any, ceph), journal).counts().values()) == {7}


class Tenants:
    """A cluster's buckets by the names that radosgw-admin has for them."""

    admin = "radosgw-admin --rgw-zone=second"

    def __init__(self, *names: str, stubborn: bool = False) -> None:
        self.names, self.stubborn = set(names), stubborn

    def bucket(self, name: str, timeout: float = 0.0) -> Any:
        return SimpleNamespace(objects=7) if name in self.names else None

    def remove_bucket(self, name: str, timeout: float) -> None:
        if not self.stubborn:
            self.names.discard(name)


def buckets_of(user: str, journal: Journal, ceph: Tenants) -> Buckets:
    plan = Plan("warp", S3(urls=("http://a",), user=user), (Bucket("4KiB", ((1, 1, 1.0),)),), (), ())
    return Buckets(plan, "r1", cast(Any, ceph), journal)


def test_buckets_of_a_tenant_are_found_and_removed_there(tmp_path: Path) -> None:
    with contextlib.closing(Journal(tmp_path / "journal.jsonl")) as journal:
        ceph = Tenants("cbtp-r1-4kib")  # of no tenant: somebody else's
        mine = buckets_of("perf$cbt", journal, ceph)
        mine.claim()
        assert mine.counts() == {"cbtp-r1-4kib": 0}
        ceph.names.add("perf/cbtp-r1-4kib")
        assert mine.counts() == {"cbtp-r1-4kib": 7}  # its name in S3
        mine.remove()
        assert ceph.names == {"cbtp-r1-4kib"}
        assert [its["bucket"] for its in journal.all("bucket-removed")] == ["cbtp-r1-4kib"]


def test_a_bucket_in_another_realm_is_not_called_removed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The load has used it, and radosgw-admin works on the default realm."""
    with contextlib.closing(Journal(tmp_path / "journal.jsonl")) as journal:
        ceph = Tenants()
        own = buckets_of("cbt", journal, ceph)
        own.claim()
        journal.write("load-begun", phase="fill")
        own.remove()
        assert "bucket cbtp-r1-4kib of this run was not removed: radosgw-admin does not show it" in caplog.text
        assert journal.all("bucket-removed") == []
        # one whose removal was cut short is gone
        journal.write("bucket-shown", bucket="cbtp-r1-4kib")
        own.remove()
        assert len(journal.all("bucket-removed")) == 1


def test_a_bucket_that_somebody_removed_is_claimed_again(tmp_path: Path) -> None:
    """`cbt-tools undo --data` between two invocations: the data of the second one is the run's, too."""
    with contextlib.closing(Journal(tmp_path / "journal.jsonl")) as journal:
        ceph = Tenants()
        for _ in range(2):
            mine = buckets_of("cbt", journal, ceph)
            mine.claim()
            mine.claim()
            ceph.names.add("cbtp-r1-4kib")
            mine.remove()
        assert len(journal.all("bucket")) == 2 and ceph.names == set()


def test_a_bucket_that_is_still_there_was_not_removed(tmp_path: Path) -> None:
    with contextlib.closing(Journal(tmp_path / "journal.jsonl")) as journal:
        ceph = Tenants(stubborn=True)
        mine = buckets_of("cbt", journal, ceph)
        mine.claim()
        ceph.names.add("cbtp-r1-4kib")
        with pytest.raises(CephError, match="still exists after its removal: run radosgw-admin --rgw-zone=second b"):
            mine.remove()
        assert journal.all("bucket-removed") == []


def test_an_index_that_does_not_answer_without_a_fault_ends_the_run(tmp_path: Path) -> None:
    remote = Silent()
    with pytest.raises(CephTimeout, match="no reply within 120 s"):
        load_phase(tmp_path, remote, "settings", "recovery").counts_before()
    assert remote.limits == [STATS_TIMEOUT]


def test_the_objects_at_a_border_are_counted_once(tmp_path: Path) -> None:
    buckets = load_phase(tmp_path, Silent()).buckets
    assert buckets.kept() is None
    buckets.keep({"b": 7})
    assert buckets.kept() == {"b": 7} and buckets.kept() is None
    buckets.keep({})  # the index did not answer
    assert buckets.kept() is None


def test_what_others_write_to_is_counted_anew(tmp_path: Path) -> None:
    plan = Plan("warp", S3(urls=("http://a",)), (Bucket("theirs", ((1, 1, 1.0),), existing=True),), (), ())
    buckets = Buckets(plan, "r1", cast(Any, None), cast(Any, None))
    buckets.keep({"theirs": 7})
    assert buckets.kept() is None


def test_a_versioned_bucket_has_an_object_for_every_put() -> None:
    """As RGW counts: no DELETE takes one away, and its marker is none."""
    space = {"bucket": "b", "created": 12, "overwritten": 7, "removed": 14, "unknown": 0}
    job = writer()
    ends = {"j": JobEnd({}, driver_end={"spaces": [space]})}
    for versioned, after in (((), 98), (("b",), 119)):
        (count,) = account({"b": 100}, {"b": after}, [job], ends, versioned)
        assert count.ok and count.expected == after
    both = (Bucket("k", ()), Bucket("his", (), existing=True))
    own = Plan("warp", S3(urls=("http://a",)), both, (), (), versioned=True)
    journal = cast(Any, SimpleNamespace(all=lambda event: [{"bucket": "cbtp-r1-k"}]))
    assert Buckets(own, "r1", cast(Any, None), journal).versioned == ["cbtp-r1-k"]


@pytest.mark.parametrize(
    ("counts", "looks"),
    [
        ([10], 0),  # as expected: nobody waits
        ([8, 9, 10], 2),  # requests were still ending
        ([9, 9], 1),  # it stays so, and may
        ([8, 8, 8, 10], 3),  # the bucket index was late
        ([8] * 11, 10),  # it stays wrong
    ],
)
def test_counts_settle(counts: List[int], looks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(of_buckets, "SETTLE", 0.0)
    left = iter(counts[1:])
    asked: List[int] = []

    def take() -> Dict[str, int]:
        asked.append(1)
        return {"b": next(left)}

    def accounting_of(now: Mapping[str, int]) -> List[ObjectCount]:
        return [ObjectCount("b", 0, 10, 0, 0, now["b"], 10, 1, now["b"] in (9, 10))]

    assert of_buckets.settled(take, {"b": counts[0]}, accounting_of) == {"b": counts[-1]} and len(asked) == looks


@pytest.mark.parametrize(("last", "looks"), [(10, 30), (11, of_buckets.LATE_SETTLES)])
def test_counts_that_requests_in_flight_explain_have_longer_to_settle(
    last: int, looks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RGW writes the index after its answer; the load of a busy machine ends long before."""
    monkeypatch.setattr(of_buckets, "SETTLE", 0.0)
    asked: List[int] = []

    def take() -> Dict[str, int]:
        asked.append(1)
        return {"b": last if len(asked) >= 30 else 11}

    def judge(now: Mapping[str, int]) -> List[ObjectCount]:
        return account({"b": 10}, now, [writer()], {"j": JobEnd({}, driver_end={"spaces": [BALANCED]})})

    assert of_buckets.settled(take, {"b": 11}, judge) == {"b": last} and len(asked) == looks


@pytest.mark.parametrize(
    ("answers", "end", "looks"),
    [
        ([8, None, 10], 10, 2),
        ([8, 8, None, 8, None, None, 10], 8, 5),  # nobody answers any more: the loss that was seen stays known
        ([9, None, 9], 9, 2),  # no answer is not twice the same
    ],
)
def test_a_count_without_an_answer_hides_no_difference(
    answers: List[Optional[int]], end: int, looks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(of_buckets, "SETTLE", 0.0)
    each = [{} if answer is None else {"b": answer} for answer in answers]
    left = iter(each[1:])
    asked: List[int] = []

    def take() -> Dict[str, int]:
        asked.append(1)
        return next(left)

    def accounting_of(now: Mapping[str, int]) -> List[ObjectCount]:
        return [ObjectCount("b", 0, 10, 0, 0, n, 10, 1, n in (9, 10)) for n in now.values()]

    assert of_buckets.settled(take, each[0], accounting_of) == {"b": end} and len(asked) == looks


BALANCED = {"bucket": "b", "created": 7, "overwritten": 0, "removed": 7, "unknown": 0}


def writer() -> Any:
    return cast(Any, SimpleNamespace(id="j", bucket="b", workers=4))


@pytest.mark.parametrize(
    ("after", "status", "text"),
    [
        (10, "ok", None),
        (11, "degraded", "1 object more than counted: 10 + 7 PUT - 7 DELETE + 0 prepared = 10 objects expected"),
        (9, "degraded", "1 object fewer than counted"),
    ],
)
def test_a_difference_says_all_that_was_counted(after: int, status: str, text: Optional[str]) -> None:
    outcome = PhaseOutcome(1, cast(Any, None))
    counts = account({"b": 10}, {"b": after}, [writer()], {"j": JobEnd({}, driver_end={"spaces": [BALANCED]})})
    outcome.add_accounting(counts)
    texts = [warning["text"] for warning in outcome.warnings]
    assert outcome.status == status and len(texts) == (text is not None)
    if text:
        assert f"b: {text}" in texts[0]
        assert texts[0].endswith("; at most 4 requests in flight when the load ended")


def test_questions_ask_at_once() -> None:
    both = threading.Barrier(2, timeout=30)  # none ends before the other has begun
    assert ask_at_once(lambda: (both.wait(), "a")[1], lambda: (both.wait(), "b")[1]) == ["a", "b"]
    with pytest.raises(ZeroDivisionError):
        ask_at_once(lambda: 1, lambda: 1 / 0)
