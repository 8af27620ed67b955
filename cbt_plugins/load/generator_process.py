"""Generator process of a client's agent: its process, the cbt-rows that takes its rows, and what both say.

Standard library only (Python 3.6 and newer): it is sent to the nodes with `client_agent.py`.
"""

import ctypes
import json
import os
import signal
import time
from contextlib import suppress
from subprocess import DEVNULL, PIPE, Popen

#: seconds between SIGTERM and SIGKILL: cbt-load waits up to 5 s for its workers, 1.5 s for answers, 5 s for its reader;
#: then its state of the objects must come to a disk, which may be busy
TERM_TIMEOUT = 60.0
#: bytes of a generator's messages that are kept: it prints one for every failed request
STDERR_LIMIT = 1 << 20
#: where a count of cbt-rows has the end of the first row; see load.generator.Counts for the others
FIRST_ROW = 4
#: bytes of the end of a generator's messages that go into its report
MESSAGE_LENGTH = 300


def die_with_parent():
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


class Lines:
    """Whole lines of a pipe."""

    def __init__(self, take):
        self.take = take
        self.pieces = []  # of the line whose end has not come

    def feed(self, data):
        lines = data.split(b"\n")
        self.pieces.append(lines[0])
        if len(lines) > 1:
            # joined once: an order with the state of many objects is a line of many megabytes
            lines[0] = b"".join(self.pieces)
            self.pieces = [lines.pop()]
            for line in lines:
                self.take(line)

    def end(self):
        line = b"".join(self.pieces)
        if line:
            self.take(line)


class Reducer:
    """The cbt-rows of one job: `pipe` is where the generator writes; `last_message` is what it said last."""

    def __init__(self, argv, folder, watch):
        self.aggregates = argv[argv.index("-o") + 1]
        # its messages go to a file: a pipe that nobody reads would stop it
        self.messages = os.path.join(folder, "reducer.txt")
        with open(self.messages, "wb") as file:
            self.process = Popen(argv, stdin=PIPE, stdout=PIPE, stderr=file, cwd=folder, start_new_session=True)
        self.pipe = self.process.stdin
        self.last_message = {"t": 0.0, "rows": 0, "last": 0.0, "counts": {}}
        self.ended = False
        self.sent = 0  # bytes of its aggregates that the head has
        watch(self.process.stdout, Lines(self.take))

    def take(self, line):
        with suppress(ValueError):
            self.last_message = json.loads(line.decode())

    def new_aggregates(self, limit):
        """Return up to so many bytes of its aggregates that the head has not got yet."""
        try:
            with open(self.aggregates, "rb") as file:
                file.seek(self.sent)
                return file.read(limit)
        except OSError:
            return b""

    def close(self):
        """Tell it that no more rows will come: it writes what it has and ends."""
        if not self.pipe.closed:
            self.pipe.close()

    def poll(self):
        if not self.ended and self.process.poll() is not None and self.process.stdout.closed:
            self.ended = True
        return self.ended

    def error(self):
        """Return the reason why its aggregates are not whole, None when they are."""
        if self.last_message.get("end") and self.process.returncode == 0:
            return None
        with open(self.messages, errors="replace") as file:
            message = file.read()[-MESSAGE_LENGTH:].strip() or self.last_message.get("lost", "")
        return "cbt-rows ended with status %s: %s" % (self.process.returncode, message)


class GeneratorProcess:
    """One generator: its process (again and again when `respawn`), its reducer and what it says."""

    def __init__(self, order, folder, env, watch):
        self.order = order
        self.id = order["id"]
        self.env = env
        self.watch = watch
        self.folder = os.path.join(folder, "work", self.id)
        os.makedirs(self.folder)
        self.stderr = open(os.path.join(folder, "stderr", self.id + ".txt"), "wb", 0)
        self.stderr_size = 0
        self.message = b""  # the end of what it has said
        self.reducer = Reducer(order["reduce"], self.folder, watch)
        self.process = None
        self.state = "waiting"  # prepare, running, done
        self.started = self.gone = self.ended = self.terminated = None
        self.told_gone = 0.0  # by the clock that cbt-rows goes by
        self.exit = self.signal = None
        self.cut = False
        self.passes = 0
        self.rows_before = 0  # of earlier passes
        self.ready = False
        self.beat_event = None
        self.end_event = None

    @property
    def counts(self):
        """Return op -> [good, failed, bytes of the good ones, sum of their durations in ns, first and last seen at]"""
        return self.reducer.last_message["counts"]

    @property
    def first_row(self):
        return min([count[FIRST_ROW] for count in self.counts.values()] or [0]) or None

    @property
    def rows_in_pass(self):
        return self.reducer.last_message["rows"] - self.rows_before

    def start(self, duration, now):
        argv = [a.replace("{duration}", "%ds" % max(1, round(duration))) for a in self.order["argv"]]
        self.rows_before = self.reducer.last_message["rows"]
        self.process = Popen(
            argv,
            stdin=DEVNULL,
            stdout=self.reducer.pipe,
            stderr=PIPE,
            cwd=self.folder,
            env=self.env,
            start_new_session=True,
            preexec_fn=die_with_parent,
        )
        self.gone = None
        self.passes += 1
        self.state = "prepare" if self.passes == 1 else "running"
        if self.started is None:
            self.started = now
        self.watch(self.process.stderr, Lines(self.read_line))

    def read_line(self, line):
        # other generators have no events: what looks like one is a server's text
        if line.startswith(b'{"event":') and self.order["start"] == "self":
            try:
                self.take_event(json.loads(line.decode()))
                return
            except (ValueError, KeyError):
                pass
        line += b"\n"
        room = STDERR_LIMIT - self.stderr_size
        if room > 0:
            with suppress(OSError):  # a full disk; the end of it is in the report
                self.stderr.write(line[:room])
        self.stderr_size += len(line)
        self.message = (self.message + line)[-MESSAGE_LENGTH:]

    def take_event(self, event):
        """Take what cbt-load says of itself."""
        kind = event.pop("event")
        if kind == "ready":
            self.ready = True
        elif kind == "beat":
            self.beat_event = event
        elif kind == "end":
            self.end_event = event
        elif kind == "failed":
            self.message = event["text"].encode()

    def end_or_kill(self, now):
        """Send SIGTERM, and SIGKILL after TERM_TIMEOUT: call it again until the process is gone."""
        if self.process is None or self.process.poll() is not None:
            return
        if self.terminated is None:
            self.terminated, self.cut = now, True
            self.send_signal(signal.SIGTERM)
        elif now > self.terminated + TERM_TIMEOUT:
            self.send_signal(signal.SIGKILL)

    def send_signal(self, number):
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)

    def collect(self, now):
        """Follow the process: it is done when it is gone and its last rows have been counted."""
        if self.state == "prepare" and (self.ready or self.rows_in_pass > 0):
            self.state = "running"
        if self.process is not None and self.process.poll() is not None and self.process.stderr.closed:
            code = self.process.returncode
            self.exit, self.signal = (code, None) if code >= 0 else (None, -code)
            self.process = None
            self.gone, self.told_gone = now, time.time()
            if not self.order["respawn"]:
                self.reducer.close()  # its last word comes at once, not with its next beat
        if self.gone is not None and (self.reducer.last_message["t"] > self.told_gone or self.reducer.poll()):
            if self.exit and self.order["respawn"] and not self.rows_in_pass:
                self.exit = 0  # warp fails when its listing is empty: that is nothing to do, and no error
            self.ended, self.gone = self.gone, None
            self.state = "done"

    @property
    def busy(self):
        return self.process is not None or self.gone is not None

    def close(self):
        with suppress(OSError):
            if self.stderr_size > STDERR_LIMIT:
                self.stderr.write(b"\n... %d more bytes were dropped\n" % (self.stderr_size - STDERR_LIMIT))
        self.stderr.close()

    def began(self):
        """Return the begin of its measurement: a generator that first writes its own objects says so by its rows."""
        measured = self.order["measures"]
        if measured is None:
            return self.first_row
        count = self.counts.get(measured)
        return count[FIRST_ROW] if count else None

    def beat(self, now):
        exit = None if self.cut else self.exit if self.signal is None else -self.signal
        return {
            "state": self.state,
            "last_row": self.reducer.last_message["last"],
            "counts": self.counts,
            # what has ended counts no further
            "counted_at": now if self.state == "done" else self.reducer.last_message["t"],
            "exit": exit,
            "driver": self.beat_event,
            "error": self.reducer.last_message.get("error", ""),
            "lost": self.reducer.last_message.get("lost", ""),
        }

    def report(self):
        return {
            "exit": self.exit,
            "signal": self.signal,
            "cut": self.cut,
            "started": self.started,
            "first_row": self.first_row,
            "last_row": self.reducer.last_message["last"] or None,
            "ended": self.ended,
            "passes": self.passes,
            "counts": self.counts,
            "message": " ".join(self.message.decode(errors="replace").split()),
            "driver_end": self.end_event,
            "reducer": self.reducer.error() if self.reducer.ended else None,
        }
