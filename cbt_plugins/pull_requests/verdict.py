"""The verdict: what the decisions of a campaign mean for a pull request."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Optional

from cbt_plugins import exit_status
from cbt_plugins.campaigns.evaluation import Evaluation, RowState
from cbt_plugins.campaigns.output import change_text, headline, margins_of
from cbt_plugins.compare.statistics.verdicts import Verdict
from cbt_plugins.config.pull_request import BASE
from cbt_plugins.metrics import METRICS, Direction


class Outcome(Enum):
    """The outcome of a row or of all; the value is the exit status."""

    OK = exit_status.OK
    REGRESSION = exit_status.FAILED
    INCONCLUSIVE = exit_status.INCONCLUSIVE
    CANNOT = exit_status.CANNOT

    @property
    def word(self) -> str:
        return {Outcome.OK: "no regression", Outcome.CANNOT: "cannot be tested"}.get(self, self.name.lower())


@dataclass(frozen=True)
class PullRequestVerdict:
    """The answer."""

    outcome: Outcome
    why: str  # one sentence; nothing that a command of the pull request has printed
    state: Optional[Evaluation] = None
    arm: str = ""  # that cannot be tested
    seconds: float = 0.0  # spent

    @property
    def conclusion(self) -> str:
        """The conclusion of a GitHub check. That the base cannot be tested is no failure of the pull request."""
        if self.outcome is Outcome.INCONCLUSIVE or (self.outcome is Outcome.CANNOT and self.arm == BASE):
            return "neutral"
        return "success" if self.outcome is Outcome.OK else "failure"


def outcome_of(row: RowState, state: Evaluation) -> Outcome:
    """Return the outcome of a row: a regression if it is surely worse, unless it was surely within the limit first.

    Where the time is over, a row whose interval has no change for the worse as large as the limit is no regression.
    """
    if row.verdict is Verdict.WORSE:
        return Outcome.REGRESSION
    if row.verdict in (Verdict.BETTER, Verdict.EQUIVALENT):
        return Outcome.OK
    low, high = row.decision.low, row.decision.high
    if row.verdict or row.forbidden or row.capped or low is None or high is None:
        return Outcome.INCONCLUSIVE
    worst = high if METRICS[row.id.metric].direction is Direction.LOWER else -low
    return Outcome.OK if worst < state.schedule.margin_of(row.id.metric) else Outcome.INCONCLUSIVE


def is_regression(state: Evaluation) -> bool:
    """Return whether a regression is sure: no other row changes the verdict then."""
    return any(row.verdict is Verdict.WORSE for row in state.rows)


def pull_request_verdict(state: Evaluation) -> PullRequestVerdict:
    """Return the answer of a campaign that has ended."""
    outcomes = {row.id: outcome_of(row, state) for row in state.rows}
    for outcome in (Outcome.REGRESSION, Outcome.INCONCLUSIVE):
        rows = [row for row in state.rows if outcomes[row.id] is outcome]
        if rows:
            texts = ", ".join(f"{row.id.text} {change_text(row.decision)}" for row in rows)
            return PullRequestVerdict(outcome, f"{texts}; {headline(state)}", state)
    if not state.rows:
        return PullRequestVerdict(Outcome.INCONCLUSIVE, "no block was measured", state)
    if state.unmatched_keys:
        return PullRequestVerdict(Outcome.INCONCLUSIVE, headline(state), state)
    limit = margins_of(state.schedule, [row.id.metric for row in state.rows]).replace("±", "")
    return PullRequestVerdict(Outcome.OK, f"no key row became worse by {limit} or more; {headline(state)}", state)
