"""Events of sessions, kept in SQLite or in Redis; and one process that dies on the way.

python event_sourcing.py
python event_sourcing.py --redis redis://localhost/
"""

import argparse
import multiprocessing
import os
import tempfile
from datetime import UTC, datetime
from pathlib import Path

from sqlalchemy import create_engine, event
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, sessionmaker

from stompkit.replication.eventstore import (
    recover,
    redis_es_sub,
    sql_es_sub,
    sqlalchemy_es_pub,
)


class Base(DeclarativeBase):
    pass


class Pizza(Base):
    __tablename__ = "pizzas"
    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str]
    state: Mapped[str] = mapped_column(default="ordered")


def subscribe(factory, directory, redis):
    """Publish the commits of a factory's sessions, and store them."""
    sqlalchemy_es_pub(factory, ["pizzas"])
    if redis:
        return redis_es_sub(factory, ["pizzas"], redis, namespace="pizzeria", history=True)
    # The records of sessions need another file than that of the sessions.
    return sql_es_sub(factory, ["pizzas"], f"sqlite:///{directory}/events.sqlite", history=True)


def die_after_commit(url, directory, redis):
    """Change a pizza; the database has committed that, but it is not published."""
    factory = sessionmaker(create_engine(url))
    event.listen(factory, "after_commit", lambda session: os._exit(1))
    subscribe(factory, directory, redis)
    with factory() as session:
        session.get_one(Pizza, 1).state = "delivered"
        session.commit()


def show(store):
    for action in ("write", "update", "delete"):
        print(f"  pizzas_{action}:", store.replay(f"pizzas_{action}"))


def run(directory, redis):
    url = f"sqlite:///{directory}/pizzas.sqlite"
    engine = create_engine(url)
    Base.metadata.create_all(engine)
    factory = sessionmaker(engine)
    store, prepare_commit = subscribe(factory, directory, redis)

    with factory() as session:
        session.add_all([Pizza(id=1, name="Margherita"), Pizza(id=2, name="Funghi")])
        session.flush()
        print("before the commit there is a note:", prepare_commit.session_info(session))
        session.commit()
        session.get_one(Pizza, 1).state = "in the oven"
        session.delete(session.get_one(Pizza, 2))
        session.commit()
        session.add(Pizza(id=3, name="Hawaii"))
        session.flush()
        session.rollback()
    print("which pizzas have changed:")
    show(store)

    spawn = multiprocessing.get_context("spawn")
    process = spawn.Process(target=die_after_commit, args=(url, directory, redis))
    process.start()
    process.join()
    print("a process has died, and left:", *prepare_commit.prepare_info())
    # In production, leave a minute to processes that may still publish.
    for each in recover(prepare_commit, engine, store=store, older_than_s=0):
        print("recovered:", *(change.after for change in each.changeset.changes))

    print("all that has happened:")
    for time, changeset in store.events(table="pizzas"):
        for change in changeset.changes:
            print(f"  {datetime.fromtimestamp(time, UTC):%H:%M:%S.%f}", end=" ")
            print(change.action, change.key, change.after or "")
    store.close()
    prepare_commit.close()
    engine.dispose()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--redis", metavar="URL", help="keep events there, and not in SQLite")
    with tempfile.TemporaryDirectory() as place:
        run(Path(place), parser.parse_args().redis)
