"""Those who ask the server of a live page: requests, and streams of events."""

from __future__ import annotations

import http.client
import json
import subprocess
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, Tuple, Union

import pytest
from archive_builder import COPIED

pytest.importorskip("jinja2")

from cbt_plugins.report.live_server import LiveServer


@dataclass
class Program:
    """A server in a process of its own."""

    process: subprocess.Popen[str]
    port: int


Server = Union[LiveServer, Program]


def ask(server: Server, path: str, **headers: str) -> Tuple[int, Dict[str, str], bytes]:
    port = server.port
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=20)) as connection:
        connection.request("GET", path, headers={"Host": f"127.0.0.1:{port}", **headers})
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read()


class Events:
    """An open stream of events."""

    def __init__(self, server: Server, since: Union[int, str], **headers: str) -> None:
        self.connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
        self.connection.request("GET", f"/events?since={since}", headers={"Host": "localhost", **headers})
        self.answer = self.connection.getresponse()

    def next(self) -> Dict[str, Any]:
        event: Dict[str, Any] = {}
        while True:
            text = self.answer.readline().decode()
            assert text, "the stream has ended"
            line = text.rstrip("\n")
            if not line and "data" in event:
                event.pop("retry", None)
                return event
            name, _, value = line.partition(": ")
            if not name:
                continue
            event[name] = json.loads(value) if name == "data" else value

    def close(self) -> None:
        self.answer.close()
        self.connection.close()


def fail(run: Path) -> None:
    """End a run by an error."""
    with (run / "events.jsonl").open("a") as file:
        file.write(json.dumps({"t": COPIED + 1, "event": "run-failed", "why": "x"}) + "\n")
