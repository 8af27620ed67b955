"""A lab in which faults are made by a process in its head node, and what tests ask it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, List

import leading
from cluster_state import clean, moving
from cycles import IN_HOME
from running_lab import PROJECT, RunningLab
from waiting import end_of, wait_for

#: pools of three copies on four nodes: recovery of a node has somewhere to go, and is under way between the tests
BUSY = ("clean", "min-in")


class Faulty:
    """The lab, and programs that lead a run from its head."""

    #: nodes with a gateway, at the port 7480
    gateways = ("rgw1", "rgw2")

    def __init__(self, lab: RunningLab, base: Path) -> None:
        self.lab, self._base, self._number = lab, base, 0
        self._started: List[subprocess.Popen[str]] = []
        self._cluster: Dict[str, Any] = {"head": "node0", "user": "root"}
        for role in ("osds", "mons", "mgrs", "rgws"):
            names = [node.name for node in lab.nodes.values() if getattr(node, role[:-1] if role != "osds" else role)]
            self._cluster.update({role: names} if names else {})

    def folder(self) -> Path:
        """Of a new run."""
        self._number += 1
        made = self._base / f"run{self._number}"
        made.mkdir()
        return made

    def _line(self, folder: Path, statements: str, settings: Dict[str, Any]) -> List[str]:
        given = [json.dumps(self._cluster), str(folder), json.dumps(settings)]
        program = [self.lab.python, leading.__file__, statements, *given]
        return ["sh", "-c", IN_HOME, str(self.lab.home), *program]

    def run(self, folder: Path, statements: str, **settings: Any) -> List[Dict[str, Any]]:
        """Statements of a run, to their end; what they said."""
        done = self.lab.exec("node0", self._line(folder, statements, settings), timeout=1800)
        assert done.returncode == 0, done.stderr[-3000:]
        return [json.loads(line) for line in done.stdout.splitlines()]

    def start(self, folder: Path, statements: str) -> subprocess.Popen[str]:
        """The same in the background."""
        line = [sys.executable, "-m", "cbt_plugins.tools", "lab", "exec", "--dir", str(self.lab.dir), "node0", "--"]
        line += self._line(folder, statements, {})
        started = subprocess.Popen(line, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True, cwd=PROJECT)
        self._started.append(started)
        return started

    def await_event(self, folder: Path, running: subprocess.Popen[str], event: str) -> None:
        """Wait until the journal of a run in the background has this event."""
        journal = folder / "undo.jsonl"

        def there() -> bool:
            assert running.poll() is None, f"the run ended before {event}"
            return journal.exists() and f'"event": "{event}"' in journal.read_text()

        wait_for(there, event)

    def end_by_kill(self, running: subprocess.Popen[str]) -> None:
        """Kill the process that has the cluster (kill -9), which leads this run."""
        self.lab.exec("node0", ["kill", "-9", str(self.holder()["pid"])])
        with running:  # closes its pipe
            end_of(running)

    def undo(self, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
        line = [self.lab.python, "-m", "cbt_plugins.tools", "undo", *words, str(folder)]
        return self.lab.exec("node0", ["sh", "-c", IN_HOME, str(self.lab.home), *line], timeout=1800)

    def undo_all(self) -> None:
        """End the runs that are under way, and undo what is left of all."""
        for text in self.ceph("config-key dump cbt-plugins/run").values():
            self.lab.exec("node0", ["kill", "-9", str(json.loads(text)["pid"])])
        for running in self._started:
            with running:  # waits, and closes its pipe
                running.kill()
        for journal in self._base.glob("run*/undo.jsonl"):
            self.undo(journal.parent)

    def ceph(self, words: str) -> Any:
        return json.loads(self.lab.exec("node0", ["sh", "-c", f"ceph {words} -f json"]).stdout)

    def holder(self) -> Dict[str, Any]:
        """The one process that has the cluster, as it says itself."""
        (text,) = self.ceph("config-key dump cbt-plugins/run").values()
        said: Dict[str, Any] = json.loads(text)
        return said

    def osd(self, number: int) -> Dict[str, Any]:
        entry: Dict[str, Any] = next(o for o in self.ceph("osd dump")["osds"] if o["osd"] == number)
        return {key: entry[key] for key in ("up", "in", "weight", "uuid")}

    def clean(self) -> None:
        """Wait until all PGs are active+clean."""
        wait_for(lambda: clean(self.lab), "all PGs active+clean", moving=lambda: moving(self.lab))

    def configuration(self) -> Any:
        """All that settings can touch."""
        dump = self.ceph("osd dump")
        modes = {pool["pool_name"]: pool["pg_autoscale_mode"] for pool in dump["pools"]}
        return {
            "config": self.ceph("config dump"),
            "flags": sorted(dump["flags_set"]),
            "autoscale": modes,
            "balancer": self.ceph("balancer status")["active"],
            "keys": self.ceph("config-key dump cbt-plugins"),
        }


def fault(label: str, kind: str, target: str, *accept: str, **options: Any) -> str:
    return f"Fault({label!r}, {kind!r}, ({target!r},), options={options!r}, accept={(*BUSY, *accept)!r})"


class PowerController:
    """What a BMC is to a node: commands that ask for power off, power on or a reboot through a file."""

    def __init__(self, faulty: Faulty) -> None:
        self._lab, folder = faulty.lab.lab, faulty.folder()
        self._request = folder / "request"
        there = f"[ -e {self._request} ]"
        script = f'echo "$1" > {folder}/new && mv {folder}/new {self._request}; while {there}; do sleep 0.1; done'
        self._program = f"sh -c '{script}' sh"
        self.carried_out: List[str] = []

    def command(self, verb: str, node: str) -> str:
        """Return the command that asks for "off", "on" or "reboot", and waits."""
        return f"{self._program} {verb}:{node}"

    def carry_out(self) -> None:
        """Do what a command is waiting for, if one is."""
        if self._request.exists():
            verb, _, node = self._request.read_text().strip().partition(":")
            if verb in ("off", "reboot"):
                self._lab.crash(node)
            if verb in ("on", "reboot"):
                self._lab.boot(node)
            self.carried_out.append(verb)
            self._request.unlink()
