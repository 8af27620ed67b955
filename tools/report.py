"""Report a run: table, summary.json and HTML page; of several runs, an index."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Tuple

from cbt_plugins.journal import write_whole
from cbt_plugins.results.archive import find_runs
from cbt_plugins.results.source import NotThere, Unreadable, reading

from .command import OK, UNUSABLE, CommandError, is_optional, missing, say, warn

Runs = List[Tuple[Path, Mapping[str, Any]]]  # directories and summaries


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = "Exit status: 0 every run is complete; 2 wrong use; 4 a run is incomplete or unreadable."
    parser.add_argument("archive", type=Path, help="an archive (all of its runs), or a run's id-... directory")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write only the summary, into this file")
    parser.add_argument("--html", type=Path, metavar="FILE", help="write only the page, into this file")
    parser.add_argument("--plots", type=Path, metavar="DIR", help="write plots (SVG and PNG) into this directory")
    parser.add_argument("--figures", type=_renamed, help=argparse.SUPPRESS)
    parser.add_argument("--text", action="store_true", help="print the table only, write nothing")
    parser.add_argument(
        "--nic", type=_link, metavar="SPEED", help="speed of every node's interface, such as 25Gbit: network ceiling"
    )


def run(args: argparse.Namespace) -> int:
    """Report every run that can be read; returns the exit status."""
    from cbt_plugins.report.terminal import render
    from cbt_plugins.results.summary_file import summarize

    try:
        runs = find_runs(args.archive)
    except NotThere:
        raise
    except Unreadable as e:
        try:
            return _imported(args.archive)
        except Unreadable:
            if args.archive.is_file():
                raise
            raise e from None
    if (args.json or args.html) and len(runs) > 1:
        raise CommandError(f"{args.archive} has {len(runs)} runs: --json and --html need the directory of one run")
    status = OK
    several: Runs = []
    for number, path in enumerate(runs):
        if number:
            print()
        if not (path / "plan.json").exists() and not (path / "phases").is_dir():
            try:  # CBT's own benchmarks leave such directories, too
                status = max(status, _imported(path))
                continue
            except Unreadable:
                pass
        try:
            with reading(path):
                summary = summarize(path)
                network = _ceilings(path, summary, args)
                text = render(summary, network)
        except Unreadable as e:
            status = say("Error", str(e), UNUSABLE)
            continue
        print(text, end="", flush=True)
        if not summary["usable"]:
            status = UNUSABLE
        if args.text:
            continue
        try:
            _write(summary, network, path, args, f"{path.name}-" if len(runs) > 1 else "")
        except OSError as e:
            raise _cannot_write(e, path) from e
        except Unreadable as e:
            status = say("Error", str(e), UNUSABLE)
        if len(runs) > 1:
            several.append((path, _without_series(summary)))
    if several:
        try:
            _write_overview(several, args)
        except OSError as e:
            raise _cannot_write(e, args.archive) from e
        except Unreadable as e:
            status = say("Error", str(e), UNUSABLE)
    return status


def _link(text: str) -> float:
    from cbt_plugins.config.units import parse_link

    try:
        return parse_link(text)
    except ValueError as e:
        raise argparse.ArgumentTypeError(str(e)) from e


def _renamed(_: str) -> None:
    raise argparse.ArgumentTypeError("the option was renamed: use --plots DIR")


def _cannot_write(error: OSError, path: Path) -> CommandError:
    return CommandError(f"cannot write {error.filename or path}: {error.strerror or error}; --text writes nothing")


def _ceilings(path: Path, summary: Mapping[str, Any], args: argparse.Namespace) -> Optional[Dict[str, Any]]:
    """Return the network's ceilings where they are known; warn when they were asked for and are not."""
    from cbt_plugins.results.ceilings import Unknown, ceilings

    try:
        return ceilings(path, summary, args.nic)
    except Unknown as e:
        if args.nic:
            warn(f"{path.name}: no network ceiling: {e}")
        return None


def _write(
    summary: Mapping[str, Any],
    network: Optional[Mapping[str, Any]],
    path: Path,
    args: argparse.Namespace,
    prefix: str,
) -> None:
    """Write the files that the options name; without any, summary, page and collected numbers next to the run."""
    from cbt_plugins.results.summary_file import FILE, write_summary

    only = args.json or args.html or args.plots
    if args.json or not only:
        write_summary(summary, args.json or path / FILE)
    if not only:
        from cbt_plugins.report.export.formats import write_collected

        write_collected(summary, path)
    if args.html or not only:
        try:
            from cbt_plugins.report.page import run_page
        except ImportError as e:
            _no_page("report.html", e)
        else:
            with reading(path):
                page = run_page(summary, path, network)
            write_whole(args.html or path / "report.html", page)
    if args.plots:
        from cbt_plugins.report.plots import of_run

        args.plots.mkdir(parents=True, exist_ok=True)
        of_run(summary, args.plots, prefix)


def _write_overview(runs: Runs, args: argparse.Namespace) -> None:
    """Write the page or the plots of several runs."""
    if args.plots:
        from cbt_plugins.report.plots import of_sweeps
        from cbt_plugins.report.sweep import of_runs

        with reading(args.archive):
            found = of_runs(runs)
        of_sweeps(found, args.plots)
        return
    try:
        from cbt_plugins.report.page import INDEX, index_page
    except ImportError as e:
        _no_page("index.html", e)
        return
    with reading(args.archive):
        page = index_page(runs, args.archive)
    write_whole(args.archive / INDEX, page)
    print(f"\n{len(runs)} runs: {args.archive / INDEX}")


def _without_series(summary: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what the overview needs of a run: an archive may have hundreds."""
    phases = [{**phase, "series": None, "jobs": [], "under_way": None} for phase in summary["phases"]]
    return {**summary, "phases": phases}


def _no_page(name: str, error: ImportError) -> None:
    if not is_optional(error):
        raise error
    warn(f"no {name}: {missing(error)}")


def _imported(path: Path) -> int:
    """Print the results of another program; returns the exit status. Raises Unreadable when there are none."""
    from cbt_plugins.report.terminal import render_imported

    text, complete = render_imported(path)
    print(text, end="", flush=True)
    return OK if complete else UNUSABLE
