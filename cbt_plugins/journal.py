"""Files of an archive: journals of JSON lines that survive a kill, atomic writes, the version of the format."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import io
import json
import logging
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, BinaryIO, Callable, Dict, Iterable, Iterator, List, Mapping, Optional, Tuple, TypeVar, Union

from cbt_plugins import __version__
from cbt_plugins.archive_files import SHARED, folder_of, open_regular, open_to_append

log = logging.getLogger(__name__)

T = TypeVar("T")

#: version of an archive's format, in its manifest and its phases. 1: before 0.2.0. 2 (0.2.0): the glossary's terms
ARCHIVE_VERSION = 2
#: file of a phase: what each of its jobs had done, once a second or once in ten
HEARTBEATS = "heartbeat.jsonl"

#: of a phase that has not ended, in the form of its phase.json
RUNNING_PHASE = "running.json"
#: files of a run's directory that have the version; each is there before anything on the cluster is changed
_VERSIONED = ("manifest.json", "cluster.json")


#: characters of a block of a text
_BLOCK = 1 << 16
#: files that are written to disk at once
_SYNCED_AT_ONCE = 16


class JournalError(Exception):
    """A journal that cannot be opened; its text, for the user, names the file, why, and what to do."""


class JournalInUse(JournalError):
    """A journal that another process has open."""


class Journal:
    """Records, one JSON object a line, each on disk before `write` returns.

    A last line that was torn by a kill is cut off by the first `write`; all others are kept. While it is open no other
    process can open it: raises JournalInUse then, and JournalError for any other reason. The file must be this user's
    and have no other name, unless it is `anybodys`. With `to_read`, one that is there and cannot be written is opened
    all the same, and each `write` raises OSError. `mark`, once it is set, gives more facts of a record: its seal.
    """

    def __init__(
        self,
        path: Path,
        mode: int = SHARED,
        to_read: bool = False,
        anybodys: bool = False,
    ) -> None:
        self.mark: Optional[Callable[[Mapping[str, Any]], Mapping[str, Any]]] = None
        self._writing = threading.Lock()
        try:
            self._file = _open(path, mode, to_read, anybodys)
        except OSError as error:
            raise _unusable(path, error) from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._file.close()
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                why = f"{path}: cannot be locked: {error.strerror}: its file system needs flock, for writing"
                raise JournalError(why) from error
            raise JournalInUse(f"another process is using {path.parent}: wait until it ends") from None
        try:
            with open(os.dup(self._file.fileno()), "rb") as file:
                #: `damaged`: numbers of the damaged lines, which `records` lacks
                self.records, self.damaged = _records(lines_of(file), path)
            self._torn = _torn_end(self._file)
        except OSError as error:
            self._file.close()
            raise _unusable(path, error) from error
        except BaseException:
            self._file.close()
            raise

    def write(self, event: str, **facts: Any) -> None:
        """Add a record with the time of now. Raises OSError, on a full disk for example; then nothing was added.

        After an interrupt the record is in the file and in `records`, or in neither.
        """
        with self._writing:
            record: Dict[str, Any] = {"t": round(time.time(), 6), "event": event, **facts}
            record.update(self.mark(record) if self.mark else {})
            self._cut_torn_end()
            left, before = memoryview((json.dumps(record) + "\n").encode()), os.fstat(self._file.fileno()).st_size
            try:
                while left:
                    left = left[self._file.write(left) :]
                os.fsync(self._file.fileno())
                self.records.append(record)
            except BaseException:
                if not self.records or self.records[-1] is not record:
                    self._torn = before  # if it cannot be cut off now, the next `write` does it
                    with contextlib.suppress(OSError):
                        self._cut_torn_end()
                raise

    def _cut_torn_end(self) -> None:
        if self._torn is not None:
            os.ftruncate(self._file.fileno(), self._torn)
            self._torn = None

    def last(self, event: str) -> Dict[str, Any]:
        """Return the newest record of that event; {} when the journal has none."""
        return next((r for r in reversed(self.records) if r["event"] == event), {})

    def all(self, event: str) -> List[Dict[str, Any]]:
        """Return all records of that event, oldest first."""
        return [r for r in self.records if r["event"] == event]

    def since(self, event: str) -> List[Dict[str, Any]]:
        """Return the records after the newest one of that event; all records when the journal has none."""
        newest = max((i for i, r in enumerate(self.records) if r["event"] == event), default=-1)
        return self.records[newest + 1 :]

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def tell(write: Callable[..., Any], event: str, **facts: Any) -> None:
    """Write an event, if it can be written: what the run does next does not depend on it."""
    try:
        write(event, **facts)
    except (OSError, ValueError) as error:
        log.error("%s %s could not be written: %s", event, facts.get("label", ""), error)


def _open(path: Path, mode: int, to_read: bool, anybodys: bool) -> BinaryIO:
    try:
        return open_to_append(path, mode, own=not anybodys)
    except OSError as error:
        if not to_read or error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise
        return open_regular(path, own=not anybodys)


def _unusable(path: Path, error: OSError) -> JournalError:
    return JournalError(disk_full(error, path.parent) or f"{path}: {error.strerror or error}")


def is_held(path: Path) -> bool:
    """Tell whether a process of this machine has a journal open; False where that is not known. It is not touched."""
    try:
        facts = path.stat()
        locks = Path("/proc/locks").read_text()
    except OSError:
        return False
    device = f"{os.major(facts.st_dev):02x}:{os.minor(facts.st_dev):02x}:{facts.st_ino}"
    return any("FLOCK" in line and device in line.split() for line in locks.splitlines())


class LineWriter:
    """A file of JSON lines that somebody may follow while it grows; unlike a journal it is not synced.

    A new one, or with `append` one that goes on after its last whole line.
    """

    def __init__(self, path: Path, append: bool = False) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = open_to_append(path)
        size = _torn_end(handle) if append else 0
        if size is not None:
            os.ftruncate(handle.fileno(), size)
        self._file = io.TextIOWrapper(io.BufferedWriter(handle), encoding="utf-8")

    def write(self, value: Mapping[str, Any]) -> None:
        """Add a line."""
        self._file.write(json.dumps(value) + "\n")
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _torn_end(file: BinaryIO) -> Optional[int]:
    """Return the offset of the last line of a file when it has no end; None when it has one."""
    end = size = os.fstat(file.fileno()).st_size
    while end:
        begin = max(0, end - LONGEST_LINE)
        feed = os.pread(file.fileno(), end - begin, begin).rfind(b"\n")
        if feed >= 0:
            return None if begin + feed + 1 == size else begin + feed + 1
        end = begin
    return 0 if size else None


#: bytes of a document, and of a whole file of lines, beyond which it is none of ours
MOST, _MOST_LINES = 1 << 28, 1 << 33
#: bytes of a line beyond which it is none of ours: a file of zeros has no line feed
LONGEST_LINE = 1 << 26
#: bytes of lines whose objects are in memory at the same time
_PIECE = 1 << 20


def read_bytes(path: Path, most: int = _MOST_LINES) -> bytes:
    """Return the bytes of a regular file. Raises OSError."""
    with open_regular(path, most) as file:
        return file.read()


def read_text(path: Path, most: int = MOST) -> str:
    """Return the text of a regular file, damaged characters replaced. Raises OSError."""
    return read_bytes(path, most).decode("utf-8", errors="replace")


def read_json(path: Path) -> Any:
    """Return the JSON of a regular file. Raises OSError, and ValueError for what is no JSON."""
    try:
        return json.loads(read_bytes(path, MOST).decode("utf-8"))
    except RecursionError as e:
        raise ValueError("nested too deeply") from e


def json_lines(path: Path) -> List[Dict[str, Any]]:
    """Return the objects of a JSON-lines file, without lines that a kill has torn; [] when there is no file.

    A last line without its line feed is torn, whatever it holds: whoever wrote it did not see it on disk.
    """
    return list(each_json_line(path))


def journal_lines(path: Path) -> List[Dict[str, Any]]:
    """Return the records of a journal, without damaged ones; says how many there are. [] when there is no file."""
    return read_journal(path)[0]


def read_journal(path: Path) -> Tuple[List[Dict[str, Any]], List[int]]:
    """Return the records of a journal, and the numbers of its damaged lines: no object, or one without time or event.

    A last line that a kill has torn is neither.
    """
    try:
        file = open_regular(path, _MOST_LINES)
    except (FileNotFoundError, NotADirectoryError):
        return [], []
    with file:
        return _records(lines_of(file), path)


def _records(lines: Iterable[bytes], path: Path) -> Tuple[List[Dict[str, Any]], List[int]]:
    records: List[Dict[str, Any]] = []
    damaged: List[int] = []
    for number, line in enumerate(lines, 1):
        value = _object_of(line)
        if value and isinstance(value.get("t"), (int, float)) and isinstance(value.get("event"), str):
            records.append(value)
        else:
            damaged.append(number)
    if damaged:
        log.warning("%s: damaged lines that are left out: %d", path, len(damaged))
    return records, damaged


def each_json_line(path: Path) -> Iterator[Dict[str, Any]]:
    """Yield the objects of `json_lines`, one line in memory at a time."""
    try:
        file = open_regular(path, _MOST_LINES)
    except (FileNotFoundError, NotADirectoryError):
        return
    with file:
        yield from _objects(lines_of(file))


def lines_of(file: BinaryIO) -> Iterator[bytes]:
    """Yield the whole lines of a file. Raises OSError for one that is too long to be a line."""
    while True:
        line = file.readline(LONGEST_LINE)
        if not line.endswith(b"\n"):
            if len(line) == LONGEST_LINE:
                raise OSError(errno.EFBIG, f"has a line of more than {LONGEST_LINE} bytes")
            return
        yield line


def _objects(lines: Iterable[bytes]) -> Iterator[Dict[str, Any]]:
    for line in lines:
        value = _object_of(line)
        if value is not None:
            yield value


def _object_of(line: bytes) -> Optional[Dict[str, Any]]:
    """Return the object of a line; None for any other line."""
    try:
        value = json.loads(line.decode("utf-8", errors="replace"))
    except (ValueError, RecursionError):
        return None  # torn by a kill or a crash of the machine; later lines may be whole again
    return value if isinstance(value, dict) else None


class LineTail:
    """A file of JSON lines that grows: each `read` returns the objects of the whole lines that came since the last one.

    A file that was replaced, or is shorter than before, is read from its begin: `begun` counts how often one was.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.begun = 0
        self._at = 0
        self._file: Optional[Tuple[int, int]] = None

    def read(self, most: int = LONGEST_LINE) -> List[Dict[str, Any]]:
        """Return the new objects; of more than `most` bytes the first ones. Raises OSError; [] without a file."""
        objects: List[Dict[str, Any]] = []
        try:
            file = open_regular(self.path)
        except (FileNotFoundError, NotADirectoryError):
            return objects
        with file:
            facts = os.fstat(file.fileno())
            if self._file != (facts.st_dev, facts.st_ino) or facts.st_size < self._at:
                self._file, self._at, self.begun = (facts.st_dev, facts.st_ino), 0, self.begun + 1
            file.seek(self._at)
            until = self._at + most
            for line in lines_of(file):
                self._at += len(line)
                value = _object_of(line)
                if value is not None:
                    objects.append(value)
                if self._at >= until:
                    break
        return objects

    def read_pieces(self) -> Iterator[List[Dict[str, Any]]]:
        """Yield the new objects as `read` returns them, those of a megabyte at a time: a file of days has gigabytes."""
        while objects := self.read(_PIECE):
            yield objects


def blocks_of(pieces: Iterable[str]) -> Iterator[str]:
    """Yield pieces of a text joined to blocks: a piece has some ten bytes, and takes more than 50 in memory."""
    block: List[str] = []
    size = 0
    for piece in pieces:
        block.append(piece)
        size += len(piece)
        if size >= _BLOCK:
            yield "".join(block)
            block, size = [], 0
    yield "".join(block)


def write_whole(
    path: Path, text: Union[str, Iterable[Union[str, bytes]]], mode: int = SHARED, errors: str = "backslashreplace"
) -> None:
    """Write a file so that it is there in full or not at all, also after a loss of power; makes its folder.

    `text` may be in pieces, also of bytes. Raises OSError with the name of the file.

    Halves of a pair, which JSON and names of files may have and UTF-8 has not, become escapes, or what `errors` says.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with folder_of(path) as (folder, name):
        draft = os.path.join(os.path.dirname(name), f".{os.path.basename(name)}.{os.getpid()}")
        _remove(draft, folder)
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            with open(os.open(draft, flags, mode, dir_fd=folder), "wb") as file:
                pieces = [text] if isinstance(text, str) else text
                file.writelines(
                    piece if isinstance(piece, bytes) else piece.encode("utf-8", errors) for piece in pieces
                )
                file.flush()
                os.fsync(file.fileno())
            os.replace(draft, name, src_dir_fd=folder, dst_dir_fd=folder)
        except OSError as error:
            if error.filename in (None, draft):  # of a full disk, and of the draft, whose name may have no folder
                error.filename, error.filename2 = str(path), None
            raise
        finally:
            _remove(draft, folder)
    sync_folder(path.parent)


def _remove(name: str, folder: Optional[int]) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(name, dir_fd=folder)


def write_json(path: Path, value: Any, mode: int = SHARED) -> None:
    """Write a value as JSON, as `write_whole` does."""
    write_whole(path, json.dumps(value, indent=1) + "\n", mode)


def sync_folder(folder: Path) -> None:
    """Make sure that the names in a folder survive a loss of power."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_files(folder: Path) -> None:
    """Make sure that all files below a folder survive a loss of power, and their names in it."""
    tree = list(os.walk(folder))
    with ThreadPoolExecutor(_SYNCED_AT_ONCE) as pool:  # a file system puts those of one moment together
        list(pool.map(_sync, (Path(place, name) for place, _, names in tree for name in names)))
        list(pool.map(sync_folder, (Path(place) for place, _, _ in tree)))


def _sync(file: Path) -> None:
    handle = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def disk_full(error: OSError, folder: Path) -> Optional[str]:
    """Return advice when an error says that the disk under a folder is full; None for any other error."""
    full = _full(error, folder)
    return full and f"{full}: free some, then run the same command again to resume"


def _full(error: OSError, folder: Path) -> Optional[str]:
    if error.errno not in (errno.ENOSPC, errno.EDQUOT):
        return None
    disk = folder.resolve()
    while not os.path.ismount(disk):
        disk = disk.parent
    why = "no space is left" if error.errno == errno.ENOSPC else "the quota of this user is used up"
    return f"{error.filename or folder}: {why} on the disk at {disk}"


#: seconds for which somebody may free some of a full disk, and between two attempts
ROOM_LIMIT, ROOM_EVERY = 3600.0, 30.0


def insist_on_room(folder: Path, action: Callable[[], T]) -> T:
    """Do what needs room on the disk under a folder; while that is full, again. Raises OSError after ROOM_LIMIT."""
    until = time.monotonic() + ROOM_LIMIT
    while True:
        try:
            return action()
        except OSError as error:
            full, left = _full(error, folder), until - time.monotonic()
            if full is None or left <= 0:
                raise
            log.error("%s: free some within %.0f min; nothing is lost yet", full, left / 60)
            time.sleep(ROOM_EVERY)


def archive_refusal(run: Path) -> Optional[str]:
    """Return the reason why this program cannot use a run's directory, as one sentence; None where it can.

    What runs (resume, undo) and what reads (report, compare) both ask it.
    """
    for name in _VERSIONED:
        try:
            data = read_json(run / name)
        except (OSError, ValueError):
            continue  # whoever needs the file says what is wrong with it
        version = data.get("version", ARCHIVE_VERSION) if isinstance(data, dict) else ARCHIVE_VERSION
        if version != ARCHIVE_VERSION:
            writer = data.get("cbt_plugins") or "another version"
            return (
                f"{run}: this archive was written by cbt-plugins {writer} (format {version}), "
                f"this is {__version__} (format {ARCHIVE_VERSION}): read it with that version"
            )
    return None
