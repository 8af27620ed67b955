"""The index of many runs: the numbers of each, so that the next look reads only the archives that are new.

It holds nothing that the archives do not have, and is made anew from them at any time. A run is in it when it has ended
and is sealed. Its entry counts while the files that its numbers are from are the same (size, times, inode); all files
were compared with SHA256SUMS when the entry was made. An index that is damaged, of another user, or of another version
is not read.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from functools import cache, wraps
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Mapping, Sequence, Tuple, TypeVar

from cbt_plugins import __version__
from cbt_plugins.archive_files import PRIVATE, open_regular
from cbt_plugins.checksums import END
from cbt_plugins.checksums import FILE as SUMS
from cbt_plugins.journal import MOST, lines_of, write_whole
from cbt_plugins.results.archive import find_runs
from cbt_plugins.results.record_reader import readable_records, records_of
from cbt_plugins.results.result_file import NotThere, Unreadable
from cbt_plugins.results.run_record import Key, Measurement, ResultWarning, RunRecord, Takes
from cbt_plugins.results.summary_file import FILE as SUMMARY
from cbt_plugins.results.worker_processes import most_workers, worker_processes
from cbt_plugins.warning_kinds import caps, forbids_verdict

#: 1: the first one. 2: runs that are not to be trusted are not usable. 3: percentiles of failures. 4: rows of failures
#: that come close together. 5: limits of bad seconds, failures of which a repetition was refused. 6: warnings about
#: limits of the load, the metrics of a warning, no steps of ladders but warnings about them. 7: ladders that missed
#: with each load. A change of what an entry has is a new number
FORMAT = 7
#: files of a run that its record is made of
_EVIDENCE = (END, SUMS, SUMMARY, "manifest.json", "plan.json", "benchmark_config.yaml", "phases")
#: runs that are read by this process alone; starting another one takes as long
_FEW = 40
#: processes at most that read runs: the memory of many processors would be large
_MOST_WORKERS = 2

_Read = TypeVar("_Read")
#: what a run leaves as plain values, one for each of its records
_Plain = Dict[str, Any]
_ABOUT = ("name", "kind", "usable", "label", "started", "run_id")


def read_once(read: Callable[[Path], _Read]) -> Callable[[Path], _Read]:
    """Return a reader of archives or runs that reads one again only where the state of a run in it has changed.

    A run that is not sealed has no state: it is read each time. Raises what `read` raises, and Unreadable.
    """
    in_state = cache(lambda path, _states: read(path))

    @wraps(read)
    def reader(path: Path) -> _Read:
        states = tuple(map(_state_of, _runs_of(path)))
        return in_state(path, states) if states and all(states) else read(path)

    return reader


@read_once
def unchanged_records(archive: Path) -> Tuple[RunRecord, ...]:
    """Return the records of an archive. Raises Unreadable where there is nothing to read."""
    return tuple(records_of(archive))


class IndexRefused(Exception):
    """An index that must not be believed; the text says why."""


class RecordIndex:
    """The index in one file; `notes` are sentences on why it was made anew."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._tables: Dict[str, Any] = {}  # digest -> what many records have in common: configurations, keys
        self._lines: List[str] = []
        self.notes: List[str] = []
        self.read = 0  # runs that were read, and not taken from the index
        #: change points of earlier looks (compare.statistics.change_point_search)
        self.settled: Dict[str, Any] = {}

    def records(self, archives: Sequence[Path], takes: Takes, anew: bool = False) -> List[RunRecord]:
        """Return the records of all runs with the measurements that are wanted; `anew`: by the archives alone.

        A run, or an archive, that cannot be read is a record without numbers. Raises NotThere, OSError.
        """
        runs = [run for archive in archives for run in _runs_of(archive)]
        states = {run: _state_of(run) for run in runs}
        run_of_path = {os.path.abspath(run): run for run, state in states.items() if state}
        records: Dict[Path, List[RunRecord]] = {}
        shapes = _Shapes(self._tables, takes)
        for line, (path, state, entry) in () if anew else self._entries():
            run = run_of_path.get(path)
            if run is not None and states[run] == state:
                records[run] = [shapes.record(run, plain) for plain in entry]
                self._lines.append(line)
        missing = [run for run in runs if run not in records]
        self.read = len(missing)
        for run, entry in zip(missing, _read(missing)):
            for plain in entry:
                plain.update({name: self._in_table(plain[name]) for name in ("config", "keys")})
            records[run] = [shapes.record(run, plain) for plain in entry]
            if states[run] and all(plain["kind"] for plain in entry):
                self._lines.append(_dumps([os.path.abspath(run), states[run], entry]))
        return [record for run in runs for record in records[run]]

    def write(self) -> None:
        """Write the index with the entries of the last `records`, and what is settled. Raises OSError."""
        used = set(re.findall(r'"([0-9a-f]{64})"', "\n".join(self._lines)))
        tables = {digest: table for digest, table in self._tables.items() if digest in used}
        text = "\n".join([_head(self._file), _dumps([tables, self.settled]), *self._lines]) + "\n"
        os.makedirs(self._file.parent, mode=0o700, exist_ok=True)
        write_whole(self._file, f"{text}{_digest(text.encode())}\n", PRIVATE)

    def _in_table(self, content: Any) -> str:
        digest = _digest(_dumps(content).encode())
        self._tables.setdefault(digest, content)
        return digest

    def _entries(self) -> Iterator[Tuple[str, Tuple[str, str, List[_Plain]]]]:
        """Yield the lines of the index and what they say; none where it must not be believed."""
        try:
            lines = _lines_of(self._file)
        except FileNotFoundError:
            return
        except IndexRefused as e:
            self.notes.append(f"{self._file}: {e}: made anew from the archives")
            return
        tables, self.settled = json.loads(lines[1])
        self._tables.update(tables)
        yield from ((line, json.loads(line)) for line in lines[2:])


class _Shapes:
    """Records of plain values, with the measurements that are wanted."""

    def __init__(self, tables: Mapping[str, Any], takes: Takes) -> None:
        self._tables, self._takes = tables, takes
        self._wanted: Dict[str, List[Tuple[int, Key]]] = {}  # digest of keys -> places and keys of the wanted ones

    def record(self, run: Path, plain: _Plain) -> RunRecord:
        """Return the record of a run; equal configurations are one object."""
        keys = plain["keys"]
        if keys not in self._wanted:
            places = enumerate(map(tuple, self._tables[keys]))
            self._wanted[keys] = [(i, key) for i, key in places if self._takes(key)]
        values, limits = plain["values"], plain["limits"]
        return RunRecord(
            source=str(run),
            config=self._tables[plain["config"]],
            measurements=tuple(
                Measurement(*key, values[i], limit_ms=limits.get(str(i))) for i, key in self._wanted[keys]
            ),
            warnings=tuple(
                ResultWarning(code, text, phase, op, *map(tuple, about))
                for code, text, phase, op, *about in plain["warnings"]
            ),
            **{name: plain[name] for name in _ABOUT},
        )


def _lines_of(file: Path) -> List[str]:
    """Return the lines of an index without its digest. Raises IndexRefused, FileNotFoundError."""
    try:
        with open_regular(file, MOST, own=True, judged=False) as source:
            if os.fstat(source.fileno()).st_mode & 0o022:
                raise IndexRefused("others may write it")
            lines = list(lines_of(source))
    except FileNotFoundError:
        raise
    except OSError as e:
        raise IndexRefused(e.strerror or str(e)) from e
    *lines, last = lines or [b""]
    if last.strip().decode("ascii", "replace") != _digest(b"".join(lines)):
        raise IndexRefused("damaged")
    if len(lines) < 2 or lines[0].decode().strip() != _head(file):
        raise IndexRefused("of another version or place")
    return [line.decode().rstrip("\n") for line in lines]


def _head(file: Path) -> str:
    return json.dumps({"history index": FORMAT, "cbt_plugins": __version__, "place": os.path.abspath(file)})


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _runs_of(archive: Path) -> List[Path]:
    """Return the runs of an archive; what has none is one itself: another program's result, or unreadable.

    Raises NotThere.
    """
    try:
        return find_runs(archive)
    except NotThere:
        raise
    except Unreadable:
        return [archive]


def _state_of(run: Path) -> str:
    """Return a digest that changes with the files of a run's record; "" for a run that has no place in an index."""
    facts = []
    for name in _EVIDENCE:
        try:
            stat = os.lstat(run / name)
            facts.append((name, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino))
        except OSError:
            if name in (END, SUMS, SUMMARY):
                return ""
    return _digest(repr(facts).encode())


def _read(runs: Sequence[Path]) -> Iterator[List[_Plain]]:
    """Yield the records of each run as plain values."""
    workers = min(most_workers(), _MOST_WORKERS)
    if len(runs) < _FEW or workers == 1:
        yield from map(_plain_records, runs)
        return
    with worker_processes(workers, threads=True) as pool:
        yield from pool.map(_plain_records, runs, chunksize=8)


def _plain_records(run: Path) -> List[_Plain]:
    return [_plain(record) for record in readable_records([run])]


def _plain(record: RunRecord) -> _Plain:
    """Return a record as plain values, without series and warnings that decide nothing."""
    return {
        **{name: getattr(record, name) for name in _ABOUT},
        "config": dict(record.config),
        "keys": list(record.keys),
        "values": [line.value for line in record.measurements],
        "limits": {str(i): line.limit_ms for i, line in enumerate(record.measurements) if line.limit_ms},
        "warnings": [
            (warning.code, warning.text, warning.phase, warning.op, warning.episodes, warning.loaded, warning.metrics)
            for warning in record.warnings
            if forbids_verdict(warning.code) or caps(warning.code) or not record.usable
        ],
    }


def _dumps(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))
