"""Operations of the API that change nothing."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

from twisted.internet.defer import Deferred

from stompkit.server.admin import access, parameters, results
from stompkit.server.admin.context import Context
from stompkit.server.admin.errors import AdminError
from stompkit.server.admin.roles import Operator
from stompkit.server.admin.statistics import PERIOD_S, in_flight
from stompkit.server.admin.views import (
    connection_detail,
    connection_shape,
    destination_detail,
    destination_shape,
    durable_shape,
    kind_of,
    lease_shape,
    message_shape,
    overview,
    places,
    rates_shape,
    subscription_shape,
)
from stompkit.server.domain.queues.peeking import Page, peek
from stompkit.server.domain.session.base import sessions_of
from stompkit.server.interfaces import StoreError

__all__ = [
    "get_access",
    "get_connection",
    "get_connections",
    "get_destination",
    "get_destinations",
    "get_durables",
    "get_history",
    "get_lease",
    "get_me",
    "get_messages",
    "get_overview",
    "get_subscriptions",
]

_TOKEN: Final = re.compile(r"([0-9]{1,2})\.([0-9]{1,18})")

#: Sort keys of destinations, evaluated without building the shapes of all.
_KEYS: Final[dict[str, Callable[[Any], Any]]] = {
    "name": lambda each: each.name,
    "kind": kind_of,
    "ready": lambda each: each.ready,
    "in_flight": in_flight,
    "delayed": lambda each: each.delayed,
    "octets": lambda each: getattr(each, "octets", 0),
    "consumers": lambda each: each.consumers,
}


def get_me(context: Context, _: parameters.Nothing, operator: Operator) -> access.Me:
    """The role of the sender of this request."""
    return access.Me(role=operator.role.value)


def get_access(context: Context, _: parameters.Nothing) -> access.AccessShape:
    """Login, users and rights of clients; no passcodes."""
    return access.access_shape(context)


def get_overview(context: Context, _: parameters.Nothing) -> results.Overview:
    """The broker at a glance."""
    return overview(context)


def get_lease(context: Context, _: parameters.Nothing) -> results.LeaseShape:
    """The lease of a store that several brokers share."""
    return lease_shape(context.lease())


def get_history(context: Context, _: parameters.Nothing) -> results.RatesHistory:
    """The broker's rates over the last five minutes."""
    history = context.statistics.history
    return results.RatesHistory(interval_s=PERIOD_S, rates=[rates_shape(each) for each in history])


def get_destinations(
    context: Context, query: parameters.DestinationsQuery
) -> results.DestinationList:
    """A page of destinations and durable subscriptions."""
    host = None if query.host is None else context.host(query.host)
    found = [
        each
        for each in places(context.broker, host)
        if (query.kind is None or kind_of(each) == query.kind)
        and (query.contains is None or query.contains in each.name)
    ]
    followed = context.statistics.followed

    def rate(each: Any) -> float:
        known = followed.get(each)
        return 0.0 if known is None else known.rate_in if query.sort == "in" else known.rate_out

    # Destinations with equal keys are sorted by name, in both orders.
    found.sort(key=_KEYS["name"])
    found.sort(key=_KEYS.get(query.sort, rate), reverse=query.order == "desc")
    page = found[query.offset : query.offset + query.limit]
    return results.DestinationList(
        total=len(found), destinations=[destination_shape(context, each) for each in page]
    )


def get_destination(
    context: Context, query: parameters.DestinationQuery
) -> results.DestinationDetail:
    """One destination with its settings, history and subscriptions."""
    return destination_detail(context, context.destination(query.host, query.name))


def get_messages(
    context: Context, query: parameters.MessagesQuery
) -> Deferred[results.MessageList]:
    """A page of the messages of a queue; they stay as they are."""
    queue = context.queue(query.host, query.name)
    after = (-1, 0)
    if query.after is not None:
        match = _TOKEN.fullmatch(query.after)
        if match is None:
            raise AdminError(400, "bad-parameter", "after is not the next of a page")
        after = int(match[1]), int(match[2])
    answer: Deferred[results.MessageList] = Deferred()

    def done(seen: Page) -> None:
        last = None if seen.is_last else seen[-1]
        answer.callback(
            results.MessageList(
                messages=[message_shape(context, each, query.max_body_octets) for each in seen],
                next=None if last is None else f"{last.sub_queue}.{last.place}",
            )
        )

    def failed(error: StoreError) -> None:
        answer.errback(AdminError(503, "store-failed", f"the store cannot be read: {error}"))

    peek(queue, after, query.limit, done, failed)
    return answer


def get_connections(context: Context, query: parameters.ConnectionsQuery) -> results.ConnectionList:
    """A page of connections, the oldest first."""
    found = [
        each
        for each in sessions_of(context.broker)
        if query.contains is None
        or query.contains in each.address
        or query.contains in (each.client_id or "")
        or query.contains in each.user.name
        or query.contains in each.id
        or query.contains in each.host.name
    ]
    found.sort(key=lambda each: (each.connected_at, each.id))
    page = found[query.offset : query.offset + query.limit]
    return results.ConnectionList(
        total=len(found), connections=[connection_shape(each) for each in page]
    )


def get_connection(context: Context, query: parameters.ConnectionQuery) -> results.ConnectionDetail:
    """One connection with its heart-beats and subscriptions."""
    return connection_detail(context.connection(query.connection))


def get_subscriptions(
    context: Context, query: parameters.SubscriptionsQuery
) -> results.SubscriptionList:
    """A page of subscriptions, the oldest first."""
    host = None if query.host is None else context.host(query.host)
    found = [
        subscription
        for connection in sessions_of(context.broker)
        if (query.connection is None or connection.id == query.connection)
        and (host is None or connection.host is host)
        for subscription in connection.subscriptions.values()
        if query.destination is None
        or any(home.name == query.destination for home in subscription.homes)
    ]
    found.sort(key=lambda each: each.serial)
    page = found[query.offset : query.offset + query.limit]
    return results.SubscriptionList(
        total=len(found), subscriptions=[subscription_shape(each) for each in page]
    )


def get_durables(context: Context, _: parameters.Nothing) -> results.DurableList:
    """All durable subscriptions."""
    return results.DurableList(
        durables=[
            durable_shape(each)
            for host in context.broker.hosts.values()
            for each in host.durables.values()
        ]
    )
