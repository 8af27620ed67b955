"""A search on disk: builds, blocks of two cycles each, and the journal from which a killed search resumes.

    archive/bisect.jsonl            what was done: builds, blocks, commits that are left out
    archive/cycle.yaml              the CBT file of the cycles
    archive/worktree/               a checkout of the repository
    archive/builds/                 the builds (bisect.commit_builds)
    archive/blocks/0001/good/       a trial: the good commit, and beside it the other commit of this block
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
from dataclasses import replace
from enum import Enum
from fnmatch import fnmatchcase
from pathlib import Path
from statistics import mean
from typing import Any, Dict, List, Mapping, Optional, Tuple

import yaml

from cbt_plugins.bisect.commit_builds import VERSION, Builds
from cbt_plugins.bisect.commit_history import Commit, GitError, Worktree, check_line, line
from cbt_plugins.bisect.commit_search import Evidence, Observation, SearchRules
from cbt_plugins.campaigns.trial import PROGRAM, CommandEnd, Cycle, Trial, finished, put_aside, run_trial
from cbt_plugins.compare.sides import forbidding
from cbt_plugins.config.bisect import KEY, BisectSection, parse_metric_name
from cbt_plugins.config.campaign import with_fault_files
from cbt_plugins.formatting import seconds as about
from cbt_plugins.journal import Journal, json_lines, write_whole
from cbt_plugins.metrics import CLUSTER, METRICS, TOTAL, Direction
from cbt_plugins.results.run_record import STATE

JOURNAL, CYCLE_FILE, BLOCKS, BUILDS = "bisect.jsonl", "cycle.yaml", "blocks", "builds"
#: what may be another in a file that resumes a search; good and bad count as the commits that they mean
_FREE = {"budget", "posterior", "builds", "repo", "good", "bad", "build_limit", "deploy_limit", "cycle_limit"}
GOOD, SUSPECT = "good", "other"
_TRIES = 2

log = logging.getLogger(__name__)


class BisectError(Exception):
    """Why a search cannot go on; its text is for the user. The same command resumes it."""


class Use(Enum):
    """What a session is made for: a search, one step of `git bisect`, which chooses the commits, or to be looked at."""

    SEARCH, STEP, STATUS = "run", "step", "status"


Values = Mapping[Tuple[str, str, str], float]


class BisectSession:
    """The search of one file in one archive. Raises BisectError, GitError, JournalError and OSError."""

    def __init__(
        self, file: Path, section: BisectSection, data: Mapping[str, Any], archive: Path, use: Use = Use.SEARCH
    ) -> None:
        self.section = section
        self.archive = archive.resolve()
        self.repo = section.folder_of(file)
        self.rules = SearchRules(effect=math.log1p(section.effect), posterior=section.posterior)
        self.archive.mkdir(parents=True, exist_ok=True)
        # somebody may look while another process searches
        self._journal = None if use is Use.STATUS else Journal(self.archive / JOURNAL)
        self._worktree = Worktree(self.repo, self.archive / "worktree")
        builds = (file.resolve().parent / section.builds).resolve() if section.builds else self.archive / BUILDS
        self._builds = Builds(builds, self._worktree, section.build, self._note_build)
        try:
            self.commits = self._line()
            if use is Use.SEARCH:
                check_line(self.repo, self.commits, section.good, section.bad)
            self._begin({key: value for key, value in data.items() if key not in (KEY, "campaign")})
        except BaseException:
            self.close()
            raise
        self._to_retry = list(self.skipped)  # those of earlier processes

    def _line(self) -> List[Commit]:
        """Return the commits; names such as HEAD or a branch mean what they meant when the search began."""
        names = [self.section.good, self.section.bad]
        begun = next(iter(self._all("begin")), {})
        revisions = [begun["good"], begun["bad"]] if begun.get("names") == names else names
        return line(self.repo, revisions[0], revisions[1], self.section.paths)

    def _begin(self, cycle: Mapping[str, Any]) -> None:
        about = self.section.model_dump(exclude=_FREE)
        text = json.dumps([about, cycle, self.good.sha, self.bad.sha], sort_keys=True, default=str)
        mark = hashlib.sha256(text.encode()).hexdigest()[:16]
        begun = next(iter(self._all("begin")), None)
        if begun and (begun.get("version"), begun.get("of")) != (VERSION, mark):
            reason = "the file has changed" if begun.get("version") == VERSION else "another version wrote the state"
            raise BisectError(
                f"{self.archive}: this is the archive of another search ({reason}): give another "
                f"archive with -a"
            )
        if not begun:
            text = yaml.safe_dump(with_fault_files(cycle), sort_keys=False, allow_unicode=True)
            write_whole(self.archive / CYCLE_FILE, text, mode=0o600)  # keys may stand in it
            names = [self.section.good, self.section.bad]
            self.note("begin", version=VERSION, of=mark, names=names, good=self.good.sha, bad=self.bad.sha)

    @property
    def _records(self) -> List[Dict[str, Any]]:
        return list(self._journal.records) if self._journal else json_lines(self.archive / JOURNAL)

    def _all(self, *events: str) -> List[Dict[str, Any]]:
        return [record for record in self._records if record["event"] in events]

    @property
    def failure(self) -> Optional[str]:
        """Why the last process ended without a measurement of the good or the bad commit; None where it did not."""
        last = self._records[-1:]
        return next((str(record["reason"]) for record in last if record["event"] == "failed"), None)

    @property
    def good(self) -> Commit:
        """The reference."""
        return self.commits[0]

    @property
    def bad(self) -> Commit:
        """The commit with the change."""
        return self.commits[-1]

    @property
    def sign(self) -> int:
        """1: the change that is searched for makes the metric larger; -1: smaller."""
        larger = METRICS[parse_metric_name(self.section.metric).metric].direction is Direction.LOWER
        return 1 if larger == (self.section.change == "worse") else -1

    @property
    def blocks(self) -> List[Dict[str, Any]]:
        """What was measured, oldest first: n, sha, good (its value), value, ratio, seconds."""
        return self._all("block")

    @property
    def skipped(self) -> Dict[str, str]:
        """Commits that could not be built or measured -> why, the newest last."""
        reasons: Dict[str, str] = {}
        for entry in self._all("skip", "retry"):
            reasons.pop(entry["sha"], None)
            if entry["event"] == "skip":
                reasons[entry["sha"]] = entry["reason"]
        return reasons

    def retry(self) -> bool:
        """Take back in what earlier processes left out: the cause may be gone; False where there is nothing."""
        commits, self._to_retry = self._to_retry, []
        for sha in commits:
            self.note("retry", sha=sha)
        return bool(commits)

    @property
    def again(self) -> List[Dict[str, str]]:
        """The cycles that were measured again: sha, reason."""
        return [{"sha": entry["sha"], "reason": entry["reason"]} for entry in self._all("again")]

    @property
    def spent(self) -> float:
        """Seconds of builds, blocks and cycles that gave nothing so far."""
        return math.fsum(entry.get("seconds", 0.0) for entry in self._all("block", "build", "again", "skip"))

    @property
    def over_budget(self) -> Optional[str]:
        """Why nothing more is measured; None while there is something left of the budget."""
        budget = self.section.budget
        if len(self.blocks) >= budget.measurements:
            return f"the budget of {budget.measurements} measurements is used up"
        if budget.time is not None and self.spent >= budget.time:
            return f"the budget of {about(budget.time)} is used up"
        return None

    def evidence(self) -> Evidence:
        """Return the measurements so far and the skipped commits, by place in the line of commits."""
        at = {commit.sha: position for position, commit in enumerate(self.commits)}
        seen = [Observation(at[block["sha"]], block["ratio"]) for block in self.blocks if block["sha"] in at]
        out = {at[sha]: None for sha in self.skipped if sha in at}
        return Evidence([commit.weight for commit in self.commits[1:]], seen, out)

    def hours(self) -> List[float]:
        """Return the cost of a measurement of each commit after the good one, in hours."""
        block = mean(entry["seconds"] for entry in self.blocks) if self.blocks else 1.0
        builds = [entry["seconds"] for entry in self._all("build")]
        build = mean(builds) if builds else 0.0
        return [
            max(block + (0.0 if self._builds.has(commit.sha) else build), 1e-3) / 3600 for commit in self.commits[1:]
        ]

    def build(self, sha: str) -> Optional[str]:
        """Build a commit unless it is there; return why it cannot be built."""
        return self._builds.build(sha, self.section.build_limit)

    def _note_build(self, sha: str, end: CommandEnd) -> None:
        self.note("build", sha=sha, seconds=round(end.seconds, 3), status=end.status)

    # measurements

    def measure(self, sha: str) -> bool:
        """Measure a commit against the good one in a block; False when it is left out from now on.

        Which of the two comes first changes from block to block, so that a drift within a block cancels, too.
        """
        number = len(self.blocks) + 1
        for revision in (self.good.sha, sha):
            why = self.build(revision)
            if why is not None:
                self._leave_out(revision, why)
                return False
        folder = self.archive / BLOCKS / f"{number:04}"
        for name in (GOOD, SUSPECT):
            put_aside(folder / name)  # of a block that was killed: both are measured anew, side by side
        order = ((self.good.sha, GOOD), (sha, SUSPECT))
        trials = {name: self._trial(revision, folder / name) for revision, name in order[:: 1 if number % 2 else -1]}
        for revision, name in order:
            trial = trials[name]
            why = f"{_TRIES} times: {trial.reason}" if trial.reason else self._no_value(trial)
            if why:
                self._leave_out(revision, why, _seconds(*trials.values()))
                return False
        before, after = (self._value(trials[name]) for name in (GOOD, SUSPECT))
        ratio = self.sign * math.log(after / before)
        facts = {"n": number, "sha": sha, "good": before, "value": after, "ratio": round(ratio, 6)}
        self.note("block", **facts, seconds=_seconds(*trials.values()))
        return True

    def _leave_out(self, sha: str, reason: str, seconds: float = 0.0) -> None:
        if sha in (self.good.sha, self.bad.sha):
            if seconds:  # the same command tries it again; that time is spent
                self.note("again", sha=sha, reason=reason, seconds=seconds)
            which = "good" if sha == self.good.sha else "bad"
            text = f"the {which} commit {sha[:12]} cannot be measured: {reason}"
            self.note("failed", reason=text)
            raise BisectError(text)
        log.warning("%s is left out: %s", sha[:12], reason)
        self.note("skip", sha=sha, reason=reason, seconds=seconds)

    def _trial(self, sha: str, folder: Path) -> Trial:
        self._worktree.take(sha)
        section = self.section
        deploy = self._builds.in_worktree(section.deploy)
        cycle = Cycle(
            arm=sha[:12],
            file=self.archive / CYCLE_FILE,
            prepare=(deploy,),
            program=section.program or PROGRAM,
            through=section.through or "",
            limit=section.deploy_limit,
            cycle_limit=section.cycle_limit,
            environment=self._builds.environment(sha),
        )
        trial = self._judged(run_trial(cycle, folder))
        for _ in range(_TRIES - 1):
            if trial.reason:
                log.warning("%s: %s; trying once more", sha[:12], trial.reason)
                self.note("again", sha=sha, reason=trial.reason, seconds=_seconds(trial))
                put_aside(folder, "failed")
                trial = self._judged(run_trial(cycle, folder))
        return trial

    def _judged(self, trial: Trial) -> Trial:
        """Return the trial; with a reason where a warning forbids or limits a verdict on the metric."""
        metric = self.section.metric
        keys = () if trial.reason else matching(metric, trial.values)
        warning = next((candidate for key in keys for candidate in forbidding(metric, trial.records, key)), None)
        return replace(trial, reason=f"{warning.text} ({warning.code})") if warning else trial

    def _no_value(self, trial: Trial) -> Optional[str]:
        """Return the reason why a trial has not one number above 0 of the metric; None where it has."""
        numbers = matching(self.section.metric, trial.values)
        if len(numbers) != 1:
            names = ", ".join(".".join(key) for key in sorted(numbers or trial.values))
            problem = "several numbers of this name" if numbers else "no number of this name"
            return f"metric {self.section.metric}: {problem} in {trial.archive}: {names[:600]}"
        (value,) = numbers.values()
        if not (value > 0 and math.isfinite(value)):
            return f"metric {self.section.metric} is {value:g} in {trial.archive}: a ratio needs a number above 0"
        return None

    def _value(self, trial: Trial) -> float:
        (value,) = matching(self.section.metric, trial.values).values()
        return value

    def values(self, block: Mapping[str, Any]) -> Optional[Tuple[Values, Values]]:
        """Return all numbers of a block: of the good commit, and of the other one."""
        folder = self.archive / BLOCKS / f"{block['n']:04}"
        trials = [finished(folder / name) for name in (GOOD, SUSPECT)]
        values = [trial.values for trial in trials if trial]
        return (values[0], values[1]) if len(values) == 2 else None

    def note(self, event: str, **facts: Any) -> None:
        """Write down what was decided."""
        if self._journal:
            self._journal.write(event, **facts)

    def tidy(self) -> None:
        """Remove the worktree; builds and trials stay."""
        try:
            self._worktree.remove()
        except GitError as e:
            log.warning("%s", e)

    def close(self) -> None:
        """Let another process have the archive."""
        if self._journal:
            self._journal.close()


def _seconds(*trials: Trial) -> float:
    return round(math.fsum(trial.prepared + trial.measured for trial in trials), 3)


def matching(metric: str, values: Values) -> Dict[Tuple[str, str, str], float]:
    """Return the numbers that a name of a metric means: [[PHASE.]OPERATION.]METRIC."""
    key = parse_metric_name(metric)

    def takes(phase: str, op: str) -> bool:
        of_phase = fnmatchcase(phase, key.phase) if key.phase else STATE not in phase
        return of_phase and (fnmatchcase(op, key.op) if key.op else op in (TOTAL, CLUSTER))

    return {
        value_key: value for value_key, value in values.items() if value_key[2] == key.metric and takes(*value_key[:2])
    }
