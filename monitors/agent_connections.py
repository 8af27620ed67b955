"""Runs beside a run: keeps one connection to each node of a monitor open, until its standard input closes.

A process of its own, standard library only: CBT's recovery test allows no threads. Its first line of input is
{"name", "program": text, "output": path on the nodes, "nodes": {node: {"command": command line, "lost": [exit statuses
of it that are not the program's], "files": [paths here]}}}. Each command gets the program on its standard input, which
stays open; a connection that is lost is made anew. Its output and its errors are appended to the two "files", where
there are any. A program that does not run on a node is told on standard error, and bytes that do not fit into a file.
At the end it prints {"lost": {node: number of lost connections}, "failed": {node: why}, "dropped": {node: bytes}}.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import itertools
import json
import math
import os
import selectors
import signal
import subprocess
import sys
import time
from typing import Any, Dict, List, Mapping, Optional, Tuple

#: seconds until a lost connection is made anew, doubled up to the second one
PAUSE, LONGEST = 0.5, 30.0
#: seconds from one look to the next while one is lost; else the end of a process wakes this one
LOOK = 0.25
#: the same after a login, when another may begin
SOON = 0.02
#: connections that may be in their login, which takes CPU time on this machine, at once. One that takes longer than
#: LOGIN seconds waits for a silent node, and keeps no other from beginning. Fewer and longer than for commands (the
#: module fan_out): each monitor has a process of its own, and the run waits for none
AT_ONCE, LOGIN = 32 * len(os.sched_getaffinity(0)), 10.0
#: ends in short order after which a program is taken for one that does not run there
FAILURES = 3
#: seconds that all programs have for their last line
LAST_LINE = 8.0
#: bytes of one read, of a line (readers take 64 MiB) and of a file here: a node may send them without end
CHUNK, LONGEST_LINE, LARGEST_FILE = 1 << 16, 32 << 20, 1 << 30
#: opens a file of the archive as the module archive_files does: no link is followed, and no FIFO is waited for
_APPEND = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class Output:
    """A file of the archive that gets what one pipe of a node's connections brings."""

    def __init__(self, path: str) -> None:
        self._path, self._file = path, -1
        self._line_size = 0  # bytes of the newest line
        self._begins_line = True
        self._skips_line = False  # up to its end
        self.dropped = 0  # bytes

    def append(self, data: bytes) -> None:
        """Write at the end; lines that do not fit are dropped, as the numbers of the lines show later."""
        if self._skips_line:
            begin = data.find(b"\n") + 1
            self._skips_line = not begin
            self.dropped += begin or len(data)
            data = data[begin:] if begin else b""
        if data:
            self._append(data)

    def _append(self, data: bytes) -> None:
        written, why = 0, os.strerror(errno.ENOSPC)
        try:
            written = self._write(data)
        except OSError as error:
            why = error.strerror or why
        if written < len(data):
            if not self.dropped:
                _warn(f"{self._path}: {why}: what comes from the node is dropped")
            self.dropped += len(data) - written
            self._begins_line, self._skips_line = True, not data.endswith(b"\n")

    def begin_line(self) -> None:
        """End a line that the end of a connection has torn: it must not take the next one with it."""
        self._begins_line, self._skips_line = True, False

    def _write(self, data: bytes) -> int:
        """Return the number of bytes that the file has taken. Raises OSError."""
        if self._file < 0:
            self._file = os.open(self._path, _APPEND, 0o644)
        size = os.lseek(self._file, 0, os.SEEK_END)  # a FIFO has none, and raises
        if size > LARGEST_FILE - CHUNK:
            raise OSError(errno.EFBIG, f"has {LARGEST_FILE >> 20} MiB")
        begun = 0 if self._begins_line else self._line_size
        if begun > LONGEST_LINE:
            raise OSError(errno.EFBIG, f"has a line of {LONGEST_LINE >> 20} MiB")
        torn = self._begins_line and size > 0 and os.pread(self._file, 1, size - 1) != b"\n"
        written = os.write(self._file, b"\n" * torn + data) - torn
        self._begins_line = False
        newest = len(data) - 1 - data.rfind(b"\n")
        self._line_size = newest if newest < len(data) else begun + newest
        return written


class Connection:
    """A command that reaches one node."""

    def __init__(self, about: Mapping[str, Any], program: bytes, selector: selectors.BaseSelector) -> None:
        self._command, self._lost_statuses, self._program = about["command"], about["lost"], program
        self._outputs = [Output(path) for path in about.get("files", ())]
        self._selector = selector
        self._process: Optional[subprocess.Popen[bytes]] = None
        self._unsent = b""  # of the program
        self._closing = False
        self._again, self._pause = 0.0, PAUSE
        self._since = 0.0
        self._has_answered = False  # since it is open
        self.lost = 0
        self.failures, self.status = 0, 0  # one after the other; exit status of the last one

    def keep(self, now: float, may_open: bool) -> None:
        """Open it if it is not open and `may_open`; after a short life only when a pause is over."""
        if self._process is not None and self._process.poll() is not None:
            self.status, short = self._process.returncode, now - self._since <= LONGEST
            self._drop()
            self.lost += 1
            # by a signal: somebody has replaced it
            by_itself = self.status > 0 and self.status not in self._lost_statuses
            self.failures = self.failures + 1 if short and by_itself else 0
            self._pause = min(2 * self._pause, LONGEST) if short else PAUSE
            self._again = now + self._pause
        if self._process is None and now >= self._again and may_open:
            self._since, self._has_answered = now, False
            self._open()

    def logs_in(self, now: float) -> bool:
        """Return whether it is in its login."""
        return self._process is not None and not self._has_answered and now - self._since < LOGIN

    def _open(self) -> None:
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE if self._outputs else subprocess.DEVNULL,
            start_new_session=True,  # the agent here must lead its group, as one behind sshd does
        )
        for output in self._outputs:
            output.begin_line()
        for pipe, taker in self._pipes():
            os.set_blocking(pipe, False)
            self._selector.register(pipe, selectors.EVENT_READ, functools.partial(self._hear, pipe, taker))
        assert self._process.stdin is not None
        pipe = self._process.stdin.fileno()
        os.set_blocking(pipe, False)
        self._unsent = self._program
        self._selector.register(pipe, selectors.EVENT_WRITE, functools.partial(self._send, pipe))

    def _send(self, pipe: int) -> None:
        """Send of the program what the pipe takes: a node that does not read it holds up no other node."""
        if pipe not in self._selector.get_map():
            return  # closed since it became ready
        try:
            sent = os.write(pipe, self._unsent)
        except BlockingIOError:
            return
        except OSError:  # the command has ended
            sent = len(self._unsent)
        self._unsent = self._unsent[sent:]
        if not self._unsent:
            self._selector.unregister(pipe)
            if self._closing:
                self._close_input()

    def _pipes(self) -> List[Tuple[int, Optional[Output]]]:
        """Return the descriptors of its output and its errors, each with the file that gets what comes."""
        assert self._process is not None and self._process.stdout is not None
        pipes = [pipe.fileno() for pipe in (self._process.stdout, self._process.stderr) if pipe is not None]
        return list(itertools.zip_longest(pipes, self._outputs))

    def _hear(self, pipe: int, output: Optional[Output]) -> bool:
        """Keep what has come; return whether it is the end of the login."""
        logged_in = self._has_answered
        self._read(pipe, output)
        return self._has_answered and not logged_in

    def _read(self, pipe: int, output: Optional[Output]) -> bool:
        """Keep what has come; return whether more may come at once."""
        try:
            data = os.read(pipe, CHUNK)
        except BlockingIOError:
            return False
        self._has_answered = True  # also by the end of the output
        if data:
            if output is not None:
                output.append(data)
        elif pipe in self._selector.get_map():
            self._selector.unregister(pipe)  # it is closed: it would be ready all the time
        return bool(data)

    @property
    def open(self) -> bool:
        return self._process is not None

    @property
    def runs(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def dropped(self) -> int:
        """The bytes that did not fit into a file."""
        return sum(output.dropped for output in self._outputs)

    def close(self) -> None:
        """Close its standard input: that ends the program there, which writes its last line once it is whole."""
        self._closing = True
        if not self._unsent:
            self._close_input()

    def _close_input(self) -> None:
        if self._process is None or self._process.stdin is None or self._process.stdin.closed:
            return
        if self._process.stdin.fileno() in self._selector.get_map():
            self._selector.unregister(self._process.stdin)
        with contextlib.suppress(OSError):
            self._process.stdin.close()

    def end(self) -> None:
        """Kill the connection if it still runs, and keep the last of its output."""
        if self._process is not None:
            if self._process.poll() is None:
                self._process.kill()
                self._process.wait()
            self._drop()

    def _drop(self) -> None:
        self._unsent = b""
        self._close_input()
        assert self._process is not None
        for pipe, output in self._pipes():
            for _ in iter(functools.partial(self._read, pipe, output), False):
                pass
            if pipe in self._selector.get_map():
                self._selector.unregister(pipe)
        for file in (self._process.stdout, self._process.stderr):
            if file is not None:
                file.close()
        self._process = None


def main() -> None:
    text = b""
    while not text.endswith(b"\n"):
        data = os.read(0, CHUNK)
        if not data:
            return
        text += data
    wanted = json.loads(text)
    program, selector = wanted["program"].encode(), selectors.DefaultSelector()
    connections = {node: Connection(about, program, selector) for node, about in wanted["nodes"].items()}
    wake, woken = os.pipe()
    for end in (wake, woken):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    selector.register(0, selectors.EVENT_READ)
    selector.register(wake, selectors.EVENT_READ)
    failed: Dict[str, str] = {}
    # when to look at all connections next, and when to end, once the input has closed
    look, until = 0.0, math.inf
    while until == math.inf or (any(each.runs for each in connections.values()) and time.monotonic() < until):
        now = time.monotonic()
        if until == math.inf and now >= look:
            keep_open(connections, now, wanted, failed)
            look = math.inf if all(connection.open for connection in connections.values()) else now + LOOK
        left = min(look, until) - now
        for key, _ in selector.select(None if left == math.inf else max(0.0, left)):
            if key.data is not None:
                look = min(look, now + SOON) if key.data() and look != math.inf else look
            elif key.fd == wake:
                os.read(wake, 4096)
                look = 0.0 if until == math.inf else look
            elif not os.read(0, 4096):
                selector.unregister(0)
                look, until = math.inf, time.monotonic() + LAST_LINE
                for connection in connections.values():
                    connection.close()
    for connection in connections.values():
        connection.end()
    lost = {node: connection.lost for node, connection in connections.items()}
    dropped = {node: connection.dropped for node, connection in connections.items() if connection.dropped}
    print(json.dumps({"lost": lost, "failed": failed, "dropped": dropped}), flush=True)


def keep_open(
    connections: Mapping[str, Connection], now: float, wanted: Mapping[str, Any], failed: Dict[str, str]
) -> None:
    """Keep all connections open, and note in `failed` the nodes on which the program does not run."""
    free = AT_ONCE - sum(connection.logs_in(now) for connection in connections.values())
    for node, connection in connections.items():
        was_open = connection.open
        connection.keep(now, free > 0)
        free -= connection.open and not was_open
        if connection.failures == FAILURES and node not in failed:
            why = f"the agent ended {FAILURES} times at once, exit status {connection.status}"
            files = wanted["nodes"][node].get("files")
            failed[node] = f"{why}; see {files[1]}" if files else f"{why}; see {wanted['output']} there"
            _warn(f"{wanted['name']}: its agent does not run on {node}: {failed[node]}")


def _warn(text: str) -> None:
    """Write a line as the log has them: the log itself is another process's, which has no thread to wait for this."""
    with contextlib.suppress(OSError):
        print(f"{time.strftime('%H:%M:%S')} - WARNING  - cbt_plugins.monitors - {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
