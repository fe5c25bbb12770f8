"""Several consumers of one topic, and the messages during their absence."""

from __future__ import annotations

from uuid import uuid4

import pytest

from stompkit.client.blocking import Link
from tests.replication.broker.place import Place, until, writes
from tests.replication.broker.sqlite_sink import SqliteSink, applied


@pytest.mark.stomp_requires("topic")
def test_each_consumer_of_a_topic_gets_everything(place: Place, sink: SqliteSink) -> None:
    topic = place.broker.topic("changes")
    other = place.directory / "other.sqlite"
    others = SqliteSink(other)

    def both_have_begun() -> bool:
        place.publish(topic, writes(1, 1))
        return bool(applied(place.store) and applied(other))

    with place.consuming(topic, sink), place.consuming(topic, others):
        until(both_have_begun)
        place.publish(topic, writes(2, 50))
        until(lambda: len(applied(place.store)) == len(applied(other)) == 50)
    assert applied(place.store) == applied(other) == list(range(1, 51))
    others.close()


@pytest.mark.stomp_requires("durable", "ack", "client-individual")
def test_a_durable_consumer_gets_what_was_published_while_it_was_away(
    place: Place, sink: SqliteSink
) -> None:
    topic = place.broker.topic("changes")
    name = f"stompkit-{uuid4().hex}"

    def link() -> Link:
        return place.link(connect_headers={"client-id": name})

    def has_begun() -> bool:
        place.publish(topic, writes(1, 1))
        return bool(applied(place.store))

    with link() as first, place.consuming(topic, sink, link=first, durable=name):
        until(has_begun)
    place.publish(topic, writes(2, 30))
    with link() as second, place.consuming(topic, sink, link=second, durable=name):
        until(lambda: len(applied(place.store)) >= 30)
    assert applied(place.store) == list(range(1, 31))
