"""The web server of a live page: who gets an answer, what a request may take, and when the address is free."""

from __future__ import annotations

import contextlib
import http.client
import select
import shutil
import socket
import struct
import subprocess
import threading
from contextlib import closing
from pathlib import Path
from typing import List, Set

import pytest
from live_watchers import Events, ask, fail
from own_sshd import free_port, own_sshd, sshd_program
from prometheus_client.openmetrics import parser
from waiting import wait_for

from cbt_plugins import polling
from cbt_plugins.config.units import parse_listen
from cbt_plugins.polling import Clock

pytest.importorskip("jinja2")

from cbt_plugins.report import live_server
from cbt_plugins.report.live_page import LivePage
from cbt_plugins.report.live_server import LiveServer
from cbt_plugins.tools.__main__ import main


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


def test_the_metrics_are_openmetrics_over_http(server: LiveServer) -> None:
    status, headers, body = ask(server, "/metrics")
    assert (status, headers["Content-Type"]) == (200, "application/openmetrics-text; version=1.0.0; charset=utf-8")
    families = {family.name: family for family in parser.text_string_to_metric_families(body.decode())}
    latency = families["cbt_request_latency_seconds"]
    assert latency.type == "histogram" and latency.samples


def test_the_address_is_free_when_the_browsers_have_the_report(
    server: LiveServer, page: LivePage, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    free: List[bool] = []
    monkeypatch.setattr(live_server, "wait_until", lambda condition, **_: free.append(condition()))
    with closing(Events(server, page.version)) as browser, closing(Events(server, page.version)) as asleep:
        wait_for(lambda: server.following == 2, "both followers")
        fail(run)
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
    fail(run)
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
