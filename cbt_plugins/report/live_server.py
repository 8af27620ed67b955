"""Web server of a run's live page, with the standard library: serves the page and its events, no files.

On an address that other machines can reach, a token is required. The Host header of a request is checked: otherwise a
foreign web page could let its own name point to this server (DNS rebinding) and read the results.
"""

from __future__ import annotations

import hmac
import io
import ipaddress
import json
import logging
import re
import secrets
import socket
import sys
import threading
import time
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Callable, Dict, Optional
from urllib.parse import parse_qs, urlsplit

from cbt_plugins.polling import wait_until
from cbt_plugins.report.live_metrics import CONTENT_TYPE, metrics
from cbt_plugins.report.live_page import LivePage, Update

log = logging.getLogger(__name__)

#: seconds that the browsers which follow a run have, at its end, to fetch its report
_LAST = 10.0
#: milliseconds after which a browser whose connection was cut asks again
_RETRY = 2000
#: seconds for a request to come, and for a browser to take what it gets
TIMEOUT = 30.0
#: browsers that follow at once; connections at once, each of which has a thread and a file descriptor
_MOST = 64
_CONNECTIONS = 256
#: a header Host: a name or address, and a port
_HOST = re.compile(r"[\w.:\[\]-]*", re.ASCII)
_HEADERS = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


class LiveServer:
    """Serves a page in threads of its own until it is closed. Raises OSError where it cannot listen."""

    def __init__(self, page: LivePage, host: str, port: int) -> None:
        self.page = page
        # also a name, such as localhost, may be this machine's own
        infos = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        family, address = infos[0][0], infos[0][4]
        own = ipaddress.ip_address(str(address[0]).partition("%")[0])
        self._everywhere = own.is_unspecified
        self.token = "" if own.is_loopback else secrets.token_urlsafe(24)
        self._host = host
        self.following = 0  # browsers that follow now
        self.notices = self.reports = 0  # browsers that were told of the run's end; reports that were fetched
        self._counting = threading.Lock()
        self.closing = threading.Event()
        handler = type("Handler", (_Handler,), {"live": self})
        server = type("Server", (_Server,), {"address_family": family})
        self._server = server(address[:2], handler)
        self._thread = threading.Thread(target=self._server.serve_forever, name="live server", daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        """The port at which it listens."""
        return int(self._server.server_address[1])

    @property
    def url(self) -> str:
        """Where the page is; of a server on all addresses, by the name of this machine."""
        host = socket.gethostname() if self._everywhere else f"[{self._host}]" if ":" in self._host else self._host
        return f"http://{host}:{self.port}/{self.token and f'{self.token}/'}"

    def is_own_name(self, host: str) -> bool:
        """Tell whether the header Host of a request is a name of this server: no name of the DNS that others have."""
        if not _HOST.fullmatch(host):
            return False
        try:
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:
            return False
        if name in ("localhost", self._host.lower()):
            return True
        try:
            address = ipaddress.ip_address(name)
        except ValueError:
            return bool(self.token) and name in (socket.gethostname().lower(), socket.getfqdn().lower())
        return bool(self.token) or address.is_loopback

    def path_of(self, path: str) -> Optional[str]:
        """Return the path of a request behind the token; None where the token is wrong."""
        if not self.token:
            return path
        given, slash, left = path[1:].partition("/")
        right = hmac.compare_digest(given.encode("utf-8", "replace"), self.token.encode())
        return f"/{left}" if right and slash else None

    def let_go(self) -> None:
        """Wait until the browsers that follow have fetched the report of the run that has ended, but not for long."""
        wait_until(lambda: not self.following and self.reports >= self.notices, limit=_LAST, every=0.1)

    def count(self, following: int = 0, notices: int = 0, reports: int = 0) -> None:
        """Add to the numbers."""
        with self._counting:
            self.following += following
            self.notices += notices
            self.reports += reports

    def close(self) -> None:
        """Stop serving."""
        self.closing.set()
        self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    """Writes nothing to the terminal, which is the run's: also not that a browser has gone."""

    daemon_threads = True
    request_queue_size = _MOST  # with 5, the default, browsers that come at once wait for seconds

    def __init__(self, *args: Any) -> None:
        self._free = threading.BoundedSemaphore(_CONNECTIONS)
        super().__init__(*args)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread; above the limit the connection is closed: descriptors are the archive's too."""
        if not self._free.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._free.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer one connection."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, *_: Any) -> None:
        if not isinstance(sys.exc_info()[1], OSError):
            log.exception("the page was not sent")


class _Request(io.RawIOBase):
    """The bytes of a request, which must all come within TIMEOUT: one of them now and then would hold a thread."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._until = time.monotonic() + TIMEOUT

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        left = self._until - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self._connection.settimeout(left)
        return self._connection.recv_into(buffer)


class _Handler(BaseHTTPRequestHandler):
    """One request."""

    live: LiveServer
    timeout = TIMEOUT
    server_version = "cbt-plugins"
    sys_version = ""

    def setup(self) -> None:
        """Open the streams of the connection."""
        super().setup()
        self.rfile.close()
        self.rfile = io.BufferedReader(_Request(self.connection))

    def do_GET(self) -> None:
        """Answer with the page, or its events."""
        self.connection.settimeout(TIMEOUT)
        live = self.live
        path, _, query = self.path.partition("?")
        if not live.is_own_name(self.headers.get("Host") or ""):
            self._refuse(HTTPStatus.FORBIDDEN, "unknown host name: use the printed address")
            return
        answers: Dict[Optional[str], Callable[[], None]] = {
            "/": self._page,
            "/events": lambda: self._events(query),
            "/metrics": self._metrics,
        }
        answer = answers.get(live.path_of(path))
        if answer is None:
            self._refuse(HTTPStatus.NOT_FOUND, "no such page: use the complete printed address, with the token")
            return
        answer()

    def _refuse(self, status: HTTPStatus, text: str) -> None:
        self._send(f"{text}\n".encode(), "text/plain; charset=utf-8", status)

    def _page(self) -> None:
        is_report = self.live.page.ended
        self._send(self.live.page.html.encode(), "text/html; charset=utf-8")
        self.live.count(reports=is_report)

    def _metrics(self) -> None:
        page = self.live.page
        self._send(metrics(page.moment, page.run.aggregates).encode(), CONTENT_TYPE)

    def _send(self, body: bytes, kind: str, status: HTTPStatus = HTTPStatus.OK) -> None:
        self._begin(kind, status, {"Content-Length": str(len(body))})
        self.wfile.write(body)

    def _begin(self, kind: str, status: HTTPStatus, headers: Dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": kind, **_HEADERS, **headers}.items():
            self.send_header(name, value)
        self.end_headers()

    def _events(self, query: str) -> None:
        """Stream what is new until the browser goes, or the server."""
        live = self.live
        text = self.headers.get("Last-Event-ID") or (parse_qs(query).get("since") or [""])[0]
        since = int(text) if text.isascii() and text.isdigit() and len(text) < 20 else 0
        if live.following >= _MOST:
            self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, f"too many browsers: {_MOST} already follow this run")
            return
        live.count(following=1)
        try:
            self._begin("text/event-stream; charset=utf-8", HTTPStatus.OK, {})
            self.wfile.write(f"retry: {_RETRY}\n\n".encode())
            for update in live.page.updates(since):
                is_last = live.page.ended and update.kind == "whole"
                live.count(notices=is_last)
                self.wfile.write(_text_of(update))
                self.wfile.flush()
                if is_last or live.closing.is_set():
                    return
        except OSError:
            pass  # the browser has gone
        finally:
            live.count(following=-1)

    def log_message(self, *_: Any) -> None:
        """Log nothing: the terminal belongs to the run, and the address contains the token."""


def _text_of(update: Update) -> bytes:
    identity = f"id: {update.version}\n" if update.version is not None else ""
    return f"{identity}event: {update.kind}\ndata: {json.dumps(update.data, separators=(',', ':'))}\n\n".encode()
