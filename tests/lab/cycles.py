"""Runs of our benchmarks on the lab, and what is read from their archives."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional

import yaml
from running_lab import PROJECT, RunningLab

from cbt_plugins.results.rows import STREAMED, Rows

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
IN_PROJECT = 'cd "$0" && PYTHONPATH="$0" exec "$@"'
S3 = {"urls": ["http://rgw1:7480", "http://rgw2:7480"], "user": "cbt"}


class Cycle:
    """One YAML file and its archive, run in node0 of the lab."""

    def __init__(
        self, lab: RunningLab, folder: Path, profiles: Optional[Dict[str, Any]] = None, **benchmarks: Any
    ) -> None:
        self.lab = lab
        self.archive = folder / "archive"
        self.file = folder / "cycle.yaml"
        config: Dict[str, Any] = {"cluster": CLUSTER, "benchmarks": benchmarks}
        if profiles is not None:
            config["monitoring_profiles"] = profiles
        self.file.write_text(yaml.safe_dump(config, sort_keys=False))
        self.log = folder / "log.txt"

    def command(self, *program: str) -> List[str]:
        """Our own loop, or `program` (a checkout's cbt.py)."""
        return [sys.executable, *(program or ("-m", "cbt_plugins")), "-a", str(self.archive), str(self.file)]

    def run(self, *program: str, timeout: float = 400.0) -> subprocess.CompletedProcess[str]:
        """To the end. The log is kept beside the archive."""
        done = self.lab.exec("node0", ["sh", "-c", IN_PROJECT, str(PROJECT), *self.command(*program)], timeout=timeout)
        with open(self.log, "a") as file:
            file.write(done.stdout + done.stderr)
        return done

    def start(self) -> subprocess.Popen[bytes]:
        """In the background."""
        line = [sys.executable, "-m", "cbt_plugins.tools", "lab", "exec", "--dir", str(self.lab.dir), "node0", "--"]
        line += ["sh", "-c", IN_PROJECT, str(PROJECT), *self.command()]
        with open(self.log, "ab") as file:
            return subprocess.Popen(line, stdout=file, stderr=file, stdin=subprocess.DEVNULL, cwd=PROJECT)

    @property
    def folder(self) -> Path:
        """The one run's folder."""
        (found,) = self.archive.glob("results/*/id-*")
        return found

    def journal(self) -> List[Dict[str, Any]]:
        found = list(self.archive.glob("results/*/id-*/journal.jsonl"))
        return [json.loads(line) for line in found[0].read_text().splitlines()] if found else []

    def phases(self) -> Dict[str, Any]:
        """name -> phase.json of the whole phases."""
        files = sorted(self.folder.glob("phases/[0-9][0-9]-*/phase.json"))
        records = [json.loads(f.read_text()) for f in files if ".partial" not in f.parent.name]
        return {r["name"]: r for r in records}

    def summary(self) -> Any:
        return json.loads((self.folder / "summary.json").read_text())

    def pid(self) -> int:
        """The runner's pid in node0."""
        return int(next(r["pid"] for r in reversed(self.journal()) if r["event"] == "invocation"))

    def running_rows(self, phase: str) -> int:
        """Requests that the heartbeat of a phase under way has counted."""
        files = list(self.archive.glob(f"results/*/id-*/phases/*-{phase}.running/heartbeat.jsonl"))
        if not files:
            return 0
        counts: Dict[str, int] = {}
        for line in files[0].read_text().split("\n")[:-1]:
            counts.update({job: c["ops"] for job, c in json.loads(line)["jobs"].items()})
        return sum(counts.values())


def wait_for(condition: Callable[[], Any], what: str, limit: float = 120.0) -> Any:
    """Wait until something is true; the text says what was waited for."""
    until = time.monotonic() + limit
    while time.monotonic() < until:
        value = condition()
        if value:
            return value
        time.sleep(0.2)
    raise AssertionError(f"not within {limit:.0f} s: {what}")


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
        found += lab.exec(node, ["pgrep", "-x", "warp|cbt-load|cbt-rows"]).stdout.split()
    return found


def rows_of(path: Path) -> List[Dict[str, str]]:
    """All rows of a rows file, by column."""
    return [dict(zip(STREAMED, row)) for block in Rows(path).blocks() for row in block]
