"""Permission to create a destination by using it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from stompkit.server import BrokerConfig, DestinationConfig
from stompkit.server.interfaces import Credentials, User
from stompkit.testing.memory import MemoryBroker, MemoryClient
from tests.server.brokers import MakeBroker, refusal, stored, take_one

TABLES = (
    DestinationConfig(name="/queue/known"),
    DestinationConfig(name="/queue/open.>"),
    DestinationConfig(name="/topic/known"),
)
NAMES = ("/queue/new", "/topic/new", "/dlq/new", "/queue/open", "/queue/knownx")
KNOWN = ("/queue/known", "/queue/open.a", "/queue/open.a.b", "/topic/known", "/dlq/known")


class Logins:
    """An authenticator that accepts every login, also an empty one."""

    def authenticate(self, credentials: Credentials, answer: Callable[[User | None], None]) -> None:
        """Accept the login."""
        answer(User(credentials.login or ""))


def use(client: MemoryClient, command: str, name: str) -> str | None:
    """Use a destination; return the code of the error, if any."""
    client.send(command, {"destination": name, "id": "0", "receipt": "r"})
    assert (client.error is None) is bool(client.take("RECEIPT"))
    return refusal(client)


def broker_of(create: str) -> MemoryBroker:
    config = BrokerConfig(destinations=TABLES).changed(create=create)
    return MemoryBroker(config, authenticator=Logins())


commands = pytest.mark.parametrize("command", ["SEND", "SUBSCRIBE"])


@commands
@pytest.mark.parametrize("name", [*NAMES, *KNOWN])
def test_any_client_may_make_any_destination(command: str, name: str) -> None:
    assert use(broker_of("any").client(), command, name) is None


@commands
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("connect", "code"), [({}, "unknown-destination"), ({"login": "ann"}, None)]
)
def test_only_who_has_been_authenticated_may(
    command: str, name: str, connect: dict[str, str], code: str | None
) -> None:
    broker = broker_of("authenticated")
    assert use(broker.client(**connect), command, name) == code
    if code:
        assert broker.destinations == {}


@commands
@pytest.mark.parametrize("name", NAMES)
def test_nobody_may(command: str, name: str) -> None:
    broker = broker_of("config")
    assert use(broker.client(login="ann"), command, name) == "unknown-destination"
    assert broker.destinations == {}


@commands
@pytest.mark.parametrize("create", ["authenticated", "config"])
@pytest.mark.parametrize("name", KNOWN)
def test_what_the_configuration_speaks_of_is_there(create: str, command: str, name: str) -> None:
    broker = broker_of(create)
    assert use(broker.client(), command, name) is None


def test_what_somebody_has_made_can_be_used_by_all() -> None:
    broker = broker_of("authenticated")
    ann, nobody = broker.client(login="ann"), broker.client()
    ann.subscribe("/queue/new")
    nobody.publish("/queue/new", b"x")
    assert ann.bodies() == [b"x"]
    assert nobody.error is None


@pytest.mark.parametrize("create", ["authenticated", "config"])
def test_a_transaction_makes_nothing_that_its_sender_may_not_make(create: str) -> None:
    broker = broker_of(create)
    client = broker.client()
    client.send("BEGIN", transaction="t")
    client.publish("/queue/known", b"x", transaction="t")
    client.publish("/queue/new", b"x", transaction="t")
    client.send("COMMIT", transaction="t")
    assert refusal(client) == "unknown-destination"
    assert broker.destinations == {}


def test_dead_letters_are_made_whatever_is_set() -> None:
    table = DestinationConfig(name="/queue/open.*")
    broker = MemoryBroker(BrokerConfig(create="config", destinations=(table,)))
    client = broker.client()
    client.subscribe("/queue/open.a", ack="client")
    client.publish("/queue/open.a", b"x")
    client.nack(take_one(client), requeue="false")
    assert stored(broker, "/dlq/open.a") == [b"x"]


def test_a_pattern_makes_nothing_and_meets_what_there_is() -> None:
    broker = broker_of("config")
    client = broker.client()
    client.subscribe("/queue/>")
    client.publish("/queue/known", b"x")
    assert client.bodies() == [b"x"]


def test_what_there_may_be_can_change(broker_with: MakeBroker) -> None:
    broker = broker_with(create="config")
    assert use(broker.client(), "SEND", "/queue/known") == "unknown-destination"
    broker.broker.reload(broker.broker.config.changed(destinations=TABLES))
    assert use(broker.client(), "SEND", "/queue/known") is None
    broker.broker.reload(broker.broker.config.changed(destinations=()))
    assert stored(broker, "/queue/known") == [b""]
