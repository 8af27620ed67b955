"""Count the runs: planned, executed, found in the archive, failed."""

from __future__ import annotations

from collections import Counter
from typing import Dict, Iterable, List, Tuple

from cbt_plugins.cbt.layout import Planned

PLANNED, EXECUTED, EXISTING, FAILED = "not executed", "executed", "existing", "failed"


class Ledger:
    """State of every planned run. Two equal permutations have one id and one directory: they are one run."""

    def __init__(self, runs: Iterable[Planned]) -> None:
        self._runs: Dict[str, Tuple[Planned, str]] = {run.fingerprint: (run, PLANNED) for run in runs}
        self._failures: Dict[str, str] = {}

    def knows(self, run: Planned) -> bool:
        return run.fingerprint in self._runs

    def state(self, run: Planned) -> str:
        return self._runs[run.fingerprint][1]

    def set(self, run: Planned, state: str, why: str = "") -> None:
        self._runs[run.fingerprint] = (run, state)
        if why:
            self._failures[run.fingerprint] = why

    @property
    def fulfilled(self) -> bool:
        return all(state in (EXECUTED, EXISTING) for _, state in self._runs.values())

    def lines(self) -> List[str]:
        """The count for people: one line, then one line for each run without a result."""
        counts = Counter(state for _, state in self._runs.values())
        parts = [f"{counts[EXECUTED]} of {len(self._runs)} planned runs executed"]
        parts += [f"{counts[EXISTING]} skipped (their results exist)"] if counts[EXISTING] else []
        parts += [f"{counts[FAILED]} failed"] if counts[FAILED] else []
        rest = counts[PLANNED]
        parts += (
            [f"{rest} not executed" + (" (nothing runs after a failure)" if counts[FAILED] else "")]
            if rest
            else []
        )
        lines = [", ".join(parts)]
        for fingerprint, (run, state) in self._runs.items():
            if state in (PLANNED, FAILED):
                keys = ", ".join(
                    f"{key}={value}" for key, value in run.config.items() if not _is_long(key, value)
                )
                why = self._failures.get(fingerprint)
                lines.append(
                    f"{state}: {run.benchmark}, iteration {run.iteration}"
                    + (f" ({keys})" if keys else "")
                    + (f": {why}" if why else "")
                )
        return lines


def _is_long(key: str, value: object) -> bool:
    return key in ("benchmark", "iteration", "acceptable") or isinstance(value, (dict, list))
