"""The `recovery` profile: the cluster's state once a second, through one connection on one node.

Samples arrive as monitors/recovery.<node>/recovery.jsonl; docs/RECOVERY.md has their keys.
"""

from __future__ import annotations

import contextlib
import logging
import shlex
import subprocess
from pathlib import Path
from typing import Any, List, Mapping, Optional, Union

from pydantic import Field

from cbt_plugins.cluster.remote import Remote
from cbt_plugins.config.validate import Strict, values_of
from cbt_plugins.host import Monitor

from .lifecycle import stop_by_pid_files

logger = logging.getLogger(__name__)

#: seconds that the agent has for its last line, before it is ended by its pid
LAST_LINE = 8.0

# The agent ends when this connection does. It is recorded as the leader of its group all the same, for what keeps the
# connection open although the run is gone. The distribution's Python is the one that has Ceph's bindings.
_SCRIPT = """\
cd {directory}/recovery || exit 1
echo $$ $(sed "s/.*) //" /proc/$$/stat | cut -d" " -f20) >../recovery.pid
python=/usr/bin/python3
[ -x $python ] || python=python3
exec $python agent.py recovery.jsonl {interval:g} {ceph} {conf} {way} >output.txt 2>&1
"""


class RecoveryProfile(Strict):
    """The cluster's state, over and over, while a benchmark runs."""

    # plain numbers as in CBT's own profiles
    interval: float = Field(1.0, ge=0.1, le=60, description="Seconds from one sample to the next.")
    nodes: Union[str, List[str]] = Field("head", description="Where to ask from: the first node of these keys.")
    librados: bool = Field(True, description="False: ask through the ceph command even where librados is.")


class Recovery(Monitor):
    """Keys: `interval` (seconds, default 1), `nodes` (default head; its first node is used), `librados: false`."""

    Section = RecoveryProfile
    DEFAULT_NODES = ("head",)

    def __init__(self, config: Mapping[str, Any], cluster: Mapping[str, Any], common: Mapping[str, Any]) -> None:
        self._profile = values_of(RecoveryProfile, "recovery", config)
        super().__init__(config, cluster, common)
        self.nodes = self.nodes[:1]
        if not self.nodes:
            raise ValueError("monitoring_profiles: recovery: there is no node to ask the cluster from")
        self._remote = Remote.from_host(cluster, common)
        self._connection: Optional[subprocess.Popen[bytes]] = None

    def start(self, directory: str) -> None:
        (node,) = self.nodes
        agent = (Path(__file__).parent / "recovery_agent.py").read_bytes()
        self._remote.put({node: {f"{directory}/recovery/agent.py": agent}})
        conf = shlex.quote(str(self.cluster.get("conf_file") or "/etc/ceph/ceph.conf"))
        script = _SCRIPT.format(
            directory=shlex.quote(directory),
            interval=self._profile.interval,
            ceph=shlex.quote(f"{self.cluster.get('ceph_cmd') or 'ceph'} -c {conf}"),
            conf=conf,
            way="" if self._profile.librados else "ceph",
        )
        self._connection = subprocess.Popen(
            self._remote.transport.ssh(node, f"exec sh -c {shlex.quote(script)}"),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            # Ctrl-C at the terminal reaches the run first, which ends this in order
            start_new_session=True,
        )

    def stop(self, directory: str) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            assert connection.stdin is not None
            if connection.poll() is not None:
                logger.warning(
                    "recovery: the connection to %s has ended by itself, and with it the samples: output.txt says why",
                    self.nodes[0],
                )
            with contextlib.suppress(OSError):
                connection.stdin.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                connection.wait(LAST_LINE)
        stop_by_pid_files(self._remote, self.nodes, directory)
        if connection is not None and connection.poll() is None:
            connection.kill()
            connection.wait()
        self._remote.run(self.nodes, f"rm -f -- {shlex.quote(directory)}/recovery/agent.py", 60, check=False)

