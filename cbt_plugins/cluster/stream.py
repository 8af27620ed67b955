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


def login_error(line: str) -> str:
    """Return the error about a line of a node that no program of ours has printed."""
    return f"its login prints {line[:80]!r}: logins without a terminal must print nothing"


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


class _Input:
    """Text that the standard input of a node's process takes piece by piece."""

    def __init__(self, node: str, process: subprocess.Popen[bytes], text: str) -> None:
        self.node, self.process = node, process
        self._left = memoryview(text.encode())
        self._taken_at = time.monotonic()

    @property
    def seconds_left(self) -> float:
        """Seconds until the connection is ended, unless the process takes another byte."""
        return self._taken_at + INPUT_LIMIT - time.monotonic()

    def write(self) -> bool:
        """Write without waiting; return whether nothing is left, or nobody reads it any more."""
        assert self.process.stdin is not None
        try:
            taken = os.write(self.process.stdin.fileno(), self._left)
        except BlockingIOError:
            return False
        except BrokenPipeError:
            return True
        self._left, self._taken_at = self._left[taken:], time.monotonic()
        return not self._left


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
        with self._sending, contextlib.closing(selectors.DefaultSelector()) as selector:
            while True:
                for node, text in itertools.islice(left, SENT_AT_ONCE - len(selector.get_map())):
                    if (process := process_of_node.get(node)) is not None:
                        assert process.stdin is not None
                        os.set_blocking(process.stdin.fileno(), False)
                        selector.register(process.stdin, selectors.EVENT_WRITE, _Input(node, process, text))
                inputs: List[_Input] = [key.data for key in selector.get_map().values()]
                if not inputs:
                    return
                ready = selector.select(max(0.0, min(node_input.seconds_left for node_input in inputs)))
                ended = [key.data for key, _ in ready if key.data.write()]
                late = [node_input for node_input in inputs if node_input not in ended and node_input.seconds_left <= 0]
                for node_input in (*ended, *late):
                    selector.unregister(node_input.process.stdin)
                for node_input in late:
                    self._give_up(node_input)

    def _give_up(self, node_input: _Input) -> None:
        """End the connection to a node that takes no input; a process that is stopped ends only by SIGKILL."""
        self.messages = [*self.messages[-19:], f"{node_input.node} took no input for {INPUT_LIMIT:.0f} s"]
        process = node_input.process
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
