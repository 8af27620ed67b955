"""Snapshots of a lab: its stores, keys and configuration, shared copy-on-write or copied without their holes."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from dataclasses import dataclass, replace
from operator import not_
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Sequence, Tuple

from cbt_plugins.cluster.object_sample import ObjectSample, Shell
from cbt_plugins.formatting import about_size, first_texts
from cbt_plugins.journal import sync_folder, write_json
from cbt_plugins.programs import cache_dir

from .cluster import Lab
from .daemons import Daemons, await_clean, finish
from .installed_releases import Release, release_of
from .namespaces import refuse_unseen
from .process import wait_for, wait_for_end
from .requirements import LabError, LabUsage, refuse_others_folder
from .topology import HEAD, LabRecord

FORMAT = 1
#: what a restore brings back; logs and a node's temporary files are not part of the cluster
PARTS = ("etc", "ssh", "nodes", "s3.json", "lab.json")
_LEFT = ("log", "tmp")
_FICLONE = 0x40049409


@dataclass(frozen=True)
class Snapshot:
    """One snapshot on disk. `bytes`: what its files occupy, shared or not; `release`: the one that wrote it."""

    name: str
    folder: Path
    taken_at: str
    release: Release
    bytes: int
    sample: ObjectSample

    def as_json(self) -> Dict[str, Any]:
        fields = {"name": self.name, "made": self.taken_at, "release": str(self.release), "bytes": self.bytes}
        return {"format": FORMAT, **fields, "sample": self.sample.as_json()}

    @classmethod
    def load(cls, folder: Path) -> Snapshot:
        path = folder / "snapshot.json"
        try:
            document = json.loads(path.read_text())
            if document["format"] != FORMAT:
                raise ValueError(f"format {document['format']}, this version reads {FORMAT}")
            release = Release.parse(document["release"])
            assert release, "no release"
            sample = ObjectSample.of_json(document["sample"])
            return cls(document["name"], folder, document["made"], release, document["bytes"], sample)
        except (OSError, ValueError, KeyError, TypeError, AssertionError) as error:
            raise LabError(f"{path}: this snapshot cannot be read ({error})") from None


class Snapshots:
    """The snapshots in a folder. One that is being made has the suffix .partial; a killed one keeps it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()

    @classmethod
    def default(cls) -> Path:
        return cache_dir() / "snapshots"

    def all(self, say: Callable[[str], None]) -> List[Snapshot]:
        """Return every complete snapshot, oldest first; `say` gets a line for each that cannot be read."""
        snapshots = []
        for name in self._names():
            try:
                snapshots.append(Snapshot.load(self.folder / name))
            except LabError as error:
                say(str(error))
        return sorted(snapshots, key=lambda snapshot: snapshot.taken_at)

    def get(self, name: str) -> Snapshot:
        return Snapshot.load(self._existing(name))

    def remove(self, name: str) -> None:
        with self.locked(name):
            folder = self._existing(name)
            gone = folder.with_name(f"{name}.partial")
            shutil.rmtree(gone, ignore_errors=True)
            os.rename(folder, gone)
            shutil.rmtree(gone)

    def take(self, lab: Lab, name: str) -> Snapshot:
        """Make a snapshot of a lab; one that runs is stopped for it, and started again unless others end or wipe it."""
        with self.locked(name):
            target = self._of(name)
            if target.exists():
                raise LabUsage(f"{target} exists: choose another name, or `cbt-tools lab snapshots --remove {name}`")
            record, was = lab.record, lab.running
            first = lab.spaces.first("lab") if was else lab.up(record.topology)
            ends = not was
            try:
                release, sample = describe(lab)
                forget_gateways(lab)
                ends = True  # also when it is interrupted
                ends = lab.down(graceful=True, started=first)
                return self._copy(lab, target, release, sample)
            finally:
                if ends:
                    lab.down(started=first)
                if was and ends and LabRecord.load(lab.dir) and not lab.running:
                    lab.up(record.topology)

    def _copy(self, lab: Lab, target: Path, release: Release, sample: ObjectSample) -> Snapshot:
        partial = target.with_name(f"{target.name}.partial")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(mode=0o700)
        with lab.alone():
            if lab.running:
                raise LabError(f"{lab.dir}: another command started the lab; the snapshot was not made")
            lab.step(copy_cluster(lab.dir, partial / "data"))
        taken_at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        snapshot = Snapshot(target.name, target, taken_at, release, occupied(partial), sample)
        write_json(partial / "snapshot.json", snapshot.as_json(), mode=0o600)
        _sync(partial)
        os.rename(partial, target)
        sync_folder(self.folder)
        return snapshot

    def restore(self, name: str, lab: Lab, root: str = "", bind: Sequence[str] = ()) -> None:
        """Make a lab's cluster that of a snapshot, start it and check it; `root` "": with the release of the snapshot.

        What the lab held before is gone. A newer release opens a copy, and completes the upgrade.
        """
        with self.locked(name, fcntl.LOCK_SH):
            snapshot = self.get(name)
            record = LabRecord.load(snapshot.folder / "data")
            if not record:
                raise LabError(f"{snapshot.folder}: lab.json is missing")
            root = root or record.topology.root
            refusal = snapshot.release.refusal(release_of(root))
            if refusal:
                raise LabUsage(f"snapshot {name} cannot be restored here: {refusal}")
            refuse_unseen(bind, root)
            shape = replace(record.topology, root=root, bind=tuple(bind))

            def fill(stage: Path) -> None:
                lab.step(copy_cluster(snapshot.folder / "data", stage))
                LabRecord(shape, record.fsid, record.osd_uuids, record.state).save(stage)

            lab.replace(fill)
        lab.up(shape)
        wrong = snapshot.sample.differences(shell_of(lab))
        if wrong:
            differences = first_texts(wrong, 3, "; ")
            raise LabError(f"the cluster of {lab.dir} differs from snapshot {name}: {differences}")
        lab.step(f"checked: fsid and {len(snapshot.sample.objects)} objects are as in snapshot {name}")

    def _names(self) -> List[str]:
        folders = (path.parent for path in self.folder.glob("*/snapshot.json"))
        return sorted(folder.name for folder in folders if not _partial(folder))

    def _existing(self, name: str) -> Path:
        """Return the folder of a complete snapshot, which may be unreadable; LabUsage where there is none."""
        folder = self._of(name)
        if name not in self._names():
            names = ", ".join(self._names()) or "none"
            raise LabUsage(f"no snapshot {name} in {self.folder}; snapshots in this folder: {names}")
        return folder

    def _of(self, name: str) -> Path:
        if not re.fullmatch(r"[A-Za-z0-9][\w.-]*", name) or _partial(Path(name)):
            text = "the name of a snapshot may have only letters, digits, _, - and ., and must not end in .partial"
            raise LabUsage(f"{name}: {text}")
        return self.folder / name

    @contextlib.contextmanager
    def locked(self, name: str, kind: int = fcntl.LOCK_EX) -> Iterator[None]:
        """Hold the lock of one name: nobody removes what somebody copies."""
        self._of(name)
        refuse_others_folder(self.folder, "--snapshots", "look" if self.folder.exists() else "make")
        with open(self.folder / f".{name}.lock", "a") as lock:
            try:
                fcntl.flock(lock, kind | fcntl.LOCK_NB)
            except BlockingIOError:
                text = f"another command uses snapshot {name} in {self.folder}: wait until that command ends"
                raise LabError(text) from None
            yield


def shell_of(lab: Lab) -> Shell:
    """Return the function that runs a bash script in the head node of a running lab."""

    def shell(script: str) -> str:
        done = lab.exec(HEAD, ["bash", "-c", script], timeout=600)
        if done.returncode:
            raise LabError(f"{HEAD}: {script[:60]}: exit status {done.returncode}: {done.stderr.strip()[-300:]}")
        return str(done.stdout)

    return shell


def describe(lab: Lab) -> Tuple[Release, ObjectSample]:
    """Return the newest release that opened the stores of a clean cluster, and a sample of its objects."""
    with lab.ceph() as ceph:
        await_clean(ceph, len(lab.record.topology.osds), 1, 60)
        reply = ceph.ask("versions")
    versions = json.loads(reply[reply.index("{") :])
    releases = [Release.parse(text) for daemons in ("mon", "mgr", "osd") for text in versions.get(daemons, {})]
    if not releases or None in releases:
        raise LabError(f"`ceph versions` names no release: {reply}")
    return max(release for release in releases if release), ObjectSample.take(shell_of(lab))


def forget_gateways(lab: Lab) -> None:
    """Stop the gateways until Ceph names none: for a minute a copy would show them, too, with their release."""
    shell = shell_of(lab)
    with lab.alone(), Daemons(lab.spaces) as daemons:
        gateways = {node: running["rgw"] for node, running in daemons.running().items() if "rgw" in running}
        try:
            for process in gateways.values():
                process.kill(signal.SIGTERM)
            shell("ceph config set mgr mgr_service_beacon_grace 1")
            named = lambda: json.loads(shell("ceph versions -f json")).get("rgw")  # noqa: E731
            wait_for(named, "Ceph to forget the gateways", 120, met=not_)
        except BaseException:
            wait_for_end(list(gateways.values()), "end of the gateways", 60)
            for node in gateways:
                finish(daemons.start_rgw(lab.nodes[node]))
            raise
        finally:
            shell("ceph config rm mgr mgr_service_beacon_grace")


def copy_cluster(source: Path, target: Path) -> str:
    """Copy what a cluster consists of into a new folder, its files shared where the file system can; return how."""
    begun = time.monotonic()
    target.mkdir()
    nodes = (path for path in source.glob("nodes/*/*") if path.name not in _LEFT)
    parts = [*(source / part for part in PARTS if part != "nodes"), *nodes]
    paths = [str(path.relative_to(source)) for path in parts if path.exists()]
    shared, needed = shares_blocks(source / "lab.json", target), sum(occupied(source / path) for path in paths)
    free = shutil.disk_usage(target).free
    if not shared and needed > free:
        raise LabError(f"{target}: {about_size(needed)} are needed, {about_size(free)} are free")
    argv = ["cp", "-a", "--parents", "--reflink=auto", "--", *paths, str(target)]
    done = subprocess.run(argv, cwd=source, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode:
        raise LabError(done.stderr.strip()[-300:])
    how = "shared copy-on-write" if shared else "copied without holes"
    return f"{about_size(needed)} {how} in {time.monotonic() - begun:.1f} s"


def occupied(path: Path) -> int:
    """Return the bytes that a file, or all files of a folder, have on the disk."""
    if not path.is_dir():
        return path.stat().st_blocks * 512
    return sum(entry.lstat().st_blocks * 512 for entry in path.rglob("*"))


def shares_blocks(file: Path, folder: Path) -> bool:
    """Return whether files of one folder can share their blocks with copies in the other."""
    with open(file, "rb") as source, tempfile.TemporaryFile(dir=folder) as copy:
        try:
            fcntl.ioctl(copy, _FICLONE, source.fileno())
        except OSError:
            return False
    return True


def _sync(folder: Path) -> None:
    """Make sure that a loss of power leaves the files of a folder as they are."""
    for path in folder.rglob("*"):
        if path.is_file() and not path.is_symlink():
            with open(path, "rb") as file:
                os.fsync(file)


def _partial(folder: Path) -> bool:
    return folder.name.endswith(".partial")
