"""Live page of a run in progress: the report's page, made again and again, and the differences for browsers.

The time between two pages is a multiple of the processor time of a page (results.live_run.Sparing).
"""

from __future__ import annotations

import re
import threading
import time
from collections import deque
from dataclasses import dataclass
from typing import Any, Deque, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

from cbt_plugins.report.chart_data import chart_data
from cbt_plugins.report.live_terminal import moment_lines, notes
from cbt_plugins.report.page import LivePart, run_page
from cbt_plugins.results.live_run import GOING_ON, LiveRun
from cbt_plugins.results.nodes.network_ceilings import Unknown, network_ceilings
from cbt_plugins.results.result_file import reading
from cbt_plugins.results.summary_file import summarize

#: differences that are kept for browsers whose connection was cut
_KEPT = 100
#: the parts of a page, each of which is replaced as a whole
_PART = re.compile(r"<(header|nav|section)\b([^>]*)>.*?</\1>", re.DOTALL)
_ID = re.compile(r'\bid="([^"]*)"')

#: a change of the data of the charts: where, from which place of a list on (None: all of it), and what is there now
Change = Tuple[List[Any], Optional[int], Any]


def parts_of(page: str) -> Dict[str, str]:
    """Return the parts of a page by their ids, or their elements: the header, the contents, the sections."""
    parts = {}
    for match in _PART.finditer(page):
        identity = _ID.search(match[2])
        parts[identity[1] if identity else match[1]] = match[0]
    return parts


def changes(old: Any, new: Any, path: Sequence[Any] = ()) -> Iterator[Change]:
    """Yield the changes that make the new data of the old: of a series that has grown its new points."""
    if old == new:
        return
    if isinstance(old, dict) and isinstance(new, dict) and old.keys() == new.keys():
        for key in new:
            yield from changes(old[key], new[key], (*path, key))
    elif isinstance(old, list) and isinstance(new, list):
        if all(isinstance(value, dict) for value in (*old, *new)) and len(old) <= len(new):
            for i, value in enumerate(old):
                yield from changes(value, new[i], (*path, i))
            if len(new) > len(old):
                yield [*path], len(old), new[len(old) :]
            return
        same = next((i for i, pair in enumerate(zip(old, new)) if pair[0] != pair[1]), min(len(old), len(new)))
        yield [*path], same, new[same:]
    else:
        yield [*path], None, new


@dataclass(frozen=True)
class Update:
    """An update for browsers. `version` None: it need not be sent again after a lost connection."""

    kind: str  # moment | page | whole
    data: Any
    version: Optional[int] = None


class LivePage:
    """The page of a run; one thread calls `look` each second, other threads wait for updates."""

    def __init__(self, run: LiveRun) -> None:
        self.run = run
        self.html = ""
        self.moment: Mapping[str, Any] = {}
        self.summary: Mapping[str, Any] = {}
        # never one that another process, which a browser may know, has given
        self.version = time.time_ns() // 1_000_000
        self._parts: Dict[str, str] = {}
        self._data: Any = None
        self._updates: Deque[Update] = deque(maxlen=_KEPT)
        #: of the latest look: the lines on top, the faults and undos that are later than all charts, and whether the
        #: phase that runs has charts
        self._now: Mapping[str, Any] = {}
        self._looks = 0
        self._changed = threading.Condition()
        self._ended_as: Optional[Tuple[str, Tuple[str, ...]]] = None

    @property
    def ended(self) -> bool:
        """Whether the page is the report of a run that has ended."""
        return self._ended_as is not None

    def look(self) -> None:
        """Look at the run, and make its page anew when that is due. Raises Unreadable, OSError."""
        with reading(self.run.path), self.run.sparing.look():
            self.moment = self.run.moment()
            if self.moment["state"] == GOING_ON:
                self._follow()
            else:
                self._end()
        with self._changed:
            self._looks += 1
            self._changed.notify_all()

    def _follow(self) -> None:
        was_ended, self._ended_as = self.ended, None
        self.summary = self.run.summary()
        if was_ended or self.run.sparing.due:
            self._make(was_ended)
        with self._changed:
            self._now = self._of_this_moment(self._data)

    def _of_this_moment(self, charts: Mapping[str, Any]) -> Dict[str, Any]:
        lines = [*moment_lines(self.moment), *notes(self.moment, self.summary)]
        phases = charts["phases"]
        marks = self.run.turns_after(max((phase["window"]["end"] or 0.0 for phase in phases), default=0.0))
        in_phase = self.moment["phase"] in [phase["name"] for phase in phases[-1:]]
        return {"lines": lines, "marks": marks, "in_phase": in_phase}

    def _make(self, anew: bool) -> None:
        data = chart_data(self.summary)
        now = self._of_this_moment(data)
        version = self.version + 1
        html = run_page(self.summary, self.run.path, live=LivePart(version, now["lines"]), charts=data)
        parts = parts_of(html)
        changed = {key: part for key, part in parts.items() if self._parts.get(key) != part}
        update = Update("whole", {}, version)
        if self._data is not None and not anew:
            difference = {"order": list(parts), "changed": changed, "data": list(changes(self._data, data))}
            if not changed and not difference["data"]:
                return
            update = Update("page", difference, version)
        with self._changed:
            self.html, self.version, self._parts, self._data, self._now = html, version, parts, data, now
            self._updates.append(update)

    def _end(self) -> None:
        """Make the page that `cbt-tools report` writes; again only when something has changed since."""
        ended = tuple(sorted(path.parent.name for path in self.run.path.glob("phases/*/phase.json")))
        if self._ended_as == (self.moment["state"], ended):
            return
        self.summary = self.run.summary()
        html = report_page(self.run)
        with self._changed:
            self.html, self.version, self._data = html, self.version + 1, None
            self._updates.append(Update("whole", {}, self.version))
            self._ended_as = self.moment["state"], ended

    def updates(self, since: int, timeout: float = 30.0) -> Iterator[Update]:
        """Yield the updates since a version of the page, and then those that come; ends with the timeout."""
        looks = -1
        while True:
            with self._changed:
                # one wait is enough: each look ends it
                if (self._looks, self.version) == (looks, since) and not self._changed.wait(timeout):
                    return
                looks = self._looks
                missed = [update for update in self._updates if update.version is not None and update.version > since]
                # without the next one there is no difference to go by
                is_next = since == self.version or (missed and missed[0].version == since + 1)
                since, now = self.version, self._now
            if not is_next:
                yield Update("whole", {}, since)
            else:
                yield from missed
            yield Update("moment", now)


def report_page(run: LiveRun) -> str:
    """Return the page that `cbt-tools report` makes of the run as it is."""
    summary = summarize(run.path)
    try:
        network = network_ceilings(run.path, summary, None)
    except Unknown:
        network = None
    return run_page(summary, run.path, network)
