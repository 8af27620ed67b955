"""SHA256SUMS of a finished run: what each of its files was when the run ended, and which ones are so no more.

They show damage and careless edits. Whoever forges a file can forge the sums too: keep the sum of SHA256SUMS elsewhere.
"""

from __future__ import annotations

import errno
import hashlib
import json
import logging
import os
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Tuple

from cbt_plugins.archive_files import open_regular, refuse
from cbt_plugins.journal import MOST, read_json, write_whole

log = logging.getLogger("cbt")

FILE = "SHA256SUMS"
#: ends a run; says under SEALED that it has a SHA256SUMS
END, SEALED = "complete", "sealed"
#: made from the other files, at any time; the page is made last
PAGE = "report.html"
_DERIVED = (FILE, "summary.json", PAGE)
#: journals of what an undo obeys: each line has a seal, nobody else may read them, and no number comes from them
_JOURNALS = ("undo.jsonl", "journal.jsonl")
#: a note of files that are still on nodes; what was not fetched in full; what an export writes beside the rows
_CHANGING = re.compile(r"monitors/[^/]+/(left\.json|\.fetch-[^/]*/.*)|phases/[^/]+/json_output\.[^/]*", re.DOTALL)
#: folders of which readers take every file
_READ_FOLDERS = ("phases/", "monitors/", "cluster/")
#: why a file without a sum differs
ADDED = "came after the run ended"
_NOT_ENDED = "the run has not ended"
_NOT_OURS = "no run of cbt-plugins: only such a run has a SHA256SUMS"
#: what a run of cbt-plugins has from its begin on
_OF_OURS = ("plan.json", "journal.jsonl", "phases")
#: files without a sum that are named where SHA256SUMS is cut
_SHOWN = 5
#: rows of requests: nearly all bytes of an archive, and read only where there are no aggregates
_ROWS = re.compile(r"phases/[^/]+/rows/")
_LETTERS = {"\\": "\\", "n": "\n", "r": "\r"}
_LINE = re.compile(r"(\\?)([0-9a-f]{64})  (.+)")
#: folders above a rows file, up to its run's
_DEEP = 4
_CHUNK = 1 << 20
#: errors of a file that is no evidence: a link, a pipe, gone, or not this user's to read; others are the disk's
_NO_FILE = (errno.ELOOP, errno.EINVAL, errno.ENOENT, errno.EACCES, errno.EPERM, errno.EISDIR)
#: bytes that a file may have in any case: one without end must not be read to its end
_LARGE = 1 << 30
#: bytes of holes that a file may have: they cost its sender nothing, and its reader hours
_HOLES = 1 << 26


@dataclass(frozen=True)
class FileSums:
    """What SHA256SUMS says of the files of a run; `changed` has the path of each that is not as it was -> why."""

    sealed: bool = False  # there is a SHA256SUMS
    files: int = 0
    changed: Mapping[str, str] = field(default_factory=dict)
    note: str = ""  # why there are no sums to compare with


def end_run(run: Path, facts: Mapping[str, Any]) -> None:
    """Write SHA256SUMS with the sums of all files of a run, and then its end marker, with these facts. Raises OSError.
    """
    names = [name for name in _readable(run, _files(run)) if name != END]
    sizes = [os.lstat(run / name).st_size for name in names]
    marker = {**facts, SEALED: {"files": len(names) + 1, "bytes": sum(sizes)}}
    text = json.dumps(marker, indent=1) + "\n"
    _write(run, {**_sums_of(run, names), END: hashlib.sha256(text.encode()).hexdigest()})
    write_whole(run / END, text)


def reopen(run: Path) -> None:
    """Remove SHA256SUMS of a run that continues without its end marker. Raises OSError."""
    if not os.path.lexists(run / END) and os.path.lexists(run / FILE):
        os.unlink(run / FILE)


def in_read_folder(name: str) -> bool:
    """Tell whether readers take every file of the folder of a run's file; elsewhere they take files by their names."""
    return name.startswith(_READ_FOLDERS)


def add_sums(run: Path, paths: Sequence[Path]) -> None:
    """Add the sums of these files and folders, which came since the run ended; no other sum changes. Raises OSError."""
    if not os.path.lexists(run / FILE):
        return
    sums, torn = _read(run)
    if _cut(run, sums, torn):
        return  # writing it anew would hide that
    late = [os.path.relpath(path, run) for path in paths]
    names = [
        name
        for name in _files(run)
        if name not in sums and any(name == path or name.startswith(f"{path}{os.sep}") for path in late)
    ]
    _write(run, {**_sums_of(run, _readable(run, names)), **sums})


def check_sums(run: Path, rows: bool = False) -> FileSums:
    """Compare the files of a run with its SHA256SUMS, `rows` too; those that were changed are not read any more.

    Where rows are read they are judged by `row_change`. A run that has not ended has no sums yet.
    """
    evidence = _judged(run, rows)
    refuse(run, {name: f"{why}: not read" for name, why in evidence.changed.items()})
    return evidence


def _judged(run: Path, rows: bool) -> FileSums:
    ended = os.path.lexists(run / END)
    if not os.path.lexists(run / FILE):
        is_ours = any(os.path.lexists(run / name) for name in _OF_OURS)
        return _without_sums(run) if ended else FileSums(note=_NOT_ENDED if is_ours else _NOT_OURS)
    try:
        sums, torn = _read(run)
    except OSError as error:
        return FileSums(True, 0, {FILE: _unread(error)})
    present = set(_files(run))
    changed = {name: _absence(run, name) for name in {*sums, END} if name not in present}
    unlisted = sorted(present - set(sums))
    cut = _cut(run, sums, torn)
    if cut:  # nobody knows which of the others came since: they are read, and the run is invalid
        changed[FILE] = f"is cut: {cut}{_without_sum(unlisted)}"
        unlisted = []
    for name in unlisted:
        obstacle = _obstacle(run / name) if in_read_folder(name) else None
        changed[name] = _unread(obstacle) if obstacle else ADDED
    wanted = [name for name in sums if name in present and (rows or not _ROWS.match(name))]
    for name, digest in _digests(run, wanted, _most(run, sums)):
        if digest != sums[name]:
            changed[name] = "changed since the run ended" if _is_digest(digest) else digest
    return FileSums(True, len(sums), dict(sorted(changed.items())))


def _cut(run: Path, sums: Mapping[str, str], torn: bool) -> str:
    """Return the reason why SHA256SUMS cannot be as the run wrote it; "" where nothing says so.

    Files that were fetched later have sums too: there may be more than the end marker says.
    """
    if not sums:
        return "it has no sums"
    if torn:
        return "a line of it is damaged"
    stated = _stated(run, sums, "files")
    if END not in sums or len(sums) < stated:
        return f"it has sums of {len(sums)} of {stated} files" if stated > len(sums) else f"it has no sum of {END}"
    return ""


def _without_sum(names: Sequence[str]) -> str:
    if not names:
        return ""
    shown = ", ".join(names[:_SHOWN])
    return f"; without a sum: {shown}{f' and {len(names) - _SHOWN} more' if len(names) > _SHOWN else ''}"


def _most(run: Path, sums: Mapping[str, str]) -> int:
    """Return the bytes that a file of a run can have: what its end marker says counts only where that has its sum."""
    return max(_stated(run, sums, "bytes"), _LARGE) if END in sums else _LARGE


def _stated(run: Path, sums: Mapping[str, str], key: str) -> int:
    """Return a number of the end marker under SEALED; 0 without, and where it differs from the sum that it has."""
    try:
        with open_regular(run / END, MOST, judged=False) as file:
            data = file.read()
        number = int(json.loads(data)[SEALED][key])
        return number if sums.get(END, hashlib.sha256(data).hexdigest()) == hashlib.sha256(data).hexdigest() else 0
    except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return 0


def _without_sums(run: Path) -> FileSums:
    try:
        sealed = SEALED in read_json(run / END)
    except (OSError, ValueError, TypeError):
        sealed = False
    if sealed:
        return FileSums(True, 0, {FILE: "is missing"})
    return FileSums(note="written by a version that made no SHA256SUMS: a changed file would not be noticed")


def row_change(path: Path) -> Optional[str]:
    """Return the reason why a file of a run is not as it was when the run ended; None where it is, or nobody knows."""
    run = next((folder for folder in list(path.parents)[:_DEEP] if os.path.lexists(folder / FILE)), None)
    if run is None or not os.path.lexists(run / END):
        return None
    name = os.path.relpath(path, run)
    try:
        sums, torn = _read(run)
    except OSError:
        return None
    if name not in sums:
        return None if _cut(run, sums, torn) else ADDED
    ((_, digest),) = _digests(run, [name], _most(run, sums))
    return None if digest == sums[name] else "changed since the run ended" if _is_digest(digest) else digest


def sum_of_sums(run: Path) -> str:
    """Return the SHA-256 of SHA256SUMS itself; "" where there is none."""
    return sum_of(run, FILE, MOST)


def sum_of(run: Path, name: str, most: int) -> str:
    """Return the SHA-256 of a file of a run; "" where it cannot be read, or has more than `most` bytes."""
    ((_, digest),) = _digests(run, [name], most)
    return digest if _is_digest(digest) else ""


def _files(run: Path) -> Iterator[str]:
    """Yield the files of a run that have sums, as paths in it."""
    for top, folders, names in os.walk(run):
        links = [folder for folder in folders if os.path.islink(os.path.join(top, folder))]
        for name in [*names, *links]:
            path = os.path.relpath(os.path.join(top, name), run)
            if not name.startswith(".") and path not in (*_DERIVED, *_JOURNALS) and not _CHANGING.fullmatch(path):
                yield path


def _readable(run: Path, names: Iterable[str]) -> List[str]:
    """Return the files that can have a sum, and warn of the others: they must not keep a long run from its end.

    Raises OSError when the disk fails.
    """
    readable = []
    for name in names:
        obstacle = _obstacle(run / name)
        if obstacle is None:
            readable.append(name)
        elif obstacle.errno in _NO_FILE:
            log.warning("%s has no sum in %s: it %s", run / name, FILE, _unread(obstacle))
        else:
            raise obstacle
    return readable


def _obstacle(path: Path) -> Optional[OSError]:
    """Return the error of opening a file; None where it can be read."""
    try:
        open_regular(path, judged=False).close()
    except OSError as error:
        return error
    return None


def _absence(run: Path, name: str) -> str:
    """Return the reason why a file is not among those of its run: a folder above it may hide it from this user."""
    try:
        os.lstat(run / name)
    except PermissionError as error:
        return _unread(error)
    except OSError:
        return "is missing"
    folders = list((run / name).relative_to(run).parents)
    hidden = any(not os.access(run / folder, os.R_OK, effective_ids=True) for folder in folders)
    return _unread(PermissionError(errno.EACCES, os.strerror(errno.EACCES))) if hidden else "is missing"


def _unread(error: OSError) -> str:
    return f"cannot be read: {error.strerror or error}"


def _sums_of(run: Path, names: List[str]) -> Dict[str, str]:
    sums = dict(_digests(run, names, None))
    for name, digest in sums.items():
        if not _is_digest(digest):
            raise OSError(f"{run / name}: {digest}")
    return sums


def _is_digest(text: str) -> bool:
    return len(text) == 64


def _write(run: Path, sums: Mapping[str, str]) -> None:
    write_whole(run / FILE, "".join(_line(sums[name], name) for name in sorted(sums)), errors="surrogateescape")


def _line(digest: str, name: str) -> str:
    """Return a line as `sha256sum` writes it."""
    plain = name.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
    return f"{'' if plain == name else chr(92)}{digest}  {plain}\n"


def _read(run: Path) -> Tuple[Dict[str, str], bool]:
    """Return path -> sum, and whether a line is damaged: its file then has no sum. Raises OSError."""
    sums = {}
    with open_regular(run / FILE, MOST, judged=False) as file:
        *lines, last = file.read().decode("utf-8", "surrogateescape").split("\n")
    for line in lines:
        match = _LINE.fullmatch(line)
        if match:
            escaped, digest, name = match.groups()
            plain = re.sub(r"\\(.)", lambda escape: _LETTERS.get(escape[1], escape[0]), name) if escaped else name
            sums[plain] = digest
    return sums, bool(last) or len(sums) < len(lines)


#: sums of files that this process has read: (path, size, times, inode) -> sum
_seen: Dict[Tuple[Any, ...], str] = {}


def _digests(run: Path, names: List[str], most: Optional[int]) -> Iterator[Tuple[str, str]]:
    """Yield each file with its SHA-256, or why it cannot be read: one of more than `most` bytes is not.

    With `most`, one with large holes is not either.
    """
    with ThreadPoolExecutor(min(4, os.cpu_count() or 1)) as pool:  # hashing lets other threads run
        yield from zip(names, pool.map(partial(_digest, most=most), (run / name for name in names)))


def _digest(path: Path, most: Optional[int]) -> str:
    digest = hashlib.sha256()
    try:
        with open_regular(path, most, judged=False) as file:
            facts = os.fstat(file.fileno())
            key = (str(path), facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns, facts.st_ino)
            if key not in _seen:
                if most is not None and facts.st_size > _HOLES and _has_large_holes(file.fileno(), facts.st_size):
                    return f"cannot be read: has more than {_HOLES} bytes of holes (a sparse file)"
                while True:
                    chunk = file.read(_CHUNK)
                    if not chunk:
                        break
                    digest.update(chunk)
                _seen[key] = digest.hexdigest()
            return _seen[key]
    except FileNotFoundError:
        return "is missing"
    except OSError as error:
        return _unread(error)


def _has_large_holes(handle: int, size: int) -> bool:
    """Tell whether a file has more than _HOLES bytes of holes; False where its file system does not say."""
    position = holes = 0
    try:
        while holes <= _HOLES and position < size:
            data = os.lseek(handle, position, os.SEEK_DATA)
            holes += data - position
            position = os.lseek(handle, data, os.SEEK_HOLE)
    except OSError as error:
        if error.errno == errno.ENXIO:  # no data up to its end
            holes += size - position
    os.lseek(handle, 0, os.SEEK_SET)
    return holes > _HOLES
