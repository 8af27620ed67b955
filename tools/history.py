"""Show metrics over many runs, and where their level changed."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Sequence

from . import compare
from .command import OK, UNUSABLE, CommandError, explain
from .forms import CSV, HTML, JSON, MD, TEXT, add_forms, put

if TYPE_CHECKING:
    from cbt_plugins.compare.history import History


def add_arguments(parser: argparse.ArgumentParser) -> None:
    examples = ("cbt-tools history night1 night2 night3", "cbt-tools history archive --metric p99_ms --format csv")
    explain(parser, examples, {UNUSABLE: ""})
    parser.add_argument("archives", nargs="+", type=Path, metavar="ARCHIVE", help="archives, in any order")
    compare.add_choice(parser)
    parser.add_argument(
        "--alarms", type=float, metavar="N", help="false alarms a year, if looked at after each run (default: 1)"
    )
    parser.add_argument("--alpha", metavar="P", help="instead: the false alarm rate of this one look")
    parser.add_argument("--seed", type=int, default=0, help="seed of the permutations (default: 0)")
    add_forms(parser, TEXT, JSON, CSV, MD, HTML)


def run(args: argparse.Namespace) -> int:
    """Find the changes and print them; returns the exit status."""
    from cbt_plugins.compare import history

    with compare.errors():
        (side,) = compare.read_sides([args.archives])
        if args.alarms is not None and (args.alpha or not args.alarms > 0):
            raise CommandError("give a number of --alarms above 0, or --alpha")
        alpha = compare.share("--alpha", args.alpha) if args.alpha else None
        budget = history.AlarmBudget(args.alarms or 1.0, alpha)
        histories = history.histories(side.runs, compare.choice(args), budget, args.seed)
    forms = {
        TEXT: lambda: history.blocks(histories),
        JSON: lambda: history.data(histories),
        CSV: lambda: history.table(histories),
        HTML: lambda: _page(histories),
    }
    put(args, forms)
    return OK if all(run.usable for run in side.runs) and not side.unreadable else UNUSABLE


def _page(histories: Sequence[History]) -> str:
    from cbt_plugins.report.blocks import history_page

    return history_page(histories)
