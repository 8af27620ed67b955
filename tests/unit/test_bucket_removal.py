"""Buckets of a run that nobody resumes: removed by what its archive says, and nobody else's."""

from __future__ import annotations

import contextlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any, List, Optional, Type

import pytest

from cbt_plugins.cluster.ceph import TIMED_OUT, Ceph, CephError, CephTimeout
from cbt_plugins.cluster.remote import Result
from cbt_plugins.journal import Journal, journal_lines
from cbt_plugins.run.bucket_removal import describe_buckets, remove_buckets
from cbt_plugins.run.buckets import removed_buckets


class Cluster:
    """Buckets by name; `stuck` ones cannot be removed. A silent one replies to nothing."""

    def __init__(self, *names: str, stuck: str = "", silent: bool = False) -> None:
        self.names, self.stuck, self.silent = list(names), stuck, silent
        self.questions: List[str] = []

    def bucket(self, name: str, timeout: float) -> Optional[Any]:
        self.questions.append(name)
        if self.silent:
            raise CephTimeout("no reply within 120 s")
        return SimpleNamespace(objects=5) if name in self.names else None

    def remove_bucket(self, name: str, timeout: float) -> None:
        if name == self.stuck:
            raise CephError("no answer")
        self.names.remove(name)


def removed(folder: Path, cluster: Cluster, admin: bool = True) -> List[Optional[str]]:
    access: Any = SimpleNamespace(ceph=cluster, run_id="r1", trusted=False, admin=admin)
    return list(remove_buckets(folder, access))


ADMIN_SOCKET = "... AdminSocket: failed to bind '/var/run/ceph/client.admin.asok': (2) No such file or directory\n"


@pytest.mark.parametrize(
    ("status", "error", "there_is_none"),
    [
        (210, "failure: (2002) Unknown error 2002: \n", True),  # 16.2.15
        (210, f"{ADMIN_SOCKET}failure: (2002) Unknown error 2002: \ncommand terminated with exit code 210\n", True),
        (2, "failure: (2) No such file or directory: \n", True),
        (255, "Warning: Identity file /root/.ssh/k not accessible: No such file or directory.\n", False),
        (1, f"{ADMIN_SOCKET}monclient(hunting): authenticate timed out after 300\n", False),
        (1, "auth: unable to find a keyring on /etc/ceph/ceph.keyring: (2) No such file or directory\n", False),
    ],
)
def test_only_radosgw_admin_itself_says_that_there_is_no_bucket(status: int, error: str, there_is_none: bool) -> None:
    remote: Any = SimpleNamespace(run=lambda *_, **__: {"node0": Result("", error, status)})
    ceph = Ceph(remote, {"head": "node0"})
    if there_is_none:
        assert ceph.bucket("b") is None
    else:
        with pytest.raises(CephError, match="bucket stats of b: "):
            ceph.bucket("b")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """What a run wrote down, lines of an earlier version without `admin_name`, and what an attacker added."""
    with contextlib.closing(Journal(tmp_path / "journal.jsonl")) as journal:
        journal.write("bucket", bucket="cbtp-r1-a")
        journal.write("bucket", bucket="cbtp-r1-b", admin_name="tenant/cbtp-r1-b")
        for name in ("cbtp-r11-a", "payroll", "cbtp-r1"):
            journal.write("bucket", bucket=name, admin_name=name)
        journal.write("bucket", bucket="cbtp-r1-c", admin_name="payroll")
    return tmp_path


def test_only_buckets_with_the_id_of_the_run_are_removed(folder: Path) -> None:
    cluster = Cluster("cbtp-r1-a", "tenant/cbtp-r1-b", "cbtp-r11-a", "payroll", "cbtp-r1")
    assert removed(folder, cluster) == [None, None]
    assert cluster.names == ["cbtp-r11-a", "payroll", "cbtp-r1"]
    assert removed(folder, cluster) == [], "each is removed once"


def test_a_bucket_that_was_made_again_after_its_removal_is_removed_again(folder: Path) -> None:
    cluster = Cluster("cbtp-r1-a", "tenant/cbtp-r1-b")
    assert removed(folder, cluster) == [None, None]
    with contextlib.closing(Journal(folder / "journal.jsonl")) as journal:
        journal.write("bucket", bucket="cbtp-r1-a")
        assert removed_buckets(journal.records) == ["cbtp-r1-b"]
    cluster.names.append("cbtp-r1-a")
    assert removed(folder, cluster) == [None] and cluster.names == []


def test_those_that_would_be_removed_are_named_and_nothing_changes(folder: Path) -> None:
    cluster = Cluster("cbtp-r1-a", "tenant/cbtp-r1-b", "payroll")
    access: Any = SimpleNamespace(ceph=cluster, run_id="r1", trusted=False, admin=True)
    before = (folder / "journal.jsonl").read_bytes()
    assert list(describe_buckets(folder, access)) == [
        "bucket cbtp-r1-a (5 objects)",
        "bucket tenant/cbtp-r1-b (5 objects)",
    ]
    assert (folder / "journal.jsonl").read_bytes() == before and len(cluster.names) == 3


def test_a_bucket_that_stays_does_not_keep_the_others(folder: Path) -> None:
    cluster = Cluster("cbtp-r1-a", "tenant/cbtp-r1-b", stuck="cbtp-r1-a")
    assert removed(folder, cluster) == ["bucket cbtp-r1-a: no answer", None]
    assert cluster.names == ["cbtp-r1-a"]


def test_a_cluster_that_does_not_reply_is_asked_for_one_bucket(folder: Path) -> None:
    """radosgw-admin waits until it is ended: minutes for each bucket."""
    cluster = Cluster("cbtp-r1-a", silent=True)
    not_asked = "not asked for, as there was no reply about an earlier bucket: repeat the undo when all PGs are active"
    assert removed(folder, cluster) == [
        "bucket cbtp-r1-a: no reply within 120 s",
        f"bucket tenant/cbtp-r1-b: {not_asked}",
    ]
    access: Any = SimpleNamespace(ceph=cluster, run_id="r1", trusted=False, admin=True)
    assert list(describe_buckets(folder, access)) == [
        "bucket cbtp-r1-a (objects not counted: no reply within 120 s)",
        f"bucket tenant/cbtp-r1-b (objects not counted: {not_asked})",
    ]
    assert cluster.questions == ["cbtp-r1-a", "cbtp-r1-a"]
    assert removed(folder, Cluster("cbtp-r1-a", "tenant/cbtp-r1-b")) == [None, None]


@pytest.mark.parametrize(("status", "kind"), [(TIMED_OUT, CephTimeout), (1, CephError)])
def test_a_removal_without_a_reply_is_told_from_one_that_failed(status: int, kind: Type[CephError]) -> None:
    remote: Any = SimpleNamespace(run=lambda nodes, *_, **__: {node: Result("", "", status) for node in nodes})
    with pytest.raises(CephError) as failed:
        Ceph(remote, {"head": "node0"}).remove_bucket("b", 5.0)
    assert type(failed.value) is kind and str(failed.value).startswith("radosgw-admin -c /etc/ceph/ceph.conf bucket rm")


def test_without_the_commands_of_ceph_the_bucket_is_named_and_ends_nothing(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert removed(folder, Cluster(), admin=False) == []
    assert "bucket cbtp-r1-a of this run was not removed: if it exists, remove it with an S3 client" in caplog.text
    assert not any(line["event"] == "bucket-removed" for line in journal_lines(folder / "journal.jsonl"))


def test_a_bucket_in_another_realm_is_named_and_stays_in_the_list(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The load has used it, and radosgw-admin works on the default realm."""
    with contextlib.closing(Journal(folder / "journal.jsonl")) as journal:
        journal.write("load-begun", phase="fill")
    warning = "bucket cbtp-r1-b of this run was not removed: radosgw-admin does not show it"
    access: Any = SimpleNamespace(ceph=Cluster(), run_id="r1", trusted=False, admin=True)
    assert list(describe_buckets(folder, access)) == [] and warning in caplog.text
    caplog.clear()
    assert removed(folder, Cluster()) == [] and warning in caplog.text
    assert removed_buckets(journal_lines(folder / "journal.jsonl")) == []
    assert removed(folder, Cluster("cbtp-r1-a", "tenant/cbtp-r1-b")) == [None, None]


def test_a_bucket_that_no_phase_has_made_is_gone(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The run was interrupted before; radosgw-admin shows another bucket of it."""
    with contextlib.closing(Journal(folder / "journal.jsonl")) as journal:
        journal.write("load-begun", phase="fill")
    access: Any = SimpleNamespace(ceph=Cluster("cbtp-r1-a"), run_id="r1", trusted=False, admin=True)
    assert list(describe_buckets(folder, access)) == ["bucket cbtp-r1-a (5 objects)"]
    assert removed(folder, Cluster("cbtp-r1-a")) == [None, None] and "was not removed" not in caplog.text
