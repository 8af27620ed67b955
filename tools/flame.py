"""Draw flame graphs of Ceph's daemons, and their difference."""

from __future__ import annotations

import argparse
import contextlib
from pathlib import Path
from typing import Iterator, Sequence

from cbt_plugins.exit_status import OK, UNUSABLE
from cbt_plugins.results.result_file import Unreadable

from .command import CommandError, explain, refuse_twice, warn
from .format_option import HTML, MD, TEXT, add_formats, format_of, print_results

FOLDED = "folded"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    examples = (
        "cbt-tools flame archive -o flame.html",
        "cbt-tools flame reef1 reef2 --against pacific1 pacific2 -o difference.html",
        "cbt-tools flame archive --format folded",
    )
    explain(parser, examples, {UNUSABLE: ""})
    parser.add_argument(
        "archives", nargs="+", type=Path, metavar="ARCHIVE", help="archives of runs with the monitor `stacks`"
    )
    parser.add_argument(
        "--against", nargs="+", type=Path, metavar="ARCHIVE", help="archives of the base: draw the difference to it"
    )
    parser.add_argument("--phase", metavar="NAME", help="phase to draw (default: the first measurement with stacks)")
    add_formats(parser, TEXT, MD, FOLDED, HTML, text="for people, Markdown, folded stacks for other programs, a page")


def run(args: argparse.Namespace) -> int:
    """Print the stacks of a phase; returns the exit status."""
    from cbt_plugins.report import flames
    from cbt_plugins.results.stacks import profile_of

    if args.against and format_of(args) == FOLDED:
        raise CommandError("--format folded cannot show a difference: remove --against")
    refuse_twice(_runs(args.archives))
    refuse_twice(_runs(args.against or ()))
    new = profile_of(args.archives, args.phase)
    base = profile_of(args.against, args.phase or new.phase) if args.against else None
    contents = {
        TEXT: lambda: flames.blocks(new, base),
        FOLDED: lambda: "".join(f"{line}\n" for line in flames.folded(new)),
        HTML: lambda: flames.page(new, base),
    }
    print_results(args, contents)
    left_out = [*new.left_out, *(base.left_out if base else ())]
    for text in left_out:
        warn(text)
    return UNUSABLE if left_out else OK


def _runs(archives: Sequence[Path]) -> Iterator[Path]:
    """Yield the runs of archives; none of an archive that cannot be read, which `profile_of` names."""
    from cbt_plugins.results.archive import find_runs

    for archive in archives:
        with contextlib.suppress(Unreadable):
            yield from find_runs(archive)
