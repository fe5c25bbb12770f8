"""The modes client and client-individual, as 1.1 and 1.2 define them; NACK."""

from stompkit._common.spelling import amount
from stompkit.conformance import Peer, Target, UnsupportedError, case
from stompkit.conformance.scenarios import AckMode, begin, left_after_reset, redelivers, refuse
from stompkit.frames import Frame

MODES: tuple[AckMode, ...] = ("client-individual", "client")


def received(target: Target, peer: Peer, ack: str, number: int = 3) -> tuple[str, list[Frame]]:
    """Fill a queue with messages 1, 2, ... and receive all of them unacknowledged.

    A target may hold messages back until earlier ones are acknowledged.
    """
    queue = target.queue()
    target.subscribe(peer, queue, ack=ack)
    sender = target.connect()
    for n in range(1, number + 1):
        sender.call("SEND", {"destination": queue}, b"%d" % n)
    sender.close()
    messages = [peer.expect("MESSAGE"), *peer.gather_messages(number - 1)]
    if len(messages) < number:
        only = amount(len(messages), "message")
        raise UnsupportedError(f"the target delivers only {only} unacknowledged")
    return queue, messages


@case("1.1/ack-mode/client-cumulative", "1.2/ack-mode/client-cumulative")
def test_client_is_cumulative(target: Target, peer: Peer) -> None:
    """Receive three and ACK the second; only the third comes to a new subscriber."""
    queue, messages = received(target, peer, "client")
    peer.acknowledge(messages[1])
    peer.reset()
    bodies = left_after_reset(target, queue, 1, "client")
    assert bodies == [b"3"], f"left over: {bodies}"


@case("1.1/ack-mode/cumulative-per-subscription", "1.2/ack-mode/cumulative-per-subscription")
def test_cumulative_ack_keeps_to_its_subscription(target: Target) -> None:
    """Receive from two subscriptions and ACK the later message; the other one comes again.

    The other subscription has each of the modes once.
    """
    for mode in MODES:
        other = target.connect()
        one, two = target.queue(), target.queue()
        target.subscribe(other, one, ack=mode, id="one")
        target.subscribe(other, two, ack="client", id="two")
        other.call("SEND", {"destination": one}, b"1")
        other.expect("MESSAGE")
        other.call("SEND", {"destination": two}, b"2")
        later = other.gather_messages(1)
        if not later:
            raise UnsupportedError(
                "the target delivers only 1 message of a connection unacknowledged"
            )
        other.acknowledge(later[0])
        other.reset()
        bodies = left_after_reset(target, one, 1, mode)
        assert bodies == [b"1"], f"the ACK settled a message of another subscription ({mode})"


@case("1.1/ack-mode/individual-like-client", "1.2/ack-mode/individual-like-client")
def test_individual_keeps_what_is_not_acknowledged(target: Target, peer: Peer) -> None:
    """Receive two, ACK the first and cut the connection; the second comes again.

    The specification lets a server redeliver nothing, but it has to be alike in both modes.
    """
    queue, messages = received(target, peer, "client-individual", 2)
    peer.acknowledge(messages[0])
    peer.reset()
    bodies = target.leftovers(queue, 1)
    if not bodies and not redelivers(target, "client"):
        raise UnsupportedError("the target redelivers nothing in the mode client")
    assert bodies == [b"2"], f"left over: {bodies}"


@case(
    "1.1/ack-mode/individual-not-cumulative",
    "1.2/ack-mode/individual-not-cumulative",
    "1.2/message/ack-relates",
    "1.1/subscribe/ack-controls-mode",
    "1.2/subscribe/ack-controls-mode",
)
def test_individual_is_not_cumulative(target: Target, peer: Peer) -> None:
    """Receive three and ACK the third; the first and second come to a new subscriber."""
    queue, messages = received(target, peer, "client-individual")
    peer.acknowledge(messages[2])
    peer.reset()
    bodies = sorted(left_after_reset(target, queue, 2, "client-individual"))
    assert bodies == [b"1", b"2"], f"left over: {bodies}"


@case("1.2/message/ack-header", "1.2/message/ack-value-arbitrary")
def test_ack_header(target: Target, peer: Peer) -> None:
    """Receive in both client modes, and again; each MESSAGE has an ack header.

    Those that wait for ACK at the same time have different ones. What is settled needs none, so
    its value may come again.
    """
    for mode in ("client", "client-individual"):
        queue = target.queue()
        target.subscribe(peer, queue, ack=mode, id=mode)
        for _ in range(2):
            peer.call("SEND", {"destination": queue}, b"x")
    received_so_far = 0
    while received_so_far < 4:
        waiting = [peer.expect("MESSAGE"), *peer.gather_messages(3 - received_so_far)]
        received_so_far += len(waiting)
        values = [message.headers.get("ack") for message in waiting]
        assert all(values), "MESSAGE has no ack header"
        assert len(set(values)) == len(values), f"ack values repeat: {values}"
        for message in waiting:
            peer.acknowledge(message)
    queue, _ = received(target, target.connect(), "client", 1)
    target.peers[-1].reset()
    again = target.connect()
    target.subscribe(again, queue, ack="client")
    for message in again.gather_messages(1):
        assert message.headers.get("ack"), "a MESSAGE that is redelivered has no ack header"


@case("1.1/nack/opposite-of-ack", "1.2/nack/opposite-of-ack")
def test_nack_is_known(target: Target, peer: Peer) -> None:
    """NACK a message with a receipt; RECEIPT comes."""
    _, messages = received(target, peer, "client-individual", 1)
    peer.acknowledge(messages[0], command="NACK")


@case(
    "1.1/nack/headers-like-ack",
    "1.2/nack/headers-like-ack",
    "1.2/headers/ack-nack",
    level="SHOULD",
)
def test_nack_needs_to_say_which(target: Target, peer: Peer) -> None:
    """NACK without the headers that ACK needs gets no RECEIPT.

    The headers are a duty of the client: no version says what the server does without them.
    """
    received(target, peer, "client-individual", 1)
    peer.send("NACK", {"receipt": "r"})
    peer.expect_refusal("r")


@case("1.1/nack/individual-single", "1.2/nack/individual-single")
def test_individual_nack_is_for_one(target: Target, peer: Peer) -> None:
    """Receive three, NACK the second, ACK the others; only the second may come again."""
    queue, messages = received(target, peer, "client-individual")
    refuse(target, peer, messages[1])
    again = {frame.body for frame in peer.collect(target.quiet_s) if frame.command == "MESSAGE"}
    assert again <= {b"2"}, f"after NACK of the second of three {sorted(again)} come again"
    peer.acknowledge(messages[0])
    peer.acknowledge(messages[2])
    peer.reset()
    bodies = set(target.leftovers(queue))
    assert bodies <= {b"2"}, f"left over: {sorted(bodies)}"


@case("1.1/nack/client-cumulative", "1.2/nack/client-cumulative", level="SHOULD")
def test_client_nack_is_cumulative(target: Target, peer: Peer) -> None:
    """Receive three in the mode client and NACK the third; all three get the same treatment.

    Either they come again, now or to a new subscriber, or none of them does. What a server does
    with a message is its own choice, even where one NACK is for several.
    """
    queue, messages = received(target, peer, "client")
    refuse(target, peer, messages[2])
    again = [frame for frame in peer.collect(target.quiet_s) if frame.command == "MESSAGE"]
    if again:
        again += peer.gather_messages(3 - len(again))
        bodies = sorted({frame.body for frame in again})
        target.note(f"the same client gets {bodies} again")
    else:
        peer.reset()
        bodies = sorted(set(target.leftovers(queue)))
        target.note(f"a new subscriber gets {bodies}")
    assert bodies in ([], [b"1", b"2", b"3"]), (
        f"after NACK of the third of three {bodies} come again"
    )


@case("1.1/nack/server-choice", "1.2/nack/server-choice")
def test_what_nack_does(target: Target, peer: Peer) -> None:
    """NACK a message; record whether it comes again, and how."""
    _, messages = received(target, peer, "client-individual", 1)
    refuse(target, peer, messages[0])
    again = [frame for frame in peer.collect(target.quiet_s) if frame.command == "MESSAGE"]
    if again:
        redelivered = again[0].headers.get("redelivered", "(no such header)")
        target.note(f"redelivered to the same client with redelivered:{redelivered}")
    else:
        target.note("not redelivered to the same client")


@case("1.1/nack/transaction-optional", "1.2/nack/transaction-optional", level="SHOULD")
def test_nack_in_a_transaction(target: Target, peer: Peer) -> None:
    """NACK in an open transaction; no ERROR comes, and the RECEIPT of COMMIT does.

    An acknowledgement SHOULD be part of the transaction that it names: of a NACK the specification
    says no more than that of an ACK. A target without NACK fails nack/opposite-of-ack.
    """
    _, messages = received(target, peer, "client-individual", 2)
    refuse(target, peer, messages[0])
    begin(peer, "t")
    peer.acknowledge(messages[1], command="NACK", transaction="t")
    peer.call("COMMIT", {"transaction": "t"})
