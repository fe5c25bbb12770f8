"""A connection of a replica to a channel: the link to its broker and the subscriptions."""

from __future__ import annotations

import logging
import random
import re
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Final, NamedTuple

from stompkit._common.retry import Backoff
from stompkit.client.blocking import Delivery, Inbox, Link, LinkClosedError, durable_subscription
from stompkit.replica._channels.channel import Channel
from stompkit.replica._running.mailbox import Mailbox
from stompkit.replication.model.frames import Packet

__all__ = ["Arrival", "ChannelConnection"]

_log: Final = logging.getLogger(__name__)

#: Prefetch limit: messages that the broker sends ahead of their acknowledgements.
_PREFETCH: Final = 1000
#: Back-off after a refusal by the broker: first and maximum delay in seconds. The delay doubles
#: each time.
_AGAIN_S: Final = 1.0
_AGAIN_MOST_S: Final = 60.0
#: The engine's thread never waits for a broker: the engine itself limits how much it sends.
_UNBOUNDED: Final = 2**62


class Arrival(NamedTuple):
    """A message with the connection and the inbox that received it."""

    connection: ChannelConnection
    inbox: Inbox
    delivery: Delivery


class _Pump:
    """A thread that reads one subscription."""

    def __init__(self, connection: ChannelConnection, link: Link, destination: str) -> None:
        """Start the thread."""
        self.destination: Final = destination
        self.is_ready = False
        self._connection = connection
        self._link = link
        self._inbox: Inbox | None = None
        self._is_left = threading.Event()
        self._thread = threading.Thread(
            target=self._run, name=f"stompkit-replica {destination}", daemon=True
        )
        self._thread.start()

    def leave(self) -> None:
        """Stop reading; messages that were not taken stay with the broker."""
        self._is_left.set()
        if self._inbox is not None:
            self._inbox.close(timeout_s=0)

    def join(self) -> None:
        """Wait for the thread to end after ``leave()`` or after the link was closed."""
        self._thread.join()

    def _run(self) -> None:
        connection = self._connection
        try:
            self._inbox = inbox = self._link.subscribe(
                self.destination,
                ack=connection.channel.send_stomp_ack,
                prefetch=_PREFETCH,
                headers=connection.headers(self.destination),
                timeout_s=None,
                stop=self._is_left.is_set,
            )
            connection.mailbox.call(partial(connection.subscribed, self))
            while not self._is_left.is_set():
                delivery = inbox.get()
                if delivery is not None:
                    arrival = Arrival(connection, inbox, delivery)
                    if not connection.mailbox.deliver(arrival, len(delivery.body)):
                        return
            inbox.close(timeout_s=0)
        except Exception as error:
            connection.mailbox.call(partial(connection.ended, self, error))


class ChannelConnection:
    """A connection to a channel; the engine's thread calls all methods unless noted otherwise."""

    def __init__(
        self,
        number: int,
        channel: Channel,
        mailbox: Mailbox[Arrival],
        on_change: Callable[[int, bool], object],
    ) -> None:
        """Start disconnected; ``on_change`` is called when the channel goes up or down."""
        self.number: Final = number
        self.channel: Final = channel
        self.mailbox: Final = mailbox
        #: Reason why the channel is unusable; empty if unknown.
        self.problem = ""
        #: Bytes sent that no broker has confirmed yet.
        self.unconfirmed = 0
        self._on_change = on_change
        self._client = ""
        self._destinations: Sequence[str] = ()
        self._link: Link | None = None
        self._is_connected = False
        self._is_up = False
        self._pumps: dict[str, _Pump] = {}
        self._backoff = Backoff(_AGAIN_S, _AGAIN_MOST_S)
        #: Time of the next retry, in monotonic seconds.
        self.due_s: float | None = None

    @property
    def is_up(self) -> bool:
        """True if the link is connected and all subscriptions are ready."""
        return self._is_up

    def headers(self, destination: str) -> dict[str, str]:
        """Return additional headers for SUBSCRIBE; safe to call from any thread."""
        if not self.channel.durable or destination != self.channel.destination:
            return {}
        return durable_subscription(f"{self._client}-{_word(destination)}")

    # Called by the runner.

    def open(self, destinations: Sequence[str], origin: str) -> None:
        """Connect and subscribe to ``destinations``; ``origin`` is the origin of this node."""
        self._destinations = destinations
        self._client = _word(origin)
        self._connect()

    def subscribe(self, destinations: Sequence[str]) -> None:
        """Replace the current subscriptions by these."""
        self._destinations = destinations
        for destination in self._pumps.keys() - set(destinations):
            self._pumps.pop(destination).leave()
        self._subscribe()
        self._look()

    def send(self, destination: str, packets: list[Packet]) -> None:
        """Send frames without waiting: a node that lacks a lost message requests it again."""
        link = self._link
        if link is None:
            return
        size = sum(len(packet.body) for packet in packets)
        try:
            future = link.send(destination, packets)
        except LinkClosedError:
            return
        self.unconfirmed += size
        future.add_done_callback(
            lambda done: self.mailbox.call(partial(self._confirmed, link, size, done))
        )

    def retry(self, now_s: float) -> None:
        """Retry what the broker has refused, if the back-off has expired."""
        if self.due_s is None or now_s < self.due_s:
            return
        self.due_s = None
        if self._link is None:
            self._connect()
        else:
            self._subscribe()

    def close(self, timeout_s: float = 10.0) -> None:
        """Wait for pending sends and disconnect; close the mailbox first."""
        for pump in self._disconnect(timeout_s):
            pump.join()

    # Callbacks.

    def subscribed(self, pump: _Pump) -> None:
        """Mark a subscription as ready."""
        pump.is_ready = True
        self._look()

    def ended(self, pump: _Pump, error: Exception) -> None:
        """Schedule a retry for a subscription that was refused or has ended."""
        if self._pumps.get(pump.destination) is not pump:
            return
        del self._pumps[pump.destination]
        reason = error.__cause__ or error
        self.problem = f"{pump.destination}: {reason}"
        again_s = self._backoff.fail()
        _log.error("%r: %s; trying again in %.0f s", self._link, self.problem, again_s)
        if self._link is not None and self._link.closed.done():
            # The link has given up, for example after a refused login.
            self._disconnect(timeout_s=0)
        self.due_s = time.monotonic() + again_s * (1 + random.random() / 4)
        self._look()

    def _told(self, link: Link, *, is_connected: bool) -> None:
        """Record that the link was connected or disconnected."""
        if link is self._link:
            self._is_connected = is_connected
            self._look()

    def _confirmed(self, link: Link, size: int, done: Future[None]) -> None:
        if link is not self._link:
            return
        self.unconfirmed -= size
        error = done.exception()
        if error is not None:
            _log.warning("%r: a message was not taken: %s", link, error)

    # Internals.

    def _connect(self) -> None:
        holder: list[Link] = []

        def told(*, is_connected: bool) -> None:
            # Runs in the link's thread, possibly before ``holder`` is filled; the call runs later.
            self.mailbox.call(lambda: self._told(holder[0], is_connected=is_connected))

        self.unconfirmed = 0
        link = self.channel.link(
            connect_headers={"client-id": self._client} if self.channel.durable else None,
            max_messages=_UNBOUNDED,
            max_bytes=_UNBOUNDED,
            on_connected=lambda: told(is_connected=True),
            on_disconnected=lambda _: told(is_connected=False),
        )
        holder.append(link)
        self._link = link
        self._subscribe()

    def _subscribe(self) -> None:
        if self._link is not None:
            for destination in self._destinations:
                if destination not in self._pumps:
                    self._pumps[destination] = _Pump(self, self._link, destination)

    def _disconnect(self, timeout_s: float) -> list[_Pump]:
        """Close the link; returns the pumps, which then end."""
        link, self._link = self._link, None
        pumps = list(self._pumps.values())
        self._pumps.clear()
        self._is_connected = False
        if link is not None:
            link.close(timeout_s)
        for pump in pumps:
            pump.leave()
        return pumps

    def _look(self) -> None:
        """Call ``on_change`` if the channel has become usable or unusable."""
        is_up = self._is_connected and all(
            each in self._pumps and self._pumps[each].is_ready for each in self._destinations
        )
        if is_up:
            self.problem = ""
            self._backoff.reset()
        if is_up != self._is_up:
            self._is_up = is_up
            self._on_change(self.number, is_up)


def _word(text: str) -> str:
    """Return the text with everything replaced that brokers do not accept in a name."""
    return re.sub(r"[^\w.-]+", "-", text).strip("-")
