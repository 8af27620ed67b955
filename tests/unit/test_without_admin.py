"""`admin: none`: what is refused before the run, what removes the buckets, and what the summary says."""

from __future__ import annotations

import http.server
import json
import socket
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, Dict, Iterator, List, Tuple
from urllib.parse import parse_qs, urlsplit

import archive_builder as archives
import pytest
from config_files import CLUSTER

from cbt_plugins.cluster.ceph import CephError
from cbt_plugins.cluster.remote import Remote
from cbt_plugins.cluster.s3_keys import S3Keys
from cbt_plugins.config.errors import ConfigError
from cbt_plugins.config.file_check import load_file
from cbt_plugins.faults.cluster_lock import NoLock
from cbt_plugins.plan import S3, Bucket
from cbt_plugins.results.summary_file import summarize
from cbt_plugins.run import bucket_agent
from cbt_plugins.run import buckets as run_buckets
from cbt_plugins.run.buckets import BucketsByS3

NODE = socket.gethostname()
KEYS = "access_key: 'file:/a', secret_key: 'file:/b'"


def section(s3: str, phases: str, *lines: str) -> str:
    head = f"  warp:\n    s3: {{urls: ['http://rgw1:7480'], {s3}}}\n    admin: none\n    engine: cbt-load\n"
    return CLUSTER + "benchmarks:\n" * ("benchmarks:" not in CLUSTER) + head + "".join(
        f"    {line}\n" for line in (*lines, f"cycle: {{phases: [{phases}]}}")
    )


def test_what_needs_ceph_is_refused_at_once(tmp_path: Path) -> None:
    file = tmp_path / "f.yaml"
    fault = "{at: 1s, fault: {label: x, kind: stop, osds: [1]}}"
    phases = "{fill: {raw: 30%}}, {wait: {gc: true, at_most: 1h}}, {wait: {duration: 1s, drop_caches: true}}, "
    upgrade = "{at: 2s, upgrade: {label: u, to: '18.2', irreversible: true, command: x}}"
    phases += f"{{hybrid: {{duration: 9s, events: [{fault}, {upgrade}]}}}}"
    file.write_text(section("user: cbt", phases, "settings: {scrub: off}", "pools: {a: {replicas: 3}}"))
    with pytest.raises(ConfigError) as raised:
        load_file(file)
    text = str(raised.value)
    needs = ("s3.user", "settings", "pools", "raw of fill", "gc of wait,", "drop_caches of wait-2", "faults of hybrid")
    for what in (*needs, "upgrade of hybrid"):
        assert what in text
    run = "{at: 1s, run: {label: x, command: 'true', undo: 'true'}}"
    file.write_text(section(KEYS, f"{{fill: {{objects: 5}}}}, {{hybrid: {{duration: 9s, events: [{run}]}}}}"))
    (planned,) = load_file(file).runs
    assert not planned.plan.admin


class Server(http.server.BaseHTTPRequestHandler):
    """A bucket of versions, two a page; one that cannot be deleted where it is asked for."""

    protocol_version = "HTTP/1.1"
    versions: ClassVar[List[Tuple[str, str]]]
    asked: ClassVar[List[str]]
    stuck: ClassVar[bool]

    def log_message(self, *_: Any) -> None:
        pass

    def reply(self, status: int, text: str = "") -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def do_GET(self) -> None:
        query = parse_qs(urlsplit(self.path).query, keep_blank_values=True)
        kind, name = ("ListMultipartUploadsResult", "") if "uploads" in query else ("ListVersionsResult", "Version")
        found = "".join(f"<{name}><Key>{k}</Key><VersionId>{v}</VersionId></{name}>" for k, v in self.versions[:2])
        path = urlsplit(self.path).path
        if "-gone" in path or "typo" in path or path in self.asked:
            return self.reply(404, "<Error><Code>NoSuchBucket</Code></Error>")
        if path == "/his":
            return self.reply(200, "<ListBucketResult/>")
        left = not any("uploadId" in path for path in self.asked)
        uploads = "<Upload><Key>u</Key><UploadId>7</UploadId></Upload>" if left else ""
        space = "http://s3.amazonaws.com/doc/2006-03-01/"
        self.reply(200, f'<{kind} xmlns="{space}">{found if name else uploads}</{kind}>')

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        assert self.headers["Content-MD5"] and "Signature=" in self.headers["Authorization"]
        if self.stuck:
            return self.reply(200, "<DeleteResult><Error><Key>a</Key><Code>AccessDenied</Code></Error></DeleteResult>")
        type(self).versions = [(k, v) for k, v in self.versions if f"<Key>{k}</Key><VersionId>{v}<" not in body]
        self.reply(200, "<DeleteResult/>")

    def do_DELETE(self) -> None:
        self.asked.append(self.path)
        self.reply(204)


@pytest.fixture
def server() -> Iterator[str]:
    Server.versions, Server.asked, Server.stuck = [("a", "1"), ("a", "null"), ("b", "2")], [], False
    made = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server)
    thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{made.server_port}"
    made.shutdown()
    made.server_close()
    thread.join()


def buckets(url: str, written: List[Dict[str, Any]], existing: str = "his") -> BucketsByS3:
    made = (Bucket("a", ()), Bucket("gone", ()), Bucket(existing, (), existing=True))
    plan = SimpleNamespace(buckets=made, s3=S3((url,)), versioned=False)
    journal = SimpleNamespace(
        write=lambda event, **facts: written.append({"event": event, **facts}),
        all=lambda event: [record for record in written if record["event"] == event],
        records=written,
    )
    ready = SimpleNamespace(keys=S3Keys("access", "secret"), authority=None)
    run = SimpleNamespace(
        plan=plan, run_id="r1", ceph=None, journal=journal, remote=Remote.of_cluster({}, {}), clients=[NODE]
    )
    return BucketsByS3(run, ready)  # type: ignore[arg-type]


def test_a_client_removes_the_buckets_of_the_run_with_every_version(server: str) -> None:
    written: List[Dict[str, Any]] = []
    made = buckets(server, written)
    made.claim()
    made.claim()
    assert [record["bucket"] for record in written] == ["cbtp-r1-a", "cbtp-r1-gone"]
    assert made.counts() == {}
    made.remove()
    assert Server.versions == [] and Server.asked == ["/cbtp-r1-a/u?uploadId=7", "/cbtp-r1-a", "/cbtp-r1-gone"]
    removed = [record["bucket"] for record in written if record["event"] == "bucket-removed"]
    assert removed == ["cbtp-r1-a", "cbtp-r1-gone"]


def test_an_existing_bucket_that_is_missing_is_not_made(server: str) -> None:
    written: List[Dict[str, Any]] = []
    with pytest.raises(CephError, match=r"^bucket 'typo' does not exist: create it, or remove `existing: true`$"):
        buckets(server, written, existing="typo").claim()
    assert written == []


def test_a_bucket_in_the_name_of_a_host() -> None:
    order = {"url": "https://s3.x:8443", "region": "r", "keys": ["a", "s", ""], "authority": None, "verify": True}
    dns = bucket_agent.SignedRequests({**order, "lookup": "dns"}, "b")
    assert (dns.host, dns.path_of("b"), dns.path_of("b", "k/1")) == ("b.s3.x:8443", "/", "/k/1")
    path = bucket_agent.SignedRequests({**order, "lookup": "path"}, "b")
    assert (path.host, path.path_of("b"), path.path_of("b", "k/1")) == ("s3.x:8443", "/b", "/b/k/1")


def test_what_cannot_be_removed_is_said(server: str) -> None:
    Server.stuck = True
    written: List[Dict[str, Any]] = []
    made = buckets(server, written)
    made.claim()
    with pytest.raises(CephError, match="some buckets of the run were not removed: cbtp-r1-a/a: AccessDenied"):
        made.remove()
    assert not [record for record in written if record["event"] == "bucket-removed"]


def test_a_removal_that_says_nothing_is_given_up(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    removal = buckets(server, [])
    removal.claim()
    monkeypatch.setattr(run_buckets, "REMOVAL_SILENCE", 0.0)
    with pytest.raises(CephError, match="were not removed: no message for 0 s; last message: none"):
        removal.remove()


def test_a_lock_without_a_cluster_is_never_refused(tmp_path: Path) -> None:
    lock = NoLock(SimpleNamespace(command="ceph", head="h"), "r1", tmp_path)  # type: ignore[arg-type]
    lock.fence(["x"])
    lock.take("name")
    lock.check()
    assert lock.others() == []
    lock.release(["x"], force=True)


def test_the_summary_says_once_what_is_not_known(tmp_path: Path) -> None:
    run = archives.small(tmp_path)
    plan = json.loads((run / "plan.json").read_text())
    (run / "plan.json").write_text(json.dumps({**plan, "admin": False}))
    codes = [its["code"] for its in summarize(run)["warnings"]]
    assert codes.count("no-admin") == 1 and "state-unknown" not in codes
