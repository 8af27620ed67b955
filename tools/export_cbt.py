"""Input of CBT's report programs: in folders of an export, or in an archive."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Dict, List, Mapping, Optional, Sequence, Set

from cbt_plugins.exit_status import OK, UNUSABLE, USAGE
from cbt_plugins.journal import read_text

from .command import CommandError, read_each, say, warn

if TYPE_CHECKING:
    from cbt_plugins.report.export.curves import ArchivedCurves
    from cbt_plugins.report.export.visualisation import Files


def export_curves(archives: Sequence[Path], target: Path, dialect: str) -> int:
    """Write a folder for each phase of each archive, and print the files; return the exit status.

    Raises CommandError, NotThere, OSError.
    """
    from cbt_plugins.report.export.curves import curves_of, names_of

    names = names_of(archives)
    read, unreadable = read_each(list(names), lambda archive: curves_of(archive, names[archive]))
    owners: Dict[str, Path] = {}
    for archive, archived_curves in read:
        for name in {curve.name for curve in archived_curves.curves}:
            if owners.setdefault(name, archive) != archive:
                text = f"{owners[name]} and {archive} would both be written to {name}"
                raise CommandError(f"{text}: export them one by one, each with its own -o DIR")
    statuses = [_export(archive, archived_curves, target, dialect) for archive, archived_curves in read]
    return max([unreadable, *statuses])


def _export(archive: Path, archived_curves: ArchivedCurves, target: Path, dialect: str) -> int:
    from cbt_plugins.report.export import visualisation

    curves, left, _ = archived_curves
    config = _cbt_config(archive)
    written: Dict[Path, Set[str]] = {}
    for name in visualisation.DIALECTS if dialect == "both" else (dialect,):
        for curve in curves:
            directory = target / name / curve.name
            files, doubled = visualisation.write(directory, curve, name, config)
            left += [text for text in doubled if text not in left]
            written[directory.resolve()] = {path.name for path in files}
            _print_files(directory, files)
    _print_left(archived_curves)
    if not curves:
        return say("Error", f"{archive}: no phase with reads or writes to export", UNUSABLE)
    _print_commands(written)
    return UNUSABLE if archived_curves.broken else OK


def write_curves(archive: Path, phase: str) -> int:
    """Write the curves of a phase into the archive, and print the files; return the exit status.

    Raises CommandError, OSError.
    """
    from cbt_plugins.report.export import visualisation
    from cbt_plugins.report.export.curves import curves_of, names_of

    results = archive / "results"
    if not results.is_dir() or results.is_symlink():
        raise CommandError(f"{archive}: not an archive of CBT: it has no folder `results`")
    archived_curves = curves_of(archive, names_of([archive])[archive], phase)
    curves = archived_curves.curves
    if len(curves) > 1:
        names = ", ".join(sorted(curve.name for curve in curves))
        raise CommandError(
            f"{archive}: its runs of {phase} are not points of one curve ({names}): use `cbt-tools export --format cbt`"
        )
    files: Files = {}
    for curve in curves:
        files, doubled = visualisation.write_into(results, curve)
        archived_curves.left.extend(doubled)
        _print_files(results / visualisation.FOLDER / curve.name, files)
    _print_left(archived_curves)
    if not curves:
        phases = _phases(archive)
        text = f"no phase {phase} with reads or writes; the phases are {', '.join(phases) or 'none'}"
        # a run that is left out may have the phase
        status = UNUSABLE if phase in phases or archived_curves.broken else USAGE
        raise CommandError(f"{archive}: {text}", status)
    _print_commands({archive.resolve(): {path.name for path in files}})
    return UNUSABLE if archived_curves.broken else OK


def _phases(archive: Path) -> List[str]:
    """Return the phases with load of all runs of an archive."""
    from cbt_plugins.results.archive import find_runs, read_run

    return list(dict.fromkeys(phase.name for run in find_runs(archive) for phase in read_run(run).phases if phase.jobs))


def _print_files(folder: Path, files: Mapping[Path, str]) -> None:
    print(folder)
    for path, text in files.items():
        print(f"    {path.name}: {text}")


def _print_left(archived_curves: ArchivedCurves) -> None:
    for text in archived_curves.left:
        print(f"left out: {text}")
    for text in archived_curves.broken:
        warn(text)


def _print_commands(written: Mapping[Path, Set[str]]) -> None:
    """Print CBT's commands for the last directory, and for comparing it with the first one that shares a file."""
    last = list(written)[-1]
    last_path = quote(str(last))
    print("in a CBT checkout of that branch:")
    for program in ("performance", "timeseries_performance"):
        if program == "performance" or any(name.endswith("_timeseries.json") for name in written[last]):
            print(f"    PYTHONPATH=. tools/generate_{program}_report.py --archive={last_path} --output_directory=OUT")
    for first, names in written.items():
        if first != last and names & written[last]:
            tool = "PYTHONPATH=. tools/generate_comparison_performance_report.py"
            print(f"    {tool} --baseline={quote(str(first))} --archives={last_path} --output_directory=OUT")
            break


def _cbt_config(archive: Path) -> Optional[str]:
    """Return CBT's copy of the configuration, from the archive or, for one of its runs, from a folder above.

    What is above another folder is somebody else's.
    """
    resolved = archive.resolve()
    above = list(resolved.parents)[:2] if resolved.name.startswith("id-") else []
    for directory in (resolved / "results", resolved, *above):
        path = directory / "cbt_config.yaml"
        if path.is_file() and not (directory in above and path.is_symlink()):
            return read_text(path)
    return None
