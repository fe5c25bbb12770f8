"""The routes of the API: parameters, results and handlers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from msgspec import Struct

from stompkit.server.admin import access, actions, parameters, queries, results

__all__ = ["ROUTES", "Route"]


class Route(NamedTuple):
    """One operation: GET reads its parameters from the query, POST from a JSON body.

    ``call`` gets the context and the parameters; for POST, and if ``is_personal``, also the
    operator.

    A broker that is not active refuses all changes except those with ``is_for_passive``.
    ``statuses`` are its error statuses, besides those of every operation.
    """

    method: str
    path: str
    takes: type[Struct]
    gives: type[Struct]
    call: Callable[..., Any]
    statuses: tuple[int, ...] = ()
    is_personal: bool = False
    is_for_passive: bool = False

    @property
    def summary(self) -> str:
        """The first sentence of the API documentation."""
        return (self.call.__doc__ or "").strip()


def _get(
    path: str, takes: type[Struct], gives: type[Struct], call: Callable[..., Any], *more: int
) -> Route:
    return Route("GET", f"/api/v1/{path}", takes, gives, call, more)


def _post(
    path: str, takes: type[Struct], gives: type[Struct], call: Callable[..., Any], *more: int
) -> Route:
    return Route("POST", f"/api/v1/{path}", takes, gives, call, more)


_ALL: Final = (
    Route("GET", "/api/v1/me", parameters.Nothing, access.Me, queries.get_me, is_personal=True),
    _get("access", parameters.Nothing, access.AccessShape, queries.get_access),
    _get("overview", parameters.Nothing, results.Overview, queries.get_overview),
    _get("lease", parameters.Nothing, results.LeaseShape, queries.get_lease, 409),
    Route(
        "POST",
        "/api/v1/failover",
        parameters.Failover,
        results.LeaseShape,
        actions.failover,
        (409, 503),
        is_for_passive=True,
    ),
    _get("history", parameters.Nothing, results.RatesHistory, queries.get_history),
    _get(
        "destinations",
        parameters.DestinationsQuery,
        results.DestinationList,
        queries.get_destinations,
        404,
    ),
    _get(
        "destination",
        parameters.DestinationQuery,
        results.DestinationDetail,
        queries.get_destination,
        404,
        503,
    ),
    _get(
        "messages",
        parameters.MessagesQuery,
        results.MessageList,
        queries.get_messages,
        404,
        409,
        503,
    ),
    _get(
        "connections", parameters.ConnectionsQuery, results.ConnectionList, queries.get_connections
    ),
    _get(
        "connection",
        parameters.ConnectionQuery,
        results.ConnectionDetail,
        queries.get_connection,
        404,
    ),
    _get(
        "subscriptions",
        parameters.SubscriptionsQuery,
        results.SubscriptionList,
        queries.get_subscriptions,
        404,
    ),
    _get("durables", parameters.Nothing, results.DurableList, queries.get_durables),
    _post("purge", parameters.Named, results.Purged, actions.purge, 404, 409, 429, 503),
    _post("move", parameters.Move, results.Moved, actions.move, 404, 409, 429, 503),
    _post("retry", parameters.Retry, results.Retried, actions.retry, 404, 409, 429, 503),
    _post(
        "delete-messages",
        parameters.MessageIds,
        results.DeletedMessages,
        actions.delete_messages,
        404,
        409,
        429,
        503,
    ),
    _post("pause", parameters.Named, results.Paused, actions.pause, 404, 409),
    _post("resume", parameters.Named, results.Paused, actions.resume, 404, 409),
    _post("delete", parameters.Named, results.Deleted, actions.delete, 404, 409, 503),
    _post("publish", parameters.Publish, results.Published, actions.publish, 404, 409, 503),
    _post("close", parameters.Close, results.Closed, actions.close, 404),
    _post(
        "durables/hand-over",
        parameters.HandOver,
        results.HandedOver,
        actions.hand_over,
        404,
        409,
        503,
    ),
    _post(
        "durables/delete", parameters.Named, results.Deleted, actions.delete_durable, 404, 409, 503
    ),
)

#: The operations by path and method.
ROUTES: Final[dict[str, dict[str, Route]]] = {each.path: {each.method: each} for each in _ALL}
