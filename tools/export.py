"""Write results in the formats of other programs."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Dict, Mapping, Optional, Sequence, Set

from cbt_plugins.journal import read_text
from cbt_plugins.results.source import Unreadable, reading

from .command import OK, UNUSABLE, CommandError, explain, say, warn
from .forms import CSV, add_forms, add_renamed, form_of, is_file, put

if TYPE_CHECKING:
    from cbt_plugins.report.export.visualisation import ArchivedCurves


def add_arguments(parser: argparse.ArgumentParser) -> None:
    examples = (
        "cbt-tools export archive -o runs.csv",
        "cbt-tools export archive --format prometheus -o cbt.prom",
        "cbt-tools export archive --format cbt -o OUT",
    )
    explain(parser, examples, {UNUSABLE: ""})
    parser.add_argument(
        "archives",
        type=Path,
        nargs="+",
        metavar="ARCHIVE",
        help="an archive (all of its runs), or a run's id-... directory",
    )
    csv = "csv: a line for each run, as Apache Otava reads it"
    cbt = "cbt: the input of CBT's report generators, in the folder of -o"
    text = f"{csv}; prometheus: its text format; {cbt} (default: csv)"
    add_forms(parser, CSV, "prometheus", "cbt", text=text)
    parser.add_argument(
        "--dialect",
        choices=("head", "main", "both"),
        default="both",
        help="the CBT branch for --format cbt: head (`master` of 2025) or main (`main` of 2026) (default: both)",
    )
    names = {"--csv": "--format csv -o FILE", "--prometheus": "--format prometheus -o FILE"}
    add_renamed(parser, {**names, "--upstream": "--format cbt -o DIR"})


def run(args: argparse.Namespace) -> int:
    """Write what was asked for; returns the exit status."""
    if form_of(args) != "cbt":
        return _numbers(args)
    if not is_file(args):
        raise CommandError("--format cbt makes a folder: give -o DIR")
    try:
        return _cbt(args.archives, Path(args.output), args.dialect)
    except OSError as e:
        raise CommandError(f"{e.filename or args.archives[0]}: {e.strerror or e}") from e


def _cbt(archives: Sequence[Path], target: Path, dialect: str) -> int:
    from cbt_plugins.report.export import visualisation

    names = visualisation.names_of(archives)
    curves_by_archive = {archive: visualisation.curves_of(archive, name) for archive, name in names.items()}
    owners: Dict[str, Path] = {}
    for archive, archived_curves in curves_by_archive.items():
        for name in {curve.name for curve in archived_curves.curves}:
            if owners.setdefault(name, archive) != archive:
                text = f"{owners[name]} and {archive} would both be written to {name}"
                raise CommandError(f"{text}: export them one by one, each with its own -o DIR")
    return max(
        _write_cbt(archive, archived_curves, target, dialect) for archive, archived_curves in curves_by_archive.items()
    )


def _write_cbt(archive: Path, archived_curves: ArchivedCurves, target: Path, dialect: str) -> int:
    from cbt_plugins.report.export import visualisation

    curves, left, broken = archived_curves
    config = _cbt_config(archive)
    written: Dict[Path, Set[str]] = {}
    for name in visualisation.DIALECTS if dialect == "both" else (dialect,):
        for curve in curves:
            directory = target / name / curve.name
            files, twice = visualisation.write(directory, curve, name, config)
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
    from cbt_plugins.results.configuration import configuration
    from cbt_plugins.results.summary_file import is_ours, summary_of, why_unusable

    unreadable = OK
    every = [run for archive in args.archives for run in find_runs(archive)]
    paths = [run for run in every if is_ours(run)]
    if not paths:
        raise CommandError("no run of cbt-plugins: results of other programs cannot be exported", UNUSABLE)
    runs, reasons = [], []
    for path in list(paths):
        try:
            with reading(path):
                summary = summary_of(path)
                reasons.append(why_unusable(path, summary))
                runs.append((configuration(summary, path), summary))
        except Unreadable as e:
            paths.remove(path)
            unreadable = say("Error", str(e), UNUSABLE)
    forms = {
        CSV: lambda: formats.otava_csv([run for run, why in zip(runs, reasons) if not why]),
        "prometheus": lambda: formats.prometheus((summary, not why) for (_, summary), why in zip(runs, reasons)),
    }
    put(args, forms)
    print(f"complete runs: {reasons.count(None)} of {len(paths)}", file=sys.stderr)
    for path in every:
        if not is_ours(path):
            warn(f"{path}: left out: a benchmark of CBT's own")
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
