"""Lines from a command that runs on many nodes at once, as they come; one thread, no waiting without a limit."""

from __future__ import annotations

import contextlib
import itertools
import os
import selectors
import signal
import subprocess
import threading
import time
from pathlib import Path
from types import ModuleType
from typing import Callable, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Tuple

# a node needs nothing of ours on its disk, also when it was booted again; nothing is imported from the current folder,
# which may be anybody's
_RECEIVE = """\
import os, sys
sys.path[:] = [path for path in sys.path if path]
left, program = int(sys.argv.pop(1)), b""
while left:
    data = os.read(0, left)
    if not data:
        raise SystemExit(1)
    program, left = program + data, left - len(data)
exec(compile(program, sys.argv[0], "exec"))
"""

#: nodes whose standard input is written at the same time; each text is in memory for as long
SENT_AT_ONCE = 32
#: seconds without a byte that a node has taken, after which its connection is ended: a client that is connecting, or
#: whose memory is full, takes none for some minutes
INPUT_LIMIT = 600.0
#: seconds for the end of a process that was killed
_KILLED = 5.0

MessageOf = Callable[[str], Optional[str]]


class NodeProgram:
    """A program of ours for nodes (standard library only, Python 3.6) that is sent over its connection.

    `parts` are the modules of ours that it imports, by their full names, each behind those that it imports itself.
    """

    def __init__(self, path: Path, parts: Sequence[ModuleType] = ()) -> None:
        self._name = path.name
        own = path.read_text(encoding="utf-8")
        self.text = "".join(map(_module_text, parts)) + f"exec(compile({own!r}, {path.name!r}, 'exec'))\n"

    def words(self, *arguments: str) -> List[str]:
        """Return the arguments with which Python runs it, once `text` is written to its standard input."""
        # the name is for who looks at the list of processes
        return ["-c", _RECEIVE.replace("sys.argv[0]", repr(self._name)), str(len(self.text.encode())), *arguments]


def _module_text(part: ModuleType) -> str:
    """Return the text that makes a module, as `import` would."""
    path = Path(str(part.__file__))
    target = f"sys.modules[{part.__name__!r}]"
    source = path.read_text(encoding="utf-8")
    program = f"compile({source!r}, {path.name!r}, 'exec')"
    return f"{target} = type(sys)({part.__name__!r})\nexec({program}, {target}.__dict__)\n"


def _write(fd: int, data: memoryview) -> memoryview:
    """Write to a pipe without waiting; return the bytes that it did not take, none if nobody reads it any more."""
    try:
        return data[os.write(fd, data) :]
    except BlockingIOError:
        return data
    except BrokenPipeError:
        return data[:0]


class Stream:
    """Processes whose standard output is read line by line, each line with the node it came from."""

    def __init__(self, lines: Mapping[str, Sequence[str]], message_of: Mapping[str, MessageOf]) -> None:
        """Start a command line for each node, as `Remote.command` makes them.

        `message_of` returns for a node the part of a line of its errors that is for users, or None.
        """
        self.nodes = tuple(lines)
        self._message_of = message_of
        self.messages: List[str] = []  # last lines of standard error, for the error text
        self.processes: List[subprocess.Popen[bytes]] = []  # one for each node, in their order
        self._selector = selectors.DefaultSelector()
        self._partial_lines: Dict[int, List[bytes]] = {}  # the pieces of each line whose end has not come
        self._pending: List[Tuple[str, str]] = []
        self._sending = threading.RLock()
        for node, line in lines.items():
            self._add(line, node)

    def _add(self, line: Sequence[str], node: str) -> None:
        # an own session: a Ctrl-C at the terminal reaches us first, and we end the load in order
        process = subprocess.Popen(
            line,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        self.processes.append(process)
        assert process.stdout is not None and process.stderr is not None
        for pipe, kind in ((process.stdout, "out"), (process.stderr, "err")):
            os.set_blocking(pipe.fileno(), False)
            self._selector.register(pipe.fileno(), selectors.EVENT_READ, (node, kind))
            self._partial_lines[pipe.fileno()] = []

    @property
    def open(self) -> bool:
        """True while any node may still say something."""
        return bool(self._selector.get_map())

    @property
    def lost(self) -> List[str]:
        """The nodes whose command has ended; what it has said may not have been read yet."""
        return [node for node, process in zip(self.nodes, self.processes) if process.poll() is not None]

    def send(self, text: str, node: str = "") -> None:
        """Write to the standard input of a node's process, or of every process."""
        self.send_each((process_node, text) for process_node in self.nodes if node in ("", process_node))

    def send_each(self, texts: Iterable[Tuple[str, str]]) -> None:
        """Write texts to the standard inputs of nodes, given as (node, text), to SENT_AT_ONCE nodes at a time.

        No node waits for a slower node, unless as many slower nodes are before it. The connection to a node that takes
        nothing for INPUT_LIMIT seconds is ended: then the node is `lost`.
        """
        process_of_node = dict(zip(self.nodes, self.processes))
        left = iter(texts)
        taken_at: Dict[int, float] = {}  # file descriptor -> time.monotonic() when it took bytes last
        with self._sending, contextlib.closing(selectors.DefaultSelector()) as selector:
            while True:
                for node, text in itertools.islice(left, SENT_AT_ONCE - len(selector.get_map())):
                    if (process := process_of_node.get(node)) is not None:
                        assert process.stdin is not None
                        os.set_blocking(process.stdin.fileno(), False)
                        selector.register(process.stdin, selectors.EVENT_WRITE, (node, memoryview(text.encode())))
                        taken_at[process.stdin.fileno()] = time.monotonic()
                waiting = selector.get_map()
                if not waiting:
                    return
                first = min(taken_at[key.fd] for key in waiting.values())
                for key, _ in selector.select(max(0.0, first + INPUT_LIMIT - time.monotonic())):
                    key_node, text_left = key.data
                    unsent = _write(key.fd, text_left)
                    if len(unsent) < len(text_left):
                        taken_at[key.fd] = time.monotonic()
                    if unsent:
                        selector.modify(key.fileobj, selectors.EVENT_WRITE, (key_node, unsent))
                    else:
                        selector.unregister(key.fileobj)
                for key in list(waiting.values()):
                    if time.monotonic() - taken_at[key.fd] >= INPUT_LIMIT:
                        selector.unregister(key.fileobj)
                        self._give_up(key.data[0], process_of_node[key.data[0]])

    def _give_up(self, node: str, process: subprocess.Popen[bytes]) -> None:
        """End the connection to a node that takes no input; a process that is stopped ends only by SIGKILL."""
        self.messages = [*self.messages[-19:], f"{node} took no input for {INPUT_LIMIT:.0f} s"]
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_KILLED)

    def lines(self, timeout: float) -> Iterator[Tuple[str, str]]:
        """Yield (node, line) as they come; end after `timeout` seconds or when all nodes have closed their output."""
        until = time.monotonic() + timeout
        while True:
            while self._pending:
                yield self._pending.pop(0)
            left = until - time.monotonic()
            if left <= 0 or not self.open:
                return
            for key, _ in self._selector.select(left):
                self._read(key.fd, *key.data)

    def _read(self, fd: int, node: str, kind: str) -> None:
        try:
            data = os.read(fd, 1 << 16)
        except BlockingIOError:
            return
        if not data:
            self._selector.unregister(fd)
            data = b"\n" if any(self._partial_lines[fd]) else b""
        self._partial_lines[fd].append(data)
        if b"\n" not in data:
            return
        *rows, end = b"".join(self._partial_lines[fd]).split(b"\n")
        self._partial_lines[fd] = [end]
        for row in rows:
            text = row.decode(errors="replace")
            if kind == "out":
                self._pending.append((node, text))
            elif (message := self._message_of[node](text.rstrip("\r"))) is not None:
                self.messages = [*self.messages[-19:], message]

    def lines_until_silent(self, limit: float) -> Iterator[Tuple[str, str]]:
        """Yield (node, line) as they come; end after `limit` seconds without one, or when all outputs are closed."""
        while line := next(self.lines(limit), None):
            yield line

    def close(self, timeout: float = 5.0) -> None:
        """End what still runs: closed pipes tell the nodes, SIGTERM then SIGKILL our own connections.

        After an interrupt another call does the rest.
        """
        for key in list((self._selector.get_map() or {}).values()):
            self._selector.unregister(key.fd)
        self._selector.close()
        for process in self.processes:
            for pipe in (process.stdin, process.stdout, process.stderr):
                with contextlib.suppress(OSError):
                    pipe.close()  # type: ignore[union-attr]
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
        until = time.monotonic() + timeout
        for process in self.processes:
            try:
                process.wait(max(0.0, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        self.processes.clear()
