"""Durable subscriptions: knowing the name of one gives no access to it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from stompkit.server.interfaces import Action, Credentials, Decision, Request, User
from stompkit.testing.memory import MemoryBroker, MemoryClient
from tests.server.brokers import refusal


def subscribe(client: MemoryClient, topic: str, **more: str) -> None:
    """Subscribe durably, by a name that all clients share."""
    client.subscribe(topic, id="s", durable="true", **more)


def unsubscribe(client: MemoryClient) -> None:
    """Remove the durable subscription."""
    client.send("UNSUBSCRIBE", id="s", durable="true")


class Named:
    """An authenticator that accepts every login."""

    def authenticate(self, credentials: Credentials, answer: Callable[[User | None], None]) -> None:
        """Accept the login."""
        answer(User(credentials.login or ""))


class OnlyOwn:
    """An authoriser: users may read topics that begin with their names; it can answer late."""

    def __init__(self) -> None:
        """Answer immediately at first."""
        self.is_late = False
        self.waiting: list[Callable[[], None]] = []

    def authorise(self, request: Request, answer: Callable[[Decision], None]) -> None:
        """Answer now or later."""
        own = request.destination.startswith(f"/topic/{request.user.name}")
        decision = Decision(own or request.action is not Action.READ)
        if self.is_late:
            self.waiting.append(lambda: answer(decision))
        else:
            answer(decision)

    def go_on(self) -> None:
        """Answer all pending requests."""
        while self.waiting:
            self.waiting.pop(0)()


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("topic", ["/topic/ann", "/topic/ann.>"])
@pytest.mark.parametrize("way", ["unsubscribe", "replace"])
def test_only_who_may_read_its_topic_can_remove_it(way: str, topic: str, *, late: bool) -> None:
    rights = OnlyOwn()
    broker = MemoryBroker(authenticator=Named(), authoriser=rights)
    ann, bob = broker.client(login="ann"), broker.client(login="bob")
    subscribe(ann, topic)
    ann.close()
    ann = broker.client(login="ann")
    ann.publish("/topic/ann.a" if "." in topic else topic, b"kept")
    rights.is_late = late
    if way == "unsubscribe":
        unsubscribe(bob)
    else:
        subscribe(bob, "/topic/bob")
    rights.go_on()
    assert refusal(bob) == "not-authorised"
    subscribe(ann, topic)
    rights.go_on()
    assert ann.bodies() == [b"kept"]
    unsubscribe(ann)
    rights.go_on()
    assert broker.destinations == {}


@pytest.mark.parametrize("late", [False, True])
def test_who_may_read_both_topics_can_put_one_in_place_of_the_other(*, late: bool) -> None:
    rights = OnlyOwn()
    broker = MemoryBroker(authenticator=Named(), authoriser=rights)
    client = broker.client(login="ann")
    subscribe(client, "/topic/ann.1")
    client.close()
    client = broker.client(login="ann")
    rights.is_late = late
    subscribe(client, "/topic/ann.2", receipt="r")
    rights.go_on()
    assert client.take("RECEIPT")
    rights.is_late = False
    client.publish("/topic/ann.1", b"1")
    client.publish("/topic/ann.2", b"2")
    assert client.bodies() == [b"2"]
