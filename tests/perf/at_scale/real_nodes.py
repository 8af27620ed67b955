"""One command on 20 to 200 nodes of a lab, each a namespace with an sshd of its own; dead ones among them. Needs root.

Of the nodes one in a hundred, or one, refuses the connection, and as many are silent. `others`: until all other nodes
have answered; `end`: until the silent ones were given up. All `ssh` and `sshd` run on this machine: `CPU ms` is what
the machine took for each node.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Dict, List

from inputs.labs import TOOLS

from cbt_plugins.cluster.remote import Remote

from .costs import Curves, Extent

SIZES = (20, 60, 200)
#: of so many nodes one refuses connections and one is silent
DEAD = 100
#: seconds in which everything has ended
LIMIT = 300.0
#: ends the sshd that listens, which is the parent of those with connections
_REFUSE = 'for pid in $(pidof sshd); do kill "$pid"; done'

#: prints address and MAC address of a node
_ADDRESSES = "ip -4 -o addr show eth0 | sed 's/.*inet //; s#/.*##'; cat /sys/class/net/eth0/address"
#: runs on the head
_MEASURE = f"""\
import json, sys
sys.path.insert(0, {str(Path(__file__).parents[1])!r})
from at_scale.real_nodes import on_head
print(json.dumps(on_head(sys.argv[1:])))
"""


def main(extent: Extent) -> None:
    print("  seconds on the head, with connections that are new")
    curves = Curves("nodes", {"refused": ".0f", "silent": ".0f", "others": ".1f", "end": ".1f", "CPU ms": ".0f"})
    for size in extent.sizes(SIZES):
        with tempfile.TemporaryDirectory(dir="/var/tmp") as scratch:
            curves.add(size, **_costs(Path(scratch) / "lab", size))
    curves.end()


def _costs(lab: Path, size: int) -> Dict[str, float]:
    nodes = [f"client{number}" for number in range(1, size + 1)]
    refused, silent = nodes[:: min(DEAD, size)], nodes[1 :: min(DEAD, size)]
    shape = ["--osd-nodes", "1", "--osds-per-node", "1", "--no-rgw", "--clients", str(size), "--no-mux"]
    try:
        subprocess.run([*TOOLS, "lab", "up", "--dir", str(lab), *shape], check=True, stdout=subprocess.DEVNULL)
        for node in refused:
            _on(lab, node, "sh", "-c", _REFUSE)
        for node in silent:
            address, mac = _on(lab, node, "sh", "-c", _ADDRESSES).split()
            # else the head would soon say that there is no such host, as it does where there is no router
            _on(lab, "node0", "ip", "neigh", "replace", address, "lladdr", mac, "nud", "permanent", "dev", "eth0")
            _on(lab, node, "ip", "link", "set", "eth0", "down")
        before = _busy()
        costs: Dict[str, Any] = json.loads(_on(lab, "node0", sys.executable, "-c", _MEASURE, *nodes))
        costs["CPU_ms"] = 1000 * (_busy() - before) / size
    finally:
        subprocess.run([*TOOLS, "lab", "down", "--wipe", "--dir", str(lab)], check=False, capture_output=True)
    named = costs.pop("named")
    assert named == [refused, silent], f"dead: {refused} and {silent}; named: {named}"
    return {"refused": len(refused), "silent": len(silent), **costs}


def _on(lab: Path, node: str, *words: str) -> str:
    line = [*TOOLS, "lab", "exec", "--dir", str(lab), node, "--", *words]
    done = subprocess.run(line, capture_output=True, text=True)
    assert done.returncode == 0, f"{' '.join(words[:4])}: exit status {done.returncode}\n{done.stderr[-2000:]}"
    return done.stdout


def _busy() -> float:
    """Return the CPU seconds of this machine so far, without those in which it had nothing to do."""
    user, nice, system, _, _, *interrupts = map(int, Path("/proc/stat").read_text().splitlines()[0].split()[1:8])
    return (user + nice + system + sum(interrupts)) / os.sysconf("SC_CLK_TCK")


def on_head(nodes: List[str]) -> Dict[str, Any]:
    """Return the seconds of one command, and as `named` the nodes that refused the connection, and the silent ones."""
    remote = Remote.of_cluster({"user": "root", "clients": nodes, "transport": "ssh"}, {})
    begun = time.time()
    answers = remote.run(nodes, "date +%s.%N", LIMIT, check=False)
    end = time.time() - begun
    named = [[node for node in nodes if text in answers[node].stderr] for text in ("refused", "timed out")]
    others = max(float(answer.stdout) for answer in answers.values() if not answer.status) - begun
    return {"others": others, "end": end, "named": named}
