"""Nodes through pdsh, which reaches several by ssh at once; one node alone, or very many, have an ssh without it.

So have streams: pdsh ignores SIGPIPE, so that nobody on the nodes would notice when this process is killed.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import uuid
from collections import Counter
from typing import Any, Dict, List, Mapping, Sequence, Tuple

from cbt_plugins.cluster.transports.ssh import Ssh
from cbt_plugins.cluster.transports.transport import SILENT_NETWORK, UNREACHABLE, Result, kill_session

#: more nodes have an ssh each without pdsh, whose CPU time grows faster than the nodes: 300 take 5.6 s with it, and
#: 2.5 s without (docs/SCALE.md)
MOST_NODES = 50


class Pdsh(Ssh):
    """CBT's key common.pdsh_cmd, beside those of ssh."""

    preference = 2

    def __init__(self, cluster: Mapping[str, Any], common: Mapping[str, Any]) -> None:
        super().__init__(cluster, common)
        self._program = shutil.which(str(common.get("pdsh_cmd") or "pdsh"))

    def reaches(self, node: str) -> bool:
        """Return whether pdsh is installed and takes the node: it has one port for all, and `fe80:` for a transport."""
        return self._program is not None and not self.own_port(node) and ":" not in node

    def line(self, nodes: Sequence[str], shell: str) -> Tuple[List[str], Dict[str, str]]:
        """Return command line and environment for many nodes. pdsh expands %h %u %n %%, so every % is doubled."""
        assert self._program is not None
        targets = ",".join(map(self.destination, nodes))
        append = " ".join([*self.options(SILENT_NETWORK), *self.arguments])
        environment = dict(os.environ, LC_ALL="C", PDSH_SSH_ARGS_APPEND=append)
        fan_out = str(max(len(nodes), 1))
        return [self._program, "-R", "ssh", "-f", fan_out, "-w", targets, shell.replace("%", "%%")], environment

    def run_many(self, nodes: Sequence[str], shell: str, limit: float) -> Dict[str, Result]:
        nodes = distinguishable_nodes(nodes)
        if not nodes or len(nodes) > MOST_NODES:
            return {}
        # pdsh reports one status for all nodes; each node says its own on its last line
        token = uuid.uuid4().hex
        line, environment = self.line(nodes, f"{shell}; status=$?; echo; echo {token} $status")
        process = subprocess.Popen(
            line,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            start_new_session=True,
        )
        try:
            out, err = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            out, err = kill_session(process)
        stdout = lines_by_node(nodes, out.decode(errors="replace"))
        stderr = lines_by_node(nodes, err.decode(errors="replace"))
        results = {}
        for node in nodes:
            text, status = cut_status(stdout[node], token)
            # "pdsh@here: node1: ssh exited with exit code 255" says no more than the status
            messages = [row for row in stderr[node].splitlines(keepends=True) if "ssh exited with" not in row]
            results[node] = Result(text, "".join(messages) if status == UNREACHABLE else stderr[node], status)
        return results


def distinguishable_nodes(nodes: Sequence[str]) -> List[str]:
    """Return the nodes, at least two, whose lines can be told apart in pdsh's output.

    Where all names that have a domain have the same one, pdsh leaves it out (10.0.0.1 has the domain 0.0.1 for it; the
    option that keeps it, -K, is missing in some versions): then a.example.com and a have one label.
    """
    firsts = Counter(node.partition(".")[0] for node in nodes)
    domains = {node.partition(".")[2] for node in nodes if "." in node}
    clear = [node for node in nodes if len(domains) != 1 or firsts[node.partition(".")[0]] == 1]
    return clear if len(clear) > 1 else []


def lines_by_node(nodes: Sequence[str], text: str) -> Dict[str, str]:
    """Undo pdsh's "node: " in front of every line; pdsh's own messages go to the node they speak of."""
    rows: Dict[str, List[str]] = {node: [] for node in nodes}
    labels = {**{node.partition(".")[0]: node for node in nodes}, **{node: node for node in nodes}}
    for row in text.split("\n")[:-1] if text.endswith("\n") else text.split("\n"):
        label, colon, content = row.partition(": ")
        if row.endswith(":") and not colon:
            label, content = row[:-1], ""
        if label in labels:
            rows[labels[label]].append(content)
            continue
        of, _, _ = content.partition(": ")  # "pdsh@here: node: ssh exited with exit code 255"
        if of in labels:
            rows[labels[of]].append(row)
    return {node: "".join(f"{r}\n" for r in kept) for node, kept in rows.items()}


def cut_status(text: str, token: str) -> Tuple[str, int]:
    """Take the line "<token> <status>" and the line break before it off a node's output."""
    before, separator, status = text.rpartition(f"{token} ")
    if not separator:
        return text, UNREACHABLE
    number = re.match(r"\d{1,3}\b", status)  # a process that the command left may write behind it
    return before[:-1] if before.endswith("\n") else before, int(number[0]) if number else UNREACHABLE
