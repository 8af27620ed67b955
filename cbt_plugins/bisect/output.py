"""What a search says: the text, the page with the plot of the metric along the history, and the plot as a file."""

from __future__ import annotations

import math
from html import escape
from pathlib import Path
from typing import Any, Iterator, List, Mapping, Sequence, Tuple

from markupsafe import Markup

from cbt_plugins.bisect.loop import CULPRIT_FOUND, SearchState, companions, data, per_commit, second_change
from cbt_plugins.bisect.session import BisectSession
from cbt_plugins.formatting import percent, several, signed_percent
from cbt_plugins.formatting import seconds as about
from cbt_plugins.formatting.blocks import Block, Heading, Notes, TableGrid, Words
from cbt_plugins.formatting.screen import printable
from cbt_plugins.journal import write_json, write_whole
from cbt_plugins.report.page import document

PAGE, PLOT, DATA = "bisect.html", "metric.svg", "bisect.json"
_WIDE, _HIGH, _LEFT, _TOP = 900, 320, 64, 16
_INK, _MARK, _RULE = "#5b6675", "#b3261e", "#9aa4b2"
#: rows of what else changed; all are in DATA
_MOST_OTHERS = 12
_HEAD = ("commit", "subject", "n", "change", "±", "posterior", "")


def write(session: BisectSession, now: SearchState) -> List[Path]:
    """Write bisect.json, the plot and the page into the archive; return the files."""
    rows = per_commit(session, now)
    plot = svg(rows, session)
    others, more_others = changed_numbers(session, now)
    files = [session.archive / name for name in (DATA, PLOT, PAGE)]
    write_json(files[0], data(session, now))
    write_whole(files[1], plot)
    page = document(
        "bisect.html.j2",
        (),
        {},
        metric=session.section.metric,
        place=session.repo.name,
        good=session.good,
        bad=session.bad,
        lines=sentences(session, now),
        plot=Markup(plot),
        head=_HEAD,
        rows=list(_cells(rows)),
        others=others,
        more_others=more_others,
    )
    write_whole(files[2], page)
    return files


def sentences(session: BisectSession, now: SearchState) -> List[str]:
    """Return the answer first, then what it rests on and what is open."""
    lines = [f"{now.outcome}: {now.why}" if now.why else now.outcome]
    if now.outcome not in (CULPRIT_FOUND,) and now.held and now.suspects:
        first, last = now.suspects[0], now.suspects[-1]
        where = f"{first.short}..{last.short}" if first is not last else first.short
        suspects = several(len(now.suspects), "commit")
        lines.append(f"{percent(now.posterior, '.0f')} sure that the bad commit is in {where} ({suspects})")
    if now.remaining:
        number, hours = several(now.remaining[0], "measurement"), about(3600 * now.remaining[1])
        lines.append(f"it takes about {number} more, {hours}: raise `budget:` and run it again")
    second = second_change(session, now)
    left_out = len(session.skipped)
    out = f"; {several(left_out, 'commit')} left out" if left_out else ""
    out += f"; {several(len(session.again), 'cycle')} measured again" if session.again else ""
    spent = f"{several(len(session.blocks), 'measurement')} of two cycles each, {about(session.spent)}{out}"
    return [*lines, *([second] if second else []), spent]


def blocks(session: BisectSession, now: SearchState) -> List[Block]:
    """Return the answer for a terminal."""
    title = f"{session.section.metric}: {session.good.short}..{session.bad.short}, {len(session.commits) - 1} commits"
    first, *evidence = sentences(session, now)
    others, more_others = changed_numbers(session, now)
    return [
        Heading(title),
        Words((first,)),
        Notes("evidence", tuple(evidence)),
        TableGrid(_HEAD, tuple(_cells(per_commit(session, now))), left=2, title="history", ruled=True),
        TableGrid(("number", "change", "±"), others, title="changed with it", ruled=True),
        *([Words((more_others,))] if more_others else []),
    ]


def _cells(rows: Sequence[Mapping[str, Any]]) -> Iterator[Tuple[str, ...]]:
    for row in rows:
        change = "" if row["change"] is None else signed_percent(math.expm1(row["change"]))
        error = "" if row["error"] is None else percent(row["error"])
        likely = percent(row["posterior"]) if row["posterior"] >= 0.001 else ""
        why = "reference" if not row["position"] else ""
        why = f"left out: {row['left_out'][:80]}" if row["left_out"] else why
        yield (row["sha"][:12], row["subject"][:48], str(row["measurements"] or ""), change, error, likely, why)


def changed_numbers(session: BisectSession, now: SearchState) -> Tuple[Tuple[Tuple[str, ...], ...], str]:
    """Return the cells of what else changed, and how many more rows there are, as a sentence; "" for none."""
    rows = companions(session, now)
    shown = rows[:_MOST_OTHERS]
    cells = tuple((row["name"], signed_percent(math.expm1(row["change"])), percent(row["error"])) for row in shown)
    hidden = len(rows) - len(shown)
    return cells, f"{several(hidden, 'more number')} changed with it: see {DATA}" if hidden else ""


def svg(rows: Sequence[Mapping[str, Any]], session: BisectSession) -> str:
    """Return the plot: change against the good commit along the history, and the posterior of each commit below."""
    last = len(session.commits) - 1
    seen = [row for row in rows if row["change"] is not None]
    ends = [row["change"] + sign * (row["error"] or 0) for row in seen for sign in (-1, 1)]
    low, high = min([0.0, *ends]), max([0.01, *ends])
    low, high = low - 0.08 * (high - low), high + 0.08 * (high - low)
    floor = _HIGH - 70

    def x(position: float) -> float:
        return _LEFT + (_WIDE - _LEFT - 16) * position / max(last, 1)

    def y(value: float) -> float:
        return _TOP + (floor - _TOP) * (high - value) / (high - low)

    parts = list(_axes(low, high, x, y, last))
    for row in rows:
        at = x(row["position"])
        if row["change"] is not None:
            colour = _MARK if row["posterior"] >= 0.5 else _INK
            if row["error"]:
                ends = [y(row["change"] - row["error"]), y(row["change"] + row["error"])]
                parts.append(_line((at, ends[0]), (at, ends[1]), colour))
            change = signed_percent(math.expm1(row["change"]))
            tooltip = f"{row['sha'][:12]} {row['subject']}: {change}, n={row['measurements']}"
            dot = f'<circle cx="{at:.1f}" cy="{y(row["change"]):.1f}" r="3.5" fill="{colour}">'
            parts.append(f"{dot}<title>{escape(printable(tooltip))}</title></circle>")
        elif row["left_out"]:
            parts.append(_text(at, floor - 2, "x", "middle"))
        tall = 36 * min(row["posterior"], 1.0)
        if tall > 0.2:
            box = f'x="{at - 2:.1f}" y="{_HIGH - 22 - tall:.1f}" width="4" height="{tall:.1f}"'
            parts.append(f'<rect {box} fill="{_MARK}"/>')
    size = f'viewBox="0 0 {_WIDE} {_HIGH}" font-family="sans-serif" font-size="11"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">{"".join(parts)}</svg>\n'


def _axes(low: float, high: float, x: Any, y: Any, last: int) -> Iterator[str]:
    step = next(s for s in (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0) if (high - low) / s <= 8 or s == 5.0)
    for tick in range(math.ceil(low / step), math.floor(high / step) + 1):
        yield _line((_LEFT, y(tick * step)), (_WIDE - 16, y(tick * step)), _RULE, 1.0 if not tick else 0.3)
        yield _text(_LEFT - 6, y(tick * step) + 4, signed_percent(math.expm1(tick * step)), "end")
    for position in sorted({0, last // 4, last // 2, 3 * last // 4, last}):
        yield _text(x(position), _HIGH - 6, str(position), "middle")
    yield _text(_LEFT - 6, _HIGH - 24, "posterior", "end")
    yield _line((_LEFT, _HIGH - 22), (_WIDE - 16, _HIGH - 22), _RULE)


def _line(start: Tuple[float, float], end: Tuple[float, float], colour: str, opacity: float = 1.0) -> str:
    ends = f'x1="{start[0]:.1f}" y1="{start[1]:.1f}" x2="{end[0]:.1f}" y2="{end[1]:.1f}"'
    return f'<line {ends} stroke="{colour}" stroke-opacity="{opacity}"/>'


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{_INK}">{escape(text)}</text>'
