"""An HTTP service that decides about logins and permissions, for tests."""

from __future__ import annotations

import json
from typing import Any, cast

from twisted.internet import reactor
from twisted.internet.address import IPv4Address
from twisted.internet.defer import Deferred
from twisted.internet.endpoints import SSL4ServerEndpoint, TCP4ServerEndpoint
from twisted.internet.interfaces import IListeningPort, IReactorTime
from twisted.web.http import Request as HttpRequest
from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET, Site

from stompkit.server.interfaces import Credentials, User
from stompkit.server.listen.tls_endpoint import TlsServer
from stompkit.server.login.http_authoriser import HttpAuthenticator, HttpAuthoriser
from stompkit.server.settings.http_service import HttpService

__all__ = ["Running", "Service", "ended", "logs_in", "started"]


class Service(Resource):
    """An HTTP service that gives prepared replies and records the requests."""

    isLeaf = True

    def __init__(self) -> None:
        """Allow everything at first."""
        super().__init__()  # type: ignore[no-untyped-call]  # Twisted's
        self.answers: list[object] = []
        self.questions: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.clients: set[int] = set()
        #: Requests that are answered later.
        self.held: list[HttpRequest] = []
        self.status = 200
        self.holds = False
        self._arrivals: list[tuple[int, Deferred[None]]] = []

    def render_POST(self, request: HttpRequest) -> bytes | int:
        """Reply, or hold the request."""
        assert request.content is not None
        self.questions.append(json.loads(request.content.read()))
        self.headers.append(
            {
                name.decode().lower(): values[-1].decode()
                for name, values in request.requestHeaders.getAllRawHeaders()
            }
        )
        client = request.getClientAddress()  # type: ignore[no-untyped-call]  # Twisted's
        self.clients.add(client.port)
        for number, arrived in self._arrivals:
            if number == len(self.questions):
                # Later, so that the test does not continue within this request.
                cast("IReactorTime", reactor).callLater(0, arrived.callback, None)
        if self.holds:
            self.held.append(request)
            return NOT_DONE_YET
        request.setResponseCode(self.status)
        answer = self.answers.pop(0) if self.answers else {"allow": True}
        return answer if isinstance(answer, bytes) else json.dumps(answer).encode()

    def release(self, answer: object) -> None:
        """Reply to the oldest held request."""
        request = self.held.pop(0)
        request.write(json.dumps(answer).encode())  # type: ignore[no-untyped-call]  # Twisted's
        request.finish()  # type: ignore[no-untyped-call]  # Twisted's

    def arrival(self, number: int) -> Deferred[None]:
        """Return a Deferred that fires when the request of this number arrives."""
        arrived: Deferred[None] = Deferred()
        self._arrivals.append((number, arrived))
        return arrived


class Running:
    """A listening service, with settings for its clients."""

    def __init__(self, service: Service, port: IListeningPort, scheme: str) -> None:
        """Store the service and its port."""
        self.service = service
        self.port = port
        host = port.getHost()
        assert isinstance(host, IPv4Address)
        self.url = f"{scheme}://127.0.0.1:{host.port}/decide"

    def settings(self, **others: Any) -> HttpService:
        """Return the settings of a client of this service."""
        return HttpService(url=self.url, **others)


async def started(factory: Any = None, tls: TlsServer | None = None) -> Running:
    """Start a service, or listen with another factory."""
    service = Service()
    if factory is None:
        factory = Site(service)  # type: ignore[no-untyped-call]  # Twisted's
    if tls is None:
        endpoint: Any = TCP4ServerEndpoint(  # type: ignore[no-untyped-call]  # Twisted's
            reactor, 0, interface="127.0.0.1"
        )
    else:
        endpoint = SSL4ServerEndpoint(  # type: ignore[no-untyped-call]  # Twisted's
            reactor, 0, tls, interface="127.0.0.1"
        )
    return Running(service, await endpoint.listen(factory), "http" if tls is None else "https")


async def ended(running: Running, *clients: HttpAuthoriser | HttpAuthenticator) -> None:
    """Close everything, so that no calls or sockets are left in the reactor."""
    for client in clients:
        await client.close()
    stopped = running.port.stopListening()
    if stopped is not None:
        await stopped


def logs_in(authenticator: HttpAuthenticator, credentials: Credentials) -> Deferred[User | None]:
    user: Deferred[User | None] = Deferred()
    authenticator.authenticate(credentials, user.callback)
    return user
