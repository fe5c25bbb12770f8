"""A cache in Redis of a table in SQLite: worker processes refresh rows that sessions change.

    python repl_redis.py redis://localhost

Needs stompkit[replication], redis, and a Redis server.
"""

import json
import sys
import tempfile
from dataclasses import dataclass
from functools import cache

from redis import Redis
from sqlalchemy import create_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, sessionmaker

from stompkit.replication.sources import sqlalchemy_pub
from stompkit.replication.workers import QueueReplicator


class Base(DeclarativeBase):
    pass


class User(Base):
    __tablename__ = "users"
    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str]


engine = cache(create_engine)
connect = cache(Redis.from_url)


def place(key):
    return f"repl_redis:users:{key}"


@dataclass
class Refresh:
    """The callback of the workers, which get a copy of it: it reads the current row."""

    database: str
    redis: str

    def __call__(self, key):
        with Session(engine(self.database)) as session:
            user = session.get(User, key)
        if user is None:
            connect(self.redis).delete(place(key))
        else:
            connect(self.redis).set(place(key), json.dumps({"name": user.name}))
        return True


def work(make_session):
    """Run the program, which does not know of the cache."""
    with make_session() as session:
        ann, bob, eve = (User(name=name) for name in ("Ann", "Bob", "Eve"))
        session.add_all([ann, bob, eve])
        session.commit()
        bob.name = "Robert"
        session.delete(eve)
        session.commit()
        ann.name = "never committed"
        session.flush()
        session.rollback()


def main(redis_url):
    redis = connect(redis_url)
    with tempfile.TemporaryDirectory() as directory:
        database = f"sqlite:///{directory}/users.sqlite"
        Base.metadata.create_all(engine(database))
        make_session = sessionmaker(engine(database))
        publisher = sqlalchemy_pub(make_session, ["users"])
        replicator = QueueReplicator()
        refresh = Refresh(database, redis_url)
        replicator.event("users_write", "users_update", "users_delete", workers=2)(refresh)
        # At the end of the block all committed rows are in the cache.
        with replicator:
            replicator.connect()
            work(make_session)
        publisher.close()
        engine(database).dispose()
    for key in (1, 2, 3):
        print(place(key), (redis.get(place(key)) or b"(nothing)").decode())


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python repl_redis.py REDIS_URL")
    main(sys.argv[1])
