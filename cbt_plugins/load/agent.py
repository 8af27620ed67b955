"""Agent on a client node: starts the load generators of a phase, has their rows reduced, ends them on time.

Standard library only (Python 3.6 and newer). Orders are lines of JSON on standard input, one phase after the other:
{"load": {...}} begins one (see `LoadSession.start`), {"go": SECONDS} is the instant at which its timed jobs start, in
this node's clock, {"stop": true} ends it early, {"remove": FOLDER} removes what is left of it. Left in its folder:
aggregates/, rows/ (when they are kept), state/, stderr/<job>.txt and end.json. The generators' secrets are in their
environment and nowhere else.

A generator writes its rows into the pipe of a cbt-rows, which turns them into aggregates and says once a second what it
has seen. A generator is the agent's own child in a session of its own, dies with the agent (PR_SET_PDEATHSIG), and is
ended when the run is gone: our input has ended, our output is a closed pipe, a signal came, or somebody made the file
`stop` in the folder. Then the agent ends, too. A load without `go` within GO_TIMEOUT is ended; an agent without a load
for IDLE_TIMEOUT ends. cbt-rows ends when its input does.
"""

import base64
import ctypes
import json
import os
import selectors
import shutil
import signal
import sys
import time
from contextlib import suppress
from subprocess import DEVNULL, PIPE, Popen

#: seconds between SIGTERM and SIGKILL: cbt-load waits up to 5 s for its workers, 1.5 s for answers, 5 s for its reader
TERM_TIMEOUT = 15.0
#: bytes of a generator's messages that are kept: it prints one for every failed request
STDERR_LIMIT = 1 << 20
#: seconds after which a job that found nothing to do looks again
LOOK_AGAIN = 30.0
#: seconds for `go` to come after we are ready; without it the run is gone
GO_TIMEOUT = 600.0
#: seconds without a phase after which an agent ends: its connection may hang. A run that is there starts another one
IDLE_TIMEOUT = 600.0
#: where a count of cbt-rows has the end of the first row; see load.generator.Counts for the others
FIRST_ROW = 4
#: where /proc/PID/stat has the start time, counted from the state, which follows the name in parentheses
START_TIME = 19
#: bytes of the end of a generator's messages that go into its report
MESSAGE_LENGTH = 300
#: bytes that are read from a pipe at once
READ_SIZE = 1 << 18
#: seconds to wait for output: until all have started, afterwards, and between two phases
STARTING_WAIT, RUNNING_WAIT, IDLE_WAIT = 0.05, 0.2, 1.0
#: seconds for cbt-rows to end after its input has
REDUCE_TIMEOUT = 60.0


def die_with_parent():
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def born(pid):
    """Return when a process started, as /proc counts it: pids are used again, a pid and its start time are not."""
    with open("/proc/%d/stat" % pid) as file:
        return file.read().rsplit(")", 1)[1].split()[START_TIME]


class Lines:
    """Whole lines of a pipe."""

    def __init__(self, take):
        self.take = take
        self.rest = b""

    def feed(self, data):
        *lines, self.rest = (self.rest + data).split(b"\n")
        for line in lines:
            self.take(line)

    def end(self):
        if self.rest:
            self.take(self.rest)


class Reducer:
    """The cbt-rows of one job: `pipe` is where the generator writes; `said` is what it said last."""

    def __init__(self, argv, folder, watch):
        # its messages go to a file: a pipe that nobody reads would stop it
        self.messages = os.path.join(folder, "reducer.txt")
        with open(self.messages, "wb") as file:
            self.process = Popen(argv, stdin=PIPE, stdout=PIPE, stderr=file, cwd=folder, start_new_session=True)
        self.pipe = self.process.stdin
        self.said = {"t": 0.0, "rows": 0, "last": 0.0, "counts": {}}
        self.ended = False
        watch(self.process.stdout, Lines(self.take))

    def take(self, line):
        with suppress(ValueError):
            self.said = json.loads(line.decode())

    def close(self):
        """Tell it that no more rows will come: it writes what it has and ends."""
        if not self.pipe.closed:
            self.pipe.close()

    def poll(self):
        if not self.ended and self.process.poll() is not None and self.process.stdout.closed:
            self.ended = True
        return self.ended

    def error(self):
        """Return why its aggregates are not whole, None when they are."""
        if self.said.get("end") and self.process.returncode == 0:
            return None
        with open(self.messages, errors="replace") as file:
            said = file.read()[-MESSAGE_LENGTH:].strip() or self.said.get("lost", "")
        return "cbt-rows ended with status %s: %s" % (self.process.returncode, said)


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
        return self.reducer.said["counts"]

    @property
    def first_row(self):
        return min([count[FIRST_ROW] for count in self.counts.values()] or [0]) or None

    @property
    def rows_in_pass(self):
        return self.reducer.said["rows"] - self.rows_before

    def start(self, duration, now):
        argv = [a.replace("{duration}", "%ds" % max(1, round(duration))) for a in self.order["argv"]]
        self.rows_before = self.reducer.said["rows"]
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
        if line.startswith(b'{"event":'):
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

    def terminate(self, now):
        """Send SIGTERM, and SIGKILL after TERM_TIMEOUT: call it again until the process is gone."""
        if self.process is None or self.process.poll() is not None:
            return
        if self.terminated is None:
            self.terminated, self.cut = now, True
            self.kill(signal.SIGTERM)
        elif now > self.terminated + TERM_TIMEOUT:
            self.kill(signal.SIGKILL)

    def kill(self, number):
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
        if self.gone is not None and (self.reducer.said["t"] > self.told_gone or self.reducer.poll()):
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
        """Return when its measurement began: a generator that first writes its own objects says so by its rows."""
        measured = self.order["measures"]
        if measured is None:
            return self.first_row
        count = self.counts.get(measured)
        return count[FIRST_ROW] if count else None

    def beat(self):
        exit = self.exit if self.signal is None else -self.signal
        return {
            "state": self.state,
            "last_row": self.reducer.said["last"],
            "counts": self.counts,
            "exit": exit,
            "driver": self.beat_event,
            "error": self.reducer.said.get("error", ""),
            "lost": self.reducer.said.get("lost", ""),
        }

    def report(self):
        return {
            "exit": self.exit,
            "signal": self.signal,
            "cut": self.cut,
            "started": self.started,
            "first_row": self.first_row,
            "last_row": self.reducer.said["last"] or None,
            "ended": self.ended,
            "passes": self.passes,
            "counts": self.counts,
            "message": " ".join(self.message.decode(errors="replace").split()),
            "driver_end": self.end_event,
            "reducer": self.reducer.error() if self.reducer.ended else None,
        }


class Load:
    """The generators of one phase."""

    def __init__(self, agent, order):
        self.agent = agent
        self.order = order
        self.folder = order["folder"]
        for name in ("aggregates", "rows", "spec", "state", "stderr", "work"):
            os.makedirs(os.path.join(self.folder, name))
        for name, content in order["files"].items():
            with open(os.path.join(self.folder, "spec", name), "wb") as file:
                file.write(base64.b64decode(content))
        env = dict(os.environ, **order["environment"])
        self.jobs = [GeneratorProcess(its, self.folder, env, agent.watch) for its in order["jobs"]]
        self.early = [j for j in self.jobs if j.order["start"] == "early"]
        self.timed = [j for j in self.jobs if j.order["start"] == "go"]
        self.alone = [j for j in self.jobs if j.order["start"] == "self"]
        self.stopping = False
        self.went = None
        self.ready = False
        self.clock = time.time() - time.monotonic()
        with open(os.path.join(self.folder, "pids"), "w") as file:
            for pid in [os.getpid()] + [j.reducer.process.pid for j in self.jobs]:
                file.write("%d %s\n" % (pid, born(pid)))

    def go(self, at):
        """Take the instant, in this node's clock, from the head; its file is what cbt-load waits for."""
        draft = os.path.join(self.folder, "go.part")
        with open(draft, "w") as file:
            file.write(repr(at))
        os.rename(draft, os.path.join(self.folder, "go"))
        self.went = at

    def now(self):
        """Return the time by this node's clock as it was at the begin: a step of it must not end or stall the load."""
        return self.clock + time.monotonic()

    def run(self):
        begun = self.now()
        for job in self.early + self.alone:
            job.start(self.order["duration"], begun)
        next_second = begun + 1.0
        while True:
            now = self.now()
            if os.path.exists(os.path.join(self.folder, "stop")):
                self.agent.ending = True
            if self.stopping or self.agent.ending:
                self.stopping = True
                for job in self.jobs:
                    job.terminate(now)
            elif self.went is None:
                self.prepare(now, begun)
            elif now >= self.went:
                self.drive(now)
            self.agent.pump(STARTING_WAIT if self.went is None or now < self.went else RUNNING_WAIT)
            for job in self.jobs:
                job.collect(self.now())
            if now >= next_second:
                next_second += 1.0
                self.agent.mention(t=now, jobs={j.id: j.beat() for j in self.jobs})
            if not any(j.busy for j in self.jobs) and (self.stopping or self.over(now)):
                break
        self.finish()

    def finish(self):
        """Let the reducers end when all generators have ended, and say how everything went."""
        for job in self.jobs:
            job.reducer.close()
        until = self.now() + REDUCE_TIMEOUT
        while not all([j.reducer.poll() for j in self.jobs]):
            if self.now() > until:
                for job in self.jobs:
                    if not job.reducer.poll():
                        job.reducer.process.kill()
                until += REDUCE_TIMEOUT
            self.agent.mention(t=self.now())  # the head gives up a node that says nothing
            self.agent.pump(RUNNING_WAIT)
        for job in self.jobs:
            job.close()
        end = {"stopped": self.stopping, "jobs": {j.id: j.report() for j in self.jobs}}
        with suppress(OSError), open(os.path.join(self.folder, "end.json"), "w") as file:
            json.dump(end, file)  # on a full disk there is none: the head still hears it
        self.agent.say(t=self.now(), end=end)

    def prepare(self, now, begun):
        """Wait until the head says `go`: tell it once that all readers have listed their objects."""
        waiting = self.early + self.alone
        done = [j for j in waiting if j.state == "done"]
        if done:
            reasons = ["%s: %s" % (j.id, j.report()["message"]) for j in done]
            self.agent.say(t=now, failed="a generator ended before the phase began: " + "; ".join(reasons))
            self.stopping = True
            return
        if not self.ready and all(j.state == "running" for j in waiting):
            self.ready = True
            self.agent.say(t=now, ready=True)
        elif now > begun + GO_TIMEOUT + self.order["prepare_limit"]:
            self.stopping = True

    def drive(self, now):
        """Start the timed jobs after `go`, restart what may run again, end what is due."""
        duration = self.order["duration"]
        for job in self.timed:
            if job.state == "waiting":
                job.start(duration, now)
            elif job.state == "done" and job.order["respawn"] and self.may_respawn(job, now):
                job.start(self.went + duration - now, now)
        busy = [j for j in self.timed + self.alone if j.state != "done"]
        for job in busy:
            if duration and now > self.due(job):
                job.terminate(now)
        if not busy if self.timed + self.alone else now >= self.went + duration:
            for job in self.early:
                job.terminate(now)

    def due(self, job):
        """Return when a job must have ended."""
        if job.order["prepares"]:
            begun = job.began() or self.went + self.order["prepare_limit"]
        else:
            begun = self.went + job.order["lead"]
        return begun + self.order["duration"] + job.order["grace"]

    def may_respawn(self, job, now):
        left = self.went + self.order["duration"] - now
        fruitful = job.rows_in_pass > 0 or now > job.ended + LOOK_AGAIN
        return job.exit == 0 and not job.cut and fruitful and left > 2 * job.order["lead"] + 1

    def over(self, now):
        return self.went is not None and now >= self.went and all(j.state == "done" for j in self.jobs)


class Orders(Lines):
    """Standard input: the run is gone when it ends."""

    def __init__(self, agent):
        Lines.__init__(self, agent.take)
        self.agent = agent

    def end(self):
        self.agent.ending = True


class Agent:
    """Does what the head orders, until the head is gone."""

    def __init__(self):
        self.selector = selectors.DefaultSelector()
        self.ending = False
        self.load = None
        self.unsaid = b""  # not taken yet by the head: a network that hangs must not stop a load
        os.set_blocking(1, False)
        self.watch(sys.stdin.buffer, Orders(self))

    def watch(self, pipe, lines):
        os.set_blocking(pipe.fileno(), False)
        self.selector.register(pipe, selectors.EVENT_READ, lines)

    def take(self, line):
        order = json.loads(line.decode())
        if "load" in order:
            self.load = Load(self, order["load"])
        elif "remove" in order:
            try:
                shutil.rmtree(order["remove"])
                self.say(removed=order["remove"])
            except OSError as error:
                self.say(failed=str(error))
        elif self.load is not None and "go" in order:
            self.load.go(order["go"])
        elif self.load is not None and "stop" in order:
            self.load.stopping = True

    def say(self, **what):
        """Tell the head; now, or as soon as it takes it."""
        self.unsaid += json.dumps(what, separators=(",", ":")).encode() + b"\n"
        self.flush()

    def mention(self, **what):
        """Tell the head what the next such line says anew: nothing while it has not taken what was said before."""
        self.flush()
        if not self.unsaid:
            self.say(**what)

    def flush(self):
        try:
            while self.unsaid:
                self.unsaid = self.unsaid[os.write(1, self.unsaid) :]
        except BlockingIOError:
            pass
        except OSError:
            self.ending, self.unsaid = True, b""

    def run(self):
        idle = time.monotonic()
        while not self.ending and time.monotonic() < idle + IDLE_TIMEOUT:
            self.pump(IDLE_WAIT)
            if self.load is not None:
                self.load.run()
                self.load, idle = None, time.monotonic()

    def pump(self, timeout):
        self.flush()
        for key, _ in self.selector.select(timeout) if self.selector.get_map() else ():
            try:
                data = os.read(key.fd, READ_SIZE)
            except BlockingIOError:
                continue
            if data:
                key.data.feed(data)
            else:
                key.data.end()
                self.selector.unregister(key.fileobj)
                key.fileobj.close()
        if not self.selector.get_map():
            time.sleep(STARTING_WAIT)


def main():
    os.umask(0o077)
    agent = Agent()

    def stop(*_):
        agent.ending = True

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, stop)
    agent.run()


if __name__ == "__main__":
    main()
