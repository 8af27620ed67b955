"""Runs on one node with Ceph's admin keyring: samples of the cluster's state as JSON lines, see docs/RECOVERY.md.

Standard library only, Python 3.6. One connection: librados where this node's Python has it, else one `ceph` that
reads its questions from a pipe. Ends when standard input closes.
"""

# mypy: disallow-untyped-defs=False

import calendar
import importlib
import json
import os
import re
import resource
import select
import signal
import subprocess
import sys
import time

#: seconds without an answer after which a question is given up
PATIENCE = 5.0
#: seconds without any answer after which all begins anew; librados looks for other monitors by itself
HOPELESS = 60.0
#: seconds for which the mgr is left alone after it did not answer; doubled each time up to the second one
SHY, SHYEST = 15.0, 240.0
#: seconds after which all OSDs know of a change of the map
KNOWN = 1.5
#: maps between two samples that are looked at one by one
MAPS = 50

_NONE = object()


class Lost(Exception):
    """No answer; the text says why."""


class Librados:
    """A persistent client."""

    name = "librados"

    def __init__(self, conf):
        rados = importlib.import_module("rados")
        self._error = rados.Error
        self._cluster = rados.Rados(conffile=conf)
        for option in ("rados_mon_op_timeout", "client_mount_timeout"):
            self._cluster.conf_set(option, "%d" % PATIENCE)
        self._cluster.connect(timeout=PATIENCE)

    def _ask(self, command, question):
        try:
            status, answer, text = command(json.dumps(dict(question, format="json")), b"")
        except self._error as error:
            raise Lost(str(error)) from error
        if status:
            raise Lost("%s: %s" % (question["prefix"], text or os.strerror(abs(status))))
        return _parsed(answer)

    def mon(self, question):
        return self._ask(self._cluster.mon_command, question)

    def mgr(self, question):
        return self._ask(self._cluster.mgr_command, question)

    def close(self):
        """Nothing: it may wait for a monitor that does not come, and ends with this process."""


class OpenCeph:
    """One `ceph` that reads its commands from a pipe."""

    name = "ceph"

    def __init__(self, command):
        self._command = command
        self._process = None

    def _open(self):
        self._process = subprocess.Popen(
            ["/bin/sh", "-c", "exec %s -f json" % self._command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            # its answers would stay in a buffer of 8 KiB else
            env=dict(os.environ, PYTHONUNBUFFERED="1"),
        )

    def mon(self, question):
        if self._process is None:
            self._open()
        try:
            return self._ask(question)
        except Lost:
            self.close()  # what it may still say would be taken for the answer to the next question
            raise

    mgr = mon

    def _ask(self, question):
        words = [question["prefix"]]
        for value in (v for k, v in question.items() if k != "prefix"):
            words += [str(v) for v in (value if isinstance(value, list) else [value])]
        line = " ".join(words)
        try:
            self._process.stdin.write(line.encode() + b"\n")
            self._process.stdin.flush()
        except OSError as error:
            raise Lost("ceph has ended: %s" % error) from error
        text, until = b"", time.monotonic() + PATIENCE
        out = self._process.stdout
        while select.select([out], [], [], max(0.0, until - time.monotonic()))[0]:
            data = os.read(out.fileno(), 1 << 20)
            if not data:
                raise Lost("ceph has ended")
            text += data
            if text.rstrip(b" ").endswith(b"\n") and text.strip():
                try:
                    return _parsed(text)
                except Lost:
                    continue
        raise Lost("%s: no answer for %d s" % (line, PATIENCE))

    def close(self):
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


def _parsed(answer):
    try:
        return json.loads(answer.decode())
    except ValueError:
        raise Lost("an answer that is no JSON") from None


def _moment(stamp):
    """Seconds of 2026-11-21T13:56:05.650577+0000 (older releases: a space for the T, no zone)."""
    found = re.match(r"(\d+-\d+-\d+)[T ](\d+:\d+:\d+)(\.\d+)?(?:([+-])(\d\d):?(\d\d))?", stamp)
    whole = calendar.timegm(time.strptime(" ".join(found.group(1, 2)), "%Y-%m-%d %H:%M:%S"))
    off = int(found.group(5) or 0) * 3600 + int(found.group(6) or 0) * 60
    return whole + float(found.group(3) or 0) - (-off if found.group(4) == "-" else off)


def is_clean(states, total):
    """All PGs are active+clean, maybe scrubbing; not when nothing is known of them."""
    clean = sum(n for state, n in states.items() if {"active", "clean"} <= set(state.split("+")))
    return 0 < total == clean


class Osds:
    """Who is up and who is in, map by map."""

    def __init__(self, epoch):
        self.epoch = epoch  # of the last sample
        self._seen = None  # what told at that sample that nobody had changed
        self.up = self.inside = None
        self.ids = []
        self.since = {}  # OSD that is up -> epoch since which it is
        self._changes = []  # that no sample has told yet

    def follow(self, osdmap, ask):
        """The changes up to this map, each {"epoch", "t", "down", "up", "out", "in"}; `ask` asks a monitor."""
        epoch = osdmap["epoch"]
        keys = ("num_osds", "num_up_osds", "num_in_osds", "osd_up_since", "osd_in_since")
        # before Octopus status does not say since when: every map may be news
        seen = [osdmap.get(key) for key in keys] + ([] if "osd_up_since" in osdmap else [epoch])
        if seen != self._seen:
            first = epoch if self.epoch is None else min(max(self.epoch + 1, epoch - MAPS), epoch)
            if self.up is None and self.epoch is not None:
                self._take(ask({"prefix": "osd dump", "epoch": self.epoch}))
            for number in range(first, epoch + 1):
                change = self._take(ask({"prefix": "osd dump", "epoch": number}))
                self._changes += [change] if change else []
                self.epoch = number
        self._seen, self.epoch = seen, epoch
        changes, self._changes = self._changes, []
        return changes

    def _take(self, dump):
        up = {o["osd"] for o in dump["osds"] if o["up"]}
        inside = {o["osd"] for o in dump["osds"] if o["in"]}
        before = (self.up, self.inside)
        self.up, self.inside = up, inside
        self.ids = sorted(o["osd"] for o in dump["osds"])
        self.since = {o["osd"]: o["up_from"] for o in dump["osds"] if o["up"]}
        if before[0] is None or before == (up, inside):
            return None
        change = {"epoch": dump["epoch"], "t": round(_moment(dump["modified"]), 3)}
        moved = {"down": before[0] - up, "up": up - before[0], "out": before[1] - inside, "in": inside - before[1]}
        change.update((name, sorted(ids)) for name, ids in moved.items() if ids)
        return change


class Reports:
    """Whether the PG statistics are newer than the last change of an OSD.

    The OSDs report to the mgr once a period, the mgr to the monitors, so `status` shows for some seconds what was
    before. A report that is sent a little after the change was made with the new map, and one period after the mgr
    has it, the monitors have it too.
    """

    def __init__(self, period):
        self._period = period
        self.begin(0.0)

    def begin(self, now):
        """An OSD has changed."""
        self._begun = now
        self._first = {}  # OSD -> number of its last report soon after the change
        self._since = None  # all have sent another one since then
        self.settled = False

    def wanted(self, now):
        """Whether `look` has any use."""
        return self._since is None and now >= self._begun + KNOWN

    def look(self, now, up_from, stats):
        """Take `pg dump osds` in: `up_from` has the epoch since which each OSD is up."""
        numbers = {o["osd"]: o["seq"] for o in stats if o["seq"] >> 32 == up_from.get(o["osd"])}
        for osd, number in numbers.items():
            self._first.setdefault(osd, number)
        if up_from and all(osd in numbers and numbers[osd] > self._first[osd] for osd in up_from):
            self._since = now

    def wait(self, now):
        if self._since is not None and now >= self._since + self._period + 0.5:
            self.settled = True


class Sampler:
    """State of the cluster as keys and values; only the change is written."""

    def __init__(self, source, period, epoch):
        self.source = source
        self.osds = Osds(epoch)
        self.reports = Reports(period)
        self._period, self._asked, self._busy = period, 0.0, False
        self._shy, self._quiet_until = SHY, 0.0
        self._recovered = None

    def sample(self):
        """(state, changes of OSDs). Raises Lost."""
        answer = self.source.mon({"prefix": "status"})
        now = time.time()
        osdmap, pgmap, health = answer["osdmap"], answer["pgmap"], answer["health"]
        osdmap = osdmap.get("osdmap", osdmap)
        changes = self.osds.follow(osdmap, self.source.mon)
        if changes:
            self.reports.begin(now)
        states = {s["state_name"]: s["count"] for s in pgmap.get("pgs_by_state", [])}
        was_busy, self._busy = self._busy, not is_clean(states, pgmap.get("num_pgs", 0))
        ends = was_busy and not self._busy
        # it has news once a period, and asking is what costs: 80 ms of a processor with `ceph`
        due = (self._busy or not self.reports.settled) and now >= self._asked + self._period / 2
        there = answer.get("mgrmap", {}).get("available", True) and time.monotonic() >= self._quiet_until
        if there and (due or ends):
            self._asked = now
            self._ask_mgr(now)
        self.reports.wait(now)
        state = {
            "t": round(now, 3),
            "epoch": osdmap["epoch"],
            "osds": len(self.osds.ids),
            "down": sorted(set(self.osds.ids) - self.osds.up),
            "out": sorted(set(self.osds.ids) - self.osds.inside),
            "pgs": states,
            "num_pgs": pgmap.get("num_pgs", 0),
            "objects": pgmap.get("num_objects", 0),
            "inactive": round(pgmap.get("inactive_pgs_ratio", 0.0), 6),
            "unknown": round(pgmap.get("unknown_pgs_ratio", 0.0), 6),
            "rates": [pgmap.get("recovering_%s_per_sec" % what, 0) for what in ("objects", "bytes", "keys")],
            "recovered": self._recovered,
            "settled": self.reports.settled,
            "health": health["status"],
            "checks": sorted(health.get("checks", {})),
        }
        for what in ("degraded", "misplaced", "unfound"):
            state[what] = [pgmap.get("%s_objects" % what, 0), pgmap.get("%s_total" % what, 0)]
        return state, changes

    def _ask_mgr(self, now):
        try:
            stats = self._dump("sum")["pg_stats_sum"]["stat_sum"]
            self._recovered = [stats["num_%s_recovered" % what] for what in ("objects", "bytes", "keys")]
            if self.reports.wanted(now):
                self.reports.look(now, self.osds.since, self._dump("osds")["osd_stats"])
        except Lost:
            self._quiet_until = time.monotonic() + self._shy
            self._shy = min(2 * self._shy, SHYEST)
        else:
            self._shy = SHY

    def _dump(self, what):
        # in one question the mgr answers to the first of several contents only
        answer = self.source.mgr({"prefix": "pg dump", "dumpcontents": [what]})
        return answer.get("pg_map", answer)


class Output:
    """Lines of what has changed since the last one."""

    def __init__(self, path):
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._last = {}
        self.lines = 0

    def line(self, record):
        # one write: a kill leaves whole lines
        os.write(self._fd, json.dumps(record, separators=(",", ":")).encode() + b"\n")

    def sample(self, state, changes, gap):
        record = {k: v for k, v in state.items() if k == "t" or self._last.get(k, _NONE) != v}
        if changes:
            record["map"] = changes
        if gap:
            record["gap"] = gap
        self._last = state
        self.lines += 1
        self.line(record)


def _open(command, conf):
    """librados, or why not: (source, text)."""
    try:
        return Librados(conf), None
    except ImportError as error:
        return OpenCeph(command), str(error)
    except Exception as error:
        if type(error).__name__ == "TimedOut":
            raise Lost(str(error)) from error
        return OpenCeph(command), "librados: %s" % error


def _start(command, conf, way):
    source, why_not = (OpenCeph(command), "asked for") if way == "ceph" else _open(command, conf)
    try:
        return source, _period(source), why_not
    except (Lost, KeyError, TypeError, ValueError):
        return source, 5.0, why_not


def _period(source):
    """Seconds between two reports of an OSD, as the mgr has it."""
    active = source.mon({"prefix": "mgr dump"})["active_name"]
    return float(source.mgr({"prefix": "config show", "who": "mgr." + active, "key": "mgr_stats_period"}))


def main(path, interval, command, conf, way="", epoch=None, last=None):
    output = Output(path)
    source = sampler = None
    why, failing_since = "the connection was made anew", time.monotonic()
    while True:
        begun = time.monotonic()
        try:
            if source is None:
                source, period, why_not = _start(command, conf, way)
                sampler = Sampler(source, period, epoch)
                about = {"version": 1, "t": round(time.time(), 3), "via": source.name, "interval": interval}
                about.update({"node": os.uname()[1], "mgr_stats_period": period})
                if why_not:
                    about["not_librados"] = why_not
                output.line(about)
            state, changes = sampler.sample()
        except (Lost, KeyError) as error:
            why = str(error) if isinstance(error, Lost) else "an answer without %s" % error
            if sampler:
                epoch = sampler.osds.epoch
            if source is not None and time.monotonic() - failing_since > HOPELESS:
                source.close()
                # what hangs in librados cannot be taken apart, only left behind; standard input and pid stay
                words = [path, interval, command, conf, way, "" if epoch is None else epoch, last or ""]
                os.execv(sys.executable, [sys.executable, sys.argv[0]] + [str(word) for word in words])
        else:
            late = state["t"] - last if last else 0.0
            output.sample(state, changes, [round(late, 3), why] if late > max(3 * interval, 2.0) else None)
            last, failing_since, why = state["t"], time.monotonic(), "an answer took so long"
        if select.select([sys.stdin], [], [], max(0.05, begun + interval - time.monotonic()))[0]:
            break
    if source is not None:
        source.close()
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    cpu = round(sum(u.ru_utime + u.ru_stime for u in used), 3)
    output.line({"t": round(time.time(), 3), "end": "told", "samples": output.lines, "cpu": cpu})
    os._exit(0)  # librados may wait for a monitor that does not come


def _run(path, interval, command, conf, way="", epoch="", last=""):
    # a question to a monitor cannot be interrupted: the default actions end it at once
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    main(path, float(interval), command, conf, way, int(epoch) if epoch else None, float(last) if last else None)


if __name__ == "__main__":
    _run(*sys.argv[1:])
