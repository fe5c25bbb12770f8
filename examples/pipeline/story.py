"""A shop, its replica and its past: an application, a broker, and Spark.

python examples/pipeline/story.py

An SQLAlchemy application writes to SQLite. Its outbox publishes each committed transaction to a
broker, and a spool receives it. Two jobs on Spark apply the changes: one to a second database, one
to an event store. At the end the event store rebuilds the shop as it was after each step.
"""

import argparse
import logging
import tempfile
import threading
import time
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from sqlalchemy import ForeignKey, create_engine, select
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, sessionmaker

from stompkit.replication.sinks.forwarders import stomp_sub
from stompkit.replication.sources import Outbox, OutboxRelay
from stompkit.spark import spark_session
from stompkit.spark.eventstore import SparkEventStore
from stompkit.spark.jobs import Pipeline, load
from stompkit.spark.jobs.rebuild import rebuild
from stompkit.testing import LaunchConfig, launch

PATIENCE_S = 120.0
OPENING = """\
An application writes to a database. Its changes go through a broker and Spark to a copy of the
database, and to an event store, which counts changesets.
"""
CLOSING = """
Try next:
    stompkit pipeline --help
    docs/howto/pipeline.rst          # pipelines from PostgreSQL, MariaDB and MySQL, step by step
    docs/howto/pipeline-cluster.rst  # on a cluster"""
FILE = """
name = "shop"
state_dir = "{folder}/state"
trigger = "100ms"

[source]
spool = "{folder}/spool"
hosts = "{broker.host}:{broker.port}"
destination = "/queue/shop"

[target]
url = "sqlite:///{folder}/replica.sqlite"

[events]
path = "{folder}/events"
history = true
"""


class Base(DeclarativeBase):
    pass


class Customer(Base):
    __tablename__ = "customers"
    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str]


class Order(Base):
    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True)
    customer_id: Mapped[int] = mapped_column(ForeignKey("customers.id"))
    state: Mapped[str] = mapped_column(default="new")
    cents: Mapped[int]


# The application.


def open_shop(session: Session) -> None:
    for number, name in enumerate(("Ada", "Grace", "Edsger", "Barbara"), 1):
        session.add(Customer(id=number, name=name))
    session.commit()
    for number in range(1, 201):
        session.add(Order(id=number, customer_id=1 + number % 4, cents=100 * number))
        if number % 10 == 0:
            session.commit()


def pay(session: Session) -> None:
    for order in session.scalars(select(Order).where(Order.id <= 150)):
        order.state = "paid"
        if order.id % 10 == 0:
            session.commit()


def clear_out(session: Session) -> None:
    for order in session.scalars(select(Order).where(Order.id > 150)):
        session.delete(order)
    session.get_one(Customer, 3).name = "Dijkstra"
    session.commit()


ACTS = (("the shop opens", open_shop), ("150 orders are paid", pay), ("50 are given up", clear_out))


def rows(engine):
    """Return all rows of both tables."""
    with engine.connect() as connection:
        return {
            table.name: sorted(map(tuple, connection.execute(select(table))))
            for table in Base.metadata.sorted_tables
        }


def has_rows(engine, picture):
    """Return True if both tables have these rows."""
    return rows(engine) == picture


# The transport.


@contextmanager
def in_thread(run, stop):
    """Run a function in a thread during the block."""
    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stop()
        thread.join()


def wait_for(condition, jobs):
    """Wait for a condition, as long as the jobs run."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        failed = [job.job for job in jobs if job.progress().phase == "failed"]
        if failed:
            raise SystemExit(f"failed: {', '.join(failed)}")
        if time.monotonic() > deadline:
            raise SystemExit("the rows did not arrive in time")
        time.sleep(0.05)


LINE = "{:<24}{:>10}{:>10}{:>12}{:>10}"


def act_and_follow(factory, databases, store, jobs):
    """Run the actions of the application, and wait for their arrival; return rows after each."""
    engine, replica = databases
    pictures = []
    print(OPENING)
    print(LINE.format("transaction", "source", "copy", "changesets", "seconds"))
    for title, act in ACTS:
        begun = time.monotonic()
        with factory() as session:
            act(session)
        picture = rows(engine)
        wait_for(partial(has_rows, replica, picture), jobs)
        took = time.monotonic() - begun
        # The event store has a separate job, which may be behind.
        wait_for(lambda: jobs[0].progress().changes == jobs[1].progress().changes, jobs)
        pictures.append((title, datetime.now(UTC), picture))
        counts = [sum(map(len, rows(each).values())) for each in (engine, replica)]
        stored = sum(1 for _ in store.events())
        print(LINE.format(title, *counts, stored, f"{took:.1f}"), flush=True)
    return pictures


def look_back(folder, settings, pictures):
    """Rebuild the shop as it was at each time, and compare."""
    print("\nThe event store rebuilds the database as it was after each transaction.\n")
    print(f"{'rebuilt as of':<24}{'changes':>10}{'rows':>10}{'correct':>12}")
    for number, (title, moment, picture) in enumerate(pictures):
        url = f"sqlite:///{folder}/then-{number}.sqlite"
        then = create_engine(url)
        Base.metadata.create_all(then)
        rebuilt = rebuild(settings, at=moment, url=url)
        is_same = "yes" if has_rows(then, picture) else "no"
        count = sum(rebuilt.rows.values())
        print(f"{title:<24}{rebuilt.changes:>10}{count:>10}{is_same:>12}", flush=True)
        if is_same == "no":
            raise SystemExit(f"the rebuilt database differs from the source as of: {title}")
    print(CLOSING)


def run(folder):
    """Tell the story."""
    databases = [create_engine(f"sqlite:///{folder}/{name}.sqlite") for name in ("shop", "replica")]
    for each in databases:
        Base.metadata.create_all(each)
    factory = sessionmaker(databases[0])
    outbox = Outbox(factory, ["customers", "orders"])
    outbox.create(databases[0])
    store = SparkEventStore(folder / "events", history=True)
    with ExitStack() as stack:
        broker = stack.enter_context(launch(LaunchConfig()))
        (folder / "shop.toml").write_text(FILE.format(folder=folder, broker=broker))
        settings = load(folder / "shop.toml")
        stop = threading.Event()
        sub = stack.enter_context(stomp_sub(f"{broker.url}/queue/shop"))
        relay = OutboxRelay(databases[0], sub)
        stack.enter_context(in_thread(lambda: relay.run(stop), stop.set))
        spark = spark_session("story", master="local[2]", profile="test")
        stack.callback(spark.stop)
        jobs = [Pipeline(settings, job, spark=spark) for job in ("replicate", "events")]
        for job in jobs:
            stack.enter_context(in_thread(job.run, job.stop))
        pictures = act_and_follow(factory, databases, store, jobs)
    look_back(folder, settings, pictures)


if __name__ == "__main__":
    argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    ).parse_args()
    logging.basicConfig(level=logging.ERROR)
    with tempfile.TemporaryDirectory(prefix="stompkit-story-") as directory:
        run(Path(directory))
