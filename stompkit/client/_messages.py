"""Received messages, and their acknowledgement."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Literal

from twisted.internet.defer import CancelledError, Deferred, fail, succeed
from twisted.python.failure import Failure

from stompkit.client._content import Content
from stompkit.client._errors import ConnectionGoneError, StaleAcknowledgementError
from stompkit.client._outbox import Outbox
from stompkit.frames import Frame, LocalProtocolError, Version

__all__ = ["ACK_MODES", "AckMode", "Acknowledger", "Message"]

AckMode = Literal["auto", "client", "client-individual"]
ACK_MODES: Final[tuple[AckMode, ...]] = ("auto", "client", "client-individual")

#: Headers that identify a message in ACK and NACK, each with the MESSAGE header that it repeats.
_NAMES: Final[dict[Version, dict[str, str]]] = {
    "1.0": {"message-id": "message-id"},
    "1.1": {"message-id": "message-id", "subscription": "subscription"},
    "1.2": {"id": "ack"},
}
#: The same for CoilMQ on 1.2: its messages have no header ``ack``.
_NAMES_OF_COILMQ: Final = {"id": "subscription", "message-id": "message-id"}


class Message(Content):
    """A message from the broker.

    ``headers`` and ``body`` are those of the MESSAGE frame.
    """

    __slots__ = ("_acknowledger", "_epoch", "_is_settled", "_number")

    def __init__(self, frame: Frame, acknowledger: Acknowledger, epoch: int, number: int) -> None:
        """Wrap a MESSAGE frame; called by the client."""
        self.headers = frame.headers
        self.body = frame.body
        self._acknowledger = acknowledger
        self._epoch = epoch
        self._number = number
        self._is_settled = False

    @property
    def is_settled(self) -> bool:
        """True if :meth:`ack` and :meth:`nack` would have no effect.

        This is the case for all messages of a subscription in the mode ``auto``. It is also the
        case for settled messages, including those covered by a later acknowledgement in the mode
        ``client``. Messages from an earlier connection are settled as well: the broker redelivers
        them.
        """
        return not self._acknowledger.is_open(self)

    def ack(self, *, receipt: bool = False) -> Deferred[bool]:
        """Acknowledge the message.

        Fires with true when ACK has been given to the transport, or with ``receipt`` when the
        broker has confirmed it. Fires with false, and sends nothing, if the message
        :attr:`is_settled`. Also fires with false if the connection is lost before the receipt
        arrives; the outcome is then unknown. After false expect a redelivery. Fails with
        :class:`BrokerError` if the broker refuses the acknowledgement. Cancelling the Deferred ends
        the wait; the message stays settled.
        """
        return self._acknowledger.settle(self, "ACK", {}, receipt=receipt)

    def nack(
        self, *, receipt: bool = False, headers: Mapping[str, str] | None = None
    ) -> Deferred[bool]:
        """Reject the message; fires as :meth:`ack` does.

        The broker decides whether to redeliver it; ``headers`` may influence that. Fails with
        ``LocalProtocolError`` on STOMP 1.0, which has no NACK.
        """
        return self._acknowledger.settle(self, "NACK", headers or {}, receipt=receipt)


class Acknowledger:
    """Settles each message of one subscription once, on the connection that delivered it."""

    def __init__(self, mode: AckMode, outbox: Outbox) -> None:
        """Start without messages."""
        self.mode = mode
        self._outbox = outbox
        self._last = 0
        self._settled_up_to = 0  # in the mode client, which is cumulative

    def message(self, frame: Frame) -> Message:
        """Create a message from a frame of the current connection."""
        self._last += 1
        return Message(frame, self, self._outbox.epoch, self._last)

    def is_open(self, message: Message) -> bool:
        """Return True if the message can be settled."""
        return (
            self.mode != "auto"
            and not message._is_settled
            and message._number > self._settled_up_to
            and self._outbox.is_current(message._epoch)
        )

    def settle(
        self, message: Message, command: str, headers: Mapping[str, str], *, receipt: bool
    ) -> Deferred[bool]:
        """Send ACK or NACK if the message can still be settled; see :meth:`Message.ack`."""
        if not self.is_open(message):
            return succeed(False)
        try:
            self._check(message)
        except LocalProtocolError:
            return fail()
        message._is_settled = True
        sent = self._outbox.send_now(self._frame(message, command, headers), receipt=receipt)
        settled = sent.addCallbacks(lambda _: True, self._not_sent, errbackArgs=(message,))
        if message._is_settled:
            # Before the receipt, too: to send another ACK would make the broker end the connection.
            self.settled(message)
        return settled

    def ack_all(self, messages: Iterable[Message]) -> int:
        """Send ACK for the messages that can still be settled; see :meth:`Subscription.ack_all`."""
        still_open = [message for message in dict.fromkeys(messages) if self.is_open(message)]
        for message in still_open:
            self._check(message)
        frames = [self._frame(message, "ACK", {}) for message in still_open]
        if not frames or not self._outbox.send_all_now(frames):
            return 0
        for message in still_open:
            message._is_settled = True
            self.settled(message)
        return len(frames)

    def _not_sent(self, failure: Failure, message: Message) -> bool:
        if isinstance(failure.value, ConnectionGoneError):
            return False
        if not isinstance(failure.value, CancelledError):  # of a frame that was sent
            message._is_settled = False
        failure.raiseException()

    # Within a transaction.

    def claim(self, message: Message, command: str, transaction: str) -> Frame:
        """Return the ACK or NACK frame of a transaction; raises StaleAcknowledgementError."""
        if not self.is_open(message):
            raise StaleAcknowledgementError(
                f"{message!r} has been settled, or taken back by the broker"
            )
        message._is_settled = True
        return self._frame(message, command, {"transaction": transaction})

    def settled(self, message: Message) -> None:
        """Record that the settlement was sent to the broker."""
        if self.mode == "client":
            self._settled_up_to = max(self._settled_up_to, message._number)

    def release(self, message: Message) -> None:
        """Record that the transaction was aborted and the message can be settled again."""
        message._is_settled = False

    def _check(self, message: Message) -> None:
        """Raise ``LocalProtocolError`` if no frame can acknowledge the message."""
        for source in self._names(message).values():
            if source not in message.headers:
                raise LocalProtocolError(
                    f"a message of STOMP {self._outbox.version} came without the header {source}"
                    " and cannot be acknowledged: use ack mode auto, or another version"
                )

    def _names(self, message: Message) -> dict[str, str]:
        version = self._outbox.version
        if version == "1.2" and self._outbox.is_coilmq and "ack" not in message.headers:
            return _NAMES_OF_COILMQ
        return _NAMES[version]

    def _frame(self, message: Message, command: str, headers: Mapping[str, str]) -> Frame:
        names = {
            name: message.headers[source]
            for name, source in self._names(message).items()
            if source in message.headers
        }
        return Frame(command, {**names, **headers})
