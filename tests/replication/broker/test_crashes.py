"""Nothing is lost and nothing is applied twice when a process is killed or a connection breaks."""

from __future__ import annotations

from pathlib import Path

import pytest

from stompkit.replication.sources.offsets import FileOffsets
from stompkit.replication.sources.publication import Publication
from stompkit.testing.plugin import BrokerFactory
from stompkit.testing.proxy import Proxy
from tests.replication.broker.conftest import place_of
from tests.replication.broker.consumer_process import Order, run
from tests.replication.broker.place import LONG_S, Place, until, write, writes
from tests.replication.broker.sqlite_sink import SqliteSink, applied, rows

POINTS = ["before the commit", "behind the commit", "behind the acknowledgement"]


# The consumer.


@pytest.mark.stomp_requires("ack", "client-individual")
@pytest.mark.parametrize("where", POINTS)
def test_a_consumer_that_is_killed_has_its_effect_once(
    place: Place, sink: SqliteSink, where: str
) -> None:
    queue = place.queue()
    place.publish(queue, writes(1, 60, rows=5, size=100), max_body_bytes=500)
    for die_at in (7, 23, 38):
        order = {"url": place.url(queue), "store": str(place.store), "die_at": die_at}
        run(Order(where=where, **order))  # type: ignore[arg-type]  # as Order says
        done = applied(place.store)
        assert done == list(range(1, len(done) + 1))
        assert len(done) < 60
    with place.consuming(queue, sink):
        until(lambda: len(applied(place.store)) >= 60)
    assert applied(place.store) == list(range(1, 61))
    assert len(rows(place.store)) == 300


@pytest.mark.stomp_requires("ack", "client-individual")
def test_acknowledgements_that_are_lost_double_nothing(
    place: Place, sink: SqliteSink, stomp_proxy: Proxy
) -> None:
    queue = place.queue()
    place.publish(queue, writes(1, 30))
    with (
        place.link(stomp_proxy) as link,
        place.consuming(queue, sink, link=link, prefetch=30) as running,
    ):
        with stomp_proxy.drop("ACK") as lost:
            until(lambda: len(applied(place.store)) == 30)
            lost.wait(30, LONG_S)
        stomp_proxy.disconnect()
        until(lambda: running.consumer.status().repeats >= 30)
        place.publish(queue, writes(31, 40))
        until(lambda: len(applied(place.store)) >= 40)
    assert applied(place.store) == list(range(1, 41))


@pytest.mark.stomp_requires("ack", "client-individual")
def test_connections_that_are_lost_in_the_middle_of_a_changeset_tear_nothing(
    place: Place, sink: SqliteSink, stomp_proxy: Proxy
) -> None:
    queue = place.queue()
    place.publish(queue, writes(1, 40, rows=10, size=100), max_body_bytes=500)
    with (
        stomp_proxy.reset("MESSAGE", every=150, times=4) as resets,
        place.link(stomp_proxy) as link,
        place.consuming(queue, sink, link=link),
    ):
        until(lambda: len(applied(place.store)) >= 40)
        assert resets.count >= 1
    assert applied(place.store) == list(range(1, 41))
    assert len(rows(place.store)) == 400


def test_frames_that_overtake_each_other_are_put_in_order(
    place: Place, sink: SqliteSink, stomp_proxy: Proxy
) -> None:
    queue = place.queue()
    place.publish(queue, writes(1, 50))
    with (
        stomp_proxy.reorder("MESSAGE", every=3, times=10, by=2) as fault,
        place.link(stomp_proxy) as link,
        place.consuming(queue, sink, link=link),
    ):
        until(lambda: len(applied(place.store)) >= 50)
        assert fault.count == 10
    assert applied(place.store) == list(range(1, 51))


# The publisher.


def test_a_publisher_that_is_killed_publishes_again_and_doubles_nothing(
    place: Place, sink: SqliteSink
) -> None:
    queue = place.queue()
    path = place.directory / "offsets"
    with place.sub(queue) as sub:
        # Its checkpoint is always behind the sent changesets.
        lost = Publication(FileOffsets(path), kind="test", checkpoint_s=1e9)
        for number in range(1, 21):
            lost.publish([write(number)], position=str(number))
        sub.flush(LONG_S)
    with place.sub(queue), place.consuming(queue, sink):
        resumed = Publication(FileOffsets(path), kind="test")
        assert (resumed.origin, resumed.position) == (lost.origin, "")
        for number in range(1, 31):
            resumed.publish([write(number)], position=str(number))
        resumed.flush(LONG_S)
        until(lambda: len(applied(place.store, lost.origin)) >= 30)
    assert applied(place.store, lost.origin) == list(range(1, 31))
    assert FileOffsets(path).load() is not None


@pytest.mark.stomp_requires("receipt")
def test_receipts_that_are_lost_have_frames_sent_again_and_double_nothing(
    place: Place, sink: SqliteSink, stomp_proxy: Proxy
) -> None:
    queue = place.queue()
    with stomp_proxy.reset("RECEIPT", every=20, times=3) as resets:
        place.publish(
            queue, writes(1, 40, rows=3, size=100), addresses=[stomp_proxy], max_body_bytes=400
        )
        assert resets.count >= 1
    with place.consuming(queue, sink) as running:
        until(lambda: len(applied(place.store)) >= 40)
        until(lambda: running.consumer.status().repeats)
    assert applied(place.store) == list(range(1, 41))
    assert len(rows(place.store)) == 120


@pytest.mark.stomp_requires("receipt")
def test_a_changeset_is_not_confirmed_before_the_broker_has_confirmed_all_of_it(
    place: Place, stomp_proxy: Proxy
) -> None:
    queue = place.queue()
    publication = Publication(kind="test")
    with place.sub(queue, stomp_proxy, max_body_bytes=400) as sub:
        with stomp_proxy.hold("RECEIPT", nth=3) as held:
            changes = [write(number, "x" * 100) for number in range(10)]
            publication.publish(changes, position="1")
            held.wait(timeout_s=LONG_S)
            with pytest.raises(TimeoutError):
                publication.flush(0.1)
            assert publication.confirmed_position == ""
        publication.flush(LONG_S)
        assert publication.confirmed_position == "1"
        sub.flush(LONG_S)


@pytest.mark.stomp_requires("receipt")
def test_a_changeset_is_not_confirmed_before_all_partitions_are(
    place: Place, stomp_proxy: Proxy
) -> None:
    (made,) = writes(1, 1)
    with place.sub(place.queue(), stomp_proxy, partitions=3) as sub:
        with stomp_proxy.hold("RECEIPT", nth=3) as held:
            future = sub.send(made)
            held.wait(timeout_s=LONG_S)
            with pytest.raises(TimeoutError):
                future.result(0.1)
        future.result(LONG_S)


# The broker.


@pytest.fixture
def lasting(place: Place, stomp_broker_factory: BrokerFactory, tmp_path: Path) -> Place:
    """A broker that keeps its messages across a restart."""
    if not place.acknowledges:
        pytest.skip("a broker that forgets what it has delivered has nothing after a restart")
    if "persistence" in place.broker.capabilities:
        return place
    return place_of(stomp_broker_factory(persistent=True), tmp_path)


def test_what_the_broker_has_confirmed_survives_its_restart(
    lasting: Place, sink: SqliteSink
) -> None:
    queue = lasting.queue()
    lasting.publish(queue, writes(1, 30, rows=5, size=100), max_body_bytes=500)
    lasting.broker.restart(kill=True)
    with lasting.consuming(queue, sink):
        until(lambda: len(applied(lasting.store)) >= 30)
    assert applied(lasting.store) == list(range(1, 31))


def test_a_broker_that_is_killed_while_all_are_at_work_loses_and_doubles_nothing(
    lasting: Place, sink: SqliteSink
) -> None:
    queue = lasting.queue()
    made = list(writes(1, 300, rows=2, size=100))
    with lasting.sub(queue) as sub, lasting.consuming(queue, sink, batch=3):
        futures = [sub.send(each) for each in made[:150]]
        until(lambda: len(applied(lasting.store)) >= 20)
        lasting.broker.restart(kill=True)
        futures += [sub.send(each) for each in made[150:]]
        for future in futures:
            future.result(LONG_S)
        until(lambda: len(applied(lasting.store)) >= 300)
    assert applied(lasting.store) == list(range(1, 301))
    assert len(rows(lasting.store)) == 600


def test_who_goes_on_with_a_broker_on_the_same_store_loses_and_doubles_nothing(
    place: Place, sink: SqliteSink, stomp_broker_factory: BrokerFactory
) -> None:
    if not place.acknowledges:
        pytest.skip("a broker that forgets what it has delivered leaves nothing to the other")
    made = list(writes(1, 200))
    with stomp_broker_factory.pair(shared=True) as pair:
        both = place_of(pair.active, place.directory)
        queue = both.queue()
        with (
            both.sub(queue, *pair.brokers) as sub,
            both.link(*pair.brokers) as link,
            both.consuming(queue, sink, link=link, batch=3),
        ):
            futures = [sub.send(each) for each in made[:100]]
            until(lambda: len(applied(place.store)) >= 20)
            pair.fail_over()
            futures += [sub.send(each) for each in made[100:]]
            for future in futures:
                future.result(LONG_S)
            until(lambda: len(applied(place.store)) >= 200)
    assert applied(place.store) == list(range(1, 201))
