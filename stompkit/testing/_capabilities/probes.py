"""How it is found out what a broker can do: versions, acknowledgements, transactions.

Each probe takes a ground of its own and returns its finding.  What a broker refuses, does not
answer, or closes the connection over raises ClientFailure, which whoever runs a probe takes for
"no".  Every probe is made so that "no" shows as something that happens, in most cases a message
that comes too early, and not as something that fails to come: that would cost time.
"""

from __future__ import annotations

from stompkit.frames import Frame
from stompkit.testing._capabilities.ground import GRACE_S, RETURN_S, Finding, Ground
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


def version(ground: Ground, number: str) -> Finding:
    """Whether CONNECT with this version alone is answered with it."""
    server = ground.connect(number).connected.get("server", "the broker")
    return Finding(True, f"{server} answered CONNECT with accept-version:{number} by that version")


def receipt(ground: Ground) -> Finding:
    """Whether SUBSCRIBE gets its RECEIPT; a message shows that it has been dealt with."""
    client, queue = ground.client(), ground.queue()
    ground.subscribe(client, queue, receipt="asked")
    ground.take(client, queue, b"1")
    frame = ground.late(client.next_frame)
    if frame is None:
        return Finding(False, "SUBSCRIBE with a receipt did what it should, but got no RECEIPT")
    if frame.command == "RECEIPT" and frame.headers.get("receipt-id") == "asked":
        return Finding(True, "SUBSCRIBE with a receipt was answered with its RECEIPT")
    return Finding(False, f"SUBSCRIBE with receipt:asked was answered with {frame!r}")


# Acknowledgements.


def ack(ground: Ground) -> Finding:
    """Whether a message that was not acknowledged comes again after the loss of its connection."""
    if _redelivered(ground) is None:
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


def redelivered(ground: Ground) -> Finding:
    """Whether a message that comes again says so."""
    message = _redelivered(ground)
    if message is None:
        return Finding(False, "no message is delivered again after its connection was lost")
    said = message.headers.get("redelivered")
    if said == "true":
        return Finding(True, "a message that came again had the header redelivered:true")
    if said is None:
        return Finding(False, "a message that came again had no header redelivered")
    return Finding(False, f"a message that came again had the header redelivered:{said}")


def _redelivered(ground: Ground) -> Frame | None:
    """The message that comes again when a connection is lost that has not acknowledged it."""
    client, queue = ground.client(), ground.queue()
    ground.subscribe(client, queue, "client")
    ground.take(client, queue, b"1")
    client.close()
    # A broker may put it back behind the first look, and tell nobody who has subscribed by then.
    for _ in range(2):
        rest = ground.rest_of(queue, awaited=b"1")
        for message in rest:
            if message.body == b"1":
                return message
    return None


def client_individual(ground: Ground) -> Finding:
    """Whether ACK of the second of two messages leaves the first."""
    _, bodies = _left_behind(ground, "client-individual", number=2, acknowledged=2, awaited=b"1")
    if bodies == [b"1"]:
        return Finding(True, "of two messages only the one that was acknowledged did not come back")
    if not bodies:
        return Finding(False, "neither of two messages came back, and one was not acknowledged")
    return Finding(False, f"of messages 1 and 2 with 2 acknowledged came back {_listed(bodies)}")


def cumulative_ack(ground: Ground) -> Finding:
    """Whether ACK of the second of three messages settles the first, too."""
    number, bodies = _left_behind(ground, "client", number=3, acknowledged=2, awaited=b"3")
    if number < 3:
        return Finding(False, f"only {number} of three messages came without an acknowledgement")
    if bodies == [b"3"]:
        return Finding(True, "ACK of the second of three messages settled the first as well")
    return Finding(
        False, f"of messages 1, 2 and 3 with 2 acknowledged came back {_listed(bodies) or 'none'}"
    )


def _left_behind(
    ground: Ground, mode: str, *, number: int, acknowledged: int, awaited: bytes
) -> tuple[int, list[bytes]]:
    """How many of ``number`` messages came; which come back, one having been acknowledged."""
    client, queue = ground.client(), ground.queue()
    ground.subscribe(client, queue, mode)
    messages = [ground.take(client, queue, b"1")]
    for n in range(2, number + 1):
        ground.put(client, queue, b"%d" % n)
        message = ground.late(client.receive)
        if message is None:
            return len(messages), []
        messages.append(message)
    client.ack(messages[acknowledged - 1])
    client.close()
    return number, [message.body for message in ground.rest_of(queue, awaited)]


def nack(ground: Ground) -> Finding:
    """Whether NACK gets a RECEIPT and no ERROR."""
    _refuse(ground)
    return Finding(True, "NACK was answered with its RECEIPT")


def nack_requeue(ground: Ground) -> Finding:
    """Whether a message comes again after NACK."""
    client, queue = _refuse(ground)
    again = [message for message in ground.rest_of(queue, b"1", client) if message.body == b"1"]
    if not again:
        return Finding(False, f"after NACK the message did not come again in {RETURN_S:g} s")
    return Finding(True, "after NACK the message came again")


def _refuse(ground: Ground) -> tuple[StompClient, str]:
    """Answer a message with NACK; which client did so, and the queue."""
    client, queue = ground.client(), ground.queue()
    ground.subscribe(client, queue, "client")
    client.nack(ground.take(client, queue, b"1"))
    return client, queue


# Transactions.


def transactions(ground: Ground) -> Finding:
    """Whether a message waits for COMMIT, and ABORT forgets one."""
    client, queue = ground.client(), ground.queue()
    ground.subscribe(client, queue)
    client.begin("t")
    ground.put(client, queue, b"1", transaction="t")
    if ground.take(client, queue, b"2").body == b"1":
        return Finding(False, "a message that was sent in a transaction came before COMMIT")
    client.commit("t")
    if client.receive().body != b"1":
        return Finding(False, "a message that was sent in a transaction did not come after COMMIT")
    client.begin("u")
    ground.put(client, queue, b"3", transaction="u")
    client.abort("u")
    if ground.take(client, queue, b"4").body == b"3":
        return Finding(False, "a message that was sent in a transaction came after ABORT")
    return Finding(True, "messages that were sent in transactions came after COMMIT, not ABORT")


def ack_in_transaction(ground: Ground) -> Finding:
    """Whether ACK in a transaction counts after COMMIT, and does not after ABORT."""
    client, committed, aborted = ground.client(), ground.queue(), ground.queue()
    for queue, transaction, end in (
        (committed, "t", client.commit),
        (aborted, "u", client.abort),
    ):
        # One after the other: on RabbitMQ an ACK is for all earlier messages of a connection.
        ground.subscribe(client, queue, "client")
        message = ground.take(client, queue, b"1")
        client.begin(transaction)
        client.ack(message, transaction=transaction)
        end(transaction)
    client.close()
    # This one first: when its message has come back, the other would have, too.
    if not ground.rest_of(aborted, awaited=b"1"):
        return Finding(False, "ACK counted although its transaction was aborted")
    if ground.rest_of(committed):
        return Finding(False, "ACK did not count although its transaction was committed")
    return Finding(True, "ACK counted when its transaction was committed, not when aborted")


# The connection.


def heart_beat(ground: Ground) -> Finding:
    """Whether the broker beats where that has been agreed on."""
    client = ground.client(heart_beat="0,200")
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
