"""Commits whose outcome the program does not know."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, create_engine, text
from sqlalchemy.exc import DBAPIError, IntegrityError
from sqlalchemy.orm import Session, sessionmaker

from stompkit.replication.eventstore import recover, sql_es_sub, sqlalchemy_es_pub
from stompkit.replication.model.signals import signal
from tests.replication.eventstore.shop import Base, Order
from tests.server.stores.tcp_proxy import Cut, Proxy
from tests.servers import SqlServer

__all__: list[str] = []


class Shop:
    """Sessions in a database behind a proxy, and their events."""

    def __init__(self, proxy: Proxy, direct: Engine, far: Engine, folder: Path) -> None:
        """Watch the sessions."""
        self.proxy = proxy
        self.direct = direct
        self.sessions = sessionmaker(far)
        self.publisher = sqlalchemy_es_pub(self.sessions, ["orders"])
        self.store, self.notes = sql_es_sub(
            self.sessions, ["orders"], f"sqlite:///{folder}/events.sqlite", True, history=True
        )
        self.ends: list[str] = []
        self._receivers: dict[str, Any] = {}
        for name in ("session_commit", "session_rollback", "session_unknown"):
            self._receivers[name] = lambda _, name=name: self.ends.append(name)
            signal(name).connect(self._receivers[name])

    def rows(self) -> list[int]:
        """Return the keys of the orders in the database."""
        with self.direct.connect() as connection:
            return list(connection.scalars(text("SELECT id FROM orders ORDER BY id")))

    def recover(self) -> None:
        """Recover all that is stuck, in the process that is still running."""
        done = recover(self.notes, self.direct, store=self.store, older_than_s=0)
        assert [each.problem for each in done] == [""] * len(done)
        assert self.notes.prepare_info() == set()

    def close(self) -> None:
        """Stop watching."""
        for name, receiver in self._receivers.items():
            signal(name).disconnect(receiver)
        self.publisher.close()
        self.store.close()
        self.notes.close()


@pytest.fixture(params=["postgresql", "mariadb"])
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shop]:
    server: SqlServer = request.getfixturevalue(request.param)
    name = server.new_database()
    proxy = Proxy(server.socket)
    direct = create_engine(server.url(name))
    far = create_engine(server.url(name, proxy.address))
    Base.metadata.create_all(direct)
    made = Shop(proxy, direct, far, tmp_path)
    yield made
    made.close()
    far.dispose()
    direct.dispose()
    proxy.close()


def end(session: Session, how: str) -> None:
    """End a session after its commit has failed, as programs do."""
    if how == "rollback":
        session.rollback()
    session.close()


@pytest.mark.parametrize("how", ["rollback", "close"])
@pytest.mark.parametrize(("cut", "committed"), [(Cut.AFTER, [7]), (Cut.BEFORE, [])])
def test_what_a_lost_commit_has_changed_is_recovered(
    shop: Shop, cut: Cut, committed: list[int], how: str
) -> None:
    session = shop.sessions()
    session.add(Order(id=7))
    session.flush()
    shop.proxy.cut_at(b"COMMIT", cut)
    with pytest.raises(DBAPIError):
        session.commit()
    end(session, how)
    assert shop.rows() == committed
    assert shop.ends == ["session_unknown"]
    assert len(shop.notes.prepare_info()) == 1
    shop.recover()
    assert shop.store.replay("orders_write") == committed
    assert [change.key for _, each in shop.store.events() for change in each.changes] == [
        {"id": key} for key in committed
    ]


@pytest.mark.parametrize("shop", ["postgresql"], indirect=True)
def test_a_commit_that_the_database_refuses_is_rolled_back(shop: Shop) -> None:
    with shop.direct.begin() as connection:
        connection.execute(
            text("ALTER TABLE orders ADD CONSTRAINT u UNIQUE (note) DEFERRABLE INITIALLY DEFERRED")
        )
    for _ in range(2):
        with suppress(IntegrityError), shop.sessions.begin() as session:
            session.add_all([Order(id=1, note="same"), Order(id=2, note="same")])
            session.flush()
    assert shop.rows() == []
    assert shop.ends == ["session_rollback"] * 2
    assert shop.notes.prepare_info() == set()
    with shop.sessions.begin() as session:
        session.add(Order(id=3))
    assert shop.ends[2:] == ["session_commit"]
    assert shop.store.replay("orders_write") == [3]
