"""Who answers the sampler of the cluster's state: librados, or the `ceph` command: a part of its agent.

Standard library only, Python 3.6.
"""

# mypy: disallow-untyped-defs=False

import importlib
import json
import os
import select
import signal
import subprocess
import threading
import time

#: seconds for a process that answers one question
PROCESS_TIMEOUT = 60.0
#: failures in a row of a `ceph` that has never answered, after which each question has a process of its own
PIPE_FAILURES = 3


class NoReply(Exception):
    """A question was not answered; the text says why."""


class Librados:
    """Two persistent clients of the cluster: one for the monitors, one for the mgr.

    librados gives a question to the mgr up when its limit is reached, but writes a reply that comes later where the
    question was: a mgr that was paused twice ends the process (16.2.15). So the second client has no limit, and a
    thread waits for it.
    """

    name = "librados"
    interval = 0.25  # seconds between samples, unless the profile has others; an answer costs 1 ms

    def __init__(self, conf, timeout):
        self._rados, self._conf = importlib.import_module("rados"), conf
        self._timeout = max(1, int(timeout))  # from 18.2 on connect() refuses a float
        self._cluster = self._connected(rados_mon_op_timeout="%d" % self._timeout)
        self._of_mgr = None
        self._waits = None  # the thread of a question to the mgr that had no reply in time

    def _connected(self, **options):
        cluster = self._rados.Rados(conffile=self._conf)
        for option, value in dict(options, client_mount_timeout="%d" % self._timeout).items():
            cluster.conf_set(option, value)
        cluster.connect(timeout=self._timeout)
        return cluster

    def _ask(self, command, question):
        try:
            status, reply, text = command(json.dumps(dict(question, format="json")), b"")
        except self._rados.Error as error:
            raise NoReply(str(error)) from error
        if status:
            raise NoReply("%s: %s" % (question["prefix"], text or os.strerror(abs(status))))
        return _parsed(reply)

    def mon(self, question):
        return self._ask(self._cluster.mon_command, question)

    def mgr(self, question, timeout=None):
        if self._waits is not None and self._waits.is_alive():
            raise NoReply("%s: no reply to the question before" % question["prefix"])
        timeout, replies = timeout or self._timeout, []
        self._waits = threading.Thread(target=self._ask_mgr, args=(question, replies), daemon=True)
        self._waits.start()
        self._waits.join(timeout)
        if not replies:
            raise NoReply("%s: no reply for %g s" % (question["prefix"], timeout))
        if isinstance(replies[0], NoReply):
            raise replies[0]
        return replies[0]

    def _ask_mgr(self, question, replies):
        """Append the reply, or the NoReply."""
        try:
            if self._of_mgr is None:
                self._of_mgr = self._connected(rados_mon_op_timeout="0")
            replies.append(self._ask(self._of_mgr.mgr_command, question))
        except NoReply as error:
            replies.append(error)
        except self._rados.Error as error:
            replies.append(NoReply(str(error)))

    def close(self):
        """Do nothing: a shutdown may wait for a monitor that does not come, and ends with this process."""


class CephCommand:
    """The `ceph` command: one process that reads its questions from a pipe.

    A wrapper that does not pass its input on (cephadm shell) never answers: then a process for each question.
    """

    name = "ceph"
    interval = 1.0  # an answer costs 85 ms of a processor

    def __init__(self, command, timeout):
        self._command, self._timeout = command, timeout
        self._process = None
        self._answered, self._failures = False, 0

    def _open(self):
        self._process = subprocess.Popen(
            ["/bin/sh", "-c", "exec %s -f json" % self._command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,  # a question that ceph did not read is not written again by close
            # else its replies would stay in a buffer of 8 KiB
            env=dict(os.environ, PYTHONUNBUFFERED="1"),
        )

    def mon(self, question, timeout=None):
        words = [question["prefix"]]
        for value in (v for k, v in question.items() if k != "prefix"):
            words += [str(v) for v in (value if isinstance(value, list) else [value])]
        line = " ".join(words)
        if not self._answered and self._failures >= PIPE_FAILURES:
            return self._ask_once(line)
        if self._process is None:
            self._open()
        try:
            reply = self._ask(line, timeout or self._timeout)
        except NoReply:
            self._failures += 1
            self.close()  # what it may still say would be taken for the reply to the next question
            raise
        self._answered = True
        return reply

    mgr = mon

    def _ask(self, line, timeout):
        before = signal.signal(signal.SIGPIPE, signal.SIG_IGN)  # the end of ceph is not that of the agent
        try:
            self._process.stdin.write(line.encode() + b"\n")
        except OSError as error:
            raise NoReply("ceph has ended: %s" % error) from error
        finally:
            signal.signal(signal.SIGPIPE, before)
        # no bytes, which each piece would copy: the reply of 10,000 OSDs has 270 MB
        text, errors, until = bytearray(), b"", time.monotonic() + timeout
        out, err = self._process.stdout, self._process.stderr
        files = [out, err]
        while True:
            ready = select.select(files, [], [], max(0.0, until - time.monotonic()))[0]
            if not ready:
                raise NoReply("%s: no reply for %g s" % (line, timeout))
            if err in ready:
                data = os.read(err.fileno(), 1 << 16)
                files = files if data else [out]
                errors += data
                # all that it says of a question that is refused
                for message in errors.splitlines(True):
                    if message.startswith(b"Error ") and message.endswith(b"\n"):
                        raise NoReply("%s: %s" % (line, message.decode(errors="replace").strip()))
            if out not in ready:
                continue
            data = os.read(out.fileno(), 1 << 20)
            if not data:
                raise NoReply("ceph has ended")
            text += data
            if data.rstrip(b" ").endswith(b"\n") and not text.isspace():
                try:
                    return _parsed(text)
                except NoReply:
                    continue

    def _ask_once(self, line):
        words = ["/bin/sh", "-c", "exec %s -f json %s" % (self._command, line)]
        try:
            result = subprocess.run(
                words,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                timeout=PROCESS_TIMEOUT,
            )
        except subprocess.TimeoutExpired:
            raise NoReply("%s: no reply for %g s" % (line, PROCESS_TIMEOUT)) from None
        messages = result.stderr.decode(errors="replace").splitlines()
        if messages and not result.stdout.strip():
            raise NoReply("%s: %s" % (line, messages[-1]))
        return _parsed(result.stdout)

    def close(self):
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
                try:
                    pipe.close()
                except OSError:
                    pass
            self._process = None


def _parsed(reply):
    try:
        return json.loads(reply.decode())
    except ValueError:
        raise NoReply("the reply is not JSON") from None


def source_of(settings, timeout):
    """Return (source, why it is not librados although that was asked for)."""
    if not settings.get("librados"):
        return CephCommand(settings["ceph"], timeout), None
    try:
        return Librados(settings["conf"], timeout), None
    except Exception as error:
        if type(error).__name__ == "TimedOut":
            raise NoReply(str(error)) from error
        return CephCommand(settings["ceph"], timeout), "%s: %s" % (type(error).__name__, error)
