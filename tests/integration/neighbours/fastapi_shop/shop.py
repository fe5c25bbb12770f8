"""A FastAPI application that sends orders, by an asyncio client and by a blocking one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI, Request

from stompkit.client.aio import Client
from stompkit.client.blocking import Link
from stompkit.frames import Frame


def application(address: str, orders: str) -> FastAPI:
    """Return the application, which opens and closes its clients."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        with Link([address]) as link:
            async with Client(address) as client:
                app.state.link, app.state.client = link, client
                yield

    app = FastAPI(lifespan=lifespan)

    @app.post("/awaited", status_code=202)
    async def awaited(request: Request) -> None:
        await app.state.client.send(orders, await request.body())

    @app.post("/blocking/{dish}", status_code=202)
    def blocking(dish: str) -> None:
        app.state.link.send(orders, [Frame("SEND", {}, dish.encode())]).result(10)

    return app
