"""Runs on a node with Ceph's admin keyring: the cluster's state as JSON lines on standard output, see docs/RECOVERY.md.

Other questions come on standard input. Standard library only, Python 3.6. One connection: librados where it is asked
for and this node's Python has it, else one `ceph` that reads its questions from a pipe, else one `ceph` per question.
Ends when standard input closes.
"""

# mypy: disallow-untyped-defs=False

import gc
import json
import os
import resource
import select
import signal
import sys
import time

from cbt_plugins.cluster.state_sampler_maps import Osds
from cbt_plugins.cluster.state_sampler_sources import NoReply, source_of

#: seconds after which a question is given up, unless the one who started the agent sets another limit
TIMEOUT = 5.0
#: seconds without any answer after which the agent starts anew; librados looks for other monitors by itself
RESTART_AFTER = 60.0
#: seconds for which the mgr is not asked after it did not answer; doubled each time up to the second one
MGR_PAUSE, MGR_LONGEST_PAUSE = 15.0, 240.0
#: seconds from one try to connect to the next
RETRY = 1.0
#: seconds from one line to the next while nothing changes; samples between them are as frequent as the milestones exact
QUIET_PERIOD = 1.0
#: times as many bytes as a line with the complete state has are written before the next one: it is for readers of
#: files of which lines are lost, and adds a tenth to the bytes of a file
FULL_AFTER = 10
#: seconds from one question for the space to the next
SPACE_PERIOD = 5.0
#: seconds after which all OSDs know of a change of the map
MAP_SPREAD = 1.5
#: seconds by which the clock and the time that passes may differ between two samples
CLOCK_STEP = 2.0
#: share of its time that the mgr is asked for: `pg dump osds` has 0.74 KB for each OSD, and 0.66 KB for each of the
#: peers that it watches
MGR_SHARE = 0.1
#: OSDs whose reports the mgr sends within a second at least: it takes 0.06 s of CPU time for each MB
#: (`./run bench scale mgr`), which are 0.0016 s for an OSD that watches 40 peers
REPORTS_OF_SECOND = 200
#: containers made until Python looks for unreachable cycles: a map of 10,000 OSDs has fewer, and the look through them
#: would cost more than to parse them
CONTAINERS = 200000
#: characters of what is written of an error
ERROR_LENGTH = 200
#: an OSD's report number has the epoch since which it is up above this bit
EPOCH_SHIFT = 32

_NONE = object()


def state_of(status, df=None):
    """Return the state in `ceph status` and `ceph df`, with the same keys for every release.

    Counts of degraded and misplaced objects are in the status only when they are not zero.
    """
    pgmap, osdmap, health = status["pgmap"], status["osdmap"], status["health"]
    osdmap = osdmap.get("osdmap", osdmap)  # before Octopus the map was nested in itself
    pgs = {s["state_name"]: s["count"] for s in pgmap.get("pgs_by_state", [])}
    state = {
        "epoch": osdmap.get("epoch"),
        "osds": osdmap["num_osds"],
        "osds_up": osdmap["num_up_osds"],
        "osds_in": osdmap["num_in_osds"],
        "pgs": pgs,
        "num_pgs": pgmap.get("num_pgs", sum(pgs.values())),
        "objects": pgmap.get("num_objects", 0),
        "inactive": round(pgmap.get("inactive_pgs_ratio", 0.0), 6),
        "unknown": round(pgmap.get("unknown_pgs_ratio", 0.0), 6),
        "rates": [pgmap.get("recovering_%s_per_sec" % unit, 0) for unit in ("objects", "bytes", "keys")],
        "health": health["status"],
        "checks": {code: check.get("severity", "") for code, check in health.get("checks", {}).items()},
        "says": {  # what nobody has muted, in Ceph's words
            code: check.get("summary", {}).get("message", "")
            for code, check in health.get("checks", {}).items()
            if not check.get("muted")
        },
    }
    for kind in ("degraded", "misplaced", "unfound"):
        state[kind] = [pgmap.get("%s_objects" % kind, 0), pgmap.get("%s_total" % kind, 0)]
    if df is not None:
        state["raw_used"] = df["stats"]["total_used_raw_ratio"]
    return state


def longest_interval(interval):
    """Return the seconds between two samples above which they have a gap, as readers of the samples see it."""
    return max(3.0, 2.5 * interval)


class DaemonChanges:
    """Which daemons have ended and started since the last sample, but for OSDs, which `Osds` follows by their map."""

    def __init__(self):
        self._elections = None
        self._gateways = None  # instance -> name; a daemon that starts anew is another instance

    def follow(self, status):
        """Return the changes since the last status, as text: "rgw.a started"."""
        changes = []
        elections, before = status.get("election_epoch"), self._elections
        if before is not None and elections != before:
            changes.append("mon election")
        entries = status.get("servicemap", {}).get("services", {}).get("rgw", {}).get("daemons", {})
        gateways = {
            key: "rgw.%s" % entry.get("metadata", {}).get("id", key)
            for key, entry in entries.items()
            if isinstance(entry, dict)
        }
        if self._gateways is not None:
            # the instance before a restart stays in the map for a minute: it ends no more when it goes
            present = set(gateways.values())
            changes += ["%s ended" % name for name in self._gateways.values() if name not in present]
            changes += ["%s started" % name for key, name in gateways.items() if key not in self._gateways]
        self._elections, self._gateways = elections, gateways
        return changes


def are_all_clean(states, total):
    """Return whether all PGs are active+clean, maybe scrubbing; not when a PG is stale, or nothing is known of them."""
    words = [(set(state.split("+")), n) for state, n in states.items()]
    clean = sum(n for state, n in words if {"active", "clean"} <= state and "stale" not in state)
    return 0 < total == clean


class NotReady(NoReply):
    """A mgr that has just become active has not the reports of all OSDs yet: its sums lack PGs."""


class Reports:
    """Whether the PG statistics are newer than the last change of an OSD.

    The OSDs report to the mgr once a period, the mgr to the monitors, so for some seconds `status` shows the state
    before the change. A report sent MAP_SPREAD after the change was made with the new map; one period after the mgr
    has it, the monitors have it too.
    """

    def __init__(self, period):
        self._period = period
        self.begin(0.0)

    def begin(self, now):
        """Start again: an OSD has changed."""
        self._begun = now
        self._first = {}  # OSD -> number of its last report soon after the change
        self._since = None  # all have sent another one since then
        self.settled = False

    def wanted(self, now):
        """Return whether `look` would learn anything."""
        return self._since is None and now >= self._begun + MAP_SPREAD

    def look(self, now, up_from, stats):
        """Read `pg dump osds`; `up_from` has the epoch since which each OSD is up."""
        numbers = {o["osd"]: o["seq"] for o in stats if o["seq"] >> EPOCH_SHIFT == up_from.get(o["osd"])}
        for osd, number in numbers.items():
            self._first.setdefault(osd, number)
        if up_from and all(osd in numbers and numbers[osd] > self._first[osd] for osd in up_from):
            self._since = now

    def wait(self, now):
        """Set `settled` when the monitors must have the new reports."""
        if self._since is not None and now >= self._since + self._period + 0.5:
            self.settled = True


class StateSampler:
    """Samples of the cluster's state from one source."""

    def __init__(self, source, period, settings, epoch):
        self.source = source
        self.osds, self.daemons = Osds(epoch), DaemonChanges()
        self.reports = Reports(period)
        self._df, self._recovery = settings.get("df"), settings.get("recovery")
        self._period, self._ask_at, self.busy = period, 0.0, False
        self._pause, self._quiet_until = MGR_PAUSE, 0.0
        self._recovered = self._mgr_error = None
        self._space, self._space_asked = None, 0.0
        self.asked_at = 0.0  # monotonic time of the last sample

    def sample(self):
        """Return (state, changes of OSDs, those of other daemons). Raises NoReply."""
        status = self.source.mon({"prefix": "status"})
        now = self.asked_at = time.monotonic()  # a clock that is set must not end the questions
        state = {"t": round(time.time(), 3)}
        if self._df and (self._space is None or now >= self._space_asked + SPACE_PERIOD):
            self._space, self._space_asked = self.source.mon({"prefix": "df"}), now
        state.update(state_of(status, self._space))
        return state, self._follow(status, state, now) if self._recovery else [], self.daemons.follow(status)

    def _follow(self, status, state, now):
        """Add what only a recovery is judged by: the OSDs by number, counters, whether the statistics are new."""
        osdmap = status["osdmap"]
        try:
            changes = self.osds.follow(osdmap.get("osdmap", osdmap), self.source.mon)
        except (NoReply, KeyError):
            # the maps are asked for again with the next sample; the status counts
            state.update(settled=False, mgr_error=None, unreported=self.osds.unreported(state["epoch"]))
            return []
        if changes:
            self.reports.begin(now)
        was_busy, self.busy = self.busy, not are_all_clean(state["pgs"], state["num_pgs"])
        ends = was_busy and not self.busy
        # the mgr has news once a period, and to ask it costs most: 80 ms of a processor with `ceph`
        due = (self.busy or not self.reports.settled) and now >= self._ask_at
        available = status.get("mgrmap", {}).get("available", True) and time.monotonic() >= self._quiet_until
        if available and (due or ends):
            begun = time.monotonic()
            self._ask_mgr(now)
            self._ask_at = now + max(self._period / 2, (time.monotonic() - begun) / MGR_SHARE)
        self.reports.wait(now)
        state.update(
            osds=len(self.osds.ids),
            down=sorted(set(self.osds.ids) - self.osds.up),
            out=sorted(set(self.osds.ids) - self.osds.inside),
            recovered=self._recovered,
            settled=self.reports.settled and not self.osds.behind,
            mgr_error=self._mgr_error,
            unreported=self.osds.unreported(state["epoch"]),
        )
        return changes

    def _ask_mgr(self, now):
        try:
            stats = self._dump("sum")["pg_stats_sum"]["stat_sum"]
            self._recovered = [stats["num_%s_recovered" % unit] for unit in ("objects", "bytes", "keys")]
            if self.reports.wanted(now):
                limit = TIMEOUT + len(self.osds.ids) / REPORTS_OF_SECOND
                self.reports.look(now, self.osds.since, self._dump("osds", limit)["osd_stats"])
        except NoReply as error:
            self._mgr_error = " ".join(str(error).split())[:ERROR_LENGTH]
            if not isinstance(error, NotReady):
                self._quiet_until = time.monotonic() + self._pause
                self._pause = min(2 * self._pause, MGR_LONGEST_PAUSE)
        else:
            self._pause, self._mgr_error = MGR_PAUSE, None

    def _dump(self, content, *limit):
        question = "pg dump %s: " % content
        try:
            # asked for several contents at once the mgr gives the first only
            reply = self.source.mgr({"prefix": "pg dump", "dumpcontents": [content]}, *limit)
        except NoReply as error:
            if str(error).startswith(question):
                raise
            raise NoReply(question + str(error)) from error  # librados names no content
        if not reply.get("pg_ready", True):
            raise NotReady(question + "the mgr has not the reports of all OSDs yet")
        return reply.get("pg_map", reply)


class SampleClock:
    """The clock of the samples, beside the seconds that really pass."""

    def __init__(self, last):
        self._last, self._moment = last, None  # time of the last sample; None: there is none

    def follow(self, t, moment):
        """Return (seconds since the last sample, seconds by which the clock was set since then).

        A node that was paused looks as if its clock was set forward. `moment` is a monotonic time.
        """
        since = 0.0 if self._last is None else t - self._last
        passed = since if self._moment is None else moment - self._moment
        step = since - passed if abs(since - passed) > CLOCK_STEP else 0.0
        self._last, self._moment = t, moment
        return max(since, passed), round(step, 3)


class StateLines:
    """The output: each sample has what has changed since the one before; now and then one is "full": it has the state.

    Of samples without a change a line a second is written, and the last one before a change, which is not yet so.
    """

    def __init__(self):
        self._last = {}
        self._lines = 0
        self._full_bytes = self._bytes = 0  # of the last full line, and of the lines since then
        self._unwritten, self._written = None, 0.0  # the last line that was left out; the time of the last written
        self.samples = 0

    def write(self, record):
        if "ask" not in record:  # an answer is in no file
            record["i"] = self._lines
            self._lines += 1
        line = json.dumps(record, separators=(",", ":")).encode() + b"\n"
        if "full" in record:
            self._full_bytes, self._bytes = len(line), 0
        elif "ask" not in record:
            self._bytes += len(line)
        os.write(1, line)  # one write: a kill leaves whole lines

    def sample(self, state, changes, daemons, gap, step=0.0):
        full = self._bytes >= FULL_AFTER * self._full_bytes
        last = {} if full else self._last
        record = {k: v for k, v in state.items() if k == "t" or last.get(k, _NONE) != v}
        if full:
            record["full"] = 1
        if changes:
            record["map"] = changes
        if daemons:
            record["daemons"] = daemons
        if gap:
            record["gap"] = gap
        if step:
            record["step"] = step
        self._last = state
        self.samples += 1
        # a clock that was set back writes a line
        if len(record) == 1 and 0 <= state["t"] - self._written < QUIET_PERIOD:
            self._unwritten = record
            return
        self.flush()
        self.write(record)
        self._written = state["t"]

    def flush(self):
        """Write the last sample, if its line was left out."""
        if self._unwritten:
            self.write(self._unwritten)
        self._unwritten = None


def _report_period(source):
    """Return the seconds between two reports of an OSD, as the mgr has them; the default when it does not say."""
    try:
        active = source.mon({"prefix": "mgr dump"})["active_name"]
        return float(source.mgr({"prefix": "config show", "who": "mgr." + active, "key": "mgr_stats_period"}))
    except (NoReply, KeyError, TypeError, ValueError):
        return 5.0


def main(settings, epoch=None, last=None):
    """Write samples until standard input closes; the maps up to `epoch` are told, `last` is the time of a sample."""
    lines, clock = StateLines(), SampleClock(last)
    interval, timeout = settings["interval"] or RETRY, settings.get("timeout", TIMEOUT)
    source = sampler = None
    why, failing_since = "the connection was made anew", time.monotonic()
    while True:
        begun = time.monotonic()
        try:
            if source is None:
                source, fallback = source_of(settings, timeout)
                interval = settings["interval"] or source.interval
                period = _report_period(source) if settings.get("recovery") else None
                sampler = StateSampler(source, period, settings, epoch)
                about = {"version": 1, "t": round(time.time(), 3), "via": source.name, "interval": interval}
                about.update({"node": os.uname()[1], "mgr_stats_period": period})
                lines.write(about)
                if fallback:
                    lines.write({"t": about["t"], "event": "fallback", "from": "librados", "why": fallback})
            state, changes, daemons = sampler.sample()
        except (NoReply, KeyError) as error:
            why = str(error) if isinstance(error, NoReply) else "a reply without %s" % error
            if sampler:
                epoch = sampler.osds.reported_epoch
            if source is not None and time.monotonic() - failing_since > settings.get("restart_after", RESTART_AFTER):
                source.close()
                _restart(json.dumps([settings, epoch, last]))
        else:
            late, step = clock.follow(state["t"], sampler.asked_at)
            missed, sampler.osds.missed = sampler.osds.missed, None
            why = "the clock was set, or the node was paused" if step > 0 else why
            gap = [round(late, 3), missed or why] if missed or late > longest_interval(interval) else None
            lines.sample(state, changes, daemons, gap, step)
            last, failing_since, why = state["t"], time.monotonic(), "a reply took so long"
        if not _answer_until(max(time.monotonic() + 0.05, begun + interval), source, lines):
            break
    lines.flush()
    if source is not None:
        source.close()
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    cpu = round(sum(u.ru_utime + u.ru_stime for u in used), 3)
    lines.write({"t": round(time.time(), 3), "end": "told", "samples": lines.samples, "cpu": cpu})


def _answer_until(moment, source, lines):
    """Answer what is asked on standard input until a moment of the monotonic clock; False when the input has ended.

    A line is {"ask": number, "questions": [["mon" or "mgr", {...}], ...]}; so is the answer, with "replies" or "why".
    """
    while True:
        if not select.select([0], [], [], max(0.0, moment - time.monotonic()))[0]:
            return True
        text = b""
        while not text.endswith(b"\n"):
            data = os.read(0, 1)
            if not data:
                return False
            text += data
        request = json.loads(text.decode())
        answer = {"t": round(time.time(), 3), "ask": request["ask"]}
        try:
            if source is None:
                raise NoReply("there is no connection")
            answer["replies"] = [getattr(source, whom)(question) for whom, question in request["questions"]]
        except NoReply as error:
            answer["why"] = str(error)
        lines.write(answer)


def _restart(argument):
    """Replace this process by a new one: librados that hangs cannot be closed. Input, output and pid stay."""
    text = globals().get("program")  # left there by what received it over a connection
    if text is None:
        with open(sys.argv[0], "rb") as file:
            text = file.read()
    again = "import sys; sys.path[:] = [p for p in sys.path if p]; program = sys.argv.pop(1).encode(); "
    again += "exec(compile(program, 'state_sampler_agent.py', 'exec'))"
    os.execv(sys.executable, [sys.executable, "-c", again, text, argument])


def _run(words):
    gc.set_threshold(CONTAINERS)
    # a question to a monitor cannot be interrupted: the default actions end it at once
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGPIPE):
        signal.signal(number, signal.SIG_DFL)
    main(*json.loads(words))
    os._exit(0)  # librados may wait for a monitor that does not come


if __name__ == "__main__":
    _run(sys.argv[1])
