"""`exec` of Kubernetes by SPDY/3.1, as a kubelet gives it to kubectl before 1.30, and to a kubectl without WebSockets.

A channel is a stream that the client opens. Frames: SPDY draft 3.1; the streams and their headers: v4.channel.k8s.io.
"""

from __future__ import annotations

import shutil
import socket
import struct
import threading
import zlib
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, Dict, Iterator, Optional, Tuple

from kube_exec import CLOSE, ERROR, STDERR, STDIN, STDOUT

_PROTOCOL = "v4.channel.k8s.io"
_CHANNELS = {"stdin": STDIN, "stdout": STDOUT, "stderr": STDERR, "error": ERROR}
#: types of control frames
_SYN_STREAM, _SYN_REPLY, _RST_STREAM, _PING, _GOAWAY = 1, 2, 3, 6, 7
_FIN = 1
#: bytes of a frame's content, at most
_PIECE = 1 << 15


def accepted(handler: BaseHTTPRequestHandler, wants_input: bool) -> Optional[Spdy]:
    """Return the connection that a request is upgraded to; None for a request that asks for another protocol."""
    offered = ",".join(handler.headers.get_all("X-Stream-Protocol-Version") or ())
    asked = (handler.headers.get("Upgrade") or "").upper() == "SPDY/3.1"
    if not asked or _PROTOCOL not in [p.strip() for p in offered.split(",")]:
        return None
    handler.send_response(101)
    for name, value in (("Upgrade", "SPDY/3.1"), ("Connection", "Upgrade"), ("X-Stream-Protocol-Version", _PROTOCOL)):
        handler.send_header(name, value)
    handler.end_headers()
    handler.close_connection = True
    spdy = Spdy(handler.connection, handler.rfile)
    spdy.open({ERROR, STDOUT, STDERR, *([STDIN] if wants_input else [])})
    return spdy


class Spdy:
    """The server's end of a connection, with the methods of a kube_exec.WebSocket."""

    def __init__(self, connection: socket.socket, reader: Any) -> None:
        self._connection, self._reader = connection, reader
        self._lock = threading.Lock()
        dictionary = _dictionary()
        self._unpack, self._pack = zlib.decompressobj(zdict=dictionary), zlib.compressobj(zdict=dictionary)
        self._stream_of: Dict[int, int] = {}  # channel -> stream
        self._messages = self._received()

    def open(self, channels: set[int]) -> None:
        """Wait for the client's streams."""
        while channels - set(self._stream_of):
            if next(self._messages, None) is None:
                return

    def send(self, channel: int, data: bytes) -> bool:
        stream = self._stream_of.get(channel)
        if stream is None:
            return False
        pieces = [data[at : at + _PIECE] for at in range(0, len(data), _PIECE)] or [b""]
        ends = channel == ERROR  # its only message
        return all(self._frame(stream, _FIN if ends else 0, piece) for piece in pieces)

    def receive(self) -> Optional[bytes]:
        """Return the next message of the input with its channel, None when the connection ends."""
        return next((message for message in self._messages if message), None)

    def close(self) -> None:
        for channel in (STDOUT, STDERR):
            self._frame(self._stream_of.get(channel, 0), _FIN, b"")
        self._control(_GOAWAY, 0, struct.pack("!II", max(self._stream_of.values(), default=0), 0))

    def _received(self) -> Iterator[bytes]:
        """Yield messages of the input, and b"" for each new stream, until the connection ends."""
        while True:
            try:
                head = self._reader.read(8)
                size = int.from_bytes(head[5:8], "big")
                content = self._reader.read(size)
            except (OSError, ValueError):
                return
            if len(head) < 8 or len(content) < size:
                return
            (first,) = struct.unpack("!I", head[:4])
            if not first & 0x80000000:
                if first == self._stream_of.get(STDIN):
                    yield from self._input(content, bool(head[4] & _FIN))
            elif first & 0xFFFF == _SYN_STREAM:
                yield self._opened(content)
            elif first & 0xFFFF == _PING:
                self._control(_PING, 0, content)
            elif first & 0xFFFF == _RST_STREAM and content[:4] == struct.pack("!I", self._stream_of.get(STDIN, 0)):
                yield from self._input(b"", True)
            elif first & 0xFFFF == _GOAWAY:
                return

    @staticmethod
    def _input(content: bytes, ends: bool) -> Iterator[bytes]:
        if content:
            yield bytes((STDIN,)) + content
        if ends:
            yield bytes((CLOSE, STDIN))

    def _opened(self, content: bytes) -> bytes:
        (stream,) = struct.unpack("!I", content[:4])
        headers = dict(_header_pairs(self._unpack.decompress(content[10:])))
        with self._lock:
            none = self._pack.compress(struct.pack("!I", 0)) + self._pack.flush(zlib.Z_SYNC_FLUSH)
        self._control(_SYN_REPLY, 0, struct.pack("!I", stream) + none)
        self._stream_of[_CHANNELS[headers["streamtype"]]] = stream
        return b""

    def _control(self, type: int, flags: int, content: bytes) -> bool:
        return self._frame(0x80030000 | type, flags, content)

    def _frame(self, first: int, flags: int, content: bytes) -> bool:
        head = struct.pack("!I", first) + bytes((flags,)) + len(content).to_bytes(3, "big")
        try:
            with self._lock:
                self._connection.sendall(head + content)
        except OSError:
            return False
        return True


def _header_pairs(block: bytes) -> Iterator[Tuple[str, str]]:
    texts, at = [], 4
    while at + 4 <= len(block):
        (size,) = struct.unpack("!I", block[at : at + 4])
        texts.append(block[at + 4 : at + 4 + size].decode())
        at += 4 + size
    return zip(texts[::2], texts[1::2])


def _dictionary() -> bytes:
    """Return the words that both ends of SPDY/3 compress headers with; kubectl contains them."""
    program = Path(shutil.which("kubectl") or "").resolve().read_bytes()
    begin = program.index(b"\0\0\0\x07options\0\0\0\x04head")
    return program[begin : program.index(b"enq=0.", begin) + len(b"enq=0.")]
