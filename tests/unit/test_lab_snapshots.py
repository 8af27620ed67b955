from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import shutil
from pathlib import Path
from typing import Any, Callable, List

import pytest

from cbt_plugins.cluster.object_sample import ObjectSample
from cbt_plugins.tools.__main__ import main
from cbt_plugins.tools.lab import Lab, LabError, Topology
from cbt_plugins.tools.lab.installed_releases import Release
from cbt_plugins.tools.lab.snapshots import Snapshot, Snapshots, copy_cluster, forget_gateways, occupied
from cbt_plugins.tools.lab.topology import LabRecord

PACIFIC, REEF = Release((16, 2, 15), "pacific"), Release((18, 2, 7), "reef")


@pytest.mark.parametrize(
    ("text", "release"),
    [
        ("ceph version 18.2.7 (6b0e98) reef (stable)", REEF),
        ("ceph version 20.2.4 (7f7937) tentacle (stable - RelWithDebInfo)", Release((20, 2, 4), "tentacle")),
        ("ceph version 19.3.1-12-g8a6 (8a6) squid (dev)", Release((19, 3, 1), "squid")),
        ("16.2.15 pacific", PACIFIC),
        ("sh: ceph-mon: not found", None),
    ],
)
def test_a_release_is_read_from_what_ceph_prints(text: str, release: Release) -> None:
    assert Release.parse(text) == release
    assert not release or Release.parse(str(release)) == release


@pytest.mark.parametrize(
    ("writer", "opener", "reason"),
    [
        (PACIFIC, PACIFIC, ""),
        (PACIFIC, REEF, ""),
        (Release((18, 2, 4), "reef"), REEF, ""),
        (REEF, Release((18, 2, 4), "reef"), "older release"),
        (REEF, PACIFIC, "older release"),
        (PACIFIC, Release((20, 2, 4), "tentacle"), "at most 2 releases"),
    ],
)
def test_what_ceph_does_not_support_is_refused(writer: Release, opener: Release, reason: str) -> None:
    refusal = writer.refusal(opener)
    assert reason in refusal
    assert bool(reason) == bool(refusal)


def lab_of(folder: Path, content: str, said: List[str]) -> Lab:
    """A lab that does not run, with one OSD's store of 1 GiB that is nearly all hole."""
    (folder / "nodes/node1/lib/osd").mkdir(parents=True)
    (folder / "nodes/node1/log").mkdir()
    (folder / "nodes/node1/log/osd.log").write_text("old")
    (folder / "etc/ceph").mkdir(parents=True)
    (folder / "etc/ceph/keyring").write_text(content)
    with open(folder / "nodes/node1/lib/osd/block", "wb") as block:
        block.write(content.encode())
        block.truncate(1 << 30)
    lab = Lab(folder, say=said.append)
    LabRecord(Topology(1, 1, 0, 0), f"fsid of {content}", {"0": "u"}, "created").save(folder)
    return lab


def begin_of(path: Path) -> bytes:
    with open(path, "rb") as file:
        return file.read(4)


def test_a_copy_has_the_holes_and_not_the_logs(tmp_path: Path) -> None:
    lab = lab_of(tmp_path / "lab", "one", [])
    assert "KiB" in copy_cluster(lab.dir, tmp_path / "copy")
    block = tmp_path / "copy/nodes/node1/lib/osd/block"
    assert block.stat().st_size == 1 << 30
    assert begin_of(block) == b"one\0"
    assert occupied(tmp_path / "copy") < 1 << 20
    assert not (tmp_path / "copy/nodes/node1/log").exists()


def test_a_disk_without_room_is_said_before_anything_is_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = lab_of(tmp_path / "lab", "one", [])
    monkeypatch.setattr("shutil.disk_usage", lambda _: argparse.Namespace(free=10))
    monkeypatch.setattr("cbt_plugins.tools.lab.snapshots.shares_blocks", lambda *_: False)
    with pytest.raises(LabError, match="are needed, 10 B are free"):
        copy_cluster(lab.dir, tmp_path / "copy")
    assert list((tmp_path / "copy").iterdir()) == []


def test_a_restore_that_is_killed_leaves_the_cluster_or_is_completed(tmp_path: Path) -> None:
    lab = lab_of(tmp_path / "lab", "old", [])
    other = lab_of(tmp_path / "other", "new", [])

    def killed(stage: Path) -> None:
        copy_cluster(other.dir, stage)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        lab.replace(killed)
    assert lab.record.fsid == "fsid of old"
    assert (lab.dir / "etc/ceph/keyring").read_text() == "old"
    # all was copied, and a part of it moved to its place
    os.rename(lab.dir / "restoring", lab.dir / "restored")
    os.rename(lab.dir / "etc", lab.dir / "gone")
    os.rename(lab.dir / "restored/etc", lab.dir / "etc")
    with lab.alone():
        assert lab.record.fsid == "fsid of new"
        assert begin_of(lab.dir / "nodes/node1/lib/osd/block") == b"new\0"
        assert (lab.dir / "etc/ceph/keyring").read_text() == "new"
    assert not (lab.dir / "restored").exists()


def test_a_new_lab_can_be_restored_after_a_killed_restore(tmp_path: Path) -> None:
    other = lab_of(tmp_path / "other", "new", [])
    (tmp_path / "lab/restoring/etc").mkdir(parents=True)
    (tmp_path / "lab/run").mkdir()
    (tmp_path / "lab/run/lock").touch()
    lab = Lab(tmp_path / "lab", say=lambda _: None)
    lab.replace(lambda stage: copy_cluster(other.dir, stage) and None)
    assert lab.record.fsid == "fsid of new"


class Killed(BaseException):
    """The end of a process that is killed."""


def killed_at(step: int, task: Callable[[], object]) -> bool:
    """Do a task up to its step that renames or removes something; False when it has fewer such steps."""
    steps = itertools.count()

    def dying(function: Callable[..., object]) -> Callable[..., object]:
        def die_or_do(*args: object, **options: object) -> object:
            if next(steps) == step:
                raise Killed
            return function(*args, **options)

        return die_or_do

    with pytest.MonkeyPatch.context() as patch:
        for module, name in ((os, "rename"), (os, "replace"), (shutil, "rmtree"), (Path, "unlink"), (Path, "rmdir")):
            patch.setattr(module, name, dying(getattr(module, name)))
        try:
            task()
        except Killed:
            return True
    return False


@pytest.mark.parametrize("old", [False, True])
def test_a_restore_that_is_killed_at_any_step_can_be_completed_and_removed(
    tmp_path: Path, old: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cbt_plugins.tools.lab.cluster.missing", lambda *_, **__: 1 / 0)  # `up` does nothing more
    other = lab_of(tmp_path / "other", "new", [])

    def fill(stage: Path) -> None:
        stage.mkdir()
        (stage / "etc").mkdir()
        os.rename(stage / "etc", stage / "ssh")  # a step while it copies
        (stage / "ssh").rmdir()
        stage.rmdir()
        copy_cluster(other.dir, stage)

    for step in itertools.count():
        for remedy in ("up", "restore", "wipe"):
            lab = Lab(tmp_path / f"{remedy}-{step}", say=lambda _: None)
            if old:
                lab_of(lab.dir, "old", [])
            killed = killed_at(step, lambda: lab.replace(fill))  # noqa: B023
            copied = not killed or (step > 0 and not (lab.dir / "restoring").exists())
            if remedy == "wipe":
                assert not lab.down(wipe=True) and not lab.dir.exists(), step
                continue
            if remedy == "restore":
                lab.replace(fill)
            else:
                with pytest.raises(ZeroDivisionError):
                    lab.up(Topology())
                if not copied:
                    continue
            assert lab.record.fsid == "fsid of new" and not (lab.dir / "restored").exists(), step
            assert begin_of(lab.dir / "nodes/node1/lib/osd/block") == b"new\0"
        if not killed:
            break
    assert step > 8


def test_a_wipe_that_is_killed_at_any_step_can_be_completed(tmp_path: Path) -> None:
    for step in itertools.count():
        lab = lab_of(tmp_path / str(step), "old", [])
        (lab.dir / "restoring").mkdir()
        killed = killed_at(step, lambda: lab.down(wipe=True))  # noqa: B023
        assert not lab.down(wipe=True) and not list(lab.dir.glob("*")), step
        if not killed:
            break
    assert step > 4


def kept(folder: Path, name: str, release: Release) -> Snapshots:
    snapshots = Snapshots(folder)
    (folder / name).mkdir(parents=True)
    made = f"2026-01-{release.numbers[0]}"
    snapshot = Snapshot(name, folder / name, made, release, 5 << 20, ObjectSample("f", 0, ()))
    (folder / name / "snapshot.json").write_text(json.dumps(snapshot.as_json()))
    lab_of(folder / name / "data", "aged", [])
    return snapshots


def test_snapshots_are_listed_and_removed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kept(tmp_path, "aged", PACIFIC)
    snapshots = kept(tmp_path, "new", REEF)
    (tmp_path / "new").rename(tmp_path / "half.partial")
    kept(tmp_path, "new", REEF)
    assert [one.name for one in snapshots.all(print)] == ["aged", "new"]
    assert main(["lab", "snapshots", "--snapshots", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split() for line in lines] == [
        ["aged", "2026-01-16", "16.2.15", "pacific", "5", "MiB"],
        ["new", "2026-01-18", "18.2.7", "reef", "5", "MiB"],
    ]
    assert main(["lab", "snapshots", "--snapshots", str(tmp_path), "--remove", "aged"]) == 0
    assert [one.name for one in snapshots.all(print)] == ["new"]
    assert main(["lab", "snapshots", "--snapshots", str(tmp_path), "--remove", "aged"]) == 2
    assert "no snapshot aged" in capsys.readouterr().err


def test_what_is_in_use_is_not_removed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    snapshots = kept(tmp_path, "aged", PACIFIC)
    with snapshots.locked("aged"):
        assert main(["lab", "snapshots", "--snapshots", str(tmp_path), "--remove", "aged"]) == 1
    assert "another command uses snapshot aged" in capsys.readouterr().err
    assert snapshots.get("aged")


def test_an_older_release_never_gets_a_newer_snapshot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    snapshots = kept(tmp_path / "store", "aged", REEF)
    monkeypatch.setattr("cbt_plugins.tools.lab.snapshots.release_of", lambda _: PACIFIC)
    lab = lab_of(tmp_path / "lab", "mine", [])
    reason = r"Ceph 18.2.7 reef wrote the snapshot, and an older release \(16.2.15 pacific\)"
    with pytest.raises(LabError, match=reason):
        snapshots.restore("aged", lab, "/")
    assert lab.record.fsid == "fsid of mine"


def test_a_folder_that_nodes_would_not_see_is_refused_before_the_lab_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    snapshots = kept(tmp_path / "store", "aged", REEF)
    monkeypatch.setattr("cbt_plugins.tools.lab.snapshots.release_of", lambda _: REEF)
    monkeypatch.setattr(Lab, "up", lambda *_: 1 / 0)
    lab = lab_of(tmp_path / "lab", "mine", [])
    with pytest.raises(LabError, match=r"--bind /tmp: each node has its own /tmp"):
        snapshots.restore("aged", lab, "/", ["/tmp"])
    assert lab.record.fsid == "fsid of mine"


@pytest.mark.parametrize("name", ["../up", "a b", ".hidden", "x.partial", ""])
def test_names_that_are_no_plain_folder_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(LabError, match="the name of a snapshot may have only"):
        Snapshots(tmp_path).get(name)


class Switched(Lab):
    """A lab that only notes what is done to it."""

    def __init__(self, folder: Path, runs: bool) -> None:
        super().__init__(lab_of(folder, "mine", []).dir, say=lambda _: None)
        self.runs, self.calls, self.shell = runs, [], []  # type: ignore[var-annotated]

    running = property(lambda self: self.runs)  # type: ignore[assignment]
    spaces = property(lambda self: argparse.Namespace(first=lambda _: "first"))  # type: ignore[assignment]

    def up(self, *_: Any) -> Any:
        self.runs = True
        self.calls.append("up")
        return "first"

    def down(self, graceful: bool = False, wipe: bool = False, started: Any = None) -> bool:
        was, self.runs = self.runs, False
        self.calls.append("stop" if graceful else "down")
        return was


@pytest.mark.parametrize("runs", [True, False])
@pytest.mark.parametrize("failing", ["describe", "forget_gateways", "copy_cluster", ""])
def test_a_lab_is_after_a_snapshot_as_it_was_before(
    runs: bool, failing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = "cbt_plugins.tools.lab.snapshots"
    monkeypatch.setattr(f"{module}.describe", lambda _: (REEF, ObjectSample("f", 0, ())))
    monkeypatch.setattr(f"{module}.forget_gateways", lambda _: None)
    if failing:
        monkeypatch.setattr(f"{module}.{failing}", lambda *_: 1 / 0)
    lab = Switched(tmp_path / "lab", runs)
    with pytest.raises(ZeroDivisionError) if failing else contextlib.nullcontext():
        Snapshots(tmp_path / "store").take(lab, "aged")
    assert lab.runs == runs
    if runs and failing in ("describe", "forget_gateways"):
        assert lab.calls == []  # it went on all the time


@pytest.mark.parametrize("ended_in", ["describe", "forget_gateways", "copy_cluster"])
def test_a_lab_that_another_command_ends_during_a_snapshot_is_not_started_again(
    ended_in: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = "cbt_plugins.tools.lab.snapshots"
    lab = Switched(tmp_path / "lab", runs=True)

    def end(*_: Any) -> str:
        lab.runs = False
        if ended_in == "describe":
            raise LabError("not running")
        if ended_in == "copy_cluster":
            shutil.rmtree(lab.dir)
            raise FileNotFoundError
        return ""

    monkeypatch.setattr(f"{module}.describe", lambda _: (REEF, ObjectSample("f", 0, ())))
    monkeypatch.setattr(f"{module}.forget_gateways", lambda _: None)
    monkeypatch.setattr(f"{module}.{ended_in}", end)
    with contextlib.suppress(LabError, FileNotFoundError):
        Snapshots(tmp_path / "store").take(lab, "aged")
    assert "up" not in lab.calls


@pytest.mark.parametrize("fails", [True, False])
def test_gateways_and_beacon_grace_are_restored_when_ceph_does_not_forget(
    fails: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: List[str] = []

    class Running:
        def __init__(self, _: object) -> None:
            gateway = argparse.Namespace(kill=done.append, alive=lambda: False)
            self.running = lambda: {"rgw1": {"rgw": gateway}, "node1": {}}
            self.start_rgw = lambda node: done.append(f"start {node.name}")

        __enter__ = lambda self: self  # noqa: E731
        __exit__ = lambda self, *_: None  # noqa: E731

    def shell(script: str) -> str:
        done.append(script)
        if fails and "versions" in script:
            raise LabError("no reply")
        return "{}"

    module = "cbt_plugins.tools.lab.snapshots"
    monkeypatch.setattr(f"{module}.Daemons", Running)
    monkeypatch.setattr(f"{module}.shell_of", lambda _: shell)
    monkeypatch.setattr(f"{module}.finish", lambda _: None)
    lab = Lab(tmp_path, say=lambda _: None)
    LabRecord(Topology(1, 1, 1, 0), "fsid", {"0": "u"}, "created").save(tmp_path)
    with pytest.raises(LabError, match="no reply") if fails else contextlib.nullcontext():
        forget_gateways(lab)
    grace = "config {} mgr mgr_service_beacon_grace"
    assert [line for line in done[2:] if line != "ceph versions -f json"] == [
        *(["start rgw1"] if fails else []),
        f"ceph {grace.format('rm')}",
    ]


def test_a_snapshot_that_cannot_be_read_hides_no_other_and_can_be_removed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept(tmp_path, "aged", PACIFIC)
    kept(tmp_path, "newer", REEF)
    (tmp_path / "newer" / "snapshot.json").write_text('{"format": 2}')
    assert main(["lab", "snapshots", "--snapshots", str(tmp_path)]) == 0
    shown = capsys.readouterr()
    assert shown.out.split()[0] == "aged" and len(shown.out.splitlines()) == 1
    assert "newer/snapshot.json: this snapshot cannot be read (format 2, this version reads 1)" in shown.err
    assert main(["lab", "snapshots", "--snapshots", str(tmp_path), "--remove", "newer"]) == 0
    assert not (tmp_path / "newer").exists()


def test_a_part_on_another_disk_is_no_obstacle_to_a_wipe(tmp_path: Path) -> None:
    said: List[str] = []
    lab = lab_of(tmp_path / "lab", "old", said)
    (lab.dir / "nodes").rename(tmp_path / "disk")
    (lab.dir / "nodes").symlink_to(tmp_path / "disk")
    lab.down(wipe=True)
    assert not lab.dir.exists() and (tmp_path / "disk" / "node1").is_dir()
    assert said == [f"{lab.dir}/nodes: only the link is removed; the files in {tmp_path}/disk stay"]
