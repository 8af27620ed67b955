"""The milestones of failures and returns: their titles and rules, and the reasons of those without a time."""

from __future__ import annotations

from typing import Dict, Tuple

#: seconds for which a state must last to be called stable; `wait:` of a run uses run.wait_phase.STABLE_IN_WAIT instead
STABLE_IN_SAMPLES = 6.0

_STABLE_RULE = (
    f"of a stretch of at least {STABLE_IN_SAMPLES:g} s, after the last change of an OSD, with statistics newer than it"
)
#: name -> (title, rule in words); `milestones` decides
RULES: Dict[str, Tuple[str, str]] = {
    "injected": ("injected", "the commands of the fault have ended"),
    "in-effect": ("in effect", "the run has seen the effect of the fault"),
    "undone": ("undone", "the undo was checked against the cluster"),
    "first-down": ("first OSD down", "first OSD map in which an OSD of the fault is down"),
    "all-down": ("all OSDs down", "first OSD map in which all OSDs of the fault are down at once"),
    "first-up": ("first OSD up", "first OSD map in which an OSD of the fault is up again"),
    "all-up": ("all OSDs up", "first OSD map in which all OSDs of the fault are up at once"),
    "degraded-peak": ("degraded, peak", "sample with the most degraded object copies, until all PGs are clean"),
    "misplaced-peak": ("misplaced, peak", "sample with the most misplaced object copies, until all PGs are clean"),
    "out": ("out", "first OSD map in which all OSDs of the fault are out"),
    "recovery-starts": (
        "recovery starts",
        "first sample with a PG that is recovering or backfilling, after an OSD changed",
    ),
    "no-object-degraded": (
        "no object degraded",
        f"first sample without degraded or unfound objects and without inactive PGs {_STABLE_RULE}",
    ),
    "health-ok": (
        "HEALTH_OK",
        "first sample with HEALTH_OK, or only with flags that were set before, after a sample without",
    ),
    "clean": ("all PGs active+clean", f"first sample with all PGs active+clean {_STABLE_RULE}"),
}
_END = ("no-object-degraded", "health-ok", "clean")
MILESTONES_OF = {
    "failure": ("injected", "in-effect", "first-down", "all-down", "degraded-peak", "out", "recovery-starts", *_END),
    "return": ("undone", "first-up", "all-up", "recovery-starts", "misplaced-peak", *_END),
}
#: what lasts once it has happened, so that a later sample would show it
STAYS_TRUE = ("first-down", "all-down", "first-up", "all-up", "out", "no-object-degraded", "health-ok", "clean")
BEFORE, ALREADY, NO_CHANGE = "they were before", "PGs were recovering already", "no OSD changed"
#: reasons that no gap can change
CERTAIN = (BEFORE, ALREADY)
STAYED_CLEAN = "no OSD changed and all PGs stayed active+clean"
ALL_COPIES, SAME_HEALTH = "no object was degraded", "health never changed"
#: reasons that are none where samples begin late: it may have been over by then
NOT_SINCE = (STAYED_CLEAN, ALL_COPIES, SAME_HEALTH)
