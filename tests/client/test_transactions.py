"""Transactions: all or nothing, and never on a second connection."""

from __future__ import annotations

import pytest
from twisted.internet.defer import CancelledError, Deferred

from stompkit.client import (
    AckMode,
    BrokerError,
    BufferFullError,
    BufferLimits,
    Client,
    ClientClosedError,
    Message,
    StaleAcknowledgementError,
    Transaction,
    TransactionLostError,
)
from stompkit.frames import Frame, LocalProtocolError
from tests.client.network import Network, ScriptedEndpoint, failed, result, waits

QUEUE = "/queue/a"


def begun(net: Network, client: Client) -> Transaction:
    """Return a transaction that has begun."""
    transaction = client.transaction()
    net.wait(transaction.begin())
    return transaction


def received(net: Network, client: Client, endpoint: ScriptedEndpoint, ack: AckMode) -> Message:
    """Return a message that waits for its acknowledgement."""
    subscribed = client.subscribe(QUEUE, ack=ack)
    net.run()
    [frame] = endpoint.peer.take("SUBSCRIBE")
    endpoint.peer.confirm(frame)
    endpoint.peer.message(frame)
    message = net.wait(net.wait(subscribed).get())
    endpoint.peer.take()
    return message


def commands(frames: list[Frame]) -> list[str]:
    return [frame.command for frame in frames]


def test_a_transaction_is_committed_when_its_block_ends(net: Network) -> None:
    async def work() -> None:
        async with client.transaction() as transaction:
            transaction.send(QUEUE, b"1", {"x": "y"})
            transaction.ack(message)
            await client.send(QUEUE, b"2", transaction=transaction)

    endpoint = net.scripted()
    client = net.connected(endpoint)
    message = received(net, client, endpoint, "client-individual")
    working = Deferred.fromCoroutine(work())
    net.run()
    assert waits(working)
    frames = endpoint.peer.take()
    assert commands(frames) == ["BEGIN", "SEND", "ACK", "SEND", "COMMIT"]
    [name] = {frame.headers["transaction"] for frame in frames}
    assert name
    assert frames[1].headers == {
        "destination": QUEUE,
        "transaction": name,
        "x": "y",
        "content-length": "1",
    }
    assert frames[2].headers == {"transaction": name, "id": "a1"}
    endpoint.peer.confirm(frames[-1])
    net.wait(working)
    assert message.is_settled


def test_a_transaction_is_aborted_when_its_block_raises(net: Network) -> None:
    async def work() -> None:
        async with client.transaction() as transaction:
            transaction.send(QUEUE)
            transaction.nack(message)
            assert message.is_settled
            raise RuntimeError("on second thoughts")

    endpoint = net.scripted()
    client = net.connected(endpoint)
    message = received(net, client, endpoint, "client-individual")
    working = Deferred.fromCoroutine(work())
    net.run()
    failed(working, RuntimeError)
    assert commands(endpoint.peer.take()) == ["BEGIN", "SEND", "NACK", "ABORT"]
    assert not message.is_settled
    assert result(message.ack()) is True


def test_transactions_have_different_names(net: Network) -> None:
    client = net.connected(net.scripted())
    assert begun(net, client).name != begun(net, client).name


def test_a_transaction_waits_for_a_connection(net: Network) -> None:
    endpoint = net.scripted()
    client = net.client(endpoint)
    transaction = client.transaction()
    begin = transaction.begin()
    assert waits(begin)
    client.connect()
    net.wait(begin)
    endpoint.peer.drop()
    later = client.transaction()
    begin = later.begin()
    assert waits(begin)
    net.advance(0.1)
    result(begin)
    assert commands(endpoint.peer.take()) == ["CONNECT", "BEGIN"]


def test_a_transaction_begins_on_a_connection_that_is_still_there(net: Network) -> None:
    endpoint = net.scripted()
    client = net.client(endpoint)
    client.connect().addCallback(lambda _: endpoint.peer.drop())
    begin = client.transaction().begin()
    net.run()
    assert waits(begin)
    net.advance(0.1)
    result(begin)
    assert commands(endpoint.peer.take()) == ["CONNECT", "BEGIN"]


def test_a_closed_client_begins_no_transaction(net: Network) -> None:
    client = net.client(net.scripted())
    waiting = client.transaction().begin()
    result(client.disconnect())
    failed(waiting, ClientClosedError)
    failed(client.transaction().begin(), ClientClosedError)


def test_a_transaction_keeps_its_place_in_the_line(net: Network) -> None:
    endpoint = net.scripted()
    client = net.connected(endpoint)
    endpoint.peer.take()
    endpoint.peer.transport.stop_taking()
    client.send(QUEUE, b"before")
    transaction = client.transaction()
    result(transaction.begin())
    transaction.send(QUEUE, b"within")
    committed = transaction.commit()
    client.send(QUEUE, b"after")
    endpoint.peer.transport.start_taking()
    net.run()
    frames = endpoint.peer.take()
    assert commands(frames) == ["SEND", "BEGIN", "SEND", "COMMIT", "SEND"]
    assert [frame.body for frame in frames if frame.body] == [b"before", b"within", b"after"]
    endpoint.peer.confirm(frames[3])
    net.wait(committed)


def test_a_transaction_ends_once(net: Network) -> None:
    endpoint = net.scripted(obliging=True)
    client = net.connected(endpoint)
    transaction = begun(net, client)
    with pytest.raises(RuntimeError):
        transaction.begin()
    net.wait(transaction.commit())
    for use in (lambda: transaction.send(QUEUE), transaction.commit):
        with pytest.raises(RuntimeError, match="over"):
            use()
    result(transaction.abort())
    net.run()
    assert commands(endpoint.peer.take()) == ["CONNECT", "BEGIN", "COMMIT"]


def test_a_transaction_that_was_not_begun_can_not_be_used(net: Network) -> None:
    transaction = net.connected(net.scripted()).transaction()
    with pytest.raises(RuntimeError, match="not begun"):
        transaction.send(QUEUE)


# Lost connections.


def test_before_commit_a_lost_connection_has_aborted_the_transaction(net: Network) -> None:
    endpoint = net.scripted()
    client = net.connected(endpoint)
    transaction = begun(net, client)
    transaction.send(QUEUE)
    endpoint.peer.drop()
    net.advance(0.1)
    for use in (lambda: transaction.send(QUEUE), transaction.commit):
        with pytest.raises(TransactionLostError) as lost:
            use()
        assert not lost.value.outcome_unknown
        assert lost.value.reason is not None
    failed(client.send(QUEUE, transaction=transaction), TransactionLostError)
    result(transaction.abort())
    net.run()
    assert commands(endpoint.peer.take()) == ["CONNECT"]


def test_after_commit_nobody_knows(net: Network) -> None:
    endpoint = net.scripted()
    client = net.connected(endpoint)
    transaction = begun(net, client)
    committed = transaction.commit()
    net.run()
    endpoint.peer.drop()
    lost = failed(committed, TransactionLostError)
    assert lost.outcome_unknown
    assert lost.__cause__ is lost.reason is not None
    net.advance(0.1)
    assert commands(endpoint.peer.take()) == ["CONNECT"]


def test_a_commit_that_did_not_get_out_has_aborted_the_transaction(net: Network) -> None:
    endpoint = net.scripted()
    client = net.connected(endpoint)
    transaction = begun(net, client)
    endpoint.peer.transport.stop_taking()
    transaction.send(QUEUE)
    committed = transaction.commit()
    endpoint.peer.drop()
    assert not failed(committed, TransactionLostError).outcome_unknown


def test_a_block_whose_connection_is_lost_raises(net: Network) -> None:
    async def work() -> None:
        async with client.transaction() as transaction:
            transaction.send(QUEUE)
            await door

    door: Deferred[None] = Deferred()
    endpoint = net.scripted()
    client = net.connected(endpoint)
    working = Deferred.fromCoroutine(work())
    net.run()
    endpoint.peer.drop()
    net.advance(0.1)
    door.callback(None)
    failed(working, TransactionLostError)


def test_an_error_of_the_broker_is_why_a_transaction_was_lost(net: Network) -> None:
    endpoint = net.scripted()
    client = net.connected(endpoint)
    transaction = begun(net, client)
    transaction.send("/nowhere")
    net.run()
    endpoint.peer.refuse(message="no such queue")
    net.run()
    with pytest.raises(TransactionLostError) as lost:
        transaction.commit()
    assert isinstance(lost.value.reason, BrokerError)


def test_a_refused_commit_is_no_lost_transaction(net: Network) -> None:
    endpoint = net.scripted()
    client = net.connected(endpoint)
    committed = begun(net, client).commit()
    net.run()
    endpoint.peer.refuse(endpoint.peer.take("COMMIT")[0], "too large")
    net.run()
    assert failed(committed, BrokerError).message == "too large"


def test_disconnect_aborts_what_is_open_and_waits_for_what_is_being_committed(
    net: Network,
) -> None:
    endpoint = net.scripted(obliging=True)
    client = net.connected(endpoint)
    committing, open_one = begun(net, client), begun(net, client)
    endpoint.peer.take()
    committed, gone = committing.commit(), client.disconnect()
    with pytest.raises(TransactionLostError):
        open_one.send(QUEUE)
    result(open_one.abort())
    net.wait(gone)
    result(committed)
    assert commands(endpoint.peer.take()) == ["COMMIT", "DISCONNECT"]


# Acknowledgements.


def test_a_message_of_an_earlier_connection_has_no_place_in_a_transaction(net: Network) -> None:
    async def work() -> None:
        async with client.transaction() as transaction:
            transaction.send("/queue/b")
            transaction.ack(message)

    endpoint = net.scripted(obliging=True)
    client = net.connected(endpoint)
    message = received(net, client, endpoint, "client-individual")
    endpoint.peer.drop()
    net.advance(0.1)
    endpoint.peer.take()
    working = Deferred.fromCoroutine(work())
    net.run()
    failed(working, StaleAcknowledgementError)
    assert commands(endpoint.peer.take()) == ["BEGIN", "SEND", "ABORT"]


def test_what_is_settled_is_not_settled_again_by_a_transaction(net: Network) -> None:
    endpoint = net.scripted()
    client = net.connected(endpoint)
    message = received(net, client, endpoint, "client-individual")
    transaction = begun(net, client)
    transaction.ack(message)
    with pytest.raises(StaleAcknowledgementError):
        transaction.ack(message)
    assert result(message.ack()) is False


def test_a_committed_ack_in_the_mode_client_is_for_all_before_it(net: Network) -> None:
    endpoint = net.scripted(obliging=True)
    client = net.connected(endpoint)
    subscription = net.wait(client.subscribe(QUEUE, ack="client"))
    [frame] = endpoint.peer.take("SUBSCRIBE")
    for number in (1, 2):
        endpoint.peer.message(frame, b"", number)
    net.run()
    first, second = result(subscription.get()), result(subscription.get())
    transaction = begun(net, client)
    transaction.ack(second)
    assert not first.is_settled
    net.wait(transaction.commit())
    assert first.is_settled


# Frames that cannot be sent.


def test_a_transaction_is_bounded_by_the_buffer(net: Network) -> None:
    async def work() -> None:
        async with client.transaction() as transaction:
            for _ in range(3):
                transaction.send(QUEUE)

    endpoint = net.scripted()
    client = net.connected(endpoint, buffers=BufferLimits(send_messages=2))
    endpoint.peer.take()
    endpoint.peer.transport.stop_taking()
    failed(Deferred.fromCoroutine(work()), BufferFullError)
    endpoint.peer.transport.start_taking()
    net.run()
    assert commands(endpoint.peer.take()) == ["BEGIN", "SEND", "SEND", "ABORT"]


def test_a_large_transaction_waits_for_room(net: Network) -> None:
    async def work() -> None:
        async with client.transaction() as transaction:
            for _ in range(10):
                transaction.send(QUEUE)
                await client.drain()

    endpoint = net.scripted(obliging=True)
    client = net.connected(endpoint, buffers=BufferLimits(send_messages=2))
    endpoint.peer.transport.stop_taking()
    working = Deferred.fromCoroutine(work())
    assert waits(working)
    endpoint.peer.transport.start_taking()
    net.wait(working)
    assert len(endpoint.peer.take("SEND")) == 10


@pytest.mark.parametrize("is_full", [False, True])
def test_a_transaction_with_a_frame_that_can_not_be_sent_is_aborted(
    net: Network, *, is_full: bool
) -> None:
    endpoint = net.scripted()
    client = net.connected(endpoint)
    transaction = begun(net, client)
    endpoint.peer.take()
    if is_full:
        endpoint.peer.transport.stop_taking()
    transaction.send(QUEUE, b"", {"x": "\0"})
    transaction.send(QUEUE, b"2")
    if is_full:
        committed = transaction.commit()
        endpoint.peer.transport.start_taking()
        net.run()
        failed(committed, LocalProtocolError)
    else:
        with pytest.raises(LocalProtocolError):
            transaction.commit()
        net.run()
    assert commands(endpoint.peer.take()) == ["SEND", "ABORT"]


@pytest.mark.parametrize("is_sent", [False, True])
def test_a_commit_that_is_cancelled_is_sent_or_aborted(net: Network, *, is_sent: bool) -> None:
    """The broker would hold its messages otherwise, until the connection ends."""
    endpoint = net.scripted()
    client = net.connected(endpoint)
    message = received(net, client, endpoint, "client-individual")
    transaction = begun(net, client)
    transaction.ack(message)
    net.run()
    if not is_sent:
        endpoint.peer.transport.stop_taking()
        client.send(QUEUE, bytes(1_000_000), receipt=False)
    committed = transaction.commit()
    committed.cancel()
    failed(committed, CancelledError)
    endpoint.peer.transport.start_taking()
    net.run()
    assert commands(endpoint.peer.take())[-1] == ("COMMIT" if is_sent else "ABORT")
    assert message.is_settled is is_sent
    assert result(message.ack()) is not is_sent
