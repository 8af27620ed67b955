"""Runs hsbench on a client as a generator: waits for the common instant, and makes lines of sums of what it says.

Standard library only (Python 3.6 and newer). `python3 hsbench_agent.py ORDERS.json HSBENCH`. hsbench logs an interval
when all its threads are past it: that becomes a line of sums at once (docs/AGGREGATES.md), with latencies to 0.1 ms.
What its JSON has beyond the intervals, which it writes at its end only, follows then.
"""

import ctypes
import datetime
import json
import math
import os
import re
import signal
import sys
import time
from subprocess import DEVNULL, PIPE, Popen

#: names the columns of rows: without it the first line is waited for until the end
HEADER = "idx\tthread\top\tclient_id\tn_objects\tbytes\tendpoint\tfile\terror\tstart\tfirst_byte\tend\tduration_ns\tcat"
#: an error that it logs has the server's text, lines and all: only what begins as its log does is its own
INTERVAL = re.compile(
    r"\d{4}/\d\d/\d\d [\d:]{8} Loop: \d+, Int: (\d+), Dur[^:]*: [\d.]+, Mode: [A-Z]+, "
    r"Ops: (\d+), .*\[ min: ([\d.]+), avg: ([\d.]+), 99%: [\d.]+, max: ([\d.]+) \], Slowdowns: (\d+)"
)
#: its log of an error is a format without a place for it
FAILED = re.compile(r"(?: (?:upload|download|delete) err%!\(EXTRA [^=]*=|^caused by: )(.*)")
BEGINS = "Running Loop"
TOTAL = "TOTAL"
#: a thread ends after so many failed requests
FAILURES = 3
#: bytes of a line that are looked at, and of an error that is passed on
LONGEST, LONGEST_ERROR = 65536, 200
#: seconds between two looks for the word to go
LOOK = 0.02
MS = 1e6  # ns


def die_with_parent():
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


class Interval:
    """Requests of one interval, or of what is left of all."""

    def __init__(self, n, failed, total, low, high):
        self.n = n
        self.failed = failed
        self.total = total  # ns, of all that succeeded
        self.low = low
        self.high = high

    @classmethod
    def of(cls, line):
        """Return the value of an element of the JSON."""
        ops = line["Ops"]
        return cls(ops, line["Slowdowns"], ops * line["AvgLat"] * MS, line["MinLat"] * MS, line["MaxLat"] * MS)


class HsbenchMode:
    """One mode of hsbench."""

    def __init__(self, orders, program):
        self.orders = orders
        self.program = program
        self.began = 0.0
        self.printed = {}  # interval -> what was printed of it
        self.error = ""
        self.total = None

    def run(self, mode, options):
        """Run it; return its exit status, minus the signal that ended it."""
        argv = [self.program, "-m", mode] + self.orders["options"] + options
        # the keys are in the environment, where hsbench looks for them
        process = Popen(argv, stdin=DEVNULL, stdout=DEVNULL, stderr=PIPE, preexec_fn=die_with_parent)
        if mode != "i":
            # a SIGTERM to the process group ended both until now; from here on hsbench alone, and its numbers follow
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        for line in iter(lambda: process.stderr.readline(LONGEST), b""):
            sys.stderr.buffer.write(b" " + line)  # a server's text is no event of ours
            sys.stderr.flush()
            if mode != "i":
                self.take(line.decode(errors="replace"))
        return process.wait()

    def take(self, line):
        match = INTERVAL.match(line)
        if match and int(match.group(1)) not in self.printed:
            number, ops, low, mean, high, failed = match.groups()
            n = int(ops)
            interval = Interval(n, int(failed), n * float(mean) * MS, float(low) * MS, float(high) * MS)
            self.printed[int(number)] = interval
            self.tell(interval, self.began + int(number) + 0.5)
        elif BEGINS in line and not self.began:
            self.began = time.time()
        elif FAILED.search(line):
            # without the address and the name of the object
            self.error = re.sub('"[^"]*"', "...", FAILED.search(line).group(1)).strip()[:LONGEST_ERROR]

    def tell(self, interval, at):
        """Print a line of sums; what hsbench counted in an interval belongs to the second with its middle."""
        if not interval.n + interval.failed:
            return
        end = datetime.datetime.fromtimestamp(at, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        moved = interval.n * self.orders["size"] if self.orders["op"] in ("GET", "PUT") else 0
        times = [max(0, round(ns)) if interval.n else 0 for ns in (interval.total, interval.low, interval.high)]
        error = "" if not interval.failed else self.error or "failed"
        fields = ("sum", self.orders["op"], self.orders["endpoint"], end, interval.n, interval.failed, moved, *times)
        print(*fields, " ".join(error.replace('"', "'").split()), sep="\t", flush=True)

    def finish(self):
        """Tell what the JSON has beyond the intervals."""
        try:
            with open(self.orders["json"]) as file:
                lines = json.load(file)
        except (OSError, ValueError):
            return  # it was ended
        self.total = next((line for line in lines if line["IntervalName"] == TOTAL), None)
        intervals = {int(line["IntervalName"]): Interval.of(line) for line in lines if line is not self.total}
        for number in sorted(set(intervals) - set(self.printed)):
            self.tell(intervals[number], self.began + number + 0.5)
        if self.total is None:
            return
        overall, parts = Interval.of(self.total), list(intervals.values())
        n, failed = overall.n - sum(p.n for p in parts), overall.failed - sum(p.failed for p in parts)
        total = overall.total - sum(p.total for p in parts)
        least, most = min([p.low for p in parts if p.n] or [math.inf]), max([p.high for p in parts] or [0])
        mean = total / n if n else 0
        low, high = (overall.low if overall.low < least else mean), (overall.high if overall.high > most else mean)
        self.spread(
            Interval(n, failed, total, low, high), self.began + len(intervals), self.began + self.total["Seconds"]
        )

    def spread(self, interval, start, end):
        """Tell what lies somewhere between two times, in equal parts: threads ended, and then there is no interval."""
        parts = max(1, math.ceil(end - start - 0.5))
        for i in range(parts):
            n, failed = (x * (i + 1) // parts - x * i // parts for x in (interval.n, interval.failed))
            total = interval.total * n / interval.n if interval.n else 0
            self.tell(
                Interval(n, failed, total, interval.low, interval.high), start + (end - start) * (i + 0.5) / parts
            )

    @property
    def good(self):
        return self.total["Ops"] if self.total else sum(interval.n for interval in self.printed.values())

    @property
    def failed(self):
        return self.total["Slowdowns"] if self.total else sum(interval.failed for interval in self.printed.values())

    def spaces(self):
        """Return the operations done to each bucket: object i is in bucket i mod their number."""
        done = {"p": "created", "d": "removed"}.get(self.orders["mode"])
        buckets, spaces = self.orders["buckets"], []
        for i in range(buckets if done else 0):
            name, n = f"{self.orders['bucket_prefix']}{i:012d}", len(range(i, self.good, buckets))
            # a request that failed gives its number back, and then another one gets a number that is in use
            unknown = 2 * self.failed + math.ceil(self.untold() / buckets)
            if self.orders["stale"]:  # an attempt before has done the same to the same objects
                n, unknown = 0, unknown + n
            space = {"name": name, "bucket": name, "created": 0, "overwritten": 0, "removed": 0, "unknown": unknown}
            space[done] = n
            spaces.append(space)
        return spaces

    def untold(self):
        """Return at most how many requests were made since the last interval, when it was ended."""
        if self.total:
            return 0
        seconds = max(0.0, time.time() - self.began - len(self.printed))
        fastest = max([interval.n for interval in self.printed.values()] or [0])
        return self.orders["threads"] + math.ceil(2 * fastest * (seconds + 1))

    def warnings(self):
        mode, threads = self.orders["mode"], self.orders["threads"]
        if mode == "g" and self.good:
            text = "hsbench measures a GET until the headers of the answer: latencies are without the body"
            yield "get-without-body", text
        if self.failed >= FAILURES:
            text = "up to %d of its %d threads ended early, each after %d failed requests; the last: %s"
            yield "threads-lost", text % (min(threads, self.failed // FAILURES), threads, FAILURES, self.error)
        if mode == "l" and self.total and self.good < self.orders["buckets"]:
            text = "%d pages of %d buckets: a LIST failed without a message of hsbench"
            yield "threads-lost", text % (self.good, self.orders["buckets"])

    def end(self):
        """Return the last message of the agent."""
        took = self.orders["objects"] is None or self.good + self.failed >= self.orders["objects"]
        all_ = self.total is not None and took and not (self.orders["mode"] == "p" and self.orders["objects"] is None)
        ended = self.began + self.total["Seconds"] if self.total else time.time()
        return {
            "event": "end",
            "reason": "exhausted" if all_ else "duration",
            "span": [self.began, ended],
            "spaces": self.spaces(),
            "p99_ms": self.total["NinetyNineLat"] if self.good and self.total else None,
            "warnings": list(self.warnings()),
        }


def say(**event):
    print(json.dumps(event), file=sys.stderr, flush=True)


def wait_for_go(path):
    while not os.path.exists(path):
        time.sleep(LOOK)
    with open(path) as file:
        at = float(file.read())
    time.sleep(max(0.0, at - time.time()))


def main():
    with open(sys.argv[1]) as file:
        orders = json.load(file)
    print(HEADER, flush=True)
    if orders["init"] and HsbenchMode(orders, sys.argv[2]).run("i", []):
        return 1
    say(event="ready")
    wait_for_go(orders["go"])
    hsbench = HsbenchMode(orders, sys.argv[2])
    status = hsbench.run(orders["mode"], ["-j", orders["json"]] + orders["limits"])
    hsbench.finish()
    if orders["mode"] == "p":
        with open(orders["state"], "w") as file:
            json.dump({"objects": hsbench.good}, file)
    say(**hsbench.end())
    if orders["mode"] == "p" and hsbench.total and not hsbench.good:
        print("no object was written: " + hsbench.error, file=sys.stderr)
        return 1
    return 0 if status in (0, -signal.SIGTERM) else 1


if __name__ == "__main__":
    sys.exit(main())
