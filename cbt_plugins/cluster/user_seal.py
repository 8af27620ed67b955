"""Seal of plain data: only this user on this machine can make it, with a key that nobody else can read."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
from pathlib import Path
from typing import Any, Optional, Tuple

from cbt_plugins.archive_files import open_regular
from cbt_plugins.cluster.shell_programs import own_here
from cbt_plugins.programs import NoHome, cache_dir


class NoKey(Exception):
    """There is no key that only this user can read; the text is for the user."""


def of(content: Any) -> str:
    """Return the seal of plain data. Raises NoKey."""
    # in the form that reading it again gives: keys are text, tuples are lists
    plain = json.dumps(json.loads(json.dumps(content)), sort_keys=True)
    return hmac.new(_key(), plain.encode(), hashlib.sha256).hexdigest()


def holds(seal: Any, content: Any) -> bool:
    """Tell whether this user has sealed this content on this machine. Raises NoKey."""
    return isinstance(seal, str) and hmac.compare_digest(seal.encode(), of(content).encode())


def key_path() -> Path:
    """Return the path of the key. Raises NoKey."""
    try:
        return cache_dir() / "seal" / "key"
    except NoHome as error:
        raise NoKey(str(error)) from error


#: cached key, with the state of its file and folder: a journal has a seal in each line
_newest: Tuple[Any, bytes] = (None, b"")


def _key() -> bytes:
    global _newest
    path = key_path()
    state = _state(path)
    if state is None or state != _newest[0]:
        key = _read_key(path)
        _newest = _state(path), key
    return _newest[1]


def _state(path: Path) -> Optional[Tuple[Any, ...]]:
    """Return numbers that change with the key, its file or its folder; None if they are missing."""
    try:
        both = [os.lstat(place) for place in (path, path.parent)]
    except OSError:
        return None
    return (path, *((stat.st_ino, stat.st_mode, stat.st_uid, stat.st_mtime_ns, stat.st_ctime_ns) for stat in both))


def _read_key(path: Path) -> bytes:
    try:
        own_here(path.parent)
        if not path.exists():
            draft = path.with_name(f".key.{os.getpid()}.{secrets.token_hex(4)}")
            with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "wb") as file:
                file.write(secrets.token_bytes(32))
                file.flush()
                os.fsync(file.fileno())
            try:
                os.link(draft, path)  # of two simultaneous processes the first one wins
            except FileExistsError:
                pass
            except OSError:  # the file system has no hard links
                os.replace(draft, path)
            finally:
                draft.unlink(missing_ok=True)
        with open_regular(path, most=64) as file:
            key = file.read()
    except OSError as error:
        raise NoKey(f"{path}: {error.strerror or error}") from error
    if len(key) != 32:
        raise NoKey(f"{path}: damaged: remove the file; open changes of archives then need cbt-tools undo --trust")
    return key
