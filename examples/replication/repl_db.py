"""Replicate one database to another, in one process, and print the changes.

    python examples/replication/repl_db.py [SOURCE_URL TARGET_URL]

Without URLs, both are temporary SQLite files. With URLs, the table ``people`` is created in both;
it must not exist yet.
"""

import sys
import tempfile
from pathlib import Path

from sqlalchemy import String, create_engine, select, update
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, sessionmaker

from stompkit.replication.model.events import Changeset
from stompkit.replication.model.signals import CHANGESET
from stompkit.replication.sinks.sql import SqlSink
from stompkit.replication.sources import sqlalchemy_pub


class Base(DeclarativeBase):
    pass


class Person(Base):
    __tablename__ = "people"

    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(String(50))
    city: Mapped[str | None] = mapped_column(String(50))


def work(sessions: sessionmaker[Session]) -> None:
    """Run the transactions of an application."""
    with sessions.begin() as session:
        session.add(Person(id=1, name="Ada", city="London"))
        session.add(Person(id=2, name="Grace", city=None))
    with sessions.begin() as session:
        session.get_one(Person, 1).id = 10
        session.execute(update(Person).where(Person.city.is_(None)).values(city="Arlington"))
    with sessions() as session:
        session.add(Person(id=3, name="Nobody", city=None))
        session.flush()
        session.rollback()
    with sessions.begin() as session:
        session.add(Person(id=4, name="Edsger", city="Austin"))
        session.delete(session.get_one(Person, 2))


def main(source_url: str, target_url: str) -> bool:
    """Replicate; return True if both are equal at the end."""
    source, target = create_engine(source_url), create_engine(target_url)
    Base.metadata.create_all(source, checkfirst=False)
    Base.metadata.create_all(target, checkfirst=False)
    sink = SqlSink(target)
    sessions = sessionmaker(source)
    publisher = sqlalchemy_pub(sessions, ["people"])

    def replicate(changeset: Changeset) -> None:
        for change in changeset.changes:
            print(f"{changeset.sequence}: {change.action} {change.key} {change.after or ''}")
        sink.apply([changeset])

    with CHANGESET.connected_to(replicate):
        work(sessions)
    publisher.close()

    rows = select(Person.id, Person.name, Person.city).order_by(Person.id)
    with source.connect() as one, target.connect() as other:
        original, copy = one.execute(rows).all(), other.execute(rows).all()
    print("source:", *original)
    print("target:", *copy)
    source.dispose()
    target.dispose()
    return original == copy


if __name__ == "__main__":
    if len(sys.argv) == 3:
        sys.exit(not main(*sys.argv[1:]))
    with tempfile.TemporaryDirectory() as name:
        urls = [f"sqlite:///{Path(name) / file}" for file in ("source.sqlite", "target.sqlite")]
        sys.exit(not main(*urls))
