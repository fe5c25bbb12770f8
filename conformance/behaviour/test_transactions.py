"""Transactions of messages: seen by nobody before COMMIT, apart from each other, whole or not."""

from stompkit.conformance import FailedError, Outcome, Peer, Target, trial
from stompkit.conformance.requirements import statements
from stompkit.conformance.scenarios import (
    LONG_LOOKALIKES,
    LOOKALIKES,
    SINCE_1_1,
    answer,
    begin,
    bodies,
    send_all,
    takes,
)

SECTION = "BEGIN"
#: How many messages, and how many transactions at a time, are tried at the most.
MOST_SENDS = 500
MOST_TRANSACTIONS = 50


def send(peer: Peer, queue: str, transaction: str, body: bytes) -> None:
    """Send a message in a transaction."""
    peer.send("SEND", {"destination": queue, "transaction": transaction}, body)


@trial(
    "behaviour/transaction/isolation",
    "Nobody sees the messages of an open transaction, though another one is committed.",
    level="FACT",
    section=SECTION,
    rests_on=statements("begin/covers-send"),
)
def test_open_transactions_are_invisible(target: Target, peer: Peer) -> None:
    """SEND in three transactions, COMMIT one; a subscriber and a later one see its message only."""
    queue, reader = target.queue(), target.connect()
    target.subscribe(reader, queue)
    names = ("first", "second", "third")
    begin(peer, *names)
    for name in names:
        send(peer, queue, name, name.encode())
    peer.call("COMMIT", {"transaction": "second"})
    seen = bodies([reader.expect("MESSAGE"), *reader.collect(target.quiet_s)])
    assert seen == [b"second"], f"the subscriber saw {seen}"
    reader.close()
    left = target.leftovers(queue)
    assert not left, f"a new subscriber saw {left}"


@trial(
    "behaviour/transaction/interleaved",
    "Transactions that are open at the same time end one by one, each with its own messages.",
    level="FACT",
    section=SECTION,
    rests_on=statements("begin/id-binds", "begin/id-binds-frames"),
)
def test_transactions_end_one_by_one(target: Target, peer: Peer) -> None:
    """Spread six messages over three transactions, COMMIT, ABORT, COMMIT; four arrive, in order.

    The order is no more than a recommendation.
    """
    queue = target.queue()
    target.subscribe(peer, queue)
    begin(peer, "a", "b", "c")
    for number in (b"1", b"2"):
        for name in "abc":
            send(peer, queue, name, name.encode() + number)
    for end, name in (("COMMIT", "c"), ("ABORT", "b"), ("COMMIT", "a")):
        peer.call(end, {"transaction": name})
    arrived = bodies([*peer.expect_messages(4), *peer.collect(target.quiet_s)])
    assert sorted(arrived) == [b"a1", b"a2", b"c1", b"c2"], f"arrived: {arrived}"
    target.should(arrived == [b"c1", b"c2", b"a1", b"a2"], f"arrived: {arrived}")


@trial(
    "behaviour/transaction/letter-case",
    "Transactions whose names differ by capitals only are two transactions.",
    level="FACT",
    section=SECTION,
    rests_on=statements("begin/id-binds", "begin/id-binds-frames"),
)
def test_capitals_in_names_of_transactions(target: Target, peer: Peer) -> None:
    """SEND in the transactions Tx and tX and COMMIT the one; only its message arrives."""
    queue = target.queue()
    target.subscribe(peer, queue)
    begin(peer, "Tx", "tX")
    for name in ("Tx", "tX"):
        send(peer, queue, name, name.encode())
    peer.call("COMMIT", {"transaction": "tX"})
    arrived = bodies([*peer.expect_messages(1), *peer.collect(target.quiet_s)])
    assert arrived == [b"tX"], f"arrived: {arrived}"


@trial(
    "behaviour/transaction/lookalikes",
    "Transactions whose names look alike are as many transactions.",
    level="FACT",
    section=SECTION,
    versions=SINCE_1_1,
    rests_on=statements("begin/id-binds"),
)
def test_names_of_transactions_that_look_alike(target: Target, peer: Peer) -> None:
    """SEND in two transactions whose names look alike, COMMIT one and ABORT the other."""
    queue = target.queue()
    target.subscribe(peer, queue)
    begin(peer, "one", "two")  # there can be two
    for name in ("one", "two"):
        peer.call("ABORT", {"transaction": name})
    for names in LOOKALIKES:
        tell_apart(peer, queue, *names)
    long = {"transaction": "long" * 50 + "."}
    if takes(peer, "BEGIN", long):
        peer.call("ABORT", long)
        tell_apart(peer, queue, *LONG_LOOKALIKES)
    else:
        target.note("the name of a transaction may not have 201 characters")


def tell_apart(peer: Peer, queue: str, one: str, two: str) -> None:
    """Fail if one of two transactions at the same time goes for the other."""
    for name, body in ((one, b"one"), (two, b"two")):
        peer.call("BEGIN", {"transaction": name})
        send(peer, queue, name, body)
    peer.call("COMMIT", {"transaction": two})
    arrived = peer.expect("MESSAGE").body
    assert arrived == b"two", f"by COMMIT of {two!r} there came a message of {one!r}"
    peer.call("ABORT", {"transaction": one})


@trial(
    "behaviour/transaction/order",
    "COMMIT sends the messages of a transaction in the order in which they were added.",
    level="SHOULD",
    section="COMMIT",
)
def test_commit_keeps_the_order(target: Target, peer: Peer) -> None:
    """SEND thirty in a transaction and COMMIT; they arrive in that order."""
    queue, reader = target.queue(), target.connect()
    target.subscribe(reader, queue)
    begin(peer, "t")
    sent = [b"%d" % number for number in range(30)]
    send_all(peer, queue, sent, {"transaction": "t"})
    peer.call("COMMIT", {"transaction": "t"})
    arrived = bodies(reader.expect_messages(30))
    assert arrived == sent, f"the order is {arrived}"


@trial(
    "behaviour/transaction/abort-everywhere",
    "ABORT drops the messages to all destinations, and none comes later.",
    level="FACT",
    section="ABORT",
    rests_on=statements("abort/rolls-back"),
)
def test_abort_drops_all(target: Target, peer: Peer) -> None:
    """SEND to two queues in a transaction, ABORT, and COMMIT another; only its message arrives."""
    queues = target.queue(), target.queue()
    for number, queue in enumerate(queues):
        target.subscribe(peer, queue, id=str(number))
    begin(peer, "t", "other")
    for queue in queues:
        send(peer, queue, "t", b"dropped")
    send(peer, queues[0], "other", b"kept")
    peer.call("ABORT", {"transaction": "t"})
    peer.call("COMMIT", {"transaction": "other"})
    arrived = bodies([peer.expect("MESSAGE"), *peer.collect(target.quiet_s)])
    assert arrived == [b"kept"], f"arrived: {arrived}"


@trial(
    "behaviour/transaction/two-connections",
    "A transaction is not touched by one of the same name on another connection.",
    level="FACT",
    section=SECTION,
    covers=("1.2/begin/id-scope-connection",),
)
def test_same_name_on_two_connections(target: Target, peer: Peer) -> None:
    """Two connections use one name; after the COMMIT of one the other goes on and has its own."""
    queue = target.queue()
    other, reader = target.connect(), target.connect()
    target.subscribe(reader, queue)
    for each in (peer, other):
        begin(each, "same")
    send(peer, queue, "same", b"1")
    send(other, queue, "same", b"other's")
    other.call("COMMIT", {"transaction": "same"})
    other.close()
    assert reader.expect("MESSAGE").body == b"other's", "the COMMIT was for the other one"
    send(peer, queue, "same", b"2")
    peer.call("COMMIT", {"transaction": "same"})
    arrived = bodies(reader.expect_messages(2))
    assert sorted(arrived) == [b"1", b"2"], f"arrived: {arrived}"


@trial(
    "behaviour/transaction/name-again",
    "After COMMIT or ABORT the name can be used for another transaction.",
    level="SHOULD",
    section=SECTION,
)
def test_name_is_used_again(target: Target, peer: Peer) -> None:
    """Use one name for five transactions, one after the other; each has its own message only.

    Different transactions of a connection MUST have different names: it is disputed whether that is
    about those that have ended, too.
    """
    queue = target.queue()
    target.subscribe(peer, queue)
    begin(peer, "t")
    for number, end in enumerate(("COMMIT", "ABORT", "COMMIT", "ABORT", "COMMIT")):
        if number:
            peer.call("BEGIN", {"transaction": "t"})
        send(peer, queue, "t", b"%d" % number)
        peer.call(end, {"transaction": "t"})
    arrived = bodies([*peer.expect_messages(3), *peer.collect(target.quiet_s)])
    assert arrived == [b"0", b"2", b"4"], f"arrived: {arrived}"


@trial(
    "behaviour/transaction/send-unknown",
    "SEND in a transaction that has not begun is refused.",
    level="SHOULD",
    section="SEND",
    versions=SINCE_1_1,
)
def test_send_in_no_transaction(target: Target, peer: Peer) -> None:
    """SEND in a transaction that nobody has begun gets no RECEIPT."""
    receipt = peer.new_receipt()
    headers = {"destination": target.queue(), "transaction": "unknown", "receipt": receipt}
    peer.send("SEND", headers, b"x")
    peer.expect_refusal(receipt)


@trial(
    "behaviour/transaction/send-after-end",
    "SEND in a transaction that has ended is refused.",
    level="SHOULD",
    section="SEND",
)
def test_send_in_a_former_transaction(target: Target) -> None:
    """SEND in a transaction after its COMMIT, and after its ABORT, gets no RECEIPT."""
    for end in ("COMMIT", "ABORT"):
        peer = target.connect()
        begin(peer, "t")
        peer.call(end, {"transaction": "t"})
        receipt = peer.new_receipt()
        headers = {"destination": target.queue(), "transaction": "t", "receipt": receipt}
        peer.send("SEND", headers, b"x")
        peer.expect_refusal(receipt)


@trial(
    "behaviour/transaction/large",
    "A transaction can have hundreds of messages.",
    level="SHOULD",
    section=SECTION,
)
def test_large_transaction(target: Target, peer: Peer) -> None:
    """SEND 500 in a transaction and COMMIT; all arrive."""
    queue, reader = target.queue(), target.connect()
    target.subscribe(reader, queue)
    begin(peer, "t")
    send_all(peer, queue, [b"%d" % n for n in range(MOST_SENDS)], {"transaction": "t"})
    peer.call("COMMIT", {"transaction": "t"})
    number = len(set(bodies(reader.gather_messages(MOST_SENDS))))
    assert number == MOST_SENDS, f"{number} of {MOST_SENDS} arrived"


@trial(
    "behaviour/transaction/number",
    "How many transactions a connection can have open is left open.",
    level="MAY",
    section=SECTION,
)
def test_how_many_transactions(target: Target, peer: Peer) -> None:
    """BEGIN up to fifty transactions; record how many are accepted."""
    for number in range(MOST_TRANSACTIONS):
        if answer(target, peer, "BEGIN", {"transaction": str(number)}) is not Outcome.ACCEPTED:
            target.profile("open transactions of a connection", str(number))
            return
    target.profile("open transactions of a connection", f"{MOST_TRANSACTIONS} or more")


@trial(
    "behaviour/transaction/error-within",
    "When ERROR ends the connection its transactions are aborted; otherwise it is left open.",
    level="FACT",
    section=SECTION,
    covers=("1.1/begin/implicit-abort-tcp", "1.2/begin/implicit-abort-tcp"),
)
def test_error_in_a_transaction(target: Target, peer: Peer) -> None:
    """SEND, then ACK an unknown message in a transaction; record whether the rest can COMMIT.

    Where the connection ends nothing may be delivered.
    """
    queue = target.queue()
    begin(peer, "t")
    send(peer, queue, "t", b"x")
    headers = {"id": "none", "message-id": "none", "subscription": "none", "transaction": "t"}
    outcome = answer(target, peer, "ACK", headers)
    try:
        peer.call("COMMIT", {"transaction": "t"})
    except FailedError:
        left = target.leftovers(queue)
        ends = peer.is_closed_by_target
        assert not (left and ends), f"the connection ended before COMMIT; arrived: {left}"
        target.profile("a bad ACK in a transaction", "ends the connection" if ends else "spoils it")
        return
    left = target.leftovers(queue, 1)
    does = "ignored" if outcome is Outcome.ACCEPTED else "refused by itself"
    target.profile("a bad ACK in a transaction", does if left else "drops what was sent")
