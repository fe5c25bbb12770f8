"""Changes of a SQLite database as signals, and then by an outbox: python tutorial.py."""

import tempfile
from pathlib import Path
from threading import Event, Thread

from sqlalchemy import ForeignKey, create_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, sessionmaker

from stompkit.replication.model.signals import CHANGESET, signal
from stompkit.replication.sources import Outbox, OutboxRelay, sqlalchemy_pub


class Base(DeclarativeBase):
    pass


class Author(Base):
    __tablename__ = "authors"

    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str]


class Book(Base):
    __tablename__ = "books"

    id: Mapped[int] = mapped_column(primary_key=True)
    title: Mapped[str]
    author_id: Mapped[int] = mapped_column(ForeignKey("authors.id"))


def work(sessions):
    """Run some transactions of a program; the last one is rolled back."""
    with sessions.begin() as session:
        author = Author(name="Ursula")
        session.add(author)
        session.flush()
        session.add(Book(title="The Dispossesed", author_id=author.id))
    with sessions.begin() as session:
        session.query(Book).one().title = "The Dispossessed"
    with sessions.begin() as session:
        session.delete(session.query(Book).one())
    with sessions() as session:
        session.add(Author(name="Nobody"))
        session.flush()
        session.rollback()


def show(changeset):
    print(f"changeset {changeset.sequence}")
    for change in changeset.changes:
        print(f"  {change.action} {change.name} {change.key}: {change.before} -> {change.after}")


def by_signals(sessions):
    def title_has_changed(key):
        print(f"book {key} has changed")

    signal("books_update").connect(title_has_changed)
    CHANGESET.connect(show)
    publisher = sqlalchemy_pub(sessions, ["authors", "books"])
    work(sessions)
    publisher.close()
    CHANGESET.disconnect(show)


def by_an_outbox(engine, sessions):
    outbox = Outbox(sessions, ["authors", "books"])
    outbox.create(engine)
    work(sessions)
    outbox.close()

    # Nothing is published yet. A relay publishes it: here to the screen, which confirms at once.
    relay = OutboxRelay(engine, show, origin="tutorial")
    print(f"{relay.status().backlog} changesets wait in the outbox")
    stop = Event()
    thread = Thread(target=relay.run, args=(stop,))
    thread.start()
    while relay.status().backlog:
        stop.wait(0.05)
    stop.set()
    thread.join()


def main():
    with tempfile.TemporaryDirectory() as directory:
        engine = create_engine(f"sqlite:///{Path(directory) / 'books.sqlite'}")
        Base.metadata.create_all(engine)
        sessions = sessionmaker(engine)
        print("By signals:")
        by_signals(sessions)
        print("\nBy an outbox:")
        by_an_outbox(engine, sessions)
        engine.dispose()


if __name__ == "__main__":
    main()
