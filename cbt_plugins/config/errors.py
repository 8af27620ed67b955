"""Errors in a configuration file: all of them at once, each with its place."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import Iterable, Mapping, Optional, Sequence, Tuple, Union

from cbt_plugins.formatting.screen import printable

#: keys and list indices from the top of the file down
Path = Tuple[Union[str, int], ...]

#: characters of one error
_LONGEST = 1200

#: keys and values of the YAML that have another name now; where a new one is among the choices, the error says so
RENAMED: Mapping[str, Tuple[str, ...]] = {
    "hybrid": ("cbt_load", "cbt-load"),
    "steady": ("clean",),
    "daemons": ("service_manager",),
}


@dataclass(frozen=True)
class ErrorAt:
    """One error in a file; line and column count from 1, and are absent when the data came from no file."""

    path: Path
    text: str
    file: Optional[str] = None
    line: Optional[int] = None
    column: Optional[int] = None

    def __str__(self) -> str:
        place = [str(part) for part in (self.file, self.line, self.column) if part is not None]
        parts = [":".join(place), format_path(self.path), self.text]
        return printable(" ".join(_shortened(": ".join(filter(None, parts))).split()))


def _shortened(text: str) -> str:
    """Return a text without the middle of what is far too long for a line: a value of many pages, say."""
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST // 2]} ... {text[-_LONGEST // 2 :]}"


class ConfigError(Exception):
    """A configuration that must not run; `str()` is one error per line, in the order of the file."""

    def __init__(self, errors: Sequence[ErrorAt]) -> None:
        self.errors = tuple(sorted(dict.fromkeys(errors), key=lambda e: (e.line or 0, e.column or 0)))
        super().__init__("\n".join(str(error) for error in self.errors))


def format_path(path: Path) -> str:
    """Return a path as people write it: benchmarks.warp.cycle.phases[1].hybrid."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text


def did_you_mean(word: str, choices: Iterable[str]) -> str:
    """Return "; did you mean 'x'?" for the nearest choice, its new name for a renamed one, "" when none is near."""
    by_folded = {choice.lower(): choice for choice in choices}
    for new in RENAMED.get(word, ()):
        if new in by_folded:
            return f"; it is called {new!r} now"
    near = difflib.get_close_matches(word.lower()[:100], by_folded, n=1, cutoff=0.6)
    return f"; did you mean {by_folded[near[0]]!r}?" if near else ""


def near_miss(word: str, choices: Iterable[str]) -> Optional[str]:
    """Return the choice that was meant without a doubt: letters swapped, one missing, `-` for `_`; None otherwise."""
    by_folded = {choice.lower().replace("-", "_"): choice for choice in sorted(choices)}
    folded = word.lower().replace("-", "_")
    swapped = [choice for choice in by_folded if sorted(choice) == sorted(folded)]
    near = swapped or difflib.get_close_matches(folded[:100], by_folded, n=1, cutoff=0.8)
    return by_folded[near[0]] if near else None
