"""The emulator of MorbidQ: each of its rules, with and without, and its overall behaviour."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, cast

import pytest
from twisted.internet.address import IPv4Address
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import Clock

from stompkit.server import (
    Action,
    BrokerConfig,
    Credentials,
    Decision,
    DestinationConfig,
    Request,
    User,
)
from stompkit.testing.memory import MemoryBroker, MemoryClient, MemoryTransport
from stompkit.testing.server.quirks import PROFILES, factory_for, parse_quirks
from tests.testing.server.quirks.talks import heard

ALL = PROFILES["morbidq"]


def morbidq(*without: str, **settings: Any) -> MemoryBroker:
    """Return an emulated MorbidQ without some rules."""
    quirks = parse_quirks(",".join(["morbidq", *(f"-{rule}" for rule in without)]))
    return MemoryBroker(make=partial(factory_for, quirks), **settings)


def talk(rule: str, say: Callable[[MemoryClient], None]) -> tuple[list[object], list[object]]:
    """Return the frames that a client receives, with the rule and without."""
    told = []
    for broker in (morbidq(), morbidq(rule)):
        client = broker.client("1.0")
        client.take()
        say(client)
        told.append(heard(client))
    return told[0], told[1]


def got(rule: str, octets: bytes) -> tuple[object, object]:
    """Return headers and bodies for a subscriber of /topic/a, with the rule and without."""
    outcome = []
    for broker in (morbidq(), morbidq(rule)):
        client, other = broker.client("1.0"), broker.client("1.0")
        other.subscribe("/topic/a")
        client.write(octets)
        told: object = [
            (
                {
                    name: value
                    for name, value in each.headers.items()
                    if name not in ("destination", "message-id")
                },
                each.body,
            )
            for each in messages(other)
        ]
        outcome.append("ERROR" if b"\nERROR\n" in b"\n" + client.octets[-200:] else told)
    return outcome[0], outcome[1]


def messages(client: MemoryClient) -> list[Any]:
    """Return the received MESSAGE frames, ignoring their content-length."""
    frames = []
    for piece in client.transport.take().split(b"\0")[:-1]:
        head, _, body = piece.lstrip(b"\n").partition(b"\n\n")
        command, *lines = head.decode().split("\n")
        headers = dict(line.split(":", 1) for line in lines)
        if command == "MESSAGE":
            frames.append(Seen(headers, body))
    return frames


class Seen:
    """A MESSAGE frame that a strict decoder would refuse."""

    def __init__(self, headers: dict[str, str], body: bytes) -> None:
        """Parse it."""
        self.headers = headers
        self.body = body


# Sessions.


def test_q1_connected_has_only_a_session_that_counts_up() -> None:
    broker = morbidq()
    found = []
    for version in ("1.0", "1.2"):
        client = broker.connect()
        client.send("CONNECT", {"accept-version": version, "host": "x", "heart-beat": "1,1"})
        found.append(client.connected)
    assert found == [{"session": "1"}, {"session": "2"}]
    assert morbidq("Q1").client("1.0").connected.keys() == {"session", "version", "heart-beat"}


@pytest.mark.parametrize("command", ["NACK", "STOMP", "send", "FOO"])
def test_q2_unknown_commands_are_skipped(command: str) -> None:
    def say(client: MemoryClient) -> None:
        client.write(f"{command}\ndestination:/queue/a\n\nx\0".encode())
        client.write(b"SUBSCRIBE\ndestination:/topic/a\n\n\0SEND\ndestination:/topic/a\n\n\0")

    assert talk("Q2", say) == (["MESSAGE"], ["ERROR", "MESSAGE"])


def test_q2_what_came_with_an_unknown_command_is_lost() -> None:
    def say(client: MemoryClient) -> None:
        client.write(b"SUBSCRIBE\ndestination:/topic/a\n\n\0")
        client.write(b"FOO\n\n\0SEND\ndestination:/topic/a\n\nx\0")
        client.write(b"SEND\ndestination:/topic/a\n\ny\0")

    assert talk("Q2", say) == (["MESSAGE"], ["ERROR", "MESSAGE", "MESSAGE"])


@pytest.mark.parametrize(
    "command",
    ["ACK", "BEGIN", "COMMIT", "ABORT", "MESSAGE", "CONNECTED", "RECEIPT", "ERROR", "CONNECT"],
)
def test_q3_commands_that_it_stumbles_over_close_the_connection(command: str) -> None:
    def say(client: MemoryClient) -> None:
        client.write(f"{command}\ntransaction:t\n\n\0".encode())
        client.write(b"SUBSCRIBE\ndestination:/topic/a\n\n\0SEND\ndestination:/topic/a\n\n\0")

    assert talk("Q3", say) == (["end"], ["ERROR", "MESSAGE"])


@pytest.mark.parametrize("command", ["SEND", "SUBSCRIBE", "DISCONNECT", "ACK"])
def test_q3_any_other_first_frame_than_connect_closes(command: str) -> None:
    client, other = morbidq().connect(), morbidq("Q3").connect()
    for each in (client, other):
        each.write(f"{command}\ndestination:/queue/a\n\n\0".encode())
        each.write(b"CONNECT\n\n\0")
    assert (heard(client), heard(other)) == (["end"], ["ERROR", "CONNECTED"])


def test_a_connection_that_is_closed_has_no_subscriptions() -> None:
    broker = morbidq()
    client, other = broker.client("1.0"), broker.client("1.0")
    client.subscribe("/queue/a")
    client.write(b"ACK\nmessage-id:x\n\n\0")
    other.publish("/queue/a", b"x")
    other.subscribe("/queue/a")
    assert other.bodies() == [b"x"]


def test_q4_receipts_are_passed_on_and_not_answered() -> None:
    def say(client: MemoryClient) -> None:
        client.subscribe("/topic/a", receipt="1")
        client.publish("/topic/a", b"x", receipt="2")
        client.send("UNSUBSCRIBE", destination="/topic/a", receipt="3")
        client.send("DISCONNECT", receipt="4")

    with_it, without = talk("Q4", say)
    assert with_it == ["MESSAGE", "end"]
    assert without == ["RECEIPT", "MESSAGE", "RECEIPT", "RECEIPT", "RECEIPT", "end"]
    on, off = got("Q4", b"SEND\ndestination:/topic/a\nreceipt:r\n\nx\0")
    assert (on, off) == ([({"receipt": "r"}, b"x")], [({}, b"x")])


def test_q5_ack_modes_and_selectors_mean_nothing() -> None:
    def say(client: MemoryClient) -> None:
        client.subscribe("/queue/a", ack="client", selector="a = 'b'")
        client.publish("/queue/a", b"1")
        client.publish("/queue/a", b"2", transaction="t")

    assert talk("Q5", say) == (["MESSAGE", "MESSAGE"], ["ERROR"])


def test_q5_nothing_is_given_back() -> None:
    broker = morbidq()
    first, second = broker.client("1.0"), broker.client("1.0")
    first.subscribe("/queue/a", ack="client")
    first.publish("/queue/a", b"x")
    first.drop()
    second.subscribe("/queue/a")
    assert second.bodies() == []


def test_q6_message_ids_count_deliveries_of_a_destination() -> None:
    broker = morbidq()
    first, second = broker.client("1.0"), broker.client("1.0")
    for client in (first, second):
        client.subscribe("/topic/a", id="sub")
    for _ in range(2):
        first.publish("/topic/a", b"x", message_id="mine")
    ids = [
        [each.headers["message-id"] for each in client.take("MESSAGE")]
        for client in (first, second)
    ]
    assert ids == [["/topic/a_1", "/topic/a_3"], ["/topic/a_2", "/topic/a_4"]]


def test_q6_messages_have_neither_subscription_nor_a_length_of_their_own() -> None:
    on, off = got("Q6", b"SEND\ndestination:/topic/a\n\nxyz\0")
    assert on == [({}, b"xyz")]
    assert off == [({"content-length": "3", "subscription": "0"}, b"xyz")]


# Destinations.


def test_q7_a_queue_serves_its_subscribers_in_turn() -> None:
    broker = morbidq()
    sender, first, second = (broker.client("1.0") for _ in range(3))
    for client in (first, second, first):
        client.subscribe("/queue/a")
    for number in range(6):
        sender.publish("/queue/a", b"%d" % number)
    assert (first.bodies(), second.bodies()) == ([b"0", b"2", b"4"], [b"1", b"3", b"5"])


def test_q7_the_backlog_of_a_queue_goes_to_its_first_subscriber() -> None:
    broker = morbidq()
    sender, first, second = (broker.client("1.0") for _ in range(3))
    for number in range(3):
        sender.publish("/queue/a", b"%d" % number)
    for client in (first, second):
        client.subscribe("/queue/a")
    assert (first.bodies(), second.bodies()) == ([b"0", b"1", b"2"], [])


def test_q7_any_other_name_is_a_topic() -> None:
    def say(client: MemoryClient) -> None:
        client.publish("anything", b"lost")
        client.subscribe("anything")
        client.publish("anything", b"x")

    assert talk("Q7", say) == (["MESSAGE"], ["ERROR", "ERROR", "ERROR"])


def test_q7_pubsub_copies_to_the_children_of_the_fan_out_destination_of_that_name() -> None:
    fanout = DestinationConfig(name="/fanout/news", children=("/queue/a", "/queue/b"))
    broker = morbidq(config=BrokerConfig(destinations=(fanout,)))
    client = broker.client("1.0")
    client.subscribe("/pubsub/news")
    for name in ("/queue/a", "/queue/b"):
        client.subscribe(name)
    client.publish("/pubsub/news", b"x")
    assert [each.headers["destination"] for each in client.take()[1:]] == ["/queue/a", "/queue/b"]


def test_an_unsubscribed_client_gets_nothing_more() -> None:
    client = morbidq().client("1.0")
    client.subscribe("/topic/a")
    client.send("UNSUBSCRIBE", destination="/topic/a")
    client.send("UNSUBSCRIBE", destination="/topic/b")
    client.publish("/topic/a", b"x")
    assert client.bodies() == []


# Bytes.


def test_q8_frames_end_with_a_line_feed() -> None:
    assert morbidq().client("1.0").octets == b"CONNECTED\nsession:1\n\n\0\n"
    assert morbidq("Q8").client("1.0").octets == b"CONNECTED\nsession:1\n\n\0"


@pytest.mark.parametrize(
    ("lines", "body", "seen"),
    [
        (b"destination:/topic/a\ncontent-length:5\n", b"a\0b\0c", b"a"),
        (b"destination:/topic/a\n", b"a\0b", b"a"),
    ],
)
def test_q9_a_body_is_cut_at_its_first_nul(lines: bytes, body: bytes, seen: bytes) -> None:
    on, _ = got("Q9", b"SEND\n" + lines + b"\n" + body + b"\0")
    [(_, first)] = cast("list[tuple[object, bytes]]", on)
    assert first == seen


def test_q9_a_body_with_nuls_gets_line_feeds_where_its_length_is_not_the_last_header() -> None:
    octets = b"SEND\ncontent-length:5\ndestination:/topic/a\n\na\0b\0c\0"
    bodies = []
    for broker in (morbidq(), morbidq("Q9")):
        client, other = broker.client("1.0"), broker.client("1.0")
        other.subscribe("/topic/a")
        client.write(octets)
        bodies.append(other.transport.take().partition(b"\n\n")[2])
    assert bodies == [b"a\0\nb\0\0\n", b"a\0b\0c\0\n"]


def test_q9_a_length_of_many_digits_is_waited_for() -> None:
    for quirks in ((), ("Q9",)):
        client = morbidq(*quirks).client("1.0")
        client.write(b"SEND\ncontent-length:%b\ndestination:/topic/a\n\nx\0" % (b"9" * 5_000))
        assert client.transport.take() == b""
        assert not client.transport.lost


def test_q9_a_length_that_is_too_small_cuts_the_body_and_too_large_eats_the_next_frame() -> None:
    head = b"SEND\ncontent-length:%d\ndestination:/topic/a\n\nhello\0"
    broker = morbidq()
    client, other = broker.client("1.0"), broker.client("1.0")
    other.subscribe("/topic/a")
    client.write(head % 2)
    client.write(head % 8)
    client.write(b"SEND\ndestination:/topic/a\n\nx\0")
    client.write(b"SEND\ndestination:/topic/a\n\ny\0")
    found = other.transport.take()
    assert b"\n\nhe\0\n" in found
    assert b"\n\nhello\0\nS\0\n" in found
    assert b"\n\nx\0" not in found
    assert b"\n\ny\0" in found


def test_q10_values_are_trimmed_and_the_last_of_a_name_counts() -> None:
    on, off = got("Q10", b"SEND\ndestination:/topic/a\na:  b \nc:1\nc:2\nd:x\\ny\n\nx\0")
    assert on == [({"a": "b", "c": "2", "d": "x\\ny"}, b"x")]
    assert off == [({"a": "  b ", "c": "1", "d": "x\\ny"}, b"x")]


def test_q10_a_line_without_a_colon_names_itself() -> None:
    on, off = got("Q10", b"SEND\ndestination:/topic/a\nbadhdr\n\nx\0")
    assert (on, off) == ([({"badhd": "badhdr"}, b"x")], "ERROR")


def test_q10_a_head_with_cr_lf_is_skipped() -> None:
    on, off = got("Q10", b"SEND\r\ndestination:/topic/a\r\n\r\nx\0")
    assert (on, off) == ([], [({}, b"x")])


@pytest.mark.parametrize("without", [(), ("Q9",), ("Q10",), ("Q2",)])
def test_frames_arrive_whatever_pieces_they_come_in(without: tuple[str, ...]) -> None:
    octets = (
        b"SEND\ncontent-length:3\ndestination:/topic/a\n\na\nb\0\n"
        b"SEND\ndestination:/topic/a\n\nx\0SEND\ndestination:/topic/a\n\ny\0"
    )
    for size in (1, 7, len(octets)):
        client = morbidq(*without).client("1.0")
        client.subscribe("/topic/a")
        for start in range(0, len(octets), size):
            client.write(octets[start : start + size])
        assert client.bodies() == [b"a\nb", b"x", b"y"]


# Errors and rights.


@pytest.mark.parametrize("command", ["SEND", "SUBSCRIBE"])
def test_q11_a_frame_without_destination_is_ignored(command: str) -> None:
    assert talk("Q11", lambda client: client.write(f"{command}\n\n\0".encode())) == ([], ["ERROR"])


class Rights:
    """Allows some actions, for every user and destination."""

    def __init__(self, *allowed: Action) -> None:
        """Store the allowed actions."""
        self._allowed = allowed
        self.asked: list[tuple[str, Action, str]] = []

    def authorise(self, request: Request, answer: Callable[[Decision], None]) -> None:
        """Answer at once."""
        self.asked.append((request.user.name, request.action, request.destination))
        answer(Decision(allowed=request.action in self._allowed))


class Logins:
    """Knows the user Alice and her passcode."""

    def authenticate(self, credentials: Credentials, answer: Callable[[User | None], None]) -> None:
        """Answer at once."""
        is_alice = (credentials.login, credentials.passcode) == ("alice", "secret")
        answer(User("alice") if is_alice else None)


def errors(client: MemoryClient) -> list[tuple[str, bytes]]:
    """Return the received errors."""
    return [(each.headers["message"], each.body) for each in client.take("ERROR")]


def test_q11_what_is_not_allowed_leaves_the_connection_open() -> None:
    for without, is_open in (((), True), (("Q11",), False)):
        client = morbidq(*without, authoriser=Rights(Action.CREATE)).client("1.0")
        client.publish("/queue/a", b"x")
        assert errors(client) == [("WRITE error", b"Not authorized to write to queue")]
        assert client.eof is not is_open


def test_q11_a_wrong_login_closes_the_connection() -> None:
    for without, is_open in (((), False), (("Q11",), True)):
        client = morbidq(*without, authenticator=Logins()).connect()
        client.send("CONNECT", login="alice", passcode="guess")
        assert errors(client) == [("Invalid ID or password", b"Invalid ID or password")]
        assert client.eof is not is_open


def test_q12_logins_are_checked() -> None:
    client = morbidq(authenticator=Logins()).connect()
    client.send("CONNECT", login="alice", passcode="secret")
    assert heard(client) == ["CONNECTED"]
    anybody = morbidq("Q12", authenticator=Logins()).connect()
    anybody.send("CONNECT")
    assert heard(anybody) == ["CONNECTED"]


def test_q12_the_first_use_of_a_destination_needs_the_right_to_create_it() -> None:
    rights = Rights(Action.CREATE, Action.WRITE)
    broker = morbidq(authenticator=Logins(), authoriser=rights)
    client = broker.connect()
    client.send("CONNECT", login="alice", passcode="secret")
    client.publish("/queue/a", b"x")
    client.publish("/queue/a", b"x")
    client.subscribe("/queue/a")
    assert rights.asked == [
        ("alice", Action.CREATE, "/queue/a"),
        ("alice", Action.WRITE, "/queue/a"),
        ("alice", Action.WRITE, "/queue/a"),
        ("alice", Action.READ, "/queue/a"),
    ]
    assert errors(client) == [("READ error", b"Not authorized to read queue")]


def test_q12_without_the_right_to_create_nothing_comes_into_being() -> None:
    client = morbidq(authoriser=Rights(Action.WRITE)).client("1.0")
    client.publish("/queue/a", b"x")
    client.publish("/queue/a", b"x")
    assert errors(client) == [("CREATE error", b"Not authorized to create queue")] * 2
    anybody = morbidq("Q12", authoriser=Rights()).client("1.0")
    anybody.subscribe("/queue/a")
    anybody.publish("/queue/a", b"x")
    assert anybody.bodies() == [b"x"]


def test_an_authoriser_can_change_a_body() -> None:
    class Censor:
        def authorise(self, request: Request, answer: Callable[[Decision], None]) -> None:
            body = b"(censored)" if request.action is Action.WRITE else None
            answer(Decision(allowed=True, body=body))

    client = morbidq(authoriser=Censor()).client("1.0")
    client.subscribe("/topic/a")
    client.write(b"SEND\ndestination:/topic/a\n\nx\0")
    assert client.bodies() == [b"(censored)"]


# The process.


def test_a_reset_closes_all_clients_and_forgets_all_messages() -> None:
    clock = Clock()
    peer = IPv4Address("TCP", "127.0.0.1", 50_000)
    made = factory_for(parse_quirks("morbidq"), None, cast("IReactorTime", clock))

    def connected() -> MemoryClient:
        client = MemoryClient(made.buildProtocol(peer), MemoryTransport(clock, peer))
        client.send("CONNECT")
        return client

    first = connected()
    first.publish("/queue/a", b"x")
    done: list[object] = []
    made.reset(done.append)
    assert done == [None]
    assert first.eof
    second = connected()
    second.subscribe("/queue/a")
    assert second.bodies() == []
    made.disconnect_all("the broker is shutting down", "shutting-down")
    assert second.eof
