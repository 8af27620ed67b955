"""Runs of our benchmarks on the lab, and what is read from their archives."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any, Callable, ClassVar, Dict, List, NamedTuple, Optional

import yaml
from cluster_state import facts
from running_lab import RunningLab
from waiting import wait_for

CLUSTER = {
    "user": "root",
    "head": "node0",
    "clients": ["client1", "client2"],
    "osds": ["node1", "node2", "node3", "node4"],
    "mons": ["node0"],
    "rgws": ["rgw1", "rgw2"],
    "use_existing": True,
    "iterations": 1,
    "conf_file": "/etc/ceph/ceph.conf",
    "tmp_dir": "/var/tmp/cbt",
}
#: a checkout's cbt.py has its own directory for the first one of sys.path, and not the one that it is run in
IN_HOME = 'cd "$0" && PYTHONPATH="$0" exec "$@"'
S3 = {"urls": ["http://rgw1:7480", "http://rgw2:7480"], "user": "cbt"}


class Done(NamedTuple):
    """The end of a run: what it said on both streams is one text."""

    returncode: int
    stderr: str


class Cycle:
    """One YAML file and its archive, run in a node of the lab."""

    #: those that were started since the last test
    started: ClassVar[List[Cycle]] = []
    cluster: ClassVar[Dict[str, Any]] = CLUSTER
    #: the node that leads the run
    leader: ClassVar[str] = "node0"

    def __init__(
        self, lab: RunningLab, folder: Path, profiles: Optional[Dict[str, Any]] = None, **benchmarks: Any
    ) -> None:
        self.lab = lab
        self.archive = folder / "archive"
        self.file = folder / "cycle.yaml"
        config: Dict[str, Any] = {"cluster": self.cluster, "benchmarks": benchmarks}
        if profiles is not None:
            config["monitoring_profiles"] = profiles
        self.file.write_text(yaml.safe_dump(config, sort_keys=False))
        self.log = folder / "log.txt"
        self.seen = 0
        self.process: Optional[subprocess.Popen[bytes]] = None

    def start(self, *program: str) -> subprocess.Popen[bytes]:
        """In the background: our own loop, or `program` (a checkout's cbt.py)."""
        line = [self.lab.python, *(program or ("-m", "cbt_plugins")), "-a", str(self.archive), str(self.file)]
        argv = self.lab.lab.enter(self.leader, ["sh", "-c", IN_HOME, str(self.lab.home), *line])
        with open(self.log, "ab") as file:
            self.process = subprocess.Popen(
                argv, stdout=file, stderr=file, stdin=subprocess.DEVNULL, env=self.lab.lab.environment()
            )
        Cycle.started.append(self)
        return self.process

    def run(self, *program: str) -> Done:
        """To the end, which may take as long as something moves. The log is kept beside the archive."""
        before = self.log.stat().st_size if self.log.exists() else 0
        self.start(*program)
        status = self.ended()
        return Done(status, self.log.read_bytes()[before:].decode(errors="replace"))

    def ended(self) -> int:
        """Wait for the end of what was started; its exit status."""
        process = self.process
        assert process
        wait_for(lambda: process.poll() is not None, f"the end of {self.file}", 240.0, self._written)
        return process.returncode

    def _written(self) -> int:
        """Bytes of archive and log: they grow while a run does anything."""
        sizes = [self.log.stat().st_size]
        for folder, _, names in os.walk(self.archive):
            for name in names:
                with contextlib.suppress(OSError):
                    sizes.append(os.stat(os.path.join(folder, name)).st_size)
        return sum(sizes)

    def send(self, number: int) -> None:
        """Signal the run itself, at once: it is the only child of what entered the node."""
        assert self.process
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        # nsenter stops with the program that it has started, and is to go on before it
        for pid in [*([self.process.pid] if number == signal.SIGCONT else []), *map(int, children)]:
            os.kill(pid, number)

    def await_moment(self, moment: Callable[[], Any], what: str) -> None:
        """Wait, in a run in the background, for something that has to come before its end."""

        def there() -> Any:
            assert self.process
            over = self.process.poll() is not None
            found = moment()
            assert found or not over, f"the run ended before {what}: {self.log.read_text()[-3000:]}"
            return found

        wait_for(there, what, 240.0, self._written)

    def broken_off(self, moment: Callable[[], Any], what: str, number: int = signal.SIGKILL) -> int:
        """Run it until that moment, signal it, and wait for its end; its exit status."""
        self.start()
        self.await_moment(moment, what)
        self.send(number)
        return self.ended()

    def undo(self, *options: str) -> subprocess.CompletedProcess[str]:
        """`cbt-tools undo`, from another shell."""
        line = [self.lab.python, "-m", "cbt_plugins.tools", "undo", str(self.archive), *options]
        return self.lab.exec(self.leader, ["sh", "-c", IN_HOME, str(self.lab.home), *line], timeout=1200)

    def end(self) -> None:
        """End it in any case, in order if it can be."""
        if self.process is None or self.process.poll() is not None:
            return
        for number in (signal.SIGCONT, signal.SIGTERM):
            with contextlib.suppress(OSError):
                self.send(number)
        try:
            self.ended()
        except AssertionError:
            self.send(signal.SIGKILL)
            self.process.wait()

    @property
    def folder(self) -> Path:
        """The one run's folder."""
        (found,) = self.archive.glob("results/*/id-*")
        return found

    def journal(self) -> List[Dict[str, Any]]:
        found = list(self.archive.glob("results/*/id-*/journal.jsonl"))
        return [json.loads(line) for line in found[0].read_text().splitlines()] if found else []

    def left(self) -> List[str]:
        """What is in the run's own folders on the nodes, and these."""
        folders = {line["run_dir"] for line in self.journal() if line["event"] == "invocation"}
        assert folders
        found = {node: self.lab.exec(node, ["find", *folders]).stdout for node in self.lab.nodes}
        return [f"{node}: {path}" for node, text in found.items() for path in text.splitlines()]

    def phases(self) -> Dict[str, Any]:
        """name -> phase.json of the whole phases."""
        files = sorted(self.folder.glob("phases/[0-9][0-9]-*/phase.json"))
        records = [json.loads(f.read_text()) for f in files if ".partial" not in f.parent.name]
        return {r["name"]: r for r in records}

    def summary(self) -> Any:
        return json.loads((self.folder / "summary.json").read_text())

    def heartbeats(self, phase: str) -> List[Dict[str, Any]]:
        """The heartbeats of a phase under way; [] before it."""
        files = list(self.archive.glob(f"results/*/id-*/phases/*-{phase}.running/heartbeat.jsonl"))
        return [json.loads(line) for line in files[0].read_text().split("\n")[:-1]] if files else []

    def job_rows(self, phase: str) -> Dict[str, int]:
        """Requests of each job that the heartbeat of a phase under way has counted."""
        return {job: of["ops"] for line in self.heartbeats(phase) for job, of in line["jobs"].items()}

    def running_rows(self, phase: str) -> int:
        """Requests that the heartbeat of a phase under way has counted."""
        return sum(self.job_rows(phase).values())


def objects(lab: RunningLab, bucket: str) -> Optional[int]:
    """Objects in a bucket, None when there is none."""
    done = lab.exec("node0", ["radosgw-admin", "bucket", "stats", f"--bucket={bucket}"])
    if done.returncode:
        return None
    return int(json.loads(done.stdout)["usage"].get("rgw.main", {}).get("num_objects", 0))


def buckets_of(cycle: Cycle) -> List[str]:
    """Buckets of the cycle's runs that are still there (runs that failed keep theirs, to go on)."""
    journals = cycle.archive.glob("results/*/id-*/journal.jsonl")
    ids = [json.loads(path.read_text().split("\n")[0])["run_id"] for path in journals]
    assert ids
    listed = json.loads(cycle.lab.exec("node0", ["radosgw-admin", "bucket", "list"]).stdout)
    return [name for name in listed if any(run_id in name for run_id in ids)]


def generators(lab: RunningLab) -> List[str]:
    """Processes that make load or count it on the client nodes (each sees only its own)."""
    found: List[str] = []
    for node in ("client1", "client2"):
        found += lab.exec(node, ["pgrep", "-x", "warp|cbt-load|cbt-rows|hsbench"]).stdout.split()
    return found


def hang(lab: RunningLab) -> Callable[[], None]:
    """Freeze a gateway: its connections stay open and silent. Returns what lets it go on."""
    pid = lab.exec("rgw1", ["pgrep", "-x", "radosgw"]).stdout.strip()
    assert pid.isdigit(), pid
    lab.exec("rgw1", ["kill", "-STOP", pid])
    return lambda: lab.exec("rgw1", ["kill", "-CONT", pid])


def free(holder: Any) -> None:
    """End the runs that are under way, undo what they changed, release the cluster, and bring every node back."""
    lab = holder if isinstance(holder, RunningLab) else holder.lab
    if hasattr(holder, "undo_all"):
        holder.undo_all()
    for cycle in Cycle.started:
        cycle.end()
        if list(cycle.archive.rglob("undo.jsonl")):
            cycle.undo()
    for name, node in lab.nodes.items():
        if lab.lab.spaces.first(name) is None:
            lab.lab.boot(name)
        lab.lab.link(name, up=True)
        lab.exec(name, ["pkill", "-CONT", "-x", "radosgw|ceph-mon|ceph-osd"])
        if node.osds:
            lab.lab.start_osds(name)
    for key in facts(lab)["lock"]:
        lab.exec("node0", ["ceph", "config-key", "rm", key])
