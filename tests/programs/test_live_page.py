"""The page of a run that goes on: its server, its events, and in a browser the same page as the report."""

from __future__ import annotations

import contextlib
import http.client
import json
import math
import re
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, Iterator, List, Set, Tuple, Union

import pytest
from archive_builder import COPIED, HALF
from chromium import CHROMIUM, Browser
from hypothesis import given, settings
from hypothesis import strategies as st
from own_sshd import free_port, own_sshd, sshd_program
from page_archive import both_engines
from prometheus_client.openmetrics import parser
from waiting import wait_for

from cbt_plugins import polling
from cbt_plugins.config.units import parse_listen
from cbt_plugins.journal import Journal
from cbt_plugins.polling import Clock
from cbt_plugins.results.live_run import LiveRun
from cbt_plugins.results.summary_file import summarize

pytest.importorskip("jinja2")

from cbt_plugins.report import live_server
from cbt_plugins.report.live_page import LivePage, changes, parts_of
from cbt_plugins.report.live_server import LiveServer
from cbt_plugins.report.page import run_page
from cbt_plugins.tools.__main__ import main

#: the parts of the page that a browser has, without what scripts have drawn
_PARTS = """[...document.querySelectorAll("header, main > *")].map((part) => {
  const copy = part.cloneNode(true);
  copy.querySelectorAll("[data-chart]").forEach((place) => place.replaceChildren());
  return copy.outerHTML;
})"""
_DRAWN = """[...document.querySelectorAll("canvas")].filter((canvas) =>
  canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data.some((byte) => byte)).length"""


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The half archive, which a process has."""
    folder = tmp_path / "results" / "00000000" / "id-1a2b3c4d"
    shutil.copytree(HALF, folder)
    monkeypatch.setattr("time.time", lambda: COPIED)
    with closing(Journal(folder / "journal.jsonl")) as journal:
        journal.write("invocation")
        yield folder


@pytest.fixture
def page(run: Path) -> LivePage:
    made = LivePage(LiveRun(run))
    made.look()
    return made


@pytest.fixture
def server(page: LivePage) -> Iterator[LiveServer]:
    with closing(LiveServer(page, "127.0.0.1", 0)) as started:
        yield started


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


def test_connections_that_send_nothing_take_no_more_than_their_number(server: LiveServer) -> None:
    with contextlib.ExitStack() as opened:
        silent = [opened.enter_context(socket.create_connection(("127.0.0.1", server.port))) for _ in range(258)]
        wait_for(lambda: len(select.select(silent, [], [], 0)[0]) == 2, "two connections that are closed")
    wait_for(lambda: _answers(server), "an answer after the connections have gone")


def test_a_request_that_comes_byte_by_byte_is_given_up(server: LiveServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_server, "TIMEOUT", 0.5)
    with socket.create_connection(("127.0.0.1", server.port)) as slow:
        slow.sendall(b"GET / HTTP/1.1\r\nX: ")

        def is_closed() -> bool:
            try:
                slow.send(b"x")
                return bool(select.select([slow], [], [], 0.1)[0]) and not slow.recv(1)
            except OSError:
                return True

        wait_for(is_closed, "the end of the connection")


def _answers(server: LiveServer) -> bool:
    with contextlib.suppress(OSError, http.client.HTTPException):
        return ask(server, "/metrics")[0] == 200
    return False


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


def test_the_page_is_served_and_nothing_else(server: LiveServer, page: LivePage) -> None:
    status, headers, body = ask(server, "/")
    assert (status, body.decode()) == (200, page.html)
    assert headers["Cache-Control"] == "no-store" and "connect-src &#39;self&#39;" in page.html
    for path in ("/plan.json", "/../plan.json", "/events/../plan.json", "//etc/passwd", "/?/etc", "/%2e%2e/plan.json"):
        status, _, body = ask(server, path)
        assert (status == 404 and b"no such page" in body) or (path == "/?/etc" and status == 200)


def test_another_hosts_name_is_refused(server: LiveServer) -> None:
    foreign = ("evil.example", "127.0.0.1.evil.example", "localhost.evil.example:80", "", "192.0.2.1", "[::2]")
    for host in (*foreign, "evil.example@127.0.0.1"):
        assert ask(server, "/", Host=host)[0] == 403, host
        assert ask(server, "/events", Host=host)[0] == 403, host
    for host in ("localhost", "localhost:9999", "127.0.0.1", "[::1]:80"):  # ssh -L has a port of its own
        assert ask(server, "/", Host=host)[0] == 200, host


def test_the_page_and_its_events_come_through_ssh(server: LiveServer, page: LivePage, tmp_path: Path) -> None:
    """`ssh -L`, with a real sshd: the port that the browser asks is another one than the server's."""
    program = sshd_program()
    if program is None or shutil.which("ssh") is None:
        pytest.skip("needs ssh and sshd (Debian: openssh-client, openssh-server)")
    port = free_port()
    with own_sshd(tmp_path, program) as (words, _):
        line = ["ssh", *words, "-N", "-oExitOnForwardFailure=yes", "-L", f"{port}:127.0.0.1:{server.port}", "127.0.0.1"]
        tunnel = subprocess.Popen(line, stdin=subprocess.DEVNULL)
        try:
            wait_for(lambda: reaches(port) or tunnel.poll() is not None, "the tunnel")
            with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=20)) as connection:
                connection.request("GET", "/")
                assert connection.getresponse().read().decode() == page.html
            with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=20)) as connection:
                connection.request("GET", f"/events?since={page.version}")
                answer = connection.getresponse()
                assert answer.status == 200 and any(line.startswith(b"event: moment") for line in answer)
        finally:
            tunnel.terminate()
            tunnel.wait()


def reaches(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=5):
        return True
    return False


def test_a_bad_request_and_a_lost_connection_leave_the_terminal_alone(
    server: LiveServer, capfd: pytest.CaptureFixture[str]
) -> None:
    address = ("127.0.0.1", server.port)
    before = _answering()  # of an earlier test: a stream of events waits for a word of its page
    for path, host, status in (("//[", "localhost", b"404"), ("/", "[", b"403"), ("/", "localhost:x", b"200")):
        with socket.create_connection(address, timeout=20) as connection:
            connection.sendall(f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
            assert connection.makefile("rb").readline().split()[1] == status, (path, host)
    server.page.html *= 500  # more than the connection holds
    with socket.create_connection(address, timeout=20) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # a reset
        connection.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        connection.recv(1)
    wait_for(lambda: _answering() <= before, "the end of its threads", 20)
    assert capfd.readouterr() == ("", "")


def _answering() -> Set[threading.Thread]:
    """The threads that answer a request in this process."""
    return {thread for thread in threading.enumerate() if "process_request" in thread.name}


def test_a_superscript_digit_is_no_number(server: LiveServer, capfd: pytest.CaptureFixture[str]) -> None:
    with closing(Events(server, "%C2%B2")) as events:
        assert events.next()["event"] in ("moment", "whole")
    assert capfd.readouterr() == ("", "")


def test_on_another_address_the_token_is_asked_for(page: LivePage) -> None:
    with closing(LiveServer(page, "0.0.0.0", 0)) as server:
        assert len(server.token) >= 32 and server.url.endswith(f"/{server.token}/")
        assert ask(server, f"/{server.token}/")[0] == 200
        for path in ("/", f"/{server.token[:-1]}/", f"/{server.token}", "/x/", f"/{server.token}x/", "/events"):
            assert ask(server, path)[0] == 404, path
        assert ask(server, f"/{server.token}/", Host="192.0.2.1:7878")[0] == 200
        assert ask(server, f"/{server.token}/", Host=socket.gethostname())[0] == 200
        assert ask(server, f"/{server.token}/", Host="evil.example")[0] == 403


def test_addresses() -> None:
    assert parse_listen("80") == ("127.0.0.1", 80)
    assert parse_listen("0.0.0.0:80") == ("0.0.0.0", 80) and parse_listen("[::1]:80") == ("::1", 80)
    for wrong in ("", "x", "host:", "1:2:x", "70000"):
        with pytest.raises(ValueError, match="HOST"):
            parse_listen(wrong)


def test_events_go_on_where_a_connection_was_cut(server: LiveServer, page: LivePage, run: Path) -> None:
    first = page.version
    with closing(Events(server, first)) as events:
        assert events.next()["event"] == "moment"
        with (run / "events.jsonl").open("a") as file:
            file.write(json.dumps({"t": COPIED - 1, "event": "fault-undone", "label": "node-a", "kind": "stop"}) + "\n")
        page.run.sparing.next_at = 0.0
        page.look()
        update = events.next()
        while update["event"] == "moment":
            update = events.next()
    assert (update["event"], int(update["id"])) == ("page", page.version) and page.version == first + 1
    assert set(update["data"]["changed"]) <= set(update["data"]["order"])
    with closing(Events(server, 0, **{"Last-Event-ID": str(first)})) as again:
        assert again.next() == update  # what was missed comes again
    with closing(Events(server, first - 5)) as stranger:
        assert stranger.next()["event"] == "whole"  # of a server that was killed: no difference is known


def tell(run: Path, event: str, label: str, t: float) -> None:
    about = {"t": t, "event": event, "label": label, "kind": "stop", "targets": ["node2"]}
    with (run / "events.jsonl").open("a") as file:
        file.write(json.dumps(about) + "\n")


def test_a_fault_is_marked_before_a_page_has_it(server: LiveServer, page: LivePage, run: Path) -> None:
    with closing(Events(server, page.version)) as events:
        assert events.next()["data"]["marks"] == []  # the charts have the fault of node-a
        page.run.sparing.next_at = math.inf
        marks: List[Dict[str, Any]] = []
        for event, t, title in (
            ("fault-inject-begin", COPIED - 3, "fault"),
            ("fault-injected", COPIED - 2, None),
            ("fault-undo-begin", COPIED - 1, "undo"),
            ("fault-undone", COPIED, None),
            ("fault-inject-begin", math.inf, None),
            ("fault-inject-begin", math.nan, None),
            ("fault-inject-begin", 10**400, None),
        ):
            tell(run, event, "node-b", t)
            page.look()
            marks += [{"t": t, "title": title}] if title else []
            update = events.next()
            assert (update["event"], update["data"]["marks"], update["data"]["in_phase"]) == ("moment", marks, True)
    assert any("fault node-b (stop node2)" in line for line in update["data"]["lines"])


def test_faults_of_charts_are_not_marked_again(run: Path) -> None:
    """When a phase has no requests yet, the charts end with those of the phase before."""
    for path in run.glob("phases/*.running/aggregates/*"):
        path.write_bytes(b"")
    page = LivePage(LiveRun(run))
    page.look()
    assert [phase["name"] for phase in data_of(page.html)["phases"]] == ["no-failure"]
    moment = next(page.updates(page.version)).data
    assert not moment["in_phase"]
    assert [mark["title"] for mark in moment["marks"]] == ["fault"]
    later = data_of(page.html)["phases"][0]["window"]["end"]
    assert all(mark["t"] > later for mark in moment["marks"])


def data_of(html: str) -> Dict[str, Any]:
    """The data of the charts."""
    (text,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', html, re.DOTALL)
    data: Dict[str, Any] = json.loads(text)
    return data


def test_the_metrics_are_openmetrics_over_http(server: LiveServer) -> None:
    status, headers, body = ask(server, "/metrics")
    assert (status, headers["Content-Type"]) == (200, "application/openmetrics-text; version=1.0.0; charset=utf-8")
    families = {family.name: family for family in parser.text_string_to_metric_families(body.decode())}
    latency = families["cbt_request_latency_seconds"]
    assert latency.type == "histogram" and latency.samples


def test_a_new_phase_is_in_the_page_with_its_first_requests(run: Path) -> None:
    former = cut(run)
    page = LivePage(LiveRun(run))
    page.look()
    assert "phase-one-down" not in parts_of(page.html)
    page.run.sparing.next_at = 0.0
    for path, content in former.items():
        if path.suffix == ".aggregates":
            path.write_bytes(content)
    page.look()
    assert "phase-one-down" in parts_of(page.html)
    version = page.version
    page.look()
    assert page.version == version


def test_each_section_of_the_page_is_a_part_of_its_own(tmp_path: Path) -> None:
    """Also where a run has several pairs of generators and several ladders: parts are replaced by their ids."""
    directory = both_engines(tmp_path)
    summary = summarize(directory)
    names = ("first", "second", "third")
    ladder: Dict[str, Any] = {"unit": "rate", "objective": {}, "low": None, "high": None, "text": "x", "steps": []}
    summary["ladders"] = [{**ladder, "name": name} for name in names]
    summary["engines"] = [{**summary["engines"][0], "note": name} for name in names]
    html = run_page(summary, directory)
    parts = parts_of(html)
    assert sum(part.startswith("<section") for part in parts.values()) == html.count("<section")
    assert all(f'href="#{key}"' in html and key in parts for key in ("engines", "ladders"))


@contextlib.contextmanager
def program(run: Path) -> Iterator[Program]:
    """A process of `cbt-tools watch --serve`, which ends by kill -9."""
    words = [sys.executable, "-m", "cbt_plugins.tools", "watch", str(run), "--serve", "0"]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    assert process.stderr
    with closing(process.stderr):
        try:
            address = process.stderr.readline()
            yield Program(process, int(address.strip(" /\n").rpartition(":")[2]))
        finally:
            process.kill()
            process.wait()


def test_a_killed_server_loses_nothing(run: Path) -> None:
    with program(run) as first:
        page = ask(first, "/")[2].decode()
        (version,) = re.findall(r'id="live" data-version="(\d+)"', page)
        with closing(Events(first, version)) as events:
            while events.next()["event"] != "moment":
                pass
            first.process.kill()
            assert first.process.wait() == -signal.SIGKILL
    with program(run) as second:
        again = ask(second, "/")[2].decode()
        assert parts_of(again) == parts_of(page) and "phase-one-down" in parts_of(page)
        assert data_of(again) == data_of(page)
        with closing(Events(second, version)) as events:
            assert events.next()["event"] == "whole"  # the browser loads the page again


def test_the_page_of_an_ended_run_is_the_report(
    server: LiveServer, page: LivePage, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "new EventSource" in page.html
    with (run / "events.jsonl").open("a") as file:
        file.write(json.dumps({"t": COPIED + 1, "event": "run-failed", "why": "x"}) + "\n")
    page.look()
    main(["report", str(run)])
    assert ask(server, "/")[2] == (run / "report.html").read_bytes()
    assert "new EventSource" not in page.html


def test_the_address_is_free_when_the_browsers_have_the_report(
    server: LiveServer, page: LivePage, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    free: List[bool] = []
    monkeypatch.setattr(live_server, "wait_until", lambda condition, **_: free.append(condition()))
    with closing(Events(server, page.version)) as browser, closing(Events(server, page.version)) as asleep:
        wait_for(lambda: server.following == 2, "both followers")
        with (run / "events.jsonl").open("a") as file:
            file.write(json.dumps({"t": COPIED + 1, "event": "run-failed", "why": "x"}) + "\n")
        page.look()
        for events in (browser, asleep):
            while events.next()["event"] != "whole":
                pass
        server.let_go()
        ask(server, "/")
        wait_for(lambda: server.reports == 1 and not server.following, "one of two reports")
        server.let_go()
        ask(server, "/")
        wait_for(lambda: server.reports == 2, "the other one")
        server.let_go()
    assert free == [False, False, True]


def test_the_page_of_the_next_run_waits_for_the_address(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with (run / "events.jsonl").open("a") as file:
        file.write(json.dumps({"t": COPIED + 1, "event": "run-failed", "why": "x"}) + "\n")
    with closing(socket.create_server(("127.0.0.1", 0))) as former:
        port = former.getsockname()[1]
        monkeypatch.setattr(polling, "Clock", lambda: Clock(sleep=lambda _: former.close()))
        assert main(["watch", str(run), "--serve", str(port), "--until-end"]) == 1
    assert f"live: http://127.0.0.1:{port}/" in capsys.readouterr().err


def test_a_busy_port_is_named(server: LiveServer, run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    port = server.port
    assert main(["watch", str(run), "--serve", str(port)]) == 2
    assert f"cannot listen on 127.0.0.1:{port}: Address already in use: give another --serve PORT" in (
        capsys.readouterr().err
    )


_VALUES = st.lists(st.one_of(st.none(), st.integers(0, 9)), max_size=6)
_DATA = st.fixed_dictionaries(
    {
        "phases": st.lists(st.fixed_dictionaries({"rate": _VALUES, "about": st.text(max_size=2)}), max_size=3),
        "tails": st.lists(st.fixed_dictionaries({"ms": _VALUES}), max_size=2),
    }
)


@settings(deadline=None, max_examples=60)
@given(_DATA, _DATA)
def test_the_changes_make_the_new_data_of_the_old(old: Any, new: Any) -> None:
    """As live.js applies them."""
    state = json.loads(json.dumps(old))
    for path, begin, values in json.loads(json.dumps(list(changes(old, new)))):
        place = state
        for key in path[:-1]:
            place = place[key]
        if begin is None:
            place[path[-1]] = values
        else:
            place[path[-1]][begin:] = values
    assert state == new


def cut(run: Path) -> Dict[Path, bytes]:
    """Take the running phase's files back to its first seconds; return what they were."""
    former: Dict[Path, bytes] = {}
    for path in [*run.glob("phases/*.running/aggregates/*"), run / "events.jsonl"]:
        former[path] = path.read_bytes()
        if path.suffix == ".jsonl":
            lines = former[path].splitlines(keepends=True)
            path.write_bytes(b"".join(line for line in lines if b"node-a" not in line))
        else:
            path.write_bytes(b"")
    return former


def is_report(browser: Browser) -> bool:
    try:
        return bool(browser.evaluate("!document.querySelector('#live') && document.readyState === 'complete'"))
    except AssertionError:  # the page is just going
        return False


@pytest.mark.skipif(not CHROMIUM, reason="NO CHROMIUM: nobody has looked whether the live page works")
def test_a_browser_follows_and_ends_with_the_report(run: Path, tmp_path: Path) -> None:
    former = cut(run)
    page = LivePage(LiveRun(run))
    page.look()
    with closing(LiveServer(page, "127.0.0.1", 0)) as server, Browser(tmp_path / "profile") as browser:
        browser.open(server.url)
        assert browser.evaluate("document.querySelectorAll('#phase-one-down').length") == 0
        for path, content in former.items():
            path.write_bytes(content)
        page.run.sparing.next_at = 0.0
        page.look()
        there = "document.querySelectorAll('#phase-one-down canvas').length"
        wait_for(lambda: browser.evaluate(there) > 0, "the charts of the running phase")
        assert browser.evaluate("document.querySelector('#live').innerText.includes('fault node-a (stop node4)')")
        followed: List[str] = browser.evaluate(_PARTS)
        assert browser.evaluate(_DRAWN) == browser.evaluate("document.querySelectorAll('canvas').length")
        assert browser.complaints() == []
        charts_of_phase = "[...document.querySelectorAll('#phase-one-down canvas, [data-chart=run] canvas')]"
        drawn = f"{charts_of_phase}.map((canvas) => canvas.toDataURL())"
        charts = browser.evaluate(drawn)
        tell(run, "fault-inject-begin", "node-b", COPIED - 1)
        page.run.sparing.next_at = math.inf
        page.look()
        said = "document.querySelector('#live').innerText.includes('fault node-b (stop node2)')"
        wait_for(lambda: browser.evaluate(said), "the second fault on top")
        wait_for(lambda: all(now != was for now, was in zip(browser.evaluate(drawn), charts)), "its mark in each chart")
        browser.open(server.url)  # who comes late sees the same
        assert browser.evaluate(_PARTS) == followed
        assert browser.complaints() == []
        with (run / "events.jsonl").open("a") as file:
            file.write(json.dumps({"t": COPIED + 1, "event": "run-failed", "why": "x"}) + "\n")
        page.look()
        wait_for(lambda: is_report(browser), "the report")
        ended = browser.evaluate("document.documentElement.outerHTML")
        main(["report", str(run)])
        browser.open((run / "report.html").as_uri())
        assert browser.evaluate("document.documentElement.outerHTML") == ended
