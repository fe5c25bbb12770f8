"""The signals of a session before and after its commit."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.orm import Session, sessionmaker

from stompkit.replication.eventstore import session_id, sqlalchemy_es_pub
from stompkit.replication.model.events import Changeset
from stompkit.replication.model.signals import CHANGESET, for_factory, signal
from tests.replication.eventstore.shop import Base, Item, Order

ACTIONS = ("write", "update", "delete")


class Ear:
    """Records all signals of orders and items."""

    def __init__(self, factory: sessionmaker[Session]) -> None:
        """Connect to the sessions of one factory, and to the rows of all."""
        self.received: list[tuple[Any, ...]] = []
        self.changesets: list[Changeset] = []
        self._receivers: list[tuple[Any, Any]] = []
        for name in ("session_prepare", "session_commit", "session_rollback"):
            self._connect(signal(name), for_factory(self._session(name), factory))
        for name in (f"{table}_{action}" for table in ("orders", "items") for action in ACTIONS):
            self._connect(signal(name), self._row(name))
        self._connect(CHANGESET, self.changesets.append)

    def _connect(self, told: Any, receiver: Any) -> None:
        told.connect(receiver, weak=False)
        self._receivers.append((told, receiver))

    def _session(self, name: str) -> Any:
        def receive(session: Session, **more: Any) -> None:
            self.received.append((name, session_id(session), *more.values()))

        return receive

    def _row(self, name: str) -> Any:
        def receive(key: Any) -> None:
            self.received.append((name, key))

        return receive

    def close(self) -> None:
        """Disconnect."""
        for told, receiver in self._receivers:
            told.disconnect(receiver)


@pytest.fixture
def factory(tmp_path: Path) -> Iterator[sessionmaker[Session]]:
    engine = create_engine(f"sqlite:///{tmp_path}/shop.sqlite")
    Base.metadata.create_all(engine)
    yield sessionmaker(engine)
    engine.dispose()


@pytest.fixture
def ear(factory: sessionmaker[Session]) -> Iterator[Ear]:
    publisher = sqlalchemy_es_pub(factory, ["orders", "items"])
    made = Ear(factory)
    yield made
    made.close()
    publisher.close()


@pytest.fixture
def session(factory: sessionmaker[Session], ear: Ear) -> Iterator[Session]:
    with factory() as made:
        yield made


def names(ear: Ear) -> list[str]:
    return [name for name, *_ in ear.received]


def one_id(ear: Ear) -> str:
    """Return the id that all signals of sessions share."""
    (found,) = {each[1] for each in ear.received if each[0].startswith("session_")}
    assert isinstance(found, str)
    return found


def test_nothing_is_said_of_an_empty_commit(session: Session, ear: Ear) -> None:
    session.commit()
    session.execute(text("SELECT 1"))
    session.commit()
    assert ear.received == []


def test_a_write_is_prepared_told_and_committed(session: Session, ear: Ear) -> None:
    session.add(Order(id=1))
    session.commit()
    id = one_id(ear)
    assert ear.received == [
        ("session_prepare", id, {"orders_write": [1]}),
        ("orders_write", 1),
        ("session_commit", id, True),
    ]


def test_a_flush_before_the_commit_changes_nothing(session: Session, ear: Ear) -> None:
    session.add(Order(id=1))
    session.flush()
    assert names(ear) == ["session_prepare"]
    session.commit()
    assert names(ear) == ["session_prepare", "orders_write", "session_commit"]
    one_id(ear)


def test_two_writes_are_prepared_together(session: Session, ear: Ear) -> None:
    session.add_all([Order(id=1), Order(id=2)])
    session.commit()
    assert ear.received[0][2] == {"orders_write": [1, 2]}
    assert names(ear).count("session_prepare") == 1


@pytest.mark.parametrize("flush", [False, True])
def test_an_update_is_an_update(session: Session, ear: Ear, *, flush: bool) -> None:
    session.add(Order(id=1))
    session.commit()
    ear.received.clear()
    found = session.get(Order, 1)
    assert found is not None
    found.note = "x"
    if flush:
        session.flush()
    session.commit()
    id = one_id(ear)
    assert ear.received == [
        ("session_prepare", id, {"orders_update": [1]}),
        ("orders_update", 1),
        ("session_commit", id, True),
    ]


def test_the_second_note_has_what_the_first_had(session: Session, ear: Ear) -> None:
    session.add_all([Order(id=1), Order(id=2)])
    session.commit()
    ear.received.clear()
    first, second = session.get(Order, 1), session.get(Order, 2)
    assert first is not None
    session.add(Order(id=3))
    first.note = "x"
    session.flush()
    session.delete(second)
    session.flush()
    session.commit()
    prepared = [each[2] for each in ear.received if each[0] == "session_prepare"]
    assert prepared == [
        {"orders_write": [3], "orders_update": [1]},
        {"orders_write": [3], "orders_update": [1], "orders_delete": [2]},
    ]
    one_id(ear)
    assert names(ear).count("session_commit") == 1


def test_nothing_is_said_of_a_rollback_before_a_flush(session: Session, ear: Ear) -> None:
    session.rollback()
    session.add(Order(id=1))
    session.rollback()
    assert ear.received == []


def test_a_rollback_after_a_flush_is_told_and_no_row(session: Session, ear: Ear) -> None:
    session.add(Order(id=1))
    session.flush()
    session.rollback()
    id = one_id(ear)
    assert ear.received == [
        ("session_prepare", id, {"orders_write": [1]}),
        ("session_rollback", id),
    ]
    ear.received.clear()
    session.add(Order(id=2))
    session.commit()
    assert ear.received[0][2] == {"orders_write": [2]}


def test_a_receiver_of_one_factory_hears_nothing_of_another(
    factory: sessionmaker[Session], ear: Ear, tmp_path: Path
) -> None:
    engine = create_engine(f"sqlite:///{tmp_path}/other.sqlite")
    Base.metadata.create_all(engine)
    other = sessionmaker(engine)
    publisher = sqlalchemy_es_pub(other)
    listening = Ear(other)
    with factory() as mine, other() as theirs:
        mine.add(Order(id=1))
        theirs.add(Order(id=2))
        mine.flush()
        theirs.commit()
        mine.commit()
    prepared = [each[2] for each in ear.received if each[0] == "session_prepare"]
    assert prepared == [{"orders_write": [1]}]
    prepared = [each[2] for each in listening.received if each[0] == "session_prepare"]
    assert prepared == [{"orders_write": [2]}]
    listening.close()
    publisher.close()
    engine.dispose()


# Features beyond Meepo.


def test_each_transaction_of_a_long_session_has_an_id_of_its_own(
    session: Session, ear: Ear
) -> None:
    for number in range(3):
        session.add(Order(id=number))
        session.commit()
    assert len({each[1] for each in ear.received if each[0] == "session_commit"}) == 3
    assert "stompkit.session_id" not in session.info


def test_the_changeset_says_whose_it_is(session: Session, ear: Ear) -> None:
    session.add(Order(id=1))
    session.commit()
    assert [each.source.transaction for each in ear.changesets] == [one_id(ear)]


def test_keys_of_several_columns_are_tuples(session: Session, ear: Ear) -> None:
    session.add(Order(id=1))
    session.add(Item(order_id=1, number=2))
    session.commit()
    assert ear.received[0][2] == {"orders_write": [1], "items_write": [(1, 2)]}
    assert ("items_write", (1, 2)) in ear.received


def test_what_is_prepared_is_no_object_of_the_session(session: Session, ear: Ear) -> None:
    session.add(Order(id=1))
    session.flush()
    ((_, _, event),) = ear.received
    session.rollback()
    assert event == {"orders_write": [1]}
    assert [type(key) for keys in event.values() for key in keys] == [int]


def test_what_a_savepoint_takes_back_is_not_prepared_any_more(session: Session, ear: Ear) -> None:
    session.add(Order(id=1))
    session.flush()
    with session.begin_nested() as savepoint:
        session.add(Order(id=2))
        session.flush()
        savepoint.rollback()
    assert ear.received[-1][2] == {"orders_write": [1]}
    session.commit()
    assert [each for each in ear.received if each[0] == "orders_write"] == [("orders_write", 1)]


def test_what_was_all_taken_back_ends_all_the_same(session: Session, ear: Ear) -> None:
    with session.begin_nested() as savepoint:
        session.add(Order(id=2))
        session.flush()
        savepoint.rollback()
    session.commit()
    assert names(ear) == ["session_prepare", "session_prepare", "session_commit"]
    assert ear.received[1][2] == {}
    one_id(ear)


def test_what_a_receiver_of_prepare_raises_aborts_the_transaction(
    session: Session, ear: Ear, factory: sessionmaker[Session]
) -> None:
    def refuse(session: Session, **more: Any) -> None:
        raise OSError("no")

    with signal("session_prepare").connected_to(refuse):
        session.add(Order(id=1))
        with pytest.raises(OSError, match="no"):
            session.commit()
    session.rollback()
    assert "session_commit" not in names(ear)
    with factory() as other:
        assert other.get(Order, 1) is None


def test_what_could_not_be_published_is_told_as_such(session: Session, ear: Ear) -> None:
    def refuse(changeset: Changeset) -> Future[None]:
        raise OSError("no")

    with CHANGESET.connected_to(refuse):
        session.add(Order(id=1))
        session.commit()
    assert ear.received[-1] == ("session_commit", one_id(ear), False)
    assert "stompkit.session_id" not in session.info


def test_what_receivers_of_the_end_raise_stays_there(session: Session, ear: Ear) -> None:
    def refuse(session: Session, **more: Any) -> None:
        raise OSError("no")

    with signal("session_commit").connected_to(refuse):
        session.add(Order(id=1))
        session.commit()
    assert names(ear)[-1] == "session_commit"
    assert "stompkit.session_id" not in session.info
