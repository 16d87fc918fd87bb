"""A proxy before a PostgreSQL server, which counts round trips."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
from anyio.abc import ByteStream, SocketAttribute, SocketStream


class Proxy:
    """Passes all connections on to a server. `trips` counts the times that a client asked and then waited."""

    def __init__(self, host: str, port: int) -> None:
        self._server = host, port
        self.trips = 0

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[int]:
        """Listen, and return the port."""
        listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
        async with listener, anyio.create_task_group() as group:
            group.start_soon(listener.serve, self._serve)
            yield listener.extra(SocketAttribute.local_port)  # noqa: S610 (an attribute of a socket)
            group.cancel_scope.cancel()

    async def _serve(self, client: SocketStream) -> None:
        waits = False

        async def ask() -> None:
            nonlocal waits
            async for chunk in client:
                self.trips += not waits
                waits = True
                await server.send(chunk)
            await server.send_eof()

        async def answer(server: ByteStream) -> None:
            nonlocal waits
            async for chunk in server:
                waits = False
                await client.send(chunk)

        async with client, await anyio.connect_tcp(*self._server) as server, anyio.create_task_group() as group:
            group.start_soon(ask)
            group.start_soon(answer, server)
