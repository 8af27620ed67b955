"""The answer as one comment in Markdown, and as data.

Subjects of commits, names of files, nodes and operations, and values of a record are an attacker's texts. Each stands
in a code span, in which a code host sees no link, no mention, no HTML and no table. Nothing that a command has printed
is in the comment.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import Any, Dict, Iterator, List, Sequence, Tuple

from cbt_plugins import __version__
from cbt_plugins.campaigns.evaluation import RowState
from cbt_plugins.campaigns.output import attempts_made_again, change_text, margins_of
from cbt_plugins.campaigns.output import data as campaign_data
from cbt_plugins.compare import output
from cbt_plugins.compare.table import Choice, Row, Rules, compare
from cbt_plugins.formatting import plain, several, short_percent
from cbt_plugins.formatting import seconds as about
from cbt_plugins.metrics import METRICS
from cbt_plugins.pull_requests.detectable_change import seen_text
from cbt_plugins.pull_requests.revisions import Revision
from cbt_plugins.pull_requests.session import Request
from cbt_plugins.pull_requests.verdict import PullRequestVerdict, outcome_of

VERSION = 1
#: characters of a comment, and of the summary of a check, on GitHub
MOST = 65_535
#: rows of a table: as many as let the comment be short enough
_ROWS = (60, 20, 5)
#: characters of a code span, of one that has a sentence or a command
_SHOWN, _LONG = 100, 1000
CPU = "cpu_ms_per_op"


def code(text: str, most: int = _SHOWN) -> str:
    """Return a text as a code span, also for a cell of a table."""
    shown = "".join(sign if sign.isprintable() else " " for sign in text).replace("`", "'").replace("|", "¦").strip()
    return f"`{shown if len(shown) <= most else shown[: most - 3] + '...'}`" if shown else "-"


@dataclass(frozen=True)
class PullRequestReport:
    """An answer with what was asked."""

    request: Request
    answer: PullRequestVerdict

    def comment(self) -> str:
        """Return the comment, of at most MOST characters."""
        texts = ("\n".join(self._lines(rows)) + "\n" for rows in _ROWS)
        return next((text for text in texts if len(text) <= MOST), "")

    def data(self) -> Dict[str, Any]:
        """Return the answer for programs; `check` is the body with which GitHub's API makes a check."""
        base, head = self.request.sides
        answer, comment = self.answer, self.comment()
        check = {
            "name": "cbt-tools pr",
            "head_sha": head.sha,
            "status": "completed",
            "conclusion": answer.conclusion,
            "output": {"title": answer.outcome.word, "summary": comment},
        }
        return {
            "version": VERSION,
            "outcome": answer.outcome.word,
            "exit_status": answer.outcome.value,
            "conclusion": answer.conclusion,
            "why": answer.why,
            "base": vars(base),
            "head": vars(head),
            "limit": self.request.section.limit,
            "false_alarms": self.request.section.false_alarms,
            "within": self.request.within,
            "seconds": round(answer.seconds, 3),
            "campaign": campaign_data(answer.state) if answer.state else None,
            "rows": [
                {"row": row.id.text, "outcome": outcome_of(row, answer.state).word} for row in self._key_rows()
            ] if answer.state else [],
            "cpu": [output.flat(row) for row in self._cpu()],
            "differences": [{"key": key, "base": a, "head": b} for key, a, b in self.differences()],
            "warnings": list(self.warnings()),
            "repeat": self._command(),
            "check": check if head.sha else None,
        }  # fmt: skip

    def _lines(self, most: int) -> Iterator[str]:
        base, head = self.request.sides
        yield f"### Performance: {self.answer.outcome.word}"
        yield ""
        yield f"{code(self.answer.why, _LONG)}"
        yield ""
        yield f"- head: {_side(head)}"
        yield f"- base: {_side(base)}{', the merge base of both' if base.sha else ''}"
        yield from map("- {}".format, self._method(most))
        yield from _table(("row", "base", "head", "change", "outcome"), list(self._cells()), most)
        yield from self._cpu_lines(most)
        head_line = ("configuration difference", "base", "head")
        yield from _table(head_line, [tuple(map(code, line)) for line in self.differences()], most)
        warnings = list(self.warnings())
        if warnings:
            yield from ("", "Warnings:", "")
            yield from (f"- {code(text, _LONG)}" for text in warnings[:most])
            yield from _left_out(len(warnings) - most, "warnings")
        yield ""
        yield f"Repeat this comparison with the same file: {code(self._command(), _LONG)}"

    def _method(self, most: int) -> Iterator[str]:
        section, state = self.request.section, self.answer.state
        limit = short_percent(section.limit)
        if state and state.rows:
            limit = margins_of(state.schedule, [row.id.metric for row in state.rows]).replace("±", "")
        yield (
            f"limit {limit}; the chance of a false regression is at most "
            f"{short_percent(section.false_alarms)}; {about(self.answer.seconds)} of {about(self.request.within)}"
        )
        if state:
            yield (
                f"{several(state.blocks, 'block')} of at most {state.schedule.section.blocks}, each of base and head "
                "in turns (A B B A), on one machine"
            )
            yield "values are medians of all cycles; a change is that of the blocks, not of the two medians"
            for row in state.rows[:most]:
                text = seen_text(row, len(state.rows), state.schedule)
                if text:
                    yield f"{code(row.id.text)}: with the block scatter so far, {text}"

    def _key_rows(self) -> Sequence[RowState]:
        return self.answer.state.rows if self.answer.state else ()

    def _cells(self) -> Iterator[Tuple[str, ...]]:
        for row in self._key_rows():
            assert self.answer.state
            outcome, verdict = outcome_of(row, self.answer.state), row.verdict
            word = f"{outcome.word} ({verdict.value})" if verdict else outcome.word
            unit = METRICS[row.id.metric].unit
            values = (f"{plain(value)} {unit}".strip() for value in row.medians.values())
            yield (code(row.id.text), *values, change_text(row.decision), word)

    def _cpu(self) -> List[Row]:
        state = self.answer.state
        if not state or not state.compared:
            return []
        choice = Choice(phases=tuple({row.id.phase for row in state.rows}), ops=("*",), metrics=(CPU,))
        return compare(state.compared.base, state.compared.contenders, choice, Rules()).rows

    def _cpu_lines(self, most: int) -> Iterator[str]:
        rows = self._cpu()
        if not rows:
            if self.answer.state:
                yield from ("", "CPU per operation: unknown; add the monitor `resources` to the file.")
            return
        cells = []
        for row in rows:
            sides = (f"{output.value(side)} ms" for side in (row.comparison.base, row.comparison.new))
            change, verdict = output.change_text(row.comparison), output.verdict(row.comparison)
            cells.append((code(f"{row.phase} {row.op}"), *sides, change, verdict))
        yield from _table(("CPU per operation (not in the verdict)", "base", "head", "change", "verdict"), cells, most)

    def differences(self) -> List[Tuple[str, ...]]:
        """Return (key, base, head) of each difference between the configurations of the sides."""
        state = self.answer.state
        sections = state.compared.sections if state and state.compared else ()
        return list(dict.fromkeys(line for section in sections for line in output.differences(section)))

    def warnings(self) -> Iterator[str]:
        """Yield the warnings of the comparison, and of each row that decides."""
        state = self.answer.state
        sections = state.compared.sections if state and state.compared else ()
        yield from output.merged_warnings([warning for section in sections for warning in section.warnings])
        for row in self._key_rows():
            texts = (*row.left_out, *filter(None, (row.forbidden, row.capped, row.late)))
            yield from (f"{row.id.text}: {text}" for text in texts)
        yield from (text for text, _ in attempts_made_again(state)) if state else ()
        base, head = self.request.sides
        if base.fixed == head.fixed:
            yield "base and head are the same: this comparison only shows the block scatter of the machine"

    def _command(self) -> str:
        names = [side.fixed for side in self.request.sides]
        words = ["cbt-tools", "pr", *names, "--config", self.request.file.name, "--within", f"{self.request.within:g}s"]
        return f"{shlex.join(words)}  # cbt-plugins {__version__}"


def _side(side: Revision) -> str:
    parts = [side.name, side.sha[:12], side.subject]
    return " ".join(code(part) for part in parts if part)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]], most: int) -> Iterator[str]:
    if rows:
        yield ""
        for cells in (head, [":---", *["---:"] * (len(head) - 1)], *rows[:most]):
            yield f"| {' | '.join(cells)} |"
        yield from _left_out(len(rows) - most, "rows")


def _left_out(number: int, noun: str) -> Iterator[str]:
    if number > 0:
        yield ""
        yield f"{number:,} more {noun} are in pr.json."
