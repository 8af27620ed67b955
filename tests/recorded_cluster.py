"""A cluster whose replies to `cbt-tools init` were recorded, for each of three releases."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any, Dict, List, Mapping, Sequence

import pytest

from cbt_plugins.cluster.ceph_programs import readable
from cbt_plugins.cluster.remote import Remote, RemoteError
from cbt_plugins.cluster.transports.transport import Result
from cbt_plugins.tools.init import endpoints

DATA = Path(__file__).parent / "data" / "ceph"
MARK = "cbt-plugins: "


class Recorded:
    """Stands where `Remote` does: replies to questions as they were recorded."""

    def __init__(self, release: str) -> None:
        self.replies: Dict[str, Any] = json.loads((DATA / f"{release}-init.json").read_text())
        self.silent: List[str] = []
        self.fails: Dict[str, Result] = {}  # part of a command -> its end
        self.commands: List[str] = []
        self.probed: List[str] = []
        self.sections: List[Dict[str, Any]] = []

    def run(self, nodes: Sequence[str], command: str, check: bool = True, **_: Any) -> Dict[str, Result]:
        results = {node: self.reply(node, command) for node in nodes}
        if check and any(result.status for result in results.values()):
            raise RemoteError(command, results)
        return results

    def reply(self, node: str, command: str) -> Result:
        self.commands.append(command)
        command = readable(command)
        if node in self.silent:
            return Result("", f"No route to host; try: ssh root@{node} true", 255)
        failed = next((end for part, end in self.fails.items() if part in command), None)
        if failed or command == "true" or "fsid" in command or command.endswith(">/dev/null"):
            return failed or Result("", "", 0)
        if "openssl" in command:
            return Result("issuer=CN = Example \x1b[31mCA\n", "", 0)
        if "user info" in command:
            keys = '{"keys": [{"access_key": "AK", "secret_key": "SK"}]}'
            return Result(keys, "", 0) if command.endswith("=cbt") else Result("", "no user", 22)
        if "radosgw-admin" in command:
            return Result(json.dumps(self.replies[" ".join(shlex.split(command)[-2:])]), "", 0)
        words = shlex.split(command)
        questions = words[2 : words.index("|")]
        status = 0 if isinstance(self.replies["orch ps"], list) else 2
        orch = json.dumps(self.replies["orch ps"]) if status == 0 else self.replies["orch ps"]
        lines = [*(json.dumps(self.replies[question]) for question in questions), f"{MARK}next reply", orch]
        return Result("\n".join([*lines, f"{MARK}status {status}"]), "", 0)


def connected(monkeypatch: pytest.MonkeyPatch, release: str) -> Recorded:
    """Return a cluster of a release; every `Remote` of the test is this cluster."""
    recorded = Recorded(release)

    def connect(cluster: Mapping[str, Any], common: Mapping[str, Any]) -> Recorded:
        recorded.sections.append(dict(cluster))
        return recorded

    monkeypatch.setattr(Remote, "of_cluster", connect)

    def probe(remote: Any, nodes: Sequence[str], s3: Any, authority: bytes, owned: Mapping[str, Any]) -> List[str]:
        recorded.probed = list(nodes)
        untrusted = s3.urls[0].startswith("https") and not s3.ca_file
        return ["c1: CERTIFICATE_VERIFY_FAILED: self-signed certificate"] if untrusted else []

    monkeypatch.setattr(endpoints, "errors_of_endpoints", probe)
    return recorded
