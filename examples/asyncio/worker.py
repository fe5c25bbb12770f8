"""A worker that ships orders, several at a time, until it is asked to stop."""

import asyncio
import logging
import os
import signal

from stompkit.client import BrokerError, LoginRefusedError
from stompkit.client.aio import Client

HOSTS = os.environ.get("STOMP_HOSTS", "stomp://localhost:61613")


async def ship(client, order):
    """Handle an order; it is acknowledged when this has returned."""
    reply = order.headers.get("reply-to")
    await asyncio.sleep(0.01)  # the work
    if reply is not None:
        await client.reply(order, b"shipped: " + order.body)


async def main():
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    login, passcode = os.environ.get("STOMP_LOGIN"), os.environ.get("STOMP_PASSCODE")
    async with Client(HOSTS, login=login, passcode=passcode) as client:
        orders = await client.subscribe(
            "/queue/orders",
            lambda order: ship(client, order),
            prefetch=20,
            concurrency=10,
        )
        print("ready", flush=True)
        stopped = asyncio.ensure_future(stop.wait())
        done, _ = await asyncio.wait(
            [stopped, orders.when_ended(), client.when_closed()],
            return_when=asyncio.FIRST_COMPLETED,
        )
        for each in done:
            await each  # raises the error of a client that gave up
        await orders.unsubscribe()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    try:
        asyncio.run(main())
    except (LoginRefusedError, BrokerError) as error:
        raise SystemExit(f"the broker refuses: {error}") from None
