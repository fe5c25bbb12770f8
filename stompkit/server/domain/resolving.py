"""What a client calls a destination, and whether it may do with it what it wants to."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from stompkit.frames import Frame
from stompkit.server.domain.errors import Refused
from stompkit.server.domain.names import Kind, canonical, is_pattern, kind_of
from stompkit.server.interfaces import Action, Decision, Request

if TYPE_CHECKING:
    from stompkit.server.domain.session.connection import Connection

__all__ = ["TEMPORARY", "ask_right", "resolve", "resolve_temporary", "with_right"]

#: What the names of temporary destinations begin with.
TEMPORARY: Final = (Kind.TEMP_QUEUE.value, Kind.TEMP_TOPIC.value)


def resolve(connection: Connection, name: str, headers: dict[str, str]) -> str:
    """The broker's name for what a client calls a destination."""
    name = canonical(name, headers, connection.broker.config.dialect)
    if name.startswith(TEMPORARY):
        return resolve_temporary(connection, name)
    return name


def resolve_temporary(connection: Connection, name: str) -> str:
    """A name of the client's own becomes one that nobody else has or can guess.

    Told from those that others were given in ``reply-to`` by having no slash.
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
        raise Refused(f"too many temporary destinations: at most {most}", "too-many-destinations")
    connection.host.check_name(name)
    made = connection.host.temporary(f"{prefix}{secrets.token_hex(16)}/{own}", connection)
    connection.temporaries.append(made)
    return made.name


def with_right(
    connection: Connection,
    frame: Frame,
    action: Action,
    name: str,
    then: Callable[[bytes | None], None],
) -> None:
    """Go on with a frame whose sender may do what it asks for.

    ``then`` is given the body that the authoriser wants instead of the frame's, or ``None``.
    """
    authoriser = connection.broker.authoriser
    if authoriser is None or name.startswith(TEMPORARY):
        # Temporary destinations are their owner's, and whoever knows the name may write to it.
        then(None)
        return

    def request(wanted: Action) -> Request:
        return Request(
            connection.user, connection.host.name, wanted, name, frame.headers, frame.body
        )

    def denied() -> Refused:
        return Refused(f"{action.value} is not allowed on {name[:100]!a}", "not-authorised")

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
    connection: Connection, frame: Frame, action: Action, name: str, then: Callable[[bool], None]
) -> None:
    """Go on with whether the sender of a frame may do something with a destination."""
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
