"""TLS in front of the API server of the tests, which kubectl needs before it sends a token."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import ssl
import subprocess
import threading
from pathlib import Path

import pytest

_PIECE = 1 << 16


class TlsFront:
    """A port with TLS whose connections go to `port`, and the file of its certificate."""

    def __init__(self, port: int, folder: Path) -> None:
        if shutil.which("openssl") is None:
            pytest.skip("needs openssl: apt-get install openssl")
        self.certificate, key = folder / "tls.crt", folder / "tls.key"
        line = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1"]
        line += ["-addext", "subjectAltName=IP:127.0.0.1", "-out", str(self.certificate), "-keyout", str(key)]
        subprocess.run(line, check=True, capture_output=True, timeout=60)
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(self.certificate, key)
        self._port, self._loop = port, asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        serving = asyncio.start_server(self._connected, "127.0.0.1", 0, ssl=self._context)
        self._server = asyncio.run_coroutine_threadsafe(serving, self._loop).result(30)

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def close(self) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(30)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(30)
        self._loop.close()

    async def _end(self) -> None:
        self._server.close()
        connections = asyncio.all_tasks() - {asyncio.current_task()}
        for task in connections:
            task.cancel()
        await asyncio.gather(*connections, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._port)
        copies = [asyncio.ensure_future(_copied(*ends)) for ends in ((reader, far_writer), (far_reader, writer))]
        try:
            # the end of one direction ends both, as TLS has no half of a connection
            await asyncio.wait(copies, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for copy in copies:
                copy.cancel()
            for end in (writer, far_writer):
                end.close()
            with contextlib.suppress(OSError, ssl.SSLError):
                await asyncio.gather(writer.wait_closed(), far_writer.wait_closed())


async def _copied(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(_PIECE):
            writer.write(data)
            await writer.drain()
    except (OSError, ssl.SSLError):  # either side has gone
        return
