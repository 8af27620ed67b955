"""Commands, files and streams on many nodes at once."""

from __future__ import annotations

import errno
import io
import logging
import os
import shlex
import stat
import subprocess
import tarfile
import threading
import time
import uuid
from collections import Counter
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path, PurePosixPath
from typing import (
    Any,
    Callable,
    Dict,
    Generic,
    List,
    Mapping,
    Optional,
    Sequence,
    Tuple,
    Type,
    TypeVar,
    cast,
)

from cbt_plugins.cluster.stream import Stream
from cbt_plugins.cluster.transport import SILENT_NETWORK, Transport

log = logging.getLogger(__name__)

T = TypeVar("T")

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

    def __init__(self, action: str, results: Mapping[str, Result]) -> None:
        self.results = results
        bad = {node: r for node, r in results.items() if r.status}
        rows = []
        for node, r in sorted(bad.items()):
            tail = " | ".join(r.stderr.strip().splitlines()[-3:]) or "no message"
            rows.append(f"{node}: exit status {r.status}: {tail}")
        super().__init__(f"{action} failed on {len(bad)} of {len(results)} nodes: " + "; ".join(rows))


@cache
def program_text(path: Path) -> str:
    """Return a shell program of ours without its comments."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return "".join(f"{line}\n" for line in lines if line.strip() and not line.lstrip().startswith("#"))


#: defines the shell function `own_folder`
OWN_FOLDER = program_text(Path(__file__).with_name("own_folder.sh"))


def make_own(*folders: str) -> str:
    """Return shell lines that make folders on a node; they end the shell where others could write or replace one."""
    return OWN_FOLDER + "".join(f"own_folder {shlex.quote(folder)} make || exit\n" for folder in folders)


def find_own(folder: str) -> str:
    """Return shell lines that end the shell: with status 0 where there is no such folder, else as `make_own` does."""
    return f"{OWN_FOLDER}own_folder {shlex.quote(folder)} look || exit $(($? == 3 ? 0 : $?))\n"


def own_here(
    folder: Path, action: str = "make", alternative: str = "set XDG_CACHE_HOME to a folder of your own"
) -> None:
    """Make a folder on this machine, or "look" at one; `alternative`: what else the user can do.

    Raises PermissionError where others could write or replace it.
    """
    remedy = f"close it to others (chmod go-w), or {alternative}"
    line = f"{OWN_FOLDER}own_folder {shlex.quote(str(folder.absolute()))} {action} {shlex.quote(remedy)}"
    done = subprocess.run(["sh", "-c", line], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode:
        raise PermissionError(errno.EPERM, done.stderr.strip() or f"{folder} cannot be made")


def script(path: Path, *words: str) -> str:
    """Return the command that runs a shell program of ours on a node; `words` are its arguments."""
    text = path.read_text(encoding="utf-8")
    if "own_folder " in text:
        text = text.replace("\n", f"\n{OWN_FOLDER}", 1)
    return " ".join(["sh", "-c", *map(shlex.quote, (text, path.name, *words))])


def subject_of(command: str) -> str:
    """Return the name of a command in errors: its first line that has one, or our script and its arguments."""
    if command.startswith("sh -c '#!"):
        return " ".join(shlex.split(command)[3:])[:120]
    lines = (line.strip() for line in command.replace(OWN_FOLDER, "").splitlines())
    return next((line for line in lines if line and not line.startswith(("#", "own_folder "))), command)[:120]


class Pending(Generic[T]):
    """An answer that is waited for while other things go on: its question runs in a thread."""

    def __init__(self, question: Callable[[], T]) -> None:
        self._question = question
        self._answer: Optional[T] = None
        self._error: Optional[BaseException] = None
        self._thread = threading.Thread(target=self._ask, daemon=True)
        self._thread.start()

    def _ask(self) -> None:
        try:
            self._answer = self._question()
        except BaseException as error:
            self._error = error

    @property
    def is_done(self) -> bool:
        """Whether `get` would not wait."""
        return not self._thread.is_alive()

    def get(self) -> T:
        """Wait for the answer, and return it or raise its error."""
        self._thread.join()
        if self._error is not None:
            raise self._error
        return cast(T, self._answer)


def side_by_side(*questions: Callable[[], Any]) -> List[Any]:
    """Ask at once, and return the answers in the same order; the first error is raised when all have ended."""
    return [pending.get() for pending in [Pending(question) for question in questions]]


#: how often is asked where a connection may be lost, and seconds in between
TRIES, TRY_AGAIN = 3, 5.0


def insist(question: Callable[[], T], passing: Type[Exception], clear: Tuple[Type[Exception], ...] = ()) -> T:
    """Ask, and again after an error that may pass; those that are `clear` are raised at once, and the last one."""
    for _ in range(TRIES - 1):
        try:
            return question()
        except clear:
            raise
        except passing as error:
            log.warning("%s; trying again", error)
            time.sleep(TRY_AGAIN)
    return question()


#: seconds that a node has, beyond the command's own time, to connect and to answer
CONNECT_ALLOWANCE = 20.0
#: seconds between two looks at how far a copy is
LOOK = 10.0
#: seconds that a command may take at most: poll(2) counts milliseconds in 31 bits, and Python refuses more
LONGEST = 2_000_000.0


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
        nodes, timeout = list(dict.fromkeys(nodes)), min(timeout, LONGEST)
        bounded = f"timeout -k 5 {timeout:g} sh -c {shlex.quote(command)} </dev/null"
        together = _told_apart([n for n in nodes if self.transport.by_pdsh(n)])
        limit = timeout + CONNECT_ALLOWANCE
        results = self._run_pdsh(together, bounded, limit) if together else {}
        results.update(self._run_each({n: bounded for n in nodes if n not in together}, limit))
        results = self._hinted({n: results[n] for n in nodes})
        if check and any(r.status for r in results.values()):
            raise RemoteError(subject_of(command), results)
        return results

    def _hinted(self, results: Mapping[str, Result]) -> Dict[str, Result]:
        """Add to the message of each node that could not be reached the command that shows why, in the same line."""
        hinted = dict(results)
        for node, result in results.items():
            if result.status == UNREACHABLE and not self.transport.is_local(node):
                message_lines = [line for line in result.stderr.strip().splitlines() if "ssh exited with" not in line]
                why = "\n".join(message_lines) or "no reply"
                hinted[node] = replace(result, stderr=f"{why}; try: {self.transport.login(node)} true\n")
        return hinted

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
            results[node] = Result(text, stderr[node] or ("no reply" if status == UNREACHABLE else ""), status)
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
        answers, until = {}, time.monotonic() + timeout
        for node, (process, data) in running.items():
            try:
                left = max(0.1, until - time.monotonic())
                out, err = process.communicate(input=data or None, timeout=left)
                answers[node] = (out, err, process.returncode if process.returncode >= 0 else UNREACHABLE)
            except subprocess.TimeoutExpired:
                process.kill()
                out, err = process.communicate()
                answers[node] = (out, err + b"\nno reply in time", UNREACHABLE)
        return answers

    def feed(self, nodes: Sequence[str], command: str, data: bytes, timeout: float) -> Dict[str, Result]:
        """Run a shell command on all nodes at once with this standard input: what is secret is in no argument list.

        Statuses are those of `run`; nothing is raised.
        """
        bounded = f"timeout -k 5 {timeout:g} sh -c {shlex.quote(command)}"
        answers = self._exchange({n: (bounded, data) for n in dict.fromkeys(nodes)}, timeout + CONNECT_ALLOWANCE)
        return self._hinted(
            {n: Result(o.decode(errors="replace"), e.decode(errors="replace"), s) for n, (o, e, s) in answers.items()}
        )

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
            # tar makes each file anew (O_EXCL); --no-overwrite-dir: the folders above keep their owner and mode
            extract = "tar -x -f - -C / --no-same-owner --no-overwrite-dir"
            commands[node] = (f"{make_own(*folders)}umask 077; {extract}", archive.getvalue())
        answers = self._exchange(commands, timeout)
        results = self._hinted({n: Result("", e.decode(errors="replace"), s) for n, (_, e, s) in answers.items()})
        if any(r.status for r in results.values()):
            raise RemoteError("writing files", results)

    def fetch(self, nodes: Sequence[str], remote_dir: str, local_dir: Path, stalled: float = 600.0) -> None:
        """Copy a folder from every node into local_dir/<node>/: its files and folders, no links, no other modes.

        A missing folder gives an empty one. What the nodes send is not trusted. Ends a node from which nothing more
        has come for `stalled` seconds. Raises RemoteError.
        """
        running: List[Tuple[str, subprocess.Popen[bytes]]] = []
        sinks = set()
        quoted = shlex.quote(remote_dir)
        nothing = "exec tar -c -T /dev/null -f -"
        command = f"{OWN_FOLDER}own_folder {quoted} look && cd {quoted} && exec tar -c -f - . </dev/null; {nothing}"
        for node in dict.fromkeys(nodes):
            (local_dir / node).mkdir(parents=True, exist_ok=True)
            source = subprocess.Popen(
                self.transport.ssh(node, command),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
            sink = subprocess.Popen(
                ["tar", "-x", "--ignore-zeros", "-f", "-", "-C", str(local_dir / node), *_AS_OURS],
                stdin=source.stdout,
                stderr=subprocess.PIPE,
            )
            assert source.stdout is not None
            source.stdout.close()
            source.stdout = None  # nothing of it is for us
            sinks.add(sink)
            running += [(node, source), (node, sink)]
        full: Optional[Path] = None
        results = {node: Result("", "", 0) for node, _ in running}
        for node, process in running:
            err = _end_of_copy(process, local_dir / node, stalled)
            # tar says 1 when a file changed while it was read: rows of a load that is still ending
            if process.returncode not in (0, 1):
                messages = results[node].stderr + err.decode(errors="replace")
                results[node] = Result("", messages, results[node].status or process.returncode)
            if process in sinks and any(text in err for text in _FULL):
                full = local_dir / node  # what unpacks is here
        for node in results:
            _drop_special(local_dir / node)
        if full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(full))
        if any(r.status for r in results.values()):
            raise RemoteError(f"fetching {remote_dir}", self._hinted(results))

    def stream(self, nodes: Sequence[str], command: str, patience: float = SILENT_NETWORK) -> Stream:
        """Start a command on all nodes and read its lines as they come; a network may be silent for `patience` s."""
        return Stream({node: self.transport.ssh(node, command, patience) for node in nodes})


def _size_of(file: Path) -> int:
    try:
        return file.lstat().st_size
    except OSError:  # it has just gone
        return 0


def _end_of_copy(process: subprocess.Popen[bytes], folder: Path, stalled: float) -> bytes:
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
                process.kill()
                process.communicate()
                return f"nothing more came for {stalled:g} s".encode()


#: what tar says of a full disk; the last of a file that just fits in part
_FULL = (b"No space left on device", b"Disk quota exceeded", b"Wrote only ")
#: options of tar: what comes from a node belongs to us, with the usual modes, and runs nothing as somebody else
_AS_OURS = ("--no-same-owner", "--no-same-permissions")


def _drop_special(folder: Path) -> None:
    """Remove what is no file and no folder: a link would be read through here, a pipe never ends."""
    for top, folders, files in os.walk(folder):
        for path in (os.path.join(top, name) for name in (*folders, *files)):
            if not stat.S_ISREG(mode := os.lstat(path).st_mode) and not stat.S_ISDIR(mode):
                log.warning("%s: neither a file nor a folder: not kept", path)
                os.unlink(path)


def _told_apart(nodes: Sequence[str]) -> List[str]:
    """Return the nodes, at least two, whose lines can be told apart in pdsh's output.

    Where all names that have a domain have the same one, pdsh leaves it out (10.0.0.1 has the domain 0.0.1 for it; the
    option that keeps it, -K, is missing in some versions): then a.example.com and a have one label.
    """
    firsts = Counter(node.partition(".")[0] for node in nodes)
    domains = {node.partition(".")[2] for node in nodes if "." in node}
    clear = [node for node in nodes if len(domains) != 1 or firsts[node.partition(".")[0]] == 1]
    return clear if len(clear) > 1 else []


def _by_node(nodes: Sequence[str], text: str) -> Dict[str, str]:
    """Undo pdsh's "node: " in front of every line; pdsh's own messages go to the node they speak of."""
    rows: Dict[str, List[str]] = {node: [] for node in nodes}
    labels = {**{node.partition(".")[0]: node for node in nodes}, **{node: node for node in nodes}}
    for row in text.splitlines():
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


def _cut_status(text: str, token: str) -> Tuple[str, int]:
    """Take the line "<token> <status>" and the line break before it off a node's output."""
    before, separator, status = text.rpartition(f"{token} ")
    if not separator:
        return text, UNREACHABLE
    return before[:-1] if before.endswith("\n") else before, int(status.strip() or UNREACHABLE)
