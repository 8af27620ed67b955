"""Monitors that are a program on each of their nodes: started, reconnected and ended in one way."""

from __future__ import annotations

import contextlib
import json
import logging
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar, Dict, List, Mapping, Optional, Sequence, Tuple, Type, Union

from cbt_plugins.cluster.remote import Remote
from cbt_plugins.cluster.shell_programs import script_command
from cbt_plugins.cluster.stream import NodeProgram
from cbt_plugins.config.key_errors import Strict, values_of
from cbt_plugins.inventory import nodes_of
from cbt_plugins.journal import sync_files
from cbt_plugins.monitor import Monitor

from . import agent_connections
from .lifecycle import stop_by_pid_files

_START = Path(__file__).parent / "start_agent.sh"
logger = logging.getLogger(__name__)


class AgentMonitor(Monitor):
    """A monitor whose samples are the output of a program on its nodes: DIRECTORY/NAME/<name_on(node)>.jsonl.

    Of a node that may end with its files, the samples go into the archive as they come. The program comes through the
    connection: a node that was booted again has nothing of the run on its disk. It ends when its standard input closes.
    A process beside this one keeps the connections, and makes lost ones anew.
    """

    RECONNECTS = True
    NAME: ClassVar[str]
    Section: ClassVar[Type[Strict]]  # the keys of its profile
    AGENT: ClassVar[Path]  # standard library only, Python 3.6
    PARTS: ClassVar[Tuple[ModuleType, ...]] = ()  # as for NodeProgram

    def __init__(self, config: Mapping[str, Any], cluster: Mapping[str, Any], common: Mapping[str, Any]) -> None:
        self._profile: Any = values_of(self.Section, self.NAME, config)
        super().__init__(config, cluster, common)
        self._remote = Remote.of_cluster(cluster, common)
        self.connections_process: Optional[subprocess.Popen[bytes]] = None

    def argument(self) -> str:
        """Return the program's argument."""
        raise NotImplementedError

    def name_on(self, node: str) -> str:
        """Return the name of a node's file; several nodes may share a directory."""
        return node

    def start(self, directory: str) -> None:
        agent = NodeProgram(self.AGENT, self.PARTS)
        words = agent.words(self.argument())
        connections_by_node = {}
        for node in self.nodes:
            files = self._files_here(node)
            to, name = "connection" if files else "files", self.name_on(node)
            command = script_command(_START, f"{directory}/{self.NAME}", name, to, *words)
            line, lost = self._remote.command(node, f"exec {command}"), self._remote.lost_statuses(node)
            connections_by_node[node] = {"command": line, "lost": lost, "files": files}
        self.connections_process = subprocess.Popen(
            [sys.executable, "-IS", agent_connections.__file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            # Ctrl-C at the terminal reaches the run first, which ends this in order
            start_new_session=True,
        )
        assert self.connections_process.stdin is not None
        wanted = {"name": self.NAME, "output": f"{directory}/{self.NAME}/output.txt", "nodes": connections_by_node}
        self.connections_process.stdin.write(json.dumps({**wanted, "program": agent.text}).encode() + b"\n")
        self.connections_process.stdin.flush()

    def _files_here(self, node: str) -> List[str]:
        """Return the files of the archive for samples and errors of a node that may end with its files; else []."""
        if self.archive_folder is None or self._remote.keeps_files(node):
            return []
        folder = self.archive_folder / f"{self.NAME}.{node}"
        folder.mkdir(parents=True, exist_ok=True)
        return [str(folder / f"{self.name_on(node)}.jsonl"), str(folder / "output.txt")]

    def stop(self, directory: str) -> None:
        process, self.connections_process = self.connections_process, None
        ended = _ended(process) if process else {}
        if not ended and process:
            text = "%s: the process with its connections ended before the monitor (exit status %d): samples are missing"
            logger.warning(text, self.NAME, process.returncode)
        failed = ended.get("failed", {})
        for node, why in failed.items():
            logger.warning("%s: its agent does not run on %s: %s", self.NAME, node, why)
        times = {node: n for node, n in ended.get("lost", {}).items() if n and node not in failed}
        lost = [f"{node} ({n} times)" for node, n in times.items()]
        if lost:
            logger.warning("%s: lost connections to %s; see output.txt of the node", self.NAME, ", ".join(lost))
        for node, size in ended.get("dropped", {}).items():
            text = "%s: %d bytes from %s did not fit into the archive: samples are missing"
            logger.warning(text, self.NAME, size, node)
        stop_by_pid_files(self._remote, self.nodes, f"{directory}/{self.NAME}")
        for files in filter(None, map(self._files_here, self.nodes)):
            sync_files(Path(files[0]).parent)


def node_to_ask(name: str, cluster: Mapping[str, Any], roles: Union[str, Sequence[str]]) -> str:
    """Return the first node of these keys of `cluster:`, for a monitor that asks from one. Raises ValueError."""
    for node in nodes_of(cluster, *([roles] if isinstance(roles, str) else roles)):
        return node
    raise ValueError(f"monitoring_profiles: {name}: no node from which the cluster can be asked; check nodes:")


def _ended(process: subprocess.Popen[bytes]) -> Dict[str, Dict[str, Any]]:
    """Close all connections; return how often each had ended by itself, and why those that never began did.

    {} when the process gives no answer.
    """
    out = b""
    try:
        # closes its input, then waits for its answer
        out, _ = process.communicate(timeout=2 * agent_connections.LAST_LINE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
    with contextlib.suppress(ValueError):
        return dict(json.loads(out))
    return {}
