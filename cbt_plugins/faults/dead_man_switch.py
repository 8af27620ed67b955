"""Dead man's switch: ends a fault on a node at its deadline, even if nobody can reach the node."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Tuple

from pydantic import AfterValidator, Field

from cbt_plugins.config.fault import LONGEST_DEADLINE
from cbt_plugins.faults import node_shell
from cbt_plugins.faults.kind import KindOptions, Seconds
from cbt_plugins.faults.node_shell import FOLDER
from cbt_plugins.faults.scene import ClusterLimits
from cbt_plugins.faults.step import Check, Command

#: seconds
_SHORTEST = 5.0


def _possible(deadline: float) -> float:
    if not _SHORTEST <= deadline <= LONGEST_DEADLINE:
        raise ValueError("must be 5s to 7d: after the deadline the node recovers by itself")
    return deadline


class DeadlineOptions(KindOptions):
    """Options of a kind with a dead man's switch on each of its nodes."""

    deadline: Annotated[Seconds, AfterValidator(_possible)] = Field(
        900.0,
        description="Time after which the node undoes the fault by itself; 5s to 7d. In `osdfailure:` and "
        "`resilience:` the default is the time in force and 5 minutes.",
    )


@dataclass(frozen=True)
class DeadManSwitch:
    """The dead man's switch of one step on one node: the command that arms it, and the undo that disarms it.

    `recover` may run any number of times; `recovered` is shell text that prints "recovered" when it has worked.
    """

    name: str  # unique on the node
    node: str
    recover: str
    recovered: str
    deadline: float  # seconds
    timeout: float  # most seconds for the recovery
    limits: ClusterLimits

    @property
    def unless_fired(self) -> str:
        """Beginning of a fault's shell text: exit if the node has recovered already, so that no fault begins."""
        return f'{FOLDER}; [ ! -e "$d/{self.name}.recovered" ] || exit {node_shell.TOO_LATE}; '

    @property
    def arm(self) -> Command:
        """Command that arms the switch."""
        return self._command(node_shell.arm_text(self.name, self._back, self.deadline))

    @property
    def undo(self) -> Tuple[Command, ...]:
        """Commands that recover and disarm."""
        return self._command(self._back), self._command(node_shell.disarm(self.name))

    @property
    def checks(self) -> Tuple[Check, ...]:
        """Checks that the node has recovered, and that no part of the switch is left."""
        return (
            Check(self.node, self.recovered, (((), "recovered"),), self.timeout, root=True),
            Check(self.node, node_shell.is_disarmed(self.name), (((), "disarmed"),), self.timeout, root=True),
        )

    @property
    def _back(self) -> str:
        return f'{FOLDER}; : > "$d/{self.name}.recovered"; {self.recover}'

    def _command(self, text: str) -> Command:
        return Command(self.node, text, self.limits.quick, root=True)
