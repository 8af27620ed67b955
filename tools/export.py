"""Write results in the formats of other programs."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from cbt_plugins.exit_status import OK, UNUSABLE
from cbt_plugins.formatting import several
from cbt_plugins.results.result_file import Unreadable, reading

from .command import CommandError, explain, read_each, refuse_twice, say, status_of, warn
from .export_cbt import export_curves
from .format_option import CSV, add_formats, add_renamed, format_of, is_file, print_results

PARQUET = "parquet"
_NOTHING = "no run of cbt-plugins: results of other programs cannot be exported"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    examples = (
        "cbt-tools export archive -o runs.csv",
        "cbt-tools export archive --format prometheus -o cbt.prom",
        "cbt-tools export archive --format cbt -o OUT",
        "cbt-tools export nights/* --format parquet -o lake",
    )
    explain(parser, examples, {UNUSABLE: ""})
    parser.add_argument(
        "archives",
        type=Path,
        nargs="+",
        metavar="ARCHIVE",
        help="an archive (all of its runs), or a run's id-... directory",
    )
    csv = "csv: one line per run, for Apache Otava"
    cbt = "cbt: input files of CBT's report generators, in the folder -o"
    parquet = "parquet: partitioned files for DuckDB and ClickHouse, in the folder -o"
    text = f"{csv}; prometheus: the text format of Prometheus; {cbt}; {parquet} (default: csv)"
    add_formats(parser, CSV, "prometheus", "cbt", PARQUET, text=text)
    parser.add_argument(
        "--dialect",
        choices=("head", "main", "both"),
        default="both",
        help="the CBT branch for --format cbt: head (`master` of 2025) or main (`main` of 2026, with time series)"
        " (default: both)",
    )
    names = {"--csv": "--format csv -o FILE", "--prometheus": "--format prometheus -o FILE"}
    add_renamed(parser, {**names, "--upstream": "--format cbt -o DIR"})


def run(args: argparse.Namespace) -> int:
    """Write the results in a format; return the exit status."""
    format_name = format_of(args)
    if format_name not in ("cbt", PARQUET):
        return _numbers(args)
    if not is_file(args):
        raise CommandError(f"--format {format_name} makes a folder: give -o DIR")
    try:
        if format_name == PARQUET:
            return _files(args)
        return export_curves(args.archives, Path(args.output), args.dialect)
    except OSError as e:
        raise CommandError(f"{e.filename or args.archives[0]}: {e.strerror or e}", status_of(e)) from e


def _files(args: argparse.Namespace) -> int:
    """Write a file for each table and complete run; one run is in memory at a time. Returns the exit status."""
    from cbt_plugins.report.export.parquet import ParquetFolder
    from cbt_plugins.results.run_state import why_unusable
    from cbt_plugins.results.sql.database import runs_of
    from cbt_plugins.results.sql.summary_tables import summary

    read, status = read_each(args.archives, runs_of)
    every = [(archive, run) for archive, runs in read for run in runs]
    if not every:
        return status
    refuse_twice(run.path for _, run in every)
    if not any(run.ours for _, run in every):
        raise CommandError(_NOTHING, UNUSABLE)
    folder, complete = ParquetFolder(Path(args.output)), 0
    for archive, run in every:
        if not run.ours:
            warn(f"{run.path}: left out: it is a result of CBT's own benchmark or of another program")
            continue
        try:
            with reading(run.path):
                why = why_unusable(run.path, summary(run.path))
            if why:
                files = folder.remove(run)
                removed = f"; {several(files, 'file')} of an earlier export removed" if files else ""
                warn(f"{run.path}: left out: {why}{removed}")
                status = UNUSABLE
                continue
            folder.add(archive, run)
            complete += 1
        except Unreadable as e:
            status = say("Error", str(e), UNUSABLE)
    print(f"complete runs: {complete} of {len(every)}: {args.output}")
    return status


def _numbers(args: argparse.Namespace) -> int:
    from cbt_plugins.report.export.otava import otava_csv
    from cbt_plugins.report.export.prometheus import prometheus
    from cbt_plugins.results.archive import find_runs
    from cbt_plugins.results.configuration import configuration
    from cbt_plugins.results.run_state import why_unusable
    from cbt_plugins.results.summary_file import is_ours, summary_of

    read, unreadable = read_each(args.archives, find_runs)
    every = [run for _, runs_of_archive in read for run in runs_of_archive]
    if not every:
        return unreadable
    paths = [run for run in every if is_ours(run)]
    refuse_twice(paths)
    if not paths:
        raise CommandError(_NOTHING, UNUSABLE)
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
    contents = {
        CSV: lambda: otava_csv([run for run, why in zip(runs, reasons) if not why]),
        "prometheus": lambda: prometheus((summary, not why) for (_, summary), why in zip(runs, reasons)),
    }
    print_results(args, contents)
    print(f"complete runs: {reasons.count(None)} of {len(paths)}", file=sys.stderr)
    for path in every:
        if not is_ours(path):
            warn(f"{path}: left out: it is a result of CBT's own benchmark")
    for path, why in zip(paths, reasons):
        if why:
            warn(f"{path}: left out: {why}")
    return max(UNUSABLE if any(reasons) else OK, unreadable)
