"""Append-only files of JSON lines that survive a kill at any instant: the run journal and the event timeline."""

from __future__ import annotations

import fcntl
import json
import os
import threading
import time
from pathlib import Path
from typing import Any, Dict, List

from cbt_plugins.host import RunFailed


class Journal:
    """Records, one JSON object a line, each on disk before `write` returns.

    A last line that was torn by a kill is cut off when the file is opened again; all others are kept. While it is open
    no other process can open it: raises RunFailed then. With `to_read`, one that is there and cannot be written is
    opened all the same, and each `write` raises OSError.
    """

    def __init__(self, path: Path, to_read: bool = False) -> None:
        self._path = path
        self._writing = threading.Lock()
        try:
            self._file = open(path, "a", encoding="utf-8")  # noqa: SIM115 (open for the life of the run)
        except OSError:
            if not to_read:
                raise
            self._file = open(path, encoding="utf-8")  # noqa: SIM115
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._file.close()
            raise RunFailed(f"another process is at work in {path.parent}") from None
        self._cut_torn_end()
        self.records: List[Dict[str, Any]] = read(path)

    def _cut_torn_end(self) -> None:
        data = self._path.read_bytes()
        whole = data[: data.rfind(b"\n") + 1]
        if whole != data and self._file.writable():
            with open(self._path, "r+b") as file:
                file.truncate(len(whole))

    def write(self, event: str, **facts: Any) -> None:
        """Add a record with the time of now."""
        with self._writing:
            record = {"t": round(time.time(), 6), "event": event, **facts}
            self._file.write(json.dumps(record) + "\n")
            self._file.flush()
            os.fsync(self._file.fileno())
            self.records.append(record)

    def last(self, event: str) -> Dict[str, Any]:
        """The newest record of that event; {} when there is none."""
        return next((r for r in reversed(self.records) if r["event"] == event), {})

    def all(self, event: str) -> List[Dict[str, Any]]:
        """All records of that event, oldest first."""
        return [r for r in self.records if r["event"] == event]

    def since(self, event: str) -> List[Dict[str, Any]]:
        """The records after the newest one of that event; all when there is none."""
        newest = max((i for i, r in enumerate(self.records) if r["event"] == event), default=-1)
        return self.records[newest + 1 :]

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def read(path: Path) -> List[Dict[str, Any]]:
    """All whole records of a file; a missing file has none."""
    if not path.exists():
        return []
    records = []
    for line in path.read_bytes().split(b"\n")[:-1]:
        try:
            records.append(json.loads(line))
        except ValueError:
            continue  # torn by a crash of the machine, later lines are whole again
    return records
