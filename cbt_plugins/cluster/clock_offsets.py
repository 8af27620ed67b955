"""How far the clock of each node is from that of the machine that leads the run."""

from __future__ import annotations

import contextlib
import re
import time
from dataclasses import dataclass
from typing import Dict, Sequence

from cbt_plugins.cluster.remote import Remote, RemoteError
from cbt_plugins.cluster.stream import Stream, login_error
from cbt_plugins.cluster.transports.transport import UNREACHABLE, Result

_ECHO = "python3 -u -c 'import sys, time\nfor _ in sys.stdin: print(\"time\", repr(time.time()), flush=True)'"
#: a line of it; a clock may stand near 1970
_TIME = re.compile(r"time (-?\d+\.\d+)")


@dataclass(frozen=True)
class Offset:
    """Node clock minus our clock, seconds; the truth is within +- `error` (half of the best round trip)."""

    seconds: float
    error: float


def offsets(remote: Remote, nodes: Sequence[str], rounds: int = 7, timeout: float = 30.0) -> Dict[str, Offset]:
    """Measure all nodes: several questions over one connection each, the fastest answer counts (Cristian's algorithm).

    Raises RemoteError when a node does not answer.
    """
    streams = {node: remote.stream([node], _ECHO) for node in dict.fromkeys(nodes)}
    best_offsets: Dict[str, Offset] = {}
    try:
        for node, stream in streams.items():
            best = None
            for _ in range(rounds + 1):  # the first answer includes the start of python3
                sent = time.time()
                stream.send("\n")
                node_time = _next_time(node, stream, timeout)
                received = time.time()
                offset = Offset(node_time - (sent + received) / 2, (received - sent) / 2)
                if best is None or offset.error < best.error:
                    best = offset
            assert best is not None
            best_offsets[node] = best
    finally:
        for stream in streams.values():
            with contextlib.suppress(OSError):
                stream.close()
    return best_offsets


def _next_time(node: str, stream: Stream, timeout: float) -> float:
    """Return the time in the next answer of a node; other lines are of its login. Raises RemoteError."""
    printed = []
    for _, line in stream.lines(timeout):
        if answer := _TIME.fullmatch(line.strip()):
            return float(answer[1])
        printed.append(line)
    message = "; ".join([*stream.messages[-3:], *map(login_error, printed[:1])]) or "no reply"
    raise RemoteError("asking for the time", {node: Result("", message, UNREACHABLE)})
