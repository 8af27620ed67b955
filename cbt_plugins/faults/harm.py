"""What faults take away: one that is looked at, and those of the run that are in force."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, Mapping, Sequence, Tuple


@dataclass(frozen=True)
class Harm:
    """What a fault takes away."""

    osds: Tuple[int, ...] = ()  # down or out
    nodes: Tuple[str, ...] = ()  # as a whole, with everything that runs there
    out: bool = False  # the OSDs stay up and give their data away
    destroyed: bool = False  # their data is gone for good

    @property
    def stops(self) -> bool:
        """Whether OSDs are no longer there: what `ceph osd ok-to-stop` is about."""
        return bool(self.osds) and (self.destroyed or not self.out)


@dataclass(frozen=True)
class Held:
    """What an open fault of this run has taken."""

    harm: Harm
    seen: bool = False  # by the cluster: what is up now has come back by itself

    def missing(self, osds: Mapping[int, Mapping[str, Any]]) -> Tuple[int, ...]:
        """OSDs that are gone, or will be as soon as the cluster sees it."""
        if self.harm.out:
            return ()
        return tuple(o for o in self.harm.osds if not (self.seen and o in osds and osds[o]["up"]))


def questions(harm: Harm, held: Sequence[Held]) -> Dict[str, str]:
    """What to ask Ceph of a fault, alone: by the names that `radius` has for the answers.

    Whether the OSDs may be stopped is asked with those that the cluster does not know to be gone yet.
    """
    asked = {}
    if harm.stops:
        unseen = {o for h in held if not (h.seen or h.harm.out) for o in h.harm.osds}
        asked["ok_to_stop"] = " ".join(["osd ok-to-stop", *map(str, sorted({*harm.osds, *unseen}))])
    if harm.destroyed:
        asked["safe_to_destroy"] = " ".join(["osd safe-to-destroy", *map(str, harm.osds)])
    return asked
