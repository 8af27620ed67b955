"""The reader of run records: of our archives by their summaries, of other programs' results by the importers.

docs/IMPORT.md says what is taken from each format, and what is not because it would be wrong.
"""

from __future__ import annotations

import hashlib
import os
import re
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, Collection, Dict, Iterator, List, Mapping, Optional, Sequence

from cbt_plugins.archive_files import confine, open_regular
from cbt_plugins.config import plugins
from cbt_plugins.journal import read_json
from cbt_plugins.metrics import TOTAL
from cbt_plugins.results.archive import find_runs, name_of, refuse_part_of_run
from cbt_plugins.results.configuration import configuration
from cbt_plugins.results.environment import roles_in
from cbt_plugins.results.importers import cbt
from cbt_plugins.results.importers.cbt import cluster_of
from cbt_plugins.results.importers.importer import Importer, ResultFiles
from cbt_plugins.results.nodes.node_files import read_nodes
from cbt_plugins.results.nodes.node_samples import FOLDER
from cbt_plugins.results.nodes.phase_usage import Unseen
from cbt_plugins.results.nodes.resources import counter_of_rates, of_window, resource_warnings
from cbt_plugins.results.nodes.usage import Networks, roles_at
from cbt_plugins.results.result_file import (
    ArchivesBelow,
    NoRun,
    NothingKnown,
    NotThere,
    PackedFile,
    Unreadable,
    reading,
    unpacked_name,
)
from cbt_plugins.results.run_record import (
    STATE,
    UNREADABLE,
    UNTRUSTED,
    Measurement,
    ResultWarning,
    RunRecord,
    measurements,
    of_resources,
    result_warnings,
)
from cbt_plugins.results.summary_file import FILE, load_begin, summary_of


def records_of(path: Path) -> List[RunRecord]:
    """Return every run of an archive, of a run's directory, of a summary.json, or of a result of another program.

    In the order of their names. A run without a summary, or with an old one, is read anew; nothing is written.
    Raises Unreadable where there is nothing to read.
    """
    return list(each_record(path))


def each_record(path: Path) -> Iterator[RunRecord]:
    """Yield the records that `records_of` returns, each when it is asked for. Raises as `records_of` does."""
    if path.is_file():
        if _is_summary(path):
            run = path.parent if path.name == FILE and (path.parent / "plan.json").exists() else None
            confine(path.parent)
            yield record_of_summary(summary_of(path), path, run)
        else:
            yield from read_imported(path)
        return
    try:
        runs = find_runs(path)
    except (NoRun, ArchivesBelow) as e:
        try:
            yield from read_imported(path)
        except NothingKnown:
            raise e from None
        return
    for run in runs:
        yield from _as_it_is(run, several=len(runs) > 1)


def readable_records(paths: Sequence[Path]) -> Iterator[RunRecord]:
    """Yield the records of several paths, as `each_record` does; a path that cannot be read is one without numbers.

    Raises NotThere.
    """
    for path in paths:
        try:
            with reading(path):
                yield from each_record(path)
        except NotThere:
            raise
        except Unreadable as e:
            yield _unreadable(path, e)


def _as_it_is(run: Path, several: bool) -> List[RunRecord]:
    """Return the records of one run; of several runs one that cannot be read is a record without numbers."""
    try:
        with reading(run):
            return _of_run(run)
    except Unreadable as e:
        if not several:
            raise
        return [_unreadable(run, e)]


def _unreadable(path: Path, why: Unreadable) -> RunRecord:
    warning = ResultWarning(UNREADABLE, str(why))
    return RunRecord(str(path), name_of(path), "", {}, (), usable=False, warnings=(warning,))


def _of_run(run: Path) -> List[RunRecord]:
    """Return the records of a directory: those of another program where its results are the only ones."""
    if not any((run / name).exists() for name in ("plan.json", "phases", FILE)):
        try:
            return read_imported(run)
        except NothingKnown:
            pass
    return [record_of_summary(summary_of(run), run, run)]


def _is_summary(path: Path) -> bool:
    try:
        data = read_json(path)
    except (OSError, ValueError):
        return False
    return isinstance(data, dict) and {"version", "run", "phases", "usable"} <= set(data)


def record_of_summary(summary: Mapping[str, Any], source: Path, run: Optional[Path]) -> RunRecord:
    """Return the record of one of our own runs, by its summary; `run` is its directory, where there is one.

    It has the answers of ladders, and no numbers of their steps: each run chooses the loads of its steps.
    """
    steps = {step["phase"] for ladder in summary.get("ladders") or () for step in ladder["steps"]}
    warnings = tuple(result_warnings(summary))
    untrusted = any(warning.code == UNTRUSTED and warning.phase is None for warning in warnings)
    return RunRecord(
        source=str(source),
        name=summary["run"]["name"],
        kind="cbt-plugins",
        config=configuration(summary, run),
        measurements=tuple(m for m in measurements(summary) if m.phase.split(STATE)[0] not in steps),
        usable=summary["usable"] and not untrusted,
        warnings=warnings,
        label=summary["environment"]["versions"].get("ceph"),
        started=load_begin(summary),
        run_id=summary["run"]["run_id"],
    )


#: bytes from the begin of a file that say what it is
_HEAD = 1 << 14
#: files below a folder that is no archive: more are somebody's disk
MOST_FILES = 10_000
#: files that are no results and may be large: everywhere, and what CBT leaves in the directory of a run
_NOT = re.compile(r"_(bw|iops|lat|clat|slat|hist)(\.\d+)?\.log|\.(png|svg|html|yaml|conf)$")
_NOT_OF_RUN = re.compile(r"^(collectl|perf|ceph-|historic|visualisation)")


def read_imported(path: Path) -> List[RunRecord]:
    """Return the records of a file, of a directory with the files of several clients, or of an archive of CBT's own
    benchmarks.

    One record for each iteration and permutation. Raises Unreadable where there is nothing that is known.
    """
    return [replace(record, digest=_digest(record)) for record in _imported(path)]


def _digest(record: RunRecord) -> Optional[str]:
    """Return a digest of the numbers and of the configuration; None without numbers."""
    numbers = [(*m.key, m.value, m.n) for m in record.measurements]
    facts = (record.kind, record.started, sorted(record.config.items()), numbers)
    return hashlib.sha256(repr(facts).encode()).hexdigest() if numbers else None


def _imported(path: Path) -> List[RunRecord]:
    if not path.exists():
        raise NotThere(f"{path}: no such file or directory")
    if not path.is_dir():
        refuse_part_of_run(path)
        importer_of_kind = importers()
        kind = _kind_of(path, importer_of_kind)
        if kind is None:
            raise NothingKnown(f"{path}: not the result of a known program ({', '.join(importer_of_kind)})")
        with reading(path):
            return importer_of_kind[kind].read(ResultFiles(path, path.name, (path,)))
    try:
        runs = find_runs(path)
    except NoRun:
        return _of_directory(path)
    except ArchivesBelow as e:
        note = ResultWarning("archives-below", f"not in the result: {e.names()}")
        records_beside = _of_directory(path, left_out=frozenset(e.archives))
        return [replace(record, warnings=(*record.warnings, note)) for record in records_beside]
    records: List[RunRecord] = []
    errors: List[Unreadable] = []
    for run in runs:
        if (run / "plan.json").exists():
            continue  # a run of ours
        try:
            records += [
                _watched(run, record) for record in _of_directory(run, f"{run.resolve().parent.name}/{run.name}")
            ]
        except Unreadable as e:
            errors.append(e)
    if not records:
        damaged = [error for error in errors if not isinstance(error, NothingKnown)]
        raise next(iter([*damaged, *errors]), Unreadable(f"{path}: no run of another program in it"))
    return records


def _watched(run: Path, record: RunRecord) -> RunRecord:
    """Return the record with what the monitor `resources` saw beside CBT's own benchmark."""
    if not any(run.glob(f"{FOLDER}*")):
        return record
    try:
        with reading(run):
            used = _usage_of(run, record, cluster_of(run))
    except Unreadable as e:
        return replace(record, warnings=(*record.warnings, ResultWarning("damaged-archive", str(e))))
    lines = [line for phase, usage in used.items() for line in of_resources(phase, usage)]
    gaps = (warning for warning in resource_warnings({"phases": used}, ()) if warning["code"] == "resources-gap")
    warnings = (ResultWarning(gap["code"], f"{gap['phase']}: {gap['text']}", gap["phase"]) for gap in gaps)
    return replace(
        record, used=used, measurements=(*record.measurements, *lines), warnings=(*record.warnings, *warnings)
    )


def _usage_of(run: Path, record: RunRecord, cluster: Mapping[str, Any]) -> Dict[str, Dict[str, Any]]:
    """Return phase -> use, of a run by another program whose phases have times; {} without a monitor.

    Nobody has compared the clocks of the nodes: they are taken to be equal. `cluster` is the file's section.
    """
    nodes = read_nodes(run, {})
    usage_of_phase: Dict[str, Dict[str, Any]] = {}
    for phase in dict.fromkeys(line.phase for line in record.measurements) if nodes else ():
        measurements = [m for m in record.measurements if m.phase == phase and m.start is not None and m.series]
        ops = {m.op: m.value or 0.0 for m in measurements if m.metric == "obj_per_s" and m.op != TOTAL}
        if not ops:
            continue
        start = max(m.start or 0.0 for m in measurements)
        window = (start, min((m.start or 0.0) + m.step * len(m.series or ()) for m in measurements))
        watched_nodes = [node for node in nodes if window[0] < window[1] and node.processors.meets(*window)]
        if watched_nodes:
            moved = sum((m.value or 0.0) * 2**20 for m in measurements if m.metric == "mib_per_s" and m.op != TOTAL)
            load: Dict[str, Any] = {"made": True, "per_s": sum(ops.values()), "bytes_per_s": moved, "ops": ops}
            load["ceiling"] = None
            rates = ((m.start or 0.0, m.step, m.series or ()) for m in measurements if _counts(m))
            load["served"] = counter_of_rates(rates)
            roles = roles_in(cluster)
            missing = {n.name: roles_at(n, roles) for n in nodes if not n.processors.meets(*window)}
            usage_of_phase[phase] = of_window(watched_nodes, window, load, roles, Networks(), Unseen(missing, 0))
    return usage_of_phase


def _counts(measurement: Measurement) -> bool:
    return measurement.metric == "obj_per_s" and measurement.op != TOTAL


def importers() -> Dict[str, Importer]:
    """Return an importer of each kind: ours, and those of other distributions."""
    return {kind: load()() for kind, load in plugins.loaders(plugins.IMPORTERS).items()}


def _kind_of(path: Path, importer_of_kind: Dict[str, Importer]) -> Optional[str]:
    """Return the kind of the importer that claims a file."""
    try:
        chunk = next(iter(PackedFile(path).chunks()), b"")
    except Unreadable:
        return None
    head = chunk[:_HEAD].decode("utf-8", "replace")
    return next((kind for kind, importer in importer_of_kind.items() if importer.claims(head)), None)


def _is_other(name: str, folders: Sequence[str]) -> bool:
    """Return whether a file is no result, by its name and the folders that it is in."""
    of_run = any(folder.startswith("id-") for folder in folders)
    return bool(_NOT.search(name) or (of_run and _NOT_OF_RUN.search(name)))


def _copies(files: Sequence[Path], folder: Path) -> Iterator[ResultWarning]:
    """Yield a warning for each file with the bytes of an earlier file: its requests count twice. Raises OSError."""
    files_of_size: Dict[int, List[Path]] = {}
    for file in files:
        files_of_size.setdefault(file.stat().st_size, []).append(file)
    for group in (group for group in files_of_size.values() if len(group) > 1):
        first_of: Dict[str, Path] = {}
        for file in group:
            first = first_of.setdefault(_digest_of_file(file), file)
            if first is not file:
                text = f"{file.relative_to(folder)} has the same content as {first.relative_to(folder)}: both count"
                yield ResultWarning("same-content", text)


def _digest_of_file(file: Path) -> str:
    digest = hashlib.sha256()
    with open_regular(file) as source:
        for chunk in iter(lambda: source.read(1 << 20), b""):
            digest.update(chunk)
    return digest.hexdigest()


def _paths_below(folder: Path, left_out: Collection[Path]) -> Iterator[Path]:
    """Yield the files and folders below a folder, but not those of the folders `left_out`. No link is followed."""
    for top, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if Path(top, name) not in left_out]
        yield from (Path(top, name) for name in (*folders, *names))


def _of_directory(path: Path, name: Optional[str] = None, left_out: Collection[Path] = ()) -> List[RunRecord]:
    """Return the records of a directory without some folders below it; its files of one program are those of one run.

    Raises Unreadable.
    """
    importer_of_kind = importers()
    claimed: Dict[str, Dict[Path, Path]] = {kind: {} for kind in importer_of_kind}  # a packed file and its copy once
    files = list(islice(_paths_below(path, left_out), MOST_FILES + 1))
    if len(files) > MOST_FILES:
        raise NothingKnown(f"{path}: more than {MOST_FILES} files, and no run of an archive: name the folder of a run")
    for file in sorted(files):
        folders = (path.absolute().name, *file.parent.relative_to(path).parts)
        kind = _kind_of(file, importer_of_kind) if file.is_file() and not _is_other(file.name, folders) else None
        if kind is not None:
            claimed[kind].setdefault(file.with_name(unpacked_name(file)), file)  # the file sorts before its .gz
    about = (cbt.configuration(path), cbt.clients(path), cbt.faults_of(path))
    records: List[RunRecord] = []
    for kind, of_program in claimed.items():
        if of_program:
            with reading(path):
                results = ResultFiles(path, name or path.name, tuple(of_program.values()), *about)
                copies = tuple(_copies(results.files, path))
                imported = importer_of_kind[kind].read(results)
            records += [replace(record, warnings=(*record.warnings, *copies)) for record in imported]
    if not records:
        raise NothingKnown(f"{path}: no result of a known program ({', '.join(importer_of_kind)})")
    return records
