"""Run a command on many nodes at once, give them files, fetch what they left."""

from __future__ import annotations

import io
import shlex
import subprocess
import tarfile
import uuid
from pathlib import Path, PurePosixPath
from typing import Any, Dict, List, Mapping, Sequence, Tuple

from cbt_plugins.cluster.result import UNREACHABLE, RemoteError, Result
from cbt_plugins.cluster.stream import Stream
from cbt_plugins.cluster.transport import Transport

#: seconds that a node has, beyond the command's own time, to connect and to answer
CONNECT_ALLOWANCE = 20.0


class Remote:
    """All commands that this project sends to nodes go through here.

    Every command is bounded on its node (`timeout`) and here, so nothing is left running when an answer is late.
    """

    def __init__(self, transport: Transport) -> None:
        self.transport = transport

    @classmethod
    def from_host(cls, cluster: Mapping[str, Any], common: Mapping[str, Any]) -> Remote:
        """Reach nodes as the YAML's `cluster:` and `common:` sections say."""
        return cls(Transport.from_host(cluster, common))

    def run(self, nodes: Sequence[str], command: str, timeout: float = 60.0, check: bool = True) -> Dict[str, Result]:
        """Run a shell command on all nodes at once.

        Returns a result per node, in the order of `nodes`. Raises RemoteError when `check` and a status is not 0.
        A node that is out of reach or late has status 255, or 124 from `timeout` itself.
        """
        nodes = list(dict.fromkeys(nodes))
        bounded = f"timeout -k 5 {timeout:g} sh -c {shlex.quote(command)} </dev/null"
        near = [n for n in nodes if self.transport.is_local(n)]
        far = [n for n in nodes if n not in near]
        results: Dict[str, Result] = {}
        if far and self.transport.pdsh and len(far) > 1:
            results.update(self._run_pdsh(far, bounded, timeout + CONNECT_ALLOWANCE))
            far = []
        results.update(self._run_each({n: bounded for n in near + far}, timeout + CONNECT_ALLOWANCE))
        results = {n: results[n] for n in nodes}
        if check and any(r.status for r in results.values()):
            raise RemoteError(command.split("\n")[0][:120], results)
        return results

    def _run_pdsh(self, nodes: Sequence[str], command: str, timeout: float) -> Dict[str, Result]:
        # pdsh reports one status for all nodes; each node says its own on its last line
        token = uuid.uuid4().hex
        line, environment = self.transport.pdsh_line(nodes, f"{command}; status=$?; echo; echo {token} $status")
        process = subprocess.Popen(
            line, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
        )
        try:
            out, err = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
        stdout = _by_node(nodes, out.decode(errors="replace"))
        stderr = _by_node(nodes, err.decode(errors="replace"))
        results = {}
        for node in nodes:
            text, status = _cut_status(stdout[node], token)
            results[node] = Result(text, stderr[node] or ("no answer" if status == UNREACHABLE else ""), status)
        return results

    def _run_each(self, commands: Mapping[str, str], timeout: float) -> Dict[str, Result]:
        answers = self._exchange({n: (c, b"") for n, c in commands.items()}, timeout)
        return {
            n: Result(o.decode(errors="replace"), e.decode(errors="replace"), s) for n, (o, e, s) in answers.items()
        }

    def _exchange(
        self, commands: Mapping[str, Tuple[str, bytes]], timeout: float
    ) -> Dict[str, Tuple[bytes, bytes, int]]:
        """One connection per node at once: command and standard input in, output, errors and status out."""
        running = {}
        for node, (command, data) in commands.items():
            process = subprocess.Popen(
                self.transport.ssh(node, command),
                stdin=subprocess.PIPE if data else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
            running[node] = (process, data)
        answers = {}
        for node, (process, data) in running.items():
            try:
                out, err = process.communicate(input=data or None, timeout=timeout)
                answers[node] = (out, err, process.returncode if process.returncode >= 0 else UNREACHABLE)
            except subprocess.TimeoutExpired:
                process.kill()
                out, err = process.communicate()
                answers[node] = (out, err + b"\nno answer in time", UNREACHABLE)
        return answers

    def put(self, files: Mapping[str, Mapping[str, bytes]], mode: int = 0o600, timeout: float = 600.0) -> None:
        """Write files: {node: {absolute path: content}}. Folders are made; no content is ever in an argument list."""
        commands = {}
        for node, wanted in files.items():
            archive = io.BytesIO()
            with tarfile.open(fileobj=archive, mode="w") as tar:
                for path, content in wanted.items():
                    entry = tarfile.TarInfo(str(PurePosixPath(path).relative_to("/")))
                    entry.size, entry.mode = len(content), mode
                    tar.addfile(entry, io.BytesIO(content))
            folders = " ".join(shlex.quote(str(PurePosixPath(p).parent)) for p in wanted)
            # --no-overwrite-dir: the folders above keep their owner and mode
            extract = f"umask 077; mkdir -p {folders} && tar -x -f - -C / --no-same-owner --no-overwrite-dir"
            commands[node] = (extract, archive.getvalue())
        answers = self._exchange(commands, timeout)
        results = {n: Result("", e.decode(errors="replace"), s) for n, (_, e, s) in answers.items()}
        if any(r.status for r in results.values()):
            raise RemoteError("writing files", results)

    def fetch(self, nodes: Sequence[str], remote_dir: str, local_dir: Path, timeout: float = 3600.0) -> None:
        """Copy a folder from every node into local_dir/<node>/. A missing folder gives an empty one."""
        running: List[Tuple[str, subprocess.Popen[bytes]]] = []
        quoted = shlex.quote(remote_dir)
        command = f"cd {quoted} 2>/dev/null && exec tar -c -f - . </dev/null; exec tar -c -T /dev/null -f -"
        for node in dict.fromkeys(nodes):
            (local_dir / node).mkdir(parents=True, exist_ok=True)
            source = subprocess.Popen(
                self.transport.ssh(node, command),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
            sink = subprocess.Popen(
                ["tar", "-x", "--ignore-zeros", "-f", "-", "-C", str(local_dir / node), "--no-same-owner"],
                stdin=source.stdout,
                stderr=subprocess.PIPE,
            )
            assert source.stdout is not None
            source.stdout.close()
            running += [(node, source), (node, sink)]
        results = {node: Result("", "", 0) for node, _ in running}
        for node, process in running:
            try:
                _, err = process.communicate(timeout=timeout)
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()
                err = b"no answer in time"
            # tar says 1 when a file changed while it was read: rows of a load that is still ending
            if process.returncode not in (0, 1):
                results[node] = Result("", (err or b"").decode(errors="replace"), process.returncode or UNREACHABLE)
        if any(r.status for r in results.values()):
            raise RemoteError(f"fetching {remote_dir}", results)

    def stream(self, nodes: Sequence[str], command: str) -> Stream:
        """Start a command on all nodes at once and read its lines as they come."""
        return Stream.start(self.transport, nodes, command)


def _by_node(nodes: Sequence[str], text: str) -> Dict[str, str]:
    """Undo pdsh's "node: " in front of every line; pdsh's own messages go to the node they speak of."""
    rows: Dict[str, List[str]] = {node: [] for node in nodes}
    for row in text.splitlines():
        node, colon, rest = row.partition(": ")
        if row.endswith(":") and not colon:
            node, rest = row[:-1], ""
        if node in rows:
            rows[node].append(rest)
            continue
        for node in nodes:
            if f": {node}: " in row:
                rows[node].append(row)
    return {node: "".join(f"{r}\n" for r in kept) for node, kept in rows.items()}


def _cut_status(text: str, token: str) -> Tuple[str, int]:
    """Take the line "<token> <status>" and the line break before it off a node's output."""
    before, found, status = text.rpartition(f"{token} ")
    if not found:
        return text, UNREACHABLE
    return before[:-1] if before.endswith("\n") else before, int(status.strip() or UNREACHABLE)
