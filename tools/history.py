"""Show metrics over many runs, and the runs at which their level changed."""

from __future__ import annotations

import argparse
import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Collection, Dict, Optional, Sequence

from cbt_plugins.exit_status import OK, UNUSABLE

from . import compare
from .command import CommandError, explain, say, warn
from .format_option import CSV, HTML, JSON, MD, TEXT, add_formats, is_file, print_results

if TYPE_CHECKING:
    from cbt_plugins.compare.history import AlarmBudget, History
    from cbt_plugins.compare.table import Choice
    from cbt_plugins.results.run_record import Key, RunRecord

#: a folder of pages
SITE = "site"

#: expected false alarms per year
_ALARMS = 1.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    examples = (
        "cbt-tools history night1 night2 night3",
        "cbt-tools history archive --metric p99_ms --format csv",
        "cbt-tools history nights/* -o site/",
    )
    explain(parser, examples, {UNUSABLE: ""})
    parser.add_argument("archives", nargs="+", type=Path, metavar="ARCHIVE", help="archives, in any order")
    compare.add_choice(parser)
    parser.add_argument(
        "--alarms", type=float, metavar="N",
        help=f"expected false alarms per year, if this is run after each run (default: {_ALARMS:g})",
    )
    parser.add_argument("--alpha", metavar="P", help="instead of --alarms: the false alarm rate of this one look")
    parser.add_argument("--seed", type=int, default=0, help="seed of the permutations (default: %(default)s)")
    parser.add_argument(
        "--triage", type=Path, metavar="FILE",
        help="for a site: file with decisions on changes (default: triage.yaml beside the archives)",
    )
    parser.add_argument("--rebuild", action="store_true", help="for a site: read all archives instead of the index")
    add_formats(parser, TEXT, JSON, CSV, MD, HTML, SITE, text=f"{SITE}: HTML pages in the folder -o (default: {TEXT})")


def run(args: argparse.Namespace) -> int:
    """Find the changes and print them; return the exit status."""
    from cbt_plugins.compare import history

    if is_site(args):
        return _site(args)
    if args.triage or args.rebuild:
        raise CommandError("--triage and --rebuild are for a site: give -o FOLDER/")
    with compare.errors():
        choice = compare.choice(args)
        (side,) = compare.read_sides([args.archives], choice.takes)
        _raise_without_row(choice, side.runs, [key for run in side.runs for key in run.keys])
        histories = history.histories(side.runs, choice, _budget(args), args.seed)
    forms = {
        TEXT: lambda: history.blocks(histories),
        JSON: lambda: history.data(histories),
        CSV: lambda: history.table(histories),
        HTML: lambda: _page(histories),
    }
    print_results(args, forms)
    return OK if all(run.usable for run in side.runs) and not side.unreadable else UNUSABLE


def _raise_without_row(choice: Choice, runs: Sequence[RunRecord], keys: Collection[Key]) -> None:
    """Raise CommandError if --phase, --op and --metric take no row of the runs; not if the runs have no rows at all."""
    if keys and not any(choice.takes(measurement.key) for run in runs for measurement in run.measurements):
        raise compare.no_row_matches(keys)


def is_site(args: argparse.Namespace) -> bool:
    """Tell whether to write a site: by --format, or because -o is a folder. Raises CommandError."""
    if args.format == SITE and not is_file(args):
        raise CommandError(f"--format {SITE} makes a folder: give -o FOLDER/")
    is_folder = is_file(args) and (args.output.endswith("/") or Path(args.output).is_dir())
    return args.format == SITE or (args.format is None and is_folder)


def _budget(args: argparse.Namespace) -> AlarmBudget:
    from cbt_plugins.compare.history import AlarmBudget

    if args.alarms is not None and (args.alpha or not args.alarms > 0):
        raise CommandError("give a number of --alarms above 0, or --alpha")
    alpha = compare.parse_share("--alpha", args.alpha) if args.alpha else None
    return AlarmBudget(args.alarms or _ALARMS, alpha)


def _site(args: argparse.Namespace) -> int:
    """Write the site and print the first sentence of its overview; return the exit status."""
    from cbt_plugins.compare.history import histories
    from cbt_plugins.compare.sides import sides_of
    from cbt_plugins.compare.triage import read_triage, triage
    from cbt_plugins.config.errors import ConfigError
    from cbt_plugins.metrics import METRICS, MetricSource
    from cbt_plugins.report import history_site
    from cbt_plugins.results.record_index import RecordIndex

    folder, choice = Path(args.output), compare.choice(args)
    budget, file = _budget(args), _triage_file(args)
    try:
        entries = read_triage(file) if file else ()
    except ConfigError as e:
        raise CommandError(str(e)) from e
    with compare.errors():
        index = RecordIndex(_index_file(folder))
        keys: Dict[Key, None] = {}  # of all rows, in their order

        def takes(key: Key) -> bool:
            keys.setdefault(key)
            return choice.takes(key) or METRICS[key[2]].source is MetricSource.LOSS  # which shows failures

        records = index.records(args.archives, takes, args.rebuild)
        (side,) = sides_of([records], [args.archives])
        _raise_without_row(choice, side.runs, keys)
        own_histories = histories(side.runs, choice, budget, args.seed, index.settled)
        triaged, idle = triage(own_histories, entries)
        facts = history_site.SiteFacts(
            own_histories, triaged, idle, side.unreadable, history_site.report_links(own_histories, folder)
        )
        try:
            pages = history_site.write_site(folder, facts)
        except history_site.NoSite as e:
            raise CommandError(str(e)) from e
        index.write()
    for text in index.notes:
        warn(text)
    for text in dict.fromkeys(side.unreadable):
        say("Error", text, UNUSABLE)
    overview = history_site.overview_sentence(facts)
    print(f"{overview} {pages} pages: {folder / history_site.INDEX}; archives read: {index.read}")
    return OK if all(run.usable for run in side.runs) and not side.unreadable else UNUSABLE


def _triage_file(args: argparse.Namespace) -> Optional[Path]:
    """Return the file of decisions: --triage, else triage.yaml beside the archives, or None."""
    from cbt_plugins.compare.triage import FILE

    if args.triage:
        return Path(args.triage)
    beside = Path(os.path.commonpath([os.path.abspath(archive.parent) for archive in args.archives])) / FILE
    if os.path.lexists(beside) and (beside.is_symlink() or not beside.is_file()):
        raise CommandError(f"{beside}: is no regular file: name the decisions with --triage")
    return beside if beside.exists() else None


def _index_file(folder: Path) -> Path:
    """Return the path of a site's index: among this user's files, not in the published folder."""
    from cbt_plugins.programs import cache_dir

    digest = hashlib.sha256(os.path.realpath(folder).encode("utf-8", "surrogateescape")).hexdigest()
    return cache_dir() / "history" / f"{digest[:32]}.index"


def _page(histories: Sequence[History]) -> str:
    from cbt_plugins.report.text_page import history_page

    return history_page(histories)
