"""Quirk mode in memory: each rule by itself, and complete profiles."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from socket import getfqdn
from typing import cast

import pytest
from docutils import nodes
from docutils.core import publish_doctree
from twisted.internet.address import IPv4Address
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import Clock

from stompkit.frames import COMMANDS
from stompkit.server import Credentials, Decision, Request, User
from stompkit.testing.memory import MemoryBroker, MemoryClient, MemoryTransport
from stompkit.testing.server.quirks import PROFILES, RULES, Quirks, factory_for, parse_quirks
from tests.server.failing import FailingStore, HeldRunner
from tests.testing.server.quirks import (
    of_activemq,
    of_artemis,
    of_coilmq,
    of_rabbitmq,
    of_several,
    of_spring,
)
from tests.testing.server.quirks.talks import TALKS, Talk, broker_with, heard

#: The modules whose dialogues are run; importing them registers the dialogues.
MODULES = (of_several, of_activemq, of_artemis, of_coilmq, of_rabbitmq, of_spring)
MANUAL = Path(__file__).parents[3] / "docs/reference/quirks.rst"
PEER = IPv4Address("TCP", "127.0.0.1", 50_000)


class SlowAuthoriser:
    """An authoriser that decides when the test requests it."""

    def __init__(self) -> None:
        """Start without requests."""
        self.waiting: list[Callable[[Decision], None]] = []

    def authorise(self, request: Request, answer: Callable[[Decision], None]) -> None:
        """Record the request."""
        self.waiting.append(answer)


class OnlyAlice:
    """Accepts users who log in as Alice."""

    def authenticate(self, credentials: Credentials, answer: Callable[[User | None], None]) -> None:
        """Answer at once."""
        answer(User("alice") if credentials.login == "alice" else None)


def profile(name: str) -> MemoryBroker:
    """Return a broker that emulates another one."""
    return broker_with(*parse_quirks(name))


@pytest.mark.parametrize(
    "talk", [pytest.param(talk, id=f"{talk.rule}-{talk.say.__name__}") for talk in TALKS]
)
def test_a_rule_does_what_it_says_and_nothing_without_it(talk: Talk) -> None:
    assert talk.say(broker_with(talk.rule, *talk.given)) == talk.on
    assert talk.say(broker_with(*talk.given)) == talk.off
    assert talk.on != talk.off


def test_every_rule_is_shown() -> None:
    shown = {talk.rule for talk in TALKS}
    assert set(RULES) - shown == set(PROFILES["morbidq"])
    assert shown <= set(RULES)


# Names.


def test_a_list_has_profiles_and_rules() -> None:
    assert set(parse_quirks("rabbitmq")) == set(PROFILES["rabbitmq"])
    assert set(parse_quirks(" Artemis , crlf-anywhere ")) == {*PROFILES["artemis"], "crlf-anywhere"}
    assert set(parse_quirks("q4, Q8")) == {"Q4", "Q8"}


def test_a_rule_is_taken_away_by_a_minus_sign() -> None:
    assert set(PROFILES["rabbitmq"]) - set(parse_quirks("rabbitmq,-receipt-order")) == {
        "receipt-order"
    }
    assert "nack-is-ack" in parse_quirks("rabbitmq,-nack-requeues,nack-is-ack")


def test_a_former_rule_is_the_opposite_of_the_present_one() -> None:
    assert "frames-end-with-nul" in parse_quirks("rabbitmq,-frames-end-with-eol")
    assert "frames-end-with-nul" not in parse_quirks("coilmq,frames-end-with-eol")
    assert "frames-end-with-nul" not in parse_quirks("rabbitmq,frames-end-with-eol")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("rabitmq", "did you mean rabbitmq?"),
        ("receipts-order", "did you mean receipt-order?"),
        ("", "neither a broker nor a rule"),
        ("rabbitmq,", "neither a broker nor a rule"),
        ("rabbitmq,-nack-is-ack", "there is no nack-is-ack before it"),
        ("-receipt-order,rabbitmq", "there is no receipt-order before it"),
        ("rabbitmq,-activemq", "only rules can be taken away"),
        ("rabbitmq,activemq", "exclude each other"),
        ("nack-is-ack,nack-requeues", "nack-is-ack and nack-requeues exclude each other"),
        ("morbidq,nack-is-ack", "cannot be had together with others: nack-is-ack"),
    ],
)
def test_a_mistake_in_a_list_is_told(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        parse_quirks(text)


def test_the_words_for_an_unknown_name_list_all_names() -> None:
    with pytest.raises(ValueError, match="neither") as caught:
        parse_quirks("nonsense")
    assert all(name in str(caught.value) for name in [*PROFILES, *RULES])


@pytest.mark.parametrize("name", PROFILES)
def test_a_profile_has_rules_that_go_together(name: str) -> None:
    assert len(parse_quirks(name)) == len(PROFILES[name]) == len(set(PROFILES[name]))


def test_rules_have_a_sentence_and_a_source() -> None:
    for name, rule in RULES.items():
        assert rule.id == name
        assert rule.sentence.endswith("."), name
        assert rule.source, name


def test_a_set_of_rules_shows_what_is_in_it() -> None:
    assert repr(Quirks(["b", "a"])) == "Quirks(a, b)"


# Complete profiles.


@pytest.mark.parametrize("name", [each for each in PROFILES if each != "morbidq"])
@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
def test_plain_traffic_passes_through_every_profile(name: str, version: str) -> None:
    broker = profile(name)
    host = {"rabbitmq": "/", "coilmq": getfqdn()}.get(name, "memory")
    client = broker.connect()
    client.send("CONNECT", {"accept-version": version, "host": host})
    assert client.version == version
    client.subscribe("/queue/a", id="1", ack="auto")
    client.publish("/queue/a", b"x", foo="bar")
    [message] = client.take("MESSAGE")
    assert (message.body, message.headers["foo"]) == (b"x", "bar")
    assert message.headers["subscription"] == "1"
    assert "delivery-count" not in message.headers


@pytest.mark.parametrize("name", ["activemq", "artemis", "rabbitmq"])
@pytest.mark.parametrize("version", ["1.1", "1.2"])
def test_acks_by_the_ids_that_a_profile_gives_out(name: str, version: str) -> None:
    broker = profile(name)
    client = broker.connect()
    client.send("CONNECT", {"accept-version": version, "host": "/"})
    client.subscribe("/queue/a", ack="client-individual")
    for body in (b"1", b"2", b"3"):
        client.publish("/queue/a", body)
    first, second, third = client.take("MESSAGE")
    client.ack(second, receipt="r")
    client.send("BEGIN", transaction="t")
    client.ack(third, transaction="t", receipt="s")
    client.send("COMMIT", transaction="t")
    assert [each.headers["receipt-id"] for each in client.take("RECEIPT")] == ["r", "s"]
    client.close()
    other = broker.connect()
    other.send("CONNECT", {"accept-version": version, "host": "/"})
    other.subscribe("/queue/a")
    assert other.bodies() == [first.body]


def test_a_cumulative_ack_leaves_what_came_later() -> None:
    broker = broker_with("ack-across-subscriptions")
    client = broker.client()
    client.subscribe("/queue/a", ack="client")
    for body in (b"1", b"2", b"3"):
        client.publish("/queue/a", body)
    _, second, third = client.take("MESSAGE")
    client.ack(second)
    client.nack(third)
    [again] = client.take("MESSAGE")
    client.close()
    other = broker.client()
    other.subscribe("/queue/a")
    assert (again.body, other.bodies()) == (b"3", [b"3"])


def test_messages_of_a_window_in_the_mode_auto_are_gone_when_they_have_been_sent() -> None:
    broker = broker_with("prefetch-in-bytes")
    client = broker.client()
    client.publish("/queue/a", b"1")
    client.publish("/queue/a", b"2")
    client.subscribe("/queue/a", **{"activemq.prefetchSize": "1"})
    [message] = client.take("MESSAGE")
    assert "ack" not in message.headers
    broker.clock.advance(0)
    client.close()
    other = broker.client()
    other.subscribe("/queue/a")
    assert (message.body, other.bodies()) == (b"1", [b"2"])


def test_a_late_receipt_of_a_client_that_has_gone_is_dropped() -> None:
    broker = broker_with("receipt-order")
    client = broker.client()
    client.publish("/topic/a", receipt="r")
    client.close()
    broker.clock.advance(1)
    assert client.take("RECEIPT") == []


def test_late_receipts_wait_for_the_store() -> None:
    runner = HeldRunner()
    make = partial(factory_for, Quirks(["receipt-order"]))
    broker = MemoryBroker(make=make, store=FailingStore(), runner=runner)
    client = broker.client()
    client.take()
    runner.is_held = True
    client.publish("/queue/a", b"x", receipt="r")
    broker.clock.advance(0)
    assert client.take("RECEIPT") == []
    runner.go_on()
    broker.clock.advance(0)
    assert len(client.take("RECEIPT")) == 1


def test_what_comes_behind_disconnect_does_not_keep_its_receipt_from_coming() -> None:
    runner = HeldRunner()
    make = partial(factory_for, Quirks(["error-stays-open"]))
    broker = MemoryBroker(make=make, store=FailingStore(), runner=runner)
    client = broker.client()
    client.take()
    runner.is_held = True
    client.publish("/queue/a", b"x", receipt="1")
    client.send("DISCONNECT", receipt="2")
    client.write(b"BEGIN\ntransaction:t\nreceipt:3\n\n\0")
    runner.go_on()
    assert [each.headers["receipt-id"] for each in client.take("RECEIPT")] == ["1", "2"]
    assert client.eof


@pytest.mark.parametrize("name", [each for each in PROFILES if each != "morbidq"])
@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
def test_no_frame_without_headers_breaks_a_profile(name: str, version: str) -> None:
    """An exception would cut the connection silently, as no profile does."""
    host = {"rabbitmq": "/", "coilmq": getfqdn()}.get(name, "memory")
    for rule in (None, *PROFILES[name]):
        broker = profile(name if rule is None else f"{name},-{rule}")
        for command in COMMANDS:
            client = broker.connect()
            client.send("CONNECT", {"accept-version": version, "host": host})
            client.write(f"{command}\n\n\0".encode())
            assert not client.lost


def test_rules_hold_for_a_frame_that_has_to_wait_for_the_authoriser() -> None:
    authoriser = SlowAuthoriser()
    make = partial(factory_for, parse_quirks("activemq"))
    broker = MemoryBroker(make=make, authoriser=authoriser)
    client = broker.client()
    client.take()
    client.send(
        "SUBSCRIBE",
        {"destination": "a", "id": "0", "ack": "client", "activemq.prefetchSize": "1"},
    )
    for _ in range(3):
        client.publish("a", b"x")
    while authoriser.waiting:
        authoriser.waiting.pop(0)(Decision(allowed=True))
        client.write(b"")
    [message] = client.take("MESSAGE")
    assert message.headers["destination"] == "/queue/a"


def test_a_refused_login_can_be_tried_again_where_the_rules_say_so() -> None:
    make = partial(factory_for, parse_quirks("rabbitmq"))
    broker = MemoryBroker(make=make, authenticator=OnlyAlice())
    client = broker.connect()
    for login in ("bob", "alice"):
        client.send("CONNECT", {"accept-version": "1.2", "host": "/", "login": login})
    assert heard(client) == ["ERROR", "CONNECTED"]


def test_reset_forgets_how_queues_were_made() -> None:
    clock = Clock()
    made = factory_for(Quirks(["queue-properties"]), None, cast("IReactorTime", clock))

    def told(**headers: str) -> str | None:
        client = MemoryClient(made.buildProtocol(PEER), MemoryTransport(clock, PEER))
        client.send("CONNECT", {"accept-version": "1.2", "host": "/"})
        client.send("SEND", {"destination": "/queue/a"} | headers)
        return None if client.error is None else client.error.headers["message"]

    assert told() is None
    assert told(exclusive="true") == "resource_locked"
    made.reset()
    assert told(exclusive="true") is None


def test_no_rule_leaves_a_strict_broker() -> None:
    """The codes of errors are omitted; otherwise they are unchanged."""
    client, strict = broker_with().client(), MemoryBroker().client()
    for each in (client, strict):
        each.send("SUBSCRIBE", destination="/queue/a", receipt="r", id="1", ack="never")
    assert client.error is not None
    assert strict.error is not None
    own = strict.error.headers
    assert client.error.headers == {key: own[key] for key in own if key != "stompkit-code"}
    assert client.eof


# The manual.


def test_the_manual_has_every_rule_and_profile() -> None:
    text = MANUAL.read_text(encoding="utf-8")
    tables = publish_doctree(text, settings_overrides={"report_level": 3}).findall(nodes.table)
    found: dict[str, tuple[str, str, set[str]]] = {}
    for table in tables:
        header, *rows = table.findall(nodes.row)
        for row in rows if header.astext().startswith("Rule") else ():
            name, sentence, source, profiles = (
                " ".join(cell.astext().split()) for cell in row.findall(nodes.entry)
            )
            found[name] = sentence, source, set(profiles.split(", "))
    assert found == {
        name: (
            rule.sentence,
            rule.source,
            {profile for profile, rules in PROFILES.items() if name in rules},
        )
        for name, rule in RULES.items()
    }
