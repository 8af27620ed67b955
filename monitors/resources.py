"""The `resources` profile: what daemons, disks and interfaces do on every node, through one connection each.

Samples arrive as monitors/resources.<node>/<node>.jsonl; docs/RESOURCES.md has their form.
"""

from __future__ import annotations

import contextlib
import json
import logging
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Union

from pydantic import Field

from cbt_plugins.cluster.remote import Remote
from cbt_plugins.config.validate import Strict, values_of
from cbt_plugins.host import Monitor

from . import resources_connections
from .lifecycle import stop_by_pid_files

logger = logging.getLogger(__name__)

# The program comes through the connection: a node that was booted again has nothing of the run on its disk.
_RECEIVE = """\
import os
left, text = {size}, b""
while left:
    data = os.read(0, left)
    if not data:
        raise SystemExit(1)
    text, left = text + data, left - len(data)
exec(compile(text, "resources_agent.py", "exec"))
"""

# It ends when its connection does. It leads its group all the same, recorded with its start time, for what keeps the
# connection open although the run is gone.
_SCRIPT = """\
mkdir -p -m 0755 -- {directory}/resources && cd {directory}/resources || exit 1
python=/usr/bin/python3
[ -x $python ] || python=python3
exec $python -c {receive} {node}.jsonl {interval:g} ../resources-{node}.pid 2>>output.txt
"""


class ResourcesProfile(Strict):
    """What daemons, disks and interfaces do on the nodes while a benchmark runs."""

    interval: float = Field(1.0, ge=0.1, le=60, description="Seconds from one sample to the next.")
    nodes: Union[str, List[str]] = Field(
        ["clients", "osds", "mons", "rgws", "mgrs", "head"], description="Keys of `cluster:` that name the nodes."
    )


class Resources(Monitor):
    """Keys: `interval` (seconds, default 1), `nodes` (default clients, osds, mons, rgws, mgrs, head)."""

    Section = ResourcesProfile
    DEFAULT_NODES = ("clients", "osds", "mons", "rgws", "mgrs", "head")

    def __init__(self, config: Mapping[str, Any], cluster: Mapping[str, Any], common: Mapping[str, Any]) -> None:
        self._profile = values_of(ResourcesProfile, "resources", config)
        super().__init__(config, cluster, common)
        self._remote = Remote.from_host(cluster, common)
        self._connections: Optional[subprocess.Popen[bytes]] = None

    def start(self, directory: str) -> None:
        program = (Path(__file__).parent / "resources_agent.py").read_text(encoding="utf-8")
        receive = _RECEIVE.format(size=len(program.encode()))
        lines = {}
        for node in self.nodes:
            script = _SCRIPT.format(
                directory=shlex.quote(directory),
                receive=shlex.quote(receive),
                interval=self._profile.interval,
                # two names may be one machine, and nodes may share a directory
                node=shlex.quote(node),
            )
            lines[node] = self._remote.transport.ssh(node, f"exec sh -c {shlex.quote(script)}")
        self._connections = subprocess.Popen(
            [sys.executable, "-IS", resources_connections.__file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            # Ctrl-C at the terminal reaches the run first, which ends this in order
            start_new_session=True,
        )
        assert self._connections.stdin is not None
        self._connections.stdin.write(json.dumps({"program": program, "nodes": lines}).encode() + b"\n")
        self._connections.stdin.flush()

    def stop(self, directory: str) -> None:
        connections, self._connections = self._connections, None
        if connections is not None:
            self._say(_ended(connections))
        stop_by_pid_files(self._remote, self.nodes, directory)

    def _say(self, lost: Mapping[str, int]) -> None:
        often = [f"{node} ({times} times)" for node, times in lost.items() if times]
        if often:
            logger.warning("resources: the connection has ended by itself, see output.txt there: %s", ", ".join(often))


def _ended(connections: subprocess.Popen[bytes]) -> Dict[str, int]:
    """Close all connections; how often each had ended by itself."""
    out = b""
    try:
        # closes its input, then waits for what it says
        out, _ = connections.communicate(timeout=2 * resources_connections.LAST_LINE)
    except subprocess.TimeoutExpired:
        connections.kill()
        connections.communicate()
    with contextlib.suppress(ValueError):
        return dict(json.loads(out))
    return {}
