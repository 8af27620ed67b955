"""Cluster status once a few seconds while something else runs."""

from __future__ import annotations

import json
import shlex
import time
from pathlib import Path, PurePosixPath
from typing import Iterator, Optional, Tuple

from cbt_plugins.cluster.ceph import Ceph
from cbt_plugins.cluster.status import Status
from cbt_plugins.cluster.stream import Stream


class StatusWatch:
    """Samples of `ceph status`, over one connection to the head node, re-opened when it is lost.

    Use as a context manager; `poll` gives what has come since the last call.
    `offset` is the head node's clock minus ours, in seconds.
    """

    def __init__(self, ceph: Ceph, run_dir: str, offset: float = 0.0, interval: float = 2.0) -> None:
        self._ceph = ceph
        self._script = str(PurePosixPath(run_dir) / "watch_agent.py")
        self._offset = offset
        self._interval = interval
        self._stream: Optional[Stream] = None
        self._opened = 0.0
        self.latest: Optional[Status] = None
        self.latest_at = 0.0  # time.monotonic() of its arrival here

    def __enter__(self) -> StatusWatch:
        source = (Path(__file__).parent / "watch_agent.py").read_bytes()
        self._ceph.remote.put({self._ceph.head: {self._script: source}})
        self._open()
        return self

    def _open(self) -> None:
        command = f"{self._ceph.command} -f json"
        self._stream = self._ceph.remote.stream(
            [self._ceph.head], f"exec python3 {self._script} {shlex.quote(command)} {self._interval:g}"
        )
        self._opened = time.monotonic()

    def poll(self, timeout: float = 0.0) -> Iterator[Tuple[float, Status]]:
        """Yield (epoch seconds on our clock, status) of all samples that have arrived."""
        assert self._stream is not None
        for _, line in self._stream.lines(max(timeout, 0.001)):
            try:
                sample = json.loads(line)
                status = Status.parse(sample["status"], sample["df"])
            except (ValueError, KeyError):
                continue
            self.latest, self.latest_at = status, time.monotonic()
            yield float(sample["t"]) - self._offset, status
        if not self._stream.open and time.monotonic() - self._opened > 10.0:
            self._stream.close()
            self._open()

    def __exit__(self, *_: object) -> None:
        if self._stream is not None:
            self._stream.close()
            self._stream = None
