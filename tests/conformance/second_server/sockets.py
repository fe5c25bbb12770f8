"""The server on a socket."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from tests.conformance.second_server.connection import Connection, Server


@contextmanager
def listening(switch: str = "") -> Iterator[int]:
    """Run a server in a thread, on a free port of 127.0.0.1; yield the port."""
    loop = asyncio.new_event_loop()
    server = Server(loop, switch)
    made = loop.create_server(lambda: Connection(server), "127.0.0.1", 0, backlog=200)
    listener = loop.run_until_complete(made)
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield listener.sockets[0].getsockname()[1]
    finally:

        async def stop() -> None:
            listener.close()
            for connection in list(server.connections):
                connection.transport.abort()
            while server.connections:
                await asyncio.sleep(0)

        asyncio.run_coroutine_threadsafe(stop(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
