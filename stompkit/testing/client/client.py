"""The client: its methods that send frames and wait for the answers."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count

from stompkit.frames import Frame
from stompkit.testing.client.errors import UnexpectedMessageError
from stompkit.testing.client.session import ClientSession, check_headers
from stompkit.testing.client.stream import ClientStream
from stompkit.testing.frames.timeouts import seconds

__all__ = ["StompClient"]

_Headers = Mapping[str, str] | None


class StompClient(ClientSession):
    """One STOMP session, opened by :meth:`connect`, or a bare connection, opened by :meth:`open`.

    Headers are given as keywords, with ``_`` for ``-``, or in ``headers`` if their names are not
    valid keywords. They override those of the method. ``receipt`` says whether to wait for the
    RECEIPT of the frame. By default the client waits, except for frames in a transaction, for which
    RabbitMQ sends the RECEIPT only after COMMIT. Use ``receipt=False`` for a broker without
    receipts.

    Each frame is sent in one write, and a body always has its ``content-length``: CoilMQ drops
    connections otherwise. As a context manager, the client closes the connection on exit.
    """

    def __init__(self, stream: ClientStream, address: str) -> None:
        """Use a connection on which nothing has been sent; prefer a class method."""
        super().__init__(stream, address)
        self._receipts = count(1)
        self._names = count(1)
        self._destinations: dict[str, str] = {}

    # Requests. All raise BrokerSaidError, ConnectionLostError or NothingReceivedError if they fail.

    def send(
        self,
        destination: str,
        body: bytes | str = b"",
        *,
        receipt: bool | None = None,
        transaction: str | None = None,
        headers: _Headers = None,
        **more: str,
    ) -> None:
        """Send a message; a text body is encoded as UTF-8.

        Raises TypeError if the body is neither octets nor text.
        """
        own = {"destination": destination}
        octets = _octets(body)
        self._request("SEND", own, headers, more, octets, receipt=receipt, transaction=transaction)

    def subscribe(
        self,
        destination: str,
        *,
        id: str | None = None,
        ack: str = "auto",
        receipt: bool | None = None,
        headers: _Headers = None,
        **more: str,
    ) -> str:
        """Subscribe and return the id of the subscription: by default one that is not in use."""
        name = f"s{next(self._names)}" if id is None else id
        self._destinations[name] = destination
        own = {"destination": destination, "id": name, "ack": ack}
        self._request("SUBSCRIBE", own, headers, more, receipt=receipt)
        return name

    def unsubscribe(
        self, id: str, *, receipt: bool | None = None, headers: _Headers = None, **more: str
    ) -> None:
        """End a subscription; the frame has both id and destination, since CoilMQ requires both."""
        own = {"id": id}
        if id in self._destinations:
            own["destination"] = self._destinations.pop(id)
        self._request("UNSUBSCRIBE", own, headers, more, receipt=receipt)

    def ack(
        self,
        message: Frame,
        *,
        receipt: bool | None = None,
        transaction: str | None = None,
        headers: _Headers = None,
        **more: str,
    ) -> None:
        """Acknowledge a MESSAGE with the headers that the version of the session requires.

        If a message of 1.2 has no header ``ack``, the frame has the headers that CoilMQ expects:
        ``message-id``, and the subscription's id as ``id``. On 1.0 CoilMQ expects ``id``, too, but
        1.0 does not define that header: pass it, as in ``ack(message, id="s1")``.
        """
        own = self._settling(message)
        self._request("ACK", own, headers, more, receipt=receipt, transaction=transaction)

    def nack(
        self,
        message: Frame,
        *,
        receipt: bool | None = None,
        transaction: str | None = None,
        headers: _Headers = None,
        **more: str,
    ) -> None:
        """Reject a MESSAGE with NACK; the headers are those of :meth:`ack`."""
        own = self._settling(message)
        self._request("NACK", own, headers, more, receipt=receipt, transaction=transaction)

    def _settling(self, message: Frame) -> dict[str, str]:
        """Return the headers of ACK and NACK that identify the message."""
        headers = message.headers
        if self.version == "1.2" and "ack" in headers:
            return {"id": headers["ack"]}
        own = {"message-id": headers.get("message-id", "")}
        if self.version != "1.0":
            name = "id" if self.version == "1.2" else "subscription"
            own[name] = headers.get("subscription", "")
        return own

    def begin(self, transaction: str, *, receipt: bool | None = None) -> None:
        """Begin a transaction."""
        self._request("BEGIN", {"transaction": transaction}, receipt=receipt)

    def commit(self, transaction: str, *, receipt: bool | None = None) -> None:
        """Commit a transaction."""
        self._request("COMMIT", {"transaction": transaction}, receipt=receipt)

    def abort(self, transaction: str, *, receipt: bool | None = None) -> None:
        """Abort a transaction."""
        self._request("ABORT", {"transaction": transaction}, receipt=receipt)

    def disconnect(self, *, receipt: bool | None = None) -> None:
        """Send DISCONNECT, wait for its RECEIPT, and close the connection."""
        self._request("DISCONNECT", {}, receipt=receipt)
        self.close()

    def call(self, command: str, headers: _Headers = None, body: bytes = b"") -> Frame:
        """Send any frame with a receipt, and return its RECEIPT."""
        receipt = f"r{next(self._receipts)}"
        self.write_frame(Frame(command, {**(headers or {}), "receipt": receipt}, body))
        return self._stream.wait(
            lambda frame: frame.command == "RECEIPT" and frame.headers.get("receipt-id") == receipt,
            f"RECEIPT {receipt} of {command}",
        )

    def _request(
        self,
        command: str,
        own: dict[str, str],
        headers: _Headers = None,
        more: _Headers = None,
        body: bytes = b"",
        *,
        receipt: bool | None,
        transaction: str | None = None,
    ) -> None:
        """Send a frame with all its headers, and wait for its RECEIPT if requested."""
        if transaction is not None:
            own["transaction"] = transaction
        own.update(headers or {})
        own.update({name.replace("_", "-"): value for name, value in (more or {}).items()})
        check_headers(own)
        if receipt is None:
            receipt = transaction is None
        if receipt:
            self.call(command, own, body)
        else:
            self.write_frame(Frame(command, own, body))

    # Answers.

    def receive(self, timeout_s: float | None = None, *, timeout: float | None = None) -> Frame:
        """Return the next MESSAGE; ``timeout`` is another name for ``timeout_s``.

        Raises :class:`BrokerSaidError` if an ERROR comes first. Raises
        :class:`NothingReceivedError` or
        :class:`ConnectionLostError` if nothing comes.
        """
        return self._stream.wait(_is_message, "MESSAGE", seconds(timeout_s, timeout))

    def receive_many(
        self, number: int, timeout_s: float | None = None, *, timeout: float | None = None
    ) -> list[Frame]:
        """Return the next *number* MESSAGE frames, each within the timeout, as :meth:`receive`."""
        limit_s = seconds(timeout_s, timeout)
        return [
            self._stream.wait(_is_message, f"MESSAGE {n} of {number}", limit_s)
            for n in range(1, number + 1)
        ]

    def receive_nothing(self, for_s: float = 0.0, *, timeout: float | None = None) -> None:
        """Raise UnexpectedMessageError if a MESSAGE comes before the answer to a round trip.

        The round trip is a transaction that is begun and aborted. Some brokers deliver
        asynchronously: RabbitMQ can answer first and then send an earlier message. The method waits
        ``for_s`` seconds longer for such a MESSAGE. :meth:`receive` still returns a MESSAGE that
        has come. ``timeout`` is another name for ``for_s``. Raises :class:`ConnectionLostError` or
        :class:`BrokerSaidError` if the connection ends earlier: it is no proof then.
        """
        for_s = seconds(for_s, timeout)
        name = f"t{next(self._names)}"
        self.begin(name)
        self.abort(name)
        frame = self._stream.watch(_is_message, "MESSAGE", for_s)
        if frame is not None:
            source = frame.headers.get("destination")
            reason = f"a MESSAGE came from {source!r}, where none was expected"
            raise self._stream.trail.failure(UnexpectedMessageError, reason, frame)


def _is_message(frame: Frame) -> bool:
    """Return True for a MESSAGE frame."""
    return frame.command == "MESSAGE"


def _octets(body: object) -> bytes:
    """Return a body as octets, with those of a text in UTF-8."""
    if isinstance(body, str):
        return body.encode()
    if isinstance(body, bytes | bytearray | memoryview):
        return bytes(body)
    raise TypeError(
        f"a body is bytes or str, not {type(body).__name__}: encode it, for example by json.dumps"
    )
