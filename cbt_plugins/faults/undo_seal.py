"""Seal of the commands that an undo reads from an archive and runs: only this user on this machine can make a seal.

An archive may come from anybody, and an undo runs shell commands, on this machine and as root on nodes.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
from pathlib import Path
from typing import Any, Dict, Mapping, Optional, Tuple

from cbt_plugins.archive_files import open_regular
from cbt_plugins.cluster.shell_programs import own_here
from cbt_plugins.faults.step import FaultError
from cbt_plugins.programs import cache_dir


def of(content: Any) -> str:
    """Return the seal of plain data. Raises FaultError if other users could read the key."""
    # in the form that reading it again gives: keys are text, tuples are lists
    plain = json.dumps(json.loads(json.dumps(content)), sort_keys=True)
    return hmac.new(_key(), plain.encode(), hashlib.sha256).hexdigest()


def holds(seal: Any, content: Any) -> bool:
    """Tell whether this user has sealed this content on this machine. Raises FaultError."""
    return isinstance(seal, str) and hmac.compare_digest(seal.encode(), of(content).encode())


def mark(record: Mapping[str, Any], run_id: str) -> Dict[str, str]:
    """Return the seal for a line of a run's journal, as an item to add to the line; {} without a usable key."""
    try:
        return {"seal": of({**record, "run": run_id})}
    except FaultError:
        return {}


def is_marked(line: Mapping[str, Any], run_id: str) -> bool:
    """Tell whether this user wrote a line of a run's journal on this machine. Raises FaultError."""
    content = {key: value for key, value in line.items() if key != "seal"}
    return holds(line.get("seal"), {**content, "run": run_id})


def is_marked_as_before(line: Mapping[str, Any], run_id: str) -> bool:
    """Tell whether this user wrote an open step on this machine with an earlier version. Raises FaultError.

    The earlier version sealed these parts of `open` lines, and no other lines.
    """
    content = {key: line.get(key) for key in ("id", "label", "kind", "step")}
    return holds(line.get("seal"), {**content, "run": run_id})


def refusal(path: Path) -> str:
    """Return a message: why the commands of a file are not run, and what to do."""
    return (
        f"{path} was not written by this user on this machine, or the key {_path()} was removed later: "
        "no command of the file is run; read the commands with "
        f"`cbt-tools undo --dry-run {path.parent}`; to allow the commands: `cbt-tools undo --trust {path.parent}`"
    )


#: cached key, with the state of its file and folder: a journal has a seal in each line
_newest: Tuple[Any, bytes] = (None, b"")


def _path() -> Path:
    return cache_dir() / "seal" / "key"


def _key() -> bytes:
    global _newest
    path = _path()
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
        raise FaultError(f"{path}: {error.strerror or error}") from error
    if len(key) != 32:
        raise FaultError(f"{path}: damaged: remove the file; open changes of archives then need cbt-tools undo --trust")
    return key
