"""`exec` of Kubernetes by WebSocket (v5.channel.k8s.io) as a kubelet gives it.

The exit status comes on the error channel, 137 of a process that was killed; connections may drop.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import os
import signal
import socket
import struct
import subprocess
import threading
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, Optional, Protocol


class Channels(Protocol):
    """The server's end of a connection: messages with a channel."""

    def send(self, channel: int, data: bytes) -> bool: ...

    def receive(self) -> Optional[bytes]: ...

    def close(self) -> None: ...


_WEBSOCKET = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_PROTOCOLS = ("v5.channel.k8s.io", "v4.channel.k8s.io")
STDIN, STDOUT, STDERR, ERROR, CLOSE = 0, 1, 2, 3, 255


def accepted(handler: BaseHTTPRequestHandler) -> Optional[WebSocket]:
    """Return the WebSocket that a request is upgraded to; None for a request that asks for none."""
    key = handler.headers.get("Sec-WebSocket-Key")
    offered = [p.strip() for p in (handler.headers.get("Sec-WebSocket-Protocol") or "").split(",")]
    protocol = next((p for p in _PROTOCOLS if p in offered), None)
    if not key or not protocol:
        return None
    accept = base64.b64encode(hashlib.sha1((key + _WEBSOCKET).encode()).digest()).decode()
    handler.send_response(101)
    for name, value in (
        ("Upgrade", "websocket"),
        ("Connection", "Upgrade"),
        ("Sec-WebSocket-Accept", accept),
        ("Sec-WebSocket-Protocol", protocol),
    ):
        handler.send_header(name, value)
    handler.end_headers()
    handler.close_connection = True
    return WebSocket(handler.connection, handler.rfile)


def serve(web: Channels, process: subprocess.Popen[bytes]) -> None:
    """Carry the streams of a process until it ends; when the connection is lost its pipes are closed."""

    def copied(channel: int, pipe: Any) -> None:
        with pipe:
            while data := os.read(pipe.fileno(), 1 << 15):
                if not web.send(channel, data):
                    return

    pipes = ((STDOUT, process.stdout), (STDERR, process.stderr))
    outputs = [threading.Thread(target=copied, args=of, daemon=True) for of in pipes]
    reading = threading.Thread(target=_feed, args=(web, process), daemon=True)
    for thread in (*outputs, reading):
        thread.start()
    for thread in outputs:
        thread.join()
    status = process.wait()
    web.send(ERROR, _status(128 - status if status < 0 else status))
    web.close()
    reading.join(5)


def _feed(web: Channels, process: subprocess.Popen[bytes]) -> None:
    while True:
        message = web.receive()
        if message is None or message[:2] == bytes((CLOSE, STDIN)):
            break
        if message[:1] == bytes((STDIN,)) and process.stdin:
            with contextlib.suppress(OSError):
                process.stdin.write(message[1:])
                process.stdin.flush()
    if process.stdin:
        with contextlib.suppress(OSError):
            process.stdin.close()
    while message is not None:  # pings are answered to the end
        message = web.receive()


class WebSocket:
    """The server's end of a WebSocket (RFC 6455): binary messages whose first byte is a channel."""

    def __init__(self, connection: socket.socket, reader: Any) -> None:
        self._connection, self._reader = connection, reader
        self._lock = threading.Lock()

    def send(self, channel: int, data: bytes) -> bool:
        return self._frame(2, bytes((channel,)) + data)

    def _frame(self, opcode: int, data: bytes) -> bool:
        size = len(data)
        head = struct.pack("!BB", 0x80 | opcode, size) if size < 126 else struct.pack("!BBH", 0x80 | opcode, 126, size)
        if size > 0xFFFF:
            head = struct.pack("!BBQ", 0x80 | opcode, 127, size)
        try:
            with self._lock:
                self._connection.sendall(head + data)
        except OSError:
            return False
        return True

    def receive(self) -> Optional[bytes]:
        """Return the next message, None when the connection ends."""
        message = b""
        try:
            while True:
                first, second = self._reader.read(2)
                size = second & 0x7F
                if size > 125:
                    size = int.from_bytes(self._reader.read(2 if size == 126 else 8), "big")
                mask, data = self._reader.read(4), self._reader.read(size)
                if len(data) < size:
                    return None
                key = int.from_bytes((mask * (size // 4 + 1))[:size], "big")
                data = (int.from_bytes(data, "big") ^ key).to_bytes(size, "big")
                opcode = first & 0xF
                if opcode == 8:
                    self._frame(8, data)
                    return None
                if opcode == 9:
                    self._frame(10, data)
                elif opcode in (0, 1, 2):
                    message += data
                    if first & 0x80:
                        return message
        except (OSError, ValueError):
            return None

    def close(self) -> None:
        self._frame(8, struct.pack("!H", 1000))


def _status(code: int) -> bytes:
    if not code:
        return json.dumps({"metadata": {}, "status": "Success"}).encode()
    details = {"causes": [{"reason": "ExitCode", "message": str(code)}]}
    message = f"command terminated with non-zero exit code: exit status {code}"
    status = {"metadata": {}, "status": "Failure", "reason": "NonZeroExitCode", "message": message, "details": details}
    return json.dumps(status).encode()


def failure(message: str) -> bytes:
    """Return the message of the error channel for a command that did not start."""
    status = {"metadata": {}, "status": "Failure", "reason": "InternalError", "message": message, "code": 500}
    return json.dumps(status).encode()


def kill_session(leader: int) -> None:
    """Kill all that a command has started: it is the leader of a session.

    All of them are stopped first, as all of a pod die at once: none sees the end of another one.
    """
    for sent in (signal.SIGSTOP, signal.SIGKILL):
        for path in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):
                if path.read_text().rpartition(")")[2].split()[3] == str(leader):
                    os.kill(int(path.parent.name), sent)
