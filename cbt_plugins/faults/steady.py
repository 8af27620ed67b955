"""Whether a cluster is steady: nothing moves, and nothing is missing but what the run's own faults have taken."""

from __future__ import annotations

from typing import Collection, Dict, List, Mapping

from cbt_plugins.faults.cluster_facts import Facts

#: words in the states of PGs that are about to be active, in seconds, when OSDs have come or gone
SETTLING = frozenset({"creating", "peering", "activating", "stale", "unknown"})


def settling(states: Mapping[str, int]) -> int:
    """How many PGs, of a number by state, are about to be in another one."""
    return sum(n for state, n in states.items() if SETTLING.intersection(state.split("+")))


def unsteady(states: Mapping[str, int], beside_faults: bool) -> Dict[str, int]:
    """Of PGs by state, those that the rule `steady` does not take for quiet.

    Active+clean is quiet; `beside_faults` of this run, so is a PG that merely lacks what these have taken.
    """
    return {state: n for state, n in states.items() if n and not _at_rest(state, beside_faults)}


def _at_rest(state: str, beside_faults: bool) -> bool:
    words = set(state.split("+")) - {"scrubbing", "deep", "snaptrim", "snaptrim_wait"}
    lacking = beside_faults and "active" in words and words <= {"active", "clean", "undersized", "degraded"}
    return lacking or words == {"active", "clean"}


def down_otherwise(facts: Facts, held: Collection[int]) -> List[int]:
    """OSDs that are down, and were not taken by this run. Needs the answer to `osd dump` only."""
    return sorted(n for n, o in facts.osds.items() if not o["up"] and n not in held)
