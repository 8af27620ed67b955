"""The warnings about failures and returns: what they do not tell, or what they tell of something else."""

from __future__ import annotations

import math
from datetime import datetime, timezone
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

from cbt_plugins.formatting import several
from cbt_plugins.results.clock_steps import clock_text
from cbt_plugins.results.recovery.cluster_samples import Change, Samples
from cbt_plugins.results.recovery.episodes import EARLY, Episode, is_planned, rows_of


def early_end(episode: Episode, changes: Sequence[Change]) -> Optional[Dict[str, Any]]:
    """Return the first OSDs of a fault that came back before its undo and stayed, and the time; None without any.

    None also for a fault whose OSDs are to come back. Without OSDs the fault had ended some time before that.
    """
    if episode.kind != "failure" or episode.returns or episode.done is None:
        return None
    back: Dict[Tuple[str, int], float] = {}
    for change in changes:
        if episode.done < change.t < episode.until:
            for state, gained, lost in (("up", change.up, change.down), ("in", change.inside, change.out)):
                for osd in {*episode.osds} & {*lost}:  # it only flaps
                    back.pop((state, osd), None)
                for osd in {*episode.osds} & {*gained} if change.t < episode.until - EARLY else ():
                    back[state, osd] = change.t
    if back:
        t = min(back.values())
        first = [which for which, since in back.items() if since == t]
        state = "up" if any(state == "up" for state, _ in first) else "in"
        undo = None if episode.until == math.inf else episode.until
        osds = sorted({osd for _, osd in first})
        return {"t": t, "osds": osds, "undo": undo, "state": state, "switch": episode.fired <= t}
    if episode.ended is not None and episode.ended < episode.fired:
        return {"t": episode.ended, "osds": [], "undo": episode.until, "state": "over", "switch": False}
    return None


def episode_warnings(samples: Samples, episodes: Sequence[Mapping[str, Any]]) -> Iterator[Dict[str, Any]]:
    """Yield {"code", "text"} of episodes in their plain form; with "episode" it is about the rows of that one."""
    planned = [episode for episode in episodes if is_planned(episode)]
    if not samples.samples:
        yield {"code": "no-recovery-samples", "text": "no samples of the cluster: was the profile `recovery` on?"}
    for episode in planned:
        about = f"{episode['kind']} {', '.join(episode['labels'])}"
        text = _of_resume(episode, episodes)
        if text:
            yield {"code": "fault-time", "text": f"{about}: {text}", "episode": rows_of(episode)}
        for warning in _about(samples, episode) if samples.samples else ():
            yield {"code": warning["code"], "text": f"{about}: {warning['text']}", "episode": rows_of(episode)}
        early = episode["ended_early"]
        # what else is in force then does not recover as it would
        for affected in planned if early else ():
            if affected is episode or affected["begin"] <= early["t"] < affected["end"]:
                yield {"code": "fault-ended-early", "text": f"{about}: {_early(early)}", "episode": rows_of(affected)}
    if not samples.samples:
        return
    for why in dict.fromkeys(samples.fallbacks):
        text = f"recovery was sampled through the ceph command, not librados: {why}; set librados: false to sample so"
        yield {"code": "sampled-by-command", "text": text}
    if samples.clock_steps:
        text = f"the node that samples the cluster: {clock_text(samples.clock_steps)}"
        yield {"code": "recovery-gap", "text": text}
    if samples.skew:
        text = f"the monitors' clock is at least {samples.skew:.2f} s off the clock of the node that asked"
        yield {"code": "clock-skew", "text": f"{text}: times of OSD maps are as exact as the samples"}


def _of_resume(episode: Mapping[str, Any], episodes: Sequence[Mapping[str, Any]]) -> str:
    """Return that a resumed run has injected the fault of an episode again; "" where it has not."""
    if episode["kind"] == "return":
        if episode["again"] is None:
            return ""
        return f"the fault was undone with a broken-off run, and injected again {episode['again']:.1f} s before"
    following = [later for later in episodes if later["begin"] > episode["begin"]]
    label = episode["labels"][0]
    # otherwise the next failure or return of the plan has ended its rows before
    broken_off = bool(following) and bool(following[0]["aborted"])
    again = any(later["again"] and later["kind"] == "failure" and label in later["labels"] for later in following)
    text = "the fault was undone with a broken-off run, and injected again: its rows lack the load from then on"
    return text if broken_off and again else ""


def _about(samples: Samples, episode: Mapping[str, Any]) -> Iterator[Dict[str, str]]:
    gaps = list(_gaps(samples, episode))
    if gaps:
        worst = max(gaps, key=lambda gap: float(gap["seconds"]))
        many = several(len(gaps), "gap")
        yield {
            "code": "recovery-gap",
            "text": f"{many} in the samples, the longest {worst['seconds']:.1f} s: {worst['why']}",
        }
    fired = episode["switch_fired"]
    if fired and fired["undo"] - fired["t"] > EARLY:
        early = f"{fired['undo'] - fired['t']:.1f} s before its undo"
        text = f"the fault ended by itself at {_clock(fired['t'])}, {early}; a longer deadline keeps it"
        yield {"code": "switch-fired-early", "text": text}
    unclean = episode["before"] and not episode["before"]["clean"] and episode["kind"] == "failure"
    # beside another fault of the run it is as the plan wants it
    if unclean and not episode["beside_faults"]:
        yield {"code": "not-clean-before", "text": "not all PGs were active+clean before it"}
    flapped = episode["flapped"]
    if flapped:
        since = f"{flapped['t'] - episode['begin']:.1f} s after the undo began"
        text = f"{_osds(flapped['osds'])} down again at {_clock(flapped['t'])}, {since}"
        yield {"code": "osd-flapped", "text": text}
    if episode["outcome"] == "not recovered":
        why = next(m["reason"] for m in episode["milestones"] if m["name"] == "clean")
        yield {"code": "not-recovered", "text": f"not all PGs active+clean: {why}"}


def _gaps(samples: Samples, episode: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the times of an episode without samples, also before the first sample of all and after the last one."""
    yield from (gap for gap in samples.gaps if _overlap(gap, episode))
    begin, end = episode["begin"], episode["end"]
    for low, high in ((begin, min(end, samples.samples[0].t)), (max(begin, samples.samples[-1].t), end)):
        if high - low > samples.longest_interval:
            yield {"t": high, "seconds": high - low, "why": "no monitor ran"}


def _early(early_end: Mapping[str, Any]) -> str:
    if not early_end["osds"]:
        return f"it was no longer in force at {_clock(early_end['t'])}, before its undo: something else has ended it"
    before = "" if early_end["undo"] is None else f", {early_end['undo'] - early_end['t']:.1f} s before its undo"
    when = f"{_clock(early_end['t'])}{before}"
    who = "the switch of its node" if early_end["switch"] else "something else"
    return f"{_osds(early_end['osds'])} {early_end['state']} again at {when}: {who} has ended the fault"


def _osds(osds: List[int]) -> str:
    return f"{', '.join(f'osd.{osd}' for osd in osds)} {'was' if len(osds) == 1 else 'were'}"


def _clock(t: float) -> str:
    return datetime.fromtimestamp(t, timezone.utc).strftime("%H:%M:%S UTC")


def _overlap(gap: Mapping[str, Any], episode: Mapping[str, Any]) -> bool:
    return bool(gap["t"] > episode["begin"] and gap["t"] - gap["seconds"] < episode["end"])
