"""Resolve a client's name for a destination, and check its rights."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Final

from stompkit.frames import Frame
from stompkit.server.domain.errors import RefusedError
from stompkit.server.domain.names import Kind, canonical, is_pattern, kind_of
from stompkit.server.domain.session.client_session import ClientSession
from stompkit.server.interfaces import Action, Decision, Request

__all__ = ["TEMPORARY", "ask_right", "resolve", "resolve_temporary", "with_right"]

#: Prefixes of the names of temporary destinations.
TEMPORARY: Final = (Kind.TEMP_QUEUE.value, Kind.TEMP_TOPIC.value)


def resolve(connection: ClientSession, name: str, headers: dict[str, str]) -> str:
    """Return the broker's name for a client's name of a destination."""
    name = canonical(name, headers, connection.broker.config.dialect)
    if name.startswith(TEMPORARY):
        return resolve_temporary(connection, name)
    return name


def resolve_temporary(connection: ClientSession, name: str) -> str:
    """Return a unique, unguessable name for a client's own temporary name.

    A name without a slash is the client's own; those from ``reply-to`` headers contain one.
    """
    prefix = kind_of(name).value
    own = name[len(prefix) :]
    if "/" in own:
        return name
    for temporary in connection.temporaries:
        _, _, known = temporary.name[len(prefix) :].partition("/")
        if temporary.name.startswith(prefix) and known == own:
            return temporary.name
    most = connection.broker.config.max_subscriptions
    if len(connection.temporaries) >= most:
        raise RefusedError(
            f"too many temporary destinations: at most {most}", "too-many-destinations"
        )
    connection.host.check_name(name)
    made = connection.host.temporary(f"{prefix}{secrets.token_hex(16)}/{own}", connection)
    connection.temporaries.append(made)
    return made.name


def with_right(
    connection: ClientSession,
    frame: Frame,
    action: Action,
    name: str,
    then: Callable[[bytes | None], None],
) -> None:
    """Continue with a frame whose sender has the required right.

    ``then`` is called with the body that the authoriser substitutes, or ``None``.
    """
    authoriser = connection.broker.authoriser
    if authoriser is None or name.startswith(TEMPORARY):
        # A temporary destination belongs to its owner, and everybody who knows its name may send to
        # it.
        then(None)
        return

    def request(wanted: Action) -> Request:
        return Request(
            connection.user, connection.host.name, wanted, name, frame.headers, frame.body
        )

    def denied() -> RefusedError:
        return RefusedError(f"{action.value} is not allowed on {name[:100]!a}", "not-authorised")

    def decided(decision: Decision) -> None:
        if not decision.allowed:
            raise denied()
        then(decision.body)

    def first(answer: Callable[[Decision], None]) -> None:
        def created(decision: Decision) -> None:
            if decision.allowed:
                authoriser.authorise(request(action), answer)
            else:
                answer(decision)

        if name in connection.host.destinations or is_pattern(name):
            authoriser.authorise(request(action), answer)
        else:
            authoriser.authorise(request(Action.CREATE), created)

    connection.ask(frame, first, decided)


def ask_right(
    connection: ClientSession, frame: Frame, action: Action, name: str, then: Callable[[bool], None]
) -> None:
    """Call *then* with True if the sender of a frame has a right on a destination."""
    authoriser = connection.broker.authoriser
    if authoriser is None:
        then(True)
        return
    request = Request(
        connection.user, connection.host.name, action, name, frame.headers, frame.body
    )

    def ask(answer: Callable[[Decision], None]) -> None:
        authoriser.authorise(request, answer)

    connection.ask(frame, ask, lambda decision: then(decision.allowed))
