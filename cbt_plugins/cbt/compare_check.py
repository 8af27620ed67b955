"""The door for CBT's compare.py: the one module of this room that knows how results are judged."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Callable, Iterable, Mapping, Optional

#: name, directory under test, directory of the baseline, `acceptable:` -> judgements
RunCheck = Callable[[str, Path, Path, Mapping[str, Any]], Iterable[Any]]


def check_of(benchmark: Any) -> Optional[RunCheck]:
    """Return the check of a run beside another one: of our cycles by archives, else `evaluate` of the class."""
    from cbt_plugins.benchmarks.cycle_benchmark import CycleBenchmark  # deferred: most uses of a CBT tree need neither

    if isinstance(benchmark, type) and issubclass(benchmark, CycleBenchmark):
        from cbt_plugins.report.export.acceptance import check_statements

        return check_statements
    own: Optional[RunCheck] = getattr(benchmark, "evaluate", None)
    return own
