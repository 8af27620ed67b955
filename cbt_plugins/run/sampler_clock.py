"""Clock of the node that samples the cluster: results put its samples on the run's clock by what is measured here."""

from __future__ import annotations

import logging
from dataclasses import asdict, dataclass
from typing import Optional

from cbt_plugins.cluster.clock_offsets import Offset, offsets
from cbt_plugins.cluster.cluster_watch import NoWatch
from cbt_plugins.cluster.remote import RemoteError
from cbt_plugins.cluster_conditions import CLOCK
from cbt_plugins.journal import tell
from cbt_plugins.run.context import RunContext
from cbt_plugins.run.phase_outcome import PhaseOutcome
from cbt_plugins.run.preflight import Ready

log = logging.getLogger(__name__)


@dataclass
class SamplerClock:
    """The clock, measured at the end of each phase: one that nobody synchronizes drifts by seconds in a day."""

    context: RunContext
    first: Optional[Offset]  # of the preflight; None: the clock is that of this machine, or nobody samples

    @classmethod
    def of(cls, run: RunContext, ready: Ready) -> SamplerClock:
        """Return the clock, and note its offset when the phases begin."""
        node = run.watch.node
        is_sampled = not isinstance(run.watch, NoWatch) and node in ready.offsets and run.remote.has_own_clock(node)
        clock = cls(run, ready.offsets[node] if is_sampled else None)
        if clock.first is not None:
            clock._note(clock.first)
        return clock

    def measure(self, outcome: PhaseOutcome) -> None:
        """Measure it at the end of a phase; from then on samples have times by the new offset."""
        run = self.context
        if self.first is None:
            return
        try:
            (now,) = offsets(run.remote, [run.watch.node]).values()
        except (RemoteError, OSError) as error:  # the samples themselves tell that they are missing
            log.warning("the clock of %s could not be measured again: %s", run.watch.node, error)
            return
        self._note(now)
        outcome.note_sampler_clock(run.watch.node, self.first, now)

    def _note(self, offset: Offset) -> None:
        self.context.watch.offset = offset.seconds
        tell(self.context.events.write, CLOCK, node=self.context.watch.node, **asdict(offset))
