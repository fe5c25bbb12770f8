"""Values equal those in the database, in the types of changesets."""

from __future__ import annotations

import asyncio
import pickle
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from threading import Thread
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import Engine, update
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import Session, sessionmaker

from stompkit.replication.model.events import decode, encode
from stompkit.replication.model.values import Interval
from stompkit.replication.sources.session import sqlalchemy_pub
from tests.replication.sources.conftest import only
from tests.replication.sources.models import Colour, Generated, Tag, Typed
from tests.replication.sources.received import Received

VALUES: dict[str, Any] = {
    "truth": True,
    "number": 2**31 - 1,
    "amount": Decimal("10.50"),
    "ratio": 0.5,
    "words": "ä€",
    "octets": b"\x00\xff",
    "day": date(2026, 11, 21),
    "hour": time(12, 30, 15),
    "moment": datetime(2026, 11, 21, 12, 0, 0, 250000),
    "period": timedelta(days=1, seconds=5),
    "uuid": UUID("0f8fad5b-d9cb-469f-a165-70867728950e"),
    "document": {"a": [1, None]},
    "colour": Colour.GREEN,
    "reversed": "stressed",
    "pickled": ("a", 1),
}
EXPECTED = {
    **VALUES,
    "colour": "GREEN",
    "reversed": "desserts",
    "pickled": pickle.dumps(("a", 1), pickle.HIGHEST_PROTOCOL),
}
#: PostgreSQL's intervals have days, as the driver writes them.
LAPSE = {"period": Interval(days=1, microseconds=5_000_000)}


def test_values_are_those_that_are_stored(
    sessions: sessionmaker[Session], received: Received
) -> None:
    pub = sqlalchemy_pub(sessions)
    with sessions.begin() as session:
        session.add(Typed(id=1, **VALUES))
    with sessions.begin() as session:
        session.add(Typed(id=2))
    with sessions.begin() as session:
        session.delete(session.get_one(Typed, 1))
    with sessions.begin() as session:
        session.execute(update(Typed).values(**{**VALUES, "truth": False}))
    pub.close()
    write, empty, delete, bulk = received.changes
    dialect = sessions.kw["bind"].dialect.name
    expected = EXPECTED | LAPSE if dialect == "postgresql" else EXPECTED
    assert write.after == {"id": 1, **expected}
    assert empty.after == {"id": 2, **dict.fromkeys(VALUES)}
    # A loaded value may have had months at PostgreSQL, and more digits at SQLite.
    left_out = {"postgresql": "period", "sqlite": "amount"}.get(dialect)
    assert delete.before == {name: value for name, value in write.after.items() if name != left_out}
    assert bulk.after == {"id": 2, **expected, "truth": False}
    for changeset in received.changesets:
        assert decode(encode(changeset)) == changeset


@only("sqlite")
def test_digits_that_sqlite_keeps_are_told(
    sessions: sessionmaker[Session], received: Received
) -> None:
    pub = sqlalchemy_pub(sessions)
    with sessions.begin() as session:
        session.add(Typed(id=1, amount=Decimal("1.005"), number=1))
        session.add(Typed(id=2, amount=Decimal(1), number=1))
    with sessions.begin() as session:
        session.execute(update(Typed).values(number=Typed.number + 1))
    with sessions.begin() as session:
        session.get_one(Typed, 1).number = 7
        session.execute(update(Typed).where(Typed.id == 2).values(amount=Typed.amount / 3))
    pub.close()
    told: dict[Any, dict[str, Any]] = {}
    for each in received.changes:
        assert each.after is not None
        told[each.after["id"]] = told.get(each.after["id"], {}) | each.after
    third = told[2]["amount"]
    assert (told[1]["amount"], str(third)[:8]) == (Decimal("1.005"), "0.333333")


def test_numbers_are_of_the_kind_of_their_columns(
    sessions: sessionmaker[Session], received: Received
) -> None:
    pub = sqlalchemy_pub(sessions)
    with sessions.begin() as session:
        session.add(Typed(id=1, amount=3, ratio=3, number=True))
    pub.close()
    after = received.changes[0].after
    assert after is not None
    found = [(type(after[name]), after[name]) for name in ("amount", "ratio", "number")]
    assert found == [(Decimal, 3), (float, 3.0), (int, 1)]


def test_a_document_that_is_changed_after_the_flush_is_published_as_it_was(
    sessions: sessionmaker[Session], received: Received
) -> None:
    pub = sqlalchemy_pub(sessions)
    with sessions.begin() as session:
        document = {"a": [1]}
        session.add(Typed(id=1, document=document))
        session.flush()
        document["a"].append(2)
    pub.close()
    after = received.changes[0].after
    assert after is not None
    assert after["document"] == {"a": [1]}


def test_what_the_database_has_made_up_is_told(
    sessions: sessionmaker[Session], received: Received
) -> None:
    pub = sqlalchemy_pub(sessions)
    with sessions.begin() as session:
        row = Generated()
        session.add(row)
        session.flush()
        key = row.id
    with sessions.begin() as session:
        session.get_one(Generated, key).amount = Generated.amount + 1
    pub.close()
    write, change = received.changes
    made = {"id": key, "amount": 7, "double": 14, "note": "made by Python"}
    assert write.after == made
    assert change.after == {**made, "amount": 8, "double": 16}
    assert change.before is not None
    assert change.before.items() <= made.items()


# Sessions of all kinds.


def test_sessions_of_another_factory_are_not_watched(
    engine: Engine, sessions: sessionmaker[Session], received: Received
) -> None:
    pub = sqlalchemy_pub(sessions)
    with sessionmaker(engine).begin() as session:
        session.add(Tag(id=1, word="x"))
    with sessions.begin() as session:
        session.add(Tag(id=2, word="x"))
    pub.close()
    assert received.take() == ["write tags 2"]


def test_threads_have_transactions_of_their_own(
    engine: Engine, sessions: sessionmaker[Session], received: Received
) -> None:
    pub = sqlalchemy_pub(sessions)

    def work(first: int) -> None:
        for number in range(first, first + 10):
            with sessions() as session:
                session.add(Tag(id=number, word="kept"))
                session.commit()
                session.add(Tag(id=-number, word="dropped"))
                session.flush()
                session.rollback()

    threads = [Thread(target=work, args=(first,)) for first in (100, 200, 300)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    pub.close()
    assert [each.sequence for each in received.changesets] == list(range(1, 31))
    keys = sorted(change.key["id"] for change in received.changes)
    assert keys == [*range(100, 110), *range(200, 210), *range(300, 310)]


# The only database whose driver also supports asyncio.
@only("postgresql")
@pytest.mark.parametrize("kind", ["factory", "session", "factory with a class"])
def test_sessions_of_asyncio_are_watched(engine: Engine, received: Received, kind: str) -> None:
    async def run() -> None:
        asynchronous = create_async_engine(engine.url)
        factory = async_sessionmaker(asynchronous)
        if kind == "factory with a class":
            factory = async_sessionmaker(asynchronous, sync_session_class=sessionmaker())
        session = factory()
        pub = sqlalchemy_pub(session if kind == "session" else factory)
        if kind != "session":
            session = factory()
        async with session:
            session.add(Tag(id=1, word="x"))
            await session.commit()
            session.add(Tag(id=2, word="x"))
            await session.flush()
            await session.rollback()
        async with AsyncSession(asynchronous) as other:
            other.add(Tag(id=3, word="x"))
            await other.commit()
        pub.close()
        await asynchronous.dispose()

    asyncio.run(run())
    assert received.take() == ["write tags 1"]


def test_what_makes_no_sessions_is_refused() -> None:
    with pytest.raises(TypeError, match="makes no sessions"):
        sqlalchemy_pub(object())
