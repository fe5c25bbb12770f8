"""The destinations of sent changesets, and the options of the subscriber."""

from __future__ import annotations

from typing import Any

import pytest

from stompkit.client.blocking import Delivery, LinkClosedError
from stompkit.replication.model.events import Changeset, RowChange, decode
from stompkit.replication.model.frames import CONTENT_TYPE
from stompkit.replication.model.signals import CHANGESET, emit
from stompkit.replication.model.tables import Tables
from stompkit.replication.sinks import forwarders
from stompkit.replication.sinks.forwarders.stomp import stomp_sub
from tests.replication.broker.place import LONG_S, Place, changeset, write, writes


def sent(place: Place, destination: str, count: int = 1) -> list[Delivery]:
    """Return the messages in a queue."""
    with place.link() as link:
        inbox = link.subscribe(destination, ack=place.acknowledges)
        found = [inbox.get(LONG_S) for _ in range(count)]
    return [each for each in found if each is not None]


def test_changesets_are_sent_as_long_as_it_is_not_closed(place: Place) -> None:
    queue = place.queue()
    with place.sub(queue) as sub:
        (future,) = emit(changeset(1))
        future.result(LONG_S)
        assert str(queue) in repr(sub)
    assert emit(changeset(2)) == []
    assert not CHANGESET.receivers
    (delivery,) = sent(place, queue)
    assert decode(delivery.body).sequence == 1
    assert delivery.headers["content-type"] == CONTENT_TYPE
    with pytest.raises(LinkClosedError):
        sub.send(changeset(3))
    sub.close()


def test_it_is_found_with_the_other_subscribers() -> None:
    assert forwarders.stomp_sub is stomp_sub


@pytest.mark.stomp_requires("frames")
@pytest.mark.parametrize("header", ["true", "false"])
def test_whether_frames_are_to_be_kept_is_said(place: Place, header: str) -> None:
    queue = place.queue()
    place.publish(queue, [changeset(1)], persistent=header == "true")
    frame = place.broker.frames.wait_for("SEND", destination=queue, timeout_s=LONG_S)
    assert frame.headers["persistent"] == header


def test_a_destination_may_have_the_origin_in_its_name(place: Place) -> None:
    queue = place.queue("from-{origin}")
    place.publish("", [changeset(1, origin="mysql.1/a b")], destination=queue)
    (delivery,) = sent(place, queue.replace("{origin}", "mysql-1-a-b"))
    assert decode(delivery.body).origin == "mysql.1/a b"


def test_a_destination_may_be_what_a_function_says(place: Place) -> None:
    def where(each: Changeset) -> str:
        return place.queue("even" if each.sequence % 2 == 0 else "odd")

    place.publish("", writes(1, 4), destination=where)
    for name, expected in (("even", [2, 4]), ("odd", [1, 3])):
        found = [decode(each.body).sequence for each in sent(place, place.queue(name), 2)]
        assert found == expected


def test_tables_that_are_not_wanted_leave_an_empty_changeset(place: Place) -> None:
    queue = place.queue()
    changes = [write(1), write(2, table="secret"), write(3, "masked", table="users")]
    tables = Tables(exclude=["secret"], masks={"users.text": "constant:x"})
    made = [changeset(1, *changes), changeset(2, write(4, table="secret"))]
    place.publish(queue, made, tables=tables)
    first, second = (decode(each.body) for each in sent(place, queue, 2))
    assert first.changes == (write(1), write(3, "x", table="users"))
    assert (second.sequence, second.changes) == (2, ())


def test_a_changeset_that_can_not_be_written_sends_no_part_of_it(place: Place) -> None:
    queue = place.queue()
    nonsense: Any = object()
    bad = RowChange(table="t", action="write", key={"id": 1}, after={"value": nonsense})
    with place.sub(queue, partitions=4) as sub:
        with pytest.raises(ValueError, match="table t"):
            sub.send(changeset(1, *(write(number) for number in range(20)), bad))
        sub.send(changeset(2)).result(LONG_S)
    for number in range(4):
        (delivery,) = sent(place, f"{queue}.{number}")
        assert decode(delivery.body).sequence == 2


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"url_or_hosts": "stomp://mq"}, "no destination"),
        ({"url_or_hosts": ["mq:61613"]}, "no destination"),
        ({"url_or_hosts": "http://mq/queue/a"}, "URL of a broker"),
        ({"url_or_hosts": "stomp://mq/queue/a", "partitions": 0}, "at least 1"),
        ({"url_or_hosts": "stomp://mq/queue/a", "max_body_bytes": 0}, "at least 1"),
        ({"url_or_hosts": "stomp://mq/queue/a", "tables": "users"}, "list of patterns"),
        ({"url_or_hosts": ["mq"], "destination": "/queue/a"}, "host:port"),
    ],
)
def test_what_can_not_be_understood_is_refused(arguments: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        stomp_sub(**arguments)
    assert not CHANGESET.receivers


def test_hosts_may_be_given_without_a_url(place: Place) -> None:
    queue = place.queue()
    broker = place.broker
    with stomp_sub(
        [f"{broker.host}:{broker.port}"],
        queue,
        receipts=place.has_receipts,
        login=broker.login,
        passcode=broker.passcode,
        virtual_host=broker.vhost,
    ) as sub:
        sub.send(changeset(1)).result(LONG_S)
        if broker.passcode and broker.passcode != broker.login:
            assert broker.passcode not in repr(sub)
    assert len(sent(place, queue)) == 1
