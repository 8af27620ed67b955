"""Lines of agents on nodes, which have a number: each is taken once and in order, and what is doubled or lost is said.

Agents of earlier versions wrote no numbers; their lines are taken as they are.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, Dict, Iterable, Iterator, List, Mapping, Optional, Set, Tuple, TypeVar

from cbt_plugins.formatting import several
from cbt_plugins.journal import each_json_line

#: the number of a line, from 0 for the first one of a process of the agent
NUMBER = "i"

Line = TypeVar("Line", bound=Mapping[str, Any])


class LineOrder:
    """Judges the lines of one file as they come."""

    def __init__(self) -> None:
        self._next: Optional[int] = None  # None: of this process no line has come, or its lines have no numbers
        self._headers: Set[str] = set()
        self._again = False  # in the lines of a process that stand in the file a second time
        self.doubled = self.lost = self.bad = 0
        self.gap = False  # lines are lost before the newest one
        self._latest = -math.inf  # time of a line that was taken
        self._left_out = False  # since the newest one, a line that is later: of a process whose first line is lost

    def takes(self, line: Mapping[str, Any], following: Mapping[str, Any]) -> bool:
        """Tell whether a line is the next one; others are left out. `following` is the line after it, {} for none.

        A number that is above the number of the following line is damaged: it must not cost the lines that follow.
        """
        t = line.get("t")
        is_later = isinstance(t, (int, float)) and t > self._latest
        if not self._is_next(line, following):
            self._left_out |= is_later
            return False
        self.gap |= self._left_out
        self._left_out = False
        self._latest = float(t) if is_later and t is not None else self._latest
        return True

    def _is_next(self, line: Mapping[str, Any], following: Mapping[str, Any]) -> bool:
        """Tell the same by the numbers alone, and note what they say of lines before this one."""
        self.gap = False
        number = line.get(NUMBER)
        after = None if "version" in following else following.get(NUMBER)
        if "version" in line:
            header = json.dumps(line, sort_keys=True)
            self._again = isinstance(number, int) and header in self._headers
            self._headers.add(header)
            self._next = number if isinstance(number, int) and not self._again else None
            if self._next is not None and isinstance(after, int) and after < self._next:
                self.bad += 1  # its number only: without the header no line of the process could be read
                self._next = after
                return True
        if self._again:
            self.doubled += 1
            return False
        if self._next is None or not isinstance(number, int):
            self.bad += self._next is not None
            return self._next is None
        if number < self._next or (isinstance(after, int) and self._next <= after < number):
            self.doubled += 1
            return False
        self.gap = number > self._next
        self.lost += number - self._next
        self._next = number + 1
        return True

    def note(self, path: Path) -> Iterator[str]:
        """Yield a text with the errors in the lines of a file, if there are any."""
        counts = {"doubled or out of order": self.doubled, "lost": self.lost, "damaged": self.bad}
        causes = [f"{several(count, 'line')} {how}" for how, count in counts.items() if count]
        if causes:
            name = "/".join(path.parts[-3:])
            yield f"{name}: {', '.join(causes)}: left out"


def numbered_lines(path: Path, notes: Dict[str, None]) -> List[Dict[str, Any]]:
    """Return the lines of an agent, each once; says in `notes` what was wrong. [] when there is no file."""
    return list(each_numbered_line(path, notes))


def each_numbered_line(path: Path, notes: Dict[str, None]) -> Iterator[Dict[str, Any]]:
    """Yield the lines that `numbered_lines` returns, one line in memory at a time."""
    yield from (line for line, _ in each_line_and_loss(path, notes))


def each_line_and_loss(path: Path, notes: Dict[str, None]) -> Iterator[Tuple[Dict[str, Any], bool]]:
    """Yield these lines, each with whether lines right before it are lost."""
    order = LineOrder()
    for line, following in with_following(each_json_line(path)):
        if order.takes(line, following):
            yield line, order.gap
    notes.update(dict.fromkeys(order.note(path)))


def with_following(lines: Iterable[Line]) -> Iterator[Tuple[Line, Mapping[str, Any]]]:
    """Yield each line with the line after it, {} after the last one."""
    present: Optional[Line] = None
    for line in lines:
        if present is not None:
            yield present, line
        present = line
    if present is not None:
        yield present, {}
