"""BEGIN, COMMIT and ABORT, as all versions have them.

To name the transaction is a duty of the client: no version says what the server does about a frame
that does not, or that names an unknown one.
"""

from stompkit.conformance import Peer, Target, case
from stompkit.conformance.requirements import statements
from stompkit.conformance.scenarios import begin


@case("1.0/begin/starts-transaction", "1.1/begin/starts", "1.2/begin/starts")
def test_begin(peer: Peer) -> None:
    """BEGIN with a receipt; RECEIPT comes."""
    peer.call("BEGIN", {"transaction": "t"})


@case(
    "1.0/commit/commits",
    "1.1/commit/commits",
    "1.2/commit/commits",
    "1.0/begin/covers-send",
    "1.1/begin/covers-send",
    "1.2/begin/covers-send",
    "1.0/send/transaction-header",
    "1.1/send/transaction-header",
    "1.2/send/transaction-header",
    "1.0/begin/atomic",
    "1.1/begin/atomic",
    "1.2/begin/atomic",
)
def test_sends_wait_for_commit(target: Target, peer: Peer) -> None:
    """SEND three messages in a transaction; none comes before COMMIT, all come after it."""
    queue = target.queue()
    reader = target.connect()
    target.subscribe(reader, queue)
    begin(peer, "t")
    for number in b"123":
        peer.send("SEND", {"destination": queue, "transaction": "t"}, bytes([number]))
    reader.expect_nothing(target.quiet_s)
    peer.call("COMMIT", {"transaction": "t"})
    bodies = [frame.body for frame in reader.expect_messages(3)]
    assert sorted(bodies) == [b"1", b"2", b"3"], f"arrived: {bodies}"


@case("1.0/abort/rolls-back", "1.1/abort/rolls-back", "1.2/abort/rolls-back")
def test_abort_drops_sends(target: Target, peer: Peer) -> None:
    """SEND to a queue, and to a topic if any, in a transaction and ABORT; nothing is delivered."""
    names = [target.queue(), target.topic()] if target.has_topics else [target.queue()]
    for number, name in enumerate(names):
        target.subscribe(peer, name, id=f"s{number}")
    begin(peer, "t")
    for name in names:
        peer.send("SEND", {"destination": name, "transaction": "t"}, b"x")
    peer.call("ABORT", {"transaction": "t"})
    peer.expect_nothing(target.quiet_s)


@case("1.0/begin/id-binds-frames", "1.1/begin/id-binds", "1.2/begin/id-binds")
def test_transactions_are_told_apart(target: Target, peer: Peer) -> None:
    """Interleave two transactions, COMMIT one and ABORT the other; one message arrives."""
    queue = target.queue()
    target.subscribe(peer, queue)
    begin(peer, "kept", "dropped")
    for name in ("kept", "dropped"):
        peer.send("SEND", {"destination": queue, "transaction": name}, name.encode())
    peer.call("ABORT", {"transaction": "dropped"})
    peer.call("COMMIT", {"transaction": "kept"})
    got = peer.expect("MESSAGE").body
    assert got == b"kept", f"the message after the transaction arrived as {got!r}"
    peer.expect_nothing(target.quiet_s)


@case("1.2/begin/id-scope-connection")
def test_transactions_belong_to_a_connection(target: Target, peer: Peer) -> None:
    """Two connections use one name; the ABORT of one does not touch the other."""
    queue = target.queue()
    other = target.connect()
    target.subscribe(other, queue)
    begin(peer, "same")
    other.call("BEGIN", {"transaction": "same"})
    peer.send("SEND", {"destination": queue, "transaction": "same"}, b"x")
    other.call("ABORT", {"transaction": "same"})
    peer.call("COMMIT", {"transaction": "same"})
    other.expect("MESSAGE")


@case("1.2/begin/id-unique", level="MAY")
def test_repeated_begin(target: Target, peer: Peer) -> None:
    """BEGIN one name twice; record the answer."""
    begin(peer, "t")
    peer.send("BEGIN", {"transaction": "t", "receipt": "again"})
    commands = [frame.command for frame in peer.collect(target.quiet_s)]
    target.note(f"the second BEGIN got {commands or 'no answer'}")
    target.profile("BEGIN of a transaction that is open", commands[0] if commands else "no answer")


@case(
    "1.0/begin/transaction-required",
    "1.1/begin/transaction-required",
    "1.2/begin/transaction-required",
    "1.2/headers/transactions",
    level="SHOULD",
)
def test_begin_needs_transaction(peer: Peer) -> None:
    """BEGIN without transaction gets no RECEIPT."""
    peer.send("BEGIN", {"receipt": "r"})
    peer.expect_refusal("r")


@case(
    "1.0/commit/transaction-required",
    "1.1/commit/transaction-required",
    "1.2/commit/transaction-required",
    "1.2/headers/transactions",
    level="SHOULD",
)
def test_commit_needs_transaction(peer: Peer) -> None:
    """COMMIT without transaction gets no RECEIPT."""
    begin(peer, "t")
    peer.send("COMMIT", {"receipt": "r"})
    peer.expect_refusal("r")


@case(
    "1.0/abort/transaction-required",
    "1.1/abort/transaction-required",
    "1.2/abort/transaction-required",
    "1.2/headers/transactions",
    level="SHOULD",
)
def test_abort_needs_transaction(peer: Peer) -> None:
    """ABORT without transaction gets no RECEIPT."""
    begin(peer, "t")
    peer.send("ABORT", {"receipt": "r"})
    peer.expect_refusal("r")


@case("1.1/commit/names-transaction", "1.2/commit/names-transaction", level="SHOULD")
def test_commit_of_nothing(peer: Peer) -> None:
    """COMMIT of a transaction that was never begun gets no RECEIPT."""
    peer.send("COMMIT", {"transaction": "unknown", "receipt": "r"})
    peer.expect_refusal("r")


@case("1.1/abort/names-transaction", "1.2/abort/names-transaction", level="SHOULD")
def test_abort_of_nothing(peer: Peer) -> None:
    """ABORT of a transaction that was never begun gets no RECEIPT."""
    peer.send("ABORT", {"transaction": "unknown", "receipt": "r"})
    peer.expect_refusal("r")


@case(
    "1.0/ack/transaction-makes-ack-transactional",
    "1.1/ack/transaction-part-of",
    "1.2/ack/transaction-part-of",
    "1.0/ack/transaction-optional",
    "1.1/ack/transaction-may",
    "1.2/ack/transaction-may",
)
def test_acknowledgement_follows_the_transaction(target: Target) -> None:
    """ACK in a transaction: after ABORT the message comes again, after COMMIT it does not."""
    for end, left in (("ABORT", [b"x"]), ("COMMIT", [])):
        queue = target.queue()
        peer = target.connect()
        peer.call("SEND", {"destination": queue}, b"x")
        target.subscribe(peer, queue, ack="client")
        message = peer.expect("MESSAGE")
        begin(peer, "t")
        peer.acknowledge(message, transaction="t")
        peer.call(end, {"transaction": "t"})
        peer.reset()
        bodies = target.leftovers(queue, len(left))
        assert bodies == left, f"after {end} a new subscriber got {bodies}"


@case(
    "1.0/begin/covers-ack",
    "1.1/begin/covers-ack",
    "1.2/begin/covers-ack",
    "1.1/begin/implicit-abort-tcp",
    "1.2/begin/implicit-abort-tcp",
    rests_on=statements("begin/covers-send", "begin/implicit-abort-tcp"),
)
def test_lost_connection_aborts(target: Target, peer: Peer) -> None:
    """ACK and SEND in a transaction and cut the connection; neither has taken effect.

    An acknowledgement SHOULD be part of the transaction that it names, as the specification says of
    ACK. One that is not is no part of what is aborted.
    """
    queue, other = target.queue(), target.queue()
    peer.call("SEND", {"destination": queue}, b"x")
    target.subscribe(peer, queue, ack="client")
    message = peer.expect("MESSAGE")
    begin(peer, "t")
    peer.send("SEND", {"destination": other, "transaction": "t"}, b"never")
    peer.acknowledge(message, transaction="t")
    peer.reset()
    bodies = target.leftovers(queue, 1)
    target.should(bodies == [b"x"], f"the acknowledged message: a new subscriber got {bodies}")
    assert not target.leftovers(other), "a message of the lost transaction was delivered"


@case("1.1/begin/implicit-abort-disconnect", "1.2/begin/implicit-abort-disconnect")
def test_disconnect_aborts(target: Target, peer: Peer) -> None:
    """SEND in a transaction and DISCONNECT; the message is not delivered."""
    queue = target.queue()
    begin(peer, "t")
    peer.send("SEND", {"destination": queue, "transaction": "t"}, b"never")
    peer.call("DISCONNECT")
    peer.close()
    assert not target.leftovers(queue), "the message was delivered"
