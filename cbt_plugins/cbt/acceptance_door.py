"""The door for CBT's compare.py: the one module of this room that knows how results are judged."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Callable, Iterable, Mapping, Optional

#: name, directory under test, directory of the baseline, `acceptable:` -> judgements
Judge = Callable[[str, Path, Path, Mapping[str, Any]], Iterable[Any]]


def judge_of(benchmark: Any) -> Optional[Judge]:
    """Return the judge of a run beside another one: for our cycles that of archives, else the class's `evaluate`."""
    from cbt_plugins.benchmarks.cycle_benchmark import CycleBenchmark  # deferred: most uses of a CBT tree need neither

    if isinstance(benchmark, type) and issubclass(benchmark, CycleBenchmark):
        from cbt_plugins.report.export.acceptance import judge

        return judge
    own: Optional[Judge] = getattr(benchmark, "evaluate", None)
    return own
