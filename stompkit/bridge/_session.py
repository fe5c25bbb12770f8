"""One session of a route: a client for each side, and forwarding between them."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Final, Protocol

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from stompkit.bridge._buffer import Buffer, InThread, record_of
from stompkit.bridge._dialects import DIALECTS, Dialect, dialect_of
from stompkit.bridge._errors import MessageDroppedError, MessageRefusedError, RouteStoppedError
from stompkit.bridge._full import FullDestination, is_for_now
from stompkit.bridge._headers import (
    HOPS,
    ID,
    DeliveryKey,
    delivery_key,
    for_refused,
    for_sink,
    forwarded,
    hops_of,
)
from stompkit.bridge._memory import Memory
from stompkit.bridge._names import canonical, is_pattern, named, spelled
from stompkit.bridge._sender import Sender
from stompkit.bridge._settings import Leg, Site
from stompkit.bridge._status import RouteStatus
from stompkit.bridge._store import Store
from stompkit.client import AckMode, BrokerError, BufferLimits, Client, ClientClosedError, Message
from stompkit.client.blocking import durable_subscription
from stompkit.spool import Record
from stompkit.spool.receiver import subscription_name

__all__ = ["ClientMaker", "Session"]

_log: Final = Logger()
#: Time in seconds that a broker may take to answer DISCONNECT.
_GOODBYE_S: Final = 5.0


class ClientMaker(Protocol):
    """Makes clients of sites."""

    def __call__(self, site: Site, **settings: Any) -> Client:
        """Return a client that is not connected."""


class Session:
    """Forwards messages until one side fails or the session is finished.

    A message is acknowledged to the source once the destination or the buffer has stored it.
    """

    def __init__(
        self,
        leg: Leg,
        durable_name: str,
        status: RouteStatus,
        memory: Memory,
        make_client: ClientMaker,
        clock: IReactorTime,
        now: Callable[[], float],
        buffer: Buffer | None,
        in_thread: InThread,
        delay_s: Callable[[int], float],
        *,
        needs_destination: bool,
    ) -> None:
        """Make the clients; :meth:`run` connects them.

        ``delay_s`` returns the wait after refusals for want of room. With *needs_destination* the
        route runs only when the destination is connected, too.
        """
        self._leg = leg
        self._durable_name = durable_name
        self._status = status
        self._memory = memory
        self._clock = clock
        self._now = now
        self._needs_destination = needs_destination
        self._is_receiving = False
        #: True if the destination has made the session fail, for example by refusing the login.
        self.is_destination_at_fault = False
        self._end: Deferred[None] = Deferred()
        self._idle: Deferred[None] | None = None
        self._is_finishing = False
        self._followers: dict[DeliveryKey, list[Deferred[None]]] = {}
        self._dialect: Dialect = DIALECTS["plain"]  # until they have answered CONNECT
        self._to_dialect: Dialect = DIALECTS["plain"]
        limits = BufferLimits(send_messages=2 * leg.window, queue_messages=leg.window)
        is_durable = leg.durable and not leg.moves
        self._source = make_client(
            leg.source,
            buffers=limits,
            # ActiveMQ and Artemis know a durable subscriber by this.
            connect_headers={"client-id": durable_name} if is_durable else None,
            on_disconnected=self._source_lost,
        )
        self._to = make_client(leg.to, buffers=limits, on_disconnected=self._to_lost)
        self._full = FullDestination(status)
        self._sender = Sender(self._to, clock, delay_s, self._full)
        self._store: Store | None = None
        if buffer is not None:
            self._store = Store(
                buffer, leg.window, in_thread, clock, self._forward_kept, self._failed, status
            )

    async def run(self) -> None:
        """Forward messages; return after :meth:`finish`.

        Raises :class:`RouteStoppedError`, and any other error that has made a client give up.
        """
        self._source.when_closed().addErrback(self._failed)
        self._to.when_closed().addErrback(self._destination_failed)
        self._go(self._receive())
        if self._store is not None:
            self._go(self._empty(self._store))
        await self._end

    async def finish(self, timeout_s: float) -> None:
        """Stop receiving, and wait up to *timeout_s* seconds for messages in flight."""
        self._is_finishing = True
        if self._store is not None:
            self._store.finish()
        if self._sender.count and self._to.is_connected:
            idle: Deferred[None] = Deferred()
            self._idle = idle
            call = self._clock.callLater(timeout_s, self._notify_idle)
            await idle
            if call.active():
                call.cancel()
        # The last confirmed messages are acknowledged after their waiters have run.
        told: Deferred[None] = Deferred()
        self._clock.callLater(0, told.callback, None)
        await told
        self._finish(None)

    async def close(self) -> None:
        """Disconnect both sides."""
        self._is_finishing = True
        self._sender.forget()
        if self._store is not None:
            await self._store.close()
        for client in (self._source, self._to):
            await client.disconnect(timeout_s=_GOODBYE_S)
        self.refresh()

    def refresh(self) -> None:
        """Update the status."""
        status = self._status
        status.source_connected = self._source.is_connected
        status.to_connected = self._to.is_connected
        status.under_way = self._sender.count
        if self._store is not None:
            status.buffered = self._store.count

    # The clients.

    def _source_lost(self, reason: Exception) -> None:
        if self._store is None and self._ack() != "auto" and not self._to.is_connected:
            # The source redelivers them. If it changes their ids, they would be forwarded twice.
            self._sender.drop()

    def _to_lost(self, reason: Exception) -> None:
        self._sender.disconnected(reason)

    def _go(self, work: Coroutine[Deferred[Any], Any, None]) -> None:
        Deferred.fromCoroutine(work).addErrback(self._failed)

    def _failed(self, failure: Failure) -> None:
        error = failure.value
        if isinstance(error, ClientClosedError):  # the client itself has reported the reason
            return
        self._finish(error if isinstance(error, Exception) else RuntimeError(repr(error)))

    def _destination_failed(self, failure: Failure) -> None:
        self.is_destination_at_fault = True
        self._failed(failure)

    def _finish(self, error: Exception | None) -> None:
        if self._end.called:
            return
        self._is_finishing = True
        if error is None:
            self._end.callback(None)
        else:
            self._end.errback(error)

    def _notify_idle(self) -> None:
        idle, self._idle = self._idle, None
        if idle is not None:
            idle.callback(None)

    # From the source.

    def _ack(self) -> AckMode:
        if self._leg.moves or (self._leg.durable and self._dialect.durable):
            return "client-individual"
        return "auto"

    async def _receive(self) -> None:
        leg = self._leg
        if self._store is None:
            # Without a buffer, messages cannot be processed before the destination is connected.
            await self._connect_to()
            self._needs_destination = False
        await self._source.connect()
        self._dialect = dialect = dialect_of(leg.source.dialect, self._source.connected_headers)
        self._check(dialect)
        ack = self._ack()
        kept = "nobody" if ack == "auto" else "source"
        self._status.kept = kept if self._store is None else "buffer"
        if ack == "auto":
            _log.warn(
                "route {name}: {site} keeps nothing of topics for who is away: what comes while"
                " the bridge or the destination is not there is lost",
                name=leg.name,
                site=leg.source.name,
            )
        for destination in leg.destinations:
            await self._subscribe(destination, ack)
        self._is_receiving = True
        self._note_running()

    def _note_running(self) -> None:
        if self._is_receiving and not self._needs_destination:
            self._full.running()

    async def _subscribe(self, destination: str, ack: AckMode) -> None:
        leg = self._leg
        own = spelled(destination, leg.source.prefixes)
        if own.endswith((".>", "/>")):
            own = own[:-1] + self._dialect.rest
        headers = {"selector": leg.selector} if leg.selector else {}
        if ack != "auto" and not leg.moves:
            headers |= durable_subscription(subscription_name(self._durable_name, destination))
        subscription = await self._source.subscribe(
            own,
            self._take,
            ack=ack,
            headers=headers,
            prefetch=leg.window,
            nack_on_error=False,
            concurrency=leg.window,
        )
        subscription.when_ended().addErrback(self._failed)

    def _check(self, dialect: Dialect) -> None:
        leg = self._leg
        patterns = [each for each in leg.destinations if is_pattern(each)]
        if leg.moves and patterns and not dialect.queue_patterns:
            raise RouteStoppedError(
                f"{dialect.name} has no patterns of queues such as {patterns[0]}: name each queue"
            )
        if leg.selector and not dialect.selectors:
            raise RouteStoppedError(
                f"{dialect.name} has no selectors: leave it out, and filter there"
            )

    async def _take(self, message: Message) -> None:
        """Forward or buffer a message; it is acknowledged when this returns."""
        try:
            await self._pass_on(message)
        except Exception as error:
            if not isinstance(
                error, ClientClosedError
            ):  # the client itself has reported the reason
                self._finish(error)
            await Deferred[None]()  # for ever: it stays with the source

    async def _pass_on(self, message: Message) -> None:
        leg = self._leg
        if self._is_finishing:
            await Deferred[None]()  # for ever: it stays with the source
        self._status.received += 1
        destination = canonical(message.destination, leg.source.prefixes)
        to = named(leg.template, destination, leg.source.name)
        headers = forwarded(
            message.headers,
            leg.source.name,
            self._dialect,
            self._now(),
            persistent=leg.persistent,
        )
        hops = hops_of(message.headers)
        if leg.to.name in hops or len(hops) >= leg.max_hops:
            await self._looped(to, headers, message.body, hops)
            return
        key = delivery_key(message.destination, message.headers, leg.source.name, self._dialect)
        # Only messages marked as redelivered can be known: a broker may reuse an id.
        if self._store is not None:
            record = record_of(message, key, to, headers, self._now())
            await self._store.keep(record, is_redelivered=message.redelivered)
        elif message.redelivered and key in self._memory:
            self._status.known += 1
        elif message.redelivered and key in self._followers:
            self._status.known += 1
            done: Deferred[None] = Deferred()
            self._followers[key].append(done)
            await done
        else:
            await self._forward_new(key, to, headers, message.body)

    async def _looped(self, to: str, headers: dict[str, str], body: bytes, hops: list[str]) -> None:
        leg = self._leg
        passed = ", ".join(hops[: leg.max_hops])
        if not leg.moves:
            self._status.looped += 1
            return
        if leg.to.name in hops:
            reason = (
                f"it has passed this site already ({HOPS}: {passed}). If it is to return there,"
                " give the site another name, such as with --to-site"
            )
        else:
            reason = f"it has passed {len(hops)} sites, the maximum ({HOPS}: {passed})"
        await self._refused(to, headers, body, reason)

    # To the destination.

    async def _connect_to(self) -> None:
        try:
            await self._to.connect()
        except Exception:
            self.is_destination_at_fault = True
            raise
        self._to_dialect = dialect_of(self._leg.to.dialect, self._to.connected_headers)

    async def _empty(self, store: Store) -> None:
        await self._connect_to()
        self._needs_destination = False
        self._note_running()
        await store.empty()

    async def _forward_kept(self, record: Record) -> None:
        await self._forward(record.destination, dict(record.headers), record.body)

    async def _forward_new(
        self, key: DeliveryKey, to: str, headers: dict[str, str], body: bytes
    ) -> None:
        if key:
            self._followers.setdefault(key, [])
        try:
            if await self._forward(to, headers, body):
                self._memory.add(key)
        except MessageDroppedError:
            pass
        for follower in self._followers.pop(key, ()):
            follower.callback(None)

    async def _forward(self, to: str, headers: dict[str, str], body: bytes) -> bool:
        """Send a message; return True if the destination has it, and not the dead letters."""
        destination = spelled(to, self._leg.to.prefixes)
        dressed = for_sink(headers, self._to_dialect, self._now())
        try:
            await self._sender.send(destination, body, dressed)
        except MessageRefusedError as refused:
            await self._refused(to, headers, body, str(refused))
            is_forwarded = False
        else:
            self._status.forwarded += 1
            is_forwarded = True
        if not self._sender.count:
            self._notify_idle()
        return is_forwarded

    async def _refused(self, to: str, headers: dict[str, str], body: bytes, reason: str) -> None:
        """Send a message to the dead letters, or stop the route."""
        leg = self._leg
        told = f"{leg.to.name} did not get {headers.get(ID, 'a message')} for {to}: {reason}"
        if not leg.refused:
            keeper = leg.source.name if self._store is None else f"{leg.source.name} or the buffer"
            raise RouteStoppedError(
                f"{told}. The message is still in {keeper}. To go on without it, remove it there,"
                " or name a destination for such messages (refused); then start the bridge again"
            )
        kept = for_refused(headers, to, reason)
        place = spelled(leg.refused, leg.source.prefixes)
        await self._source.connect()
        self._dialect = dialect_of(leg.source.dialect, self._source.connected_headers)
        try:
            await self._source.send(
                place, body, for_sink(kept, self._dialect, self._now()), wait=True
            )
        except BrokerError as error:
            if is_for_now(error):
                raise
            raise RouteStoppedError(
                f"{told}; and {leg.source.name} refuses {place}: {error}"
            ) from None
        self._status.refused += 1
        _log.warn("route {name}: {told}: it is in {place}", name=leg.name, told=told, place=place)
