"""Episodes: the failures and returns of a run, and the state of the cluster at any time, in whole seconds."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from cbt_plugins.cluster_conditions import CLEANUP, NO_FAULTS, PREPARED
from cbt_plugins.results.attempts_in_events import Attempt, attempts, broken_off

#: undos that begin within so many seconds after the one before has ended are one return: one command undoes them
ONE_RETURN = 2.0
#: ... or within so many seconds after the one before has begun, if that has not ended
_NOT_ENDED = 30.0
#: seconds before its undo from which on a fault that ends by itself is worth a warning
EARLY = 1.0
#: seconds of a phase in which a fault that was injected again is in force, to be a failure in it
_IN_FORCE = 5.0
#: events until which the cluster was to be sampled -> seconds that the sampler may end before them
_SAMPLED_UNTIL = {"phase-end": 0.0, "run-done": 10.0}
#: why the last episode of a run ends
_RUN_ENDS, _SAMPLES_END, _DATA_ENDS = "the run ends", "the samples end", "the run removes its data"


@dataclass(frozen=True)
class Episode:
    """One failure, or the return from one or several."""

    kind: str  # "failure" | "return"
    labels: Tuple[str, ...]
    osds: Tuple[int, ...]  # as the events named them; () when they did not
    begin: float  # its commands begin
    done: Optional[float] = None  # ... and have ended
    end: float = 0.0  # the next episode begins, the run removes its data, or the samples or the run end
    end_why: str = ""
    in_effect: Optional[float] = None  # the run has seen the effect of the failure
    failed: str = ""  # why its commands failed
    aborted: str = ""  # the attempt at a phase, or its folder, that it belongs to, where that was broken off
    again: Optional[float] = None  # seconds in force of its fault, which was injected again when the run was resumed
    switch_fired: Optional[float] = None  # a node had ended its fault by its own switch ...
    undo_begin: float = 0.0  # ... before its undo began
    until: float = math.inf  # the undo of a failure begins
    fired: float = math.inf  # a node ended this failure by its own switch
    ended: Optional[float] = None  # right before its undo something else had ended this failure
    returns: bool = False  # what the fault takes comes back without its undo


def rows_of(episode: Mapping[str, Any]) -> str:
    """Return the name of an episode in comparisons, where a phase has its name: "kill failure"."""
    return f"{'+'.join(episode['labels'])} {episode['kind']}"


def is_planned(episode: Mapping[str, Any]) -> bool:
    """Return whether an episode in its plain form is a result: its fault or its undo was as the plan wants it."""
    again = episode["kind"] == "failure" and episode.get("again") is not None
    return not (episode.get("aborted") or again)


def has_whole_recovery(episode: Mapping[str, Any]) -> bool:
    """Return whether all that recovery did in an episode in its plain form is counted.

    The recovery has ended, or the next event of the plan has ended a failure that had not recovered by then.
    """
    if any(milestone["name"] == "clean" and milestone["t"] is not None for milestone in episode["milestones"]):
        return True
    cut = episode.get("end_why") in (None, _RUN_ENDS, _SAMPLES_END, _DATA_ENDS)
    return episode["kind"] == "failure" and episode.get("outcome") == "not recovered" and not cut


def episodes(events: Sequence[Mapping[str, Any]], last: float) -> List[Episode]:
    """Return failures and returns by time, from lines of events.jsonl; `last` is the time of the last sample.

    A fault that is injected again when its run is resumed is a failure only where a phase has it in force.
    """
    events = sorted(events, key=lambda event: float(event.get("t") or 0))
    all_episodes: List[Episode] = []
    faults = [event for event in events if event.get("kind") not in NO_FAULTS]
    for event in faults:
        name, t = event.get("event"), float(event.get("t") or 0)
        label, osds = str(event.get("label")), tuple(int(osd) for osd in event.get("osds") or ())
        at = next((i for i in reversed(range(len(all_episodes))) if label in all_episodes[i].labels), None)
        if name == "fault-inject-begin":
            all_episodes.append(Episode("failure", (label,), osds, t, returns=bool(event.get("returns"))))
        elif name == "fault-undo-begin":
            if at is not None and all_episodes[at].kind == "failure":
                all_episodes[at] = replace(all_episodes[at], until=t)
            before = all_episodes[-1] if all_episodes else None
            if before and before.kind == "return" and _is_same_return(before, t):
                both = (*before.labels, *(() if label in before.labels else (label,)))
                all_episodes[-1] = replace(before, labels=both, osds=_both(before.osds, osds), done=None)
            else:
                all_episodes.append(Episode("return", (label,), osds, t))
        elif name in ("fault-injected", "fault-undone") and at is not None:
            all_episodes[at] = replace(all_episodes[at], done=t, osds=_both(all_episodes[at].osds, osds))
        elif name == "fault-in-effect" and at is not None and all_episodes[at].kind == "failure":
            seen = max((event.get("milestones") or {}).values(), default=t)
            all_episodes[at] = replace(all_episodes[at], in_effect=float(seen))
        elif name == "fault-ended" and at is not None and all_episodes[at].kind == "failure":
            all_episodes[at] = replace(all_episodes[at], ended=t)
        elif name == "fault-recovered" and at is not None and all_episodes[at].kind == "return":
            undo_begin = all_episodes[at].begin
            all_episodes[at] = _early_return(all_episodes[at], all_episodes[at - 1], float(event["at"]))
            if all_episodes[at].begin < undo_begin:  # what comes back from then on is of the return
                all_episodes[at - 1] = replace(all_episodes[at - 1], until=all_episodes[at].begin)
            of = next(
                (
                    i
                    for i in reversed(range(at))
                    if all_episodes[i].kind == "failure" and label in all_episodes[i].labels
                ),
                None,
            )
            if of is not None:
                all_episodes[of] = replace(all_episodes[of], fired=min(all_episodes[of].fired, float(event["at"])))
        elif name == "fault-failed" and at is not None:
            all_episodes[at] = replace(
                all_episodes[at], failed=str(event.get("text") or event.get("why") or "it failed")
            )
    ends = [(e.begin, f"the {_WORDS[e.kind]} {', '.join(e.labels)} begins") for e in all_episodes[1:]]
    ends += [_end_of_run(events, all_episodes[-1], last)] if all_episodes else []
    parts = list(broken_off(events))
    ended = [
        replace(
            episode, end=end, end_why=why, aborted=next((p.name for p in parts if p.begin <= episode.begin < p.end), "")
        )
        for episode, (end, why) in zip(all_episodes, ends)
    ]
    return list(_injected_again(ended, list(attempts(events))))


def _is_same_return(before: Episode, t: float) -> bool:
    """Return whether an undo that begins at `t` belongs to the return before it."""
    return t - before.begin < _NOT_ENDED if before.done is None else t - before.done < ONE_RETURN


def _end_of_run(events: Sequence[Mapping[str, Any]], episode: Episode, last: float) -> Tuple[float, str]:
    """Return the end of the last episode, and why: a sampler may end before the run does.

    PGs that are removed with the data of the run do not recover. Runs of earlier versions tell only of their pools.
    """
    for event in events:
        removes = event.get("event") == "fault-undo-begin" and event.get("kind") == PREPARED
        if (removes or event.get("event") == CLEANUP) and float(event["t"]) > episode.begin:
            return float(event["t"]), _DATA_ENDS
    sampled = max(last, episode.done or episode.begin)
    ends = ((_SAMPLED_UNTIL.get(str(event.get("event"))), float(event.get("t") or 0)) for event in events)
    run_end = max((t - before for before, t in ends if before is not None), default=sampled)
    return (run_end, _RUN_ENDS) if run_end > sampled else (sampled, _SAMPLES_END)


def _injected_again(episodes: Sequence[Episode], tries: Sequence[Attempt]) -> Iterator[Episode]:
    """Yield the episodes, those of faults that were injected again marked: the plan injects faults in phases only."""
    again: Dict[str, float] = {}
    for episode in episodes:
        if episode.kind == "return":
            lasted = [again.pop(label) for label in episode.labels if label in again]
            yield replace(episode, again=min(lasted)) if lasted and not episode.aborted else episode
        elif not tries or episode.aborted or any(attempt.begin <= episode.begin < attempt.end for attempt in tries):
            yield episode
        else:
            again[episode.labels[0]] = min(episode.until, episode.end) - episode.begin
            if any(min(episode.until, attempt.end) - max(episode.begin, attempt.go) >= _IN_FORCE for attempt in tries):
                yield replace(episode, again=again[episode.labels[0]])


def _early_return(back: Episode, before: Episode, fired: float) -> Episode:
    """Return the return with the moment at which it really began, where no other fault returned or failed meanwhile."""
    undo_begin = back.undo_begin or back.begin
    if fired >= (back.switch_fired or undo_begin):
        return back
    alone = before.kind == "failure" and set(back.labels) <= set(before.labels)
    begin = max(fired, before.done or before.begin) if alone else back.begin
    return replace(back, begin=begin, switch_fired=fired, undo_begin=undo_begin)


def besides(episode: Episode, others: Sequence[Episode]) -> bool:
    """Return whether another fault of the run is in force when this one begins."""
    before = (
        earlier
        for earlier in others
        if earlier.kind == "failure" and not earlier.aborted and earlier.begin < episode.begin
    )
    return any(earlier.until > episode.begin for earlier in before)


_WORDS = {"failure": "fault", "return": "return of"}


def _both(first: Tuple[int, ...], second: Tuple[int, ...]) -> Tuple[int, ...]:
    return tuple(sorted({*first, *second}))


#: state -> what it means
STATES = {
    "no failure": "before the first fault",
    "failing": "from the fault's begin until all its OSDs are down",
    "degraded": "all its OSDs are down, no PG recovers yet",
    "recovering": "from the begin of recovery until all its OSDs are out, or all PGs are active+clean",
    "rebuilding": "all its OSDs are out, until all PGs are active+clean on the others",
    "clean without them": "all PGs are active+clean on the other OSDs",
    "in effect": "the effect of a fault was seen that took no OSD down",
    "no effect": "after a fault that took no OSD down and made no PG unclean",
    "failed": "after a fault, without samples of the cluster",
    "returning": "from the undo's begin until all OSDs are up",
    "recovering back": "all OSDs are up, until all PGs are active+clean",
    "returned": "after an undo, without samples of the cluster",
    "clean again": "all OSDs are up and all PGs active+clean",
}


#: states between a fault, or its undo, and all PGs active+clean, or the end of its effect
HURT = ("failing", "in effect", "degraded", "recovering", "rebuilding", "returning", "recovering back")


class Stretch(NamedTuple):
    """The state of the whole seconds start <= s < end."""

    state: str
    labels: Tuple[str, ...]  # of the faults
    start: float
    end: float


#: the state without a failure
_CALM = "no failure"


def stretches(recovery: Mapping[str, Any], start: float, end: float) -> List[Stretch]:
    """Return the states of a window (epoch seconds), from the result of `recovery.milestones`; nothing is left out."""
    borders: List[Tuple[str, Tuple[str, ...], float]] = [(_CALM, (), -math.inf)]
    for episode in recovery.get("episodes") or ():
        for state, t, is_milestone in _borders(episode):
            # the second of an event belongs to what it begins, that of a milestone to what it ends
            second = math.ceil(t) if is_milestone else math.floor(t)
            labels = () if state == _CALM else tuple(episode["labels"])
            borders.append((state, labels, max(float(second), borders[-1][2])))
    window_stretches = []
    for (state, labels, low), after in zip(borders, [*borders[1:], None]):
        low, high = max(low, start), min(after[2] if after else end, end)
        if low < high:
            window_stretches.append(Stretch(state, labels, low, high))
    return window_stretches


def _borders(episode: Mapping[str, Any]) -> Iterator[Tuple[str, float, bool]]:
    """Yield (state, its begin, whether a milestone begins it), by time."""
    # of what happened unseen, the time at which it had happened for sure
    times: Dict[str, Optional[float]] = {
        m["name"]: m["between"][1] if m["t"] is None and m.get("between") and m["happened"] else m["t"]
        for m in episode["milestones"]
    }
    falls = episode["kind"] == "failure"
    yield ("failing" if falls else "returning"), episode["begin"], False
    moved = times.get("all-down" if falls else "all-up") or times.get("first-down" if falls else "first-up")
    moved = moved or times.get("injected" if falls else "undone")
    if moved is None:
        return
    clean, starts = times.get("clean"), times.get("recovery-starts")
    if episode["effect"] is None:
        yield ("failed" if falls else "returned"), moved, True
        return
    seen = times.get("in-effect")
    if falls and seen is not None and not (episode["effect"] and episode["osds"]):
        yield "in effect", seen, True
        return
    if not episode["effect"]:
        yield ("no effect" if falls else _calm_again(episode)), moved, True
        return
    if falls:
        yield "degraded", moved, True
        out = times.get("out")
        if starts is not None and (clean is None or starts < clean) and (out is None or starts < out):
            yield "recovering", max(starts, moved), True
        # the data moves from then on: what clients have before says nothing of it
        if out is not None and (clean is None or out < clean):
            yield "rebuilding", max(out, moved), True
    else:
        yield "recovering back", moved, True
    if clean is not None:
        yield ("clean without them" if falls else _calm_again(episode)), max(clean, moved), True


def _calm_again(back: Mapping[str, Any]) -> str:
    """Return the state after a return: of an attempt that was broken off nothing is left in the repeated phase."""
    return _CALM if back.get("aborted") else "clean again"
