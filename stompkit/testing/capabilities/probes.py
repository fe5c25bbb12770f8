"""Probes for basic capabilities: versions, acknowledgements and transactions.

Each probe takes its own context and returns its finding.  It raises ClientFailureError if the
broker refuses a frame, does not answer, or closes the connection; the caller takes that as "no".
Each probe is designed so that "no" shows as an event, usually a message that comes too early, and
not as a missing event: waiting for that would cost time.
"""

from __future__ import annotations

from stompkit.frames import Frame
from stompkit.testing.capabilities.probe_context import GRACE_S, RETURN_S, Finding, ProbeContext
from stompkit.testing.client import StompClient

__all__ = [
    "ack",
    "ack_in_transaction",
    "client_individual",
    "cumulative_ack",
    "heart_beat",
    "nack",
    "nack_requeue",
    "receipt",
    "redelivered",
    "transactions",
    "version",
]


def version(context: ProbeContext, number: str) -> Finding:
    """Return whether CONNECT that offers only this version is answered with it."""
    server = context.connect(number).connected.get("server", "the broker")
    return Finding(True, f"{server} answered CONNECT with accept-version:{number} by that version")


def receipt(context: ProbeContext) -> Finding:
    """Return whether SUBSCRIBE gets its RECEIPT; a message shows that SUBSCRIBE was processed."""
    client, queue = context.client(), context.queue()
    context.subscribe(client, queue, receipt="asked")
    context.take(client, queue, b"1")
    frame = context.late(client.next_frame)
    if frame is None:
        return Finding(False, "SUBSCRIBE with a receipt did what it should, but got no RECEIPT")
    if frame.command == "RECEIPT" and frame.headers.get("receipt-id") == "asked":
        return Finding(True, "SUBSCRIBE with a receipt was answered with its RECEIPT")
    return Finding(False, f"SUBSCRIBE with receipt:asked was answered with {frame!r}")


# Acknowledgements.


def ack(context: ProbeContext) -> Finding:
    """Return whether an unacknowledged message is redelivered after its connection is lost."""
    if _redelivered(context) is None:
        return Finding(
            False,
            "a message of a client subscription that was not acknowledged did not come again"
            f" in {RETURN_S:g} s after its connection was lost",
        )
    return Finding(
        True,
        "a message of a client subscription that was not acknowledged came again after its"
        " connection was lost",
    )


def redelivered(context: ProbeContext) -> Finding:
    """Return whether a redelivered message has the header ``redelivered:true``."""
    message = _redelivered(context)
    if message is None:
        return Finding(False, "no message is delivered again after its connection was lost")
    said = message.headers.get("redelivered")
    if said == "true":
        return Finding(True, "a message that came again had the header redelivered:true")
    if said is None:
        return Finding(False, "a message that came again had no header redelivered")
    return Finding(False, f"a message that came again had the header redelivered:{said}")


def _redelivered(context: ProbeContext) -> Frame | None:
    """Return the message that is redelivered after its connection is lost without an ACK."""
    client, queue = context.client(), context.queue()
    context.subscribe(client, queue, "client")
    context.take(client, queue, b"1")
    client.close()
    # A broker may requeue the message only after the first check, and not deliver it to earlier
    # subscribers.
    for _ in range(2):
        rest = context.rest_of(queue, awaited=b"1")
        for message in rest:
            if message.body == b"1":
                return message
    return None


def client_individual(context: ProbeContext) -> Finding:
    """Return whether ACK of the second of two messages leaves the first unacknowledged."""
    _, bodies = _left_behind(context, "client-individual", number=2, acknowledged=2, awaited=b"1")
    if bodies == [b"1"]:
        return Finding(True, "of two messages only the one that was acknowledged did not come back")
    if not bodies:
        return Finding(False, "neither of two messages came back, and one was not acknowledged")
    return Finding(False, f"of messages 1 and 2 with 2 acknowledged came back {_listed(bodies)}")


def cumulative_ack(context: ProbeContext) -> Finding:
    """Return whether ACK of the second of three messages acknowledges the first, too."""
    number, bodies = _left_behind(context, "client", number=3, acknowledged=2, awaited=b"3")
    if number < 3:
        return Finding(False, f"only {number} of three messages came without an acknowledgement")
    if bodies == [b"3"]:
        return Finding(True, "ACK of the second of three messages settled the first as well")
    return Finding(
        False, f"of messages 1, 2 and 3 with 2 acknowledged came back {_listed(bodies) or 'none'}"
    )


def _left_behind(
    context: ProbeContext, mode: str, *, number: int, acknowledged: int, awaited: bytes
) -> tuple[int, list[bytes]]:
    """Return how many of ``number`` messages came, and which are redelivered after one ACK."""
    client, queue = context.client(), context.queue()
    context.subscribe(client, queue, mode)
    messages = [context.take(client, queue, b"1")]
    for n in range(2, number + 1):
        context.put(client, queue, b"%d" % n)
        message = context.late(client.receive)
        if message is None:
            return len(messages), []
        messages.append(message)
    client.ack(messages[acknowledged - 1])
    client.close()
    return number, [message.body for message in context.rest_of(queue, awaited)]


def nack(context: ProbeContext) -> Finding:
    """Return whether NACK gets a RECEIPT and no ERROR."""
    _refuse(context)
    return Finding(True, "NACK was answered with its RECEIPT")


def nack_requeue(context: ProbeContext) -> Finding:
    """Return whether a message is redelivered after NACK."""
    client, queue = _refuse(context)
    again = [message for message in context.rest_of(queue, b"1", client) if message.body == b"1"]
    if not again:
        return Finding(False, f"after NACK the message did not come again in {RETURN_S:g} s")
    return Finding(True, "after NACK the message came again")


def _refuse(context: ProbeContext) -> tuple[StompClient, str]:
    """Answer a message with NACK; return the client and the queue."""
    client, queue = context.client(), context.queue()
    context.subscribe(client, queue, "client")
    client.nack(context.take(client, queue, b"1"))
    return client, queue


# Transactions.


def transactions(context: ProbeContext) -> Finding:
    """Return whether a message in a transaction waits for COMMIT and is discarded by ABORT."""
    client, queue = context.client(), context.queue()
    context.subscribe(client, queue)
    client.begin("t")
    context.put(client, queue, b"1", transaction="t")
    if context.take(client, queue, b"2").body == b"1":
        return Finding(False, "a message that was sent in a transaction came before COMMIT")
    client.commit("t")
    if client.receive().body != b"1":
        return Finding(False, "a message that was sent in a transaction did not come after COMMIT")
    client.begin("u")
    context.put(client, queue, b"3", transaction="u")
    client.abort("u")
    if context.take(client, queue, b"4").body == b"3":
        return Finding(False, "a message that was sent in a transaction came after ABORT")
    return Finding(True, "messages that were sent in transactions came after COMMIT, not ABORT")


def ack_in_transaction(context: ProbeContext) -> Finding:
    """Return whether ACK in a transaction takes effect with COMMIT, and not with ABORT."""
    client, committed, aborted = context.client(), context.queue(), context.queue()
    for queue, transaction, end in (
        (committed, "t", client.commit),
        (aborted, "u", client.abort),
    ):
        # One at a time: on RabbitMQ an ACK covers all earlier messages of a connection.
        context.subscribe(client, queue, "client")
        message = context.take(client, queue, b"1")
        client.begin(transaction)
        client.ack(message, transaction=transaction)
        end(transaction)
    client.close()
    # Check this one first: once its message has come back, the other would have, too.
    if not context.rest_of(aborted, awaited=b"1"):
        return Finding(False, "ACK counted although its transaction was aborted")
    if context.rest_of(committed):
        return Finding(False, "ACK did not count although its transaction was committed")
    return Finding(True, "ACK counted when its transaction was committed, not when aborted")


# The connection.


def heart_beat(context: ProbeContext) -> Finding:
    """Return whether the broker sends the negotiated heart-beats."""
    client = context.client(heart_beat="0,200")
    answer = client.connected.get("heart-beat", "")
    milliseconds = answer.partition(",")[0]
    if not milliseconds.isdigit() or not int(milliseconds):
        what = f"with heart-beat:{answer}" if answer else "without that header"
        return Finding(False, f"CONNECT with heart-beat:0,200 was answered {what}")
    agreed_s = max(200, int(milliseconds)) / 1000
    client.wait_for_beat(3 * agreed_s + GRACE_S)
    return Finding(True, f"a heart-beat came, agreed on by heart-beat:{answer}")


def _listed(bodies: list[bytes]) -> str:
    return ", ".join(body.decode() for body in bodies)
