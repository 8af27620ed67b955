"""Report a run: tables, summary.json and an HTML page; for several runs also an index page."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from cbt_plugins.exit_status import OK, UNUSABLE
from cbt_plugins.journal import write_whole
from cbt_plugins.results.archive import find_runs
from cbt_plugins.results.result_file import ArchivesBelow, NoRun, NothingKnown, Unreadable, reading

from .command import CommandError, explain, is_optional, missing, say, status_of, warn
from .export_cbt import write_curves
from .format_option import CSV, HTML, JSON, MD, TEXT, Printer, add_formats, add_renamed
from .report_signature import holds, sign

Runs = List[Tuple[Path, Mapping[str, Any]]]  # directories and summaries


def add_arguments(parser: argparse.ArgumentParser) -> None:
    examples = (
        "cbt-tools report archive",
        "cbt-tools report archive/results/00000000/id-1a2b3c4d -o page.html",
        "cbt-tools report archive --format csv",
        "cbt-tools report archive --visualisation measure-new",
        "cbt-tools report fio.json",
    )
    explain(parser, examples, {UNUSABLE: ""})
    archive_help = (
        "an archive (all of its runs), a run's id-... directory, or results of another program (fio, hsbench, ...)"
    )
    parser.add_argument("archive", type=Path, help=archive_help)
    text = "print only this format, write nothing into the archive (default: print text, write the report's files)"
    add_formats(parser, TEXT, JSON, CSV, MD, HTML, text=text)
    parser.add_argument("--plots", type=Path, metavar="DIR", help="write plots (SVG and PNG) into this directory")
    parser.add_argument(
        "--visualisation",
        metavar="PHASE",
        help="only write the input of CBT's report programs for this phase into the archive",
    )
    parser.add_argument(
        "--nic", type=_link, metavar="SPEED",
        help="speed of each node's interface, such as 25Gbit, for the network ceiling",
    )
    # the steps of a ladder of which the run needs the numbers
    parser.add_argument("--phase", action="append", dest="phases", help=argparse.SUPPRESS)
    names = {"--json": "--format json -o FILE", "--html": "--format html -o FILE", "--text": "--format text"}
    add_renamed(parser, {**names, "--figures": "--plots DIR"})


def run(args: argparse.Namespace) -> int:
    """Report every readable run; return the exit status."""
    if args.visualisation:
        try:
            return write_curves(args.archive, args.visualisation)
        except OSError as e:
            raise CommandError(f"{e.filename or args.archive}: {e.strerror or e}", status_of(e)) from e
    with Printer(args) as printer:
        try:
            runs = sorted(find_runs(args.archive), key=_cut_short)
        except (NoRun, ArchivesBelow) as e:
            try:
                return _imported(args.archive, args, printer)
            except NothingKnown:
                if args.archive.is_file():
                    raise
                raise e from None
        if printer.content in (JSON, HTML) and len(runs) > 1:
            why = f"--format {printer.format} needs the directory of one run, such as {runs[0]}"
            raise CommandError(f"{args.archive} has {len(runs)} runs: {why}")
        return _report(runs, args, printer)


def _cut_short(run: Path) -> bool:
    """Tell whether a run of cbt-plugins has no end marker; such runs are shown after the complete runs."""
    return os.path.exists(run / "plan.json") and not os.path.exists(run / "complete")


def _report(runs: Sequence[Path], args: argparse.Namespace, printer: Printer) -> int:
    from cbt_plugins.results.run_state import run_state
    from cbt_plugins.results.summary_file import is_ours

    status, failure = OK, None
    several: Runs = []
    for path in runs:
        if not is_ours(path):
            try:  # CBT's own benchmarks leave such directories, too
                status = max(status, _imported(path, args, printer))
                continue
            except NothingKnown:
                pass
            except Unreadable as e:
                status = say("Error", str(e), UNUSABLE)
                continue
        try:
            with reading(path):
                summary = _summary_of(path, args.phases)
                network = _ceilings(path, summary, args)
                shown = _shown(printer.content, summary, path, network)
        except Unreadable as e:
            status = say("Error", str(e), UNUSABLE)
            continue
        printer.show(shown)
        if not summary["usable"] and run_state(summary) != "going on":
            status = UNUSABLE
        try:
            if not failure:
                # all iterations of a configuration have the same path.name
                prefix = f"{path.resolve().parent.name}-{path.name}-" if len(runs) > 1 else ""
                _write(summary, network, path, args, prefix)
        except OSError as e:
            failure = _cannot_write(e, path, args)  # the text of the other runs is shown nevertheless
        except Unreadable as e:
            status = say("Error", str(e), UNUSABLE)
        if len(runs) > 1:
            several.append((path, _without_series(summary)))
    if failure:
        raise failure
    try:
        _write_overview(several, args)
    except OSError as e:
        raise _cannot_write(e, args.archive, args) from e
    except Unreadable as e:
        status = say("Error", str(e), UNUSABLE)
    return status


def _summary_of(path: Path, phases: Optional[Sequence[str]]) -> Mapping[str, Any]:
    """Return the summary of a run, or of these phases: the one that `report` made from the same files, or a new one."""
    from cbt_plugins.results.summary_file import signed_summary, summarize

    stored = None if phases else signed_summary(path, holds)
    return stored or summarize(path, phases)


def _shown(content: str, summary: Mapping[str, Any], path: Path, network: Optional[Mapping[str, Any]]) -> Any:
    """Return the part of a run that a Printer shows."""
    from cbt_plugins.report import result_text

    if content == JSON:
        from cbt_plugins.results.summary_file import dumps

        return dumps(summary, "\n")
    if content == HTML:
        from cbt_plugins.report.page import run_page

        return run_page(summary, path, network)
    if content == CSV:
        return [result_text.MEASURED, *result_text.measured(summary)]
    from cbt_plugins.report.sentence import of_run
    from cbt_plugins.results.configuration import configuration

    return result_text.blocks(summary, network, of_run(summary, configuration(summary, path)))


def _link(text: str) -> float:
    from cbt_plugins.config.units import parse_link

    try:
        return parse_link(text)
    except ValueError as e:
        raise argparse.ArgumentTypeError(str(e)) from e


def _cannot_write(error: OSError, path: Path, args: argparse.Namespace) -> CommandError:
    advice = "" if args.plots else "; --format text writes nothing"
    name = error.filename or args.plots or path
    return CommandError(f"cannot write {name}: {error.strerror or error}{advice}", status_of(error))


def _ceilings(path: Path, summary: Mapping[str, Any], args: argparse.Namespace) -> Optional[Dict[str, Any]]:
    """Return the network's ceilings, None if they are unknown; warn if the user asked for them."""
    from cbt_plugins.results.nodes.network_ceilings import Unknown, network_ceilings

    try:
        return network_ceilings(path, summary, args.nic)
    except Unknown as e:
        if args.nic:
            warn(f"{path.name}: no network ceiling: {e}")
        return None


def _writes(args: argparse.Namespace) -> bool:
    """Tell whether to write the files of the report: no option asks for another output."""
    return args.format is None and args.output is None and not args.plots


def _write(
    summary: Mapping[str, Any],
    network: Optional[Mapping[str, Any]],
    path: Path,
    args: argparse.Namespace,
    prefix: str,
) -> None:
    """Write the plots, or summary, page and collected numbers into the folder of the run."""
    if _writes(args):
        from cbt_plugins.report.export.teuthology import write_collected
        from cbt_plugins.results.summary_file import FILE, has_sums_of_all, write_summary

        write_summary(summary, path / FILE, sign if has_sums_of_all(summary, path) else None)
        write_collected(summary, path)
        try:
            from cbt_plugins.report.page import run_page
        except ImportError as e:
            _no_page("report.html", e)
        else:
            with reading(path):
                page = run_page(summary, path, network)
            write_whole(path / "report.html", page)
            if not prefix:  # one run: several have an index
                print(f"\n{path / 'report.html'}")
    if args.plots:
        from cbt_plugins.report.plot_files import of_run

        args.plots.mkdir(parents=True, exist_ok=True)
        of_run(summary, args.plots, prefix)


def _write_overview(runs: Runs, args: argparse.Namespace) -> None:
    """Write the page or the plots of several runs."""
    if runs and args.plots:
        from cbt_plugins.report.plot_files import of_sweeps
        from cbt_plugins.report.sweep import left_out, of_runs

        with reading(args.archive):
            sweeps = of_runs(runs)
        of_sweeps(sweeps, args.plots)
        left = left_out(summary for _, summary in runs)
        if left:
            warn(f"not in the sweeps: {left}")
    if not runs or not _writes(args):
        return
    try:
        from cbt_plugins.report.page import INDEX, index_page
    except ImportError as e:
        _no_page("index.html", e)
        return
    with reading(args.archive):
        page = index_page(runs, args.archive)
    write_whole(args.archive / INDEX, page)
    print(f"\n{len(runs)} runs: {args.archive / INDEX}")


def _without_series(summary: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the part of a summary for the overview; the rest is dropped, as an archive may have hundreds of runs."""
    phases = [{**phase, "series": None, "jobs": [], "under_way": None} for phase in summary["phases"]]
    return {**summary, "phases": phases}


def _no_page(name: str, error: ImportError) -> None:
    if not is_optional(error):
        raise error
    warn(f"{name} not written: {missing(error)}")


def _imported(path: Path, args: argparse.Namespace, printer: Printer) -> int:
    """Print the results of another program; return the exit status. Raises Unreadable when there are none."""
    from cbt_plugins.report import result_text
    from cbt_plugins.results.record_reader import read_imported

    records = read_imported(path)
    if printer.content in (JSON, HTML):
        raise CommandError(
            f"{path}: no format {printer.format} for results of other programs: the formats are text, "
            f"csv, md"
        )
    for option, value in (("--plots", args.plots), ("--nic", args.nic)):
        if value:
            warn(f"{path}: {option} has no effect on results of other programs")
    lines = [result_text.MEASURED, *result_text.imported_measured(records)]
    printer.show(lines if printer.content == CSV else result_text.imported_blocks(records))
    return OK if all(record.usable for record in records) else UNUSABLE
