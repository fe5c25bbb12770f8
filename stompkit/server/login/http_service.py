"""Client of a decision service over HTTP or HTTPS, with JSON requests and responses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from ipaddress import ip_address
from pathlib import Path
from typing import Final, Literal, cast
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct
from twisted.internet.defer import CancelledError, Deferred, DeferredSemaphore, succeed
from twisted.internet.interfaces import IConsumer, IPushProducer, IReactorTime
from twisted.internet.protocol import Protocol, connectionDone
from twisted.python.failure import Failure
from twisted.web.client import (
    Agent,
    BrowserLikePolicyForHTTPS,
    HTTPConnectionPool,
    RequestTransmissionFailed,
    ResponseDone,
    ResponseNeverReceived,
)
from twisted.web.http import PotentialDataLoss
from twisted.web.http_headers import Headers
from twisted.web.iweb import IBodyProducer, IPolicyForHTTPS, IResponse
from zope.interface import implementer

from stompkit._common.secrets import mask_url
from stompkit.server.log import login_events
from stompkit.server.login.service_errors import UnusableError, describe, status_error
from stompkit.server.process.watched_files import Watched
from stompkit.server.settings.http_service import HttpService, Seconds

__all__ = ["Answer", "ServiceClient"]


_OK: Final = 200
#: Errors of a request sent on an idle connection that the server has just closed.
_UNHEARD: Final = (RequestTransmissionFailed, ResponseNeverReceived)


class Answer(Struct, frozen=True):
    """The response of the service; other fields are ignored."""

    allow: bool | Literal["yes", "no"]
    user: str | None = None
    groups: tuple[str, ...] = ()
    body: str | None = None
    body_base64: bytes | None = None
    max_age: Seconds | None = None

    @property
    def is_yes(self) -> bool:
        """True if the request is allowed."""
        return self.allow in (True, "yes")


class ServiceClient:
    """Asks a service. Any failure counts as a refusal; its first occurrence is logged."""

    def __init__(self, service: HttpService, reactor: object, clock: IReactorTime) -> None:
        """Check the settings; raises ValueError or OSError for invalid ones.

        ``reactor`` does the input and output, ``clock`` the timeouts.
        """
        scheme = _checked_scheme(service)
        self._url = service.url.encode("ascii")
        self._service = service
        self._clock = clock
        self._pool = HTTPConnectionPool(reactor)  # type: ignore[no-untyped-call]  # Twisted's
        self._pool.maxPersistentPerHost = service.max_concurrent
        self._pool.retryAutomatically = False
        self._agent = Agent(  # type: ignore[no-untyped-call]  # Twisted's
            reactor,
            _policy(service, scheme),
            connectTimeout=service.timeout_s,
            pool=self._pool,
        )
        self._token: Watched[str] | None = None
        if service.token_file is not None:
            file = Path(service.token_file)
            self._token = Watched([file], lambda: file.read_text(encoding="ascii").strip())
        self._slots = DeferredSemaphore(service.max_concurrent)
        self._trouble: str | None = None
        self._refused = 0

    def ask(self, question: Mapping[str, object], answer: Callable[[Answer | None], None]) -> None:
        """Call ``answer`` later with the response of the service, or ``None`` after a failure."""
        try:
            octets = msgspec.json.encode(question)
        except UnicodeEncodeError:
            login_events.question_not_utf8()
            answer(None)
            return
        asking = Deferred.fromCoroutine(self._slot_and_exchange(octets))
        asking.addTimeout(self._service.timeout_s, self._clock)
        asking.addCallbacks(self._well, self._ill)
        asking.addCallback(answer)
        asking.addErrback(lambda failure: login_events.login_error(failure=failure))

    def close(self) -> Deferred[None]:
        """Close idle connections."""
        closed: Deferred[None] = self._pool.closeCachedConnections()  # type: ignore[no-untyped-call]  # Twisted's
        return closed

    async def _slot_and_exchange(self, question: bytes) -> Answer:
        await self._slots.acquire()
        try:
            try:
                return await self._exchange(question)
            except _UNHEARD as error:
                if any(isinstance(reason.value, CancelledError) for reason in error.reasons):
                    raise
            # A request changes nothing, so that it can be repeated.
            return await self._exchange(question)
        finally:
            self._slots.release()

    async def _exchange(self, question: bytes) -> Answer:
        headers = Headers({"content-type": ["application/json"]})
        if self._token is not None:
            headers.setRawHeaders("authorization", [f"Bearer {self._token.get()}"])
        response = await self._agent.request(b"POST", self._url, headers, _Body(question))
        body = await _read(response, self._service.max_answer_bytes)
        if response.code != _OK:
            raise status_error(response.code)
        try:
            return msgspec.json.decode(body, type=Answer)
        except msgspec.MsgspecError as error:
            raise UnusableError(
                f"its answer is not the JSON object that the broker needs: {error}"
            ) from None

    def _well(self, answer: Answer) -> Answer:
        if self._trouble is not None:
            login_events.login_service_recovered(
                url=mask_url(self._service.url), count=self._refused
            )
            self._trouble = None
        self._refused = 0
        return answer

    def _ill(self, failure: Failure) -> None:
        self._refused += 1
        value = failure.value
        reasons = getattr(value, "reasons", None)
        if reasons:
            value = reasons[0].value
        trouble = describe(value, self._service.timeout_s)
        if trouble != self._trouble:
            self._trouble = trouble
            login_events.login_service_failed(url=mask_url(self._service.url), error=trouble)


@implementer(IBodyProducer)
class _Body:
    """The body of a request."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.length = len(data)

    def startProducing(self, consumer: IConsumer) -> Deferred[None]:
        consumer.write(self._data)
        return succeed(None)

    def stopProducing(self) -> None:
        """Do nothing: all of it was written at once."""

    pauseProducing = resumeProducing = stopProducing


def _read(response: IResponse, limit: int) -> Deferred[bytes]:
    reader = _Reader(limit)
    response.deliverBody(reader)  # type: ignore[no-untyped-call]  # Twisted's
    return reader.done


class _Reader(Protocol):
    """Collects the body of a response, up to a limit."""

    def __init__(self, limit: int) -> None:
        self.done: Deferred[bytes] = Deferred(lambda _: self._stop())
        self._limit = limit
        self._data = bytearray()
        self._ended = False

    def dataReceived(self, data: bytes) -> None:
        if self._ended:
            return
        self._data += data
        if len(self._data) > self._limit:
            self._ended = True
            self._stop()
            limit = f"{self._limit} bytes (max_answer_bytes in [auth.http])"
            self.done.errback(UnusableError(f"its answer has more than {limit}"))

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        if self._ended:
            return
        self._ended = True
        # Without a length, a response ends with the connection; a truncated one is invalid JSON.
        if isinstance(reason.value, ResponseDone | PotentialDataLoss):
            self.done.callback(bytes(self._data))
        else:
            self.done.errback(reason)

    def _stop(self) -> None:
        # Ends the connection at once, where loseConnection would wait for the peer's TLS.
        cast("IPushProducer", self.transport).stopProducing()


def _checked_scheme(service: HttpService) -> str:
    """Return the scheme, http or https; raises ValueError if requests may not be sent there."""
    try:
        parts = urlsplit(service.url)
        host, _ = parts.hostname, parts.port
        service.url.encode("ascii")
    except ValueError as error:
        raise ValueError(f"the URL of the service cannot be read: {error}") from None
    if parts.scheme not in ("http", "https") or not host:
        raise ValueError(f"{service.url!a} is no http or https URL")
    if parts.username is not None or parts.fragment:
        raise ValueError("the URL of the service may have no user and no fragment")
    if parts.scheme == "http" and not (service.allow_plain_text or _is_loopback(host)):
        raise ValueError(
            f"passcodes and messages would go to {host} in clear: use https, or allow_plain_text"
        )
    return parts.scheme


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _policy(service: HttpService, scheme: str) -> IPolicyForHTTPS:
    trust = None
    if scheme == "https":
        try:
            from twisted.internet.ssl import trustRootFromCertificates

            from stompkit.server.listen.tls_endpoint import certificates_in
        except ImportError:
            raise ValueError("https needs OpenSSL: pip install 'stompkit[tls]'") from None
        if service.ca_file is not None:
            trust = trustRootFromCertificates(  # type: ignore[no-untyped-call]  # Twisted's
                certificates_in(Path(service.ca_file))
            )
    policy = BrowserLikePolicyForHTTPS(trust)  # type: ignore[no-untyped-call]  # Twisted's
    return cast("IPolicyForHTTPS", policy)
