"""Commands, connections that stay open, and files of 10 to 1000 nodes, one in a hundred of them dead.

An `ssh` in PATH stands for nodes: each connection takes CONNECT seconds, a dead node refuses it, and nothing runs
there but what the command line says. `ssh` itself is measured on REAL addresses of one sshd on this machine. `again`: a
command over connections that `common.pdsh_ssh_args` keeps open (ControlMaster).
"""

from __future__ import annotations

import contextlib
import getpass
import json
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Mapping, Set, Tuple

from cbt_plugins.cluster.remote import Remote
from cbt_plugins.cluster.stream import Stream
from cbt_plugins.cluster.transports.transport import Result
from cbt_plugins.monitors import agent_connections
from cbt_plugins.monitors.lifecycle import fetch_files

from .costs import Curves, Extent, cpu_of

sys.path.append(str(Path(__file__).parents[2]))
from own_sshd import own_sshd, sshd_program

SIZES = (10, 100, 1000)
REAL = (20, 60, 200)
#: seconds until a node answers: a login that asks a name server
CONNECT = 0.3
#: of so many nodes one is dead
DEAD = 100
_SSH = f"""\
#!/bin/sh
for command in "$@"; do :; done
case "$*" in
*dead*)
  echo "ssh: connect to host dead port 22: Connection refused" >&2
  exit 255 ;;
*silent*)
  options="$*" seconds=${{options#*ConnectTimeout=}}
  sleep "${{seconds%% *}}"
  echo "ssh: connect to host silent port 22: Connection timed out" >&2
  exit 255 ;;
esac
sleep {CONNECT}
exec /bin/sh -c "$command"
"""


def nodes_of(size: int) -> List[str]:
    """Return the names of nodes; one in DEAD is dead."""
    return [f"{'dead' if number % DEAD == DEAD - 1 else 'node'}{number}" for number in range(size)]


@contextlib.contextmanager
def stand_in() -> Iterator[Path]:
    """Give a folder that has the nodes' `ssh`, which is the first in PATH while the context is open."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "ssh").write_text(_SSH)
        (folder / "ssh").chmod(0o755)
        before = os.environ["PATH"]
        os.environ["PATH"] = f"{folder}:{before}"
        try:
            yield folder
        finally:
            os.environ["PATH"] = before


def measured(action: Callable[[], Any]) -> Tuple[Any, float, float]:
    """Return the result, the seconds that it took, and those of CPU time of this process alone."""
    begun, before = time.monotonic(), time.process_time()
    result = action()
    return result, time.monotonic() - begun, time.process_time() - before


def main(extent: Extent) -> None:
    print(f"  stand-ins: {CONNECT} s to connect, one of {DEAD} nodes refuses it; seconds, and CPU seconds of us")
    columns = ["run", "run cpu", "feed", "feed cpu", "stream", "stream cpu", "fetch", "fetch cpu", "watch", "end"]
    formats = {**dict.fromkeys(columns, ".2f"), "watch MB": ".0f", "watch files": ".0f"}
    curves = Curves("nodes", formats)
    with stand_in() as folder:
        for size in extent.sizes(SIZES):
            curves.add(size, **_of_nodes(nodes_of(size), folder))
    curves.end()
    _real(extent)


def _of_nodes(nodes: List[str], folder: Path) -> Dict[str, float]:
    remote = Remote.of_cluster({"user": "root", "clients": nodes}, {})
    dead: Set[str] = {node for node in nodes if node.startswith("dead")}
    costs: Dict[str, float] = {}
    answers, costs["run"], costs["run_cpu"] = measured(lambda: remote.run(nodes, "echo here", check=False))
    check_named(answers, dead)
    answers, costs["feed"], costs["feed_cpu"] = measured(lambda: remote.feed(nodes, "cat", b"x", 60))
    check_named(answers, dead)

    def talk() -> Dict[str, str]:
        with contextlib.closing(remote.stream(nodes, "read line; echo $line")) as stream:
            stream.send("hello\n")
            return dict(stream.lines(60))

    heard, costs["stream"], costs["stream_cpu"] = measured(talk)
    assert set(nodes) - set(heard) == dead, sorted(set(nodes) - set(heard))[:3]
    files = folder / f"files{len(nodes)}"
    files.mkdir(mode=0o700)
    (files / "agent.jsonl").write_text("x" * 4096)
    into = folder / f"into{len(nodes)}"
    living = [node for node in nodes if node not in dead]
    _, costs["fetch"], costs["fetch_cpu"] = measured(lambda: fetch_files(remote, living, str(files), into, "root"))
    assert len(list(into.glob("agent.jsonl.*"))) == len(living), "a file was not fetched"
    shutil.rmtree(into)
    return {**costs, **_watched(remote, living)}


def check_named(answers: Mapping[str, Result], dead: Set[str]) -> None:
    """See that exactly the dead nodes are named."""
    named = {node for node, answer in answers.items() if answer.status}
    assert named == dead, f"{len(named - dead)} nodes taken for dead, {len(dead - named)} dead ones not named"


def _watched(remote: Remote, nodes: List[str]) -> Dict[str, float]:
    """Keep a connection to each node, as a monitor does; return what that takes."""
    by_node = {n: {"command": remote.command(n, "exec cat >/dev/null"), "lost": [255]} for n in nodes}
    line = [sys.executable, "-IS", agent_connections.__file__]
    begun = time.monotonic()
    process = subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    text = json.dumps({"name": "x", "output": "x", "nodes": by_node, "program": "pass\n" * 1000})
    process.stdin.write(text.encode() + b"\n")
    process.stdin.flush()
    while len(_children(process.pid)) < len(nodes):
        assert process.poll() is None, "the keeper of the connections has ended"
        time.sleep(0.02)
    costs = {"watch": time.monotonic() - begun}
    status = Path(f"/proc/{process.pid}/status").read_text()
    peak = re.search(r"VmHWM:\s+(\d+)", status)
    costs["watch_MB"] = int(peak[1]) / 1024 if peak else 0.0
    costs["watch_files"] = float(len(list(Path(f"/proc/{process.pid}/fd").iterdir())))
    begun = time.monotonic()
    out, _ = process.communicate()
    costs["end"] = time.monotonic() - begun
    assert not any(json.loads(out)["lost"].values()), "connections were lost"
    return costs


def _children(pid: int) -> List[str]:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


def _real(extent: Extent) -> None:
    """Measure ssh itself: one sshd of ours, at many addresses of this machine."""
    program = sshd_program()
    if program is None:
        print("  no sshd here")
        return
    print("  real ssh to one sshd on this machine; seconds, and milliseconds of CPU time for each node")
    columns = ("run", "ssh ms", "sshd ms", "again", "again ms")
    curves = Curves("nodes", {**dict.fromkeys(columns, ".1f"), "pss MB": ".2f"})
    with tempfile.TemporaryDirectory() as name, own_sshd(Path(name), program, "0.0.0.0") as (words, sshd):
        common = {"pdsh_ssh_args": f"{' '.join(words)} -l%u %h"}
        for size in extent.sizes(REAL):
            nodes = [f"127.0.1.{number}" for number in range(1, size + 1)]
            curves.add(size, **_over_ssh(nodes, common, sshd), **_again(nodes, [*words, "-l%u", "%h"], Path(name)))
    curves.end()


def _over_ssh(nodes: List[str], common: Dict[str, str], sshd: int) -> Dict[str, float]:
    cluster = {"user": getpass.getuser(), "clients": nodes, "transport": "ssh"}  # else few nodes by pdsh
    remote = Remote.of_cluster(cluster, common)
    before, server = _cpu_of_children(), cpu_of(sshd, children=True)
    answers, seconds, _ = measured(lambda: remote.run(nodes, "true", check=False))
    assert not any(answer.status for answer in answers.values()), next(a for a in answers.values() if a.status)
    costs = {"run": seconds, "ssh_ms": 1000 * (_cpu_of_children() - before) / len(nodes)}
    time.sleep(1)  # sshd's own children end behind the connection
    costs["sshd_ms"] = 1000 * (cpu_of(sshd, children=True) - server) / len(nodes)
    with contextlib.closing(remote.stream(nodes, "echo here; exec cat >/dev/null")) as stream:
        heard: Dict[str, str] = {}
        while len(heard) < len(nodes):
            heard.update(stream.lines(0.2))
        costs["pss_MB"] = _memory(stream) / len(nodes)
    return costs


def _again(nodes: List[str], words: List[str], folder: Path) -> Dict[str, float]:
    """Return the cost of a command over connections that are open already, as `pdsh_ssh_args` may ask for them."""
    share = ["-oControlMaster=auto", f"-oControlPath={folder}/%C", "-oControlPersist=60"]
    cluster = {"user": getpass.getuser(), "clients": nodes, "transport": "ssh"}
    remote = Remote.of_cluster(cluster, {"pdsh_ssh_args": " ".join([*share, *words])})
    try:
        remote.run(nodes, "true")
        before = _cpu_of_children()
        _, seconds, _ = measured(lambda: remote.run(nodes, "true"))
        return {"again": seconds, "again_ms": 1000 * (_cpu_of_children() - before) / len(nodes)}
    finally:
        for node in nodes:
            subprocess.run(["ssh", *share, *words[:-2], "-Oexit", node], capture_output=True, check=False)


def _memory(stream: Stream) -> float:
    """Return the MB of the processes of a stream, what they share divided among them."""
    total = 0
    for process in stream.processes:
        match = re.search(r"Pss:\s+(\d+)", Path(f"/proc/{process.pid}/smaps_rollup").read_text())
        total += int(match[1]) if match else 0
    return total / 1024


def _cpu_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
