"""The samples of the `recovery` monitor as complete states: recovery.jsonl has only what changed."""

from __future__ import annotations

import bisect
import math
import os
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Dict, Iterable, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from cbt_plugins.cluster_conditions import TimedSample, is_active, is_clean
from cbt_plugins.journal import json_lines
from cbt_plugins.results.archive import ArchivedRun
from cbt_plugins.results.clock_drift import NO_DRIFT, ClockDrift, ClockLine
from cbt_plugins.results.clock_steps import NEVER_SET
from cbt_plugins.results.environment import UNMEASURED, Clocks
from cbt_plugins.results.numbered_lines import NUMBER, each_line_and_loss

FILE = "recovery.jsonl"
#: what an agent knows by following maps, and by asking the mgr
_FOLLOWED = ("down", "out", "recovered", "mgr_error")
#: the key of a line that has the complete state, not only what changed
_FULL = "full"
#: keys of a line that are no part of a state
_OF_SAMPLE = ("t", "map", "gap", "daemons", "step", _FULL, NUMBER)
#: report periods after which a new mgr does not wait for reports any longer
_REPORTS_OF_NEW_MGR = 4
#: seconds by which two clocks may differ without being corrected
_NEAR = 0.25
#: seconds by which a map and a sample may contradict each other by chance: Ceph's limit for the clocks of monitors
_BY_CHANCE = 0.05


class Change(NamedTuple):
    """An OSD map that has other OSDs up or in than the one before."""

    t: float  # when the monitors made it, epoch seconds on the clock of the machine that led the run
    epoch: int
    down: Tuple[int, ...] = ()
    up: Tuple[int, ...] = ()
    out: Tuple[int, ...] = ()
    inside: Tuple[int, ...] = ()


class DatedMap(NamedTuple):
    """A line of an OSD map, with the samples between which the cluster got it."""

    line: Mapping[str, Any]
    t: float  # by the monitors' clock
    low: float  # of the last sample whose cluster had no such map yet
    high: float  # of the first sample whose cluster had it
    moved: float  # seconds by which the clock of the node that samples had moved by then

    @property
    def contradiction(self) -> float:
        """Seconds by which the map's time contradicts the samples."""
        return max(0.0, self.low - self.t - _BY_CHANCE, self.t - self.high - _BY_CHANCE)

    @property
    def right(self) -> float:
        return min(max(self.t, self.low - _NEAR), self.high + _NEAR)

    def change(self) -> Change:
        lists = {name: tuple(self.line.get(key) or ()) for name, key in _LISTS.items()}
        return Change(self.right, int(self.line["epoch"]), **lists)


_LISTS = {"down": "down", "up": "up", "out": "out", "inside": "in"}


class Sample(NamedTuple):
    """The cluster at one instant; parts that did not change are shared between samples."""

    t: float  # epoch seconds on the same clock
    state: Mapping[str, Any]  # keys of docs/RECOVERY.md
    clean: bool  # all PGs active+clean, maybe scrubbing
    recovering_or_backfilling: bool  # at least one PG; one that waits for it does not count
    changed: Tuple[str, ...] = ()  # daemons that ended or started since the sample before: "osd.3 down"

    def count(self, object_state: str) -> int:
        """Return the object copies that are "degraded", "misplaced" or "unfound"."""
        return int((self.state.get(object_state) or (0, 0))[0])

    def total(self, object_state: str) -> int:
        return int((self.state.get(object_state) or (0, 0))[1])

    def share_of_copies(self, object_state: str) -> Optional[float]:
        """Return `count` as a share of all object copies; Ceph names their total only when some are counted."""
        count, total = self.count(object_state), self.total(object_state)
        return count / total if total else None if count else 0.0

    @property
    def pgs(self) -> Mapping[str, int]:
        pgs: Mapping[str, int] = self.state.get("pgs") or {}
        return pgs

    @property
    def not_clean(self) -> int:
        counted_pgs = sum(self.pgs.values())
        clean = sum(n for state, n in self.pgs.items() if is_clean(state))
        return max(counted_pgs, int(self.state.get("num_pgs") or 0)) - clean

    @property
    def inactive(self) -> int:
        """PGs that serve no request.

        After any change of an OSD, a PG is also stale until its new primary has reported: it counts as what it was.
        """
        counted_pgs = sum(self.pgs.values())
        active = sum(
            n for state, n in self.pgs.items() if is_active(state if self.settled else state.replace("stale+", ""))
        )
        return max(counted_pgs, int(self.state.get("num_pgs") or 0)) - active

    @property
    def all_copies(self) -> bool:
        """No object lacks a copy, and all are counted: those of a PG that is down are in no number."""
        return not self.count("degraded") and not self.count("unfound") and not self.inactive

    @property
    def settled(self) -> bool:
        """The statistics are newer than the last change of an OSD."""
        return bool(self.state.get("settled"))

    @property
    def osds_up(self) -> int:
        return self._but("down", "osds_up")

    @property
    def osds_in(self) -> int:
        return self._but("out", "osds_in")

    def _but(self, lacking: str, counted: str) -> int:
        """Return the number of all OSDs but those of a list; where the list is not known, as many as the status counts.
        """
        osds, them = int(self.state.get("osds") or 0), self.state.get(lacking)
        return int(self.state.get(counted, osds)) if them is None else osds - len(them)

    def status(self) -> Dict[str, Any]:
        """Return the status in which `conditions` are found, without its time."""
        status: Dict[str, Any] = {name: self.state.get(name) for name in _STATUS}
        status.update((f"{state}_share", self.share_of_copies(state)) for state in ("degraded", "misplaced"))
        status.update(osds_up=self.osds_up, osds_in=self.osds_in)
        if self.changed:
            status["daemons"] = list(self.changed)
        return {"clean": self.clean, "not_clean": self.not_clean, **status}


_STATUS = ("pgs", "health", "checks", "says", "raw_used", "osds")


@dataclass
class Samples:
    """Samples of one or several monitors, by time."""

    interval: float = 1.0  # seconds, asked; the longest one
    period: float = 5.0  # seconds between two reports of an OSD: what the statistics lag behind
    via: Optional[str] = None  # "librados" or "ceph"
    samples: List[Sample] = field(default_factory=list)
    changes: List[Change] = field(default_factory=list)
    gaps: List[Dict[str, Any]] = field(default_factory=list)  # {"t": its end, "seconds", "why"}
    fallbacks: List[str] = field(default_factory=list)  # why `ceph` was asked instead of librados
    damage: Dict[str, None] = field(default_factory=dict)  # what was wrong with lines, which are left out
    clock_steps: List[float] = field(default_factory=list)  # seconds by which the clock of a node that asks was set
    skew: float = 0.0  # seconds that the monitors' clock is off at least, all measured offsets taken off; 0: none seen

    @property
    def longest_interval(self) -> float:
        """A longer time without a sample is a gap, in which anything may have happened."""
        return max(3.0, 2.5 * self.interval)

    @cached_property
    def rises(self) -> List[Tuple[float, float, Tuple[int, ...]]]:
        """(from, to, rise of each counter): the counters rose, or fell, between these moments. Samples must be sorted.

        A mgr that has just become active answers zeros, and less than there was until all OSDs have reported: that is
        left out (agents of earlier versions have written it).
        """
        rises = []
        last: Optional[Sequence[int]] = None
        at, incomplete_until = 0.0, -math.inf
        for sample in self.samples:
            now = sample.state.get("recovered")
            if not now or now is last:
                continue
            if last is not None and any(last) and not any(now):
                incomplete_until = sample.t + _REPORTS_OF_NEW_MGR * self.period
            if last is not None and sample.t <= incomplete_until and any(b < a for a, b in zip(last, now)):
                continue
            if last is not None and list(now) != list(last):
                rises.append((at, sample.t, tuple(b - a for a, b in zip(last, now))))
            last, at = now, sample.t
        return rises

    @cached_property
    def has_counters(self) -> bool:
        return any(sample.state.get("recovered") for sample in self.samples)

    def place(self, t: float) -> int:
        """Return the number of samples before t."""
        return bisect.bisect_left(self.samples, (t,))  # a sample is a tuple that begins with its time

    def between(self, begin: float, end: float) -> List[Sample]:
        """Return samples of begin <= t < end."""
        return self.samples[self.place(begin) : self.place(end)]

    def before(self, t: float) -> Optional[Sample]:
        """Return the newest sample before t."""
        place = self.place(t)
        return self.samples[place - 1] if place else None


def files_of(run: Path) -> List[Path]:
    """Return the monitor's files in a run's folder, of interrupted attempts too, wherever a benchmark has put them.

    What is in hidden folders was not fetched in full, and has no sums.
    """
    paths = []
    for folder, folders, names in os.walk(run):  # unlike Path.rglob, it leaves out a folder that has got another name
        folders[:] = [name for name in folders if name[0] != "."]
        paths += [Path(folder, FILE)] if FILE in names else []
    return sorted(paths)


def read_samples(paths: Iterable[Path], clocks: Clocks = UNMEASURED) -> Samples:
    """Return all samples of these files, on one clock; lines that a kill has torn are left out."""
    samples = Samples(interval=0.0, period=0.0)
    for path in paths:
        drift = clocks.drift_of_file(path, _clock_lines(path)) if clocks.measured else NO_DRIFT
        reader = SampleReader(samples, clocks.of_file(path), clocks.monitors, drift)
        for line, is_behind_loss in each_line_and_loss(path, samples.damage):
            if is_behind_loss:
                reader.forget()
            reader.add((line,))
        reader.place_maps(clocks.has_mon(path))
    samples.interval, samples.period = samples.interval or 1.0, samples.period or 5.0
    samples.samples.sort(key=lambda sample: sample.t)
    change_of_epoch = {change.epoch: change for change in samples.changes}
    samples.changes = [change_of_epoch[epoch] for epoch in sorted(change_of_epoch)]
    samples.gaps = sorted(samples.gaps + _missing(samples), key=lambda gap: float(gap["t"]))
    return samples


def _clock_lines(path: Path) -> Iterator[ClockLine]:
    """Yield the lines of a file that tell of its node's clock, each once: of agents that begin, and of steps.

    A line that is before the one before it shows a step that no line tells: it was small, or its line is lost.
    """
    clock_lines: Dict[ClockLine, None] = {}
    before, interval = -math.inf, 0.0
    for line, _ in each_line_and_loss(path, {}):
        if not _has_time(line) or "end" in line or "event" in line:
            continue
        is_header, t, step = "version" in line, float(line["t"]), float(line.get("step") or 0.0)
        interval = max(interval, float(line.get("interval") or 0.0)) if is_header else interval
        step = t - before - interval if not step and t < before else step
        if step or is_header:
            clock_lines[ClockLine(t, step, is_header)] = None
        before = min(before, t) if is_header else t
    return iter(clock_lines)


def _has_time(line: Mapping[str, Any]) -> bool:
    return isinstance(line.get("t"), (int, float))


class SampleReader:
    """Makes samples of the lines of one file, which may come in parts."""

    def __init__(
        self, samples: Samples, offset: float = 0.0, of_maps: float = 0.0, drift: ClockDrift = NO_DRIFT
    ) -> None:
        """Take the clock of the file's node, and of the monitors that make maps, minus the run's, in seconds.

        `drift`: how the clock of the file's node has moved since it had this offset, as far as it was measured.
        """
        self._samples = samples
        self._offset, self._of_maps, self._drift = offset, of_maps, drift
        self._state: Dict[str, Any] = {}
        self._clean = self._recovering_or_backfilling = False
        self._lost = self._awaits_state = False  # lines are lost since the last sample; no line since had the state
        self._unsaid: Tuple[str, ...] = ()  # daemons that ended or started since then
        self._clock = NEVER_SET
        self._stretch = 0  # of the drift
        self._maps: List[DatedMap] = []
        self._shown = self._newest = -math.inf  # times of the newest sample: by its line, as if no clock was set back

    def add(self, lines: Iterable[Mapping[str, Any]]) -> None:
        """Add lines in the order of the file."""
        for line in lines:
            if "version" in line:
                self._begin(line)
                continue
            if line.get("event") == "fallback":
                self._samples.fallbacks.append(str(line.get("why")))
            if not ("end" in line or "event" in line or not _has_time(line)):
                self._add_sample(line)

    def place_maps(self, has_mon: bool) -> None:
        """Give the file's OSD maps their times, now that all lines were read; `has_mon`: a monitor runs on its node.

        Where the node's clock has moved against the run's, the monitors' clock has moved with it, or has not: maps get
        the times that contradict the samples less.
        """
        samples, steady = self._samples, self._maps
        moving = [dated._replace(t=dated.t - dated.moved) for dated in steady]
        of_steady, of_moving = (sum(dated.contradiction for dated in maps) for maps in (steady, moving))
        maps = moving if of_moving < of_steady or (of_moving == of_steady and has_mon) else steady
        samples.changes[len(samples.changes) - len(maps) :] = [dated.change() for dated in maps]
        samples.skew = max([samples.skew, *(abs(dated.t - dated.right) for dated in maps)])

    def forget(self) -> None:
        """Forget the state: lines before the next one are lost, and each line has only what changed."""
        self._state = {}
        self._lost = self._awaits_state = True

    def _begin(self, header: Mapping[str, Any]) -> None:
        # a new agent, which may not know them
        self._state = {key: value for key, value in self._state.items() if key not in _FOLLOWED}
        self._awaits_state = False  # the first line of an agent has all
        samples = self._samples
        if _has_time(header):
            self._stretch, _ = self._drift.begins.get(header["t"], (self._stretch, 0.0))
            if header["t"] - self._offset >= self._newest:
                self._clock = NEVER_SET  # its clock is right again, or it is later by now: no time comes twice
        samples.via = header.get("via") or samples.via
        samples.interval = max(samples.interval, float(header.get("interval") or 0))
        samples.period = max(samples.period, float(header.get("mgr_stats_period") or 0))

    def _add_sample(self, line: Mapping[str, Any]) -> None:
        samples, t = self._samples, self._time_of(line)
        for change in line.get("map") or ():
            bounds, moved = self._bounds_of_map(int(change["epoch"]), t), float(line["t"]) - self._offset - t
            self._maps.append(DatedMap(change, float(change["t"]) - self._of_maps, *bounds, moved))
            samples.changes.append(self._maps[-1].change())
        if line.get("gap"):
            seconds, why = float(line["gap"][0]), str(line["gap"][1])
            _, forward = self._drift.begins.get(line["t"], (0, 0.0)) if line.get("step") else (0, 0.0)
            if forward <= 0.0 or seconds - forward > samples.longest_interval:
                samples.gaps.append({"t": t, "seconds": seconds - max(0.0, forward), "why": why})
        self._unsaid += _changed(line)
        self._awaits_state = self._awaits_state and _FULL not in line
        if not self._awaits_state:
            self._add_state(line, t)

    def _add_state(self, line: Mapping[str, Any], t: float) -> None:
        samples = self._samples.samples
        new = {key: value for key, value in line.items() if key not in _OF_SAMPLE}
        if _FULL in line:  # what did not change stays one object of all samples
            new = {key: value for key, value in new.items() if key not in self._state or self._state[key] != value}
        if new:
            self._state = {**self._state, **new}
        if "pgs" in new or "num_pgs" in new:
            self._clean, self._recovering_or_backfilling = _clean_and_recovering_or_backfilling(self._state)
        if "pgs" not in self._state:
            return  # the file's first lines are missing
        if self._lost:
            seconds = max(0.0, t - samples[-1].t) if samples else 0.0
            self._samples.gaps.append({"t": t, "seconds": round(seconds, 3), "why": "lines of the sampler were lost"})
            self._lost = False
        samples.append(Sample(t, self._state, self._clean, self._recovering_or_backfilling, self._unsaid))
        self._unsaid = ()

    def _time_of(self, line: Mapping[str, Any]) -> float:
        """Return the time of a line on the run's clock; where nobody measured it, as if it had not been set back."""
        shown, step = float(line["t"]) - self._offset, float(line.get("step") or 0.0)
        if not step and shown < self._shown:  # a small step, one whose line is lost, or agents of earlier versions
            step = shown - self._shown - self._samples.interval
        if step:
            self._samples.clock_steps.append(step)
            self._clock = self._clock.after(step)
            self._stretch, _ = self._drift.begins.get(line["t"], (self._stretch, 0.0))
        self._shown = shown
        if self._drift is not NO_DRIFT:
            return shown - self._drift.at(shown, self._stretch)
        self._newest = shown - self._clock.shift
        return self._newest

    def _bounds_of_map(self, epoch: int, t: float) -> Tuple[float, float]:
        """Return the times of the last sample whose cluster had no such OSD map yet, and of the first one that had it.

        `t`: of the line that tells of the map, which may be read long after the first sample that knows of it. Where
        samples have no epochs, it is that line.
        """
        samples = self._samples.samples
        first = len(samples)
        while first and isinstance(shown := samples[first - 1].state.get("epoch"), int) and shown >= epoch:
            first -= 1
        high = samples[first].t if first < len(samples) else t
        return samples[first - 1].t if first else -math.inf, high


def _changed(line: Mapping[str, Any]) -> Tuple[str, ...]:
    maps = line.get("map") or ()
    osds = [f"osd.{osd} {how}" for change in maps for how in ("down", "up") for osd in change.get(how) or ()]
    return (*osds, *(line.get("daemons") or ()))


def _clean_and_recovering_or_backfilling(state: Mapping[str, Any]) -> Tuple[bool, bool]:
    pgs: Mapping[str, int] = state.get("pgs") or {}
    clean = sum(n for name, n in pgs.items() if is_clean(name))
    recovering_or_backfilling = any({"recovering", "backfilling"} & set(name.split("+")) for name in pgs)
    return 0 < clean == state.get("num_pgs", sum(pgs.values())), recovering_or_backfilling


def _missing(samples: Samples) -> List[Dict[str, Any]]:
    """Return the gaps that no line tells of: between two phases no monitor ran."""
    gap_times = {gap["t"] for gap in samples.gaps}
    return [
        {"t": b.t, "seconds": round(b.t - a.t, 3), "why": "no monitor ran"}
        for a, b in zip(samples.samples, samples.samples[1:])
        if b.t - a.t > samples.longest_interval and b.t not in gap_times
    ]


#: a file that phases have in archives made before the whole run was sampled
OWN_FILE = "status.jsonl"
Status = List[Mapping[str, Any]]


def samples_of(run: ArchivedRun) -> Samples:
    """Return all samples of a run, on its clock."""
    return read_samples(files_of(run.path), Clocks.of(run))


def status_by_phase(run: ArchivedRun, samples: Optional[Samples] = None) -> Dict[Optional[str], Status]:
    """Return the status in which `conditions` are found, by phase; None: before, between and after the phases.

    `samples`: `samples_of(run)`, where they are read already.
    """
    read = samples_of(run) if samples is None else samples
    run.damage.update(read.damage)
    borders: Dict[str, Dict[str, float]] = {"phase-begin": {}, "phase-end": {}}
    for event in json_lines(run.path / "events.jsonl"):
        if event.get("event") in borders and isinstance(event.get("t"), (int, float)):
            borders[event["event"]][str(event.get("phase"))] = float(event["t"])  # the last attempt counts
    statuses: Dict[Optional[str], Status] = {None: list(json_lines(run.path / "afterwards" / OWN_FILE))}
    apart = bytearray(b"x" * len(read.samples))
    for phase in run.phases:
        begin = borders["phase-begin"].get(phase.name, phase.window[0])
        end = max(borders["phase-end"].get(phase.name, 0.0), phase.window[1])
        during = slice(read.place(begin), read.place(end))
        own = json_lines(phase.path / OWN_FILE)
        statuses[phase.name] = list(own) or _statuses(read.samples[during])
        apart[during] = bytes(len(apart[during]))
    statuses[None] = statuses[None] or _statuses([sample for sample, is_apart in zip(read.samples, apart) if is_apart])
    return statuses


def _statuses(samples: Iterable[Sample]) -> Status:
    """Return the status of each sample; samples of one state share it."""
    statuses: Status = []
    before, shared = None, {}
    for sample in samples:
        if before is None or sample.state is not before.state or sample.changed or before.changed:
            shared = sample.status()
        before = sample
        statuses.append(TimedSample(sample.t, shared))
    return statuses
