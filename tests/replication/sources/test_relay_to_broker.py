"""An outbox to a broker: the committed changes arrive once and in order."""

from __future__ import annotations

import pytest
from blinker import Signal
from sqlalchemy import Engine
from sqlalchemy.orm import Session, sessionmaker

from stompkit.replication.model.events import Changeset
from stompkit.replication.model.frames import Reassembler
from stompkit.replication.sinks.forwarders.stomp import stomp_sub
from stompkit.replication.sources.outbox import Outbox
from stompkit.replication.sources.relay import OutboxRelay
from stompkit.testing import RunningBroker
from tests.replication.sources.models import Tag
from tests.replication.sources.received import contents, replay

LONG_S = 30.0


@pytest.mark.parametrize("how", ["one by one", "in groups", "of some tables"])
def test_changes_arrive_at_the_broker_and_leave_the_outbox(
    how: str, engine: Engine, sessions: sessionmaker[Session], stomp_broker: RunningBroker
) -> None:
    outbox = Outbox(sessions)
    outbox.create(engine)
    for key in range(1, 31):
        with sessions.begin() as session:
            session.add(Tag(id=key, word="x"))
    outbox.close()
    queue = stomp_broker.queue("changes")
    found: list[Changeset] = []
    tables = ["tags"] if how == "of some tables" else None
    with stomp_sub(
        [f"{stomp_broker.host}:{stomp_broker.port}"], queue, tables=tables, changesets=Signal()
    ) as sub:
        link = sub.link
        relay = OutboxRelay(engine, sub.send if how == "one by one" else sub, batch=10)
        assert relay.run_once(LONG_S) == 30
        assert relay.status().backlog == 0
        relay.close()
        inbox = link.subscribe(queue)
        reassembler = Reassembler()
        while len(found) < 30:
            delivery = inbox.get(LONG_S)
            assert delivery is not None, f"{len(found)} have come"
            changeset = reassembler.add(delivery.headers, delivery.body)
            assert changeset is not None
            found.append(changeset)
            delivery.ack()
    assert [each.sequence for each in found] == list(range(1, 31))
    rows: dict[str, dict[tuple[object, ...], dict[str, object]]] = {}
    for each in found:
        replay(each.changes, rows)
    assert rows == contents(engine)
