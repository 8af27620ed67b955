"""What a command left on one node, and the error when it failed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Mapping

#: exit status of a node that could not be reached or did not answer in time (ssh's own convention)
UNREACHABLE = 255


@dataclass(frozen=True)
class Result:
    """Output and exit status of a command on one node."""

    stdout: str
    stderr: str
    status: int


class RemoteError(Exception):
    """A command failed on at least one node; `results` has all nodes, the good ones too."""

    def __init__(self, what: str, results: Mapping[str, Result]) -> None:
        self.results = results
        bad = {node: r for node, r in results.items() if r.status}
        rows = []
        for node, r in sorted(bad.items()):
            tail = " | ".join(r.stderr.strip().splitlines()[-3:]) or "no message"
            rows.append(f"{node}: exit status {r.status}: {tail}")
        super().__init__(f"{what} failed on {len(bad)} of {len(results)} nodes: " + "; ".join(rows))
