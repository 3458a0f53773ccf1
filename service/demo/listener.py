"""A TCP server that knows each of its connections from the moment it is accepted.

The event loop's own servers forget those that they are just accepting when they are closed, and leave them open.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Listener:
    """Listens from its making until `close`. For every connection `serve` runs in a task of its own, which is cancelled
    by `close` and has to close the writer. Raises OSError when the address can't be had."""

    def __init__(self, serve: Serve, host: str, port: int = 0, context: ssl.SSLContext | None = None) -> None:
        self._serve, self._context = serve, context
        self._tasks: set[asyncio.Task[None]] = set()
        self._socket = socket.create_server((host, port), backlog=1024)
        self._socket.setblocking(False)
        self.port: int = self._socket.getsockname()[1]
        asyncio.get_running_loop().add_reader(self._socket.fileno(), self._accept)

    async def close(self) -> None:
        """End all connections; when it returns nothing of them is left."""
        asyncio.get_running_loop().remove_reader(self._socket.fileno())
        self._socket.close()
        await asyncio.sleep(0)  # a task that is cancelled before it began would not close its connection
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.sleep(0)  # what was closed in its beginning is closed now

    def _accept(self) -> None:
        try:
            connection, _ = self._socket.accept()
        except (BlockingIOError, ConnectionError):
            return  # who came is gone again
        connection.setblocking(False)
        task = asyncio.create_task(self._begin(connection))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _begin(self, connection: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader()
        protocol = asyncio.StreamReaderProtocol(reader)
        try:
            transport, _ = await loop.connect_accepted_socket(lambda: protocol, connection, ssl=self._context)
        except OSError:
            return  # no agreement on TLS
        await self._serve(reader, asyncio.StreamWriter(transport, protocol, reader, loop))
