"""A search index of a table in SQLite: committed rows are in OpenSearch or Elasticsearch.

    python repl_elasticsearch.py http://localhost:9200
    python repl_elasticsearch.py --dry-run

Needs stompkit[replication], and a server unless it is a dry run, which prints bulk requests.
"""

import json
import sys
import tempfile
import time
from decimal import Decimal

from sqlalchemy import create_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, sessionmaker

from stompkit.replication.jobs.feeder import Feeder
from stompkit.replication.sinks.search import SearchSink
from stompkit.replication.sources import sqlalchemy_pub


class Base(DeclarativeBase):
    pass


class Article(Base):
    __tablename__ = "articles"
    id: Mapped[int] = mapped_column(primary_key=True)
    title: Mapped[str]
    price: Mapped[Decimal]


class DryRun:
    """Replacement for a server: stores documents, and prints the requests."""

    def __init__(self):
        self.documents = {}

    def __call__(self, method, path, content_type, body):
        answer = self.get(body) if path == "/_mget" else self.bulk(body.decode())
        return 200, json.dumps(answer).encode()

    def get(self, body):
        docs = json.loads(body)["docs"]
        return {"docs": [self.documents.get(doc["_id"], {"found": False}) for doc in docs]}

    def bulk(self, body):
        print(body, end="")
        lines, items = iter(body.splitlines()), []
        for line in lines:
            ((kind, action),) = json.loads(line).items()
            if kind == "delete":
                self.documents.pop(action["_id"], None)
            else:
                found = {"found": True, "_source": json.loads(next(lines))}
                rest = {"_version": action.get("version", 1), "_seq_no": 0, "_primary_term": 1}
                self.documents[action["_id"]] = {**found, **rest}
            items.append({kind: {"status": 200}})
        return {"items": items}


def work(make_session):
    """Run the program, which does not know of the index."""
    with make_session() as session:
        lamp, desk, vase = (Article(title=each, price=1) for each in ("Lamp", "Desk", "Vase"))
        session.add_all([lamp, desk, vase])
        session.commit()
        desk.price = Decimal("99.50")
        session.delete(vase)
        session.commit()
        lamp.title = "never committed"
        session.flush()
        session.rollback()


def main(url):
    dry_run = url == "--dry-run"
    sink = SearchSink(
        "http://nowhere" if dry_run else url,
        index="repl-{table}",
        # Each run uses different ids, since the keys of its table are the same.
        id=lambda change: f"{run}-{change.key['id']}",
        refresh=not dry_run,
        transport=DryRun() if dry_run else None,
    )
    run = int(time.time())
    with tempfile.TemporaryDirectory() as directory:
        engine = create_engine(f"sqlite:///{directory}/articles.sqlite")
        Base.metadata.create_all(engine)
        make_session = sessionmaker(engine)
        publisher = sqlalchemy_pub(make_session, ["articles"])
        # At the end of the block all committed rows are in the index.
        with Feeder(sink) as feeder:
            work(make_session)
        publisher.close()
        engine.dispose()
    sink.close()
    print(f"{feeder.applied} changesets are in the index")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python repl_elasticsearch.py URL | --dry-run")
    main(sys.argv[1])
