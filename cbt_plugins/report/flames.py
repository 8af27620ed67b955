"""Flame graphs: the CPU time per request of call stacks, of one side or as the difference of two."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

from cbt_plugins.formatting import plain, several
from cbt_plugins.formatting.blocks import Block, Heading, Notes, TableGrid
from cbt_plugins.report.page import document
from cbt_plugins.results.stacks import Profile

#: rows of the table, signs of a name in it, and the smallest share of the whole that a frame needs to be drawn
_ROWS, _LONGEST, _SMALLEST = 25, 70, 0.0005
_HEAD = ("function", "in", "CPU ms per request", "±")
_DIFFERENCE = ("function", "in", "base", "new", "difference", "±")
_Function = Tuple[str, str]  # class and thread group, function


def blocks(new: Profile, base: Optional[Profile]) -> List[Block]:
    """Return the functions that use most themselves, or of which the difference is largest against its chance."""
    now, before = _own(new), _own(base) if base else {}
    weights = {key: _weight(now.get(key, _NOTHING), before.get(key, _NOTHING)) for key in {*now, *before}}
    rows = []
    for key in sorted(weights, key=lambda key: (-weights[key], key))[:_ROWS]:
        (value, variance), (old, of_old) = now.get(key, _NOTHING), before.get(key, _NOTHING)
        cells = [plain(old), plain(value), _signed(value - old)] if base else [plain(value)]
        name = key[1] if len(key[1]) <= _LONGEST else f"{key[1][: _LONGEST - 3]}..."
        rows.append((name, key[0], *cells, f"±{plain(2 * math.sqrt(variance + of_old))}"))
    parts: List[Block] = [Heading(_title(new, base)), TableGrid(_DIFFERENCE if base else _HEAD, tuple(rows), left=2)]
    return [*parts, Notes("notes", tuple(_notes(new, base)))]


_NOTHING = (0.0, 0.0)


def _signed(value: float) -> str:
    return f"{'+' if value >= 0 else '-'}{plain(abs(value))}"


def _weight(now: Tuple[float, float], before: Tuple[float, float]) -> float:
    """Return the distance of the difference from chance, in its own unit: one sample more explains a distance of 0."""
    return abs(now[0] - before[0]) - 2 * math.sqrt(now[1] + before[1])


def _own(profile: Profile) -> Dict[_Function, Tuple[float, float]]:
    """Return the CPU time of each function itself, and its variance."""
    values: Dict[_Function, float] = defaultdict(float)
    variances: Dict[_Function, float] = defaultdict(float)
    for stack, value in profile.cpu_ms.items():
        key = (f"{stack[0]}:{stack[1]}", stack[-1])
        values[key] += value
        variances[key] += profile.variance[stack]
    return {key: (value, variances[key]) for key, value in values.items()}


def _title(new: Profile, base: Optional[Profile]) -> str:
    if base is None:
        return f"{new.phase}: {plain(new.total)} ms of CPU per request in Ceph's daemons"
    return f"{new.phase}: {plain(base.total)} ms of CPU per request before, {plain(new.total)} ms now"


def _notes(new: Profile, base: Optional[Profile]) -> Iterator[str]:
    for name, profile in (("base", base), ("new", new)) if base else (("", new),):
        if profile:
            where = f"{profile.samples} samples in {several(profile.runs, 'run')}"
            yield f"{name + ': ' if name else ''}{where}; ±: two standard errors, from the number of samples only"
            yield from (f"{name + ': ' if name else ''}{text}" for text in (*profile.notes, *profile.left_out))


def folded(profile: Profile) -> Iterator[str]:
    """Yield a line for each stack, as flamegraph.pl and speedscope read it; its number is microseconds per request."""
    for stack, value in sorted(profile.cpu_ms.items()):
        if round(1000 * value):
            yield f"{';'.join(stack)} {round(1000 * value)}"


def page(new: Profile, base: Optional[Profile]) -> str:
    """Return the flame graph as a page."""
    sides = [profile.cpu_ms for profile in ([base, new] if base else [new])]
    return document(
        "flames.html.j2",
        ["flames.js"],
        {"tree": tree(sides)},
        title=_title(new, base),
        phase=new.phase,
        difference=base is not None,
        notes=list(_notes(new, base)),
    )


def tree(sides: Sequence[Mapping[Tuple[str, ...], float]]) -> Dict[str, Any]:
    """Return {"n": name, "v": [value of each side], "c": children}; small frames are left out, their time is not."""
    root: Dict[str, Any] = {"n": "all", "v": [0.0] * len(sides), "c": {}}
    for side, stacks in enumerate(sides):
        for stack, value in stacks.items():
            node = root
            node["v"][side] += value
            for name in stack:
                node = node["c"].setdefault(name, {"n": name, "v": [0.0] * len(sides), "c": {}})
                node["v"][side] += value
    return _pruned(root, _SMALLEST * max(root["v"]))


def _pruned(node: Mapping[str, Any], smallest: float) -> Dict[str, Any]:
    kept = sorted(
        (child for child in node["c"].values() if max(child["v"]) >= smallest), key=lambda child: str(child["n"])
    )
    values = [float(f"{value:.4g}") for value in node["v"]]
    return {"n": node["n"], "v": values, "c": [_pruned(child, smallest) for child in kept]}
