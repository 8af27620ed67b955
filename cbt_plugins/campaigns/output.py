"""A campaign as text, data, a table and a page: the decision on each key row, its blocks, what it would still take."""

from __future__ import annotations

import fnmatch
import math
from dataclasses import replace
from typing import Any, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Tuple

from cbt_plugins.campaigns.evaluation import Evaluation, Key, RowState
from cbt_plugins.campaigns.key_warnings import key_warnings
from cbt_plugins.campaigns.schedule import CampaignError, Schedule
from cbt_plugins.compare.output import amount, margins, number, signed_amount
from cbt_plugins.compare.statistics.assumption import FEWEST
from cbt_plugins.compare.statistics.sequential import Decision, Outlook, first_verdict, interval, least_scatter
from cbt_plugins.compare.statistics.verdicts import Scatter, Verdict, small_difference
from cbt_plugins.compare.table import Compared
from cbt_plugins.formatting import about_size, percent, plain, seconds, several, signed_percent
from cbt_plugins.formatting.blocks import Block, Heading, Notes, TableGrid, Words
from cbt_plugins.metrics import METRICS
from cbt_plugins.report.comparison import page as comparison_page

VERSION = 1
#: half the height of the picture of the blocks, and its largest width
_HALF, _WIDTH = 45, 656


def headline(evaluation: Evaluation) -> str:
    """Return the progress of a campaign, what it does not decide, and which arms no record tells from the base."""
    base = evaluation.schedule.arms[0]
    undecided = (f"no row matches the key {pattern}" for pattern in evaluation.unmatched_keys)
    alike = (f"{arm} does not differ from {base} in anything that was recorded" for arm in evaluation.arms_like_base)
    return "; ".join((_progress(evaluation), *undecided, *alike))


def _progress(evaluation: Evaluation) -> str:
    of = f"{evaluation.blocks} of {several(evaluation.schedule.section.blocks, 'block')}"
    if evaluation.decided:
        return f"decided after {of}"
    if evaluation.needs_no_more_blocks and evaluation.blocks < evaluation.schedule.section.blocks:
        return f"ended after {of}: more blocks would not decide the inconclusive rows"
    if evaluation.needs_no_more_blocks:
        return f"the budget is used up after {of}; rows that are not decided are inconclusive"
    return f"not decided after {of}"


def blocks(evaluation: Evaluation) -> List[Block]:
    """Return a campaign for people."""
    schedule = evaluation.schedule
    spent = sum(trial.prepared + trial.measured for _, trial in evaluation.trials)
    arms = f"arms {', '.join(schedule.arms)}; {several(len(evaluation.trials), 'trial')} in {seconds(spent)}"
    parts: List[Block] = [
        Heading(f"{schedule.folder}: {headline(evaluation)}"),
        Words((arms, "base and new are medians of all trials; the change is that of the blocks, not of the medians")),
        TableGrid(_HEAD, tuple(_line(row, evaluation) for row in evaluation.rows), left=2),
    ]
    if not evaluation.needs_no_more_blocks:
        title = "total number of blocks that gives a true verdict in 80 % of campaigns, with the block scatter so far"
        parts.append(TableGrid(_OUTLOOK, tuple(_outlooks(evaluation)), left=2, title=title))
    return [*parts, Notes("notes", tuple(_notes(evaluation)))]


_HEAD = ("row", "contrast", "base", "new", "change", "interval", "block scatter", "blocks", "verdict")
_OUTLOOK = (
    *("row", "contrast", "margin", "if nothing changed", "if the change is the margin"),
    "if the change is twice the margin",
)


def _line(row: RowState, evaluation: Evaluation) -> Tuple[str, ...]:
    decision = row.decision
    base, new = _medians(row, evaluation.schedule)
    verdict = evaluation.verdict_of(row)
    return (
        row.id.text,
        row.id.contrast,
        plain(base),
        plain(new),
        _signed(decision.change, decision.unit),
        _ends(decision) or "-",
        _amount(decision.scatter, decision.unit),
        str(decision.n),
        _word(verdict, decision),
    )


def _ends(decision: Decision) -> str:
    if decision.low is None:
        return ""
    return f"[{_signed(decision.low, decision.unit)}, {_signed(decision.high, decision.unit)}]"


def _signed(value: Optional[float], unit: str) -> str:
    """Return "-5.1 %"; of a difference "+2.500 s"."""
    return signed_amount(value, unit) if unit and value is not None else signed_percent(value)


def _amount(value: Optional[float], unit: str) -> str:
    return f"{plain(value)} {unit}" if unit and value is not None else percent(value)


def change_text(decision: Decision) -> str:
    """Return the change with its interval: "-5.1 % [-6.0 %, -4.2 %]", or "+2 s [+1 s, +3 s]"."""
    return f"{_signed(decision.change, decision.unit)} {_ends(decision)}".rstrip()


def _word(verdict: Optional[Verdict], decision: Decision) -> str:
    """Return "equivalent (worse)" of a row whose change is surely not 0, and surely smaller than the margin."""
    if verdict is Verdict.EQUIVALENT and decision.differs:
        return f"{verdict.value} ({decision.differs})"
    return verdict.value if verdict else "not decided"


def _medians(row: RowState, schedule: Schedule) -> Tuple[Optional[float], Optional[float]]:
    """Return the medians of the base and of the arm of the contrast; none of the latter where it is several arms."""
    base = row.medians.get(schedule.arms[0])
    contrast = next(candidate for candidate in schedule.contrasts if candidate.name == row.id.contrast)
    new = [arm for arm, weight in contrast.weights.items() if weight > 0]
    return (base, row.medians.get(new[0])) if len(new) == 1 else (None, None)


def _outlooks(evaluation: Evaluation) -> Iterator[Tuple[str, ...]]:
    for row in evaluation.rows:
        if not row.verdict:
            cells = [needed(outlook, evaluation.schedule, evaluation.block_seconds) for outlook in row.outlooks]
            yield (row.id.text, row.id.contrast, _margin(row.id.metric, evaluation.schedule), *(cells or "---"))


def _margin(metric: str, schedule: Schedule) -> str:
    margin = schedule.margin_of(metric)
    return amount(margin, METRICS[metric].unit) if schedule.in_unit(metric) else percent(margin, ".3g")


def margins_of(schedule: Schedule, metrics: Iterable[str]) -> str:
    """Return "±5 % (bad seconds: ±1 s)": the margin, and the margins of metrics that have another."""
    return margins(schedule.rules, [name for name in metrics if schedule.in_unit(name) == METRICS[name].additive])


def needed(outlook: Outlook, schedule: Schedule, of_block: Optional[float]) -> str:
    """Return after how many blocks 80 % of campaigns have a true verdict, and how long they take: "8 blocks (3 h)"."""
    if outlook.blocks is None:
        return f"more than {schedule.section.blocks} blocks (chance {percent(outlook.chance, '.0f')})"
    return several(outlook.blocks, "block") + (f" ({seconds(outlook.blocks * of_block)})" if of_block else "")


def progress(evaluation: Evaluation) -> Iterator[str]:
    """Yield the lines printed after each block: the rows, and the need of the noisiest one."""
    for row in evaluation.rows:
        decision, verdict = row.decision, evaluation.verdict_of(row)
        text = f"{row.id.contrast}: {row.id.text}: {change_text(decision)}: {_word(verdict, decision)}"
        yield f"block {evaluation.blocks}: {text}"
    still = [row for row in evaluation.rows if not row.verdict and row.outlooks]
    if still and not evaluation.needs_no_more_blocks:
        margin_of = evaluation.schedule.margin_of
        worst = max(still, key=lambda row: (row.decision.scatter or 0.0) / margin_of(row.id.metric))
        none, least, _ = (needed(outlook, evaluation.schedule, evaluation.block_seconds) for outlook in worst.outlooks)
        margin = _margin(worst.id.metric, evaluation.schedule)
        needs = f"{none}; if the change is {margin}: {least} ({worst.id.text})"
        yield f"block {evaluation.blocks}: needed if nothing changed: {needs}"


def _notes(evaluation: Evaluation) -> Iterator[str]:
    section = evaluation.schedule.section
    yield (
        f"the chance of any false better or worse in the campaign is at most {percent(section.alpha, 'g')}; "
        f"the intervals hold at all looks together; equivalent: within "
        f"{margins_of(evaluation.schedule, [row.id.metric for row in evaluation.rows])}"
    )
    for pattern in evaluation.unmatched_keys:
        yield f"no row matches the key {pattern}, so the campaign does not decide this key"
    for row in evaluation.rows:
        name = f"{row.id.text} ({row.id.contrast})"
        if row.decision.differs and row.decision.within and row.decision.low is not None:
            ends = row.decision.low, row.decision.high or 0.0
            margin = evaluation.schedule.margin_of(row.id.metric)
            yield f"{name}: {small_difference(row.decision.differs, ends, margin, row.decision.unit)}"
        yield from (f"{name}: left out: {text}" for text in row.left_out)
        if row.forbidden:
            yield f"{name}: no verdict: {row.forbidden}"
        if row.capped:
            yield f"{name}: neither better nor equivalent: {row.capped}"
        if row.late:
            yield f"{name}: neither better nor worse: {row.late}"
    yield from (f"{planned.name} failed: {trial.reason}" for planned, trial in evaluation.trials if trial.reason)
    yield from (f"{text}: {reason}" for text, reason in attempts_made_again(evaluation))
    yield from left_set(evaluation)


def attempts_made_again(evaluation: Evaluation) -> Iterator[Tuple[str, Optional[str]]]:
    """Yield for each arm how many attempts at its trials failed and were made again, and the reason of the last one.

    A reason can have what a command has printed.
    """
    for arm in evaluation.schedule.arms:
        attempts = [(planned, trial) for planned, trial in evaluation.failed_attempts if planned.arm == arm]
        if attempts:
            planned, trial = attempts[-1]
            text = f"{arm}: {several(len(attempts), 'attempt')} failed and made again"
            yield f"{text}, the last one at {planned.name}", trial.reason


def left_set(evaluation: Evaluation) -> Iterator[str]:
    """Yield the commands that remove the options that the last trial set for its restart: they stay on the cluster."""
    for planned, _ in evaluation.trials[-1:]:
        commands = evaluation.schedule.put_back(planned.arm)
        if commands:
            remedy = f"remove these options with: {' && '.join(commands)}"
            yield f"options of {planned.arm} are still set on the cluster; {remedy}"


def data(evaluation: Evaluation) -> Dict[str, Any]:
    """Return a campaign for programs; changes are shares, or with a `unit` differences in it."""
    return {
        "version": VERSION,
        "file": evaluation.schedule.config.file,
        "folder": str(evaluation.schedule.folder),
        "arms": list(evaluation.schedule.arms),
        "blocks": evaluation.blocks,
        "budget": evaluation.schedule.section.blocks,
        "decided": evaluation.decided,
        "ended": evaluation.needs_no_more_blocks,
        "unmatched_keys": list(evaluation.unmatched_keys),
        "arms_like_base": list(evaluation.arms_like_base),
        "block_seconds": number(evaluation.block_seconds),
        "trials": [
            {"name": planned.name, "arm": planned.arm, "archive": str(trial.archive), "reason": trial.reason}
            for planned, trial in evaluation.trials
        ],
        "failed_attempts": [
            {"name": planned.name, "arm": planned.arm, "archive": str(trial.archive), "reason": trial.reason}
            for planned, trial in evaluation.failed_attempts
        ],
        "rows": [_data_of(row, evaluation) for row in evaluation.rows],
    }


def _data_of(row: RowState, evaluation: Evaluation) -> Dict[str, Any]:
    decision, verdict = row.decision, evaluation.verdict_of(row)
    of_blocks, in_unit = [number(value) for value in row.ratios], evaluation.schedule.in_unit(row.id.metric)
    return {
        **vars(row.id),
        "medians": {arm: number(value) for arm, value in row.medians.items()},
        "change": number(decision.change),
        "change_low": number(decision.low),
        "change_high": number(decision.high),
        "scatter": number(decision.scatter),
        "n": decision.n,
        "verdict": verdict.value if verdict else None,
        "differs": decision.differs,
        "within": decision.within,
        "decided_at": decision.decided_at,
        "unit": decision.unit,
        "margin": evaluation.schedule.margin_of(row.id.metric),
        "differences": of_blocks if in_unit else None,
        "log_ratios": None if in_unit else of_blocks,
        "left_out": list(row.left_out),
        "capped": row.capped,
        "forbidden": row.forbidden,
        "late": row.late,
        "outlook": [vars(outlook) for outlook in row.outlooks],
    }


def table(evaluation: Evaluation) -> Iterator[Sequence[Any]]:
    """Yield the log ratio and the change of each block and key row, for CSV.

    `change` is a share; of a metric that may be 0 it is a difference in `unit`, without a ratio.
    """
    yield ("contrast", "case", "phase", "op", "metric", "block", "log_ratio", "change", "unit")
    for row in evaluation.rows:
        for block, ratio in enumerate(row.ratios, 1):
            cells: Tuple[Any, ...] = ("", "")
            if ratio is not None and evaluation.schedule.in_unit(row.id.metric):
                cells = ("", number(ratio))
            elif ratio is not None:
                cells = (number(ratio), number(math.expm1(ratio)))
            yield (*vars(row.id).values(), block, *cells, row.decision.unit)


def page(evaluation: Evaluation) -> str:
    """Return the page: the decision with the sequence of blocks, then the comparison of all trials.

    Raises CampaignError before each arm has a trial.
    """
    if evaluation.compared is None:
        raise CampaignError(f"{evaluation.schedule.folder}: no page yet: not every arm has a trial")
    decision = {
        "title": f"Campaign: {headline(evaluation)}",
        "verdict": _verdict(evaluation),
        "head": _HEAD,
        "rows": [{"cells": _line(row, evaluation), "class": _class(evaluation.verdict_of(row)),
                  "plot": _plot(row, evaluation)} for row in evaluation.rows],
        "notes": list(_notes(evaluation)),
    }  # fmt: skip
    return comparison_page(_decided(evaluation), decision)


def _verdict(evaluation: Evaluation) -> Dict[str, str]:
    counts: Dict[str, int] = {}
    for row in evaluation.rows:
        verdict = evaluation.verdict_of(row)
        word = verdict.value if verdict else "not decided"
        counts[word] = counts.get(word, 0) + 1
    kind = "bad" if "worse" in counts else "good" if "better" in counts else "equivalent"
    open_ = {"inconclusive", "not decided"} & set(counts)
    kind = "warning" if open_ and kind == "equivalent" else kind
    return {"kind": kind, "text": "key rows: " + ", ".join(f"{n} {word}" for word, n in counts.items())}


def _class(verdict: Optional[Verdict]) -> str:
    return verdict.value if verdict in (Verdict.BETTER, Verdict.WORSE) else ""


def _plot(row: RowState, evaluation: Evaluation) -> Dict[str, Any]:
    """Return the picture of a row: the observation of each block, their mean so far with its bounds, the margin."""
    section, design = evaluation.schedule.section, evaluation.schedule.design
    levels = {"bounds": section.alpha / max(1, len(evaluation.rows)), "inner": 2 * section.alpha}
    margin, in_unit = evaluation.schedule.margin_of(row.id.metric), evaluation.schedule.in_unit(row.id.metric)
    least = least_scatter(margin) if in_unit else 0.0
    points, means, values = [], [], []
    reaches: Dict[str, List[Tuple[int, float, float]]] = {name: [] for name in levels}
    for block, ratio in enumerate(row.ratios, 1):
        if ratio is None:
            continue
        values.append(ratio)
        points.append((block, ratio))
        means.append((block, sum(values) / len(values)))
        for name, alpha in levels.items():
            reach = interval(values, alpha, design, least)
            reaches[name] += [(block, *reach)] if reach else []
    ends = [abs(v) for _, v in points] + [abs(end) for _, *two in reaches["bounds"] for end in two] + [2 * margin]
    scale = min(max(ends), 5 * max([abs(v) for _, v in points] + [margin]))
    step = min(16.0, round(_WIDTH / (section.blocks + 1), 1))
    along = lambda block: round(step * block, 1)  # noqa: E731
    place = lambda v: round(-_HALF * max(-1.0, min(1.0, v / scale)), 1)  # noqa: E731
    return {
        "half": _HALF,
        "scale": _signed(scale if in_unit else math.expm1(scale), row.decision.unit),
        "width": along(section.blocks + 1),
        "margin": round(_HALF * min(1.0, margin / scale), 1),
        "points": [(along(block), place(v)) for block, v in points],
        **{name: [(along(b), place(low), place(high)) for b, low, high in steps] for name, steps in reaches.items()},
        "line": " ".join(f"{along(b)},{place(m)}" for b, m in means),
    }


def _decided(evaluation: Evaluation) -> Compared:
    """Return the comparison with the campaign's changes and verdicts of key rows; other rows wait for its end."""
    assert evaluation.compared is not None
    states: Dict[Tuple[str, str, Key], RowState] = {(r.id.contrast, r.id.case, r.id.key): r for r in evaluation.rows}
    sections = []
    for section in evaluation.compared.sections:
        rows = []
        for row in section.rows:
            state = states.get((section.contender, section.case, row.key))
            outcome = row.comparison
            if state:
                of = state.decision
                outcome = replace(
                    outcome, change=of.change, change_low=of.low, change_high=of.high, p=None, adjusted=None
                )
                outcome = replace(outcome, inner_low=of.low, inner_high=of.high, differs=of.differs, unit=of.unit)
            if outcome.key or not evaluation.needs_no_more_blocks:
                outcome = replace(
                    outcome, verdict=(evaluation.verdict_of(state) if state else None) or Verdict.INCONCLUSIVE
                )
            rows.append(replace(row, comparison=outcome))
        sections.append(replace(section, rows=tuple(rows)))
    return replace(evaluation.compared, sections=tuple(sections))


def plan_blocks(
    schedule: Schedule,
    expected: Mapping[Key, Tuple[Scatter, Tuple[Outlook, ...]]],
    warnings_of_history: Sequence[str] = (),
) -> List[Block]:
    """Return the plan of a campaign, for people."""
    section, facts = schedule.section, plan_data(schedule, warnings_of_history)
    cycle = seconds(facts["cycle_seconds"])
    named = [metric for key in section.keys for metric in fnmatch.filter(METRICS, key.rpartition(".")[2])]
    unknown_time = f" + {'; '.join(facts['unknown_time'])}" if facts["unknown_time"] else ""
    earliest = first_verdict(max(1, len(expected)), schedule.design)
    words = [
        f"{several(len(schedule.arms), 'arm')}: {', '.join(schedule.arms)}; {schedule.arms[0]} is the base",
        f"at most {several(section.blocks, 'block')} of {several(len(schedule.block(1)), 'cycle')}; a cycle takes "
        f"{cycle}{unknown_time}, without its preparation",
        f"at most {several(facts['trials'], 'trial')}: {seconds(facts['seconds'])} of load, "
        f"{facts['bytes_text']} written by fills",
        f"the campaign ends when all key rows are better, worse or equivalent (within {margins(schedule.rules, named)})"
        f"; chance of any false better or worse: {percent(section.alpha, 'g')}; first verdict after at "
        f"least {earliest} blocks",
    ]
    order = [(str(n), " ".join(planned.arm for planned in schedule.block(n))) for n in range(1, section.blocks + 1)]
    commands = []
    for arm in schedule.arms:
        cycle_of = schedule.cycle(arm)
        commands += [(arm, line) for line in (*cycle_of.prepare, cycle_of.command(schedule.folder / "ARCHIVE"))]
    blocks: List[Block] = [
        Heading(f"{schedule.config.file}: campaign"),
        Words(tuple(words)),
        Notes("warnings", tuple(facts["warnings"])),
        TableGrid(("block", "order"), tuple(order[:_SHOWN]), left=2, title=f"order (seed {section.seed})"),
        TableGrid(("arm", "command"), tuple(commands), left=2, title="each trial, in this order"),
    ]
    of_block = len(schedule.block(1)) * facts["cycle_seconds"]
    rows = [
        (" ".join((*key[:2], METRICS[key[2]].title)),
         _amount(scatter.value, METRICS[key[2]].unit if schedule.in_unit(key[2]) else ""),
         _margin(key[2], schedule), *(needed(outlook, schedule, of_block) for outlook in outlooks))
        for key, (scatter, outlooks) in expected.items()
    ]  # fmt: skip
    if rows:
        head = ("row", "block scatter", *_OUTLOOK[2:])
        title = "blocks for a true verdict in 80 % of campaigns, with the block scatter of the history (load only)"
        blocks.append(TableGrid(head, tuple(rows), title=title))
    else:
        runs = f"give {FEWEST} runs of one configuration or more in --history ARCHIVE..."
        blocks.append(Words((f"the number of blocks depends on the block scatter: {runs}, or wait for 3 blocks",)))
    return blocks


#: blocks whose order the plan shows
_SHOWN = 20


def plan_data(schedule: Schedule, warnings_of_history: Sequence[str] = ()) -> Dict[str, Any]:
    """Return the plan of a campaign, for programs."""
    from cbt_plugins.config.bounds import total_of

    totals = []
    for arm in schedule.arms:
        runs = schedule.config_of(arm).runs
        totals.append(total_of([run.plan for run in runs], 1))
    each = schedule.section.blocks * schedule.per_arm
    size = each * sum(total.bytes for total in totals)
    return {
        "version": VERSION,
        "file": schedule.config.file,
        "arms": list(schedule.arms),
        "blocks": schedule.section.blocks,
        "trials": each * len(schedule.arms),
        "cycle_seconds": sum(total.seconds for total in totals) / len(totals),
        "seconds": each * sum(total.seconds for total in totals),
        "unknown_time": list(dict.fromkeys(text for total in totals for text in total.unknown_time)),
        "bytes": size,
        "bytes_text": about_size(size) if size else "an unknown amount",
        "warnings": [*key_warnings(schedule), *warnings_of_history],
        "order": [[planned.arm for planned in schedule.block(n)] for n in range(1, schedule.section.blocks + 1)],
    }
