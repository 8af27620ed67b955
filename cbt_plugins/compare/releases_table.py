"""Releases side by side, in the order in which the study "Putting Reef to the Test" shows them.

Read and write new, aged and per failure state, then hours of recovery, then CPU.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Dict, Iterator, List, Optional, Sequence, Tuple

from cbt_plugins.compare import output
from cbt_plugins.compare.output import chance, change_text, legend, side_lines, value, verdict
from cbt_plugins.compare.statistics.verdicts import Estimate
from cbt_plugins.compare.table import Choice, Compared, Row, Section
from cbt_plugins.formatting.blocks import Block, Heading, Notes, TableGrid, Words
from cbt_plugins.metrics import CLUSTER, TOTAL
from cbt_plugins.plan import has_aged
from cbt_plugins.results.run_record import STATE
from cbt_plugins.s3_operations import WRITES

_READ = ("GET", "read")
_WRITE = (*WRITES, "write")
#: what is shown: (operation, metric)
CHOICE = Choice(
    phases=("*",),
    only=(
        *((op, "mib_per_s") for op in (*_READ, *_WRITE)),
        (CLUSTER, "recovery_s"),
        ("rgw", "cores"),
        ("osd", "cores"),
        (TOTAL, "ops_per_core"),
    ),
    keys=("*.mib_per_s", "*.recovery_s"),
)
_KINDS = ("throughput", "recovery", "CPU")
_HOUR = 3600.0

Line = Dict[str, Row]  # contender -> row


def blocks(compared: Compared) -> List[Block]:
    """Return the tables, one set for each configuration, with what differs and the warnings."""
    parts: List[Block] = [Words(tuple(side_lines(compared)))]
    for case, sections in _cases(compared).items():
        if case:
            parts.append(Heading(case))
        names = [section.contender if len(sections) > 1 else "" for section in sections]
        for name, section in zip(names, sections):
            parts.append(TableGrid(output.DIFFERENCES, tuple(output.differences(section)), left=3, title=name))
        parts += _tables(sections, compared.base.name)
        for name, section in zip(names, sections):
            notes = output.notes([*section.warnings, *output.of_rows(section.rows)])
            parts.append(replace(notes, title=f"{notes.title} of {name}") if name else notes)
        missing = [f"{warning.where}: {warning.text}" for section in sections for warning in section.missing]
        parts.append(Notes("no number", tuple(dict.fromkeys(missing))))
    parts.append(Notes("not compared", compared.not_compared))
    parts.append(Words(tuple(legend(compared.rules, compared.rows, counts=False))))
    return parts


def table_blocks(compared: Compared) -> Iterator[Block]:
    """Yield the tables alone, each set with its configuration."""
    for case, sections in _cases(compared).items():
        yield from [Heading(case)] if case else []
        yield from _tables(sections, compared.base.name)


def _tables(sections: Sequence[Section], base: str) -> Iterator[Block]:
    lines = _lines(sections)
    head = ["", "phase", "unit", base]
    for section in sections:
        head += [section.contender, "change", "p", "verdict"]
    for kind in _KINDS:
        rows = tuple(_cells(row, sections) for row in lines if _kind(next(iter(row.values()))) == kind)
        yield TableGrid(tuple(head), rows, left=3, title=kind)


def _cases(compared: Compared) -> Dict[str, List[Section]]:
    sections_by_case: Dict[str, List[Section]] = {}
    for section in compared.sections:
        sections_by_case.setdefault(section.case, []).append(section)
    return sections_by_case


def _lines(sections: Sequence[Section]) -> List[Line]:
    """Return a line for each row that any contender has."""
    lines: Dict[str, Line] = {}
    for section in sections:
        for row in section.rows:
            lines.setdefault(row.id, {})[section.contender] = row
    values = {_values(line): row_id for row_id, line in reversed(lines.items()) if STATE not in _phase_of(line)}
    return [line for row_id, line in lines.items() if values.get(_values(line), row_id) == row_id]


def _phase_of(line: Line) -> str:
    return next(iter(line.values())).phase


def _values(line: Line) -> Tuple[object, ...]:
    """Return the numbers of a line: equal for a phase and its only state of the cluster, which is then shown once."""
    about = next(iter(line.values()))
    numbers = tuple((row.comparison.base.value, row.comparison.new.value) for row in line.values())
    return about.phase.split(STATE)[0], about.op, about.metric, numbers


def _kind(row: Row) -> str:
    return {"mib_per_s": "throughput", "recovery_s": "recovery"}.get(row.metric, "CPU")


def _cells(line: Line, sections: Sequence[Section]) -> Tuple[str, ...]:
    row = next(iter(line.values()))
    unit, scale = _unit(row, line)
    cells = [line_title(row), _place(row, sections[0]), unit, value(_in(row.comparison.base, scale))]
    for section in sections:
        contender_row = line.get(section.contender)
        if contender_row is None:
            cells += ["-"] * 4
            continue
        adjusted = (
            contender_row.comparison.adjusted
            if contender_row.comparison.adjusted is not None
            else contender_row.comparison.p
        )
        cells += [value(_in(contender_row.comparison.new, scale)), change_text(contender_row.comparison)]
        cells += [chance(adjusted), verdict(contender_row.comparison)]
    return tuple(cells)


def line_title(row: Row) -> str:
    """Return the first cell of a line."""
    if row.metric == "mib_per_s":
        return "read" if row.op in _READ else "write"
    if row.metric == "cores":
        return f"{row.op.upper()} cores"
    return {"recovery_s": "to active+clean", "ops_per_core": "operations per core"}[row.metric]


def _place(row: Row, section: Section) -> str:
    """Return the phase, and whether the cluster was new or aged in it, if a phase has aged it."""
    roles = [name for name in _phases(section) if _role(section, name) == "measure"]
    failed = any(STATE in section_row.phase for section_row in section.rows)
    if failed or len(roles) < 2 or row.phase not in (roles[0], roles[-1]) or row.metric == "recovery_s":
        return row.phase
    names = list(_phases(section))
    between = names[names.index(roles[0]) : names.index(roles[-1]) + 1]
    if not has_aged((name, _role(section, name) or "") for name in between):
        return row.phase
    age = "new" if row.phase == roles[0] else "aged"
    return row.phase if age in row.phase else f"{row.phase} ({age})"


def _phases(section: Section) -> Iterator[str]:
    yield from dict.fromkeys(phase for phase, _, _ in section.base[0].keys if STATE not in phase)


def _role(section: Section, phase: str) -> Optional[str]:
    return section.base[0].config.get(f"phase.{phase}.role")


def _unit(row: Row, line: Line) -> Tuple[str, float]:
    """Return the unit and its factor: long recoveries are in hours."""
    longest = max(row.comparison.base.value, *(contender_row.comparison.new.value for contender_row in line.values()))
    return ("h", _HOUR) if row.metric == "recovery_s" and longest >= _HOUR else (row.unit, 1.0)


def _in(estimate: Estimate, scale: float) -> Estimate:
    """Return an estimate in a unit that is `scale` times larger."""
    low, high = (None if end is None else end / scale for end in (estimate.low, estimate.high))
    return replace(estimate, value=estimate.value / scale, low=low, high=high)


COLUMNS = ("case", "what", "phase", "unit", "base", "base_value", "contender", "value", "change", "verdict")


def table(compared: Compared) -> List[Sequence[str]]:
    """Return COLUMNS and a line for each row and contender; seconds stay seconds."""
    lines: List[Sequence[str]] = [COLUMNS]
    for case, sections in _cases(compared).items():
        for line in _lines(sections):
            for name, row in line.items():
                comparison = row.comparison
                shown = [f"{number:.10g}" for number in (comparison.base.value, comparison.new.value)]
                rate = "" if comparison.change is None else f"{comparison.change:.10g}"
                about = [case, line_title(row), _place(row, sections[0]), row.unit]
                lines.append([*about, compared.base.name, shown[0], name, shown[1], rate, row.verdict.value])
    return lines
