"""`cbt-tools report ARCHIVE`: summary.json, a table and report.html from what a run left, index.html of several."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Tuple

from cbt_plugins.journal import write_whole
from cbt_plugins.results.archive import find_runs
from cbt_plugins.results.ceilings import Unknown, ceilings
from cbt_plugins.results.source import Unreadable

Runs = List[Tuple[Path, Mapping[str, Any]]]  # directories and summaries

OK, USAGE, UNUSABLE = 0, 2, 4
_INSTALL = "pip install 'cbt-plugins[report]'"
_INSTALL_PLOTS = "pip install 'cbt-plugins[plots]'"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "archive", type=Path, help="an archive (all of its runs), or one run's id-... directory"
    )
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="write the summary here, and not into the run's directory"
    )
    parser.add_argument(
        "--html", type=Path, metavar="FILE", help="write the page here, and not into the run's directory"
    )
    parser.add_argument(
        "--figures", type=Path, metavar="DIR", help="write figures for a post (SVG and PNG) into this directory"
    )
    parser.add_argument("--text", action="store_true", help="print the table only, write nothing")
    parser.add_argument(
        "--nic", type=_link, metavar="SPEED", help="every node's interface, such as 25Gbit: for the network's ceiling"
    )


def run(args: argparse.Namespace) -> int:
    """0: every run is whole; 4: one is not, or there is none; what can be read is reported all the same."""
    try:
        from cbt_plugins.report.terminal import render
        from cbt_plugins.results.summary import summarize
    except ImportError as e:
        if e.name != "numpy":
            raise
        return _complain(f"it needs the Python package numpy ({_INSTALL})", USAGE)
    try:
        runs = find_runs(args.archive)
    except Unreadable as e:
        status = _foreign(args.archive)
        return _complain(str(e), UNUSABLE) if status is None else status
    if (args.json or args.html) and len(runs) > 1:
        return _complain(
            f"{args.archive} has {len(runs)} runs: --json and --html need one, give its directory", USAGE
        )
    status = OK
    several: Runs = []
    for number, path in enumerate(runs):
        if number:
            print()
        if not (path / "plan.json").exists() and not (path / "phases").is_dir():
            of_others = _foreign(path)  # CBT's own benchmarks lie in the archive in the same way
            if of_others is not None:
                status = max(status, of_others)
                continue
        summary = summarize(path)
        network = _ceilings(path, summary, args)
        print(render(summary, network), end="", flush=True)
        if not summary["usable"]:
            status = UNUSABLE
        if not args.text:
            try:
                failed = _write(summary, network, path, args, f"{path.name}-" if len(runs) > 1 else "")
            except OSError as e:
                return _complain(f"{e.filename or path}: {e.strerror or e} (--text only prints)", USAGE)
            if failed:
                return failed
        if len(runs) > 1 and not args.text:
            several.append((path, _without_series(summary)))
    if several:
        try:
            _write_together(several, args)
        except OSError as e:
            return _complain(f"{e.filename or args.archive}: {e.strerror or e} (--text only prints)", USAGE)
    return status


def _link(text: str) -> float:
    from cbt_plugins.config.units import parse_link

    try:
        return parse_link(text)
    except ValueError as e:
        raise argparse.ArgumentTypeError(str(e)) from e


def _ceilings(path: Path, summary: Mapping[str, Any], args: argparse.Namespace) -> Optional[Dict[str, Any]]:
    """What the network allows, where it is known; who asks for it is told why it is not."""
    try:
        return ceilings(path, summary, args.nic)
    except Unknown as e:
        if args.nic:
            _complain(f"{path.name}: no network ceiling: {e}", OK)
        return None


def _write(
    summary: Mapping[str, Any],
    network: Optional[Mapping[str, Any]],
    path: Path,
    args: argparse.Namespace,
    prefix: str,
) -> int:
    """What was asked for by name, or else everything that lies beside the run."""
    from cbt_plugins.results.summary import FILE, write_summary

    only = args.json or args.html or args.figures
    if args.json or not only:
        write_summary(summary, args.json or path / FILE)
    if not only:
        from cbt_plugins.report.export import collected

        collected.write(summary, path)
    if args.html or not only:
        try:
            from cbt_plugins.report.html import page
        except ImportError as e:
            _without_jinja("report.html", e)
        else:
            write_whole(args.html or path / "report.html", page(summary, path, network))
    if args.figures:
        try:
            from cbt_plugins.report.plots import of_run
        except ImportError as e:
            if (e.name or "").split(".")[0] != "matplotlib":
                raise
            return _complain(f"no figures: they need the Python package matplotlib ({_INSTALL_PLOTS})", USAGE)
        args.figures.mkdir(parents=True, exist_ok=True)
        of_run(summary, args.figures, prefix)
    return OK


def _write_together(runs: Runs, args: argparse.Namespace) -> None:
    """What there is of several runs."""

    if args.figures:
        from cbt_plugins.report.plots import of_sweeps
        from cbt_plugins.report.sweep import of_runs

        of_sweeps(of_runs(runs), args.figures)
        return
    try:
        from cbt_plugins.report.index import FILE, page
    except ImportError as e:
        _without_jinja("index.html", e)
        return
    write_whole(args.archive / FILE, page(runs, args.archive))
    print(f"\n{len(runs)} runs: {args.archive / FILE}")


def _without_series(summary: Mapping[str, Any]) -> Mapping[str, Any]:
    """All that is needed of a run beside others; an archive may have hundreds."""
    phases = [{**phase, "series": None, "jobs": [], "under_way": None} for phase in summary["phases"]]
    return {**summary, "phases": phases}


def _without_jinja(name: str, error: ImportError) -> None:
    if error.name not in ("jinja2", "markupsafe"):
        raise error
    _complain(f"no {name}: it needs the Python package Jinja2 ({_INSTALL})", OK)


def _foreign(path: Path) -> Optional[int]:
    """Print the results of another program; None when there are none."""
    from cbt_plugins.report.imported import render as render_foreign

    try:
        text, whole = render_foreign(path)
    except Unreadable:
        return None
    print(text, end="", flush=True)
    return OK if whole else UNUSABLE


def _complain(text: str, status: int) -> int:
    print(f"cbt-tools report: {text}", file=sys.stderr)
    return status
