"""Turns of an episode's OSDs as the samples show them: those that no OSD map tells of, too, because lines are lost."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Callable, Dict, Iterator, List, Optional, Sequence, Set, Tuple

from cbt_plugins.results.recovery.cluster_samples import Sample, Samples

#: seconds by which the time of a map and that of a sample may differ
_NEAR = 0.25


@dataclass
class OsdTurns:
    """When the OSDs went down (of a return: came up), between which samples."""

    run_samples: Samples
    watched: Sequence[Sample]  # of the episode, and the one before
    osds: Set[int]
    is_failure: bool

    def states(self, name: str) -> List[Tuple[float, bool]]:
        """Return the times of the samples that know the OSDs, and whether a milestone of them holds."""
        rules: Dict[str, Callable[[Set[int], Set[int]], bool]] = {
            "first-down": lambda down, out: bool(self.osds & down),
            "all-down": lambda down, out: self.osds <= down,
            "first-up": lambda down, out: not self.osds <= down,
            "all-up": lambda down, out: not self.osds & down,
            "out": lambda down, out: self.osds <= out,
        }
        holds = rules.get(name)
        if holds is None or not self.osds:
            return []
        return [
            (sample.t, holds(set(sample.state["down"]), set(sample.state.get("out") or ())))
            for sample in self.watched
            if "down" in sample.state
        ]

    def of(self, name: str) -> Optional[Tuple[float, float]]:
        """Return the two samples between which a milestone of the OSDs came."""
        states = self.states(name)
        for (a, before), (b, after) in zip(states, states[1:]):
            if after and not before:
                return a, b
        return None

    def earlier(self, name: str, t: float) -> Optional[Tuple[float, float]]:
        """Return the time in which a milestone came, or may have come, before the map of time `t` that tells of it."""
        turn = self.of(name)
        if turn is None or (turn[1] + _NEAR >= t and turn not in self.untold) or turn[0] >= t:
            return None
        return turn[0], min(turn[1], t)

    @cached_property
    def untold(self) -> List[Tuple[float, float]]:
        """Samples between which OSDs turned without a map that tells of it."""
        return list(self._untold())

    def _untold(self) -> Iterator[Tuple[float, float]]:
        samples = [sample for sample in self.watched if "down" in sample.state]
        turn = "down" if self.is_failure else "up"
        for a, b in zip(samples, samples[1:]):
            if a.state["down"] == b.state["down"]:
                continue
            before, after = set(a.state["down"]), set(b.state["down"])
            turned = self.osds & (after - before if self.is_failure else before - after)
            since = a.t - self.run_samples.longest_interval  # another sampler may have been told of it
            near = self.run_samples.between(since, math.nextafter(b.t, math.inf))
            told_turns = {text for sample in near for text in sample.changed}
            if any(f"osd.{osd} {turn}" not in told_turns for osd in turned):
                yield a.t, b.t
