"""The loop of a campaign: trials block by block, until the answer is sure or the budget is used up.

All state is the marks of the trials: a campaign that was interrupted or killed continues with the first trial that has
none. Nobody else may run it meanwhile.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Callable, Optional

from cbt_plugins import signals
from cbt_plugins.campaigns.default_options import describe_swap
from cbt_plugins.campaigns.evaluation import Evaluation, evaluate
from cbt_plugins.campaigns.output import data, headline, left_set, page, progress
from cbt_plugins.campaigns.schedule import CampaignError, PlannedTrial, Schedule
from cbt_plugins.campaigns.trial import Cycle, Trial, finished, run_trial
from cbt_plugins.formatting import seconds
from cbt_plugins.journal import Journal, JournalError, write_json, write_whole

#: attempts at a trial before the campaign stops
ATTEMPTS = 2


class TrialFailed(CampaignError):
    """A trial that failed again: the campaign stops, and the same command continues it."""

    def __init__(self, text: str, trial: Optional[Trial] = None) -> None:
        super().__init__(text)
        self.trial = trial


def _never(_: Evaluation) -> bool:
    return False


@dataclass(frozen=True)
class CampaignRun:
    """One process that runs a campaign."""

    schedule: Schedule
    say: Callable[[str], None]
    cycle_of: Optional[Callable[[str], Cycle]] = None  # of an arm, called before each trial; None: the schedule's
    ends_early: Callable[[Evaluation], bool] = _never  # ends it before a block, although not all is decided

    def run(self) -> Evaluation:
        """Run the campaign to its end. Raises CampaignError, OSError, KeyboardInterrupt."""
        self.schedule.begin()
        try:
            journal = Journal(self.schedule.folder / "campaign.jsonl")
        except JournalError as e:
            raise CampaignError(str(e)) from e
        try:
            with signals.handled():
                return replace(self, schedule=self._with_options())._blocks(journal)
        finally:
            journal.close()

    def _with_options(self) -> Schedule:
        """Return the schedule; where it asks for code or defaults, with the options of both releases."""
        schedule = self.schedule
        if not schedule.section.code_or_defaults:
            return schedule
        try:
            swapped = schedule.swapped or schedule.options_reader().read()
        except ValueError as e:
            raise TrialFailed(f"{e}; run the same command again to continue") from e
        for line in describe_swap(swapped, schedule.restarts):
            self.say(line)
        new_schedule = replace(schedule, swapped=swapped)
        new_schedule.begin()
        return new_schedule

    def _blocks(self, journal: Journal) -> Evaluation:
        state = self._evaluated()
        while not state.needs_no_more_blocks and not self.ends_early(state):
            for planned in self.schedule.block(state.blocks + 1):
                self._trial(planned, journal)
            state = self._evaluated()
            journal.write("block", number=state.blocks, rows=data(state)["rows"])
            self._tell(state)
        for line in (headline(state), *left_set(state)):
            self.say(line)
        return state

    def _evaluated(self) -> Evaluation:
        """Return the state of now. Raises CampaignError for a key without a row: other rows would share its alpha."""
        state = evaluate(self.schedule)
        write_json(self.schedule.folder / "status.json", data(state))
        if state.compared:
            write_whole(self.schedule.folder / "campaign.html", page(state))
        if state.unmatched_keys:
            keys, file = ", ".join(state.unmatched_keys), self.schedule.config.file
            raise CampaignError(f"{file}: no row matches the key {keys}: correct `keys:`, and use a new folder")
        return state

    def _trial(self, planned: PlannedTrial, journal: Journal) -> None:
        folder = self.schedule.folder_of(planned)
        earlier_trial = finished(folder)
        if earlier_trial and not earlier_trial.reason:
            return
        for attempt in range(1, ATTEMPTS + 1):
            journal.write("trial", name=planned.name, arm=planned.arm, attempt=attempt)
            trial = run_trial((self.cycle_of or self.schedule.cycle)(planned.arm), folder, again=True)
            journal.write("trial-ended", name=planned.name, reason=trial.reason)
            self.say(f"{planned.name}: {_result_text(trial)}")
            if not trial.reason:
                return
        text = f"{planned.name} failed {ATTEMPTS} times: {trial.reason}; run the same command again to continue"
        raise TrialFailed(text, trial)

    def _tell(self, state: Evaluation) -> None:
        for line in progress(state):
            self.say(line)


def _result_text(trial: Trial) -> str:
    if trial.reason:
        return f"failed: {trial.reason}"
    return f"prepared in {seconds(trial.prepared)}, measured in {seconds(trial.measured)}"
