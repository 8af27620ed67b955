"""The archive as values: runs, their phases and jobs, and what was recorded around them."""

from __future__ import annotations

import contextlib
import math
import os
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Deque, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

from cbt_plugins.archive_files import confine
from cbt_plugins.checksums import check_sums
from cbt_plugins.journal import (
    ARCHIVE_VERSION,
    RUNNING_PHASE,
    archive_refusal,
    is_held,
    journal_lines,
    read_json,
    read_text,
)
from cbt_plugins.plan import is_calibration, op_of_work, split_op
from cbt_plugins.results import engines_of_archives
from cbt_plugins.results.renamed_runs import name_renamed_runs
from cbt_plugins.results.result_file import NOT_ALLOWED, ArchivesBelow, NoRun, NotThere, Unreadable, reading


@dataclass(frozen=True)
class ArchivedLoop:
    """The workers of a job that do one mix: all, or those of one work."""

    work: str  # "" for the only one
    workers: int
    rate_limit: float  # requests a second; 0 = closed loop
    poisson: bool = True  # of the open loop of a work: its requests come by chance
    latest_start: float = 0.0  # seconds: of an open loop, the worst delay
    unstarted: int = 0  # due requests that never started


@dataclass(frozen=True)
class ArchivedJob:
    """One process of the load generator in one phase."""

    id: str
    driver: str
    node: str
    op: str  # "GET" ... or "MIXED"
    workers: int
    rate_limit: float  # requests a second it is held to; 0 = closed loop
    rows: Optional[Path]
    clock_offset: float  # node's clock minus run's clock, seconds
    aggregates: Optional[Path] = None
    role: str = ""
    bucket: str = ""
    prefix: str = ""
    sizes: Tuple[Tuple[int, int, float], ...] = ()
    ended: Optional[float] = None
    exit: Optional[int] = None
    signal: Optional[int] = None
    cut: bool = False
    restarts: int = 0
    rows_total: Optional[int] = None
    cbt_load: bool = False  # it is cbt-load, which makes all operations in one process
    ramp: float = 0.0  # seconds in which its load grows to its full size
    driver_end: Mapping[str, Any] = field(default_factory=dict)  # what cbt-load said at its end
    loops: Tuple[ArchivedLoop, ...] = ()  # the only one, or its works
    urls: Tuple[str, ...] = ()  # endpoints that it may use
    began: Optional[float] = None  # the begin of its load, else of its process; run's clock

    @property
    def open_loop(self) -> bool:
        """The job, or a work of it, starts requests by the clock; warp with a rate still waits for each request."""
        return self.cbt_load and self.rate_limit > 0


#: ends the name of a phase's folder until the phase has ended
RUNNING = ".running"
#: of a client's generators without a cluster: requests/s, and the clients of the same machine, which were as busy
Ceiling = Tuple[float, Tuple[str, ...]]


#: seconds by which the times of requests may differ from those of the run; what differs by more is damage
APART = 3600.0


@dataclass(frozen=True)
class ArchivedPhase:
    """One finished phase."""

    path: Path
    index: int
    name: str
    kind: str
    role: str
    status: str
    window: Tuple[float, float]  # run's clock; equal when no window was reached
    duration: Optional[float]  # asked
    mix: Mapping[str, float]  # asked, percent
    load: Mapping[str, Any]  # all that phase.json says was asked
    engine: str
    block: int  # seconds: the time resolution of the aggregates
    jobs: Tuple[ArchivedJob, ...]
    accounting: Tuple[Mapping[str, Any], ...]
    warnings: Tuple[Mapping[str, Any], ...]

    @property
    def takes_all(self) -> bool:
        """The phase has no common end of jobs: its window is as long as it took, and every request counts."""
        return self.duration is None or self.kind == "wait"

    @property
    def calibrates(self) -> bool:
        """See plan.is_calibration."""
        return is_calibration(self.name, self.role)


@dataclass
class ArchivedRun:
    """One run directory. What is missing or damaged is in `errors`, as text; the rest is as good as it is."""

    path: Path
    name: str  # "00000000/id-1a2b3c4d"
    complete: Optional[Mapping[str, Any]] = None
    going_on: bool = False  # a process of this machine executes it
    plan: Mapping[str, Any] = field(default_factory=dict)
    manifest: Mapping[str, Any] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)
    phases: List[ArchivedPhase] = field(default_factory=list)
    ceilings: Mapping[str, Mapping[str, Ceiling]] = field(default_factory=dict)  # phase -> node
    partials: List[str] = field(default_factory=list)  # directories of interrupted attempts
    errors: List[Tuple[Optional[str], str]] = field(default_factory=list)  # (phase directory, what is wrong)
    damage: Dict[str, None] = field(default_factory=dict)  # what was wrong with lines of agents, by what has read them
    changed: Mapping[str, str] = field(default_factory=dict)  # files that are not as they were at the end -> why


def find_runs(path: Path) -> List[Path]:
    """Return the run directories of an archive, of its results/, of one iteration, or the one that `path` is.

    Raises NotThere; ArchivesBelow; NoRun when there is none; Unreadable when a folder of the archive cannot be read,
    and when the path is in a run of ours.
    """
    with reading(path):
        if not path.exists():
            raise NotThere(f"{path}: no such file or directory")
        if not path.is_dir():
            raise NoRun(f"{path}: no directory")
        confine(path)
        runs = [path] if path.name.startswith("id-") or (path / "phases").is_dir() else _runs_in(path)
        if runs:
            return runs
        refuse_part_of_run(path)
        archives = _archives_below(path)
    if archives:
        raise ArchivesBelow(path, archives)
    raise NoRun(f"{path}: no run in it (looked for results/*/id-*)")


def refuse_part_of_run(path: Path) -> None:
    """Raise Unreadable for a path below the folder of a run of ours: no number of a part has the run's warnings.

    The place of a part counts, whatever links and `..` of the path lead to it.
    """
    for folder in Path(os.path.realpath(path)).parents:
        marks = ((folder / "plan.json").is_file(), (folder / "phases").is_dir())
        if all(marks) or (any(marks) and folder.name.startswith("id-")):
            raise Unreadable(f"{path}: is a part of a run: name the run, {folder}")


def _runs_in(path: Path) -> List[Path]:
    """Return the run directories of an archive, of its results/, or of one iteration. Raises Unreadable."""
    for places in _places_of_runs(path):
        folders = [folder for place in places for folder in _folders_in(place)]
        runs = [Path(folder) for folder in folders if os.path.basename(folder).startswith("id-")]
        if runs:
            name_renamed_runs(folders)
            return runs
    return []


#: folders below a folder in which archives are looked for: more are somebody's disk
_MOST_FOLDERS = 10_000


def _archives_below(path: Path) -> List[Path]:
    """Return the archives, and runs without one, in the folders below a folder; what cannot be read has none."""
    archives: List[Path] = []
    folders: Deque[Path] = deque([path])
    seen = 0
    while folders and seen < _MOST_FOLDERS:
        seen += 1
        with contextlib.suppress(Unreadable):
            for folder in map(Path, _folders_in(str(folders.popleft()))):
                if _is_archive(folder):
                    archives.append(folder)
                else:
                    folders.append(folder)
    return archives


def _is_archive(folder: Path) -> bool:
    try:
        return (folder / "phases").is_dir() or bool(_runs_in(folder))
    except (Unreadable, PermissionError):
        return False


def _places_of_runs(path: Path) -> Iterator[List[str]]:
    """Yield the folders that may have the runs of an archive, then those of its results/, then those of an iteration.
    """
    results = os.path.join(path, "results")
    if not os.path.islink(results):
        yield _folders_in(results)
    # another folder that is not ours to read, such as lost+found, is no iteration
    yield [
        folder for folder in _folders_in(str(path))
        if os.path.basename(folder).isdigit() or os.access(folder, os.R_OK | os.X_OK)
    ]  # fmt: skip
    yield [str(path)]


def _folders_in(folder: str) -> List[str]:
    """Return the folders in a folder, sorted; [] if it is no folder. Raises Unreadable.

    A link is left out: it could lead anywhere.
    """
    try:
        with os.scandir(folder) as entries:
            return sorted(entry.path for entry in entries if entry.is_dir(follow_symlinks=False))
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as e:
        raise Unreadable(f"{folder}: {NOT_ALLOWED if isinstance(e, PermissionError) else e.strerror or e}") from e


def read_run(path: Path, going_on: bool = False) -> ArchivedRun:
    """Return a run of an archive, complete or not. Raises Unreadable for another archive format, not for damage.

    `going_on`: somebody has seen that it goes on, as one of another machine does.
    """
    refusal = archive_refusal(path)
    if refusal:
        raise Unreadable(refusal)
    changed = check_sums(path).changed
    path = path.resolve()
    run = ArchivedRun(path, name_of(path), changed=changed)
    run.complete = _document(run, path / "complete", needed=False)
    run.going_on = run.complete is None and (going_on or is_going_on(path))
    run.plan = _document(run, path / "plan.json") or {}
    run.manifest = _document(run, path / "manifest.json", needed=not run.going_on) or {}
    run.config = _cluster_config(run)
    run.ceilings = _ceilings(run)
    for directory in sorted((path / "phases").glob("*")) if (path / "phases").is_dir() else []:
        if not directory.is_dir():
            continue
        if ".partial-" in directory.name or not (directory / "phase.json").exists():
            if not (run.going_on and directory.name.endswith(RUNNING)):
                run.partials.append(directory.name)
        else:
            try:
                run.phases.append(_phase(directory, read_json(directory / "phase.json")))
            except (OSError, ValueError, KeyError, TypeError, AttributeError) as e:
                run.errors.append((directory.name, f"phase.json cannot be used: {type(e).__name__}: {e}"))
    run.phases.sort(key=lambda phase: phase.index)
    return run


def name_of(run: Path) -> str:
    """Return the name of a run by its directory, whose links are resolved: iteration/id-..."""
    return f"{run.parent.name}/{run.name}"


#: events that end an invocation of a run
_ENDS = ("run-failed", "run-interrupted", "run-done")


def is_going_on(path: Path) -> bool:
    """Tell whether a run is executed now: what a run that has ended says of itself is said while it holds its journal.
    """
    if not is_held(path / "journal.jsonl"):
        return False
    try:
        ends = [line["t"] for line in journal_lines(path / "events.jsonl") if line["event"] in _ENDS]
        begins = [line["t"] for line in journal_lines(path / "journal.jsonl") if line["event"] == "invocation"]
    except OSError:  # only its user may read the journal
        return True
    return max(ends, default=0.0) < max(begins, default=1.0)


def _document(run: ArchivedRun, path: Path, needed: bool = True) -> Optional[Mapping[str, Any]]:
    try:
        data = read_json(path)
        if isinstance(data, dict):
            return data
        run.errors.append((None, f"{path.name} is not a mapping"))
    except FileNotFoundError:
        if needed and path.name not in run.changed:  # which says why it is not read
            run.errors.append((None, f"{path.name} is missing"))
    except (OSError, ValueError) as e:
        run.errors.append((None, f"{path.name} cannot be read: {e}"))
    return None


def _ceilings(run: ArchivedRun) -> Mapping[str, Mapping[str, Ceiling]]:
    document = _document(run, run.path / "generator.json", needed=False)
    if document is None:
        return {}
    try:
        ceilings: Dict[str, Dict[str, Ceiling]] = {}
        for phase, entry in document["phases"].items():
            for node, rate in entry["nodes"].items():
                ceilings.setdefault(phase, {})[node] = (float(rate["requests_per_s"]), tuple(map(str, rate["beside"])))
        if not all(0 < rate < math.inf for nodes in ceilings.values() for rate, _ in nodes.values()):
            raise ValueError("a rate is none")
        return ceilings
    except (ValueError, KeyError, TypeError, AttributeError) as e:
        run.errors.append((None, f"generator.json cannot be used: {type(e).__name__}: {e}"))
    return {}


def _cluster_config(run: ArchivedRun) -> Mapping[str, Any]:
    """Read CBT's benchmark_config.yaml: {cluster: configuration of the run}."""
    path = run.path / "benchmark_config.yaml"
    if not path.exists():
        return {}
    import yaml

    try:
        data = yaml.safe_load(read_text(path))
    except (OSError, ValueError, yaml.YAMLError) as e:
        run.errors.append((None, f"{path.name} cannot be read: {e}"))
        return {}
    return data.get("cluster", data) if isinstance(data, dict) else {}


def read_running(run: Path) -> Optional[Tuple[ArchivedPhase, Optional[float]]]:
    """Return the phase of a run that has begun and not ended, and when its window begins (None: its rows say it).

    None when there is none. Raises OSError and ValueError for a damaged file.
    """
    for directory in sorted((run / "phases").glob(f"*{RUNNING}")):
        try:
            data = read_json(directory / RUNNING_PHASE)
            return _phase(directory, {**data, "window": None}), _time(data["window"]["start"])
        except FileNotFoundError:
            continue  # its load has not begun
        except (KeyError, TypeError, AttributeError) as e:
            raise ValueError(f"{directory / RUNNING_PHASE}: {type(e).__name__}: {e}") from e
    return None


def _phase(directory: Path, data: Mapping[str, Any]) -> ArchivedPhase:
    if data.get("version") != ARCHIVE_VERSION:
        raise ValueError(f"version {data.get('version')!r}; this program reads version {ARCHIVE_VERSION}")
    name = directory.name[: -len(RUNNING)] if directory.name.endswith(RUNNING) else directory.name
    if directory.is_symlink() or name != f"{int(data['index']):02d}-{data['name']}":
        raise ValueError(f"it is of phase {data['index']}, {data['name']!r}, and in {directory.name}")
    window = data.get("window") or {}
    start, end = window.get("start"), window.get("end")
    asked_load = data.get("asked") or {}
    jobs = tuple(_job(directory, job, str(data.get("engine"))) for job in data.get("jobs") or ())
    if start is not None and end is not None and asked_load.get("duration") is None:
        start, end = _exact(float(start), float(end), jobs)
    return ArchivedPhase(
        path=directory,
        index=int(data["index"]),
        name=str(data["name"]),
        kind=str(data["kind"]),
        role=str(data.get("role") or "none"),
        status=str(data["status"]),
        window=(float(start), float(end)) if start is not None and end is not None else (0.0, 0.0),
        duration=asked_load.get("duration"),
        mix={_op(op): float(share) for op, share in (asked_load.get("mix") or {}).items()},
        load=dict(asked_load),
        engine=str(data.get("engine") or engines_of_archives.DEFAULT),
        block=max(1, int(data.get("block") or 1)),
        jobs=jobs,
        accounting=tuple(data.get("accounting") or ()),
        warnings=tuple(data.get("warnings") or ()),
    )


def _exact(start: float, end: float, jobs: Sequence[ArchivedJob]) -> Tuple[float, float]:
    """Return the begin of the first request of all jobs and the end of the last, else the times as the run has them.

    The run sees when rows come: the first one at the end of its request.
    """
    try:
        from cbt_plugins.results.aggregates_file import span  # needs numpy, without which no numbers are made
    except ImportError:
        return start, end
    spans = [span(job.aggregates) if job.aggregates else None for job in jobs if job.rows_total != 0]
    measured = [pair for pair in spans if pair]
    if not measured or len(measured) < len(spans):
        return start, end
    first, last = min(pair[0] for pair in measured), max(pair[1] for pair in measured)
    near = abs(first - start) < APART and abs(last - end) < APART and first < last
    return (first, last) if near else (start, end)


def _job(directory: Path, data: Mapping[str, Any], engine: str) -> ArchivedJob:
    return ArchivedJob(
        id=str(data["id"]),
        driver=str(data.get("driver") or data["id"]),
        node=str(data["node"]),
        op=_op(str(data["op"])),
        workers=int(data["workers"]),
        rate_limit=float(data.get("rate_limit") or 0),
        rows=_inside(directory, data.get("rows")),
        aggregates=_inside(directory, data.get("aggregates")),
        role=str(data.get("role") or ""),
        clock_offset=float(data.get("clock_offset") or 0),
        bucket=str(data.get("bucket") or ""),
        prefix=str(data.get("prefix") or ""),
        sizes=tuple((int(low), int(high), float(share)) for low, high, share in data.get("sizes") or ()),
        ended=_time(data.get("ended")),
        exit=data.get("exit"),
        signal=data.get("signal"),
        cut=bool(data.get("cut")),
        restarts=int(data.get("restarts") or 0),
        rows_total=data.get("rows_total"),
        cbt_load=engines_of_archives.is_cbt_load(engine, str(data.get("role") or "")),
        ramp=float((data.get("spec") or {}).get("ramp") or 0),
        driver_end=dict(data.get("driver_end") or {}),
        loops=tuple(_loops(data, data.get("driver_end") or {})),
        urls=tuple(map(str, data.get("urls") or ())),
        began=_began(data),
    )


def _began(job: Mapping[str, Any]) -> Optional[float]:
    """Return the time a job could begin to send requests: before its first row, which comes when a request ends."""
    end = job.get("driver_end") or {}
    if "span" in end:
        return _time(job.get("first_row"))
    if end.get("began") is not None:
        return _time(float(end["began"]) - float(job.get("clock_offset") or 0))
    return _time(job.get("started"))


def _time(value: Any) -> Optional[float]:
    """Return a time, or None; raise ValueError or TypeError for anything else, which costs the phase."""
    if value is None:
        return None
    if not math.isfinite(float(value)):
        raise ValueError(f"{value!r} is not a time")
    return float(value)


def _loops(job: Mapping[str, Any], end: Mapping[str, Any]) -> Iterator[ArchivedLoop]:
    """Yield the works of a job, or the only loop."""
    spec = job.get("spec") or {}
    only = {"workers": job["workers"], "rate": job.get("rate_limit")}
    loop_ends = {loop_end.get("name", ""): loop_end for loop_end in end.get("works") or [end]}
    for work in spec.get("works") or [only]:
        name = str(work.get("name", ""))
        loop_end = loop_ends.get(name, {})
        yield ArchivedLoop(
            name,
            int(work["workers"]),
            float(work.get("rate") or 0),
            work.get("arrivals") != "even",
            float(loop_end.get("latest_start") or 0),
            int(loop_end.get("unstarted") or 0),
        )


def _op(name: str) -> str:
    work, op = split_op(name)
    return op_of_work(work, op.upper())


def _inside(directory: Path, name: Optional[str]) -> Optional[Path]:
    """Return a file of a phase, None for no name. Raises ValueError for a path to elsewhere."""
    if not name:
        return None
    if Path(name).is_absolute() or ".." in Path(name).parts:
        raise ValueError(f"{name!r} is not in the phase's folder")
    return directory / name


def texts(run: Path) -> Dict[str, str]:
    """Return the records around the run in this directory: path in it -> text, the most asked for first."""
    names = ["config.yaml", "plan.json", "benchmark_config.yaml", "manifest.json", "events.jsonl"]
    paths = {name: run / name for name in names}
    for directory in ("before", "after"):
        for path in sorted((run / "cluster" / directory).glob("[!.]*")):
            paths[str(path.relative_to(run))] = path
    own: Dict[str, str] = {}
    for name, path in paths.items():
        with contextlib.suppress(OSError):  # a link may lead to what is not meant for a report
            own[name] = read_text(path)
    return own
