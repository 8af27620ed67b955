"""`cbt-tools report ARCHIVE`: summary.json, a table and report.html from what a run left."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any, Mapping

from cbt_plugins.analysis.archive import find_runs
from cbt_plugins.analysis.source import Unreadable

OK, USAGE, UNUSABLE = 0, 2, 4
_INSTALL = "pip install 'cbt-plugins[report]'"


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
    parser.add_argument("--text", action="store_true", help="print the table only, write nothing")


def run(args: argparse.Namespace) -> int:
    """0: every run is whole; 4: one is not, or there is none; what can be read is reported all the same."""
    try:
        from cbt_plugins.analysis.summary import summarize
        from cbt_plugins.report.terminal import render
    except ImportError as e:
        if e.name != "numpy":
            raise
        return _complain(f"it needs the Python package numpy ({_INSTALL})", USAGE)
    try:
        runs = find_runs(args.archive)
    except Unreadable as e:
        return _complain(str(e), UNUSABLE)
    if (args.json or args.html) and len(runs) > 1:
        return _complain(
            f"{args.archive} has {len(runs)} runs: --json and --html need one, give its directory", USAGE
        )
    status = OK
    for number, path in enumerate(runs):
        if number:
            print()
        summary = summarize(path)
        print(render(summary), end="", flush=True)
        if not summary["usable"]:
            status = UNUSABLE
        if not args.text:
            try:
                _write(summary, path, args)
            except OSError as e:
                return _complain(f"{e.filename or path}: {e.strerror or e} (--text only prints)", USAGE)
    return status


def _write(summary: Mapping[str, Any], path: Path, args: argparse.Namespace) -> None:
    from cbt_plugins.analysis.summary import FILE, write_summary, write_text

    only = args.json or args.html  # what is asked for by name is all that is written
    if args.json or not only:
        write_summary(summary, args.json or path / FILE)
    if not only:
        from cbt_plugins.exports import collected

        collected.write(summary, path)
    if args.html or not only:
        try:
            from cbt_plugins.report.html import page
        except ImportError as e:
            if e.name not in ("jinja2", "markupsafe"):
                raise
            _complain(f"no report.html: it needs the Python package Jinja2 ({_INSTALL})", OK)
            return
        write_text(args.html or path / "report.html", page(summary, path))


def _complain(text: str, status: int) -> int:
    print(f"cbt-tools report: {text}", file=sys.stderr)
    return status
