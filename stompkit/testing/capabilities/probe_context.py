"""The context of a capability probe: connections and destinations that nothing else uses."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import count
from types import TracebackType
from typing import Final, Self

from stompkit.frames import Frame
from stompkit.testing.client import NothingReceivedError, RefusedError, StompClient
from stompkit.testing.launching.errors import BrokerError

__all__ = ["GRACE_S", "RETURN_S", "Access", "Finding", "ProbeContext"]

#: Timeout in seconds for operations that every broker supports: it may be busy.
_ANSWER_S: Final = 5.0
#: Additional time in seconds before an optional operation counts as unsupported. This is the
#: maximum cost of finding that a capability is missing.
GRACE_S: Final = 1.0
#: The same for messages of a lost connection: CoilMQ detects the loss in a separate thread, which
#: may run late on a busy machine.
RETURN_S: Final = 5.0

#: Versions offered in CONNECT, in this order; the first accepted one is used. STOMP 1.1 has
#: everything that is probed, and brokers differ least in it: CoilMQ cannot acknowledge a message of
#: 1.2.
_OFFERS: Final = ("1.0,1.1", "1.2")
#: RabbitMQ removes a queue that is unused for this number of milliseconds; all other brokers ignore
#: the header.
_QUEUE_HEADERS: Final = {"x-expires": "60000"}
_MARKER: Final = b"marker"


@dataclass(frozen=True)
class Finding:
    """The result of a probe: whether the broker has the capability, and why, as one sentence."""

    has: bool
    why: str


class Access:
    """Address and credentials of a broker, used to open connections."""

    def __init__(
        self,
        address: tuple[str, int],
        *,
        login: str | None = None,
        passcode: str | None = None,
        vhost: str | None = None,
        queue_template: str = "/queue/{}",
        topic_template: str = "/topic/{}",
    ) -> None:
        """Store the parameters; connect to nothing yet."""
        self.queue_template = queue_template
        self.topic_template = topic_template
        self._address = address
        self._login = login
        self._passcode = passcode
        self._vhost = vhost
        self._offer: str | None = None

    def connect(
        self, *, version: str, heart_beat: str = "0,0", headers: Mapping[str, str] | None = None
    ) -> StompClient:
        """Open a session; raise RefusedError, or BrokerError if no connection can be made."""
        host, port = self._address
        try:
            return StompClient.connect(
                host,
                port,
                version=version,
                login=self._login,
                passcode=self._passcode,
                vhost=self._vhost,
                heart_beat=heart_beat,
                timeout_s=_ANSWER_S,
                headers=headers,
            )
        except OSError as error:
            raise BrokerError(
                f"what the broker at {host} port {port} can do is not known: it does not take"
                f" connections ({error})"
            ) from error

    def offer(self) -> str:
        """Return the ``accept-version`` that the broker accepts; raise BrokerError if none."""
        if self._offer is None:
            self.check()
        assert self._offer is not None
        return self._offer

    def check(self) -> None:
        """Raise BrokerError if the broker does not open a session."""
        refusals = []
        for offer in _OFFERS if self._offer is None else (self._offer,):
            try:
                self.connect(version=offer).close()
            except RefusedError as refused:
                refusals.append(refused)
            else:
                self._offer = offer
                return
        host, port = self._address
        raise BrokerError(
            f"what the broker at {host} port {port} can do is not known: {refusals[0]}"
        )


class ProbeContext:
    """The context of one probe: its connections and destinations; closes the connections on exit.

    SUBSCRIBE and SEND are sent without a receipt, since not all brokers support receipts. A
    response to a later frame on the same connection proves that they were processed.
    """

    def __init__(self, access: Access) -> None:
        """Start a probe."""
        self._access = access
        self._prefix = f"stompkit-probe-{secrets.token_hex(4)}"
        self._numbers = count(1)
        self._clients: list[StompClient] = []

    def name(self) -> str:
        """Return a name that nothing else uses."""
        return f"{self._prefix}-{next(self._numbers)}"

    def queue(self) -> str:
        """Return a queue that nothing else uses."""
        return self._access.queue_template.format(self.name())

    def topic(self, name: str | None = None) -> str:
        """Return a topic, by default one that nothing else uses."""
        return self._access.topic_template.format(self.name() if name is None else name)

    def client(
        self, *, heart_beat: str = "0,0", headers: Mapping[str, str] | None = None
    ) -> StompClient:
        """Open a session."""
        version = self._access.offer()
        client = self._access.connect(version=version, heart_beat=heart_beat, headers=headers)
        self._clients.append(client)
        return client

    def connect(self, version: str) -> StompClient:
        """Open a session of one version; raises RefusedError."""
        client = self._access.connect(version=version)
        self._clients.append(client)
        return client

    def subscribe(
        self, client: StompClient, destination: str, ack: str = "auto", **headers: str
    ) -> None:
        """Subscribe."""
        client.subscribe(destination, ack=ack, receipt=False, headers={**_QUEUE_HEADERS, **headers})

    def put(self, client: StompClient, destination: str, body: bytes, **headers: str) -> None:
        """Send a message; ``headers`` as they are on the wire."""
        client.send(destination, body, receipt=False, headers={**_QUEUE_HEADERS, **headers})

    def take(self, client: StompClient, destination: str, body: bytes) -> Frame:
        """Send a message and receive it again."""
        self.put(client, destination, body)
        return client.receive()

    def late(self, receive: Callable[[float], Frame], grace_s: float = GRACE_S) -> Frame | None:
        """Return the frame from a client's ``receive`` within the additional time, or None.

        A broker that is too busy to answer within that time gets more time.
        """
        try:
            return receive(grace_s)
        except NothingReceivedError:
            # After this answer, no other answer is outstanding.
            queue, client = self.queue(), self.client()
            self.subscribe(client, queue)
            self.take(client, queue, _MARKER)
        try:
            return receive(0.0)
        except NothingReceivedError:
            return None

    def rest_of(
        self, queue: str, awaited: bytes | None = None, client: StompClient | None = None
    ) -> list[Frame]:
        """Return the messages that a queue still delivers to a new subscription.

        A marker message shows where they end. The message with the body ``awaited`` may come after
        the marker, since a broker may detect a lost connection late.
        """
        reader = self.client() if client is None else client
        self.subscribe(reader, queue)
        rest = self._up_to_marker(reader, queue)
        if awaited is None:
            return rest
        while all(message.body != awaited for message in rest):
            message = self.late(reader.receive, RETURN_S)
            if message is None:
                return rest
            rest.append(message)
        # Also the messages that came back with it.
        return rest + self._up_to_marker(reader, queue)

    def _up_to_marker(self, reader: StompClient, queue: str) -> list[Frame]:
        """Send a marker message and return the messages that come before it."""
        self.put(reader, queue, _MARKER)
        messages = []
        while (message := reader.receive()).body != _MARKER:
            messages.append(message)
        return messages

    def __enter__(self) -> Self:
        """Return the context itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close all connections."""
        for client in self._clients:
            client.close()
