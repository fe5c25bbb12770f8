"""Delegate decisions to an HTTP service, like MorbidQ's RestQ, but safely.

The broker keeps running if the service fails, a refusal is never taken for an acceptance, and
messages never contain parts of the request.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Final, cast

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime

from stompkit.server.interfaces import (
    Action,
    Authoriser,
    Credentials,
    Decision,
    Request,
    User,
)
from stompkit.server.login.auth import is_name
from stompkit.server.login.http_service import Answer, ServiceClient
from stompkit.server.login.limited_authenticator import Decided
from stompkit.server.settings.http_service import Event, HttpService

__all__ = ["HttpAuthenticator", "HttpAuthoriser"]

_EVENTS: Final[dict[Action, Event]] = {
    Action.READ: "subscribe",
    Action.WRITE: "send",
    Action.CREATE: "create",
    Action.ADMIN: "admin",
}
_MAX_AGE_S: Final = 24 * 3600.0
_Key = tuple[User, str, Action, str]


class HttpAuthenticator:
    """Asks a service about each login, including those without login and passcode."""

    def __init__(
        self,
        service: HttpService,
        reactor: object | None = None,
        clock: IReactorTime | None = None,
    ) -> None:
        """Check the settings; raises ValueError or OSError for invalid ones.

        ``reactor`` is Twisted's by default, and ``clock`` is the reactor.
        """
        self._client, _ = _client(service, reactor, clock)

    def authenticate(self, credentials: Credentials, answer: Callable[[User | None], None]) -> None:
        """Find the user; see :class:`~stompkit.server.interfaces.Authenticator`."""
        self.decide(credentials, lambda decided: answer(decided.user))

    def decide(self, credentials: Credentials, answer: Callable[[Decided], None]) -> None:
        """Find the user, and report if the service has answered."""
        question: dict[str, object] = {
            "event": "connect",
            "login": credentials.login,
            "passcode": credentials.passcode,
            "host": credentials.host,
            "peer": credentials.peer,
        }
        if credentials.certificate is not None:
            question["certificate"] = credentials.certificate
        login = credentials.login or ""
        self._client.ask(
            question, lambda reply: answer(Decided(_user(reply, login), reply is not None))
        )

    def close(self) -> Deferred[None]:
        """Close idle connections."""
        return self._client.close()


def _user(reply: Answer | None, login: str) -> User | None:
    if reply is None or not reply.is_yes:
        return None
    name = login if reply.user is None else reply.user
    if name and not is_name(name):
        return None
    return User(name, frozenset(reply.groups))


class HttpAuthoriser:
    """Asks a service about operations of users, and caches its answers while they are valid."""

    def __init__(
        self,
        service: HttpService,
        reactor: object | None = None,
        clock: IReactorTime | None = None,
        *,
        otherwise: Authoriser | None = None,
    ) -> None:
        """Check the settings; raises ValueError or OSError for invalid ones.

        Operations that the service is not asked about are decided by ``otherwise``, or allowed.
        """
        self._client, self._clock = _client(service, reactor, clock)
        self._service = service
        self._otherwise = otherwise
        #: Cached decisions with their expiry; the most recently used last.
        self._known: OrderedDict[_Key, tuple[bool, float]] = OrderedDict()

    def authorise(self, request: Request, answer: Callable[[Decision], None]) -> None:
        """Decide; see :class:`~stompkit.server.interfaces.Authoriser`."""
        event = _EVENTS[request.action]
        if event not in self._service.events:
            if self._otherwise is None:
                answer(Decision(True))
            else:
                self._otherwise.authorise(request, answer)
            return
        key = (request.user, request.host, request.action, request.destination)
        known = self._recall(key)
        if known is not None:
            answer(Decision(known))
            return
        self._client.ask(
            self._question(event, request), lambda reply: answer(self._decision(key, reply))
        )

    def close(self) -> Deferred[None]:
        """Close idle connections."""
        return self._client.close()

    def _question(self, event: Event, request: Request) -> dict[str, object]:
        headers = {name: value for name, value in request.headers.items() if name != "passcode"}
        question: dict[str, object] = {
            "event": event,
            "user": request.user.name,
            "groups": sorted(request.user.groups),
            "host": request.host,
            "destination": request.destination,
            "headers": headers,
        }
        if event == "send":
            question["body_bytes"] = len(request.body)
            if len(request.body) <= self._service.max_body_bytes:
                question |= _body(request.body)
        return question

    def _decision(self, key: _Key, reply: Answer | None) -> Decision:
        if reply is None:
            return Decision(False)
        body = _other_body(reply) if key[2] is Action.WRITE and reply.is_yes else None
        if body is None:
            self._remember(key, reply)
        return Decision(reply.is_yes, body)

    def _recall(self, key: _Key) -> bool | None:
        if key not in self._known:
            return None
        allowed, until = self._known[key]
        if until <= self._clock.seconds():
            del self._known[key]
            return None
        self._known.move_to_end(key)
        return allowed

    def _remember(self, key: _Key, reply: Answer) -> None:
        age = self._service.max_age_s if reply.max_age is None else reply.max_age
        if age > 0:
            self._known[key] = (reply.is_yes, self._clock.seconds() + min(age, _MAX_AGE_S))
            self._known.move_to_end(key)
            if len(self._known) > self._service.max_cached:
                self._known.popitem(last=False)


def _body(data: bytes) -> dict[str, object]:
    """Return a body as text if it is UTF-8; msgspec encodes bytes as Base64."""
    try:
        return {"body": data.decode()}
    except UnicodeDecodeError:
        return {"body_base64": data}


def _other_body(reply: Answer) -> bytes | None:
    if reply.body_base64 is not None:
        return reply.body_base64
    return None if reply.body is None else reply.body.encode()


def _client(
    service: HttpService, reactor: object | None, clock: IReactorTime | None
) -> tuple[ServiceClient, IReactorTime]:
    if reactor is None:
        from twisted.internet import reactor as installed

        reactor = installed
    clock = cast("IReactorTime", reactor) if clock is None else clock
    return ServiceClient(service, reactor, clock), clock
