"""Campaigns and searches that are killed with kill -9, alone and together with their run: the same command goes on.

What a power cut of the leading machine does. About ten minutes:

    CBT_PLUGINS_LONG=1 ./run test tests/lab/test_campaign_killed.py
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional

import pytest
import yaml
from cycles import CLUSTER, S3
from running_lab import PROJECT, RunningLab
from test_prepared import state
from waiting import end_of, wait_for

pytestmark = [pytest.mark.lab, pytest.mark.long]

#: shares of the lines that the journals of a cycle get
MOMENTS = [0.15, 0.05, 0.25, 0.35, 0.45, 0.55, 0.65, 0.75, 0.85, 0.95]
#: whom the kill hits, from moment to moment
VICTIMS = ("run", "leader", "both")
POOLS = {"data": {"replicas": 2, "pg_num": 4}, "index": {"replicas": 3, "pg_num": 4}}
SLOW = {"config": {"osd": {"debug_osd": "5/5"}}}
RUN = {
    "s3": {**S3, "user": "bench"},
    "rgw": {"make_user": True, "placement": {"data": "data", "index": "index", "extra": "index"}},
    "pools": POOLS,
    "engine": "cbt-load",
    "workers": 4,
    "settings": SLOW,
    "cycle": {"phases": [{"fill": {"objects": 50}}, {"hybrid": {"duration": "3s"}}]},
}


class Leader:
    """A campaign or a search, with its folder; it runs on the machine, its cycles in node0 of the lab."""

    def __init__(self, lab: RunningLab, folder: Path, verb: str) -> None:
        self.folder, self.log, self.file = folder / "work", folder / "log.txt", folder / "my.yaml"
        words = [sys.executable, "-m", "cbt_plugins.tools", "lab", "exec", "--dir", str(lab.dir), "node0", "--"]
        through = shlex.join(words)
        data: Dict[str, Any] = {"cluster": CLUSTER, "benchmarks": {"warp": RUN}}
        tool = [sys.executable, "-m", "cbt_plugins.tools", verb, "run", str(self.file)]
        if verb == "campaign":
            data["campaign"] = {"arms": {"a": {}, "b": {}}, "blocks": 4, "through": through}
            self.words, self.trials = [*tool, str(self.folder)], "trials/01-1-*"
        else:
            self.words, self.trials = [*tool, "-a", str(self.folder)], "blocks/0001/*"
            keys = {"deploy": "true", "metric": "hybrid.total.obj_per_s", "through": through}
            data["bisect"] = {"repo": str(repository(folder)), "good": "HEAD~2", "bad": "HEAD", **keys}
        self.file.write_text(yaml.safe_dump(data, sort_keys=False))
        self.process: Optional[subprocess.Popen[bytes]] = None

    def start(self) -> None:
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(self.words, cwd=PROJECT, stdout=log, stderr=log, stdin=subprocess.DEVNULL)

    def await_moment(self, moment: Callable[[], Any], what: str) -> None:
        process = self.process
        assert process

        def reached() -> Any:
            value = moment()
            assert value or process.poll() is None, f"ended before {what}: {self.log.read_text()[-3000:]}"
            return value

        wait_for(reached, what, 240.0, lambda: (self.lines(), self.log.stat().st_size))

    def lines(self) -> int:
        """Count the lines of the journals of the first trial that is under way."""
        names = ("journal.jsonl", "undo.jsonl", "events.jsonl")
        count = 0
        for path in [p for name in names for p in self.folder.glob(f"{self.trials}/archive/results/*/*/{name}")]:
            with contextlib.suppress(FileNotFoundError):  # a trial that is set aside gets another name
                count += path.read_bytes().count(b"\n") if ".partial-" not in str(path) else 0
        return count

    def marks(self) -> List[Path]:
        """Return the marks of the first trials that have gone well."""
        found = self.folder.glob(f"{self.trials}/trial.json")
        return [path for path in found if '"reason": null' in path.read_text()]

    def kill(self, victim: str) -> None:
        """Kill with -9: the leader, the run with all that is between, or both at once."""
        assert self.process
        run = [] if victim == "leader" else [pid for pid in offspring(self.folder) if pid != self.process.pid]
        for pid in [*([self.process.pid] if victim != "run" else []), *run]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if victim != "run":
            self.process.wait()

    def stop(self) -> None:
        """End it as Ctrl-C does."""
        assert self.process
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        end_of(self.process, moving=lambda: self.log.stat().st_size)


def buckets_of(lab: RunningLab) -> List[str]:
    return sorted(json.loads(lab.exec("node0", ["radosgw-admin", "bucket", "list"]).stdout))


def repository(folder: Path) -> Path:
    """Make a repository of three commits."""
    repo = folder / "repo"
    git = ["git", "-C", str(repo), "-c", "user.name=x", "-c", "user.email=x@example.com"]
    subprocess.run(["git", "init", "-q", str(repo)], check=True)
    for number in range(3):
        subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", f"change {number}"], check=True)
    return repo


def offspring(folder: Path) -> List[int]:
    """Return the processes that have the archive of a trial of a folder in their command line, also those in nodes."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = (entry / "cmdline").read_bytes().split(b"\0")
            if any(word.startswith(f"{folder}/".encode()) and word.endswith(b"/archive") for word in words):
                found.append(int(entry.name))
    return found


@pytest.mark.parametrize("verb", ["campaign", "bisect"])
def test_killed_at_ten_moments_it_goes_on_and_nothing_stays(lab: RunningLab, tmp_path: Path, verb: str) -> None:
    before, buckets = state(lab), buckets_of(lab)
    whole = Leader(lab, tmp_path, verb)
    whole.start()
    try:
        whole.await_moment(whole.marks, "the first trial")
        lines = whole.lines()
    finally:
        whole.stop()
    assert state(lab) == before, "after Ctrl-C"
    for number, share in enumerate(MOMENTS):
        folder = tmp_path / f"{number}"
        folder.mkdir()
        leader, victim = Leader(lab, folder, verb), VICTIMS[number % len(VICTIMS)]
        where = f"{victim} killed at {share:.0%} of {lines} lines"
        try:
            leader.start()
            leader.await_moment(lambda now=leader, at=share * lines: now.lines() >= at or now.marks(), where)
            leader.kill(victim)
            if victim != "run":
                leader.start()
            leader.await_moment(leader.marks, f"a whole trial after the {where}")
        finally:
            leader.stop()
        text = leader.log.read_text()
        assert state(lab) == before and buckets_of(lab) == buckets, f"{where}: {text[-2000:]}"
        assert "Traceback" not in text, where
