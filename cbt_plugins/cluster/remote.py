"""Commands, files and streams on many nodes at once."""

from __future__ import annotations

import contextlib
import errno
import io
import logging
import os
import re
import shlex
import signal
import stat
import subprocess
import tarfile
import threading
import time
import weakref
from dataclasses import replace
from functools import partial
from pathlib import Path, PurePosixPath
from typing import (
    Any,
    Callable,
    Dict,
    List,
    Mapping,
    Optional,
    Sequence,
    Tuple,
)

from cbt_plugins.archive_files import FOLDER, SHARED
from cbt_plugins.cluster.fan_out import allow_files, ask_at_once
from cbt_plugins.cluster.shell_programs import OWN_FOLDER, make_own, program_text, subject_of
from cbt_plugins.cluster.stream import Stream
from cbt_plugins.cluster.transports.transport import SILENT_NETWORK, UNREACHABLE, Result, kill_session
from cbt_plugins.cluster.transports.transport_choice import TransportChoice
from cbt_plugins.journal import sync_files

log = logging.getLogger(__name__)


class RemoteError(Exception):
    """A command failed on at least one node; `results` has all nodes, the good ones too."""

    def __init__(self, action: str, results: Mapping[str, Result]) -> None:
        self.results = results
        bad = {node: r for node, r in results.items() if r.status}
        rows = []
        for node, r in sorted(bad.items()):
            tail = " | ".join(r.stderr.strip().splitlines()[-3:]) or "no message"
            rows.append(f"{node}: exit status {r.status}: {tail}")
        super().__init__(f"{action} failed on {len(bad)} of {len(results)} nodes: " + "; ".join(rows))


class OpenInput:
    """Standard input of commands of `end_with_input.sh`: they end when it is closed, or when this process ends.

    It may be closed by any thread, and more than once.
    """

    def __init__(self) -> None:
        self._read_end, write_end = os.pipe()
        self.close: Callable[[], object] = weakref.finalize(self, os.close, write_end)
        weakref.finalize(self, os.close, self._read_end)  # not before: its number could be that of another file

    def fileno(self) -> int:
        """Return the descriptor that the commands read."""
        return self._read_end


class Copies:
    """Processes of copies in several threads. Any thread may stop them; then no more begin."""

    def __init__(self) -> None:
        self.stopped = threading.Event()
        self._lock = threading.Lock()
        self._processes: List[subprocess.Popen[bytes]] = []

    def start(self, line: Sequence[str], **options: Any) -> subprocess.Popen[bytes]:
        """Start a process. Raises InterruptedError after `stop`."""
        with self._lock:
            if self.stopped.is_set():
                raise InterruptedError("the copy was stopped")
            process = subprocess.Popen(line, **options)
            self._processes.append(process)
            return process

    def stop(self) -> None:
        """Kill each process that has not ended; its thread reads what is left of its output."""
        with self._lock:
            self.stopped.set()
            for process in self._processes:
                if process.poll() is None:
                    with contextlib.suppress(ProcessLookupError):  # it shares our session
                        os.killpg(process.pid, signal.SIGKILL)
                    process.kill()


def _or_python(tar: str, action: str) -> str:
    """Return shell text that packs or unpacks by tar, or where a node has none by our own program."""
    program = shlex.quote(program_text(Path(__file__).with_name("copy_agent.py")))
    return f"command -v tar >/dev/null || exec python3 -I -c {program} {action}; exec {tar}"


#: files from standard input; tar makes each anew (O_EXCL), and the folders above keep their owner and mode
_UNPACK = _or_python("tar -x -f - -C / --no-same-owner --no-overwrite-dir", "unpack")
#: the current folder to standard output, and an empty archive
_PACK, _NOTHING = _or_python("tar -c -f - .", "pack"), _or_python("tar -c -T /dev/null -f -", "nothing")
#: seconds between two looks at how far a copy is
LOOK = 10.0
#: seconds that a command may take at most: poll(2) counts milliseconds in 31 bits, and Python refuses more
LONGEST = 2_000_000.0


class Remote:
    """All commands that this project sends to nodes go through here.

    Every command is bounded on its node (`timeout`) and here, so nothing is left running when an answer is late.
    """

    def __init__(self, transports: TransportChoice) -> None:
        self._transports = transports

    @classmethod
    def of_cluster(cls, cluster: Mapping[str, Any], common: Mapping[str, Any]) -> Remote:
        """Reach nodes as the YAML's `cluster:` and `common:` sections say."""
        allow_files()
        return cls(TransportChoice(cluster, common))

    def transport_name(self, node: str) -> str:
        """Return the name of the transport of a node, as `cluster: transport:` takes it."""
        return self._transports.name_of(node)

    def login(self, node: str) -> str:
        """Return the words in front of a command by which a person runs it there, "" where there are none to try."""
        return self._transports[node].login(node)

    def port(self, node: str) -> int:
        """Return the TCP port of the node that must stay open for connections."""
        return self._transports[node].port(node)

    def has_own_clock(self, node: str) -> bool:
        """Return whether a node's clock may differ from that of this machine."""
        return not self._transports[node].same_clock

    def keeps_files(self, node: str) -> bool:
        """Return whether files of a node are there until they are removed; else they may go with the node."""
        return self._transports[node].keeps_files

    def command(self, node: str, shell: str, silence: float = SILENT_NETWORK) -> List[str]:
        """Return the command line for a shell command on a node; its network may be silent for `silence` seconds."""
        return self._transports[node].command(node, shell, silence)

    def lost_statuses(self, node: str) -> List[int]:
        """Return the exit statuses of such a command line that are not those of the shell command."""
        return self._transports[node].lost_statuses()

    def run(
        self,
        nodes: Sequence[str],
        command: str,
        timeout: float = 60.0,
        check: bool = True,
        open_input: Optional[OpenInput] = None,
    ) -> Dict[str, Result]:
        """Run a shell command on all nodes at once. It goes on if this process ends, unless it watches `open_input`.

        Returns a result per node, in the order of `nodes`. Raises RemoteError when `check` and a status is not 0.
        A node that is out of reach or late has status 255, or 124 from `timeout` itself.
        """
        nodes, timeout = list(dict.fromkeys(nodes)), min(timeout, LONGEST)
        bounded = f"timeout -k 5 {timeout:g} sh -c {shlex.quote(command)}{'' if open_input else ' </dev/null'}"
        results: Dict[str, Result] = {}
        for transport in dict.fromkeys(self._transports[node] for node in nodes if not open_input):
            group = [node for node in nodes if self._transports[node] is transport]
            results.update(transport.run_many(group, bounded, timeout + transport.connect_limit))
        alone = {node: (bounded, b"") for node in nodes if node not in results}
        results.update(_as_text(self._exchange(alone, timeout, open_input)))
        results = self._hinted({n: results[n] for n in nodes})
        if check and any(r.status for r in results.values()):
            raise RemoteError(subject_of(command), results)
        return results

    def _hinted(self, results: Mapping[str, Result]) -> Dict[str, Result]:
        """Add to the message of each node that could not be reached, in the same line, the reason if it is known, and
        the command that shows it."""
        lost = {node: result for node, result in results.items() if result.status == UNREACHABLE}
        reasons = ask_at_once(*(partial(self._transports[n].reason, n, r.stderr) for n, r in lost.items()))
        hinted = dict(results)
        for (node, result), reason in zip(lost.items(), reasons):
            login = self.login(node)
            if reason or login:
                why = [result.stderr.strip() or "no reply", *filter(None, [reason, login and f"try: {login} true"])]
                hinted[node] = replace(result, stderr=f"{'; '.join(why)}\n")
        return hinted

    def _exchange(
        self, commands: Mapping[str, Tuple[str, bytes]], timeout: float, open_input: Optional[OpenInput] = None
    ) -> Dict[str, Tuple[bytes, bytes, int]]:
        """Run a command line on each node at once, by one connection each; return output, errors and exit status."""
        questions = (partial(self._ask, node, *of_node, timeout, open_input) for node, of_node in commands.items())
        return dict(zip(commands, ask_at_once(*questions)))

    def _ask(
        self, node: str, command: str, data: bytes, timeout: float, open_input: Optional[OpenInput]
    ) -> Tuple[bytes, bytes, int]:
        line = self.command(node, command)
        try:
            process = subprocess.Popen(
                line,
                stdin=open_input.fileno() if open_input else subprocess.PIPE if data else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except OSError as error:
            is_missing = isinstance(error, FileNotFoundError)
            why = "not found: install it on this machine" if is_missing else error.strerror
            return b"", f"{line[0]}: {why}".encode(), UNREACHABLE
        try:
            out, err = process.communicate(data or None, timeout + self._transports[node].connect_limit)
        except subprocess.TimeoutExpired:
            out, err = kill_session(process)
            return out, err + b"\nno reply in time", UNREACHABLE
        status = self._status(node, process.returncode, err)
        return out, self._of_command(node, err), status if status >= 0 else UNREACHABLE

    def _status(self, node: str, status: int, messages: bytes) -> int:
        """Return the exit status of a node's command by that of its command line."""
        is_lost = status >= 0 and self._transports[node].lost(status, messages.decode(errors="replace"))
        return UNREACHABLE if is_lost else status

    def _of_command(self, node: str, messages: bytes) -> bytes:
        """Return the errors of a node's command without the messages of its transport."""
        lines = map(self._transports[node].message_of, messages.decode(errors="replace").split("\n"))
        return "\n".join(line for line in lines if line is not None).encode()

    def feed(self, nodes: Sequence[str], command: str, data: bytes, timeout: float) -> Dict[str, Result]:
        """Run a shell command on all nodes at once with this standard input: what is secret is in no argument list.

        Statuses are those of `run`; nothing is raised.
        """
        bounded = f"timeout -k 5 {timeout:g} sh -c {shlex.quote(command)}"
        return self._hinted(_as_text(self._exchange({n: (bounded, data) for n in dict.fromkeys(nodes)}, timeout)))

    def put(self, files: Mapping[str, Mapping[str, bytes]], mode: int = 0o600, timeout: float = 600.0) -> None:
        """Write files: {node: {absolute path: content}}, for us alone, into folders of ours, which are made.

        No content is ever in an argument list.
        """
        commands = {}
        for node, wanted in files.items():
            archive = io.BytesIO()
            with tarfile.open(fileobj=archive, mode="w") as tar:
                for path, content in wanted.items():
                    entry = tarfile.TarInfo(str(PurePosixPath(path).relative_to("/")))
                    entry.size, entry.mode = len(content), mode
                    tar.addfile(entry, io.BytesIO(content))
            folders = sorted({str(PurePosixPath(p).parent) for p in wanted})
            commands[node] = (f"{make_own(*folders)}umask 077; {_UNPACK}", archive.getvalue())
        results = self._hinted(_as_text(self._exchange(commands, timeout)))
        if any(r.status for r in results.values()):
            raise RemoteError("writing files", results)

    def fetch(
        self,
        nodes: Sequence[str],
        remote_dir: str,
        local_dir: Path,
        stalled: float = 600.0,
        copies: Optional[Copies] = None,
    ) -> None:
        """Copy a folder from every node into local_dir/<node>/: its files and folders, no links.

        A missing folder gives an empty one; one that others could write is an error. What the nodes send is not
        trusted. What came survives a loss of power, so that the nodes may remove it. Ends a node from which nothing
        more has come for `stalled` seconds. `copies` lets another thread stop it. Raises RemoteError.

        Others may read what came, less the umask: no file with a secret is ever fetched.
        """
        running: List[Tuple[str, subprocess.Popen[bytes]]] = []
        copies = copies or Copies()
        sinks = set()
        quoted = shlex.quote(remote_dir)
        none = f"{{ s=$?; [ $s = 3 ] || exit $s; {_NOTHING}; exit; }}"
        command = f"{OWN_FOLDER}own_folder {quoted} look || {none}; cd {quoted} && {{ {_PACK}; }} </dev/null"
        full: Optional[Path] = None
        results = {node: Result("", "", 0) for node in nodes}
        with contextlib.ExitStack() as stack:
            stack.callback(_kill_running, running)
            for node in results:
                (local_dir / node).mkdir(parents=True, exist_ok=True)
                source = copies.start(
                    self.command(node, command),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    start_new_session=True,
                )
                running.append((node, source))
                sinks.add(sink := _unpacker(copies, source, local_dir / node))
                running.append((node, sink))
            for node, process in running:
                err = end_of_copy(process, local_dir / node, stalled)
                status = process.returncode
                if process not in sinks:
                    status, err = self._status(node, status, err), self._of_command(node, err)
                # tar says 1 when a file changed while it was read: rows of a load that is still ending
                if status not in (0, 1):
                    messages = results[node].stderr + err.decode(errors="replace")
                    results[node] = Result("", messages, results[node].status or status)
                if process in sinks and any(text in err for text in _FULL):
                    full = local_dir / node  # what unpacks is here
        for node in results:
            _make_plain(local_dir / node)
        if full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(full))
        if any(r.status for r in results.values()):
            raise RemoteError(f"fetching {remote_dir}", self._hinted(results))
        for node in results:
            sync_files(local_dir / node)  # beside it another fetch may unpack

    def stream(self, nodes: Sequence[str], command: str, silence: float = SILENT_NETWORK) -> Stream:
        """Start a command on all nodes and read its lines as they come; a network may be silent for `silence` s."""
        lines = {node: self.command(node, command, silence) for node in nodes}
        return Stream(lines, {node: self._transports[node].message_of for node in nodes})


def _as_text(answers: Mapping[str, Tuple[bytes, bytes, int]]) -> Dict[str, Result]:
    return {n: Result(o.decode(errors="replace"), e.decode(errors="replace"), s) for n, (o, e, s) in answers.items()}


def _unpacker(copies: Copies, source: subprocess.Popen[bytes], folder: Path) -> subprocess.Popen[bytes]:
    """Start the receiver of a copy: it unpacks into a folder what the sender sends."""
    sink = copies.start(
        ["tar", "-x", "--ignore-zeros", "-f", "-", "-C", str(folder), *_AS_OURS],
        stdin=source.stdout,
        stderr=subprocess.PIPE,
        env={**os.environ, "LC_ALL": "C"},  # for _FULL
    )
    assert source.stdout is not None
    source.stdout.close()
    source.stdout = None  # nothing of it is for us
    return sink


def _kill_running(processes: Sequence[Tuple[str, subprocess.Popen[bytes]]]) -> None:
    """Kill each process of a copy that has not ended, as after an interrupt."""
    for _, process in processes:
        if process.poll() is None:
            kill_session(process)


def _size_of(file: Path) -> int:
    try:
        return file.lstat().st_size
    except OSError:  # it has just gone
        return 0


def end_of_copy(process: subprocess.Popen[bytes], folder: Path, stalled: float) -> bytes:
    """Wait for the end of a copy into a folder that takes as long as it takes; return its messages."""
    seen, at = -1, time.monotonic()
    while True:
        try:
            return process.communicate(timeout=min(stalled, LOOK))[1] or b""
        except subprocess.TimeoutExpired:
            now = sum(map(_size_of, folder.rglob("*")))
            if now != seen:
                seen, at = now, time.monotonic()
            elif time.monotonic() - at >= stalled:
                kill_session(process)
                return f"no more data came for {stalled:g} s".encode()


#: what tar says of a full disk; the last of a file that just fits in part
_FULL = (b"No space left on device", b"Disk quota exceeded", b"Wrote only ")
#: options of tar: what comes from a node belongs to us, with the usual modes, and runs nothing as somebody else
_AS_OURS = ("--no-same-owner", "--no-same-permissions")


def _umask() -> int:
    """Return the umask of this process: `os.umask` would change that of other threads, too, for a moment."""
    match = re.search(r"^Umask:\s*([0-7]+)$", Path("/proc/self/status").read_text(), re.MULTILINE)
    return int(match[1], 8) if match else 0o077  # a Linux before 4.7


def _make_plain(folder: Path) -> None:
    """Give files and folders the modes of an archive, and remove what is neither.

    An agent closes its files to others. A link would be read through here, a pipe never ends.
    """
    mask = _umask()
    os.chmod(folder, FOLDER & ~mask)
    for top, folders, files in os.walk(folder):
        for path in (os.path.join(top, name) for name in (*folders, *files)):
            mode = os.lstat(path).st_mode
            if stat.S_ISREG(mode) or stat.S_ISDIR(mode):
                os.chmod(path, (SHARED if stat.S_ISREG(mode) else FOLDER) & ~mask)
            else:
                log.warning("%s: neither a file nor a folder: not kept", path)
                os.unlink(path)
