"""`cbt-tools history ARCHIVE...`: metrics through many runs in the order of time, and where their level changed."""

from __future__ import annotations

import argparse
from pathlib import Path

from . import compare

OK, USAGE, UNUSABLE = 0, 2, 4


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("archives", nargs="+", type=Path, metavar="ARCHIVE", help="in any order")
    compare.add_choice(parser)
    parser.add_argument("--alpha", default="0.05", metavar="P", help="chance of a false change among all tracks (0.05)")
    parser.add_argument("--seed", type=int, default=0, help="of the permutations (0)")
    parser.add_argument("--format", choices=compare.FORMATS, default="text")


def run(args: argparse.Namespace) -> int:
    """0: done, whatever was found; 2: wrong use; 4: a run is not usable and left out, or none can be read."""
    try:
        from cbt_plugins.compare import history, layout
        from cbt_plugins.compare.sides import sides
        from cbt_plugins.results.source import Unreadable
    except ImportError as e:
        return compare.missing("history", e)
    try:
        (side,) = sides([args.archives])
        alpha = compare.share("--alpha", args.alpha)
        found = history.histories(side.runs, compare.choice(args), alpha, args.seed)
    except Unreadable as e:
        return compare.complain("history", str(e), UNUSABLE)
    except ValueError as e:
        return compare.complain("history", str(e), USAGE)
    if args.format == "csv":
        print(history.to_csv(found), end="")
    elif args.format == "json":
        print(history.to_json(found), end="")
    else:
        draw = layout.markdown if args.format == "markdown" else layout.text
        print(draw(history.blocks(found)), end="")
    return OK if all(its.usable for its in side.runs) else UNUSABLE
