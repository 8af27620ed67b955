"""`cbt-tools export ARCHIVE`: results in the forms of other programs."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Dict, Mapping, Optional, Set

from cbt_plugins.journal import write_whole
from cbt_plugins.results.source import Unreadable

OK, USAGE, UNUSABLE = 0, 2, 4


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "archives",
        type=Path,
        nargs="+",
        metavar="ARCHIVE",
        help="an archive (all of its runs), or one run's id-... directory",
    )
    parser.add_argument(
        "--upstream",
        type=Path,
        metavar="DIR",
        help="write what CBT's report generators read: DIR/DIALECT/ARCHIVE-PHASE/visualisation/*.json",
    )
    parser.add_argument(
        "--dialect",
        choices=("head", "main", "both"),
        default="both",
        help="which of CBT's branches --upstream is for: head is `master` of 2025, main is `main` of 2026",
    )
    parser.add_argument("--prometheus", type=Path, metavar="FILE", help="write the numbers in Prometheus' text format")
    parser.add_argument(
        "--csv", type=Path, metavar="FILE", help="write a table with a line for each run, as Apache Otava reads it"
    )


def run(args: argparse.Namespace) -> int:
    """0: all is written; 4: a run is not whole (it is left out), or there is nothing to write."""
    if not (args.upstream or args.prometheus or args.csv):
        return _complain("nothing to write: give --upstream DIR, --prometheus FILE or --csv FILE", USAGE)
    status = OK
    try:
        if args.upstream:
            status = max(_upstream(archive, args.upstream, args.dialect) for archive in args.archives)
        if args.prometheus or args.csv:
            status = max(status, _numbers(args))
        return status
    except Unreadable as e:
        return _complain(str(e), UNUSABLE)
    except ImportError as e:
        if e.name != "numpy":
            raise
        return _complain("it needs the Python package numpy (pip install 'cbt-plugins[report]')", USAGE)
    except OSError as e:
        return _complain(f"{e.filename or args.archives[0]}: {e.strerror or e}", USAGE)


def _upstream(archive: Path, target: Path, dialect: str) -> int:
    from cbt_plugins.report.export import visualisation
    from cbt_plugins.report.export.points import curves_of

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
        _complain(text, OK)
    if not curves:
        return _complain(f"{archive}: no phase with reads or writes that can be written", UNUSABLE)
    _print_commands(written)
    return UNUSABLE if broken else OK


def _numbers(args: argparse.Namespace) -> int:
    from cbt_plugins.report.export import prometheus, table
    from cbt_plugins.results.archive import find_runs
    from cbt_plugins.results.stored import is_ours, not_whole, summary_of

    paths = [run for archive in args.archives for run in find_runs(archive) if is_ours(run)]
    if not paths:
        return _complain("no run of our benchmarks: compare and sql read those of other programs", UNUSABLE)
    summaries = [summary_of(path) for path in paths]
    doubts = [not_whole(path, summary) for path, summary in zip(paths, summaries)]
    if args.prometheus:
        write_whole(args.prometheus, prometheus.text((its, not why) for its, why in zip(summaries, doubts)))
    if args.csv:
        write_whole(args.csv, table.text([its for its, why in zip(summaries, doubts) if not why]))
    print(f"whole runs: {doubts.count(None)} of {len(paths)}")
    for path, why in zip(paths, doubts):
        if why:
            _complain(f"{path}: left out: {why}", OK)
    return UNUSABLE if any(doubts) else OK


def _print_commands(written: Mapping[Path, Set[str]]) -> None:
    """What can be done with the directories now: the last of them, beside the first that has a file of its names."""
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
            return path.read_text(encoding="utf-8", errors="replace")
    return None


def _complain(text: str, status: int) -> int:
    print(f"cbt-tools export: {text}", file=sys.stderr)
    return status
