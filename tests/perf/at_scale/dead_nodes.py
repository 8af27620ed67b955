"""One command, and connections with an answer, on 10 to 1000 nodes, some of which send no answer at all.

One node in a hundred, or one, is silent: its `ssh` (fanout.py) ends at ConnectTimeout, as a real one does whose packets
are dropped. All others answer after CONNECT seconds.
"""

from __future__ import annotations

import contextlib
import re
import time
from typing import Dict, List

from cbt_plugins.cluster.remote import Remote

from .costs import Curves, Extent
from .fanout import CONNECT, check_named, stand_in

SIZES = (10, 100, 1000)
#: of so many nodes one is silent
SILENT = 100
#: seconds in which everything has ended
LIMIT = 600.0


def silent_of(nodes: List[str]) -> List[str]:
    """Return the silent ones among nodes."""
    return [node for node in nodes if node.startswith("silent")]


def main(extent: Extent) -> None:
    print(f"  stand-ins: {CONNECT} s to connect; seconds until all other nodes have answered, and until all have ended")
    formats = {"silent": ".0f", "timeout": ".0f", "run others": ".2f", "run end": ".2f"}
    curves = Curves("nodes", {**formats, "stream others": ".2f", "stream end": ".2f"})
    with stand_in():
        for size in extent.sizes(SIZES):
            names = [f"{'silent' if number % min(SILENT, size) == 1 else 'node'}{number}" for number in range(size)]
            curves.add(size, **_costs(names))
    curves.end()


def _costs(nodes: List[str]) -> Dict[str, float]:
    silent = silent_of(nodes)
    remote = Remote.of_cluster({"user": "root", "clients": nodes, "transport": "ssh"}, {})
    timeout = re.search(r"ConnectTimeout=(\d+)", " ".join(remote.command(nodes[0], "true")))
    assert timeout is not None
    costs = {"silent": float(len(silent)), "timeout": float(timeout[1])}
    begun = time.time()
    answers = remote.run(nodes, "date +%s.%N", LIMIT, check=False)
    costs["run_end"] = time.time() - begun
    check_named(answers, set(silent))
    assert all("timed out" in answers[node].stderr for node in silent), [answers[node] for node in silent]
    costs["run_others"] = max(float(answer.stdout) for answer in answers.values() if not answer.status) - begun
    begun, heard = time.time(), {}
    with contextlib.closing(remote.stream(nodes, "echo here")) as stream:
        for node, _ in stream.lines(LIMIT):
            heard[node] = time.time() - begun
        costs["stream_end"] = time.time() - begun
        assert set(nodes) - set(heard) == set(silent), sorted(set(nodes) - set(heard))[:3]
        assert sum("timed out" in text for text in stream.messages) == min(len(silent), 20), stream.messages
    return {**costs, "stream_others": max(heard.values())}
