"""A run as its archive shows it while it runs: a moment each second, and the summary so far.

Only files of the archive are read, and of those that grow only what is new: nothing is lost with whoever watches, or
with the run.
"""

from __future__ import annotations

import math
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

from cbt_plugins.archive_files import confine
from cbt_plugins.cluster_conditions import NO_FAULTS
from cbt_plugins.formatting.progress_line import Rate, RateMeter, Remainder
from cbt_plugins.journal import HEARTBEATS, LineTail, is_held, read_json
from cbt_plugins.results.archive import RUNNING, read_run, read_running
from cbt_plugins.results.recovery.cluster_samples import SampleReader, Samples, files_of, status_by_phase
from cbt_plugins.results.recovery.milestone_titles import STABLE_IN_SAMPLES
from cbt_plugins.results.requests.over_time import is_number
from cbt_plugins.results.requests.rates_and_latencies import PhaseAggregates
from cbt_plugins.results.requests.readable_objects import Readable
from cbt_plugins.results.requests.running_phase import RunningPhase, recent
from cbt_plugins.results.result_file import Unreadable, reading
from cbt_plugins.results.summary_numbers import numbers_of, phase_line

#: states of a run
GOING_ON, COMPLETE, FAILED, INTERRUPTED, GONE = "going on", "complete", "failed", "interrupted", "gone"
_ENDS = {"run-failed": FAILED, "run-interrupted": INTERRUPTED, "run-done": COMPLETE}
#: epoch seconds that no event has
_LATEST = 1e12
#: events that the charts of a phase mark, and how (results.recovery.impact)
TURNS = {"fault-inject-begin": "fault", "fault-undo-begin": "undo"}
#: seconds without a new line after which a run of which no process is seen here is gone: it may be another machine's
RUN_SILENCE = 60.0
#: seconds for which the last sample of the cluster says how it is, and the last heartbeats how fast the load is
_FRESH = 30.0
#: seconds after the first clean sample at which the samples that make it a milestone are in the archive
_PROVEN = STABLE_IN_SAMPLES + 2.0
#: the pauses of Sparing, in processor times of a heavy look
SPARED, _EARLY = 200, 50
#: seconds of pause at most that a look makes which is not heavy: else there would be no heavy look on a slow machine
_MOST_OF_LIGHT = 0.5
#: the whole run is read again after so many times SPARED
_WHOLE_RUN = 4


@dataclass
class _Heartbeats:
    """What the clients have said of the load of a phase."""

    folder: Path
    tail: LineTail
    meter: RateMeter = field(default_factory=RateMeter)
    errors: Dict[str, int] = field(default_factory=dict)  # of each job
    newest: float = 0.0  # epoch seconds of the newest heartbeat
    _heard: Dict[str, float] = field(default_factory=dict)  # of each job: time.monotonic()

    def read(self) -> int:
        """Take the new heartbeats; return how many there were."""
        late = not self._heard
        number, newest = 0, 0.0
        latest: Dict[str, float] = {}  # of each job: the time of its newest heartbeat
        for beats in self.tail.read_pieces():
            for beat in beats:
                if is_number(beat.get("t")) and isinstance(beat.get("jobs"), dict):
                    number, newest = number + 1, max(newest, beat["t"])
                    latest.update(self._take(beat))
        self.newest = max(self.newest, newest)
        at = _written(self.tail.path, newest) if late else time.monotonic()
        self._heard.update((job, at - (newest - t)) for job, t in latest.items())
        return number

    def _take(self, beat: Mapping[str, Any]) -> Iterator[Tuple[str, float]]:
        """Take a heartbeat; yield its jobs, each with its time, which is infinite for a job that says no more."""
        for job, line in beat["jobs"].items():
            if isinstance(line, dict):
                self.meter.take(job, beat["t"], _number(line.get("ops")), _number(line.get("bytes")))
                self.errors[job] = _number(line.get("errors"))
                if line.get("state") == "done":
                    self.meter.end(job)
                yield job, math.inf if line.get("state") == "done" else float(beat["t"])

    @property
    def rate(self) -> Optional[Rate]:
        """The rate of all jobs; None while one of them is not heard."""
        oldest = min(self._heard.values(), default=math.inf)
        return None if oldest < time.monotonic() - _FRESH else self.meter.rate()


def _written(path: Path, newest: float) -> float:
    """Return when the newest line of a file came, of time.monotonic(): a copy of a file has a later time than its line.
    """
    try:
        return time.monotonic() - max(0.0, time.time() - min(newest, path.stat().st_mtime))
    except OSError:
        return time.monotonic()


def _number(value: Any) -> int:
    return int(value) if isinstance(value, (int, float)) and value == value and abs(value) < 1e18 else 0


class Sparing:
    """Decides which looks are heavy: those that make charts and tables anew. T is the processor time of a heavy look.

    - A heavy look is due 200 T after the last heavy look.
    - A look that shows a turn (a phase has its first requests or its end; a fault, OSDs or PGs have changed) may be
      heavy 50 T after the last heavy look. The next pause gets longer by the rest of the pause that this look has cut
      short, so that 200 T pass before the next early look.
    - A look that shows another state of the run is heavy at once, and makes the next pause longer, too.
    - All looks between make the pause longer by 200 times what they took; those that read no requests by at most 0.5 s.

    So all looks take at most 1/200 of a processor, however many turns and phases there are; 1/400 and what looks that
    are not heavy take where these take more than 1/400. The first look is not measured: imports, and all lines of the
    archive so far, are read only once.
    """

    def __init__(self) -> None:
        self.due = True  # in this look
        self.reads = False  # this look: it has read requests
        self.next_at = -math.inf  # time.monotonic()
        self._took = 0.0  # T: seconds of the last heavy look

    @contextmanager
    def look(self) -> Iterator[None]:
        """Measure a look."""
        self.due, self.reads = time.monotonic() >= self.next_at, False
        begun = time.thread_time()
        yield
        took = time.thread_time() - begun if self.next_at > -math.inf else 0.0
        pause = SPARED * took if self.due or self.reads else min(SPARED * took, _MOST_OF_LIGHT)
        self.next_at = max(self.next_at, time.monotonic()) + pause
        self._took = took if self.due else self._took
        self.due = False

    @property
    def may_hurry(self) -> bool:
        """Whether this look may be heavy, although it is not due."""
        return time.monotonic() >= self.next_at - (SPARED - _EARLY) * self._took


class LiveRun:
    """The run in a directory: `moment` is cheap, `summary` as much as the whole and therefore seldom made anew."""

    def __init__(self, path: Path) -> None:
        self.path = path
        confine(path)
        self._name = "/".join(path.resolve().parts[-2:])
        plan = read_json(path / "plan.json")
        phases = plan.get("phases") if isinstance(plan, dict) else None
        self._planned = [phase for phase in phases or () if isinstance(phase, dict) and phase.get("name")]
        self._tails = {name: LineTail(path / name) for name in ("events.jsonl", "journal.jsonl")}
        self.events: List[Dict[str, Any]] = []
        self._invoked = 0.0
        self._sees_journal = True  # only its user may read it
        self._samples = Samples()
        self._files: Dict[Path, Tuple[LineTail, SampleReader]] = {}
        self._sampled = 0.0  # time.monotonic()
        #: times (epoch seconds) up to which requests and samples are needed to show what has turned: a fault, OSDs, PGs
        self._turns: List[float] = []
        self._tried = -math.inf  # RunningPhase.reach() at the last look that was made only to hurry
        self._heard: Optional[float] = None  # time.monotonic()
        self._load: Optional[_Heartbeats] = None
        self._running: Optional[RunningPhase] = None
        self.aggregates: Optional[PhaseAggregates] = None  # of the phase that runs
        self._latency: Dict[str, Dict[str, Any]] = {}  # of these
        self._numbers = _Numbers(path)
        self.sparing = Sparing()

    def silence(self) -> float:
        """Return for how many seconds no line has come: the files have not changed, or are a copy, which is newer."""
        times = [0.0]
        beats = self.path.glob(f"phases/*{RUNNING}/{HEARTBEATS}")
        for file in (self.path / "events.jsonl", *beats, *files_of(self.path)):
            with suppress(OSError):
                times.append(file.stat().st_mtime)
        lines = [*map(_time, self.events), *(sample.t for sample in self._samples.samples[-1:])]
        lines += [self._load.newest] if self._load else []
        newest = max(lines, default=0.0) or max(times)  # there may be no line with a time
        return max(0.0, time.time() - min(newest, max(times)))

    def moment(self) -> Dict[str, Any]:
        """Read what is new, and return the run as it is now, in the form of docs/LIVE.md. Raises Unreadable, OSError.
        """
        with reading(self.path):
            self._read()
            return self._moment()

    @property
    def state(self) -> str:
        """Return one of the states: GOING_ON, or how the run ended."""
        if (self.path / "complete").exists():
            return COMPLETE
        end = next((event for event in reversed(self.events) if event.get("event") in _ENDS), None)
        since = max([self._invoked, *(_time(event) for event in self.events if event.get("event") == "run-begun")])
        ended = _ENDS[str(end["event"])] if end is not None and _time(end) >= since else None
        is_executed = is_held(self.path / "journal.jsonl")
        if ended is not None and ended != COMPLETE and (self._sees_journal or not is_executed):
            return ended
        return GONE if self.silent > RUN_SILENCE and not is_executed else GOING_ON

    @property
    def silent(self) -> float:
        """Seconds since the last new line."""
        return time.monotonic() - self._heard if self._heard is not None else self.silence()

    def _read(self) -> None:
        events, journal = self._tails.values()
        new_events = events.read()
        self.events += new_events
        try:
            for line in journal.read():
                self._invoked = _time(line) if line.get("event") == "invocation" else self._invoked
        except PermissionError:
            self._sees_journal = False
        self._turns += [_time(event) for event in new_events if _is_of_fault(event)]
        new = len(new_events) + self._read_samples()
        self._find_load()
        hurries = self._may_hurry()
        new += self._read_load(hurries)
        if hurries and self._shows_turn():
            self.sparing.due = True
        if self._heard is None:  # it is not known when the first lines came
            self._heard = time.monotonic() - self.silence()
        elif new:
            self._heard = time.monotonic()

    def _may_hurry(self) -> bool:
        """Tell whether a heavy look may show a turn that the summary lacks; under load it needs the requests, too."""
        if self.sparing.due or not self._turns or not self.sparing.may_hurry:
            return False
        turn, running = min(self._turns), self._running
        reach = running.reach() if running else time.time()
        if turn > reach or (running and reach == self._tried and not running.gives_up(turn)):
            return False
        self._tried = reach
        return True

    def _shows_turn(self) -> bool:
        """Tell whether a heavy look shows the first turn, or whether its requests are waited for no longer."""
        turn = min(self._turns)
        return turn <= self._shown_until() or (self._running is not None and self._running.gives_up(turn))

    def _find_load(self) -> None:
        folder = next(iter(sorted((self.path / "phases").glob(f"*{RUNNING}"))), None)
        if folder is None or self._load is None or self._load.folder != folder:
            self._load = _Heartbeats(folder, LineTail(folder / HEARTBEATS)) if folder else None
            self._running = self.aggregates = None
            self._latency = {}
        if folder is not None and self._running is None:
            phase = read_running(self.path)
            self._running = RunningPhase(*phase) if phase else None

    def _read_load(self, hurries: bool) -> int:
        if self._load is None:
            return 0
        # the latencies of the first requests of a phase are shown at once
        if self._running is not None and (hurries or self.sparing.due or self.aggregates is None):
            try:
                self.aggregates = self._running.look()
                self.sparing.reads = self._running.is_new
                self._latency = recent(self.aggregates) if self.aggregates is not None else {}
            except Unreadable:
                if self._load.folder.exists():  # else the phase ended just now
                    raise
        return self._load.read()

    def _read_samples(self) -> int:
        late = not self._files  # it is not known when the first lines came
        for path in files_of(self.path) if late else ():
            self._files[path] = LineTail(path), SampleReader(self._samples)
        new, now = 0, time.monotonic()
        for path, (tail, reader) in self._files.items():
            for lines in tail.read_pieces():
                reader.add(lines)
                new += len(lines)
                samples = self._samples.samples
                at = _written(path, samples[-1].t if samples else math.inf) if late else now
                self._sampled = max(self._sampled, at)
        # the clock of the node that samples is not corrected here: later on, a turn is when its line came
        samples, arrival = self._samples.samples, time.time()
        for former, sample in zip(samples, samples[1:]):
            if former.clean != sample.clean:
                self._turns.append((sample.t if late else arrival) + (_PROVEN if sample.clean else 0.0))
        self._turns += [change.t if late else arrival for change in self._samples.changes]
        del self._samples.samples[:-1], self._samples.changes[:]
        return new

    def _moment(self) -> Dict[str, Any]:
        state = self.state
        begin = next((event for event in reversed(self.events) if event.get("event") == "phase-begin"), None)
        ended = any(event.get("event") in ("phase-end", "phase-broken-off") for event in self._since(begin))
        phase = str(begin.get("phase")) if begin and not ended else None
        latest = self._samples.samples[-1] if self._samples.samples else None
        fresh = latest is not None and time.monotonic() - self._sampled <= _FRESH
        return {
            "t": round(time.time(), 3),
            "run": self._name,
            "state": state,
            "why": self._why(state),
            "silent_s": round(self.silent, 1),
            "phases": len(self._planned),
            **self._of_phase(phase, state),
            "latency": self._latency,
            "latency_until": self.aggregates.grid.end if self.aggregates is not None else None,
            "pgs_not_clean": latest.not_clean if latest is not None and fresh else None,
            "faults": self._faults(),
            "marks": [str(e.get("name")) for e in self._since(begin) if e.get("event") == "mark"],
        }

    def _since(self, begin: Optional[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
        """Return the events after one of them."""
        if begin is None:
            return ()
        at = next(i for i, event in enumerate(self.events) if event is begin)
        return self.events[at + 1 :]

    def _why(self, state: str) -> Optional[str]:
        if state not in (FAILED, INTERRUPTED):
            return None
        ends = [event for event in self.events if _ENDS.get(str(event.get("event"))) == state]
        return str(ends[-1]["why"]) if ends[-1].get("why") else None

    def _of_phase(self, name: Optional[str], state: str) -> Dict[str, Any]:
        """Return the state of the run: its phase, the time left, rates and errors."""
        number = next((i for i, phase in enumerate(self._planned, 1) if phase["name"] == name), None)
        begin = next((e for e in reversed(self.events) if e.get("event") == "phase-begin"), None)
        go = next((e for e in self._since(begin) if e.get("event") == "load-go" and e.get("phase") == name), None)
        lasting = _length(self._planned[number - 1]) if number else None
        began = _time(go, "at") if go else None
        is_wait = begin is not None and begin.get("kind") == "wait"
        if go is None and begin is not None and is_wait:
            began = _time(begin)
        going_on = state == GOING_ON
        now = time.time() - (0.0 if going_on else self.silent)
        elapsed = max(0.0, now - began) if began is not None else 0.0
        left = max(0.0, lasting - elapsed) if lasting is not None and began is not None and going_on else None
        after = Remainder.of([_length(phase) for phase in self._planned[number:]]) if number else None
        rate = self._load.rate if self._load and going_on else None
        errors = self._load.errors if self._load else {}
        doing = "starting" if began is None else "ending" if left == 0 else "running"
        return {
            "phase": name,
            "number": number,
            "doing": doing if name and going_on else None,
            "elapsed_s": round(elapsed, 1) if name else None,
            "left_s": round(left, 1) if left is not None and name else None,
            "after_s": after.seconds if after else None,
            "after_is_exact": after.exact if after else None,
            "obj_per_s": round(rate.objects_per_second, 1) if rate else None,
            "mib_per_s": round(rate.mib_per_second, 2) if rate else None,
            "errors": sum(errors.values()) if errors or (is_wait and name) else None,  # a wait has no requests
        }

    def _faults(self) -> List[Dict[str, Any]]:
        """Return the faults of the run in the order of time; `until` is null while one is in force."""
        faults: Dict[str, Dict[str, Any]] = {}
        for event in self.events:
            label, name = str(event.get("label")), event.get("event")
            if event.get("kind") in NO_FAULTS:
                continue
            if name == "fault-inject-begin":
                listed = event.get("targets")
                targets = [str(target) for target in listed] if isinstance(listed, list) else []
                faults[label] = {"label": label, "kind": event.get("kind"), "targets": targets}
                faults[label].update(since=_time(event), until=None)
            elif name == "fault-undone" and label in faults:
                faults[label]["until"] = _time(event)
        return list(faults.values())

    def turns_after(self, t: float) -> List[Dict[str, Any]]:
        """Return {"t", "title"} of the faults and undos that began after a time, as the charts mark them."""
        begun = ((event, TURNS.get(str(event.get("event")))) for event in self.events if _is_of_fault(event))
        return [{"t": _time(event), "title": title} for event, title in begun if title and _time(event) > t]

    def summary(self) -> Mapping[str, Any]:
        """Return the summary so far, with the phase that runs; made anew when that is due. Raises Unreadable."""
        with reading(self.path):
            numbers, running, state = self._numbers, self.aggregates, self.state
            lacks_phase = numbers.lack_phase(running)
            if numbers.state != state or (lacks_phase and self.sparing.may_hurry):
                self.sparing.due = True
            if self.sparing.due and (numbers.state != state or lacks_phase or self._turns or numbers.are_old):
                numbers.make(running, state)
                shown_until = self._shown_until()
                self._turns = [t for t in self._turns if t > shown_until]
            elif self.sparing.due and running is not None:
                numbers.renew_phase(running)
            return numbers.summary

    def _shown_until(self) -> float:
        """Return until when the summary shows turns: a mark is only in a chart that has the requests of its time."""
        if self.aggregates is not None:
            return self.aggregates.grid.end
        return time.time() if self._running is None else -math.inf


def _is_of_fault(event: Mapping[str, Any]) -> bool:
    return str(event.get("event")).startswith("fault-") and event.get("kind") not in NO_FAULTS


def _time(event: Mapping[str, Any], key: str = "t") -> float:
    """Return a time of an event; 0.0 for what is none, also for a number that no float has, or no browser can read."""
    value = event.get(key)
    return float(value) if isinstance(value, (int, float)) and abs(value) < _LATEST else 0.0


def _length(planned: Mapping[str, Any]) -> Optional[float]:
    """Return the duration of a planned phase's load; None when only the cluster can tell (config.fault_spans)."""
    goal = planned.get("goal") or {}
    duration = goal.get("duration") if goal else planned.get("duration")
    seconds: Sequence[Any] = (duration, planned.get("ramp") or 0, planned.get("warmup") or 0)
    return float(sum(seconds)) if all(is_number(value) and abs(value) < _LATEST for value in seconds) else None


class _Numbers:
    """The summary of a run so far."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._phases: Tuple[Any, ...] = ()
        self.state = ""  # of the run, as the summary shows it
        self.summary: Dict[str, Any] = {}
        self._next_at = 0.0  # time.monotonic()

    def lack_phase(self, running: Optional[PhaseAggregates]) -> bool:
        """Tell whether a phase has ended or has its first requests, and the summary does not show it."""
        return self._phases != self._phases_now(running)

    def _phases_now(self, running: Optional[PhaseAggregates]) -> Tuple[Any, ...]:
        ended = sorted(path.parent.name for path in self._path.glob("phases/*/phase.json"))
        return (*ended, running.phase.name if running else None)

    @property
    def are_old(self) -> bool:
        """Whether the whole run is to be read again, although nothing is known to be new but requests."""
        return time.monotonic() > self._next_at

    def make(self, running: Optional[PhaseAggregates], state: str) -> None:
        """Make the summary of the whole run."""
        now, begun, phases = time.monotonic(), time.process_time(), self._phases_now(running)
        self.summary = numbers_of(self._path, running, state == GOING_ON)
        self._phases, self.state = phases, state
        self._next_at = now + _WHOLE_RUN * SPARED * (time.process_time() - begun)

    def renew_phase(self, running: PhaseAggregates) -> None:
        """Make the line of the phase that runs, and nothing else."""
        self.summary = {**self.summary, "phases": [*self.summary["phases"][:-1], self._line(running)]}

    def _line(self, running: PhaseAggregates) -> Dict[str, Any]:
        run = read_run(self._path)
        run.phases = [running.phase]
        return phase_line(run, running, Readable(None), status_by_phase(run)[running.phase.name])
