"""Write results in the formats of other programs."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Dict, Mapping, Optional, Set

from cbt_plugins.journal import read_text, write_whole
from cbt_plugins.results.source import Unreadable, reading

from .command import OK, UNUSABLE, CommandError, say, warn


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = "Exit status: 0 everything is written; 2 wrong use; 4 a run is left out, or nothing can be written."
    parser.add_argument(
        "archives",
        type=Path,
        nargs="+",
        metavar="ARCHIVE",
        help="an archive (all of its runs), or a run's id-... directory",
    )
    parser.add_argument(
        "--upstream",
        type=Path,
        metavar="DIR",
        help="write the input of CBT's report generators: DIR/DIALECT/ARCHIVE-PHASE/visualisation/*.json",
    )
    parser.add_argument(
        "--dialect",
        choices=("head", "main", "both"),
        default="both",
        help="the CBT branch for --upstream: head (`master` of 2025) or main (`main` of 2026) (default: both)",
    )
    parser.add_argument("--prometheus", type=Path, metavar="FILE", help="write the metrics in Prometheus' text format")
    parser.add_argument(
        "--csv", type=Path, metavar="FILE", help="write a table with a line for each run, as Apache Otava reads it"
    )


def run(args: argparse.Namespace) -> int:
    """Write what was asked for; returns the exit status."""
    if not (args.upstream or args.prometheus or args.csv):
        raise CommandError("nothing to write: give --upstream DIR, --prometheus FILE or --csv FILE")
    status = OK
    try:
        if args.upstream:
            status = max(_upstream(archive, args.upstream, args.dialect) for archive in args.archives)
        if args.prometheus or args.csv:
            status = max(status, _numbers(args))
        return status
    except OSError as e:
        raise CommandError(f"{e.filename or args.archives[0]}: {e.strerror or e}") from e


def _upstream(archive: Path, target: Path, dialect: str) -> int:
    from cbt_plugins.report.export import visualisation
    from cbt_plugins.report.export.visualisation import curves_of

    curves, left, broken = curves_of(archive)
    config = _cbt_config(archive)
    written: Dict[Path, Set[str]] = {}
    for name in visualisation.DIALECTS if dialect == "both" else (dialect,):
        for its in curves:
            directory = target / name / its.name
            files, twice = visualisation.write(directory, its, name, config)
            left += [text for text in twice if text not in left]
            written[directory.resolve()] = {path.name for path in files}
            print(directory)
            for path, depths in files.items():
                print(f"    {path.name}: queue depth {', '.join(map(str, depths))}")
    for text in left:
        print(f"left out: {text}")
    for text in broken:
        warn(text)
    if not curves:
        raise CommandError(f"{archive}: no phase with reads or writes to export", UNUSABLE)
    _print_commands(written)
    return UNUSABLE if broken else OK


def _numbers(args: argparse.Namespace) -> int:
    from cbt_plugins.report.export import formats
    from cbt_plugins.results.archive import find_runs
    from cbt_plugins.results.summary_file import is_ours, summary_of, why_unusable

    unreadable = OK
    paths = [run for archive in args.archives for run in find_runs(archive) if is_ours(run)]
    if not paths:
        raise CommandError("no run of cbt-plugins: results of other programs cannot be exported", UNUSABLE)
    summaries, reasons = [], []
    for path in list(paths):
        try:
            with reading(path):
                summary = summary_of(path)
                reasons.append(why_unusable(path, summary))
                summaries.append(summary)
        except Unreadable as e:
            paths.remove(path)
            unreadable = say("Error", str(e), UNUSABLE)
    if args.prometheus:
        write_whole(args.prometheus, formats.prometheus((its, not why) for its, why in zip(summaries, reasons)))
    if args.csv:
        write_whole(args.csv, formats.otava_csv([its for its, why in zip(summaries, reasons) if not why]))
    print(f"complete runs: {reasons.count(None)} of {len(paths)}")
    for path, why in zip(paths, reasons):
        if why:
            warn(f"{path}: left out: {why}")
    return max(UNUSABLE if any(reasons) else OK, unreadable)


def _print_commands(written: Mapping[Path, Set[str]]) -> None:
    """Print CBT's commands for the last directory, and for the first that has a file in common with it."""
    last = list(written)[-1]
    print("in a CBT checkout of that branch:")
    print(f"    PYTHONPATH=. tools/generate_performance_report.py --archive={last} --output_directory=OUT")
    for first, names in written.items():
        if first != last and names & written[last]:
            tool = "PYTHONPATH=. tools/generate_comparison_performance_report.py"
            print(f"    {tool} --baseline={first} --archives={last} --output_directory=OUT")
            break


def _cbt_config(archive: Path) -> Optional[str]:
    """The file that CBT keeps of the configuration, from the archive or from above one of its runs."""
    resolved = archive.resolve()
    for directory in (resolved / "results", resolved, *resolved.parents[:2]):
        path = directory / "cbt_config.yaml"
        if path.is_file():
            return read_text(path)
    return None
