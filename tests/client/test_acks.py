"""Acknowledgements: on every version, once, and on the right connection."""

from __future__ import annotations

import pytest
from twisted.internet.defer import CancelledError

from stompkit.client import AckMode, BrokerError, Client, Message, Subscription
from stompkit.frames import VERSIONS, LocalProtocolError, Version
from tests.client.network import Network, ScriptedEndpoint, failed, online, result, waits

QUEUE = "/queue/a"
NAMES = {
    "1.0": {"message-id": "m1"},
    "1.1": {"message-id": "m1", "subscription": "1"},
    "1.2": {"id": "a1"},
}


def received(
    net: Network,
    version: Version = "1.2",
    ack: AckMode = "client-individual",
    count: int = 1,
) -> tuple[Client, ScriptedEndpoint, Subscription, list[Message]]:
    """Return a client that has received messages 1 to ``count``."""
    endpoint = net.scripted(version)
    client = net.connected(endpoint)
    subscribed = client.subscribe(QUEUE, ack=ack)
    net.run()
    [frame] = endpoint.peer.take("SUBSCRIBE")
    endpoint.peer.confirm(frame)
    subscription = net.wait(subscribed)
    for number in range(1, count + 1):
        endpoint.peer.message(frame, b"%d" % number, number)
    net.run()
    messages = [result(subscription.get()) for _ in range(count)]
    endpoint.peer.take()
    return client, endpoint, subscription, messages


@pytest.mark.parametrize("version", VERSIONS)
def test_an_ack_names_the_message_as_its_version_wants(net: Network, version: Version) -> None:
    _, endpoint, _, [message] = received(net, version)
    assert not message.is_settled
    assert result(message.ack()) is True
    net.run()
    [ack] = endpoint.peer.take()
    assert ack.command == "ACK"
    assert ack.headers == NAMES[version]
    assert message.is_settled


@pytest.mark.parametrize("version", ["1.1", "1.2"])
def test_a_nack_names_the_message_and_may_say_more(net: Network, version: Version) -> None:
    _, endpoint, _, [message] = received(net, version)
    assert result(message.nack(headers={"requeue": "false"})) is True
    net.run()
    [nack] = endpoint.peer.take()
    assert nack.command == "NACK"
    assert nack.headers == {**NAMES[version], "requeue": "false"}


def test_1_0_has_no_nack_and_the_message_can_still_be_acknowledged(net: Network) -> None:
    _, endpoint, _, [message] = received(net, "1.0")
    failed(message.nack(), LocalProtocolError)
    assert not message.is_settled
    assert result(message.ack()) is True
    net.run()
    assert [frame.command for frame in endpoint.peer.take()] == ["ACK"]


def test_a_message_that_the_broker_gave_no_name_can_not_be_acknowledged(net: Network) -> None:
    client, endpoint, subscription, _ = received(net, "1.2")
    headers = {"subscription": subscription.id, "destination": QUEUE, "message-id": "m"}
    endpoint.peer.send("MESSAGE", headers)
    message = net.wait(subscription.get())
    error = failed(message.ack(), LocalProtocolError)
    assert str(error).startswith("a message of STOMP 1.2 came without the header ack and cannot")
    assert not message.is_settled
    assert online(client)


def test_coilmq_gets_the_acknowledgements_that_it_understands(net: Network) -> None:
    """It treats client-individual as auto, and its messages of 1.2 have no header ack."""
    endpoint = net.scripted("1.2")
    endpoint.headers = {"server": "coilmq/1.1.0"}
    subscribed = net.connected(endpoint).subscribe(QUEUE, prefetch=10)
    net.run()
    [frame] = endpoint.peer.take("SUBSCRIBE")
    assert frame.headers["ack"] == "client"
    endpoint.peer.confirm(frame)
    subscription = net.wait(subscribed)
    headers = {"subscription": subscription.id, "destination": QUEUE, "message-id": "m"}
    for _ in range(2):
        endpoint.peer.send("MESSAGE", headers)
    first, second = (net.wait(subscription.get()) for _ in range(2))
    assert result(first.ack()) is True
    assert subscription.ack_all([first, second]) == 1
    net.run()
    names = {"id": subscription.id, "message-id": "m"}
    assert [each.headers for each in endpoint.peer.take("ACK")] == [names, names]


def test_a_message_is_settled_once(net: Network) -> None:
    _, endpoint, _, [message] = received(net)
    assert result(message.ack()) is True
    assert result(message.ack()) is False
    assert result(message.nack()) is False
    net.run()
    assert len(endpoint.peer.take()) == 1


def test_in_the_mode_auto_there_is_nothing_to_settle(net: Network) -> None:
    _, endpoint, _, [message] = received(net, ack="auto")
    assert message.is_settled
    assert result(message.ack()) is False
    net.run()
    assert endpoint.peer.take() == []


def test_in_the_mode_client_an_ack_is_for_all_before_it_too(net: Network) -> None:
    _, endpoint, _, messages = received(net, ack="client", count=4)
    assert result(messages[2].ack()) is True
    assert [message.is_settled for message in messages] == [True, True, True, False]
    assert result(messages[0].ack()) is False
    assert result(messages[3].ack()) is True
    net.run()
    assert [frame.headers["id"] for frame in endpoint.peer.take()] == ["a3", "a4"]


def test_many_are_acknowledged_at_once(net: Network) -> None:
    _, endpoint, subscription, messages = received(net, count=4)
    assert result(messages[1].ack()) is True
    assert subscription.ack_all([*messages, messages[0]]) == 3
    assert all(message.is_settled for message in messages)
    assert subscription.ack_all(messages) == 0
    net.run()
    assert [frame.headers["id"] for frame in endpoint.peer.take("ACK")] == ["a2", "a1", "a3", "a4"]


def test_many_are_acknowledged_one_by_one_in_the_mode_client_too(net: Network) -> None:
    """With brokers of 1.0, an acknowledgement may be for one message only."""
    _, endpoint, subscription, messages = received(net, "1.0", ack="client", count=3)
    assert subscription.ack_all(messages) == 3
    net.run()
    ids = [frame.headers["message-id"] for frame in endpoint.peer.take("ACK")]
    assert ids == ["m1", "m2", "m3"]


def test_where_one_of_many_can_not_be_acknowledged_none_is(net: Network) -> None:
    client, endpoint, subscription, [message] = received(net)
    headers = {"subscription": subscription.id, "destination": QUEUE, "message-id": "m"}
    endpoint.peer.send("MESSAGE", headers)
    nameless = net.wait(subscription.get())
    with pytest.raises(LocalProtocolError, match="came without the header ack"):
        subscription.ack_all([message, nameless])
    assert not message.is_settled
    assert endpoint.peer.take() == []
    assert online(client)
    assert subscription.ack_all([message]) == 1


def test_what_a_lost_connection_has_brought_is_not_acknowledged(net: Network) -> None:
    _, endpoint, subscription, messages = received(net, count=2)
    endpoint.peer.drop()
    net.run()
    assert subscription.ack_all(messages) == 0


def test_in_the_mode_client_individual_an_ack_is_for_one(net: Network) -> None:
    _, endpoint, _, messages = received(net, count=2)
    assert result(messages[1].ack()) is True
    assert result(messages[0].ack()) is True
    net.run()
    assert len(endpoint.peer.take()) == 2


def test_an_ack_can_wait_for_its_receipt(net: Network) -> None:
    _, endpoint, _, [message] = received(net)
    settled = message.ack(receipt=True)
    net.run()
    assert waits(settled)
    endpoint.peer.confirm(endpoint.peer.take("ACK")[0])
    assert net.wait(settled) is True


def test_a_refused_ack_with_a_receipt_is_told(net: Network) -> None:
    _, endpoint, _, [message] = received(net)
    settled = message.ack(receipt=True)
    net.run()
    endpoint.peer.refuse(endpoint.peer.take("ACK")[0], "unknown")
    net.run()
    assert failed(settled, BrokerError).message == "unknown"


def test_an_ack_whose_receipt_does_not_come_has_not_succeeded(net: Network) -> None:
    _, endpoint, _, [message] = received(net)
    settled = message.ack(receipt=True)
    net.run()
    endpoint.peer.drop()
    assert result(settled) is False


def test_in_the_mode_client_an_ack_that_waits_for_its_receipt_is_for_all_before_it(
    net: Network,
) -> None:
    _, endpoint, subscription, [first, last] = received(net, ack="client", count=2)
    settled = last.ack(receipt=True)
    assert first.is_settled
    assert result(first.ack()) is False
    assert subscription.ack_all([first, last]) == 0
    net.run()
    [ack] = endpoint.peer.take()
    endpoint.peer.confirm(ack)
    assert net.wait(settled) is True


@pytest.mark.parametrize("ack", ["client", "client-individual"])
def test_who_waits_no_longer_for_the_receipt_of_an_ack_sends_no_second_one(
    net: Network, ack: AckMode
) -> None:
    """A broker can refuse the second, and end the connection."""
    _, endpoint, subscription, messages = received(net, ack=ack, count=2)
    first, message = messages
    settled = message.ack(receipt=True)
    settled.cancel()
    failed(settled, CancelledError)
    assert message.is_settled
    assert first.is_settled is (ack == "client")
    assert result(message.nack()) is False
    assert subscription.ack_all([message]) == 0
    net.run()
    [sent] = endpoint.peer.take()
    endpoint.peer.confirm(sent)
    net.run()
    assert sent.command == "ACK" and message.is_settled


@pytest.mark.parametrize("reconnected", [False, True])
def test_a_message_of_an_earlier_connection_is_not_settled(
    net: Network, *, reconnected: bool
) -> None:
    client, endpoint, _, [message] = received(net)
    endpoint.peer.drop()
    if reconnected:
        net.advance(0.1)
    assert online(client) == reconnected
    assert message.is_settled
    assert result(message.ack()) is False
    assert result(message.nack()) is False
    net.advance(0.1)
    commands = [frame.command for frame in endpoint.peer.take()]
    assert commands == ["CONNECT", "SUBSCRIBE"]


def test_a_message_is_settled_after_unsubscribe(net: Network) -> None:
    _, endpoint, subscription, [message] = received(net)
    subscription.unsubscribe()
    assert result(message.ack()) is True
    net.run()
    assert [frame.command for frame in endpoint.peer.take()] == ["UNSUBSCRIBE", "ACK"]


def test_a_message_is_not_settled_after_disconnect(net: Network) -> None:
    client, endpoint, _, [message] = received(net)
    client.disconnect()
    assert result(message.ack()) is False
    net.run()
    assert [frame.command for frame in endpoint.peer.take()] == ["DISCONNECT"]


def test_an_ack_does_not_wait_behind_messages(net: Network) -> None:
    client, endpoint, _, [message] = received(net)
    endpoint.peer.transport.stop_taking()
    client.send(QUEUE)
    assert result(message.ack()) is True
    endpoint.peer.transport.start_taking()
    net.run()
    assert [frame.command for frame in endpoint.peer.take()] == ["ACK", "SEND"]
