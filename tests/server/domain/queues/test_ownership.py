"""Durable subscriptions belong to a user, and no user can use up all of them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from stompkit.frames import Tolerance
from stompkit.server import BrokerConfig
from stompkit.server.interfaces import Action, Credentials, Decision, Request, SetRecord, User
from stompkit.server.stores.memory import MemoryStore
from stompkit.testing.memory import MemoryBroker, MemoryClient
from tests.server.brokers import end, refusal, take_one
from tests.server.domain.queues.test_durable_rights import Named
from tests.server.failing import FailingStore

NAMED = {"activemq.subscriptionName": "n"}
SHARED = {"durable": "true", "auto-delete": "false"}


def login(broker: MemoryBroker, user: str) -> MemoryClient:
    """Return a client of a user; all clients have the same client-id."""
    return broker.client(login=user, client_id="c")


def subscribe(client: MemoryClient, topic: str = "/topic/t", **more: str) -> None:
    """Subscribe durably; all users choose the same name."""
    client.subscribe(topic, id="s", ack="client-individual", **(more or NAMED))


def collected(store: MemoryStore | None = None) -> MemoryBroker:
    """Return a broker with a durable subscription of ann, which has a message."""
    broker = MemoryBroker(authenticator=Named(), store=store)
    ann = login(broker, "ann")
    subscribe(ann)
    ann.close()
    broker.client(login="ann").publish("/topic/t", b"for ann")
    return broker


# Access.


@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize("way", ["receive", "other topic", "selector", "remove"])
@pytest.mark.parametrize("user", ["bob", ""])
def test_nobody_else_can_use_it(user: str, way: str, *, stored: bool) -> None:
    broker = collected(MemoryStore() if stored else None)
    bob = login(broker, user)
    if way == "remove":
        bob.send("UNSUBSCRIBE", {"id": "s", **NAMED})
    elif way == "selector":
        subscribe(bob, selector="a = 1", **NAMED)
    else:
        subscribe(bob, "/topic/t" if way == "receive" else "/topic/u")
    assert refusal(bob) == "not-authorised"
    assert bob.bodies() == []
    ann = login(broker, "ann")
    subscribe(ann)
    assert ann.bodies() == [b"for ann"]


def test_one_that_several_can_share_is_shared_by_one_user() -> None:
    broker = MemoryBroker(authenticator=Named())
    first, second = login(broker, "ann"), login(broker, "ann")
    bob = login(broker, "bob")
    for client in (first, second, bob):
        subscribe(client, **SHARED)
    assert [refusal(each) for each in (first, second, bob)] == [None, None, "not-authorised"]


def test_its_name_is_free_once_it_is_removed() -> None:
    broker = collected()
    ann = login(broker, "ann")
    ann.send("UNSUBSCRIBE", {"id": "s", **NAMED}, receipt="r")
    assert ann.take("RECEIPT")
    bob = login(broker, "bob")
    subscribe(bob)
    assert refusal(bob) is None
    assert bob.bodies() == []


def test_a_broker_that_is_started_again_knows_whose_it_is() -> None:
    store = MemoryStore()
    before = collected(store)
    before.broker.close()
    broker = MemoryBroker(authenticator=Named(), store=store, clock=before.clock)
    bob, ann = login(broker, "bob"), login(broker, "ann")
    subscribe(bob)
    subscribe(ann)
    assert refusal(bob) == "not-authorised"
    assert ann.bodies() == [b"for ann"]


def test_where_nobody_logs_in_it_is_everybodys_until_somebody_does() -> None:
    store = MemoryStore()
    broker = MemoryBroker(store=store)
    client = login(broker, "whoever")
    subscribe(client)
    client.close()
    broker.broker.close()
    broker = MemoryBroker(authenticator=Named(), store=store, clock=broker.clock)
    first = login(broker, "bob")
    subscribe(first)
    first.close()
    broker.broker.close()
    broker = MemoryBroker(authenticator=Named(), store=store, clock=broker.clock)
    ann, bob = login(broker, "ann"), login(broker, "bob")
    subscribe(ann)
    subscribe(bob)
    assert [refusal(ann), refusal(bob)] == ["not-authorised", None]


def test_a_record_of_an_older_version_has_no_owner_yet() -> None:
    store = MemoryStore()
    collected(store).broker.close()
    store.open()
    [(key, value)] = store.records().items()
    older = value.replace(b', "owner": "ann"', b"")
    assert older != value
    store.apply([SetRecord(key, older)])
    store.close()
    broker = MemoryBroker(authenticator=Named(), store=store)
    bob = login(broker, "bob")
    subscribe(bob)
    assert bob.bodies() == [b"for ann"]
    ann = login(broker, "ann")
    subscribe(ann)
    assert refusal(ann) == "not-authorised"


def test_an_operator_hands_it_over() -> None:
    broker = collected()
    host = broker.broker.hosts[""]
    queue = host.durable_named("/durable/c/n")
    assert queue is not None
    host.hand_over(queue, "bob")
    ann, bob = login(broker, "ann"), login(broker, "bob")
    subscribe(ann)
    subscribe(bob)
    assert refusal(ann) == "not-authorised"
    assert bob.bodies() == [b"for ann"]
    host.hand_over(queue, None)
    bob.close()
    ann = login(broker, "ann")
    subscribe(ann)
    assert refusal(ann) is None


class Late:
    """An authoriser that allows everything, but answers only on request."""

    def __init__(self) -> None:
        """Start without requests."""
        self.waiting: list[Callable[[], None]] = []

    def authorise(self, request: Request, answer: Callable[[Decision], None]) -> None:
        """Keep the request."""
        if request.action is Action.READ:
            self.waiting.append(lambda: answer(Decision(allowed=True)))
        else:
            answer(Decision(allowed=True))

    def go_on(self) -> None:
        """Answer all pending requests."""
        while self.waiting:
            self.waiting.pop(0)()


@pytest.mark.parametrize("way", ["subscribe", "remove"])
def test_it_can_become_anothers_while_rights_are_looked_up(way: str) -> None:
    rights = Late()
    broker = MemoryBroker(authenticator=Named(), authoriser=rights)
    ann = login(broker, "ann")
    subscribe(ann)
    rights.go_on()
    ann.close()
    host = broker.broker.hosts[""]
    queue = host.durable_named("/durable/c/n")
    assert queue is not None
    ann = login(broker, "ann")
    if way == "subscribe":
        subscribe(ann)
    else:
        ann.send("UNSUBSCRIBE", {"id": "s", **NAMED})
    host.hand_over(queue, "bob")
    rights.go_on()
    assert refusal(ann) == "not-authorised"
    assert host.durable_named("/durable/c/n") is queue


def test_it_can_be_removed_while_rights_are_looked_up() -> None:
    rights = Late()
    broker = MemoryBroker(authenticator=Named(), authoriser=rights)
    ann = login(broker, "ann")
    subscribe(ann)
    rights.go_on()
    ann.close()
    first, second = login(broker, "ann"), login(broker, "ann")
    for client in (first, second):
        client.send("UNSUBSCRIBE", {"id": "s", **NAMED})
    rights.go_on()
    assert [refusal(first), refusal(second)] == [None, "unknown-subscription"]


@pytest.mark.parametrize("user", ["ann", "a\udc80"])
def test_names_that_are_no_text_are_kept_as_they_are(user: str) -> None:
    config = BrokerConfig(tolerance=Tolerance.LENIENT)
    store = MemoryStore()
    broker = MemoryBroker(config, authenticator=Named(), store=store)

    def connect() -> MemoryClient:
        client = broker.connect()
        line = f"CONNECT\naccept-version:1.2\nhost:m\nlogin:{user}\nclient-id:c\n\n\0"
        client.write(line.encode("utf-8", "surrogateescape"))
        return client

    client = connect()
    name = b"n\xff"
    frame = b"SUBSCRIBE\nid:s\nack:client\ndestination:/topic/t\nactivemq.subscriptionName:" + name
    client.write(frame + b"\n\n\0")
    assert client.error is None
    client.publish("/topic/t", b"x")
    broker.broker.close()
    broker = MemoryBroker(config, authenticator=Named(), store=store, clock=broker.clock)
    client = connect()
    client.write(frame + b"\n\n\0")
    assert client.bodies() == [b"x"]


# Limits.


def bury_all(broker: MemoryBroker, user: str, count: int) -> str | None:
    """Make a user reject a message in *count* durable subscriptions; return the error, if any."""
    for number in range(count):
        client = login(broker, user)
        name = {"activemq.subscriptionName": str(number)}
        client.subscribe("/topic/t", ack="client-individual", **name)
        if refusal(client) is not None:
            return refusal(client)
        broker.client(login="writer").publish("/topic/t", b"x")
        client.nack(client.take("MESSAGE")[0], requeue="false")
        client.close()
    return None


def test_dead_letters_of_one_reader_leave_room_for_others() -> None:
    broker = MemoryBroker(BrokerConfig(max_destinations=20), authenticator=Named())
    assert bury_all(broker, "reader", 19) is None
    letters = [each for each in broker.destinations if each.startswith("/dlq/")]
    assert 0 < len(letters) < 10
    for number in range(9):
        client = broker.client(login=f"user {number}")
        client.publish(f"/queue/{number}", b"x")
        assert refusal(client) is None


def test_no_message_is_lost_where_there_is_no_room_for_its_dead_letter() -> None:
    broker = MemoryBroker(BrokerConfig(max_destinations=4), authenticator=Named())
    bury_all(broker, "reader", 3)
    bodies = []
    for number in range(3):
        client = login(broker, "reader")
        client.subscribe("/topic/t", **{"activemq.subscriptionName": str(number)})
        bodies += client.bodies()
    for name in [each for each in broker.destinations if each.startswith("/dlq/")]:
        client = broker.client()
        client.subscribe(name)
        bodies += client.bodies()
    assert bodies == [b"x"] * 6


def test_durable_subscriptions_of_one_user_are_counted() -> None:
    config = BrokerConfig(max_durable_subscriptions=6, max_durable_subscriptions_per_user=2)
    broker = MemoryBroker(config, authenticator=Named())
    assert bury_all(broker, "ann", 3) == "too-many-subscriptions"
    assert bury_all(broker, "ann", 2) is None
    bob = broker.client(login="bob", client_id="bob")
    subscribe(bob)
    assert refusal(bob) is None


@pytest.mark.parametrize("prefix", ["/queue/", "/topic/", "/temp-queue/", "/temp-topic/", "/dlq/"])
def test_destinations_of_one_user_are_counted(prefix: str) -> None:
    broker = MemoryBroker(BrokerConfig(max_destinations=10), authenticator=Named())
    clients = [broker.client(login="ann") for _ in range(3)]
    for number in range(5):
        clients[number % 2].subscribe(f"{prefix}{number}", id=str(number))
    assert [refusal(each) for each in clients] == [None, None, None]
    clients[2].subscribe(f"{prefix}x")
    assert refusal(clients[2]) == "too-many-destinations"
    bob = broker.client(login="bob")
    bob.subscribe(f"{prefix}y")
    assert refusal(bob) is None
    clients[0].close()
    again = broker.client(login="ann")
    again.subscribe(f"{prefix}x")
    assert refusal(again) is None


def test_who_has_no_name_has_no_limit_of_its_own() -> None:
    broker = MemoryBroker(BrokerConfig(max_destinations=10))
    client = broker.client()
    for number in range(10):
        client.publish(f"/queue/{number}", b"x")
    assert refusal(client) is None


def test_a_broker_that_is_started_again_counts_what_there_is() -> None:
    store = MemoryStore()
    config = BrokerConfig(max_destinations=10)
    broker = MemoryBroker(config, authenticator=Named(), store=store)
    client = broker.client(login="ann")
    for number in range(5):
        client.publish(f"/queue/{number}", b"x")
    broker.broker.close()
    broker = MemoryBroker(config, authenticator=Named(), store=store, clock=broker.clock)
    ann, bob = broker.client(login="ann"), broker.client(login="bob")
    ann.publish("/queue/x", b"x")
    bob.publish("/queue/y", b"x")
    assert [refusal(ann), refusal(bob)] == ["too-many-destinations", None]
    reader = broker.client(login="bob")
    for number in range(5):
        reader.subscribe(f"/queue/{number}", id=str(number))
    reader.subscribe("/queue/y", id="y")
    assert len(reader.bodies()) == 6
    reader.close()
    bob.close()
    assert broker.destinations == {}
    assert store.records() == {}


def test_what_the_store_has_is_there_however_much_it_is() -> None:
    store = MemoryStore()
    broker = MemoryBroker(store=store)
    client = broker.client(client_id="c")
    subscribe(client)
    for number in range(10):
        client.publish(f"/queue/{number}", b"x")
    broker.broker.close()
    broker = MemoryBroker(BrokerConfig(max_destinations=5), store=store, clock=broker.clock)
    assert len(broker.destinations) == 11


def test_a_store_that_cannot_keep_it_leaves_an_owner_as_he_was() -> None:
    store = FailingStore()
    broker = MemoryBroker(authenticator=Named(), store=store)
    store.fails = lambda _: True
    ann = login(broker, "ann")
    subscribe(ann, receipt="r", **NAMED)
    assert refusal(ann) == "store-full"
    store.fails = lambda _: False
    bob = login(broker, "bob")
    subscribe(bob)
    assert refusal(bob) is None
    broker.client(login="bob").publish("/topic/t", b"x")
    assert take_one(bob).body == b"x"


# Connections.


def connected(broker: MemoryBroker, user: str, passcode: str = "") -> MemoryClient:
    """Return a client of a user, if the login succeeds."""
    client = broker.connect()
    names = {"accept-version": "1.2", "host": "memory"}
    client.send("CONNECT", {**names, "login": user, "passcode": passcode})
    return client


def test_connections_of_one_user_are_counted() -> None:
    broker = MemoryBroker(BrokerConfig(max_connections_per_user=2), authenticator=Named())
    first, second, third = (connected(broker, "ann") for _ in range(3))
    others = [connected(broker, "bob"), *(connected(broker, "") for _ in range(3))]
    assert [refusal(each) for each in (first, second, third)] == [
        None,
        None,
        "too-many-connections",
    ]
    assert third.eof
    assert [refusal(each) for each in others] == [None] * 4


@pytest.mark.parametrize("way", ["disconnect", "close", "drop", "error", "reset"])
def test_a_connection_that_ends_makes_room_for_another_of_its_user(way: str) -> None:
    broker = MemoryBroker(BrokerConfig(max_connections_per_user=1), authenticator=Named())
    first, refused = connected(broker, "ann"), connected(broker, "ann")
    assert refusal(refused) == "too-many-connections"
    refused.close()
    if way == "reset":
        broker.broker.reset()
    else:
        end(first, way)
    assert refusal(connected(broker, "ann")) is None
    assert refusal(connected(broker, "ann")) == "too-many-connections"


def test_who_is_not_let_in_is_not_counted_as_the_user() -> None:
    broker = MemoryBroker(BrokerConfig(max_connections_per_user=1), authenticator=Wrong())
    for _ in range(3):
        assert refusal(connected(broker, "ann", "wrong")) == "not-authenticated"
    assert refusal(connected(broker, "ann", "right")) is None


class Wrong(Named):
    """An authenticator that accepts the right passcode only."""

    def authenticate(self, credentials: Credentials, answer: Callable[[User | None], None]) -> None:
        """Decide immediately."""
        answer(User(credentials.login or "") if credentials.passcode == "right" else None)
