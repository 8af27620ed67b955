"""Seal of what an undo takes from an archive and runs: only this user on this machine can make it.

An archive may come from anybody, and what is undone are shell commands, here and as root on nodes.
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
    """Return the seal of plain data. Raises FaultError where the key cannot be kept from others."""
    # as it is after it was read again: keys are text, tuples are lists
    plain = json.dumps(json.loads(json.dumps(content)), sort_keys=True)
    return hmac.new(_key(), plain.encode(), hashlib.sha256).hexdigest()


def holds(seal: Any, content: Any) -> bool:
    """Tell whether this user has sealed this content on this machine. Raises FaultError."""
    return isinstance(seal, str) and hmac.compare_digest(seal.encode(), of(content).encode())


def mark(record: Mapping[str, Any], run_id: str) -> Dict[str, str]:
    """Return the seal of a line in the journal of a run, as a part of it; {} where the key cannot be had."""
    try:
        return {"seal": of({**record, "run": run_id})}
    except FaultError:
        return {}


def is_marked(line: Mapping[str, Any], run_id: str) -> bool:
    """Tell whether this user, on this machine, has written a line of the journal of a run. Raises FaultError."""
    content = {key: value for key, value in line.items() if key != "seal"}
    return holds(line.get("seal"), {**content, "run": run_id})


def is_marked_as_before(line: Mapping[str, Any], run_id: str) -> bool:
    """Tell whether this user, on this machine, has written an open step with an earlier version. Raises FaultError.

    That version sealed these parts of an `open` line, and no other line.
    """
    content = {key: line.get(key) for key in ("id", "label", "kind", "step")}
    return holds(line.get("seal"), {**content, "run": run_id})


def refusal(path: Path) -> str:
    """Return why what a file says is not run, and what can be done."""
    return (
        f"{path} was not written by this user on this machine, or the key {_path()} was removed since: "
        "no command of the file is run; read the commands with "
        f"`cbt-tools undo --dry-run {path.parent}`; to allow them: `cbt-tools undo --trust {path.parent}`"
    )


#: the newest key, and the state of its file and folder then: a journal has a seal in each line
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
    """Return the numbers that change with a key, its file or its folder; None without them."""
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
                os.link(draft, path)  # the first of two that do so at once
            except FileExistsError:
                pass
            except OSError:  # a file system without hard links
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
