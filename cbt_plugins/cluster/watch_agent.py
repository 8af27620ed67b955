"""Runs on the head node: asks `ceph` for status and df, over and over, and prints both as one JSON line.

Standard library only. One `ceph` process and one connection for the whole phase: a new process for every sample would
cost 0.2 s of CPU each. Where `ceph` is a wrapper that does not pass its input on (cephadm shell), every sample is a
process of its own. Ends when standard input closes, with the process that it started.
"""

import json
import os
import select
import subprocess
import sys
import time

#: seconds without an answer after which the open `ceph` is given up
PATIENCE = 20.0


class OpenCeph:
    """One `ceph` that reads its commands from a pipe."""

    def __init__(self, command):
        self.process = subprocess.Popen(
            ["/bin/sh", "-c", "exec " + command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=dict(os.environ, PYTHONUNBUFFERED="1"),
        )

    def ask(self, question):
        self.process.stdin.write(question.encode() + b"\n")
        self.process.stdin.flush()
        text, deadline = b"", time.monotonic() + PATIENCE
        while select.select([self.process.stdout], [], [], max(0.0, deadline - time.monotonic()))[0]:
            data = os.read(self.process.stdout.fileno(), 1 << 20)
            if not data:
                break
            text += data
            if text.rstrip(b" ").endswith(b"\n"):
                try:
                    return json.loads(text.decode())
                except ValueError:
                    continue
        raise TimeoutError(question)

    def close(self):
        self.process.kill()
        self.process.wait()


def ask_once(command, question):
    """One process for one question."""
    line = "exec %s %s" % (command, question)
    out = subprocess.run(
        ["/bin/sh", "-c", line], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=60
    ).stdout
    return json.loads(out.decode())


def main(command, interval):
    source, failures = OpenCeph(command), 0
    try:
        while True:
            begun = time.time()
            try:
                if source:
                    status, df = source.ask("status"), source.ask("df")
                else:
                    status, df = ask_once(command, "status"), ask_once(command, "df")
                failures = 0
            except (TimeoutError, OSError, ValueError, subprocess.TimeoutExpired):
                failures += 1
                if source:
                    source.close()
                    source = OpenCeph(command) if failures < 3 else None
            else:
                sample = {"t": time.time(), "status": status, "df": df}
                print(json.dumps(sample, separators=(",", ":")), flush=True)
            if select.select([sys.stdin], [], [], max(0.1, begun + interval - time.time()))[0]:
                return
    except (BrokenPipeError, KeyboardInterrupt):
        os._exit(0)
    finally:
        if source:
            source.close()


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
