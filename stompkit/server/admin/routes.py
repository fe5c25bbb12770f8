"""The routes of the API: parameters, results and handlers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from msgspec import Struct

from stompkit.server.admin import actions, queries, shapes

__all__ = ["ROUTES", "Route"]


class Route(NamedTuple):
    """One operation: GET reads its parameters from the query, POST from a JSON body.

    ``statuses`` are its error statuses, besides those of every operation.
    """

    method: str
    path: str
    takes: type[Struct]
    gives: type[Struct]
    call: Callable[[Any, Any], Any]
    statuses: tuple[int, ...] = ()

    @property
    def summary(self) -> str:
        """The first sentence of the API documentation."""
        return (self.call.__doc__ or "").strip()


def _get(
    path: str, takes: type[Struct], gives: type[Struct], call: Callable[[Any, Any], Any], *more: int
) -> Route:
    return Route("GET", f"/api/v1/{path}", takes, gives, call, more)


def _post(
    path: str, takes: type[Struct], gives: type[Struct], call: Callable[[Any, Any], Any], *more: int
) -> Route:
    return Route("POST", f"/api/v1/{path}", takes, gives, call, more)


_ALL: Final = (
    _get("overview", shapes.Nothing, shapes.Overview, queries.get_overview),
    _get("history", shapes.Nothing, shapes.RatesHistory, queries.get_history),
    _get(
        "destinations",
        shapes.DestinationsQuery,
        shapes.DestinationList,
        queries.get_destinations,
        404,
    ),
    _get(
        "destination",
        shapes.DestinationQuery,
        shapes.DestinationDetail,
        queries.get_destination,
        404,
    ),
    _get("messages", shapes.MessagesQuery, shapes.MessageList, queries.get_messages, 404, 409, 503),
    _get("connections", shapes.ConnectionsQuery, shapes.ConnectionList, queries.get_connections),
    _get(
        "subscriptions",
        shapes.SubscriptionsQuery,
        shapes.SubscriptionList,
        queries.get_subscriptions,
        404,
    ),
    _get("durables", shapes.Nothing, shapes.DurableList, queries.get_durables),
    _post("purge", shapes.Named, shapes.Purged, actions.purge, 404, 409, 429, 503),
    _post("move", shapes.Move, shapes.Moved, actions.move, 404, 409, 429, 503),
    _post("retry", shapes.Retry, shapes.Retried, actions.retry, 404, 409, 429, 503),
    _post(
        "delete-messages",
        shapes.MessageIds,
        shapes.DeletedMessages,
        actions.delete_messages,
        404,
        409,
        429,
        503,
    ),
    _post("pause", shapes.Named, shapes.Paused, actions.pause, 404, 409),
    _post("resume", shapes.Named, shapes.Paused, actions.resume, 404, 409),
    _post("delete", shapes.Named, shapes.Deleted, actions.delete, 404, 409),
    _post("close", shapes.Close, shapes.Closed, actions.close, 404),
    _post("durables/delete", shapes.Named, shapes.Deleted, actions.delete_durable, 404, 409),
)

#: The operations by path and method.
ROUTES: Final[dict[str, dict[str, Route]]] = {each.path: {each.method: each} for each in _ALL}
