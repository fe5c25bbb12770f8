"""A process that kills itself at a certain point of a transaction; run by ``test_recovery``."""

from __future__ import annotations

import os
import signal as signals
import sys
from typing import Any

from sqlalchemy import create_engine, event
from sqlalchemy.orm import Session, sessionmaker

from stompkit.replication.eventstore import redis_es_sub, sql_es_sub, sqlalchemy_es_pub
from stompkit.replication.model.signals import CHANGESET, signal
from tests.replication.eventstore.shop import Item, Order

__all__ = ["MOMENTS", "change"]

#: The moments of the kill; the database has committed in all but the first.
MOMENTS = ("before commit", "after commit", "first row", "changeset", "stored")


def die(*_: Any, **__: Any) -> None:
    """Kill this process."""
    os.kill(os.getpid(), signals.SIGKILL)


def change(session: Session) -> None:
    """Return a transaction with changes of every kind."""
    first = session.get_one(Order, 1)
    first.note = "changed"
    session.flush()
    session.delete(session.get_one(Order, 2))
    session.add(Order(id=10, note="new"))
    session.flush()
    session.add(Item(order_id=10, number=7, note="of it"))
    session.flush()


def main(url: str, data_url: str, moment: str) -> None:
    """Commit a transaction, and die at the given moment."""
    factory = sessionmaker(create_engine(data_url))
    # The first registered receiver is called first.
    if moment == "after commit":
        event.listen(factory, "after_commit", die)
    sqlalchemy_es_pub(factory)
    sub: Any = sql_es_sub if "://" in url and not url.startswith("unix") else redis_es_sub
    _, prepare_commit = sub(factory, ["orders", "items"], url, strict=True, history=True)
    match moment:
        case "before commit":
            event.listen(factory, "before_commit", die)
        case "first row":
            signal("orders_update").connect(die)
        case "changeset":
            CHANGESET.connect(die)
        case "stored":
            prepare_commit.commit = die
    with factory() as session:
        change(session)
        session.commit()
    raise AssertionError("still here")


if __name__ == "__main__":
    main(*sys.argv[1:])
