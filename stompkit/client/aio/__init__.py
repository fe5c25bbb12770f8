"""The client for asyncio programs: it runs on the event loop, without a Twisted reactor.

::

    import asyncio

    from stompkit.client.aio import Client


    async def main() -> None:
        async with Client("stomp://localhost") as client:
            await client.send("/queue/orders", b"one pizza")
            async for message in await client.subscribe("/queue/orders"):
                print(message.body)
                await message.ack()


    asyncio.run(main())

It is the client of :mod:`stompkit.client`, with the same guarantees and errors; its methods return
futures instead of Deferreds. It logs to :mod:`logging`, under ``stompkit.client``.
"""

from stompkit.client.aio._client import Client
from stompkit.client.aio._subscription import Handler, Message, Subscription
from stompkit.client.aio._transaction import Transaction

__all__ = ["Client", "Handler", "Message", "Subscription", "Transaction"]
