"""SUBSCRIBE and UNSUBSCRIBE, as all versions have them."""

from stompkit.conformance import FailedError, Outcome, Peer, Target, case
from stompkit.conformance.requirements import statements


@case(
    "1.0/subscribe/registers",
    "1.1/subscribe/registers",
    "1.2/subscribe/registers",
    "1.0/subscribe/ack-optional",
)
def test_subscribe_gets_its_receipt(target: Target, peer: Peer) -> None:
    """SUBSCRIBE with a receipt; RECEIPT comes, and messages sent afterwards are delivered."""
    queue = target.queue()
    target.subscribe(peer, queue)
    target.connect().send("SEND", {"destination": queue}, b"later")
    got = peer.expect("MESSAGE").body
    assert got == b"later", f"the message sent later arrived as {got!r}"


@case(
    "1.0/subscribe/destination-required",
    "1.1/subscribe/destination-required",
    "1.2/subscribe/destination-required",
    "1.2/headers/subscribe",
    level={"1.0": "SHOULD"},
    rests_on=statements("subscribe/destination-required", "subscribe/failure-error"),
)
def test_subscribe_needs_destination(peer: Peer) -> None:
    """SUBSCRIBE without destination gets no RECEIPT but an ERROR, or the connection ends.

    There is nothing to subscribe to. 1.0 does not say what the server does then.
    """
    peer.send("SUBSCRIBE", {"id": "1", "receipt": "r"})
    peer.expect_refusal("r")


@case("1.1/subscribe/failure-error", "1.2/subscribe/failure-error")
def test_bad_subscribe_draws_error(target: Target) -> None:
    """SUBSCRIBE without destination draws ERROR; so does one without id, unless it is taken."""
    for headers in ({"id": "1"}, {"destination": target.queue()}):
        peer = target.connect()
        peer.send("SUBSCRIBE", {**headers, "receipt": "r"})
        # To make a subscription all the same is no failure: subscribe/id-required is about that.
        outcome = peer.outcome("r", 0.0)
        if outcome is Outcome.ACCEPTED and "destination" in headers:
            target.note("SUBSCRIBE without id is accepted")
            continue
        assert outcome in (Outcome.ERROR, Outcome.ERROR_AND_CLOSE), (
            f"SUBSCRIBE with {headers} is {outcome}"
        )


@case("1.1/subscribe/failure-close", "1.2/subscribe/failure-close")
def test_bad_subscribe_closes(peer: Peer) -> None:
    """After the ERROR for a SUBSCRIBE without destination the server closes the connection."""
    peer.send("SUBSCRIBE", {"id": "1", "receipt": "r"})
    peer.expect_refusal("r")
    peer.expect_close()


@case(
    "1.1/subscribe/id-required",
    "1.2/subscribe/id-required",
    "1.2/headers/subscribe",
    level="SHOULD",
)
def test_subscribe_needs_id(target: Target, peer: Peer) -> None:
    """SUBSCRIBE without id gets no RECEIPT: MESSAGE could not name its subscription."""
    peer.send("SUBSCRIBE", {"destination": target.queue(), "receipt": "r"})
    peer.expect_refusal("r")


@case("1.1/subscribe/id-unique", "1.2/subscribe/id-unique", level="MAY")
def test_repeated_id(target: Target, peer: Peer) -> None:
    """SUBSCRIBE twice with one id; record what happens, and that the server answers somehow."""
    target.subscribe(peer, target.queue(), id="same")
    peer.send("SUBSCRIBE", {"destination": target.queue(), "id": "same", "receipt": "second"})
    commands = [frame.command for frame in peer.collect(target.quiet_s)]
    closed = "closed" if peer.is_closed_by_target else "open"
    target.note(f"the second SUBSCRIBE got {commands or 'no answer'}, connection {closed}")


@case("1.1/subscribe/id-scope-connection", "1.2/subscribe/id-scope-connection")
def test_ids_belong_to_a_connection(target: Target) -> None:
    """Two connections use one id on one topic; each gets its copy under that id."""
    topic = target.topic()
    peers = [target.connect(), target.connect()]
    for each in peers:
        target.subscribe(each, topic, id="same")
    target.connect().send("SEND", {"destination": topic}, b"x")
    for each in peers:
        got = each.expect("MESSAGE").headers.get("subscription")
        assert got == "same", f"subscription is {got}"


@case(
    "1.1/subscribe/id-relates-frames",
    "1.2/subscribe/id-relates-frames",
    "1.0/subscribe/id-may",
    "1.0/unsubscribe/by-id",
)
def test_id_tells_subscriptions_apart(target: Target, peer: Peer) -> None:
    """Subscribe to two queues and end one by its id; the other goes on."""
    one, two = target.queue(), target.queue()
    target.subscribe(peer, one, id="one")
    target.subscribe(peer, two, id="two")
    for name, queue in (("one", one), ("two", two)):
        peer.send("SEND", {"destination": queue}, name.encode())
        got = peer.expect("MESSAGE")
        assert got.body == name.encode(), f"{name} arrived as {got.body!r}"
        if target.version != "1.0" or "subscription" in got.headers:
            assert got.headers.get("subscription") == name, f"{name} came as {got.headers}"
    peer.call("UNSUBSCRIBE", {"id": "one"})
    peer.call("SEND", {"destination": one}, b"to nobody")
    peer.send("SEND", {"destination": two}, b"still there")
    got = peer.expect("MESSAGE")
    told = f"after the end of the subscription to another queue came {got.body!r}"
    assert got.body == b"still there", told
    peer.expect_nothing(target.quiet_s)


@case("1.1/subscribe/multiple-open", "1.2/subscribe/multiple-open")
def test_many_subscriptions(target: Target, peer: Peer) -> None:
    """Open twenty subscriptions on one connection; all receive."""
    queues = [target.queue() for _ in range(20)]
    for number, queue in enumerate(queues):
        target.subscribe(peer, queue, id=f"s{number}")
    for queue in queues:
        peer.send("SEND", {"destination": queue}, queue.encode())
    bodies = {frame.body.decode() for frame in peer.expect_messages(20)}
    assert bodies == set(queues), f"only {len(bodies)} subscriptions received"


@case(
    "1.0/unsubscribe/stops-delivery",
    "1.1/unsubscribe/removes",
    "1.2/unsubscribe/removes",
    "1.1/unsubscribe/no-more-messages",
    "1.2/unsubscribe/no-more-messages",
    "1.2/headers/unsubscribe",
)
def test_unsubscribe_ends_delivery(target: Target, peer: Peer) -> None:
    """UNSUBSCRIBE by id alone, and SEND from elsewhere; no MESSAGE comes."""
    queue = target.queue()
    target.subscribe(peer, queue)
    peer.call("UNSUBSCRIBE", {"id": "s1"})
    target.connect().call("SEND", {"destination": queue}, b"x")
    peer.expect_nothing(target.quiet_s)


@case("1.0/unsubscribe/by-destination")
def test_unsubscribe_by_destination(target: Target, peer: Peer) -> None:
    """SUBSCRIBE without id and UNSUBSCRIBE by destination; no MESSAGE comes afterwards."""
    queue = target.queue()
    peer.call("SUBSCRIBE", {"destination": queue})
    peer.call("UNSUBSCRIBE", {"destination": queue})
    target.connect().call("SEND", {"destination": queue}, b"x")
    peer.expect_nothing(target.quiet_s)


@case(
    "1.0/unsubscribe/destination-or-id-required",
    "1.1/unsubscribe/id-required",
    "1.2/unsubscribe/id-required",
    level="SHOULD",
)
def test_unsubscribe_needs_to_say_which(target: Target, peer: Peer) -> None:
    """UNSUBSCRIBE without id (from 1.1 on with a destination) gets no RECEIPT.

    The header is a duty of the client: no version says what the server does without it.
    """
    queue = target.queue()
    target.subscribe(peer, queue)
    headers = {} if target.version == "1.0" else {"destination": queue}
    peer.send("UNSUBSCRIBE", {**headers, "receipt": "r"})
    peer.expect_refusal("r")


@case("1.1/unsubscribe/id-matches-existing", "1.2/unsubscribe/id-matches-existing", level="MAY")
def test_unsubscribe_of_nothing(target: Target, peer: Peer) -> None:
    """UNSUBSCRIBE an id that was never used; record the answer."""
    peer.send("UNSUBSCRIBE", {"id": "never-used", "receipt": "r"})
    commands = [frame.command for frame in peer.collect(target.quiet_s)]
    target.note(f"answered with {commands or 'nothing'}")


@case("1.0/subscribe/body-ignored")
def test_body_of_subscribe_is_ignored(target: Target, peer: Peer) -> None:
    """SUBSCRIBE with a body; the subscription works."""
    queue = target.queue()
    peer.send_raw(b"SUBSCRIBE\ndestination:%b\nid:1\nreceipt:r\n\nnothing\0" % queue.encode())
    peer.expect_receipt("r")
    peer.send("SEND", {"destination": queue}, b"x")
    peer.expect("MESSAGE")


@case(
    "1.0/subscribe/selector-may",
    "1.1/subscribe/server-headers-may",
    "1.2/subscribe/server-headers-may",
)
def test_selector(target: Target, peer: Peer) -> None:
    """SUBSCRIBE with a selector; record whether it filters."""
    queue = target.queue()
    try:
        target.subscribe(peer, queue, headers={"selector": "colour = 'red'"})
    except FailedError:
        if all(frame.command != "ERROR" for frame in peer.frames):
            raise
        target.note("SUBSCRIBE with a selector is refused")
        return
    sender = target.connect()
    sender.call("SEND", {"destination": queue, "colour": "blue"}, b"blue")
    sender.call("SEND", {"destination": queue, "colour": "red"}, b"red")
    bodies = [frame.body for frame in peer.collect(target.quiet_s)]
    assert b"red" in bodies, "the message that the selector takes did not come"
    target.note("the selector filters" if b"blue" not in bodies else "the selector is ignored")


@case("1.1/ack-mode/values", "1.2/ack-mode/values", "1.0/subscribe/ack-valid-values")
def test_ack_modes_are_known(target: Target, peer: Peer) -> None:
    """SUBSCRIBE with each value that the version has; each gets its RECEIPT."""
    modes = (
        ["auto", "client"] if target.version == "1.0" else ["auto", "client", "client-individual"]
    )
    for mode in modes:
        target.subscribe(peer, target.queue(), ack=mode, id=mode)
