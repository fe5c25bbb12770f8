"""Change a database in transactions until killed, and resume after a restart.

Run it with ``python -m``. Each transaction adds one event, under the next number, whose text
describes all changes of accounts. The amounts are increments, so that a change that is applied
twice or not at all is detected.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path
from threading import Event as Never
from typing import Final

import msgspec
from sqlalchemy import Engine, create_engine, func, select
from sqlalchemy.event import listen
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, sessionmaker

from stompkit.replication.sources import Outbox

__all__ = ["Account", "Base", "Event", "Step", "accounts_after", "prepare", "url_of"]

_ACCOUNTS: Final = 12
#: One transaction in this many is long, and one in this many is rolled back.
_LONG_EVERY: Final = 40
_LONG: Final = 300_000
_TAKEN_BACK: Final = 0.1


class Base(DeclarativeBase):
    """The tables of source and replica."""


class Event(Base):
    """A transaction and its changes."""

    __tablename__ = "events"
    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    steps: Mapped[str]
    filler: Mapped[str]


class Account(Base):
    """An account: created, increased, decreased and closed."""

    __tablename__ = "accounts"
    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    amount: Mapped[int]
    #: Number of changes since it was created.
    version: Mapped[int]


class Step(msgspec.Struct, array_like=True):
    """A change of an account: the increment; an account is closed by a step without a number."""

    account: int
    more: int | None


_STEPS: Final = msgspec.json.Decoder(list[Step])


def url_of(path: Path) -> str:
    """Return the URL of a database in a file."""
    return f"sqlite:///{path}"


def prepare(engine: Engine) -> None:
    """Create the tables of a source, including those of its outbox."""
    Base.metadata.create_all(engine)
    sessions = sessionmaker(engine)
    outbox = Outbox(sessions)
    outbox.create(engine)
    outbox.close()


def accounts_after(accounts: dict[int, tuple[int, int]], steps: str) -> dict[int, tuple[int, int]]:
    """Return the amounts and versions of accounts after an event."""
    accounts = dict(accounts)
    for step in _STEPS.decode(steps):
        if step.more is None:
            del accounts[step.account]
        elif step.account in accounts:
            amount, version = accounts[step.account]
            accounts[step.account] = amount + step.more, version + 1
        else:
            accounts[step.account] = step.more, 0
    return accounts


def main() -> None:
    """Run transactions until this many exist."""
    path, seed, count, pause_ms = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    engine = create_engine(path, connect_args={"timeout": 60})
    # Its machine does not lose its power, so synchronous writes are not needed.
    listen(engine, "connect", lambda connection, _: connection.execute("PRAGMA synchronous = OFF"))
    sessions = sessionmaker(engine)
    outbox = Outbox(sessions)
    never = Never()
    with sessions() as session:
        done = session.scalar(select(func.max(Event.id))) or 0
    # Use another random sequence than before the kill.
    chance = random.Random(f"{seed} {done}")
    while done < count:
        with sessions() as session:
            _transaction(session, done + 1, chance)
            if chance.random() < _TAKEN_BACK:
                session.rollback()
            else:
                session.commit()
                done += 1
        # A writer without pauses would lock out other users of SQLite.
        never.wait(pause_ms / 1000)
    outbox.close()


def _transaction(session: Session, number: int, chance: random.Random) -> None:
    steps = []
    for account in chance.sample(range(_ACCOUNTS), chance.choice((1, 2, 2, 5))):
        row = session.get(Account, account)
        more = chance.randint(-1_000, 1_000)
        if row is None:
            session.add(Account(id=account, amount=more, version=0))
        elif chance.random() < 0.1:
            session.delete(row)
            steps.append(Step(account, None))
            continue
        else:
            row.amount += more
            row.version += 1
        steps.append(Step(account, more))
        if chance.random() < 0.3:
            session.flush()
    size = _LONG if chance.randrange(_LONG_EVERY) == 0 else chance.randint(0, 99)
    filler = chance.choice("abcdefgh") * size
    session.add(Event(id=number, steps=msgspec.json.encode(steps).decode(), filler=filler))


if __name__ == "__main__":
    main()
