"""Runs on a client node: starts the load generators of one phase, keeps their rows, ends them on time.

Standard library only (Python 3.6 and newer). `python3 agent.py FOLDER`; in FOLDER are plan.json (see `load.orders`),
env.json (the generators' secrets, deleted as soon as read) and, once the head says so, `go` (the instant at which the
timed jobs start, in this node's clock) or `stop`. Left in FOLDER: rows/<job>.csv.gz, stderr/<job>.txt and end.json.

Rows are flushed to the file every second. A generator is the agent's own child in a session of its own, dies with
the agent (PR_SET_PDEATHSIG), and is ended when the head is gone (our output is a closed pipe).
"""

import ctypes
import json
import os
import selectors
import signal
import sys
import time
import zlib
from subprocess import DEVNULL, PIPE, Popen

#: seconds between SIGTERM and SIGKILL
TERM_PATIENCE = 3.0
#: bytes of a generator's messages that are kept: it prints one for every failed request
STDERR_LIMIT = 1 << 20
#: seconds after which a job that found nothing to do looks again
LOOK_AGAIN = 30.0
#: seconds for `go` to come after we are ready; without it the head is gone
GO_PATIENCE = 600.0


def die_with_parent():
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


class Job:
    """One generator: its process (again and again when `respawn`), its rows and its counts."""

    def __init__(self, order, folder, env):
        self.order = order
        self.id = order["id"]
        self.env = env
        self.folder = os.path.join(folder, "work", self.id)
        os.makedirs(self.folder)
        self.rows = open(os.path.join(folder, "rows", self.id + ".csv.gz"), "wb", 0)
        self.stderr = open(os.path.join(folder, "stderr", self.id + ".txt"), "wb", 0)
        self.stderr_size = 0
        self.message = b""  # the end of what it has said
        self.packer = zlib.compressobj(1, zlib.DEFLATED, 31)
        self.packed_since_flush = False
        self.rest = b""
        self.process = None
        self.state = "waiting"  # prepare, running, done
        self.started = self.first_row = self.ended = self.terminated = None
        self.last_row = 0.0
        self.exit = self.signal = None
        self.cut = False
        self.passes = 0
        self.rows_in_pass = 0
        #: op -> [good, failed, bytes of the good ones, sum of their durations in ns, first and last seen at]
        self.counts = {}
        self.write("\t".join(order["columns"]).encode() + b"\n")

    def write(self, data):
        packed = self.packer.compress(data)
        self.packed_since_flush = True
        if packed:
            self.rows.write(packed)

    def flush(self):
        if self.packed_since_flush:
            self.rows.write(self.packer.flush(zlib.Z_SYNC_FLUSH))
            self.packed_since_flush = False

    def start(self, selector, duration, now):
        argv = [a.replace("{duration}", "%ds" % max(1, round(duration))) for a in self.order["argv"]]
        self.process = Popen(
            argv,
            stdin=DEVNULL,
            stdout=PIPE,
            stderr=PIPE,
            cwd=self.folder,
            env=self.env,
            start_new_session=True,
            preexec_fn=die_with_parent,
        )
        self.passes += 1
        self.rows_in_pass = 0
        self.state = "prepare" if self.first_row is None else "running"
        if self.started is None:
            self.started = now
        for pipe, reader in ((self.process.stdout, self.read_rows), (self.process.stderr, self.read_stderr)):
            os.set_blocking(pipe.fileno(), False)
            selector.register(pipe, selectors.EVENT_READ, reader)

    def read_rows(self, data):
        *lines, self.rest = (self.rest + data).split(b"\n")
        if lines:
            self.take(lines)

    def take(self, lines):
        self.write(b"\n".join(lines) + b"\n")
        now = self.last_row = time.time()
        if self.first_row is None:
            self.first_row = now
            self.state = "running"
        counts, seen = self.counts, set()
        for line in lines:
            cell = line.split(b"\t")
            if len(cell) < 13 or not cell[0].isdigit():
                continue  # the second line of a message with a line break
            op = cell[2].decode(errors="replace")
            count = counts.get(op)
            if count is None:
                count = counts[op] = [0, 0, 0, 0, now, now]
            seen.add(op)
            self.rows_in_pass += 1
            if cell[8]:
                count[1] += 1
            else:
                count[0] += 1
                try:
                    count[2] += int(cell[5])
                    count[3] += int(cell[12])
                except ValueError:
                    pass
        for op in seen:
            counts[op][5] = now

    def read_stderr(self, data):
        room = STDERR_LIMIT - self.stderr_size
        if room > 0:
            self.stderr.write(data[:room])
        self.stderr_size += len(data)
        self.message = (self.message + data)[-300:]

    def terminate(self, now):
        """SIGTERM, and SIGKILL after TERM_PATIENCE: call again until the process is gone."""
        if self.process is None or self.process.poll() is not None:
            return
        if self.terminated is None:
            self.terminated, self.cut = now, True
            self.kill(signal.SIGTERM)
        elif now > self.terminated + TERM_PATIENCE:
            self.kill(signal.SIGKILL)

    def kill(self, number):
        try:
            os.killpg(self.process.pid, number)
        except ProcessLookupError:
            pass

    def finish(self, now):
        """The process has ended and its output is read to the end."""
        code = self.process.returncode
        self.exit, self.signal = (code, None) if code >= 0 else (None, -code)
        self.process = None
        if self.rest:
            self.take([self.rest])
            self.rest = b""
        if code > 0 and self.order["respawn"] and not self.rows_in_pass:
            self.exit = 0  # warp fails when its listing is empty: that is nothing to do, not a fault
        self.ended = now
        self.state = "done"

    def close(self):
        self.rows.write(self.packer.flush(zlib.Z_FINISH))
        self.rows.close()
        if self.stderr_size > STDERR_LIMIT:
            self.stderr.write(b"\n... %d more bytes were dropped\n" % (self.stderr_size - STDERR_LIMIT))
        self.stderr.close()

    def began(self):
        """When its measurement began: a generator that first writes objects of its own says so by its rows."""
        measured = self.order["measures"]
        if measured is None:
            return self.first_row
        count = self.counts.get(measured)
        return count[4] if count else None

    def beat(self):
        return [self.state, self.last_row, self.counts, self.exit if self.signal is None else -self.signal]

    def report(self):
        return {
            "exit": self.exit,
            "signal": self.signal,
            "cut": self.cut,
            "started": self.started,
            "first_row": self.first_row,
            "last_row": self.last_row or None,
            "ended": self.ended,
            "passes": self.passes,
            "counts": self.counts,
            "message": " ".join(self.message.decode(errors="replace").split()),
        }


class Agent:
    def __init__(self, folder):
        self.folder = folder
        with open(os.path.join(folder, "plan.json")) as file:
            self.plan = json.load(file)
        secrets = os.path.join(folder, "env.json")
        with open(secrets) as file:
            env = dict(os.environ, **json.load(file))
        os.unlink(secrets)
        for name in ("rows", "stderr", "work"):
            os.makedirs(os.path.join(folder, name))
        self.selector = selectors.DefaultSelector()
        self.jobs = [Job(order, folder, env) for order in self.plan["jobs"]]
        self.early = [j for j in self.jobs if j.order["start"] == "early"]
        self.timed = [j for j in self.jobs if j.order["start"] == "go"]
        self.stopping = False
        self.went = None
        self.ready = False

    def say(self, **what):
        try:
            sys.stdout.write(json.dumps(what, separators=(",", ":")) + "\n")
            sys.stdout.flush()
        except (BrokenPipeError, OSError):
            self.stopping = True
            # what is still buffered must not fail again at exit
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)

    def asked(self, name):
        try:
            with open(os.path.join(self.folder, name)) as file:
                return file.read().strip()
        except OSError:
            return None

    def run(self):
        begun = time.time()
        for job in self.early:
            job.start(self.selector, self.plan["duration"], begun)
        next_second = begun + 1.0
        while True:
            now = time.time()
            if self.stopping or self.asked("stop") is not None:
                self.stopping = True
                for job in self.jobs:
                    job.terminate(now)
            elif self.went is None:
                self.prepare(now, begun)
            elif now >= self.went:
                self.drive(now)
            self.pump(0.05 if self.went is None or now < self.went else 0.2)
            self.collect(time.time())
            if now >= next_second:
                next_second += 1.0
                for job in self.jobs:
                    job.flush()
                self.say(t=now, jobs={j.id: j.beat() for j in self.jobs})
            if all(j.process is None for j in self.jobs) and (self.stopping or self.over(now)):
                break
        for job in self.jobs:
            job.close()
        end = {"stopped": self.stopping, "jobs": {j.id: j.report() for j in self.jobs}}
        with open(os.path.join(self.folder, "end.json"), "w") as file:
            json.dump(end, file)
        self.say(t=time.time(), end=end)

    def prepare(self, now, begun):
        """Until the head says `go`: tell it once that all readers have listed their objects."""
        if any(j.state == "done" for j in self.early):
            reasons = ["%s: %s" % (j.id, j.report()["message"]) for j in self.early if j.state == "done"]
            self.say(t=now, failed="a generator ended before the phase began: " + "; ".join(reasons))
            self.stopping = True
            return
        if not self.ready and all(j.state == "running" for j in self.early):
            self.ready = True
            self.say(t=now, ready=True)
        go = self.asked("go")
        if go:
            self.went = float(go)
        elif now > begun + GO_PATIENCE + self.plan["prepare_limit"]:
            self.stopping = True

    def drive(self, now):
        """After `go`: start the timed jobs, restart what may run again, end what is due."""
        duration = self.plan["duration"]
        for job in self.timed:
            if job.state == "waiting":
                job.start(self.selector, duration, now)
            elif job.state == "done" and job.order["respawn"] and self.may_respawn(job, now):
                job.start(self.selector, self.went + duration - now, now)
        busy = [j for j in self.timed if j.state != "done"]
        for job in busy:
            if duration and now > self.due(job):
                job.terminate(now)
        if not busy if self.timed else now >= self.went + duration:
            for job in self.early:
                job.terminate(now)

    def due(self, job):
        """When a timed job must have ended."""
        if job.order["prepares"]:
            begun = job.began() or self.went + self.plan["prepare_limit"]
        else:
            begun = self.went + self.plan["lead"]
        return begun + self.plan["duration"] + self.plan["grace"]

    def may_respawn(self, job, now):
        left = self.went + self.plan["duration"] - now
        fruitful = job.rows_in_pass > 0 or now > job.ended + LOOK_AGAIN
        return job.exit == 0 and not job.cut and fruitful and left > 2 * self.plan["lead"] + 1

    def over(self, now):
        return self.went is not None and now >= self.went and all(j.state == "done" for j in self.jobs)

    def pump(self, patience):
        for key, _ in self.selector.select(patience) if self.selector.get_map() else ():
            try:
                data = os.read(key.fd, 1 << 18)
            except BlockingIOError:
                continue
            if data:
                key.data(data)
            else:
                self.selector.unregister(key.fileobj)
                key.fileobj.close()
        if not self.selector.get_map():
            time.sleep(0.05)

    def collect(self, now):
        for job in self.jobs:
            process = job.process
            if process is not None and process.poll() is not None and process.stdout.closed and process.stderr.closed:
                job.finish(now)


def main(folder):
    agent = Agent(folder)

    def stop(*_):
        agent.stopping = True

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, stop)
    with open("/proc/self/stat") as file:
        started = file.read().rsplit(")", 1)[1].split()[19]
    with open(os.path.join(folder, "agent.pid"), "w") as file:
        file.write("%d %s" % (os.getpid(), started))
    agent.run()


if __name__ == "__main__":
    main(sys.argv[1])
