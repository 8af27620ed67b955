"""One verdict on disk: builds, a rehearsal of both sides, the campaign, and the journal by which a killed one resumes.

    FOLDER/pr.jsonl          what was done, and after how many seconds of all processes
    FOLDER/worktree/         a checkout of the repository
    FOLDER/builds/           the builds (bisect.commit_builds)
    FOLDER/rehearsal/        a cycle of each side that counts for its time only, and for lost objects
    FOLDER/campaign.json     ... and all other files of a campaign (campaigns.schedule); its finished trials are in
                             FOLDER/trials/ (campaigns.trial)
    FOLDER/pr.md, pr.json    the answer
"""

from __future__ import annotations

import glob
import hashlib
import json
import time
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

from cbt_plugins import signals
from cbt_plugins.bisect.commit_builds import Builds
from cbt_plugins.bisect.commit_history import GitError, Worktree
from cbt_plugins.campaigns.evaluation import evaluate, unmatched
from cbt_plugins.campaigns.key_warnings import key_warnings
from cbt_plugins.campaigns.loop import ATTEMPTS, CampaignRun, TrialFailed
from cbt_plugins.campaigns.output import plan_data
from cbt_plugins.campaigns.schedule import REHEARSAL, CampaignError, Schedule, schedule_of
from cbt_plugins.campaigns.trial import (
    CAMPAIGN,
    CYCLE,
    FOLDER,
    UNDO,
    CommandEnd,
    Cycle,
    Trial,
    finished,
    put_aside,
    run_command,
    run_trial,
    undo_left,
)
from cbt_plugins.compare.statistics.sequential import FIRST_LOOK
from cbt_plugins.config.campaign import MOST_BLOCKS, yaml_text
from cbt_plugins.config.file_check import load
from cbt_plugins.config.pull_request import PullRequestSection, campaign_of
from cbt_plugins.config.yaml_source import YamlSource
from cbt_plugins.formatting import seconds as about
from cbt_plugins.journal import Journal, JournalError
from cbt_plugins.pull_requests.detectable_change import detectable_lines
from cbt_plugins.pull_requests.leftovers import end_processes, hold_machine
from cbt_plugins.pull_requests.revisions import Revision
from cbt_plugins.pull_requests.verdict import Outcome, PullRequestVerdict, is_regression, pull_request_verdict
from cbt_plugins.results.run_record import RunRecord

JOURNAL, VERSION = "pr.jsonl", 2
#: files of the answer
COMMENT, DATA = "pr.md", "pr.json"
#: in the environment of build and deploy, beside those of a commit and of a trial
REVISION = "CBT_PLUGINS_REVISION"


@dataclass(frozen=True)
class Request:
    """What is asked: a file, both sides, and the time for it."""

    file: Path
    section: PullRequestSection
    data: Mapping[str, Any]
    sides: Tuple[Revision, Revision]
    within: float  # seconds

    def schedule(self, folder: Path, blocks: int = MOST_BLOCKS) -> Schedule:
        """Return the campaign of so many blocks. Raises ConfigError."""
        text = yaml_text(campaign_of(self.data, self.section, blocks))
        return schedule_of(load(YamlSource(text.encode(), str(self.file))), folder)

    @property
    def mark(self) -> str:
        """What a folder is of."""
        parts = [campaign_of(self.data, self.section, 0), self.section.build, [side.fixed for side in self.sides]]
        return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()[:16]


class _Cannot(Exception):
    """Why a side cannot be tested."""

    def __init__(self, arm: str, why: str) -> None:
        super().__init__(why)
        self.arm = arm


class _TimeOver(Exception):
    """No time is left for another trial."""


@dataclass
class PullRequestRun:
    """One process that makes a verdict."""

    request: Request
    folder: Path
    say: Callable[[str], None]
    history: Sequence[RunRecord] = ()
    _began: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        self.folder = self.folder.resolve()
        repo = self.request.section.folder_of(self.request.file)
        worktree = Worktree(repo or self.folder, self.folder / "worktree")
        self._worktree = worktree if repo else None
        self._builds = Builds(self.folder / "builds", worktree, self.request.section.build, self._note_build)

    def plan(self) -> List[str]:
        """Return lines about the changes that can be found, if only cycles took time. Raises CampaignError."""
        cycle, within = plan_data(self.request.schedule(self.folder))["cycle_seconds"], self.request.within
        fit = min(MOST_BLOCKS, int(within / (4 * max(cycle, 1.0))))
        text = f"by the file, a cycle takes {about(cycle)}, without deployment and builds"
        if fit < FIRST_LOOK:
            raise CampaignError(f"{text}: fewer than {FIRST_LOOK} blocks of 4 cycles fit into {about(within)}")
        schedule = self.request.schedule(self.folder, fit)
        warnings = [f"warning: {warning}" for warning in key_warnings(schedule)]
        return [f"{text}; {about(within)} in total", *warnings, *detectable_lines(schedule, self.history)]

    def run(self) -> PullRequestVerdict:
        """Return the answer. Raises CampaignError, ConfigError, GitError, OSError, KeyboardInterrupt."""
        plan = self.plan()
        self.folder.mkdir(parents=True, exist_ok=True)
        try:
            journal = Journal(self.folder / JOURNAL)
        except JournalError as e:
            raise CampaignError(str(e)) from e
        with closing(journal), signals.handled(), hold_machine(self.folder):
            self._journal = journal
            self._check_folder()
            for name in (COMMENT, DATA):  # one that ends by an error has no answer
                (self.folder / name).unlink(missing_ok=True)
            self._spent = spent(journal.records)
            journal.mark = lambda _: {"spent": round(self._seconds_spent(), 3)}
            journal.write("start")
            for line in plan:
                self._tell(line)
            try:
                return self._verdict_after_undo()
            finally:
                with signals.deferred("removing what was deployed"):
                    self._clean()

    def _check_folder(self) -> None:
        begun = self._journal.last("begin")
        if begun and begun.get("version") != VERSION:
            text = "this folder was begun by another version of cbt-plugins, with other rules"
            raise CampaignError(f"{self.folder}: {text}: give another folder with -a")
        if begun and begun.get("of") != self.request.mark:
            text = "this folder belongs to a `cbt-tools pr` with other sides or another file"
            raise CampaignError(f"{self.folder}: {text}: give another folder with -a")
        if not begun:
            sides = {side.arm: side.fixed for side in self.request.sides}
            self._journal.write("begin", version=VERSION, of=self.request.mark, **sides)

    def _verdict_after_undo(self) -> PullRequestVerdict:
        verdict = self._verdict()
        still_open = self._undo_killed()
        if still_open:
            text = f"changes of {', '.join(still_open)} may still be open on the cluster: see undo.log"
            verdict = replace(verdict, why=f"{verdict.why}; {text}")
        self._journal.write("answer", outcome=verdict.outcome.word)
        return replace(verdict, seconds=self.request.within - self.seconds_left())

    def _verdict(self) -> PullRequestVerdict:
        try:
            for side in self.request.sides:
                self._build(side)
            schedule = self._planned()
        except (_Cannot, _TimeOver) as e:
            if isinstance(e, _Cannot) and self.seconds_left() > 0:
                return PullRequestVerdict(Outcome.CANNOT, str(e), arm=e.arm)
            return PullRequestVerdict(Outcome.INCONCLUSIVE, "the time ran out before the first block")
        if schedule is None:
            too_few = f"fewer than {FIRST_LOOK} blocks fit into {about(self.request.within)}"
            text = f"{too_few}: give more time or a shorter cycle"
            return PullRequestVerdict(Outcome.INCONCLUSIVE, text)
        return self._decided(schedule)

    def seconds_left(self) -> float:
        """Return the seconds that are left, of all processes together."""
        return self.request.within - self._seconds_spent()

    def _seconds_spent(self) -> float:
        return self._spent + time.monotonic() - self._began

    def _tell(self, text: str) -> None:
        self._journal.write("say", text=text)  # with the time that a killed process has spent
        self.say(text)

    # both sides

    def _note_build(self, sha: str, end: CommandEnd) -> None:
        self._journal.write("build", sha=sha, seconds=round(end.seconds, 3), status=end.status)

    def _build(self, side: Revision) -> None:
        if not side.sha or self._builds.has(side.sha):
            return
        self._tell(f"build {side}")
        why = self._builds.build(side.sha, max(1.0, min(self.request.section.build_limit, self.seconds_left())))
        if why:
            self.say(why)
            log = (self._builds.folder_of(side.sha) / "build.log").relative_to(self.folder)
            raise _Cannot(side.arm, f"{side.arm} cannot be built: see {log}")

    def _cycle(self, schedule: Schedule, arm: str) -> Cycle:
        """Return the cycle of a side, with its files in the worktree; its steps end when the time is over.

        A minute is left to each command in any case: an undo has the same limit. Raises _TimeOver.
        """
        left = self.seconds_left()
        if left <= 0:
            raise _TimeOver
        side = next(candidate for candidate in self.request.sides if candidate.arm == arm)
        cycle = schedule.cycle(arm)
        own: Dict[str, str] = {REVISION: side.name}
        if self._worktree:
            self._worktree.take(side.sha)
            own.update(self._builds.environment(side.sha))
            cycle = replace(cycle, prepare=tuple(map(self._builds.in_worktree, cycle.prepare)))
        limits = [min(limit, max(60.0, left)) for limit in (cycle.limit, cycle.cycle_limit or left)]
        return replace(cycle, limit=limits[0], cycle_limit=limits[1], environment={**cycle.environment, **own})

    def _clean(self) -> None:
        try:
            self._run_clean()
        except (GitError, OSError) as e:
            self.say(f"clean: {e}")
        for pid in end_processes(self.folder):
            self.say(f"process {pid} of a step cannot be ended")
        try:
            if self._worktree:
                self._worktree.remove()
        except GitError as e:
            self.say(str(e))

    def _run_clean(self) -> None:
        """Run `clean:` where it runs before a deployment; of commits, only after one was checked out."""
        command, folder, own = self.request.section.clean, self.folder / "clean", {CAMPAIGN: str(self.folder)}
        sha = self._worktree.commit() if self._worktree else None
        if not command or (self._worktree and not sha):
            return
        if sha:
            command = self._builds.in_worktree(command)
            own.update(self._builds.environment(sha))
            own[REVISION] = next((side.name for side in self.request.sides if side.sha == sha), sha)
        folder.mkdir(exist_ok=True)
        own[FOLDER] = str(folder)
        end = run_command(command, folder / "clean.log", own, self.request.section.deploy_limit)
        if end.status:
            self.say(f"clean {end.how}")

    # the campaign

    def _planned(self) -> Optional[Schedule]:
        """Return the campaign, with as many blocks as fit into the time; None for too few. The first process decides.
        """
        planned = self._journal.last("plan")
        if not planned:
            trials = [self._rehearsed(side.arm) for side in self.request.sides]
            self._check_keys([record for trial in trials for record in trial.records])
            each = 2 * sum(trial.prepared + trial.measured for trial in trials)
            fit = min(MOST_BLOCKS, int(self.seconds_left() / each))
            if fit < FIRST_LOOK:
                return None
            planned = {"blocks": fit, "seconds": each}
            records = [record for trial in trials[:1] for record in trial.records]
            for line in detectable_lines(self.request.schedule(self.folder, fit), self.history, records, each):
                self._tell(line)
            self._journal.write("plan", **planned)
        return self.request.schedule(self.folder, planned["blocks"])

    def _check_keys(self, records: Sequence[RunRecord]) -> None:
        """Raise CampaignError for a pattern of the file that matches no number of the rehearsal."""
        keys = {key for record in records for key in record.keys}
        patterns = unmatched(self.request.section.keys, keys)
        if patterns:
            raise CampaignError(f"{self.request.file}: no row matches the key {', '.join(patterns)}: correct `keys:`")

    def _rehearsal(self) -> Schedule:
        return self.request.schedule(self.folder / REHEARSAL, FIRST_LOOK)  # its blocks are never made

    def _rehearsed(self, arm: str) -> Trial:
        schedule = self._rehearsal()
        schedule.begin()
        self._tell(f"rehearsal of {arm}: deploying and measuring this side once, only to learn the time of a cycle")
        for _ in range(ATTEMPTS):
            trial = run_trial(self._cycle(schedule, arm), schedule.folder / arm, again=True)
            if not trial.reason:
                return trial
            self._tell(f"rehearsal of {arm}: {trial.reason}")
        raise _Cannot(arm, self._failure(trial))

    def _decided(self, schedule: Schedule) -> PullRequestVerdict:
        self._put_aside_half_block(schedule)
        run = CampaignRun(
            schedule,
            self._tell,
            lambda arm: self._cycle(schedule, arm),
            ends_early=lambda state: is_regression(state) or self.seconds_left() < (state.block_seconds or 0.0),
        )
        try:
            return pull_request_verdict(run.run())
        except (TrialFailed, _TimeOver) as e:
            verdict = pull_request_verdict(evaluate(schedule))
            trial = e.trial if isinstance(e, TrialFailed) and self.seconds_left() > 0 else None
            if not trial:
                return verdict
            return replace(verdict, outcome=Outcome.CANNOT, why=self._failure(trial), arm=trial.arm)

    def _put_aside_half_block(self, schedule: Schedule) -> None:
        """Make a block that a kill has cut anew: its halves would be far apart."""
        number = evaluate(schedule).blocks if schedule.folder.joinpath("trials").exists() else 0
        for planned in schedule.block(number + 1) if number < schedule.section.blocks else ():
            trial = finished(schedule.folder_of(planned))
            put_aside(schedule.folder_of(planned), "failed" if trial and trial.reason else "partial")

    def _undo_killed(self) -> List[str]:
        """Undo what cycles that were killed have left on the cluster; return the trials of which that failed."""
        rehearsal, planned = self._rehearsal(), self._journal.last("plan")
        trials = [(rehearsal.cycle(side.arm), rehearsal.folder / side.arm) for side in self.request.sides]
        schedule = self.request.schedule(self.folder)
        for number in range(1, planned["blocks"] + 1 if planned else 1):
            trials += [(schedule.cycle(trial.arm), schedule.folder_of(trial)) for trial in schedule.block(number)]
        still_open = []
        for cycle, folder in trials:
            trial = finished(folder)
            if trial and not trial.reason:  # what an earlier attempt left was undone before
                continue
            if not folder.exists() and not any(folder.parent.glob(f"{glob.escape(folder.name)}.*")):
                continue  # never made
            failure = undo_left(replace(cycle, limit=min(cycle.limit, max(60.0, self.seconds_left()))), folder)
            if failure:
                self._tell(failure)
                still_open.append(str(folder.relative_to(self.folder)))
        return still_open

    def _failure(self, trial: Trial) -> str:
        """Return the reason why a side cannot be tested, without what its commands have printed."""
        names = [f"prepare-{number}" for number in range(1, len(self.request.section.prepare) + 1)]
        steps = dict(zip(names, [*(["clean"] if self.request.section.clean else []), "deploy"]))
        step = {**steps, CYCLE: "the cycle", UNDO: "the undo of an earlier cycle"}.get(trial.step, trial.step)
        how = "took longer than its limit" if trial.step != UNDO else "failed"
        if trial.status is not None:
            how = f"ended with status {trial.status}" if trial.status else "gave no usable result"
        log = (trial.folder / f"{trial.step}.log").relative_to(self.folder)
        return f"{trial.arm} cannot be tested: {step} {how}, {ATTEMPTS} times: see {log}"


def spent(records: Sequence[Mapping[str, Any]]) -> float:
    """Return the seconds that earlier processes have spent, by what the last of them wrote; no clock may step there.

    Records of an earlier version have only times: from the start of each process to its last record.
    """
    total, began, last = 0.0, 0.0, 0.0
    for record in records:
        if "spent" in record:
            total = max(total + max(0.0, last - began), record["spent"])
            began = last = 0.0
        elif record["event"] == "start":
            total += max(0.0, last - began)
            began = last = record["t"]
        elif began:
            last = record["t"]
    return total + max(0.0, last - began)
