"""Convert the broker's objects into the shapes of the API."""

from __future__ import annotations

import base64
import math
import os
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

import stompkit
from stompkit.server.admin import results
from stompkit.server.admin.context import Context
from stompkit.server.admin.statistics import INTERVAL_S, Followed, in_flight
from stompkit.server.domain import broker as broker_module
from stompkit.server.domain.broker import Broker
from stompkit.server.domain.deliveries import Subscription
from stompkit.server.domain.destinations import Destination
from stompkit.server.domain.hosts.virtual_host import VirtualHost
from stompkit.server.domain.names import Pattern
from stompkit.server.domain.queues.durables import DurableQueue
from stompkit.server.domain.queues.peeking import Seen
from stompkit.server.domain.queues.queue import Queue
from stompkit.server.domain.session.base import BrokerSession, sessions_of
from stompkit.server.domain.session.client_session import ClientSession
from stompkit.server.stores.environment import DATA_FILE, DIRECTORY

if TYPE_CHECKING:
    from stompkit.server.lease.keeper import LeaseStatus

__all__ = [
    "connection_detail",
    "connection_shape",
    "destination_detail",
    "destination_shape",
    "durable_shape",
    "kind_of",
    "lease_shape",
    "message_shape",
    "overview",
    "places",
    "rates_shape",
    "subscription_shape",
    "time_text",
]

_PAGE_OCTETS: Final = os.sysconf("SC_PAGE_SIZE")


def time_text(seconds: float) -> str:
    """Return a time as ISO 8601 in UTC; times out of range become the latest possible one."""
    try:
        return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
    except (OverflowError, ValueError, OSError):
        return datetime.max.replace(tzinfo=UTC).isoformat(timespec="milliseconds")


def text_of(value: str) -> str:
    """Return text valid in JSON: bytes that were not UTF-8 are replaced."""
    return value if value.isascii() else value.encode("utf-8", "replace").decode("utf-8")


def overview(context: Context) -> results.Overview:
    """Return the state of the whole broker; sums may be those of the last second."""
    broker, statistics = context.broker, context.statistics
    sums = statistics.sums
    totals = sums.totals
    now, lease = context.reactor.seconds(), context.activation.lease
    return results.Overview(
        version=stompkit.__version__,
        is_compiled=not str(broker_module.__file__).endswith(".py"),
        pid=os.getpid(),
        started=time_text(context.started_at),
        uptime_s=round(max(0.0, now - context.started), 3),
        connections=len(broker.connections),
        subscriptions=sum(len(each.subscriptions) for each in broker.connections),
        destinations=sums.destinations,
        ready=sums.ready,
        in_flight=sum(len(each.ledger) for each in broker.connections),
        delayed=sums.delayed,
        rates=rates_shape(statistics.rates),
        totals=results.Totals(
            received=totals.received,
            delivered=totals.delivered,
            settled=totals.settled,
            dead_lettered=totals.dead_lettered,
        ),
        store=_store(context),
        lease=None if lease is None else lease_shape(lease),
        stands_by_for=None if context.activation.is_active else context.activation.rival,
        memory_octets=_memory(),
        descriptors=_descriptors(),
    )


def rates_shape(rates: Sequence[float]) -> results.Rates:
    """Return messages per second, from the fields of ``Totals``."""
    return results.Rates(
        received=rates[0], delivered=rates[1], settled=rates[2], dead_lettered=rates[4]
    )


def _store(context: Context) -> results.StoreShape:
    settings, failure = context.settings.store, context.broker.commit_queue.failure
    octets = None
    if settings.effective_kind == "lmdb" and settings.path is not None:
        try:
            octets = (Path(settings.path) / DIRECTORY / DATA_FILE).stat().st_size
        except OSError:
            octets = None
    return results.StoreShape(
        kind=settings.effective_kind,
        octets=octets,
        failure=None if failure is None else str(failure),
    )


def _memory() -> int | None:
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE_OCTETS
    except (OSError, ValueError, IndexError):
        return None


def _descriptors() -> int | None:
    try:
        return len(os.listdir("/proc/self/fd"))
    except OSError:
        return None


def lease_shape(found: LeaseStatus) -> results.LeaseShape:
    """Describe the lease of the store and the brokers that share it."""
    return results.LeaseShape(
        name=found.name,
        is_active=found.own_epoch > 0,
        epoch=found.epoch,
        owner=found.owner or None,
        successor=found.successor or None,
        lease_s=found.seconds,
        held_s=found.held_s,
        renewed_s=max(0.0, found.seconds - found.remaining_s) if found.owner else None,
        remaining_s=found.remaining_s,
        age_s=found.age_s if math.isfinite(found.age_s) else None,
        failure=found.failure,
        brokers=[results.BrokerShape(**each._asdict()) for each in found.brokers],
    )


# Destinations.


def places(broker: Broker, host: VirtualHost | None = None) -> Iterator[Destination]:
    """Yield all destinations and durable subscriptions, or those of one virtual host."""
    for each in broker.hosts.values() if host is None else (host,):
        yield from each.destinations.values()
        yield from each.durables.values()


def kind_of(destination: Destination) -> str:
    """Return the first level of the name; ``durable`` for durable subscriptions."""
    return destination.name.split("/", 2)[1]


def destination_shape(context: Context, destination: Destination) -> results.DestinationShape:
    """Return one destination."""
    return results.DestinationShape(**_fields(context, destination))


def _fields(context: Context, destination: Destination) -> dict[str, Any]:
    followed = context.statistics.followed.get(destination)
    totals = destination.totals
    return {
        "host": destination.host.name,
        "name": text_of(destination.name),
        "kind": kind_of(destination),
        "ready": destination.ready,
        "in_flight": in_flight(destination),
        "delayed": destination.delayed,
        "octets": destination.octets if isinstance(destination, Queue) else 0,
        "consumers": destination.consumers,
        "is_paused": destination.is_paused,
        "rates": None
        if followed is None
        else results.DestinationRates(in_=followed.rate_in, out=followed.rate_out),
        "totals": results.DestinationTotals(
            in_=totals.received,
            out=totals.delivered,
            dropped=totals.dropped,
            dead_lettered=totals.dead_lettered,
            expired=totals.expired,
        ),
    }


def destination_detail(context: Context, destination: Destination) -> results.DestinationDetail:
    """Return one destination with all details."""
    followed = context.statistics.followed.get(destination)
    return results.DestinationDetail(
        **_fields(context, destination),
        policy=msgspec.to_builtins(destination.policy),
        history=None if followed is None else _history(followed),
        subscriptions=[
            subscription_shape(each)
            for connection in sessions_of(context.broker)
            for each in connection.subscriptions.values()
            if destination in each.homes
        ],
    )


def _history(followed: Followed) -> results.History:
    return results.History(
        interval_s=INTERVAL_S,
        ready=followed.ready.tolist(),
        in_=[round(each, 3) for each in followed.into],
        out=[round(each, 3) for each in followed.out],
    )


# Messages.


def message_shape(context: Context, seen: Seen, max_body_octets: int) -> results.MessageShape:
    """Return a message with the beginning of its body."""
    message = seen.message
    body = message.body[:max_body_octets]
    text: str | None = None
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        # A truncated character does not make the body binary.
        if len(body) < len(message.body) and error.start > len(body) - 4:
            text = body[: error.start].decode("utf-8")
    return results.MessageShape(
        id=message.id,
        place=seen.place,
        headers=[(text_of(name), text_of(value)) for name, value in message.headers.items()],
        body=text,
        body_base64=base64.b64encode(body).decode("ascii") if text is None else None,
        body_octets=len(message.body),
        is_truncated=len(body) < len(message.body),
        deliveries=seen.deliveries,
        expires=time_text(message.expires) if message.expires else None,
        due=time_text(message.due) if message.due else None,
        received=_received(context, message.id),
        state=seen.state,
    )


def _received(context: Context, message_id: str) -> str | None:
    number = context.broker.message_number(message_id)
    # Otherwise a message of this second would seem to be older than the broker.
    context.sample()
    found = None if number is None else context.arrivals.time_of(number)
    return None if found is None else time_text(found)


# Clients.


def connection_shape(connection: BrokerSession) -> results.ConnectionShape:
    """Return one client."""
    return results.ConnectionShape(**_client_fields(connection))


def connection_detail(connection: BrokerSession) -> results.ConnectionDetail:
    """Return one client with its heart-beats and subscriptions."""
    heart_beat_ms = None
    if isinstance(connection, ClientSession) and connection.is_logged_in:
        beat = connection.session.heart_beat
        heart_beat_ms = round(beat.send_s * 1000), round(beat.receive_s * 1000)
    return results.ConnectionDetail(
        **_client_fields(connection),
        groups=sorted(map(text_of, connection.user.groups)),
        heart_beat_ms=heart_beat_ms,
        subscription_details=list(map(subscription_shape, connection.subscriptions.values())),
    )


def _client_fields(connection: BrokerSession) -> dict[str, Any]:
    is_in = connection.is_logged_in
    client_id = connection.client_id
    return {
        "id": connection.id,
        "peer": text_of(connection.peer),
        "address": text_of(connection.address or "unix"),
        "version": connection.protocol if is_in else None,
        "user": text_of(connection.user.name),
        "client_id": None if client_id is None else text_of(client_id),
        "session": connection.session_id,
        "host": connection.host.name,
        "subscriptions": len(connection.subscriptions),
        "in_flight": len(connection.ledger),
        "transactions": len(connection.transactions),
        "is_blocked": connection.is_blocked,
        "connected": time_text(connection.connected_at),
        "state": "closing" if connection.is_closing else "connected" if is_in else "connecting",
    }


def subscription_shape(subscription: Subscription) -> results.SubscriptionShape:
    """Return one subscription."""
    selector, connection = subscription.selector, subscription.connection
    assert isinstance(connection, BrokerSession)  # no others subscribe
    return results.SubscriptionShape(
        connection=connection.id,
        id=None if subscription.id is None else text_of(subscription.id),
        host=connection.host.name,
        destination=_subscribed_to(subscription),
        ack=subscription.mode.value,
        prefetch=subscription.prefetch,
        in_flight=len(subscription.unsettled),
        selector=None if selector is None else text_of(selector.text),
    )


def _subscribed_to(subscription: Subscription) -> str:
    pattern: Pattern | None = subscription.pattern
    if pattern is not None:
        return text_of(pattern.text)
    return text_of(next((home.name for home in subscription.homes), ""))


def durable_shape(queue: DurableQueue) -> results.DurableShape:
    """Return one durable subscription."""
    client_id, _, _ = queue.record.key.partition("\n")
    return results.DurableShape(
        host=queue.host.name,
        name=text_of(queue.name),
        destination=text_of(queue.record.topic),
        client_id=text_of(client_id),
        selector=text_of(queue.record.selector) or None,
        owner=None if queue.record.owner is None else text_of(queue.record.owner),
        ready=queue.ready,
        is_connected=bool(queue.subscriptions),
    )
