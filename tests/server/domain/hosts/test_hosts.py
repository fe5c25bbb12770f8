"""Virtual hosts: isolated sets of destinations."""

from __future__ import annotations

import pytest

from stompkit.server import BrokerConfig, DestinationConfig
from stompkit.server.stores.memory import MemoryStore
from stompkit.testing.memory import MemoryBroker
from tests.server.brokers import MakeBroker, publish_all, refusal, take_one
from tests.server.many_queues import numbered

HOSTS = ("one", "two")


def test_the_same_name_on_two_hosts_is_two_destinations(broker_with: MakeBroker) -> None:
    broker = broker_with(hosts=HOSTS)
    clients = [broker.client(host=host) for host in HOSTS]
    for client in clients:
        client.subscribe("/queue/a", id="q")
        client.subscribe("/topic/a", id="t")
        client.subscribe("/topic/*", id="p")
    clients[0].publish("/queue/a", b"queue")
    clients[0].publish("/topic/a", b"topic")
    assert sorted(clients[0].bodies()) == [b"queue", b"topic", b"topic"]
    assert clients[1].bodies() == []


def test_an_unknown_host_is_refused(broker_with: MakeBroker) -> None:
    client = broker_with(hosts=HOSTS).connect()
    client.send("CONNECT", {"accept-version": "1.2", "host": "three"})
    assert refusal(client) == "unknown-host"
    assert client.eof


@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
def test_without_hosts_any_name_will_do_and_all_share_one_set(version: str) -> None:
    broker = MemoryBroker()
    one, two = broker.client(version, host="one"), broker.client(host="two")
    one.subscribe("/queue/a")
    two.publish("/queue/a", b"x")
    assert one.bodies() == [b"x"]


@pytest.mark.parametrize("connect", [b"accept-version:1.1\n", b""])
def test_who_names_none_is_on_the_first(connect: bytes) -> None:
    broker = MemoryBroker(BrokerConfig(hosts=HOSTS))
    client, first, second = broker.connect(), broker.client(host="one"), broker.client(host="two")
    client.write(b"CONNECT\n%b\n\0" % connect)
    client.publish("/queue/a", b"x")
    for each, expected in ((second, []), (first, [b"x"])):
        each.subscribe("/queue/a")
        assert each.bodies() == expected


def test_settings_go_for_the_destinations_of_all(broker_with: MakeBroker) -> None:
    tables = (
        DestinationConfig(name="/queue/a", max_queue_messages=1),
        DestinationConfig(name="/fanout/f", children=("/queue/b", "/queue/c")),
    )
    broker = broker_with(hosts=HOSTS, destinations=tables)
    for host in HOSTS:
        client = broker.client(host=host)
        client.publish("/fanout/f", b"x")
        client.subscribe("/queue/c")
        assert client.bodies() == [b"x"]
        client.publish("/queue/a", b"1")
        client.publish("/queue/a", b"2")
        assert refusal(client) == "queue-full"


def test_dead_letters_stay_on_their_host(broker_with: MakeBroker) -> None:
    broker = broker_with(hosts=HOSTS)
    clients = [broker.client(host=host) for host in HOSTS]
    for client in clients:
        client.subscribe("/queue/a", id="q", ack="client")
        client.subscribe("/dlq/a", id="d")
    clients[1].publish("/queue/a", b"x")
    clients[1].nack(take_one(clients[1]), requeue="false")
    assert clients[1].bodies() == [b"x"]
    assert clients[0].bodies() == []


def test_temporary_destinations_can_not_be_reached_from_another(broker_with: MakeBroker) -> None:
    broker = broker_with(hosts=HOSTS)
    owner, neighbour, stranger = (broker.client(host=host) for host in ("one", "one", "two"))
    owner.subscribe("/temp-queue/mine")
    neighbour.subscribe("/queue/service")
    owner.publish("/queue/service", b"x", reply_to="/temp-queue/mine")
    name = take_one(neighbour).headers["reply-to"]
    stranger.publish(name, b"from afar", receipt="r")
    assert stranger.take("RECEIPT")
    neighbour.publish(name, b"from here")
    assert owner.bodies() == [b"from here"]


def test_durable_subscriptions_of_the_same_name_are_different_ones(broker_with: MakeBroker) -> None:
    broker = broker_with(hosts=HOSTS)
    for host in HOSTS:
        client = broker.client(host=host)
        client.subscribe("/topic/a", id="d", durable="true")
        client.close()
    broker.client(host="one").publish("/topic/a", b"x")
    for host, expected in (("two", []), ("one", [b"x"])):
        client = broker.client(host=host)
        client.subscribe("/topic/a", id="d", durable="true")
        assert client.bodies() == expected


def test_destinations_are_counted_for_each(broker_with: MakeBroker) -> None:
    broker = broker_with(hosts=HOSTS, max_destinations=1)
    for host in HOSTS:
        client = broker.client(host=host)
        client.publish("/queue/a", b"x")
        assert refusal(client) is None
        client.publish("/queue/b", b"x")
        assert refusal(client) == "too-many-destinations"


def test_they_survive_the_broker_each_for_itself() -> None:
    store = MemoryStore()
    config = BrokerConfig(hosts=HOSTS)
    broker = MemoryBroker(config, store=store)
    for host in HOSTS:
        client = broker.client(host=host)
        publish_all(client, "/queue/a", [host.encode()])
        client.subscribe("/topic/a", id="d", durable="true")
        client.close()
    broker.broker.close()
    broker = MemoryBroker(config, store=store, clock=broker.clock)
    for host in HOSTS:
        client = broker.client(host=host)
        client.subscribe("/queue/a", id="q")
        client.publish("/topic/a", b"topic of " + host.encode())
        client.subscribe("/topic/a", id="d", durable="true")
        assert client.bodies() == [host.encode(), b"topic of " + host.encode()]


def test_what_belongs_to_a_host_that_is_gone_waits_until_it_is_back() -> None:
    store = MemoryStore()
    broker = MemoryBroker(BrokerConfig(hosts=HOSTS), store=store)
    publish_all(broker.client(host="two"), "/queue/a", numbered(1, 3))
    broker.broker.close()
    broker = MemoryBroker(BrokerConfig(hosts=("one",)), store=store, clock=broker.clock)
    publish_all(broker.client(host="one"), "/queue/b", numbered(4, 5))
    broker.broker.close()
    broker = MemoryBroker(BrokerConfig(hosts=HOSTS), store=store, clock=broker.clock)
    client = broker.client(host="two")
    client.subscribe("/queue/*")
    assert client.bodies() == numbered(1, 3)
