"""Common first steps of cases about messages, and descriptions of the target's behaviour."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal

from stompkit._common.spelling import amount
from stompkit.conformance.peer import Peer, is_within
from stompkit.conformance.target import Target
from stompkit.conformance.verdict import FailedError, Outcome, UnsupportedError
from stompkit.conformance.wire.octets import header
from stompkit.frames import Frame, Version

__all__ = [
    "LONG_LOOKALIKES",
    "LOOKALIKES",
    "SINCE_1_1",
    "AckMode",
    "answer",
    "assert_same_body",
    "begin",
    "bodies",
    "expect_long_receipt",
    "expect_unaccepted",
    "fill",
    "left_after_reset",
    "naming",
    "numbered",
    "provoke",
    "reaction",
    "receipts",
    "receive",
    "redelivers",
    "refuse",
    "require_ack_header",
    "send_all",
    "takes",
    "unsubscribe",
    "window_headers",
]

#: The versions with NACK, in which an ACK identifies a delivery and not only a message.
SINCE_1_1: Final[tuple[Version, ...]] = ("1.1", "1.2")

#: Pairs of names of which a server or its library may take one for the other. No name is in two of
#: them: it is disputed whether one that has ended can be used again.
LOOKALIKES: Final = (
    *(("1", "01"), ("2", "2.0"), ("a", " a"), ("b", "b "), ("c", "c\t"), ("d", "d\n")),
    *(("e", '"e"'), ("f", "%66"), ("g h", "g+h"), ("\u00e9", "e\u0301"), ("i&j", "i&amp;j")),
)
#: A pair of the same kind that a server may refuse, since it may limit the length of a header.
LONG_LOOKALIKES: Final = ("x" * 200 + "1", "x" * 200 + "2")

AckMode = Literal["auto", "client", "client-individual"]

#: Maximum number of messages sent without waiting: few enough for servers that require whole frames
#: in each read.
_SENT_TOGETHER: Final = 20


# Messages.


def numbered(number: int) -> list[bytes]:
    """Return the bodies 1, 2, ..."""
    return [b"%d" % n for n in range(1, number + 1)]


def bodies(frames: Iterable[Frame]) -> list[bytes]:
    """Return the bodies of the MESSAGE frames among these."""
    return [frame.body for frame in frames if frame.command == "MESSAGE"]


def assert_same_body(received: bytes, sent: bytes) -> None:
    """Raise AssertionError unless a long body is the sent one; the error only has the lengths."""
    is_same = received == sent  # pytest would print both
    told = f"arrived as {len(received):,} octets" if len(received) != len(sent) else "was changed"
    assert is_same, f"a body of {len(sent):,} octets {told}"


def receipts(frames: Iterable[Frame]) -> list[str]:
    """Return the receipt-ids of the RECEIPT frames among these."""
    return [frame.headers.get("receipt-id", "") for frame in frames if frame.command == "RECEIPT"]


def send_all(
    peer: Peer,
    destination: str,
    contents: Sequence[bytes],
    headers: Mapping[str, str] | None = None,
) -> None:
    """Send messages with these bodies, and wait until the target has processed all of them.

    ``headers`` are added to each. Raises :class:`FailedError` if the target refuses one.
    """
    added = {"destination": destination, **(headers or {})}
    for first in range(0, len(contents), _SENT_TOGETHER):
        *others, last = contents[first : first + _SENT_TOGETHER]
        for body in others:
            peer.send("SEND", added, body)
        peer.call("SEND", added, last)


def takes(
    peer: Peer, command: str, headers: Mapping[str, str] | None = None, body: bytes = b""
) -> bool:
    """Send a frame and wait until the target has processed it; return ``False`` if refused.

    For frames that may exceed a limit of the target. A limit is not a fault, as long as the target
    sends ERROR or closes the connection, which is unusable then. The case
    limits/exceeded-error-and-close tests that ERROR comes. Raises :class:`FailedError` without an
    answer.
    """
    try:
        peer.call(command, headers, body)
    except FailedError:
        if not peer.is_closed_by_target and all(each.command != "ERROR" for each in peer.frames):
            raise
        return False
    return True


def expect_long_receipt(target: Target, peer: Peer, value: str) -> None:
    """Request a receipt with many characters: it comes back whole, or the frame is refused.

    The connection may be unusable afterwards. Raises :class:`FailedError` if neither happens.
    """
    peer.send("BEGIN", {"transaction": "long", "receipt": value})
    outcome = peer.outcome(value, 0.0)
    if outcome is Outcome.NOTHING:
        raise FailedError(f"a frame with a receipt of {len(value):,} characters is {outcome}")
    if outcome is not Outcome.ACCEPTED:
        target.note(f"a receipt of {len(value):,} characters is more than the target takes")


def fill(target: Target, number: int, headers: Mapping[str, str] | None = None) -> str:
    """Create a queue with *number* messages, whose bodies are 1, 2, ...; return its name."""
    queue = target.queue()
    sender = target.connect()
    send_all(sender, queue, numbered(number), headers)
    sender.close()
    return queue


def receive(
    target: Target,
    peer: Peer,
    number: int,
    *,
    ack: AckMode = "client-individual",
    headers: Mapping[str, str] | None = None,
) -> tuple[str, list[Frame]]:
    """Receive *number* messages of a new queue, and leave them unacknowledged.

    Returns the queue's name and the messages, which have ``headers``. Raises
    :class:`UnsupportedError` if the target delivers some only after others are acknowledged, or if
    it cannot acknowledge them.
    """
    if ack != "auto" and not peer.has_ack:
        raise UnsupportedError("the target does not know ACK: --no-ack")
    queue = fill(target, number, headers)
    target.subscribe(peer, queue, ack=ack)
    messages = [peer.expect("MESSAGE")]
    if ack != "auto":
        require_ack_header(messages[0], target)
    messages += peer.gather_messages(number - 1)
    if len(messages) < number:
        only = amount(len(messages), "message")
        raise UnsupportedError(f"the target delivers only {only} unacknowledged")
    return queue, messages


def require_ack_header(message: Frame, target: Target) -> None:
    """Raise :class:`UnsupportedError` if no ACK is possible for a message in one of those modes."""
    if target.version == "1.2" and "ack" not in message.headers:
        raise UnsupportedError("the target's MESSAGE has no ack header")


def left_after_reset(target: Target, queue: str, number: int, ack: AckMode) -> list[bytes]:
    """Return the bodies that a new subscriber gets of a queue, after its consumer was cut off.

    *number* messages ought to be left, which were received in this mode and not acknowledged. 1.1
    and 1.2 say that the server MAY redeliver them. Raises :class:`UnsupportedError` if some are
    missing and the target redelivers nothing in this mode: then no acknowledgement can be blamed.
    """
    left = target.leftovers(queue, number)
    if len(left) < number and not redelivers(target, ack):
        raise UnsupportedError(f"the target redelivers nothing in the mode {ack}")
    return left


def redelivers(target: Target, ack: AckMode) -> bool:
    """Return True if an unacknowledged message comes again when its connection is lost."""
    peer = target.connect()
    queue, _ = receive(target, peer, 1, ack=ack)
    peer.reset()
    return bool(target.leftovers(queue, 1))


# Frames about messages and subscriptions.


def naming(peer: Peer, message: Frame) -> dict[str, str]:
    """Return the headers by which an ACK of the peer's version identifies a message.

    A message in auto mode may have no ack header: its message-id is the best substitute.
    """
    message_id = header(message, "message-id")
    if peer.version == "1.2":
        return {"id": message.headers.get("ack", message_id)}
    if peer.version == "1.1":
        return {"message-id": message_id, "subscription": header(message, "subscription")}
    return {"message-id": message_id}


def refuse(
    target: Target, peer: Peer, message: Frame, headers: Mapping[str, str] | None = None
) -> None:
    """Send the NACK of a message; raises :class:`UnsupportedError` if the target does not take it.

    The case nack/opposite-of-ack tests that it does.
    """
    outcome = answer(target, peer, "NACK", {**naming(peer, message), **(headers or {})})
    if outcome is not Outcome.ACCEPTED:
        raise UnsupportedError(f"NACK is {outcome}")


def unsubscribe(peer: Peer, destination: str, id: str = "s1") -> None:
    """End a subscription and wait for the RECEIPT.

    The frame has both kinds of names, since the case does not test UNSUBSCRIBE.
    """
    peer.call("UNSUBSCRIBE", {"id": id, "destination": destination})


def begin(peer: Peer, *names: str) -> None:
    """Begin transactions; raises :class:`UnsupportedError` if the target has none.

    The case begin/starts tests that it has.
    """
    for name in names:
        try:
            peer.call("BEGIN", {"transaction": name})
        except FailedError as error:
            raise UnsupportedError(f"the target does not take BEGIN: {error}") from None


def window_headers(number: int) -> dict[str, str]:
    """Return headers of SUBSCRIBE that limit the number of unacknowledged messages.

    The first is ActiveMQ's, the second RabbitMQ's and stompkit's.
    """
    return {"activemq.prefetchSize": str(number), "prefetch-count": str(number)}


# Behaviour of the target.


def answer(
    target: Target, peer: Peer, command: str, headers: Mapping[str, str], body: bytes = b""
) -> Outcome:
    """Send a frame that the target may refuse; return the outcome.

    That of a frame within a transaction is the outcome of a BEGIN after it: see :meth:`Peer.call`.
    """
    if peer.barrier is None:
        if is_within(command, headers):
            peer.send(command, headers, body)
            command, headers, body = "BEGIN", {"transaction": peer.new_transaction()}, b""
        receipt = peer.new_receipt()
        peer.send(command, {**headers, "receipt": receipt}, body)
        return peer.outcome(receipt, target.quiet_s)
    try:
        peer.call(command, headers, body)
    except FailedError:
        return Outcome.CLOSE if peer.is_closed_by_target else Outcome.ERROR
    return Outcome.ACCEPTED


def provoke(
    target: Target, peer: Peer, command: str, headers: Mapping[str, str], body: bytes = b""
) -> Outcome:
    """Send a frame that the target may accept, refuse or ignore, and read what it sends then.

    Returns the outcome of a correct frame after it: accepted unless the first was refused.
    """
    peer.send(command, headers, body)
    outcome = answer(target, peer, "BEGIN", {"transaction": peer.new_transaction()})
    peer.collect(target.quiet_s)
    return outcome


def expect_unaccepted(target: Target, peer: Peer, command: str, headers: Mapping[str, str]) -> None:
    """Send a frame that the target may refuse or ignore; fail if its RECEIPT comes.

    Raises :class:`FailedError` if nothing is answered any more, either, and
    :class:`UnsupportedError` if the target answers no receipts and does not refuse the frame.
    """
    receipt = peer.new_receipt()
    outcome = provoke(target, peer, command, {**headers, "receipt": receipt})
    if receipt in receipts(peer.frames):
        raise FailedError(f"{command} with {dict(headers)} was accepted")
    if outcome is Outcome.NOTHING:
        raise FailedError(f"after {command} nothing is answered")
    if outcome is Outcome.ACCEPTED and peer.barrier is not None:
        raise UnsupportedError("the target answers no receipts: --no-receipts")


def reaction(
    target: Target, peer: Peer, command: str, headers: Mapping[str, str], body: bytes = b""
) -> str:
    """Send a frame that the target may refuse; return the outcome in words, for a profile.

    Some targets answer with RECEIPT, detect the error later, and then send ERROR or close.
    """
    outcome = answer(target, peer, command, headers, body)
    if outcome is not Outcome.ACCEPTED:
        return str(outcome)
    try:
        peer.call("SEND", {"destination": target.queue()}, b"Is this connection still of use?")
    except FailedError:
        return f"{outcome}, and refused later"
    return str(outcome)
