"""The bytes and text of a file of results, plain or compressed, up to any damage."""

from __future__ import annotations

import importlib
import shutil
import struct
import subprocess
import traceback
import zlib
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Callable, Iterator, Optional, Sequence

from cbt_plugins.archive_files import open_regular
from cbt_plugins.formatting import first_texts
from cbt_plugins.journal import MOST

#: decompressed bytes at a time: the rows of a chunk, as Python strings, should stay in the processor's cache
_CHUNK = 1 << 17
#: compressed bytes that zstd is given at a time: 4 of them can be 128 KiB
_PIECE = 1 << 10


#: what parsing damaged data raises; any other error may be a mistake of ours
_OF_DATA = (ValueError, LookupError, ArithmeticError, OSError, EOFError, RecursionError, struct.error, zlib.error)


#: what is said of a file or folder of another user
NOT_ALLOWED = "this user has no permission to read it; its owner can change that with chmod"


class Unreadable(Exception):
    """Data that cannot be used; the text names the file and says why."""


class NotThere(Unreadable):
    """A path that does not exist: wrong use, and no damage."""


class NothingKnown(Unreadable):
    """A path that is no result of a known program, or a folder without one."""


class NoRun(Unreadable):
    """A path without a run of an archive, in it or below it: it may have results of another program."""


#: archives below a folder that a message names
_NAMED = 3


class ArchivesBelow(Unreadable):
    """A folder of archives, which is no archive; it may have results of another program, too."""

    def __init__(self, folder: Path, archives: Sequence[Path]) -> None:
        super().__init__(folder, archives)
        self.folder, self.archives = folder, archives

    def names(self) -> str:
        """Return the paths of the first archives, and the number of the others."""
        return first_texts(list(map(str, self.archives)), _NAMED)

    def __str__(self) -> str:
        return f"{self.folder}: no run in it; archives below it: {self.names()}"


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn every error that reading what is below `path` raises into Unreadable.

    Files of an archive can be damaged in more ways than their readers can name.
    """
    try:
        yield
    except (Unreadable, ImportError):
        raise
    except PermissionError as e:
        raise Unreadable(f"{e.filename or path}: {NOT_ALLOWED}") from e
    except _OF_DATA as e:
        raise Unreadable(f"{path}: damaged: {_error_text(e)}") from e
    except Exception as e:
        raise unexpected(path, e) from e


def unexpected(path: Path, error: Exception) -> Exception:
    """Return the exception for an error that damage seldom explains. The tests let the error itself through."""
    text = "if its files are complete, this is an error of cbt-plugins: please report it"
    return Unreadable(f"{path}: cannot be read: {_error_text(error)}; {text}")


def _error_text(error: Exception) -> str:
    at = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} ({Path(at.filename).name}:{at.lineno})"


class PackedFile:
    """A file, plain or compressed: its unpacked chunks, and why its end is missing (`torn`)."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.torn: Optional[str] = None

    def chunks(self) -> Iterator[bytes]:
        """Yield the data. Raises Unreadable when nothing can be read; data behind a damage is left out, `torn` is set.
        """
        try:
            with open_regular(self.path) as raw:
                magic = raw.read(4)
                raw.seek(0)
                if magic[:2] == b"\x1f\x8b":
                    yield from self._gzip(raw)
                elif magic == b"\x28\xb5\x2f\xfd":
                    yield from self._zstd(raw)
                else:
                    yield from iter(lambda: raw.read(_CHUNK), b"")
        except OSError as e:
            raise Unreadable(f"{self.path}: {e.strerror or e}") from e

    def lines(self) -> Iterator[str]:
        """Yield the lines of a text. Raises Unreadable, also where its end is missing."""
        tail = b""
        for chunk in self.chunks():
            *lines, tail = (tail + chunk).split(b"\n")
            yield from (line.decode("utf-8", "replace") for line in lines)
        self.refuse_torn()
        if tail:
            yield tail.decode("utf-8", "replace")

    def refuse_torn(self) -> None:
        """Raise Unreadable where the end is missing."""
        if self.torn:
            raise Unreadable(f"{self.path}: {self.torn}")

    def _gzip(self, raw: BinaryIO) -> Iterator[bytes]:
        # Not gzip.open: it gives an error instead of the last complete bytes when the trailer is missing,
        # and every rows file of a killed driver has none.
        member = zlib.decompressobj(31)
        data = raw.read(_CHUNK)
        while data or not member.eof:
            before = member.copy()
            try:
                plain = member.decompress(data, _CHUNK)
            except zlib.error as e:
                self.torn = f"damaged gzip data ({e})"
                yield _until_damage(before, data)
                return
            if plain:
                yield plain
            if member.eof:  # another member may follow, or zeros where a file system had no time to write
                data = member.unused_data.lstrip(b"\0") or raw.read(_CHUNK).lstrip(b"\0")
                if data:
                    member = zlib.decompressobj(31)
            elif member.unconsumed_tail or len(plain) == _CHUNK:
                data = member.unconsumed_tail
            else:
                data = raw.read(_CHUNK)
                if not data:
                    self.torn = "the gzip stream has no end"
                    return

    def _zstd(self, raw: BinaryIO) -> Iterator[bytes]:
        new = zstd_member()
        if new is not None:
            yield from self._members(raw, new)
            return
        program = shutil.which("zstd")
        if program is None:
            raise Unreadable(
                f"{self.path}: zstd data, and nothing here reads it: "
                "install the program zstd, the Python package zstandard, or Python 3.14"
            )
        raw.close()
        process = subprocess.Popen(
            [program, "-dcq", str(self.path)],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            stdin=subprocess.DEVNULL,
        )
        assert process.stdout is not None
        try:
            yield from iter(lambda: process.stdout.read(_CHUNK), b"")  # type: ignore[union-attr]
        finally:
            process.stdout.close()
            if process.wait() != 0:
                self.torn = "damaged zstd data"

    def _members(self, raw: BinaryIO, new: Callable[[], Any]) -> Iterator[bytes]:
        """Yield the data of frames one after the other; `new` makes the decompressor of one frame."""
        member, complete, plain = new(), True, b""
        data = raw.read(_CHUNK >> 3)
        while data:
            piece, data = data[:_PIECE], data[_PIECE:]
            try:
                plain += member.decompress(piece)
            except Exception as e:  # each module has its own error class
                self.torn = f"damaged zstd data ({e})"
                break
            complete = member.eof
            if complete:
                member, data = new(), member.unused_data + data
            if plain and (len(plain) >= _CHUNK or not data):
                yield plain
                plain = b""
            data = data or raw.read(_CHUNK >> 3)
        if plain:
            yield plain
        if self.torn:
            return
        if not complete:
            self.torn = "the zstd stream has no end"


def read_unpacked(path: Path, most: int = MOST) -> str:
    """Return the text of a file, plain or compressed. Raises Unreadable, also where its end is missing."""
    packed, chunks, size = PackedFile(path), [], 0
    for chunk in packed.chunks():
        size += len(chunk)
        if size > most:
            raise Unreadable(f"{path}: has more than {most} bytes")
        chunks.append(chunk)
    packed.refuse_torn()
    return b"".join(chunks).decode("utf-8", errors="replace")


def unpacked_name(path: Path) -> str:
    """Return the name of a file when it is not compressed."""
    return path.stem if path.suffix in (".gz", ".zst") else path.name


def _until_damage(member: zlib._Decompress, data: bytes) -> bytes:
    """Return the part of a chunk before its damage: zlib throws away all of a call that fails."""
    plain = b""
    try:
        for i in range(len(data)):
            plain += member.decompress(data[i : i + 1])
    except zlib.error:
        pass
    return plain


def zstd_member() -> Optional[Callable[[], Any]]:
    """Return a constructor of readers of one zstd frame, or None: of Python 3.14, or of `zstandard`."""
    try:
        module = importlib.import_module("compression.zstd")
        return lambda: module.ZstdDecompressor()
    except ImportError:
        pass
    try:
        module = importlib.import_module("zstandard")
    except ImportError:
        return None
    return lambda: module.ZstdDecompressor().decompressobj()
