"""Messages that were received, and how to settle them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Literal

from twisted.internet.defer import Deferred, succeed
from twisted.python.failure import Failure

from stompkit.client._errors import ConnectionGone, StaleAcknowledgement
from stompkit.client._outbox import Outbox
from stompkit.frames import Frame, Version

__all__ = ["ACK_MODES", "AckMode", "Acknowledger", "Message"]

AckMode = Literal["auto", "client", "client-individual"]
ACK_MODES: Final[tuple[AckMode, ...]] = ("auto", "client", "client-individual")

#: How ACK and NACK name a message: their headers, each with the header of MESSAGE that it repeats.
_NAMES: Final[dict[Version, dict[str, str]]] = {
    "1.0": {"message-id": "message-id"},
    "1.1": {"message-id": "message-id", "subscription": "subscription"},
    "1.2": {"id": "ack"},
}


class Message:
    """A message from the broker.

    ``headers`` are those of the MESSAGE frame, ``body`` is its body.
    """

    __slots__ = ("_acknowledger", "_epoch", "_is_settled", "_number", "body", "headers")

    def __init__(self, frame: Frame, acknowledger: Acknowledger, epoch: int, number: int) -> None:
        """Make a message of its frame; the client does it."""
        self.headers = frame.headers
        self.body = frame.body
        self._acknowledger = acknowledger
        self._epoch = epoch
        self._number = number
        self._is_settled = False

    @property
    def text(self) -> str:
        """The body as UTF-8; raises UnicodeDecodeError where it is something else."""
        return self.body.decode("utf-8")

    @property
    def destination(self) -> str:
        """The destination that it was sent to, as the broker names it."""
        return self.headers["destination"]

    @property
    def id(self) -> str:
        """The broker's ``message-id``."""
        return self.headers["message-id"]

    @property
    def redelivered(self) -> bool:
        """Whether the broker says that it has delivered the message before."""
        return self.headers.get("redelivered", "").lower() == "true"

    @property
    def is_settled(self) -> bool:
        """Whether there is nothing left to settle by :meth:`ack` or :meth:`nack`.

        So it is with all messages of a subscription in the mode ``auto``; with those that have
        been settled, by a later one's acknowledgement in the mode ``client`` too; and with those
        that came over an earlier connection, for the broker has taken them back.
        """
        return not self._acknowledger.is_open(self)

    def ack(self, *, receipt: bool = False) -> Deferred[bool]:
        """Tell the broker that the message has been consumed.

        Fires with true when ACK has been given to the transport, or with ``receipt`` when the
        broker has confirmed it. Fires with false where the message :attr:`is_settled`, and
        nothing is sent then; or where the connection is lost before the receipt comes, and then
        nobody knows. After false expect the message to come again. Fails with
        :class:`BrokerError` if the broker refuses it.
        """
        return self._acknowledger.settle(self, "ACK", {}, receipt=receipt)

    def nack(
        self, *, receipt: bool = False, headers: Mapping[str, str] | None = None
    ) -> Deferred[bool]:
        """Tell the broker that the message could not be consumed; fires as :meth:`ack` does.

        What becomes of it is the broker's choice; ``headers`` may influence it. Fails with
        ``LocalProtocolError`` on STOMP 1.0, which has no NACK.
        """
        return self._acknowledger.settle(self, "NACK", headers or {}, receipt=receipt)

    def __repr__(self) -> str:
        """Say which one it is."""
        return f"<Message {self.id!a} of {self.destination!a}, {len(self.body)} octets>"


class Acknowledger:
    """Settles the messages of one subscription, each of them once, on the right connection."""

    def __init__(self, mode: AckMode, outbox: Outbox) -> None:
        """Start without messages."""
        self.mode = mode
        self._outbox = outbox
        self._last = 0
        self._settled_up_to = 0  # in the mode client, which is cumulative

    def message(self, frame: Frame) -> Message:
        """Make a message of a frame of the current connection."""
        self._last += 1
        return Message(frame, self, self._outbox.epoch, self._last)

    def is_open(self, message: Message) -> bool:
        """Whether the message can be settled."""
        return (
            self.mode != "auto"
            and not message._is_settled
            and message._number > self._settled_up_to
            and self._outbox.is_current(message._epoch)
        )

    def settle(
        self, message: Message, command: str, headers: Mapping[str, str], *, receipt: bool
    ) -> Deferred[bool]:
        """Send ACK or NACK, unless it is too late; see :meth:`Message.ack`."""
        if not self.is_open(message):
            return succeed(False)
        message._is_settled = True
        sent = self._outbox.send_now(self._frame(message, command, headers), receipt=receipt)
        settled: Deferred[bool] = sent.addCallbacks(
            self._sent, self._not_sent, callbackArgs=(message,), errbackArgs=(message,)
        )
        return settled

    def ack_all(self, messages: Iterable[Message]) -> int:
        """Send ACK for those that are open; see :meth:`Subscription.ack_all`."""
        still_open = [message for message in dict.fromkeys(messages) if self.is_open(message)]
        frames = [self._frame(message, "ACK", {}) for message in still_open]
        if not frames or not self._outbox.send_all_now(frames):
            return 0
        for message in still_open:
            message._is_settled = True
            self.settled(message)
        return len(frames)

    def _sent(self, _: None, message: Message) -> bool:
        self.settled(message)
        return True

    def _not_sent(self, failure: Failure, message: Message) -> bool:
        if isinstance(failure.value, ConnectionGone):
            return False
        message._is_settled = False
        failure.raiseException()

    # Within a transaction.

    def claim(self, message: Message, command: str, transaction: str) -> Frame:
        """Make ACK or NACK for a transaction; raises :class:`StaleAcknowledgement`."""
        if not self.is_open(message):
            raise StaleAcknowledgement(f"{message!r} has been settled, or taken back by the broker")
        message._is_settled = True
        return self._frame(message, command, {"transaction": transaction})

    def settled(self, message: Message) -> None:
        """Note that the broker has been told."""
        if self.mode == "client":
            self._settled_up_to = max(self._settled_up_to, message._number)

    def release(self, message: Message) -> None:
        """Note that the transaction is off, and the message waits for its settlement again."""
        message._is_settled = False

    def _frame(self, message: Message, command: str, headers: Mapping[str, str]) -> Frame:
        names = {
            name: message.headers[source]
            for name, source in _NAMES[self._outbox.version].items()
            if source in message.headers
        }
        return Frame(command, {**names, **headers})
