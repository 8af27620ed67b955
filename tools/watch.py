"""Watch a run in progress: in the terminal, as JSON, or in a browser."""

from __future__ import annotations

import argparse
import contextlib
import errno
import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Mapping, Optional, Protocol, Set, Tuple

from cbt_plugins.config.units import parse_listen
from cbt_plugins.exit_status import FAILED, OK, UNUSABLE
from cbt_plugins.formatting.screen import discard, obeys_controls, redraw
from cbt_plugins.polling import wait_until
from cbt_plugins.results.archive import find_runs
from cbt_plugins.results.result_file import Unreadable

from .command import CommandError, explain

if TYPE_CHECKING:
    from cbt_plugins.report.live_page import LivePage
    from cbt_plugins.report.live_server import LiveServer
    from cbt_plugins.results.live_run import LiveRun

#: seconds between two looks, and between two lines without a terminal
EVERY, PLAIN_EVERY = 1.0, 10.0
#: default address of `--serve`
PORT = 7878
#: seconds until an address is free that the page of the run before has (live_server.LiveServer.let_go)
FREED = 15.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    examples = ("cbt-tools watch archive", "cbt-tools watch archive --json", "cbt-tools watch archive --serve")
    statuses = {FAILED: "the run has failed", UNUSABLE: "the run was interrupted, or its results are unusable"}
    explain(parser, examples, statuses)
    parser.add_argument("archive", type=Path, help="an archive (its newest run), or a run's id-... directory")
    parser.add_argument("--json", action="store_true", help="print a line of JSON each second (docs/LIVE.md)")
    parser.add_argument(
        "--serve",
        nargs="?",
        const=str(PORT),
        type=_address,
        metavar="[HOST:]PORT",
        help=f"serve the report's page until Ctrl-C (default: 127.0.0.1:{PORT}; another host: a token in the URL)",
    )
    parser.add_argument("--until-end", action="store_true", help="with --serve: stop when the run has ended")


def _address(text: str) -> Tuple[str, int]:
    try:
        return parse_listen(text)
    except ValueError as e:
        raise argparse.ArgumentTypeError(str(e)) from e


def run(args: argparse.Namespace) -> int:
    """Show the run until it ends, and then its result; return the exit status."""
    from cbt_plugins.results.live_run import LiveRun

    try:
        live = LiveRun(newest_run(args.archive))
    except (OSError, ValueError) as e:
        raise Unreadable(f"{args.archive}: no run of cbt-plugins with a plan in it: {e}") from e
    view: View = _JsonView() if args.json else TextView()
    if args.serve is None:
        return _follow(live, view)
    from cbt_plugins.report.live_page import LivePage

    page = LivePage(live)
    page.look()
    host, port = args.serve
    with contextlib.closing(_server(page, host, port, FREED if args.until_end else 0.0)) as server:
        print(f"live: {server.url}", file=sys.stderr, flush=True)
        if args.until_end:  # a reader of the run's messages must not wait for us
            discard(sys.stderr)
        status = _follow(live, view, page)
        if args.until_end:
            server.let_go()
            return status
        while True:
            time.sleep(EVERY)
            page.look()


def _server(page: LivePage, host: str, port: int, patience: float) -> LiveServer:
    """Return the server of a page; for so many seconds the address may still be that of the run before."""
    from cbt_plugins.report.live_server import LiveServer

    def listening() -> Optional[LiveServer]:
        try:
            return LiveServer(page, host, port)
        except OSError as e:
            if e.errno != errno.EADDRINUSE:
                raise refused(e.strerror or str(e)) from e
            return None

    def refused(why: str) -> CommandError:
        return CommandError(f"cannot listen on {host}:{port}: {why}: give another --serve PORT")

    server = wait_until(listening, patience, EVERY, on_late=lambda _: refused(os.strerror(errno.EADDRINUSE)))
    assert server is not None
    return server


def _follow(live: LiveRun, view: View, page: Optional[LivePage] = None) -> int:
    """Show the run until it ends, then the result; return the exit status."""
    while True:
        begun = time.monotonic()
        moment, summary = _look(live, page)
        ended = has_ended(moment)
        view.show(moment, summary, ended)
        if ended:
            return view.end(moment, live)
        time.sleep(max(0.0, begun + EVERY - time.monotonic()))


def _look(live: LiveRun, page: Optional[LivePage]) -> Tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Return the moment and the summary so far."""
    if page is not None:
        page.look()
        return page.moment, page.summary
    with live.sparing.look():
        return live.moment(), live.summary()


def newest_run(archive: Path) -> Path:
    """Return the run of an archive whose events.jsonl was written last. Raises Unreadable."""

    def written(path: Path) -> float:
        try:
            return (path / "events.jsonl").stat().st_mtime
        except OSError:
            return 0.0

    return max(find_runs(archive), key=written)


def has_ended(moment: Mapping[str, Any]) -> bool:
    from cbt_plugins.results.live_run import GOING_ON

    return bool(moment["state"] != GOING_ON)


def _status(moment: Mapping[str, Any], summary: Mapping[str, Any]) -> int:
    from cbt_plugins.results import live_run

    if moment["state"] == live_run.COMPLETE:
        return OK if summary["usable"] else UNUSABLE
    return FAILED if moment["state"] == live_run.FAILED else UNUSABLE


class View(Protocol):
    """A form in which a run is shown."""

    def show(self, moment: Mapping[str, Any], summary: Mapping[str, Any], ended: bool) -> None:
        """Show a moment."""

    def end(self, moment: Mapping[str, Any], live: LiveRun) -> int:
        """Show the result; return the exit status."""


class _JsonView:
    """Shows a line of JSON at each look."""

    def show(self, moment: Mapping[str, Any], summary: Mapping[str, Any], ended: bool) -> None:
        from cbt_plugins.report.live_terminal import data

        print(json.dumps(data(moment, summary)), flush=True)

    def end(self, moment: Mapping[str, Any], live: LiveRun) -> int:
        return _status(moment, live.summary())


class TextView:
    """Lines of a terminal, redrawn at each look; without a terminal, a line now and then, and news at once."""

    def __init__(self) -> None:
        self._terminal = obeys_controls(sys.stdout)
        self._drawn = 0
        self._next = 0.0
        self._shown_notes: Optional[Set[str]] = None

    def show(self, moment: Mapping[str, Any], summary: Mapping[str, Any], ended: bool) -> None:
        from cbt_plugins.report.live_terminal import moment_lines, notes

        lines, noted = moment_lines(moment), notes(moment, summary)
        if self._terminal:
            self._drawn = redraw(sys.stdout, [*lines, *noted], self._drawn)
            return
        new = [line for line in noted if line not in (self._shown_notes or ())]
        self._shown_notes = {*(self._shown_notes or ()), *noted}
        if time.monotonic() >= self._next or ended:
            self._next = time.monotonic() + PLAIN_EVERY
            new = [*lines, *new]
        for line in new:
            print(line, flush=True)


    def end(self, moment: Mapping[str, Any], live: LiveRun) -> int:
        """Print the result as `cbt-tools report --format text` does."""
        from cbt_plugins.formatting.formats.terminal import Terminal
        from cbt_plugins.formatting.screen import paper_of, write_coloured
        from cbt_plugins.report import result_text
        from cbt_plugins.report.sentence import of_run
        from cbt_plugins.results.configuration import configuration

        summary = live.summary()
        sentences = of_run(summary, configuration(summary, live.path))
        print()
        write_coloured(
            sys.stdout, Terminal(paper_of(sys.stdout)).text(result_text.blocks(summary, None, sentences), False)
        )
        return _status(moment, summary)
