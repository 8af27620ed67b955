"""The stand-in cluster of tests/crash in memory, and connections to it that can die at any of their calls."""

from __future__ import annotations

import copy
import importlib.util
import re
import shlex
import sys
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Set, Tuple, Union

from cbt_plugins.cluster.ceph import Ceph
from cbt_plugins.cluster.remote import Result
from cbt_plugins.cluster.transports.transport_choice import TransportChoice
from cbt_plugins.faults import ClusterAccess, Injector
from cbt_plugins.faults.pool_settings import Part
from cbt_plugins.faults.scene import ClusterLimits
from cbt_plugins.faults.step import Check, Command, Step
from cbt_plugins.plan import Fault, Settings
from cbt_plugins.polling import Clock

_PATH = Path(__file__).resolve().parent / "crash" / "standin_world.py"
_SPEC = importlib.util.spec_from_file_location("standin_world", _PATH)
assert _SPEC is not None and _SPEC.loader is not None
standin = importlib.util.module_from_spec(_SPEC)
sys.modules["standin_world"] = standin
_SPEC.loader.exec_module(standin)

CLUSTER: Dict[str, Any] = {
    "head": "node0",
    "user": "root",
    "clients": ["client1"],
    "osds": ["node1", "node2", "node3", "node4"],
    "mons": ["node0"],
}
#: every rule that a cluster of four hosts breaks when two of them stop
ANYTHING = ("clean", "inactive", "domain", "data", "ok-to-stop", "min-in", "capacity", "flags")
#: what tests of whole runs set, and the faults that they inject
SETTINGS = Settings(
    flags=("noscrub", "noout"),
    config=(("osd", "osd_max_scrubs", "2"), ("osd", "osd_max_backfills", "7")),
    balancer=False,
    autoscaler=False,
    recovery="aggressive",
)
STOP = {n: Fault(f"node{n}", "stop", (f"node{n}",), accept=ANYTHING) for n in (1, 2)}
OUT = Fault("out", "out", ("osd.3",), accept=ANYTHING)


class Died(BaseException):
    """The process that led the run is gone."""


class Connections:
    """Stands where `Remote` does. `die_at`: (call, counted from now; "before" it has an effect, "after", or "late").

    A late one reaches the node when `arrive` is called: the run that sent it is dead by then. So does one whose
    connection is "cut", but of it the run lives on.
    """

    def __init__(self, hosts: int = 4, per_host: int = 1) -> None:
        self.state = standin.new_state(hosts, per_host)
        self.world = standin.World(self.state)
        self.transports = TransportChoice(CLUSTER, {})
        self.first = copy.deepcopy(self.state)
        self.calls = 0
        self.changes = 0  # calls that break something
        self.die_at: Optional[Tuple[int, str]] = None
        self.die_at_change: Optional[Tuple[int, str]] = None
        self.fail: List[str] = []  # commands that have one of these texts in them fail, without effect
        self.lost: List[str] = []  # undo commands with one of these texts never reach their node
        self.silent: List[str] = []  # nodes that nobody can log in on
        self.endpoint_errors: List[str] = []  # lines of the probe of endpoints
        self.fed: List[bytes] = []  # standard inputs
        self.conf = ""  # the head's ceph.conf
        self.endpoints = ""  # at which gateways listen
        self.names: Dict[str, str] = {}  # of nodes that call themselves otherwise
        self.said: List[Tuple[str, str]] = []
        self._marks: Set[Tuple[str, str]] = set()
        self._under_way: List[Tuple[str, str]] = []

    def run(
        self, nodes: Sequence[str], command: str, timeout: float = 60.0, check: bool = True
    ) -> Dict[str, Result]:
        if len(nodes) > 1:
            return {node: self.run([node], command, timeout, check)[node] for node in nodes}
        (node,) = nodes
        if node in self.silent:
            return {node: Result("", "Connection refused", 255)}
        if command == "true":
            return {node: Result("", "", 0)}
        if "radosgw-admin" in command and "user info" in command:
            return {node: Result('{"keys": [{"access_key": "AK", "secret_key": "SK"}]}', "", 0)}
        self.calls += 1
        self.changes += "exec flock" in command
        dies = self.die_at and self.calls == self.die_at[0]
        dies_here = self.die_at_change and "exec flock" in command and self.changes == self.die_at_change[0]
        if dies or dies_here:
            how = str((self.die_at if dies else self.die_at_change)[1])  # type: ignore[index]
            self.die_at = self.die_at_change = None
            if how == "after":
                self.play(node, command)
            elif how in ("late", "cut"):
                self._under_way.append((node, command))
            if how == "cut":
                return {node: Result("", "Connection reset by peer", 255)}
            raise Died
        return {node: self.play(node, command)}

    def feed(self, nodes: Sequence[str], command: str, data: bytes, timeout: float) -> Dict[str, Result]:
        """Every endpoint is as it should be, but for those in `endpoint_errors`."""
        self.fed.append(data)
        return {node: Result("".join(self.endpoint_errors), "", 0) for node in nodes}

    def transport_name(self, node: str) -> str:
        return self.transports.name_of(node)

    def port(self, node: str) -> int:
        return self.transports[node].port(node)

    def arrive(self) -> None:
        """What was under way when its run died comes to its node."""
        for node, command in self._under_way:
            self.play(node, command)
        self._under_way = []

    def differences(self) -> Set[str]:
        """What is not as it was in the beginning."""
        found = set()
        for number, osd in self.state["osds"].items():
            if osd != self.first["osds"][number]:
                found.add(f"osd.{number}")
        found |= {f"flag {f}" for f in set(self.state["flags"]) ^ set(self.first["flags"])}
        now, then = ({tuple(row) for row in s["config"]} for s in (self.state, self.first))
        found |= {f"config {row[2]}" for row in now ^ then}
        found |= {f"autoscale {p}" for p, m in self.state["autoscale"].items() if m != self.first["autoscale"][p]}
        return found | ({"balancer"} if self.state["balancer"] != self.first["balancer"] else set())

    def play(self, node: str, text: str) -> Result:
        name = ""
        if "t=" in text[:20] and any(part in text for part in self.lost):
            return Result("", "No route to host", 255)
        if text.startswith("c="):
            text = shlex.split(text)[0][2:].rstrip(";")
        fenced = re.search(r'exec flock -o -w \S+ "\$d/lock" sh -c (.*) "\$d/(.+)\.undone"$', text, re.S)
        if fenced:
            name = fenced[2]
            text = shlex.split(fenced[1])[0].split("; ", 1)[1]
            if (node, name) in self._marks:
                return Result("", "", 75)
        elif text.startswith("t="):
            marked = re.search(r': > "\$d/([^"]+)\.undone"', text)
            if marked:
                self._marks.add((node, marked[1]))
            text = shlex.split(text)[0][2:].rstrip(";")
        self.said.append((node, text))
        if any(part in text for part in self.fail):
            return Result("", "the stand-in fails", 1)
        if text == "uname -n":
            return Result(self.names.get(node, node) + "\n", "", 0)
        if text.startswith("cat -- "):
            return Result(self.conf, "", 0)
        if text.startswith("python3 -I -c "):
            return Result(self.endpoints, "", 0)
        if text.startswith("daemons="):
            return Result(self.probe(node, text), "", 0)
        out, err, status = "", "", 0
        for line, joint in _lines(text):
            if joint == "&&" and status:
                continue
            also = "2>&1" in line
            words = shlex.split(line.replace("2>/dev/null", "").replace("2>&1", ""))
            if "|" in words:
                answers = [self.world.ceph(question.split())[0] for question in words[2 : words.index("|")]]
                out, status = out + "".join(answers), 0
            elif words[0] == "echo":
                out += " ".join(words[1:]).replace("$?", str(status)) + "\n"
            elif words[0] == "ceph":
                options = ("-c", "-f", "--connect-timeout")
                rest = [w for before, w in zip(words, words[1:]) if w not in options and before not in options]
                answer, err, status = self.world.ceph(rest)
                out += err + "\n" + answer if also else answer
            elif words[0] == "systemctl":
                answer, err, status = self.world.systemctl(node, words[1:])
                out += answer
            elif words[0] != "true":
                raise AssertionError(f"the stand-in does not know {line!r}")
        return Result(out, err, status)

    def probe(self, node: str, text: str) -> str:
        asked = shlex.split(text.splitlines()[0].partition("=")[2])[0].split()
        return "".join(f"unit {name} ceph-osd@{name[4:]}.service active\n" for name in asked)


def _lines(text: str) -> List[Tuple[str, str]]:
    """Simple commands, each with what joins it to the one before it."""
    if text.startswith("s=0; "):  # `run_all`
        text = re.sub(r"s=0; |\( |\s\) \|\| s=1; |\[ \$s = 0 \]", "\n", text)
    parts = re.split(r"(&&|[;\n])\s*", text)
    return [(part.strip(), joint) for part, joint in zip(parts[::2], ["", *parts[1::2]]) if part.strip()]


class Time:
    """A clock that waiting moves on."""

    def __init__(self) -> None:
        self.now = 1000.0

    def clock(self) -> Clock:
        return Clock(now=lambda: self.now, sleep=self._sleep)

    def _sleep(self, seconds: float) -> None:
        self.now += seconds


def injector(
    folder: Path,
    connections: Connections,
    settings: Optional[Settings] = None,
    events: Union[List[Tuple[str, Mapping[str, Any]]], Callable[..., None], None] = None,
    cluster: Optional[Mapping[str, Any]] = None,
    time: Optional[Time] = None,
) -> Injector:
    """An injector on the stand-in; its events go into a list, or to a function."""
    remote: Any = connections
    cluster = cluster or CLUSTER
    ceph = Ceph(remote, cluster)

    def event(name: str, **facts: Any) -> None:
        if callable(events):
            events(name, **facts)
        elif events is not None:
            events.append((name, facts))

    clock = (time or Time()).clock()
    access = ClusterAccess(remote, ceph, cluster, run_id="r1")
    made = Injector(folder, access, event, settings, limits=ClusterLimits(), clock=clock)
    MADE.append(made)
    return made


def mark_of(label: str) -> str:
    """The flag of the stand-in that stands for a thing that a run has made."""
    return "made-" + "".join(c if c.isalnum() else "-" for c in label)


def part(label: str) -> Part:
    """A thing that a run makes for itself, as `set_up` takes it: a flag."""
    flag = mark_of(label)
    does = [Command("node0", f"ceph osd {verb} {flag}", 1.0) for verb in ("set", "unset")]
    place = ("flags_set", {"=": flag})
    gone, there = (Check("node0", "ceph osd dump -f json", ((place, want),)) for want in (None, True))
    return label, lambda: Step(label, "node0", (does[0],), (does[1],), (gone,), (there,))


#: all that were made; a test closes them at its end
MADE: List[Injector] = []
