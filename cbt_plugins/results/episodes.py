"""The events of faults -> failures and returns, each with the time in which its milestones are looked for."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, List, Mapping, Optional, Sequence, Tuple

#: undos that begin within so many seconds of the end of the one before are one return
TOGETHER = 30.0


@dataclass(frozen=True)
class Episode:
    """One failure, or the return from one or several."""

    kind: str  # "failure" | "return"
    labels: Tuple[str, ...]
    osds: Tuple[int, ...]  # as the events named them; () when they did not
    begin: float  # its commands begin
    done: Optional[float] = None  # ... and have ended
    end: float = 0.0  # the next episode begins, or the samples end
    end_why: str = ""
    failed: str = ""  # why its commands failed
    healed: Optional[float] = None  # a node of it had healed itself ...
    asked: float = 0.0  # ... before its undo began


def episodes(events: Sequence[Mapping[str, Any]], last: float) -> List[Episode]:
    """Failures and returns by time, from lines of events.jsonl; `last` is the time of the last sample."""
    found: List[Episode] = []
    faults = [event for event in events if event.get("kind") not in _SETTINGS]
    for event in sorted(faults, key=lambda event: float(event.get("t") or 0)):
        name, t = event.get("event"), float(event.get("t") or 0)
        label, osds = str(event.get("label")), tuple(int(osd) for osd in event.get("osds") or ())
        at = next((i for i in reversed(range(len(found))) if label in found[i].labels), None)
        if name == "fault-inject-begin":
            found.append(Episode("failure", (label,), osds, t))
        elif name == "fault-undo-begin":
            before = found[-1] if found else None
            if before and before.kind == "return" and t - (before.done or before.begin) < TOGETHER:
                both = (*before.labels, *(() if label in before.labels else (label,)))
                found[-1] = replace(before, labels=both, osds=_both(before.osds, osds), done=None)
            else:
                found.append(Episode("return", (label,), osds, t))
        elif name in ("fault-injected", "fault-undone") and at is not None:
            found[at] = replace(found[at], done=t, osds=_both(found[at].osds, osds))
        elif name == "fault-healed" and at is not None and found[at].kind == "return":
            found[at] = _healed(found[at], found[at - 1], float(event["at"]))
        elif name == "fault-failed" and at is not None:
            found[at] = replace(found[at], failed=str(event.get("text") or event.get("why") or "it failed"))
    ends = [(e.begin, f"the {_WORDS[e.kind]} {', '.join(e.labels)} begins") for e in found[1:]]
    ends.append((max([last, *(e.done or e.begin for e in found[-1:])]), "the samples end"))
    return [replace(episode, end=end, end_why=why) for episode, (end, why) in zip(found, ends)]


def _healed(back: Episode, before: Episode, healed: float) -> Episode:
    """The return with the moment at which it really began, where nothing else returned or failed meanwhile."""
    asked = back.asked or back.begin
    if healed >= (back.healed or asked):
        return back
    alone = before.kind == "failure" and set(back.labels) <= set(before.labels)
    begin = max(healed, before.done or before.begin) if alone else back.begin
    return replace(back, begin=begin, healed=healed, asked=asked)


#: what is set on the cluster has events, too
_SETTINGS = ("settings", "recovery")
_WORDS = {"failure": "fault", "return": "return of"}


def _both(one: Tuple[int, ...], other: Tuple[int, ...]) -> Tuple[int, ...]:
    return tuple(sorted({*one, *other}))
