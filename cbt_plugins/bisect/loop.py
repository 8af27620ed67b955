"""The loop of a search: block after block until the culprit is sure, and what can be said of it at any time."""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

import numpy as np

from cbt_plugins.bisect.commit_history import Commit
from cbt_plugins.bisect.commit_search import (
    Belief,
    Evidence,
    Observation,
    Suspects,
    belief,
    bits_left,
    chances_of,
    choose_commit,
    information,
    search_answer,
)
from cbt_plugins.bisect.session import BisectSession, matching
from cbt_plugins.compare.statistics.student import student_shift
from cbt_plugins.compare.statistics.verdicts import false_discovery
from cbt_plugins.formatting import in_percent, percent, several, signed_percent
from cbt_plugins.formatting import seconds as about
from cbt_plugins.metrics import ALPHA, METRICS

CULPRIT_FOUND, NONE, OPEN = "found", "no difference", "undecided"
#: commits that an answer may name: the culprit, and those before it that could not be measured
_MOST_NAMED = 5
#: measurements of one commit after which `git bisect` is told to skip it
_MOST_OF_ONE = 40
#: the smallest change and the fewest measurements of a row of what else changed
_LEAST_CHANGE, _FEWEST = 0.02, 3

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class SearchState:
    """What is known at one time, as texts and numbers for people and programs."""

    outcome: str
    why: str  # one sentence
    held: Optional[Belief]
    suspects: Sequence[Commit]  # the culprit, or those that hold the posterior asked for
    posterior: float
    remaining: Optional[Tuple[int, float]]  # about so many measurements, and hours; None: done, or nothing would help


def state(session: BisectSession) -> SearchState:
    """Return the state of the search after the blocks so far."""
    evidence, over = session.evidence(), session.over_budget or session.failure
    if not any(observation.position == evidence.last for observation in evidence.seen):
        return SearchState(OPEN, over or "the bad commit is not measured yet", None, session.commits[1:], 0.0, None)
    held = belief(evidence, session.rules)
    answer = search_answer(evidence, session.rules, held)
    best = answer.culprit or held.credible(session.rules.posterior)
    commits = session.commits[best.first : best.last + 1]
    if answer.none:
        return SearchState(NONE, _no_difference(session, held), held, (), held.none, None)
    if answer.noisy:
        return SearchState(OPEN, _too_noisy(session, held), held, (), 0.0, None)
    if answer.culprit:
        narrow = len(commits) == 1 or len(commits) <= min(_MOST_NAMED, evidence.last - 1)
        outcome, why = (CULPRIT_FOUND, _culprit(session, held, best)) if narrow else (OPEN, _too_many(session, commits))
        return SearchState(outcome, why, held, commits, best.posterior, None)
    remaining = _remaining(session, evidence, held)
    why = over or ("" if remaining else "no other commit can be measured")
    return SearchState(OPEN, why, held, commits, best.posterior, remaining)


def run(session: BisectSession) -> SearchState:
    """Measure until the answer is sure or the budget is spent; returns the last state."""
    if session.failure:
        session.note("resume")
    now = state(session)
    while not session.over_budget:
        position = _next_position(session, now)
        if position is None and len(now.suspects) > 1 and session.retry():
            log.info("trying again the commits that were left out")
            now = state(session)
            continue
        if position is None:
            break
        commit = session.commits[position]
        log.info("measurement %d: %s", len(session.blocks) + 1, commit)
        if session.measure(commit.sha):
            block = session.blocks[-1]
            log.info("  %.4g, good commit %.4g: %s", block["value"], block["good"], _change(block["ratio"], session))
        now = state(session)
        log.info("  %s", progress(session, now))
    if now.outcome != OPEN:
        session.note(
            "answer", outcome=now.outcome, commits=[suspect.sha for suspect in now.suspects], posterior=now.posterior
        )
        session.tidy()
    return now


def _next_position(session: BisectSession, now: SearchState) -> Optional[int]:
    """Return the position to measure next; None: there is an answer, or nothing tells more."""
    evidence = session.evidence()
    if now.held is None:
        return evidence.last
    return choose_commit(evidence, session.rules, now.held, session.hours()) if now.remaining else None


def progress(session: BisectSession, now: SearchState) -> str:
    """Return one line: what is left, and how much was spent."""
    spent = f"{several(len(session.blocks), 'measurement')}, {about(session.spent)}"
    if now.held is None:
        return f"{several(len(session.commits) - 1, 'commit')} left; {spent} so far"
    if now.held.none > 0.03:
        return f"good and bad differ: posterior {percent(1 - now.held.none, '.0f')}; {spent} so far"
    left = f"{several(len(now.suspects), 'commit')} left ({percent(now.posterior, '.0f')})"
    remaining = f"; about {now.remaining[0]} more, {about(3600 * now.remaining[1])}" if now.remaining else ""
    return f"{left}; {_size(session, now.held)}; {spent} so far{remaining}"


def _change(ratio: float, session: BisectSession) -> str:
    """Return the change of the metric itself for a log ratio of the search: "-12.0 %, worse"; "0.0 %"."""
    change = math.expm1(session.sign * ratio)
    text = signed_percent(change)
    if not float(in_percent(change)):
        return text
    return f"{text}, {session.section.change if ratio > 0 else _opposite(session)}"


def _opposite(session: BisectSession) -> str:
    return "better" if session.section.change == "worse" else "worse"


def _size(session: BisectSession, held: Belief) -> str:
    reach = (session.sign * (held.size + sign * 2 * held.size_error) for sign in (-1, 1))
    low, high = sorted(math.expm1(end) for end in reach)
    return f"{signed_percent(math.expm1(session.sign * held.size))} ({signed_percent(low)} to {signed_percent(high)})"


def _culprit(session: BisectSession, held: Belief, best: Suspects) -> str:
    last = session.commits[best.last]
    text = f"{last} made {session.section.metric} {session.section.change}: {_size(session, held)}, "
    text += f"posterior {percent(best.posterior)}, noise of one measurement {percent(held.noise)}"
    if best.first < best.last:
        text += f"; or one of the {several(best.last - best.first, 'commit')} before it that could not be measured"
    if len(last.parents) > 1:
        text += f". It is a merge: search its branch with bad: {last.parents[1][:12]} and their merge base for good"
    return text


def _too_many(session: BisectSession, commits: Sequence[Commit]) -> str:
    reason = [why for sha, why in session.skipped.items() if any(commit.sha == sha for commit in commits)][-1]
    text = f"of the {len(commits)} commits left, only the last could be measured. The latest reason: {reason[:300]}. "
    budget = " and raise `budget:`" if session.over_budget else ""
    return f"{text}Fix the cause{budget}; the same command tries these commits again"


def _of_bad(session: BisectSession) -> Tuple[float, float, int]:
    """Return the middle log ratio of the bad commit, twice its standard error, and how many there are."""
    ratios = [block["ratio"] for block in session.blocks if block["sha"] == session.bad.sha]
    error = 2 * float(np.std(ratios, ddof=1)) / math.sqrt(len(ratios)) if len(ratios) > 1 else math.inf
    return float(np.mean(ratios)), error, len(ratios)


def _bad_commit(session: BisectSession) -> str:
    middle, error, number = _of_bad(session)
    return f"{signed_percent(math.expm1(session.sign * middle))} ± {percent(error)} in {several(number, 'measurement')}"


def _no_difference(session: BisectSession, held: Belief) -> str:
    middle, error, _ = _of_bad(session)
    text = f"good and bad do not differ by {percent(session.section.effect)} or more: the bad commit is "
    text += f"{_bad_commit(session)}; posterior of no such change {percent(held.denied, '.0f')}"
    if middle < -error and -middle >= session.rules.effect:
        return f"{text}. It is {_opposite(session)}: search for that with `change: {_opposite(session)}`"
    return text


def _too_noisy(session: BisectSession, held: Belief) -> str:
    text = f"undecided whether good and bad differ by {percent(session.section.effect)} or more: the bad commit is "
    text += f"{_bad_commit(session)}; noise of one measurement {percent(held.noise)}"
    return f"{text}. The noise is too large: make the cycle longer, or set a larger `effect:`"


def _remaining(session: BisectSession, evidence: Evidence, held: Belief) -> Optional[Tuple[int, float]]:
    """Return about how many measurements and hours it takes, if each told as much as the best one is expected to.

    In generated histories of 8 and 64 commits it takes 0.8 to 0.9 of it (median), and 0.15 to 2.7 in 8 of 10 cases.
    """
    hours = session.hours()
    best = choose_commit(evidence, session.rules, held, hours)
    if best is None:
        return None
    bits = max(float(information(held).max()), 1e-3)
    number = max(1, math.ceil(bits_left(held) / bits))
    return number, number * hours[best - 1]


def second_change(session: BisectSession, now: SearchState) -> str:
    """Return whether a second change lies in the range, as a sentence; "" without a belief."""
    held = now.held
    if held is None or now.outcome == NONE:
        return ""
    if held.second < 0.5:
        return f"no sign of a second change between good and bad (posterior {percent(held.second, '.0f')})"
    place = max(held.second_suspects, key=lambda stretch: stretch.posterior)
    first, last = session.commits[place.first], session.commits[place.last]
    where = f"{first.short}" if first is last else f"{first.short}..{last.short}"
    return f"a second change lies in the range (posterior {percent(held.second, '.0f')}), most likely in {where}"


def per_commit(session: BisectSession, now: SearchState) -> List[Dict[str, Any]]:
    """Return the history: each commit that was measured or left out, or is a suspect."""
    ratios: Dict[str, List[float]] = {}
    for block in session.blocks:
        ratios.setdefault(block["sha"], []).append(block["ratio"])
    skipped = session.skipped
    named = {suspect.sha for suspect in now.suspects} if len(now.suspects) <= 50 else set()
    rows = []
    for position, commit in enumerate(session.commits):
        commit_ratios = ratios.get(commit.sha, [])
        if not commit_ratios and commit.sha not in skipped and commit.sha not in named and position:
            continue
        spread = (
            float(np.std(commit_ratios, ddof=1)) if len(commit_ratios) > 1 else (now.held.noise if now.held else 0.0)
        )
        stretch = next((s for s in now.held.suspects if s.first <= position <= s.last), None) if now.held else None
        row = {"position": position, "sha": commit.sha, "subject": commit.subject, "measurements": len(commit_ratios)}
        row["change"] = session.sign * float(np.mean(commit_ratios)) if commit_ratios else (None if position else 0.0)
        row["error"] = 2 * spread / math.sqrt(len(commit_ratios)) if commit_ratios else None
        row["posterior"] = stretch.posterior / (stretch.last - stretch.first + 1) if stretch else 0.0
        row["left_out"] = skipped.get(commit.sha)
        rows.append(row)
    return rows


def companions(session: BisectSession, now: SearchState) -> List[Dict[str, Any]]:
    """Return the other numbers that changed with the culprit as log ratios, those that differ most clearly first.

    Of blocks with a commit from the culprit on: each number against that of the good commit in the same block. Of the
    rows on average a part ALPHA at most changed by chance (Student's t, false discovery rate).
    """
    if now.outcome != CULPRIT_FOUND:
        return []
    at = {commit.sha: position for position, commit in enumerate(session.commits)}
    first = at[now.suspects[-1].sha]
    ratios_by_key: Dict[Tuple[str, str, str], List[float]] = {}
    for block in session.blocks:
        pair = session.values(block) if at.get(block["sha"], -1) >= first else None
        searched = matching(session.section.metric, pair[1]) if pair else ()
        for key in pair[1] if pair else ():
            before, after = pair[0].get(key), pair[1][key]  # type: ignore[index]
            if before and before > 0 and after > 0 and key[2] in METRICS and key not in searched:
                ratios_by_key.setdefault(key, []).append(math.log(after / before))
    measured = [(key, ratios) for key, ratios in ratios_by_key.items() if len(ratios) >= _FEWEST]
    rows: List[Dict[str, Any]] = []
    for (key, ratios), p in zip(measured, false_discovery([_p_of_no_change(ratios) for _, ratios in measured])):
        middle, error = float(np.mean(ratios)), float(np.std(ratios, ddof=1)) / math.sqrt(len(ratios))
        if p < ALPHA and abs(middle) > _LEAST_CHANGE:
            rows.append({"name": ".".join(key), "change": middle, "error": 2 * error, "n": len(ratios)})
    rows.sort(key=lambda row: -abs(row["change"]) / max(row["error"], 1e-3))
    return rows


def _p_of_no_change(ratios: Sequence[float]) -> float:
    """Return Student's p of log ratios whose true mean is 0; 0 for a change that does not scatter."""
    error = float(np.std(ratios, ddof=1)) / math.sqrt(len(ratios))
    p = student_shift(float(np.mean(ratios)), error, len(ratios) - 1, ALPHA, "").p
    return 0.0 if p is None else p


def step(session: BisectSession, sha: str) -> Optional[bool]:
    """Measure one commit until it is good (True) or bad (False); None when it cannot be said. For `git bisect run`.

    Each of its steps must be right: the chance of an error is shared among them.
    """
    steps = max(1.0, math.log2(len(session.commits)))
    needed = 1 - (1 - session.rules.needed) / steps
    session.retry()  # git asks for a commit that was skipped only where its user says so
    while not session.over_budget:
        blocks = [block for block in session.blocks if block["sha"] == sha]
        if sha in session.skipped or len(blocks) >= _MOST_OF_ONE:
            return None
        good, bad = chances_of(_pair(session, sha), 1, session.rules)
        good, bad = good / (good + bad), bad / (good + bad)  # that the two ends differ was decided before
        log.info("%s: good %s, bad %s", sha[:12], percent(good), percent(bad))
        if max(good, bad) >= needed:
            return good >= needed
        # the bad commit, too, where little is known of it
        many = sum(block["sha"] == session.bad.sha for block in session.blocks)
        if not session.measure(session.bad.sha if many < len(blocks) // 2 else sha):
            return None
    log.warning("%s", session.over_budget)
    return None


def differ(session: BisectSession) -> Tuple[bool, str]:
    """Measure the bad commit until it differs from the good one, or does not; returns that, and why."""
    while True:
        evidence = Evidence([1.0], _of(session, session.bad.sha, 1))
        if evidence.seen:
            held = belief(evidence, session.rules)
            answer = search_answer(evidence, session.rules, held)
            if answer.none:
                return False, _no_difference(session, held)
            if answer.noisy:
                return False, _too_noisy(session, held)
            if len(evidence.seen) >= session.rules.pairs and held.none <= 0.03:
                return True, _size(session, held)
        if session.over_budget:
            return False, str(session.over_budget)
        session.measure(session.bad.sha)


def _pair(session: BisectSession, sha: str) -> Evidence:
    return Evidence([1.0, 1.0], [*_of(session, sha, 1), *_of(session, session.bad.sha, 2)])


def _of(session: BisectSession, sha: str, position: int) -> List[Observation]:
    return [Observation(position, block["ratio"]) for block in session.blocks if block["sha"] == sha]


def data(session: BisectSession, now: SearchState) -> Mapping[str, Any]:
    """Return everything for programs."""
    held = now.held
    numbers = held and {"change": held.size, "error": 2 * held.size_error, "noise": held.noise, "none": held.none}
    return {
        "version": 1,
        "outcome": now.outcome,
        "why": now.why,
        "metric": session.section.metric,
        "commits": [{"sha": commit.sha, "subject": commit.subject} for commit in now.suspects],
        "posterior": now.posterior,
        "log_ratio": numbers,
        "second_change": {"posterior": held.second, "text": second_change(session, now)} if held else None,
        "measurements": len(session.blocks),
        "again": session.again,
        "hours": session.spent / 3600,
        "more": now.remaining and {"measurements": now.remaining[0], "hours": now.remaining[1]},
        "history": per_commit(session, now),
        "changed_with_it": companions(session, now),
    }
