"""Temporary queues: destinations for replies, which belong to a connection.

They are asked for as /temp-queue/NAME: by SUBSCRIBE and reply-to, else by reply-to alone. Where the
name that comes with a request is the one that was sent, it is a destination like any other.
"""

from dataclasses import dataclass

from stompkit.conformance import FailedError, Peer, Target, UnsupportedError, trial
from stompkit.conformance.extensions import new_name, temporary_queue

SECTION = "not in STOMP: reply-to and temporary queues"

#: Whether one of four replies goes to a second subscriber is chance on a busy broker.
ROUNDS = 8


@dataclass(frozen=True)
class Asked:
    """A request, with both ends of it."""

    client: Peer
    service: Peer
    #: What the client calls its queue, and what the service is to call it.
    own: str
    address: str
    how: str


def ask(target: Target, name: str | None = None) -> Asked:
    """Send a request with a temporary queue as its reply-to; it has arrived when this returns."""
    own = temporary_queue(name or new_name())
    try:
        return request(target, own, subscribes=True)
    except FailedError as error:
        target.note(f"a subscription of {own}: {error}")
    return request(target, own, subscribes=False)


def request(target: Target, own: str, *, subscribes: bool) -> Asked:
    """The same, with or without a subscription of the queue."""
    client, service, queue = target.connect(), target.connect(), target.queue()
    if subscribes:
        target.subscribe(client, own, id="replies")
    target.subscribe(service, queue, id="requests")
    client.call("SEND", {"destination": queue, "reply-to": own}, b"request")
    address = service.expect("MESSAGE").headers.get("reply-to")
    if address is None:
        raise FailedError("the request arrived without its reply-to")
    how = "with a subscription" if subscribes else "without a subscription"
    return Asked(client, service, own, address, how)


def ask_by_temporary(target: Target, name: str | None = None) -> Asked:
    """Send a request; raises UnsupportedError where the target has no temporary queues."""
    try:
        asked = ask(target, name)
    except FailedError as error:
        raise UnsupportedError(f"the target takes no reply-to: {error}") from None
    if asked.address == asked.own:
        raise UnsupportedError("to the target /temp-queue/NAME is a destination like any other")
    return asked


@trial(
    "behaviour/temporary/reply",
    "A reply that is sent to the reply-to of a request reaches whoever has asked.",
    level="SHOULD",
    section=SECTION,
)
def test_request_and_reply(target: Target) -> None:
    """Send a request with reply-to:/temp-queue/NAME, and a reply to that; record how it works."""
    asked = ask(target)
    asked.service.call("SEND", {"destination": asked.address}, b"reply")
    assert asked.client.expect("MESSAGE").body == b"reply", "something else than the reply came"
    is_plain = asked.address == asked.own
    target.profile(
        "reply-to:/temp-queue/NAME",
        "a destination like any other" if is_plain else f"temporary, {asked.how} of it",
    )
    target.note(f"{asked.own} arrives as {asked.address}")


@trial(
    "behaviour/temporary/private",
    "Replies in a temporary queue are for the connection that it belongs to, and no other.",
    level="SHOULD",
    section=f"{SECTION}; CVE-2026-54475",
)
def test_nobody_else_gets_replies(target: Target) -> None:
    """Have another session subscribe to the reply-to of a request; the client gets all replies."""
    asked = ask_by_temporary(target)
    stranger = target.connect()
    try:
        target.subscribe(stranger, asked.address, id="stranger")
        target.note("a subscription of another connection is accepted")
    except FailedError as error:
        target.note(f"a subscription of another connection: {error}")
    sent: list[bytes] = []
    came: list[bytes] = []
    for _ in range(ROUNDS):
        replies = [b"%d" % (len(sent) + number) for number in range(1, 5)]
        for body in replies:
            asked.service.call("SEND", {"destination": asked.address}, body)
        sent += replies
        came += [frame.body for frame in asked.client.gather_messages(len(replies))]
        if came != sent:
            break
    if not stranger.is_closed_by_target:
        stranger.collect(target.quiet_s)
    stolen = [frame.body for frame in stranger.frames if frame.body in sent]
    assert not stolen, f"another connection got the replies {stolen}"
    assert came == sent, f"of the replies {sent} there came {came}"


@trial(
    "behaviour/temporary/same-name",
    "The name of a temporary queue is its connection's: two that use one name have two queues.",
    level="SHOULD",
    section=SECTION,
)
def test_same_name(target: Target) -> None:
    """Two clients ask with the same name; each gets the reply to its own request."""
    name = new_name()
    both = [ask_by_temporary(target, name), ask_by_temporary(target, name)]
    for number, asked in enumerate(both):
        asked.service.call("SEND", {"destination": asked.address}, b"reply %d" % number)
    for number, asked in enumerate(both):
        body = asked.client.expect("MESSAGE").body
        assert body == b"reply %d" % number, f"the request {number} was answered by {body!r}"


@trial(
    "behaviour/temporary/gone",
    "A temporary queue goes with its connection, and what is sent to it later is kept for nobody.",
    level="SHOULD",
    section=SECTION,
)
def test_goes_with_its_connection(target: Target) -> None:
    """DISCONNECT and send a reply; who subscribes to that queue afterwards gets nothing."""
    asked = ask_by_temporary(target)
    asked.client.call("DISCONNECT")
    asked.client.close()
    try:
        asked.service.call("SEND", {"destination": asked.address}, b"late")
    except FailedError as error:
        target.note(f"the reply: {error}")
    other = target.connect()
    try:
        target.subscribe(other, asked.address)
    except FailedError as error:
        target.note(f"a subscription of what is left: {error}")
        return
    other.expect_nothing(target.quiet_s)


@trial(
    "behaviour/temporary/late-reply",
    "A server is free to refuse a reply to a client that is gone, or to drop it.",
    level="MAY",
    section=SECTION,
)
def test_late_reply(target: Target) -> None:
    """DISCONNECT the client, and send a reply; record what happens to who sends it."""
    asked = ask_by_temporary(target)
    asked.client.call("DISCONNECT")
    asked.client.close()
    service = asked.service
    try:
        service.call("SEND", {"destination": asked.address}, b"late")
        service.call("SEND", {"destination": target.sink()}, b"to nobody")
        does = "is accepted"
    except FailedError:
        if not service.is_closed_by_target:
            service.collect(target.quiet_s)
        closed = service.is_closed_by_target
        has_error = any(frame.command == "ERROR" for frame in service.frames)
        told = "draws ERROR" if has_error else "draws nothing"
        does = f"{told}, and the connection {'ends' if closed else 'lives'}"
    target.profile("reply to a client that is gone", does)


@trial(
    "behaviour/temporary/ordinary-reply-to",
    "A reply-to that names an ordinary queue arrives as it was sent.",
    level="SHOULD",
    section=SECTION,
)
def test_ordinary_reply_to(target: Target, peer: Peer) -> None:
    """Ask with a queue of the usual kind as reply-to; it arrives unchanged, and the reply, too."""
    queue, replies = target.queue(), target.queue()
    target.subscribe(peer, replies, id="replies")
    service = target.connect()
    target.subscribe(service, queue)
    peer.call("SEND", {"destination": queue, "reply-to": replies}, b"request")
    address = service.expect("MESSAGE").headers.get("reply-to")
    assert address == replies, f"reply-to:{replies} arrived as {address}"
    service.call("SEND", {"destination": address}, b"reply")
    assert peer.expect("MESSAGE").body == b"reply", "something else than the reply came"
