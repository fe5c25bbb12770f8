"""Sources of keys: publishers of the same process, and brokers."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from stompkit.client.blocking import Inbox, Link, LinkClosedError
from stompkit.replication.model.events import (
    Changeset,
    RowChange,
    Source,
    decode,
    make_changeset,
)
from stompkit.replication.model.frames import Packet, packets
from stompkit.replication.model.signals import emit
from stompkit.replication.sources.offsets import MemoryOffsets
from stompkit.replication.sources.publication import Publication
from stompkit.replication.workers import QueueReplicator, ReplicatorStoppedError, Unfinished
from stompkit.replication.workers.messages import CONTENT_TYPE, encode_keys
from stompkit.testing import RunningBroker
from tests.replication.workers.callbacks import (
    PATIENCE_S,
    Gated,
    Notes,
    Passes,
    Record,
    wait_for,
)


def change(key: Any, action: Any = "write", **more: Any) -> RowChange:
    return RowChange(table="users", action=action, key={"id": key}, **more)


def changeset(*changes: RowChange, sequence: int = 1) -> Changeset:
    source = Source(kind="test")
    return make_changeset("test", sequence, changes, source, timestamp=datetime.now(UTC))


# Publishers of this process.


def test_changes_of_this_process_reach_callbacks_by_their_signals_names(
    replicator: QueueReplicator, record: Record, tmp_path: Path
) -> None:
    qualified = Record(tmp_path / "qualified")
    replicator.event("users_write", "users_delete")(Notes(record))
    replicator.event("shop.users_update")(Notes(qualified))
    replicator.start()
    replicator.connect()
    changes = [
        change(1),
        change(2, "read"),
        change(3, "update"),
        change(4, "update", schema="shop"),
        change(6, "update", old_key={"id": 5}),
        RowChange(table="users", action="delete", key={"a": 7, "b": "x y"}),
        RowChange(table="others", action="write", key={"id": 8}),
    ]
    for future in emit(changeset(*changes)):
        future.result(PATIENCE_S)
    assert record.keys() == [1, 2, 5, 6, [7, "x y"]]
    assert qualified.keys() == [4]
    assert replicator.stats().unknown == 0


def test_a_publisher_resumes_before_what_no_callback_has_done(
    replicator: QueueReplicator, record: Record, gate: Path
) -> None:
    """Otherwise keys that wait in memory would be lost with it."""
    replicator.event("users_write", max_batch=1)(Gated(record, gate))
    replicator.start()
    replicator.connect()
    publication = Publication(MemoryOffsets(), kind="test")
    publication.publish([change(1)], position="1")
    wait_for(record.keys)
    with pytest.raises(TimeoutError):
        publication.flush(0.0)
    assert publication.confirmed_position == ""
    gate.touch()
    publication.flush(PATIENCE_S)
    assert publication.confirmed_position == "1"


def test_a_publisher_hears_that_the_replicator_was_stopped(
    replicator: QueueReplicator, record: Record, gate: Path
) -> None:
    replicator.event("users_write")(Gated(record, gate))
    replicator.start()
    replicator.connect()
    (future,) = emit(changeset(change(1)))
    wait_for(record.keys)
    replicator.stop(0.0)
    with pytest.raises(ReplicatorStoppedError):
        future.result(PATIENCE_S)
    assert emit(changeset(change(2), sequence=2)) == []


# A broker.


def linked(broker: RunningBroker) -> Link:
    return Link(
        [f"{broker.host}:{broker.port}"],
        login=broker.login,
        passcode=broker.passcode,
        virtual_host=broker.vhost,
        receipts="receipt" in broker.capabilities,
    )


@pytest.fixture
def link(stomp_broker: RunningBroker) -> Iterator[Link]:
    """A connection to the broker."""
    with linked(stomp_broker) as made:
        yield made


@pytest.fixture
def queue(stomp_broker: RunningBroker) -> str:
    """A queue of the broker."""
    return stomp_broker.queue("changes")


@pytest.fixture
def inbox(stomp_broker: RunningBroker, link: Link, queue: str) -> Inbox:
    """An inbox of the queue."""
    return link.subscribe(queue, ack="ack" in stomp_broker.capabilities)


def begin(replicator: QueueReplicator, inbox: Inbox, **more: Any) -> Future[list[Unfinished]]:
    """Run a started replicator from a broker; return the future of its result."""
    done: Future[list[Unfinished]] = Future()

    def run() -> None:
        try:
            done.set_result(replicator.run_from(inbox, timeout_s=PATIENCE_S, **more))
        except Exception as error:
            done.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return done


def send(link: Link, queue: str, *sent: Packet) -> None:
    link.send(queue, sent).result(PATIENCE_S)


def keys(*listed: Any) -> Packet:
    headers = {"content-type": CONTENT_TYPE, "persistent": "true"}
    return Packet(headers, encode_keys("users_write", listed))


def test_changesets_and_keys_of_a_broker_reach_callbacks(
    replicator: QueueReplicator, record: Record, link: Link, queue: str, inbox: Inbox
) -> None:
    replicator.event("users_write", "users_delete")(Notes(record))
    replicator.start()
    done = begin(replicator, inbox)
    large = changeset(*(change(f"row {number}") for number in range(50)), change(1, "update"))
    parts = list(packets(large, max_body_bytes=1000))
    assert len(parts) > 2
    send(link, queue, keys(1, "1", (2, 3)), *parts, keys("last"))
    wait_for(lambda: "last" in record.keys())
    replicator.stop(PATIENCE_S)
    assert done.result(PATIENCE_S) == []
    assert record.keys() == [1, "1", [2, 3], *(f"row {n}" for n in range(50)), "last"]


@pytest.mark.stomp_requires("ack")
def test_a_message_is_acknowledged_when_its_keys_are_done_and_not_before(
    replicator: QueueReplicator,
    record: Record,
    gate: Path,
    link: Link,
    queue: str,
    stomp_broker: RunningBroker,
) -> None:
    replicator.event("users_write", max_batch=1)(Passes(record, gate, "slow"))
    replicator.start()
    with linked(stomp_broker) as other:
        done = begin(replicator, other.subscribe(queue))
        # Each part is done when its own keys are.
        parts = list(packets(changeset(change(1), change("slow")), max_body_bytes=1))
        assert len(parts) == 2
        send(link, queue, keys("quick"), *parts)
        wait_for(lambda: "slow" in record.keys())
        assert sorted(each.key for each in replicator.stop(0.0)) == ["slow"]
        assert [each.key for each in done.result(PATIENCE_S)] == ["slow"]
    inbox = link.subscribe(queue)
    send(link, queue, keys("marker"))
    again = [inbox.get(PATIENCE_S) for _ in range(2)]
    expected = [each.body for each in (parts[1], keys("marker"))]
    assert [each and each.body for each in again] == expected


@pytest.mark.stomp_requires("ack")
@pytest.mark.parametrize("trouble", ["lost", "damaged", "split again", "two consumers"])
def test_keys_of_parts_do_not_wait_for_other_parts(
    replicator: QueueReplicator,
    record: Record,
    link: Link,
    queue: str,
    stomp_broker: RunningBroker,
    trouble: str,
) -> None:
    large = changeset(*(change(number) for number in range(60)))
    parts = list(packets(large, max_body_bytes=500))
    assert len(parts) > 5
    expected = list(range(60))
    if trouble == "split again":
        parts = [*parts[:2], *packets(large, max_body_bytes=800)]
    elif trouble == "damaged":
        lost = decode(parts[1].body).changes
        parts[1] = Packet(parts[1].headers, b"{")
        expected = [each.key["id"] for each in large.changes if each not in lost]
    elif trouble != "two consumers":
        expected = [each.key["id"] for one in parts[2:] for each in decode(one.body).changes]
        del parts[:2]
    replicator.event("users_write")(Notes(record))
    replicator.start()
    with linked(stomp_broker) as other:
        done = begin(replicator, other.subscribe(queue, prefetch=3))
        if trouble == "two consumers":
            # The other one has received some of the parts, and gives them back.
            with linked(stomp_broker) as rival:
                rival.subscribe(queue, prefetch=2)
                send(link, queue, *parts)
        else:
            send(link, queue, *parts)
        wait_for(lambda: set(record.keys()) >= set(expected))
        replicator.stop(PATIENCE_S)
        assert done.result(PATIENCE_S) == []
    assert sorted(set(record.keys())) == expected
    assert replicator.stats().corrupt == (trouble == "damaged")
    inbox = link.subscribe(queue)
    send(link, queue, keys("marker"))
    left = inbox.get(PATIENCE_S)
    assert left is not None
    assert left.body == keys("marker").body, "all other messages were acknowledged"


@pytest.mark.parametrize("has_poison", [False, True])
def test_a_message_that_can_not_be_read_is_counted_and_stops_nothing(
    replicator: QueueReplicator,
    record: Record,
    link: Link,
    queue: str,
    inbox: Inbox,
    *,
    has_poison: bool,
) -> None:
    replicator.event("users_write")(Notes(record))
    replicator.start()
    poison: list[tuple[bytes, str]] = []
    more = {"poison": lambda each, why: poison.append((each.body, why))} if has_poison else {}
    done = begin(replicator, inbox, **more)
    (broken,) = packets(changeset(change(1)))
    broken = Packet(broken.headers, b"{}")
    send(link, queue, Packet({"persistent": "true"}, b"users_write 1"), broken, keys(7))
    wait_for(record.keys)
    replicator.stop(PATIENCE_S)
    assert done.result(PATIENCE_S) == []
    assert record.keys() == [7]
    assert replicator.stats().corrupt == 2
    if has_poison:
        assert [body for body, _ in poison] == [b"users_write 1", b"{}"]
        assert poison[0][1].startswith("these are no keys")


def test_the_end_of_a_source_ends_the_run(
    replicator: QueueReplicator, record: Record, link: Link, queue: str, inbox: Inbox
) -> None:
    replicator.event("users_write")(Notes(record))
    replicator.start()
    done = begin(replicator, inbox)
    send(link, queue, keys(1))
    wait_for(record.keys)
    link.close()
    with pytest.raises(LinkClosedError):
        done.result(PATIENCE_S)
