"""The monitor `resources` of 10, 100 and 1000 nodes: start, stop, collect, and the bytes that it leaves in the archive.

An `ssh` in PATH stands for nodes: each has a folder of its own, and our shell programs run as on real nodes, all on
this machine. In the place of the agent runs a program that writes the lines of SECONDS at once, of a node with OSDS
OSDs after tests/data/resources, and then waits for its end.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import tempfile
from pathlib import Path
from typing import Any, Dict, Iterator, List

from cbt_plugins.cluster.remote import Remote
from cbt_plugins.cluster.shell_programs import make_own
from cbt_plugins.monitors.lifecycle import fetch_files
from cbt_plugins.monitors.resources import Resources
from cbt_plugins.monitors.resources_agent import COARSER, FINE
from cbt_plugins.polling import wait_until

from .costs import Curves, Extent, cpu_of
from .fanout import CONNECT, measured

SIZES = (10, 100, 1000)
OSDS, SECONDS, HOURS = 10, 60, 72
#: of a run of HOURS: one each second at first, later fewer
LINES = FINE + (HOURS * 3600 - FINE) / COARSER
RECORDED = Path(__file__).parents[2] / "data" / "resources" / "lab" / "resources.node1" / "node1.jsonl"
#: in a path on the nodes: stands for the name of the node
NODE = "NODE"
_SSH = f"""\
#!/bin/bash
node=${{*: -2:1}} command=${{!#}}
command=${{command//\\/{NODE}\\//\\/${{node#*@}}\\/}}
command=${{command//\\/usr\\/bin\\/python3/$AGENT}}
sleep {CONNECT}
exec /bin/sh -c "$command"
"""
_AGENT = """\
#!/bin/sh
cat "$SAMPLES"
exec cat >/dev/null
"""


def main(extent: Extent) -> None:
    print(f"  {OSDS} OSDs on each node, {SECONDS} s of samples; seconds; CPU seconds of us and of the process that has")
    print("  the connections, its open files; bytes in the archive")
    formats = {"start": ".2f", "stop": ".2f", "collect": ".2f", "cpu": ".2f", "MB here": ".0f", "files": ".0f"}
    curves = Curves("nodes", {**formats, "archive MB": ".2f", "KB a node": ".1f", f"{HOURS} h GB": ".1f"})
    for size in extent.sizes(SIZES):
        with tempfile.TemporaryDirectory() as scratch, _stand_in(Path(scratch)) as samples:
            curves.add(size, **_costs(Path(scratch), [f"node{number}" for number in range(size)], samples))
    curves.end()


def samples_of_node(osds: int, seconds: int) -> str:
    """Return what the agent writes for so many seconds on a node of so many OSDs, each on a disk of its own."""
    about, names, *samples = (json.loads(line) for line in RECORDED.read_text().splitlines())
    samples = [sample for sample in samples if "s" in sample]
    described = names["names"]
    agent, osd = described["d"]["0"], described["d"]["1"]
    described["d"] = {"0": agent, **{str(n): {**osd, "id": str(n)} for n in _places(osds)}}
    described["k"] = {str(n - 1): {**described["k"]["0"], "name": f"sd{n}"} for n in _places(osds)}
    lines: List[Dict[str, Any]] = [about, names]
    for number in range(seconds):
        sample = samples[number % len(samples)]
        daemons = [[n, *sample["d"][1 + n % 2][1:]] for n in _places(osds)]
        disks = [[n - 1, *sample["k"][0][1:]] for n in _places(osds)]
        t = round(samples[0]["t"] + number, 3)
        lines.append({**sample, "t": t, "d": [sample["d"][0], *daemons], "k": disks})
    return "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)


def _places(osds: int) -> range:
    return range(1, osds + 1)


@contextlib.contextmanager
def _stand_in(folder: Path) -> Iterator[int]:
    """Put the nodes' `ssh` first in PATH while the context is open; give the bytes of the samples of a node."""
    for name, text in {"ssh": _SSH, "agent": _AGENT}.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    samples = folder / "samples.jsonl"
    samples.write_text(samples_of_node(OSDS, SECONDS))
    before = os.environ.copy()
    path = f"{folder}:{before['PATH']}"
    os.environ.update(PATH=path, AGENT=str(folder / "agent"), SAMPLES=str(samples))
    try:
        yield samples.stat().st_size
    finally:
        os.environ.clear()
        os.environ.update(before)


def _costs(folder: Path, nodes: List[str], samples: int) -> Dict[str, float]:
    cluster = {"user": "root", "osds": nodes, "transport": "ssh"}
    remote, monitor = Remote.of_cluster(cluster, {}), Resources({"nodes": ["osds"]}, cluster, {})
    files = [folder / node / "monitors-1" / "resources" / f"{node}.jsonl" for node in nodes]
    for node in nodes:
        (folder / node).mkdir(mode=0o700)
    directory, into = f"{folder}/{NODE}/monitors-1", folder / "archive"
    remote.run(nodes, make_own(directory), 600)

    def start() -> None:
        monitor.start(directory)
        wait_until(lambda: all(file.exists() and file.stat().st_size >= samples for file in files), 600, 0.05)

    costs: Dict[str, float] = {}
    used = 0.0
    _, costs["start"], cpu = measured(start)
    used += cpu
    process = monitor.connections_process
    assert process is not None
    costs["files"] = float(len(os.listdir(f"/proc/{process.pid}/fd")))
    used += cpu_of(process.pid)
    _, costs["stop"], cpu = measured(lambda: monitor.stop(directory))
    used += cpu
    paths, costs["collect"], cpu = measured(lambda: fetch_files(remote, nodes, directory, into, "root"))
    assert len(paths) == len(nodes), "files of a node are missing"
    size = sum(path.stat().st_size for path in into.rglob("*") if path.is_file())
    assert size >= samples * len(nodes), "samples are missing"
    costs.update(cpu=used + cpu, MB_here=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
    each = size / len(nodes)
    costs.update({"archive_MB": size / 1e6, "KB_a_node": each / 1e3})
    return {**costs, f"{HOURS}_h_GB": size / SECONDS * LINES / 1e9}

