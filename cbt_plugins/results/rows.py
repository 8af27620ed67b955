"""Request rows without aggregates: cbt-rows reduces them, as it does beside a load generator."""

from __future__ import annotations

import subprocess
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Iterator, List, Mapping, NamedTuple, Optional

from cbt_plugins.programs import own_program
from cbt_plugins.results.aggregates import Frame, frames, places
from cbt_plugins.results.source import Unreadable

#: exit status of cbt-rows when a part of its input could not be read
_UNREAD = 4


class NotBuilt(Unreadable):
    """cbt-rows is missing here: no rows at all can be read."""


class Client(NamedTuple):
    """The rows of one of warp's clients ("" where they name none)."""

    name: str
    frames: List[Frame]


class Reduced(NamedTuple):
    """What a rows file holds."""

    clients: List[Client]
    bad: int  # lines that are no rows
    torn: Optional[str]  # why the end is missing
    command: str  # that made them, where warp says so; "" otherwise


def frames_of_rows(path: Path, offset: float, block: int) -> Iterator[Optional[Frame]]:
    """Yield the frames of one rows file; the last one is an end frame. Raises Unreadable.

    `offset` is the clock of the rows' node minus the head's, in seconds; `block` the resolution in seconds.
    """
    with _reduced(path, f"--offset={offset!r}", f"--block={block}") as made:
        yield from frames(made, places(made)[0])


def by_client(path: Path) -> Reduced:
    """Return what a rows file holds, by the second and by warp's clients, whose clocks are taken to agree.

    Raises Unreadable.
    """
    every = [frame for frame in frames_of_rows(path, 0.0, 1) if frame]
    totals: Mapping[str, Any] = every[-1].totals[0]
    names = totals.get("clients") or [""]
    clients = []
    for name in names if len(names) > 1 else ():
        with _reduced(path, f"--client={name}") as made:
            clients.append(Client(name, _counted(frames(made, places(made)[0]))))
    clients = clients or [Client(names[0], _counted(every))]
    found = [client for client in clients if client.frames]
    return Reduced(found, int(totals["bad"]), totals["torn"], totals.get("command", ""))


def _counted(found: Any) -> List[Frame]:
    """Those frames that count requests."""
    return [frame for frame in found if frame and not frame.ends]


@contextmanager
def _reduced(path: Path, *options: str) -> Iterator[Path]:
    """Have cbt-rows make an aggregates file of a rows file, for as long as it is used. Raises Unreadable."""
    program = own_program("cbt-rows")
    if program is None:
        raise NotBuilt("cbt-rows is not built: run `cbt-tools build cbt-rows`")
    with tempfile.TemporaryDirectory(prefix="cbt-rows-") as scratch:
        made = Path(scratch) / "rows.aggregates"
        argv = [str(program), "reduce", *options, "-o", str(made), str(path)]
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        if done.returncode:
            lines = done.stderr.decode(errors="replace").strip().splitlines()
            why = lines[0] if lines else f"exit status {done.returncode}"
            text = why.replace(f"cbt-rows: cannot read {path}: ", "").replace(f"open {path}: ", "")
            raise Unreadable(f"{path}: {text}" if done.returncode == _UNREAD else f"{path}: {why}")
        yield made
