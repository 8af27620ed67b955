"""The comment on a pull request: what an attacker's texts can do in it, and its length."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, List, Tuple

import pytest
from config_files import CLUSTER, CYCLE, WARP, errors_in, marked

from cbt_plugins.compare.statistics.sequential import OBRIEN_FLEMING, Design, detectable, outlook
from cbt_plugins.compare.statistics.verdicts import Scatter
from cbt_plugins.compare.table import Rules
from cbt_plugins.config.pull_request import BASE, HEAD, PullRequestSection
from cbt_plugins.pull_requests import comment
from cbt_plugins.pull_requests.comment import MOST, PullRequestReport, code
from cbt_plugins.pull_requests.revisions import Revision
from cbt_plugins.pull_requests.session import Request, spent
from cbt_plugins.pull_requests.verdict import Outcome, PullRequestVerdict

HOSTILE = [
    "`@team` <script>alert(1)</script>",
    "x | y\n| --- |\n![](http://evil/x.png)",
    "a\\| `b\\`",
    "\u202egnp.exe\u2066\x1b[31m",
    "`" * 200,
]


@pytest.mark.parametrize("text", HOSTILE)
def test_a_text_of_others_stays_in_its_code_span(text: str) -> None:
    span = code(text)
    assert re.fullmatch(r"`[^`|\n]+`", span) and span[1:-1].isprintable() and len(span) <= 102


def report(subject: str, outcome: Outcome = Outcome.CANNOT, why: str = "head cannot be built") -> PullRequestReport:
    sides = Revision(BASE, "main", "a" * 40, subject), Revision(HEAD, "pull/1", "b" * 40, subject)
    section = PullRequestSection(deploy="true")
    request = Request(Path("/x/pr.yaml"), section, {}, sides, 8 * 3600.0)
    return PullRequestReport(request, PullRequestVerdict(outcome, why, arm=HEAD))


@pytest.mark.parametrize("subject", HOSTILE)
def test_a_subject_ends_no_code_span_of_the_comment(subject: str) -> None:
    text = report(subject, why=subject).comment()
    outside = re.sub(r"`[^`\n]*`", "", text)
    assert "`" not in outside and not set("@<|!") & set(outside), outside


def test_the_comment_is_short_enough_with_any_number_of_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    lines: List[Tuple[str, ...]] = [(f"option.{n}", "é" * 300, "|" * 300) for n in range(1000)]
    monkeypatch.setattr(PullRequestReport, "differences", lambda _: lines)
    monkeypatch.setattr(PullRequestReport, "warnings", lambda _: iter(["w" * 5000] * 1000))
    text = report("x").comment()
    assert 1000 < len(text) <= MOST == 65_535
    assert "980 more rows are in pr.json" in text and "980 more warnings" in text
    assert comment.code("é" * 300) in text and "Repeat this comparison" in text


def test_the_comment_is_short_enough_with_any_number_of_key_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    id = SimpleNamespace(text="p" * 300, metric="obj_per_s")
    row = SimpleNamespace(id=id, verdict=None, medians={BASE: 1.0, HEAD: 1.0}, decision=None)
    row.left_out, row.forbidden, row.capped = (), None, None
    schedule = SimpleNamespace(section=SimpleNamespace(blocks=16), rules=Rules(), in_unit=lambda _: False)
    state: Any = SimpleNamespace(
        blocks=4, schedule=schedule, rows=[row] * 1000, compared=None
    )
    monkeypatch.setattr(comment, "seen_text", lambda *_: "a change of 5.0 % is found with a power of 0.9")
    monkeypatch.setattr(comment, "outcome_of", lambda *_: Outcome.OK)
    monkeypatch.setattr(comment, "change_text", lambda _: "-1.0 %")
    monkeypatch.setattr(PullRequestReport, "warnings", lambda _: iter(()))
    made = report("x", Outcome.OK)
    text = replace(made, answer=replace(made.answer, state=state)).comment()
    assert 1000 < len(text) <= MOST
    assert text.count("with the block scatter so far") in (5, 20, 60) and "more rows are in pr.json" in text


@pytest.mark.parametrize(
    ("outcome", "arm", "conclusion"),
    [
        (Outcome.OK, "", "success"),
        (Outcome.REGRESSION, "", "failure"),
        (Outcome.INCONCLUSIVE, "", "neutral"),
        (Outcome.CANNOT, HEAD, "failure"),
        (Outcome.CANNOT, BASE, "neutral"),
    ],
)
def test_the_conclusion_of_a_check(outcome: Outcome, arm: str, conclusion: str) -> None:
    assert PullRequestVerdict(outcome, "", arm=arm).conclusion == conclusion


def test_what_can_be_found_is_what_the_decision_finds() -> None:
    design, scatter = Design(10, 0.02, 0.05, OBRIEN_FLEMING), Scatter(0.03, 1e6)
    change = detectable(scatter, 2, design)
    assert change == pytest.approx(0.05, abs=0.004)
    assert outlook(change, scatter, 2, design).found >= 0.9 > outlook(change - 0.002, scatter, 2, design).found
    # many blocks that hardly scatter: a loss near the margin is called equivalent sooner than a gain
    design, scatter = Design(40, 0.02, 0.05, OBRIEN_FLEMING), Scatter(0.008, 1e6)
    change = detectable(scatter, 2, design)
    assert change and all(outlook(effect, scatter, 2, design).found >= 0.9 for effect in (change, -change))
    assert detectable(Scatter(0.5, 3.0), 2, Design(4, 0.02, 0.05, OBRIEN_FLEMING)) is None


def test_time_of_killed_processes_is_spent() -> None:
    """... whatever steps the clock makes, by which the records have their times."""
    events = [("start", 36000, 0.0), ("say", 60, 4.0), ("start", 90, 4.5), ("say", 72000, 7.0)]
    records: List[Any] = [{"event": event, "t": time, "spent": seconds} for event, time, seconds in events]
    assert spent([{"event": "begin", "t": 5}, *records]) == 7
    assert spent([]) == 0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("pr: §5\n", "must be a mapping"),
        ("pr: §{limit: 5%}\n", "pr.deploy: this key is required"),
        ("pr:\n  deploy: x\n  build: §make\n", "needs `repo:`"),
        ("pr:\n  deploy: x\n  limit: §60%\n", "must be 0.2% to 50%"),
        ("pr:\n  deploy: x\n  false_alarms: §20%\n", "must be 0.1% to 10%"),
        ("pr:\n  deploy: x\n  keys:\n    - §GET.p99ms\n", "mean 'p99_ms'?"),
        ("pr:\n  deploy: §curl -u me:pass http://x\n", "password in the text"),
        ("pr:\n  deploy: x\n  §limmit: 5%\n", "did you mean 'limit'?"),
    ],
)
def test_errors_of_the_section(tmp_path: Path, text: str, said: str) -> None:
    file, (place,) = marked(CLUSTER + WARP + CYCLE + text)
    (error,) = errors_in(tmp_path, file)
    assert error.startswith(place) and said in error
