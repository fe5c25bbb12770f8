"""The first minute with stompkit: a broker, its conformance, and a replicated database.

    python examples/demo.py [--report DIRECTORY]

The demo starts a broker with its web console, runs the conformance suite on it, and replicates a
SQLite database through it to a second one. It needs no other server, and removes its data.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import create_engine, select
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, sessionmaker

from stompkit.replication.sources import Outbox
from stompkit.testing import LaunchConfig, launch

LONGEST_S = 60.0
BIN = Path(sys.executable).parent
LINE = "{:<32}{:>12}{:>12}{:>10}"


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True)
    customer: Mapped[str]
    state: Mapped[str] = mapped_column(default="new")


def title(text):
    print(f"\n== {text}", flush=True)


# The conformance suite.


def test_conformance(address, report):
    """Run the conformance suite; return its exit status."""
    report.mkdir(parents=True, exist_ok=True)
    return subprocess.run(
        [
            *(sys.executable, "-m", "stompkit.conformance", "--mq", address),
            *(
                "--exclude",
                "failover",
                "--quiet-time",
                "0.1",
                "--html",
                str(report / "conformance.html"),
            ),
            *("--json", str(report / "conformance.json")),
        ],
        check=False,
    ).returncode


# The replication.


def take_orders(session):
    """Insert 100 orders."""
    session.add_all(Order(id=number, customer=f"customer {number % 7}") for number in range(1, 101))


def pay_orders(session):
    """Update every third order."""
    for order in session.scalars(select(Order).where(Order.id % 3 == 0)):
        order.state = "paid"


def delete_orders(session):
    """Delete the orders of a customer."""
    for order in session.scalars(select(Order).where(Order.customer == "customer 0")):
        session.delete(order)


ACTS = (
    ("insert 100 orders", take_orders),
    ("update every third order", pay_orders),
    ("delete a customer's orders", delete_orders),
)


@contextmanager
def replicating(*arguments):
    """Run ``stompkit replicate`` during the block."""
    command = [str(BIN / "stompkit"), "replicate", *arguments]
    print(" ".join(["stompkit", *command[1:]]), flush=True)
    process = subprocess.Popen([*command, "--quiet"])
    try:
        yield
    finally:
        process.terminate()
        process.wait()


def rows(engine):
    """Return the rows of the table of orders."""
    with engine.connect() as connection:
        return connection.execute(select(Order.__table__).order_by(Order.id)).all()


def wait_until_equal(source, target):
    """Wait until both databases have the same rows; return the time in seconds."""
    begun = time.monotonic()
    while rows(source) != rows(target):
        if time.monotonic() - begun > LONGEST_S:
            raise SystemExit(f"the second database is still different after {LONGEST_S:.0f} s")
        time.sleep(0.02)
    return time.monotonic() - begun


def act(source, target, sessions):
    """Run the transactions of the application, and compare the databases after each."""
    print()
    print(LINE.format("transaction", "source", "copy", "seconds"))
    for name, change in ACTS:
        with sessions.begin() as session:
            change(session)
        took = wait_until_equal(source, target)
        print(LINE.format(name, len(rows(source)), len(rows(target)), f"{took:.2f}"), flush=True)


def replicate(broker, folder):
    """Replicate one database to another through the broker."""
    urls = [f"sqlite:///{folder}/{name}.sqlite" for name in ("shop", "copy")]
    source, target = map(create_engine, urls)
    # An outbox does not report the columns of its tables, so the target has to have them.
    for engine in (source, target):
        Base.metadata.create_all(engine)
    sessions = sessionmaker(source)
    outbox = Outbox(sessions, ["orders"])
    outbox.create(source)
    queue = f"stomp://{broker.host}:{broker.port}/queue/shop"
    state = ("--state-dir", f"{folder}/state")
    with (
        replicating("--from", queue, "--to", urls[1], *state),
        replicating("--from", f"outbox+{urls[0]}", "--to", queue, *state),
    ):
        act(source, target, sessions)
    outbox.close()


def main():
    """Run the demo; return the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--report", type=Path, default=Path("report"), help="folder for the reports: report"
    )
    report = parser.parse_args().report
    title("A broker")
    with launch(LaunchConfig(admin=True)) as broker:
        print(f"STOMP    {broker.url}")
        print(f"Console  {broker.admin_url}/  (open it in a browser while the demo runs)")
        title("Does it conform to STOMP 1.0, 1.1 and 1.2?")
        status = test_conformance(f"{broker.host}:{broker.port}", report)
        if status:
            return status
        title("A database, replicated through the broker")
        with tempfile.TemporaryDirectory(prefix="stompkit-demo-") as folder:
            replicate(broker, folder)
    title("What you have seen")
    print(f"""A broker passed the conformance suite. Then a database was replicated through it.
All cases, with the frames on the wire: {report / "conformance.html"}

Try next:
    {BIN / "stompkit"} serve --data /tmp/broker --admin tcp:15613:interface=127.0.0.1
    {BIN / "python"} -m stompkit.conformance --mq HOST:PORT        # your own server
    {BIN / "python"} -m pytest examples/testing/test_faults.py     # a broker in your tests""")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
