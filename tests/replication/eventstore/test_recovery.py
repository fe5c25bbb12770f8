"""The remains of processes that died between the commit and the publication."""

from __future__ import annotations

import enum
import signal as signals
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import Engine, MetaData, String, TypeDecorator, create_engine, inspect
from sqlalchemy.orm import (
    DeclarativeBase,
    Mapped,
    Session,
    mapped_column,
    scoped_session,
    sessionmaker,
)

from stompkit.replication.eventstore import (
    EventStore,
    PrepareCommit,
    es_sub,
    recover,
    sqlalchemy_es_pub,
)
from stompkit.replication.model.events import Changeset, RowChange
from stompkit.replication.model.signals import CHANGESET
from stompkit.replication.model.tables import Tables
from tests.replication.eventstore import crashing
from tests.replication.eventstore.conftest import MakePrepareCommit, MakeStore
from tests.replication.eventstore.shop import Base, Item, Order
from tests.servers import SqlServer


@dataclass
class Scene:
    """A database, its events and the records of its sessions."""

    url: str
    data: Engine
    prepare_commit: PrepareCommit
    store: EventStore
    make_prepare_commit: MakePrepareCommit

    def crash(self, moment: str) -> None:
        """Run a process that dies at that moment."""
        data_url = self.data.url.render_as_string(hide_password=False)
        result = subprocess.run(
            [sys.executable, "-m", crashing.__name__, self.url, data_url, moment],
            cwd=Path(__file__).parents[3],
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
        assert result.returncode == -signals.SIGKILL, result.stderr

    def recover(self, **more: Any) -> list[Changeset]:
        """Recover the transactions; return the published changesets."""
        published: list[Changeset] = []
        done = recover(
            self.prepare_commit, self.data, publish=published.append, older_than_s=0, **more
        )
        assert [each.problem for each in done] == [""] * len(done)
        assert [each.changeset for each in done if each.changeset is not None] == published
        return published


@pytest.fixture
def scene(
    kind: str,
    place: str | Engine,
    make_store: MakeStore,
    make_prepare_commit: MakePrepareCommit,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    database: Callable[[SqlServer], str],
) -> Iterator[Scene]:
    """A scene with two orders. SQL servers also have the data; SQLite has another file."""
    is_server = kind in ("postgresql", "mariadb")
    url = place if isinstance(place, str) else place.url.render_as_string(hide_password=False)
    data = create_engine(url if is_server else f"sqlite:///{tmp_path}/data.sqlite")
    Base.metadata.drop_all(data)
    Base.metadata.create_all(data)
    with Session(data) as session:
        session.add_all([Order(id=1, note="old"), Order(id=2)])
        session.commit()
    yield Scene(url, data, make_prepare_commit(), make_store(history=True), make_prepare_commit)
    Base.metadata.drop_all(data)
    data.dispose()


ALL_OF_IT = [
    RowChange(table="orders", action="update", key={"id": 1}, after={"id": 1, "note": "changed"}),
    RowChange(table="orders", action="write", key={"id": 10}, after={"id": 10, "note": "new"}),
    RowChange(table="orders", action="delete", key={"id": 2}),
    RowChange(
        table="items",
        action="write",
        key={"order_id": 10, "number": 7},
        after={"order_id": 10, "number": 7, "note": "of it"},
    ),
]


def in_order(changes: Any) -> list[RowChange]:
    return sorted(changes, key=lambda each: (each.table == "items", each.action, each.identity))


@pytest.mark.parametrize("moment", [each for each in crashing.MOMENTS if each != "before commit"])
def test_what_was_committed_is_published_after_a_crash(scene: Scene, moment: str) -> None:
    scene.crash(moment)
    (id,) = scene.prepare_commit.prepare_info()
    (changeset,) = scene.recover(store=scene.store)
    assert in_order(changeset.changes) == in_order(ALL_OF_IT)
    assert changeset.source.transaction == id
    assert scene.store.replay("orders_write") == [10]
    assert scene.store.replay("orders_update") == [1]
    assert scene.store.replay("orders_delete") == [2]
    assert scene.store.replay("items_write") == [(10, 7)]
    assert changeset in [each for _, each in scene.store.events()]
    assert scene.prepare_commit.prepare_info() == set()
    assert scene.recover() == []


def test_of_what_was_not_committed_only_what_is_there_is_published(scene: Scene) -> None:
    scene.crash("before commit")
    (changeset,) = scene.recover()
    # The row that it wanted to update is published as it is, since its change is unknown.
    as_it_was = {"id": 1, "note": "old"}
    assert changeset.changes == (
        RowChange(table="orders", action="update", key={"id": 1}, after=as_it_was),
    )
    assert scene.prepare_commit.prepare_info() == set()


def note(scene: Scene, event: dict[str, list[Any]], id: str = "a") -> None:
    """Record a committed session that another process has to recover."""
    scene.prepare_commit.prepare(id, event)
    scene.prepare_commit.commit(id, published=False)


@pytest.mark.parametrize(
    ("event", "action"),
    [
        ({"orders_write": [1]}, "write"),
        ({"orders_update": [1]}, "update"),
        ({"orders_delete": [1]}, None),
        ({"orders_delete": [1], "orders_write": [1]}, "write"),
        ({"orders_write": [9]}, None),
        ({"orders_update": [9]}, "delete"),
        ({"orders_delete": [9]}, "delete"),
        ({"orders_write": [9], "orders_delete": [9]}, "delete"),
    ],
)
def test_what_is_published_follows_from_what_is_there(
    scene: Scene, event: dict[str, list[Any]], action: str | None
) -> None:
    note(scene, event)
    published = [change.action for each in scene.recover() for change in each.changes]
    assert published == ([] if action is None else [action])
    assert scene.prepare_commit.prepare_info() == set()


def test_two_processes_do_not_recover_the_same(scene: Scene) -> None:
    note(scene, {"orders_update": [1]}, "a")
    note(scene, {"orders_update": [2]}, "b")
    other = scene.make_prepare_commit()
    published: list[str] = []

    def publish(changeset: Changeset) -> None:
        published.append(changeset.source.transaction)
        # While the first recovers, the second takes the rest.
        recover(other, scene.data, publish=publish, older_than_s=0)

    done = recover(scene.prepare_commit, scene.data, publish=publish, older_than_s=0)
    assert sorted(published) == ["a", "b"]
    assert [each.prepared.id for each in done] == ["a"]


def test_what_fails_is_tried_again_the_next_time(scene: Scene) -> None:
    note(scene, {"orders_update": [1]})
    note(scene, {"orders_update": [2]}, "b")
    published: list[Changeset] = []

    def refuse_one(changeset: Changeset) -> None:
        if changeset.source.transaction == "a":
            raise OSError("the broker is away")
        published.append(changeset)

    done = recover(scene.prepare_commit, scene.data, publish=refuse_one, older_than_s=0)
    problems = {each.prepared.id: each.problem for each in done}
    assert problems == {"a": "the broker is away", "b": ""}
    assert scene.prepare_commit.prepare_info() == {"a"}
    assert len(scene.recover()) == 1
    assert scene.prepare_commit.prepare_info() == set()


def test_a_table_that_is_not_there_is_a_problem(scene: Scene) -> None:
    note(scene, {"carts_update": [1]})
    (done,) = recover(scene.prepare_commit, scene.data, older_than_s=0)
    assert "carts" in done.problem
    assert scene.prepare_commit.prepare_info() == {"a"}


def test_a_key_that_does_not_fit_is_a_problem(scene: Scene) -> None:
    note(scene, {"items_update": [1]})
    (done,) = recover(scene.prepare_commit, scene.data, older_than_s=0)
    assert "the key of items" in done.problem


def test_young_notes_are_left_alone(scene: Scene) -> None:
    note(scene, {"orders_update": [1]})
    assert recover(scene.prepare_commit, scene.data, older_than_s=1000) == []
    assert scene.prepare_commit.prepare_info() == {"a"}


def test_changesets_are_sent_by_signals_where_nothing_else_is_said(scene: Scene) -> None:
    note(scene, {"orders_update": [1]})
    received: list[Changeset] = []
    with CHANGESET.connected_to(received.append):
        recover(scene.prepare_commit, scene.data, older_than_s=0)
    assert [each.source.transaction for each in received] == ["a"]


def test_rows_are_masked_as_they_would_have_been(scene: Scene) -> None:
    note(scene, {"orders_update": [1], "items_delete": [(1, 1)]})
    tables = Tables(["orders"], masks={"orders.note": "constant:***"})
    (changeset,) = scene.recover(tables=tables)
    assert [each.after for each in changeset.changes] == [{"id": 1, "note": "***"}]


def test_changes_name_the_schema_of_their_table(scene: Scene) -> None:
    schema = inspect(scene.data).default_schema_name
    assert schema
    note(scene, {f"{schema}.orders_update": [1, 9]})
    (changeset,) = scene.recover()
    found = sorted((each.action, each.schema) for each in changeset.changes)
    assert found == [("delete", schema), ("update", schema)]


@pytest.mark.parametrize("metadata", [None, Base.metadata])
@pytest.mark.parametrize("wrap", [sessionmaker, lambda data: scoped_session(sessionmaker(data))])
def test_rows_are_read_by_what_makes_sessions(
    scene: Scene, wrap: Callable[[Engine], Any], metadata: MetaData | None
) -> None:
    with Session(scene.data) as session:
        session.add(Item(order_id=1, number=3, note="x"))
        session.commit()
    note(scene, {"items_write": [(1, 3)]})
    published: list[Changeset] = []
    recover(
        scene.prepare_commit,
        wrap(scene.data),
        publish=published.append,
        metadata=metadata,
        older_than_s=0,
    )
    (changeset,) = published
    assert [each.key for each in changeset.changes] == [{"order_id": 1, "number": 3}]


# Types unknown to the database.


class Upper(TypeDecorator[str]):
    """Text that the database has in capitals."""

    impl = String(20)
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Any) -> str | None:
        """Return the value for the database."""
        return None if value is None else value.upper() + "!"

    def process_result_value(self, value: str | None, dialect: Any) -> str | None:
        """Return the value for the program."""
        return None if value is None else value.removesuffix("!").lower()


class Size(enum.Enum):
    """The size of a pizza."""

    SMALL = 26
    LARGE = 32


class Other(DeclarativeBase):
    """Base of separate tables."""


class Pizza(Other):
    """A table with keys of unusual types."""

    __tablename__ = "pizzas"
    code: Mapped[str] = mapped_column(Upper, primary_key=True)
    id: Mapped[UUID] = mapped_column(primary_key=True)
    size: Mapped[Size]


def test_rows_are_found_by_keys_of_any_type(scene: Scene) -> None:
    Other.metadata.drop_all(scene.data)
    Other.metadata.create_all(scene.data)
    factory = sessionmaker(scene.data)
    publisher = sqlalchemy_es_pub(factory)
    received: list[Changeset] = []
    store = scene.store
    es_sub(store, scene.prepare_commit, factory, ["pizzas"])

    def refuse(changeset: Changeset) -> None:
        received.append(changeset)
        raise OSError("the broker is away")

    with CHANGESET.connected_to(refuse), factory() as session:
        session.add(Pizza(code="abc", id=UUID(int=7), size=Size.LARGE))
        session.commit()
    publisher.close()
    (changeset,) = scene.recover(metadata=Other.metadata)
    # It is published as without the crash.
    assert changeset.changes == received[0].changes
    assert changeset.changes[0].key == {"code": "ABC!", "id": UUID(int=7)}
    Other.metadata.drop_all(scene.data)
