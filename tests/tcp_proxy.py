"""A proxy before a local server: an address that can be pointed elsewhere, and TLS for a server that speaks none."""

from __future__ import annotations

import asyncio
import ssl
from contextlib import suppress

from tests.asyncio_server import AsyncioServer


class TcpProxy(AsyncioServer):
    """Open connections stay where they are when it is pointed elsewhere."""

    def __init__(self, to_port: int, tls: ssl.SSLContext | None = None) -> None:
        """`tls`: what it speaks to clients; the server behind is spoken to without."""
        super().__init__()
        self.to_port = to_port
        self._tls = tls

    async def _listen(self) -> asyncio.Server:
        return await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._tls)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", self.to_port)
        await asyncio.gather(_copy(reader, back), _copy(there, writer))


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):  # either end may close at any time
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    writer.close()
