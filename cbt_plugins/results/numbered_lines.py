"""Lines of agents on nodes, which have a number: each is taken once and in order, and what is doubled or lost is said.

Agents of earlier versions wrote no numbers; their lines are taken as they are.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, Optional, Set

from cbt_plugins.formatting import several
from cbt_plugins.journal import each_json_line

#: the number of a line, from 0 for the first one of a process of the agent
NUMBER = "i"


class LineOrder:
    """Judges the lines of one file as they come."""

    def __init__(self) -> None:
        self._next: Optional[int] = None  # None: of this process no line has come, or its lines have no numbers
        self._headers: Set[str] = set()
        self._again = False  # in the lines of a process that stand in the file a second time
        self.doubled = self.lost = self.bad = 0
        self.gap = False  # lines are lost before the newest one

    def takes(self, line: Mapping[str, Any]) -> bool:
        """Tell whether a line is the next one; others are left out."""
        self.gap = False
        number = line.get(NUMBER)
        if "version" in line:
            header = json.dumps(line, sort_keys=True)
            self._again = isinstance(number, int) and header in self._headers
            self._headers.add(header)
            self._next = number if isinstance(number, int) and not self._again else None
        if self._again:
            self.doubled += 1
            return False
        if self._next is None or not isinstance(number, int):
            self.bad += self._next is not None
            return self._next is None
        if number < self._next:
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
    order = LineOrder()
    yield from (line for line in each_json_line(path) if order.takes(line))
    notes.update(dict.fromkeys(order.note(path)))
