"""The cluster's state over time: one agent on a node samples it, and status, waiting and recovery read its lines."""

from __future__ import annotations

import json
import shlex
import time
from pathlib import Path
from typing import Any, Dict, Iterator, Optional, Tuple

from cbt_plugins.cluster.ceph import Ceph, Status
from cbt_plugins.cluster.stream import NodeProgram, Stream

#: what nodes run to sample; standard library only
AGENT = Path(__file__).parent / "sampler_agent.py"
#: seconds for one reply, when nobody needs to know of a silence at once
_TIMEOUT = 20.0
#: seconds from one connection to the next
_REOPEN = 10.0


def agent_settings(ceph: Ceph, interval: float, **more: Any) -> str:
    """Return the agent's argument: how this cluster is asked, how often, and what is asked of it.

    `recovery`: follow the OSD maps and counters; `df`: ask for the space; `librados`: use it where it is; `timeout`.
    """
    return json.dumps([{"interval": interval, "ceph": ceph.command, "conf": ceph.conf_file, **more}])


class StatusWatch:
    """Samples of `ceph status` and `ceph df`, over one connection to the head node, re-opened when it is lost.

    Use as a context manager; `poll` gives what has come since the last call.
    `offset` is the head node's clock minus ours, in seconds.
    """

    def __init__(self, ceph: Ceph, offset: float = 0.0, interval: float = 2.0) -> None:
        self._ceph = ceph
        # the `ceph` command and not librados: what the section names is what reaches the cluster
        self._settings = agent_settings(ceph, interval, df=True, timeout=_TIMEOUT)
        self._offset = offset
        self._stream: Optional[Stream] = None
        self._state: Dict[str, Any] = {}
        self._opened = 0.0
        self.latest: Optional[Status] = None
        self.latest_at = 0.0  # time.monotonic() of its arrival here

    def __enter__(self) -> StatusWatch:
        self._open()
        return self

    def _open(self) -> None:
        agent = NodeProgram(AGENT)
        command = "exec python3 " + " ".join(map(shlex.quote, agent.words(self._settings)))
        self._stream = self._ceph.remote.stream([self._ceph.head], command)
        self._stream.send(agent.text)
        self._state = {}
        self._opened = time.monotonic()

    def poll(self, timeout: float = 0.0) -> Iterator[Tuple[float, Status]]:
        """Yield (epoch seconds on our clock, status) of all samples that have arrived."""
        assert self._stream is not None
        for _, text in self._stream.lines(max(timeout, 0.001)):
            try:
                line = json.loads(text)
                if "version" in line:  # an agent begins; its first sample is a whole state
                    self._state = {}
                if not {"version", "event", "end"}.isdisjoint(line):
                    continue
                self._state.update(line)
                status = Status.of_state(self._state)
            except (ValueError, KeyError, TypeError):
                continue
            self.latest, self.latest_at = status, time.monotonic()
            yield float(line["t"]) - self._offset, status
        if not self._stream.open and time.monotonic() - self._opened > _REOPEN:
            self._stream.close()
            self._open()

    def __exit__(self, *_: object) -> None:
        if self._stream is not None:
            self._stream.close()
            self._stream = None
