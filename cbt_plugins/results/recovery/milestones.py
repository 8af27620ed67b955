"""Recovery: the milestones of each failure and return, from the recovery monitor's samples and the run's events."""

from __future__ import annotations

import bisect
import math
from typing import Any, Callable, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple

from cbt_plugins.formatting import NONE
from cbt_plugins.formatting.blocks import Block, TableGrid, TitledBlocks, Words
from cbt_plugins.results.recovery.cluster_samples import Change, Sample, Samples
from cbt_plugins.results.recovery.episodes import Episode, besides, episodes
from cbt_plugins.results.recovery.failure_warnings import early_end, episode_warnings
from cbt_plugins.results.recovery.milestone_titles import (
    ALL_COPIES,
    ALREADY,
    BEFORE,
    CERTAIN,
    MILESTONES_OF,
    NO_CHANGE,
    NOT_SINCE,
    RULES,
    SAME_HEALTH,
    STABLE_IN_SAMPLES,
    STAYED_CLEAN,
    STAYS_TRUE,
)
from cbt_plugins.results.recovery.osd_turns import OsdTurns
from cbt_plugins.results.recovery.rates import bytes_before, copies_made, recovered

#: outcome: no OSD changed, and all PGs stayed active+clean
UNCHANGED = "unchanged"
#: seconds of clean PGs, by new statistics, after which a change of an OSD belongs to another event
NEXT_EVENT_AFTER = 60.0
#: the health check of flags of the OSD map
_FLAGS = "OSDMAP_FLAGS"
#: characters of an error of the mgr in a reason
_ERROR_LENGTH = 200


class Milestone(NamedTuple):
    """Answer to a rule."""

    t: Optional[float] = None
    reason: Optional[str] = None  # why there is no time
    value: Optional[Dict[str, Any]] = None
    resolution: Optional[float] = None  # seconds since the sample before, which did not show it yet
    between: Optional[Tuple[float, float]] = None  # nobody watched, and it was then, if at all
    happened: bool = False  # ... it was


class Stable(NamedTuple):
    """What was looked for as a stable stretch."""

    first: Optional[Sample]  # of it; None: there is none
    last_not: float  # the last sample that shows that it was not so
    longest: float  # seconds
    outdated: Optional[Sample]  # the last sample by which it was so for long enough, with statistics that may be old


def milestones(samples: Samples, events: Sequence[Mapping[str, Any]]) -> Dict[str, Any]:
    """Return all failures and returns, in the form of docs/RECOVERY.md. `events`: lines of the run's events.jsonl."""
    last = samples.samples[-1].t if samples.samples else 0.0
    run_episodes = episodes(events, last)
    episode_results: List[Dict[str, Any]] = []
    for episode in run_episodes:
        counted_until = episode_results[-1]["until"] if episode_results else -math.inf
        search = _EpisodeMilestones(samples, episode)
        episode_results.append(_episode_result(search, besides(episode, run_episodes), counted_until))
    return {
        "version": 1,
        "via": samples.via,
        "interval": samples.interval,
        "samples": len(samples.samples),
        "start": samples.samples[0].t if samples.samples else None,
        "end": last or None,
        "gaps": samples.gaps,
        "episodes": episode_results,
        "warnings": list(episode_warnings(samples, episode_results)),
    }


def _episode_result(search: _EpisodeMilestones, beside_faults: bool, counted_until: float) -> Dict[str, Any]:
    """Return the result of an episode; `counted_until`: end of the recovery that the episode before has counted."""
    episode = search.episode
    # a run of an earlier version has no event of the effect
    names = [name for name in MILESTONES_OF[episode.kind] if name != "in-effect" or episode.in_effect is not None]
    milestone_of_name = {name: search.find(name) for name in names}
    clean = milestone_of_name["clean"]
    until = clean.t if clean.t is not None else clean.between[1] if clean.between else episode.end
    rate = None
    since = search.counted_since
    if since is not None and since < until:
        # the mgr's counters are ahead of the PG states: what they rose by before the first state that shows it counts
        rate = recovered(search.run_samples, since, milestone_of_name["recovery-starts"].t, until)
        # copies on OSDs that come back are no longer degraded, and nobody has made them
        back = [change.t for change in search.changes if change.t > since and search.osds & set(change.up)]
        copies_until = min([until, *back]) if search.is_failure else since
        rate.update(copies_made(search.run_samples, since, rate["begin"], copies_until))
        goes_on = search.before is not None and not search.before.clean  # the recovery from the episode before
        # the counters may show the end of that recovery only behind `until`, or when the next one begins
        goes_on_since = episode.begin if goes_on else math.inf
        rate["bytes_before"] = bytes_before(search.run_samples, counted_until, goes_on_since, since)
    before, last = search.before, search.samples[-1] if search.samples else None
    outcome = search.outcome(clean)
    return {
        "kind": episode.kind,
        "labels": list(episode.labels),
        "osds": sorted(search.osds),
        "osds_from": "events" if episode.osds else "OSD maps",
        "begin": episode.begin,
        "end": episode.end,
        "end_why": episode.end_why,
        "aborted": episode.aborted or None,
        "again": None if episode.again is None else round(episode.again, 3),
        "switch_fired": None
        if episode.switch_fired is None
        else {"t": episode.switch_fired, "undo": episode.undo_begin},
        "until": round(until, 3),  # it has recovered, or nobody looks any longer
        "beside_faults": beside_faults,
        "ended_early": early_end(episode, search.run_samples.changes),
        "flapped": search.flapped(),
        "before": _before(before) if before else None,
        "effect": search.effect,
        "outcome": outcome,
        "milestones": [_line(name, milestone_of_name[name], episode.begin) for name in names],
        "recovery": rate,
        "left": _left(last) if last and outcome not in ("recovered", UNCHANGED) else None,
    }


def _before(sample: Sample) -> Dict[str, Any]:
    return {"clean": sample.clean, "health": sample.state.get("health"), "pgs": dict(sample.pgs)}


def _line(name: str, milestone: Milestone, begin: float) -> Dict[str, Any]:
    title, rule = RULES[name]
    return {
        "name": name,
        "title": title,
        "rule": rule,
        "t": None if milestone.t is None else round(milestone.t, 3),
        "seconds": None if milestone.t is None else round(milestone.t - begin, 3),
        "resolution": None if milestone.resolution is None else round(milestone.resolution, 3),
        "value": milestone.value,
        "reason": milestone.reason,
        "between": [round(t, 3) for t in milestone.between] if milestone.between else None,
        "happened": milestone.t is not None or milestone.happened,
    }


def _left(sample: Sample) -> Dict[str, Any]:
    """Return the PGs and objects that had not recovered at the end."""
    return {
        "t": sample.t,
        "pgs": dict(sample.pgs),
        **{object_state: sample.count(object_state) for object_state in ("degraded", "misplaced", "unfound")},
        "inactive_pgs": sample.inactive,
        "down": list(sample.state.get("down") or ()),
        "out": list(sample.state.get("out") or ()),
        "health": sample.state.get("health"),
        "checks": list(sample.state.get("checks") or ()),
    }


class _EpisodeMilestones:
    """The part of the samples that belongs to an episode, and its rules: a method for each milestone."""

    def __init__(self, samples: Samples, episode: Episode) -> None:
        self.run_samples, self.episode = samples, episode
        self.is_failure = episode.kind == "failure"
        self.samples = samples.between(episode.begin, episode.end + 1e-6)
        self.times = [sample.t for sample in self.samples]
        self.before = samples.before(episode.begin)
        self.changes = [change for change in samples.changes if episode.begin <= change.t <= episode.end]
        moved = [(change.t, self._moved(change)) for change in self.changes]
        self.osds: Set[int] = set(episode.osds) or {osd for _, osds in moved for osd in osds}
        watched = [*([self.before] if self.before else []), *self.samples]
        self.osd_turns = OsdTurns(samples, watched, self.osds, self.is_failure)
        #: times of the maps, or of the samples behind lost ones, that changed OSDs of the episode: searches for
        #: milestones begin there; `turned` has the times of the maps that showed such an OSD as down (of a return: up)
        untold = [b for _, b in self.osd_turns.untold]
        self.changed = sorted([*(t for t, osds in moved if osds & self.osds), *untold])
        #: what the cluster was like before is about something else: an earlier fault, or the recovery from it
        self.since = self.changed[0] if self.changed else episode.begin
        self.turned = [c.t for c in self.changes if self.osds & set(c.down if self.is_failure else c.up)]

        times = [episode.begin, *(t for t in self.times if t > episode.begin), episode.end]
        self.unwatched = [(a, b) for a, b in zip(times, times[1:]) if b - a > samples.longest_interval]
        #: the first sample came so late that nobody knows what was before it; the last one, what was after it
        self.begun_unseen = self.before is None and any(gap[0] == episode.begin for gap in self.unwatched)
        self.ended_unseen = bool(self.open_end) and samples.place(episode.end) == len(samples.samples)
        turn = "first-down" if self.is_failure else "first-up"
        held_at_first = self.is_failure and self._held_at_first(turn) is not None
        self.moved_unseen = self.osd_turns.of(turn) is not None or held_at_first
        stayed_clean = all(sample.clean for sample in self.samples)
        self.touched_anything = bool(self.changed) or self.moved_unseen or not stayed_clean

    @property
    def knows_before(self) -> bool:
        """Whether a sample right before the episode has the OSDs: an agent that has just begun may not know them."""
        return self.before is not None and "down" in self.before.state

    @property
    def counted_since(self) -> Optional[float]:
        """Return the time from which on the work of recovery belongs to the episode; None where no map tells it."""
        if self.changed:
            lost = [a for a, b in self.osd_turns.untold if a < self.changed[0]]  # the map that was first
            return max(self.episode.begin, lost[0]) if lost else self.changed[0]
        # OSDs that were back before their undo: the recovery that their failure has begun goes on
        were_back = bool(self.osds) and self.knows_before and not self.osds & self._state("down")
        goes_on = were_back and self.touched_anything and not self.moved_unseen
        return self.episode.begin if goes_on and not self.is_failure else None

    @property
    def open_end(self) -> List[Tuple[float, float]]:
        """The time without samples at the end of the episode, if there is one."""
        return [gap for gap in self.unwatched if gap[1] == self.episode.end]

    @property
    def effect(self) -> Optional[bool]:
        """Whether an OSD or a PG changed; None where the samples do not tell."""
        if self.touched_anything and self.samples:
            return True
        return None if not self.samples or self.begun_unseen or self.ended_unseen else False

    def _moved(self, change: Change) -> Set[int]:
        """Return the OSDs that a map takes from the data, or of a return, gives back to it."""
        return {*change.down, *change.out} if self.is_failure else {*change.up, *change.inside}

    def find(self, name: str) -> Milestone:
        """Return the answer to a rule; "unknown, between A and B" where nobody watched when it may have been."""
        milestone: Milestone = getattr(self, name.replace("-", "_"))()
        if name in ("injected", "in-effect", "undone") or not self.samples:
            return milestone
        if milestone.t is not None:
            late = milestone.resolution is not None and milestone.resolution > self.run_samples.longest_interval
            earlier = None if late else self.osd_turns.earlier(name, milestone.t)
            if not late:
                return self._unknown(*earlier, True) if earlier else milestone
            return self._unknown(milestone.t - (milestone.resolution or 0.0), milestone.t, True, milestone.value)
        turn = self._held_at_first(name) or self.osd_turns.of(name)
        if turn:
            return self._unknown(*turn, True)
        # the last sample shows that it was not yet; what is over in moments may have been in any gap
        maybe_before = self.begun_unseen and milestone.reason in NOT_SINCE
        gaps = self.open_end if name in STAYS_TRUE and not maybe_before else self.unwatched
        if milestone.reason in (ALL_COPIES, SAME_HEALTH):  # of the time until the cluster was clean again
            clean = self.clean().t
            gaps = [gap for gap in self.unwatched if clean is None or gap[0] < clean]
        return self._unknown(*gaps[0], False) if gaps and milestone.reason not in CERTAIN else milestone

    def _unknown(self, a: float, b: float, happened: bool, value: Optional[Dict[str, Any]] = None) -> Milestone:
        since, until = (max(0.0, t - self.episode.begin) for t in (a, b))
        reason = f"unknown, between {since:.1f} s and {until:.1f} s: no samples"
        return Milestone(None, reason, value, None, (max(a, self.episode.begin), b), happened)

    def _held_at_first(self, name: str) -> Optional[Tuple[float, float]]:
        """Return the time to the first sample that knows the OSDs, if they had changed by then, and none was before."""
        states = [] if self.knows_before else self.osd_turns.states(name)
        return (self.episode.begin, states[0][0]) if states and states[0][1] else None

    # what the events and the OSD maps say

    def injected(self) -> Milestone:
        if self.episode.done is None:
            return Milestone(reason=self.episode.failed or "its commands never ended")
        return Milestone(self.episode.done)

    undone = injected

    def in_effect(self) -> Milestone:
        return Milestone(self.episode.in_effect)

    def first_down(self) -> Milestone:
        if self.turned:
            return Milestone(self.turned[0])
        whose = " of the fault" if self.episode.osds else ""
        return Milestone(reason=f"no OSD{whose} was marked {'down' if self.is_failure else 'up'}")

    first_up = first_down

    def all_down(self) -> Milestone:
        return self._all(self._state("down"), "down", "up", "stayed up")

    def all_up(self) -> Milestone:
        have = self.osds - self._state("down") if self.knows_before else set()
        return self._all(have, "up", "down", "stayed down")

    def out(self) -> Milestone:
        return self._all(self._state("out"), "out", "inside", "stayed in")

    def _state(self, key: str) -> Set[int]:
        return set(self.before.state.get(key) or ()) if self.before else set()

    def _all(self, have: Set[int], gained: str, lost: str, otherwise: str) -> Milestone:
        if not self.osds:
            return Milestone(reason=NO_CHANGE)
        if self.osds <= have:
            return Milestone(reason=BEFORE)
        for change in self.changes:
            have = (have | set(getattr(change, gained))) - set(getattr(change, lost))
            if self.osds <= have:
                return Milestone(change.t)
        names = ", ".join(f"osd.{osd}" for osd in sorted(self.osds - have))
        return Milestone(reason=f"{names} {otherwise} until {self.episode.end_why}")

    def outcome(self, clean: Milestone) -> str:
        """Return whether all PGs were active+clean in the end, in a word."""
        if clean.t is not None or clean.happened:
            return "recovered"
        if clean.between is not None or not self.samples:
            return "unknown"
        return "not recovered" if self.touched_anything else UNCHANGED

    def flapped(self) -> Optional[Dict[str, Any]]:
        """Return the OSDs that had returned and went down again first, and the time."""
        if self.is_failure or not self.knows_before:
            return None
        osds = set(self.episode.osds)
        up = osds - self._state("down")
        for change in self.changes:
            again = sorted(up & set(change.down))
            if again:
                return {"t": change.t, "osds": again}
            up |= osds & set(change.up)
        return None

    # what the samples say

    def degraded_peak(self) -> Milestone:
        return self._peak("degraded")

    def misplaced_peak(self) -> Milestone:
        return self._peak("misplaced")

    def _upto_clean(self) -> List[Sample]:
        clean = self.clean().t
        return [sample for sample in self._since_change() if clean is None or sample.t <= clean]

    def _since_change(self) -> List[Sample]:
        return self.samples[bisect.bisect_left(self.times, self.since) :]

    def _peak(self, object_state: str) -> Milestone:
        upto = self._upto_clean()
        top = max(upto, key=lambda sample: sample.count(object_state), default=None)
        if top is None or not top.count(object_state):
            return Milestone(reason=f"no object was {object_state}" if upto else "no samples")
        pgs = sum(n for state, n in top.pgs.items() if "degraded" in state.split("+"))
        value = {"objects": top.count(object_state), "total": top.total(object_state), "degraded_pgs": pgs}
        value["most_inactive_pgs"] = max(sample.inactive for sample in upto)
        return self._at(top, value)

    def recovery_starts(self) -> Milestone:
        before = self.run_samples.before(self.since)
        if before and before.recovering_or_backfilling and self.since - before.t <= self.run_samples.longest_interval:
            return Milestone(reason=ALREADY)
        first = next((sample for sample in self._since_change() if sample.recovering_or_backfilling), None)
        return self._at(first) if first else Milestone(reason=f"no PG recovered until {self.episode.end_why}")

    def no_object_degraded(self) -> Milestone:
        if all(sample.all_copies for sample in self._upto_clean()):
            return Milestone(reason=ALL_COPIES if self.samples else "no samples")
        return self._stretch(lambda sample: sample.all_copies, "without degraded objects")

    def clean(self) -> Milestone:
        if not self.touched_anything:
            return Milestone(reason=STAYED_CLEAN if self.samples else "no samples")
        return self._stretch(lambda sample: sample.clean, "clean")

    def health_ok(self) -> Milestone:
        since = self._since_change()
        ill = next((sample for sample in since if not self._is_healthy(sample)), None)
        if ill is None:
            return Milestone(reason=SAME_HEALTH if self.samples else "no samples")
        first = next((sample for sample in since if sample.t > ill.t and self._is_healthy(sample)), None)
        return self._at(first) if first else Milestone(reason=f"not until {self.episode.end_why}")

    def _is_healthy(self, sample: Sample) -> bool:
        """Return whether nothing ails the cluster; flags that were set before, by the run for example, do not count."""
        if sample.state.get("health") == "HEALTH_OK":
            return True
        check_texts, before = (
            each_sample.state.get("says") or {} if each_sample else {} for each_sample in (sample, self.before)
        )
        flags = check_texts.get(_FLAGS)
        return set(sample.state.get("checks") or ()) == {_FLAGS} and flags is not None and flags == before.get(_FLAGS)

    def _stretch(self, holds: Callable[[Sample], bool], word: str) -> Milestone:
        """Find the first sample of the first stretch that is stable, after the last map that the recovery is about."""
        stretch = self._stable(holds, self._last_change())
        if stretch.first:
            return Milestone(stretch.first.t, None, None, stretch.first.t - stretch.last_not)
        why = f"not until {self.episode.end_why}, {self.episode.end - self.episode.begin:.0f} s after the event"
        if stretch.outdated:
            why += f"; {word} for {stretch.longest:.1f} s, but it is unknown whether the statistics were newer than "
            why += "the OSD map"
            error = " ".join(str(stretch.outdated.state.get("mgr_error") or "").split())[:_ERROR_LENGTH]
            why += f" ({error})" if error else ""
        elif stretch.longest:
            why += f"; {word} for {stretch.longest:.1f} s at the longest, which is not stable"
        return Milestone(reason=why)

    def _last_change(self) -> float:
        """Return the time of the last map of the recovery, before NEXT_EVENT_AFTER seconds of clean PGs."""
        for this, following in zip(self.changed, self.changed[1:]):
            if self._stable(lambda sample: sample.clean, this, following, NEXT_EVENT_AFTER).first:
                return this
        return self.changed[-1] if self.changed else self.episode.begin

    def _stable(
        self, holds: Callable[[Sample], bool], after: float, until: float = math.inf, lasting: float = STABLE_IN_SAMPLES
    ) -> Stable:
        """Look for a stretch between two times that lasts so long, and at its end has new statistics."""
        first, before = None, None
        longest, outdated = 0.0, None
        last_not = self.episode.begin
        # from the last sample before on: an OSD may flap for days
        for sample in self.samples[max(0, bisect.bisect_left(self.times, after) - 1) :]:
            if sample.t >= until:
                break
            if before is not None and sample.t - before > self.run_samples.longest_interval:
                first = None  # what was in the gap nobody knows
            before = sample.t
            if sample.t < after or not holds(sample):
                first, last_not = None, sample.t
                continue
            first = first or sample
            lasted = sample.t - first.t
            if lasted >= lasting and sample.settled:
                return Stable(first, last_not, lasted, None)
            outdated = sample if lasted >= lasting else outdated
            longest = max(longest, lasted if sample.settled or outdated else 0.0)
        return Stable(None, last_not, longest, outdated)

    def _at(self, sample: Sample, value: Optional[Dict[str, Any]] = None) -> Milestone:
        before = self.run_samples.before(sample.t)
        return Milestone(sample.t, None, value, sample.t - (before.t if before else self.episode.begin))


def titled(episode: Mapping[str, Any]) -> str:
    """Return the name of an episode in texts."""
    aborted = f" (aborted attempt {episode['aborted']})" if episode.get("aborted") else ""
    again = " (injected again)" if episode["kind"] == "failure" and episode.get("again") is not None else ""
    return f"{episode['kind']} of {', '.join(episode['labels'])}{aborted}{again}"


def blocks(recovery: Mapping[str, Any]) -> Iterator[Block]:
    """Yield a block for each episode."""
    for episode in recovery["episodes"]:
        rows = tuple(map(_milestone, in_order(episode["milestones"])))
        parts: List[Block] = [TableGrid((), rows, (True, False, True))]
        rate, left = episode["recovery"], episode["left"]
        if rate and rate["objects_per_s"] is not None:
            copies = "" if rate["copies_per_s"] is None else f", {rate['copies_per_s']:.0f} copies/s"
            text = f"recovered {rate['objects_per_s']:.0f} objects/s, {rate['mib_per_s']:.1f} MiB/s{copies}"
            parts.append(Words((text,)))
        if left:
            states = ", ".join(f"{n} {state}" for state, n in sorted(left["pgs"].items(), key=lambda item: -item[1]))
            parts.append(Words((f"left: {left['degraded']} degraded, {left['unfound']} unfound; PGs: {states}",)))
        yield TitledBlocks(f"{titled(episode)}: {episode['outcome']}", tuple(parts))


def in_order(milestones: Sequence[Mapping[str, Any]]) -> List[Mapping[str, Any]]:
    """Return milestones in the order of time; those without a time keep their place behind the one before them."""
    latest, placed = float("-inf"), []
    for milestone in milestones:
        seconds = milestone["seconds"]
        latest = seconds if seconds is not None else latest
        placed.append((latest, milestone))
    return [milestone for _, milestone in sorted(placed, key=lambda pair: pair[0])]


def _milestone(milestone: Mapping[str, Any]) -> Tuple[str, str, str]:
    if milestone["seconds"] is None:
        return milestone["title"], NONE, milestone["reason"]
    value = milestone["value"]
    detail = f"{value['objects']} of {value['total']} object copies" if value else ""
    return milestone["title"], f"{milestone['seconds']:.1f} s", detail
