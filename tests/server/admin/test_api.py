"""The admin API of a running broker."""

from __future__ import annotations

import base64
import http.client
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from stompkit.testing import RunningBroker
from stompkit.testing.client import BrokerSaidError, StompClient
from stompkit.testing.launching.polling import wait_until
from tests.server.admin.asking import DEADLINE_S, Asker

Connect = Callable[..., StompClient]

QUEUE = "/queue/a"
OTHER = "/queue/b"


def fill(broker: RunningBroker, count: int, queue: str = QUEUE) -> None:
    """Put numbered messages into a queue; return when the broker has them."""
    with broker.client() as client:
        for number in range(count):
            client.send(queue, b"%d" % number, receipt=number == count - 1)


def bury(broker: RunningBroker, count: int) -> None:
    """Put messages into the dead-letter queue of the queue."""
    fill(broker, count)
    with broker.client() as client:
        client.subscribe(QUEUE, ack="client-individual")
        for message in client.receive_many(count):
            client.nack(message, headers={"requeue": "false"}, receipt=True)


# Queries.


def test_overview(broker: RunningBroker, connect: Connect, ask: Asker) -> None:
    fill(broker, 3)
    connect().subscribe(OTHER)
    ask.wait_for(OTHER, consumers=1)
    found = ask.get("overview")
    assert found["connections"] == found["subscriptions"] == 1
    assert found["store"]["kind"] == "lmdb" and found["store"]["octets"] > 0
    assert found["store"]["failure"] is None
    assert found["memory_octets"] > 1_000_000 and found["descriptors"] > 3
    assert found["uptime_s"] >= 0


def test_a_destination(broker: RunningBroker, connect: Connect, ask: Asker) -> None:
    fill(broker, 5)
    client = connect()
    client.subscribe(
        QUEUE, id="mine", ack="client", headers={"selector": "a IS NULL", "prefetch-count": "2"}
    )
    client.receive_many(2)
    ask.wait_for(QUEUE, ready=3, in_flight=2, consumers=1)
    found = ask.get("destination", name=QUEUE)
    assert found["totals"] == {"in": 5, "out": 2, "dropped": 0, "dead_lettered": 0, "expired": 0}
    assert found["policy"]["max_deliveries"] == 6
    [subscription] = found["subscriptions"]
    [connection] = ask.get("connections")["connections"]
    assert subscription == {
        "connection": connection["id"],
        "id": "mine",
        "host": "",
        "destination": QUEUE,
        "ack": "client",
        "prefetch": 2,
        "in_flight": 2,
        "selector": "a IS NULL",
    }
    assert connection["state"] == "connected" and connection["in_flight"] == 2
    assert ask.get("subscriptions", destination=QUEUE)["subscriptions"] == [subscription]


def test_sorted_and_in_pages(broker: RunningBroker, ask: Asker) -> None:
    for count, name in enumerate("cab", 1):
        fill(broker, count, f"/queue/{name}")
    found = ask.get("destinations", sort="ready", order="desc", limit=2)
    assert found["total"] == 3
    assert [each["name"] for each in found["destinations"]] == ["/queue/b", "/queue/a"]
    found = ask.get("destinations", offset=2)
    assert [each["name"] for each in found["destinations"]] == ["/queue/c"]
    assert ask.get("destinations", kind="topic")["total"] == 0


def test_bodies_of_all_sorts(broker: RunningBroker, connect: Connect, ask: Asker) -> None:
    client = connect()
    client.send(QUEUE, "ä".encode() * 10, headers={"colour": "r:e\nd"}, receipt=True)
    client.send(QUEUE, b"\xff\0", receipt=True)
    text, octets = ask.get("messages", name=QUEUE, max_body_octets=7)["messages"]
    assert (text["body"], text["is_truncated"], text["body_octets"]) == ("äää", True, 20)
    assert ["colour", "r:e\nd"] in text["headers"]
    assert octets["body"] is None
    assert base64.b64decode(octets["body_base64"]) == b"\xff\0"


def test_rates_and_history(broker: RunningBroker, connect: Connect, ask: Asker) -> None:
    client = connect()

    def has_rate() -> bool:
        client.send(QUEUE, b"x")
        found = ask.get("destination", name=QUEUE)
        return bool(found["rates"] and found["rates"]["in"] > 0 and found["history"]["in"])

    client.send(QUEUE, b"x", receipt=True)
    assert wait_until(has_rate, DEADLINE_S)
    history = ask.get("history")
    assert history["interval_s"] == 1
    assert any(each["received"] > 0 for each in history["rates"])


# Changes.


def test_purge(broker: RunningBroker, ask: Asker) -> None:
    fill(broker, 2_500)
    assert ask.post("purge", name=QUEUE).json == {"purged": 2_500}
    assert ask.destination(QUEUE) is None


def test_move_and_restart(broker: RunningBroker, ask: Asker) -> None:
    fill(broker, 2_500)
    assert ask.post("move", from_=QUEUE, to=OTHER, limit=2_400).json["moved"] == 2_400
    broker.restart(kill=True)
    again = Asker(broker.admin_url)
    again.wait_for(OTHER, ready=2_400)
    again.wait_for(QUEUE, ready=100)
    assert again.bodies(QUEUE) == [str(number) for number in range(2_400, 2_500)]


def test_some_are_moved_and_some_deleted(broker: RunningBroker, ask: Asker) -> None:
    fill(broker, 5)
    ids = [each["id"] for each in ask.get("messages", name=QUEUE)["messages"]]
    assert ask.post("move", from_=QUEUE, to=OTHER, ids=ids[1:3]).json["moved"] == 2
    assert ask.post("delete-messages", name=QUEUE, ids=[ids[0], "none"]).json == {"deleted": 1}
    assert (ask.bodies(QUEUE), ask.bodies(OTHER)) == (["3", "4"], ["1", "2"])


def test_retry(broker: RunningBroker, connect: Connect, ask: Asker) -> None:
    bury(broker, 3)
    ask.wait_for("/dlq/a", ready=3)
    assert ask.post("retry", name="/dlq/a", limit=2).json == {"retried": 2, "left": 0}
    client = connect()
    client.subscribe(QUEUE)
    assert len(client.receive_many(2)) == 2
    ask.wait_for("/dlq/a", ready=1)


def test_pause(broker: RunningBroker, connect: Connect, ask: Asker) -> None:
    client = connect()
    client.subscribe(QUEUE)
    ask.wait_for(QUEUE, consumers=1)
    assert ask.post("pause", name=QUEUE).json == {"is_paused": True}
    fill(broker, 1)
    ask.wait_for(QUEUE, ready=1, is_paused=True)
    assert ask.post("resume", name=QUEUE).json == {"is_paused": False}
    assert client.receive().body == b"0"


def test_names_are_logged_without_anything_that_a_terminal_obeys(
    broker: RunningBroker, ask: Asker
) -> None:
    name = "/queue/\x1b[2J\x9b31m\u202e\nforged <img onerror=x>"
    fill(broker, 1, name)
    for action in ("pause", "resume", "delete"):
        assert ask.post(action, name=name).status == 200
    assert broker.directory is not None
    log = (broker.directory / "broker.log").read_text(encoding="utf-8")
    assert log.count(ascii(name)) == 3
    assert log.replace("\n", "").isprintable() and "\nforged" not in log


def test_delete(broker: RunningBroker, connect: Connect, ask: Asker) -> None:
    fill(broker, 3)
    client = connect()
    client.subscribe(QUEUE)
    client.receive_many(3)
    assert ask.post("delete", name=QUEUE).code == "in-use"
    client.disconnect()
    fill(broker, 3)
    ask.wait_for(QUEUE, consumers=0)
    assert ask.post("delete", name=QUEUE).json == {"deleted": True}
    assert ask.destination(QUEUE) is None


def test_durable_subscriptions(broker: RunningBroker, connect: Connect, ask: Asker) -> None:
    client = connect(client_id="me")
    words = {"activemq.subscriptionName": "news"}
    client.subscribe("/topic/t", headers=words, receipt=True)
    name = "/durable/me/news"
    assert ask.get("durables")["durables"] == [
        {
            "host": "",
            "name": name,
            "destination": "/topic/t",
            "client_id": "me",
            "selector": None,
            "owner": None,
            "ready": 0,
            "is_connected": True,
        }
    ]
    assert ask.post("durables/delete", name=name).code == "in-use"
    assert ask.post("durables/hand-over", name=name, user="ann").code == "in-use"
    client.disconnect()
    ask.wait_for(name, consumers=0)
    assert ask.post("durables/delete", name=name).json == {"deleted": True}
    assert ask.get("durables") == {"durables": []}


def test_close(broker: RunningBroker, connect: Connect, ask: Asker) -> None:
    client = connect()
    [connection] = ask.get("connections")["connections"]
    assert ask.post("close", connection=connection["id"], reason="bye").json == {"closed": True}
    with pytest.raises(BrokerSaidError) as raised:
        client.receive()
    assert raised.value.frame is not None
    assert raised.value.frame.headers["message"] == "closed by an operator: bye"
    assert raised.value.frame.headers["stompkit-code"] == "closed-by-operator"


def test_the_reason_of_a_close_is_one_line(connect: Connect, ask: Asker) -> None:
    client = connect()
    [connection] = ask.get("connections")["connections"]
    ask.post("close", connection=connection["id"], reason="\0Störung\r\nin\tOslo\n")
    with pytest.raises(BrokerSaidError) as raised:
        client.receive()
    assert raised.value.frame.headers["message"] == "closed by an operator: Störung in Oslo"


def test_what_can_not_be_done(broker: RunningBroker, connect: Connect, ask: Asker) -> None:
    fill(broker, 1)
    client = connect()
    client.subscribe("/topic/t")
    ask.wait_for("/topic/t", consumers=1)
    refusals = {
        ask.post("purge", name="/queue/none").code: "no-such-destination",
        ask.post("purge", name=QUEUE, host="none").code: "no-such-host",
        ask.post("purge", name="/topic/t").code: "not-a-queue",
        ask.post("move", from_=QUEUE, to=QUEUE).code: "same-destination",
        ask.post("move", from_=QUEUE, to=OTHER, selector="=").code: "bad-selector",
        ask.post("retry", name=QUEUE).code: "not-dead-letters",
        ask.post("purge", name=QUEUE, all=True).code: "bad-body",
        ask.post("close", connection="none").code: "no-such-connection",
    }
    assert all(said == expected for said, expected in refusals.items()), refusals
    assert ask.post("move", from_=QUEUE, to="/topic/t").code == "not-a-queue"


@pytest.mark.parametrize(
    ("operation", "fields", "reason"),
    [
        ("move", {"name": QUEUE, "to": OTHER}, "there is no key 'name'"),
        ("move", {"to": OTHER}, "the key 'from' is missing"),
        ("purge", {"nam": QUEUE}, "there is no key 'nam'; did you mean name?"),
        ("purge", {"name": 7}, "name: must be a string, not a whole number"),
    ],
)
def test_a_wrong_body_is_answered_with_the_keys_that_there_are(
    operation: str, fields: dict[str, object], reason: str, ask: Asker
) -> None:
    message = ask.post(operation, **fields).json["error"]["message"]
    keys = {"move": "from, to, host, limit, ids, selector", "purge": "name, host"}[operation]
    assert message == f"the body is wrong: {reason}. It is a JSON object of: {keys}"


# Events.


@contextmanager
def events(ask: Asker, query: str = "") -> Iterator[Iterator[tuple[str, Any]]]:
    """Yield the events received, each with its name."""
    connection = http.client.HTTPConnection(ask.where, timeout=DEADLINE_S)
    connection.request("GET", f"/api/v1/events{query}")
    answer = connection.getresponse()
    assert answer.getheader("content-type", "").startswith("text/event-stream")

    def read() -> Iterator[tuple[str, Any]]:
        name = ""
        while line := answer.readline().decode():
            key, _, value = line.rstrip("\n").partition(": ")
            if key == "event":
                name = value
            elif key == "data":
                yield name, json.loads(value)

    try:
        yield read()
    finally:
        connection.close()


def test_events_of_destinations(broker: RunningBroker, ask: Asker) -> None:
    with events(ask) as stream:
        assert next(stream)[0] == "overview"
        fill(broker, 2)
        changed = (
            each
            for name, data in stream
            if name == "destinations"
            for each in data["changed"]
            if each["name"] == QUEUE
        )
        assert next(each for each in changed if each["ready"] == 2)
        ask.post("purge", name=QUEUE)
        assert next(data for name, data in stream if ["", QUEUE] in data.get("gone", []))


def test_frames_without_their_secrets(broker: RunningBroker, connect: Connect, ask: Asker) -> None:
    with events(ask, "?frames=1") as stream:
        next(stream)
        client = connect(passcode="hush")
        client.subscribe(QUEUE)
        client.send(QUEUE, b"body")
        client.receive()
        frames = (data for name, data in stream if name == "frame" and "command" in data)
        seen: list[Any] = []
        while not seen or seen[-1]["command"] != "MESSAGE":
            seen.append(next(frames))
    said = {each["command"]: each for each in seen}
    assert {"CONNECT", "SUBSCRIBE", "SEND"} <= said.keys()
    assert said["MESSAGE"]["direction"] == ">" and said["SEND"]["direction"] == "<"
    assert said["MESSAGE"]["body_octets"] == said["SEND"]["body_octets"] == 4
    assert "hush" not in json.dumps(seen)
