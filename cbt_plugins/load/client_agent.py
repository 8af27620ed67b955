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
import json
import os
import selectors
import shutil
import signal
import sys
import time
from contextlib import suppress

from cbt_plugins.load.generator_process import GeneratorProcess, Lines

#: seconds after which a job that found nothing to do looks again
LOOK_AGAIN = 30.0
#: seconds for `go` to come after we are ready; without it the run is gone
GO_TIMEOUT = 600.0
#: seconds without a phase after which an agent ends: its connection may hang. A run that is there starts another one
IDLE_TIMEOUT = 600.0
#: where /proc/PID/stat has the start time, counted from the state, which follows the name in parentheses
START_TIME = 19
#: bytes that are read from a pipe at once
READ_SIZE = 1 << 18
#: seconds to wait for output: until all have started, afterwards, and between two phases
STARTING_WAIT, RUNNING_WAIT, IDLE_WAIT = 0.05, 0.2, 1.0
#: bytes of new aggregates that the head gets at once, of all jobs together: whoever watches the run sees them
AGGREGATES_SIZE = 1 << 18
#: seconds for cbt-rows to end after its input has
REDUCE_TIMEOUT = 60.0


def born(pid):
    """Return the start time of a process, as /proc counts it: pids are used again, a pid and its start time are not."""
    with open("/proc/%d/stat" % pid) as file:
        return file.read().rsplit(")", 1)[1].split()[START_TIME]


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
        self.jobs = [GeneratorProcess(job_order, self.folder, env, agent.watch) for job_order in order["jobs"]]
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
                    job.end_or_kill(now)
            elif self.went is None:
                self.prepare(now, begun)
            elif now >= self.went:
                self.drive(now)
            self.agent.pump(STARTING_WAIT if self.went is None or now < self.went else RUNNING_WAIT)
            for job in self.jobs:
                job.collect(self.now())
            if now >= next_second:
                next_second += 1.0
                self.beat(now)
            if not any(j.busy for j in self.jobs) and (self.stopping or self.over(now)):
                break
        self.finish()

    def beat(self, now):
        """Tell the head how all jobs are, with the aggregates that it has not got yet."""
        limit = AGGREGATES_SIZE // len(self.jobs)
        fresh = {j.id: j.reducer.new_aggregates(limit) for j in self.jobs}
        texts = {name: base64.b64encode(data).decode() for name, data in fresh.items() if data}
        if self.agent.mention(t=now, jobs={j.id: j.beat(now) for j in self.jobs}, aggregates=texts):
            for job in self.jobs:
                job.reducer.sent += len(fresh[job.id])

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
            if duration and now > self.latest_end(job):
                job.end_or_kill(now)
        if not busy if self.timed + self.alone else now >= self.went + duration:
            for job in self.early:
                job.end_or_kill(now)

    def latest_end(self, job):
        """Return the time at which a job must have ended."""
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

    def say(self, **message):
        """Tell the head; now, or as soon as it takes it."""
        self.unsaid += json.dumps(message, separators=(",", ":")).encode() + b"\n"
        self.flush()

    def mention(self, **message):
        """Send a line to the head, unless earlier lines still wait: the next line of its kind says the same anew.

        Return whether it was sent.
        """
        self.flush()
        sending = not self.unsaid
        if sending:
            self.say(**message)
        return sending

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
