"""The commands on the pages about pipelines have the results shown there."""

from __future__ import annotations

import os
import re
import shlex
import sqlite3
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from docutils import nodes
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from stompkit.replication.model.frames import packets
from stompkit.spark.eventstore import SparkEventStore
from stompkit.spark.jobs import Pipeline, load
from stompkit.spool import SpoolError, SpoolReader
from stompkit.testing import RunningBroker
from stompkit.testing.launching.polling import wait_until
from tests.documentation.pages import ROOT, section, tree
from tests.replication.brokers import connect
from tests.spark.jobs.test_jobs import order, orders
from tests.spark.messages import BEGIN, fill

pytestmark = pytest.mark.matrix

LONG_S: Final = 300.0
COUNT: Final = 20
#: The page with the first pipeline, and the pages with further tasks.
PAGE: Final = "docs/howto/pipeline.rst"
PAGES: Final = (PAGE, "docs/howto/pipeline-maintenance.rst", "docs/howto/spark-queries.rst")


def first_blocks() -> list[nodes.literal_block]:
    """Return the blocks of the section about the first pipeline."""
    return list(section(PAGE, "first-pipeline").findall(nodes.literal_block))


class Page:
    """The blocks of the pages, with the places and brokers replaced by those of this test.

    Those about the first pipeline are not among them.
    """

    def __init__(self, broker: RunningBroker, folder: Path) -> None:
        """Read the pages."""
        address = f"{broker.host}:{broker.port}"
        others = {
            "mq1:61613,mq2:61613": address,
            "mq:61613": address,
            "/var/": f"{folder}/var/",
            "postgresql://me@db2/shop": f"sqlite:///{folder}/applied.db",
            "shop.toml": f"{folder}/shop.toml",
        }
        self.blocks: list[str] = []
        first = first_blocks()
        blocks = [block for page in PAGES for block in tree(page).findall(nodes.literal_block)]
        for block in blocks:
            if block in first:
                continue
            text = block.astext()
            for theirs, ours in others.items():
                text = text.replace(theirs, ours)
            self.blocks.append(text)

    def block(self, begin: str) -> str:
        """Return the one block with this beginning."""
        (found,) = [each for each in self.blocks if each.startswith(begin)]
        return found

    def command(self, begin: str) -> list[str]:
        """Return the one command with this beginning, as words."""
        lines = [line for block in self.blocks for line in block.splitlines()]
        (found,) = {line for line in lines if line.startswith(begin)}
        return [sys.executable, "-m", *found.split()]


@pytest.fixture
def page(stomp_broker: RunningBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Page:
    """The page, its file and its output folder."""
    page = Page(stomp_broker, tmp_path)
    text = page.block('name = "shop"').replace('["orders", "customers"]', '["orders"]')
    text = text.replace('name = "shop"', f'name = "shop"\nstate-dir = "{tmp_path}/state"', 1)
    (tmp_path / "shop.toml").write_text(f"{text}\n{page.block('[analytics]')}\n")
    (tmp_path / "var/www").mkdir(parents=True)
    monkeypatch.setenv("SHOP_COPY", f"sqlite:///{tmp_path}/copy.db")
    return page


@contextmanager
def running(
    command: list[str], folder: Path | None = None, environment: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a command until the end of the block."""
    with subprocess.Popen(command, cwd=folder, env=environment) as process:
        try:
            yield process
        finally:
            process.terminate()
            assert process.wait(LONG_S) == 0


def publish(broker: RunningBroker, first: int, end: int) -> None:
    """Send changesets as a publisher does."""
    with connect(broker) as link:
        made = [packet for number in range(first, end) for packet in packets(order(number))]
        link.send("/queue/changes", made).result(LONG_S)


def received(folder: Path) -> int:
    """Return the number of messages in a spool."""
    try:
        return sum(SpoolReader(folder).head())
    except SpoolError:
        return 0


def copied(path: Path) -> list[tuple[Any, ...]]:
    """Return the rows of a copy; empty if it does not exist."""
    if not path.exists():
        return []
    with closing(sqlite3.connect(path, timeout=30)) as connection:
        try:
            return connection.execute("SELECT id, seen FROM orders ORDER BY id").fetchall()
        except sqlite3.OperationalError:
            return []


def test_the_first_pipeline_of_the_page_copies_the_table(
    stomp_broker: RunningBroker, tmp_path: Path
) -> None:
    texts = [block.astext() for block in first_blocks()]
    for begin, name in (("from sqlalchemy", "shop.py"), ('name = "first"', "first.toml")):
        (text,) = [each for each in texts if each.startswith(begin)]
        (tmp_path / name).write_text(f"{text}\n")
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
        "XDG_STATE_HOME": str(tmp_path / "xdg"),
    }
    lines = [line for text in texts for line in text.splitlines()]
    broker = f"stomp://{stomp_broker.host}:{stomp_broker.port}/"
    typed = [line for line in lines if line.startswith(("stompkit ", "python "))]
    typed.remove("stompkit serve")
    commands = []
    for line in typed:
        program, *words = shlex.split(line.replace("stomp://localhost/", broker))
        module = ["-m", program] if program == "stompkit" else []
        commands.append([sys.executable, *module, *words])
    receive, *others, show = commands
    with running(receive, tmp_path, environment):
        for command in others:
            if "pipeline" in command:
                assert wait_until(lambda: received(tmp_path / "spool") == 1, LONG_S)
            subprocess.run(command, cwd=tmp_path, env=environment, check=True)
    shown = subprocess.run(show, cwd=tmp_path, check=True, capture_output=True, text=True)
    assert shown.stdout == f"{lines[-1]}\n"
    assert shown.stdout.count("(") == 2


def test_commands_and_file_of_the_page_do_what_it_says(
    page: Page, stomp_broker: RunningBroker, tmp_path: Path
) -> None:
    rows = [(number, number) for number in range(COUNT)]
    with running(page.command("stompkit spool run")):
        publish(stomp_broker, 0, COUNT)
        assert wait_until(lambda: any((tmp_path / "var/spool/shop").rglob("*.log")), LONG_S)
        subprocess.run(page.command("stompkit pipeline check"), check=True)
        with running(page.command("stompkit pipeline run replicate")):
            assert wait_until(lambda: copied(tmp_path / "copy.db") == rows, LONG_S)
    run = [*page.command("stompkit pipeline run replicate"), "--once"]
    for job in ("events", "analytics"):
        subprocess.run([job if word == "replicate" else word for word in run], check=True)
    subprocess.run(page.command("stompkit pipeline run compact"), check=True)
    store = SparkEventStore(tmp_path / "var/lib/shop/events", history=True)
    assert len(store.replay("orders_write")) == COUNT
    assert (tmp_path / "var/www/shop.html").exists()


def test_dead_letters_are_repaired_as_the_page_says(
    page: Page, spark: SparkSession, tmp_path: Path
) -> None:
    def execute(statement: str, file: str = "copy.db") -> list[Any]:
        with closing(sqlite3.connect(tmp_path / file)) as connection, connection:
            return connection.execute(statement).fetchall()

    columns = "id INT PRIMARY KEY, state TEXT, seen INT"
    execute(f"CREATE TABLE orders ({columns} CHECK (seen <> 15))")
    execute(f"CREATE TABLE orders ({columns})", "source.db")
    for number in range(COUNT):
        execute(f"INSERT INTO orders VALUES ({number}, 's{number}', {number})", "source.db")
    file = tmp_path / "shop.toml"
    # The event store would have to have all changes.
    text = file.read_text().partition("[events]")[0].replace("[dead_letter]", "[verify]")
    text = re.sub(r"^hosts = .*$", f'source = "sqlite:///{tmp_path}/source.db"', text, flags=re.M)
    file.write_text(re.sub(r"^destination = .*$", 'settle = "0s"', text, flags=re.M))
    fill(tmp_path / "var/spool/shop", orders(0, COUNT))
    pipeline = Pipeline(load(file), "replicate", once=True, spark=spark)
    pipeline.run()
    listed = page.block("SELECT ordinal, table_name")
    ((ordinal, *letter),) = execute(listed)
    assert letter[:3] == ["orders", "write", '{"id":15}']
    show = page.command("stompkit spool show")
    assert show[-4:] == ["--from", str(ordinal), "--to", str(ordinal + 1)]
    shown = subprocess.run(show, check=True, capture_output=True, text=True)
    assert "c-15" in shown.stdout
    verify = page.command(f"stompkit pipeline run verify --config {file} --table")[:8]
    assert subprocess.run(verify, check=False).returncode == 1
    execute("DROP TABLE orders")
    execute(f"CREATE TABLE orders ({columns})")
    execute(page.block("DELETE FROM stompkit_pipeline_dead_letters"))
    subprocess.run(page.command(f"stompkit pipeline run rebuild --config {file} --rep"), check=True)
    subprocess.run(verify, check=True)
    assert execute(listed) == []


def test_programs_of_the_page_query_an_event_store(
    page: Page, spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(tmp_path / "var/spool/shop", orders(0, COUNT))
    Pipeline(load(tmp_path / "shop.toml"), "events", once=True, spark=spark).run()
    names: dict[str, Any] = {"spark": spark}
    exec(page.block("from datetime import UTC, datetime\n\nfrom stompkit.spark.eventstore"), names)
    at_s = BEGIN.timestamp()
    assert sorted(names["recent"]) == [(number, at_s) for number in range(COUNT)]
    assert names["last_s"] == at_s
    assert len(capsys.readouterr().out.splitlines()) == COUNT
    exec(page.block("times = store.frame"), names)
    assert names["times"].count() == COUNT
    assert [tuple(row) for row in names["per_day"].collect()] == [(BEGIN.date(), COUNT)]


def test_programs_of_the_page_do_what_it_says(
    page: Page, spark: SparkSession, stomp_broker: RunningBroker, tmp_path: Path
) -> None:
    with running(page.command("stompkit spool run")):
        publish(stomp_broker, 0, COUNT)
        assert wait_until(lambda: received(tmp_path / "var/spool/shop") == COUNT, LONG_S)
    with closing(sqlite3.connect(tmp_path / "applied.db")) as connection, connection:
        connection.execute("CREATE TABLE orders (id INT PRIMARY KEY, state TEXT, seen INT)")
    names: dict[str, Any] = {}
    exec(page.block("from stompkit.spark import spark_session"), names)
    exec(page.block("from stompkit.spark.apply"), names)
    applying: StreamingQuery = names["query"]
    applying.processAllAvailable()
    applying.stop()
    assert copied(tmp_path / "applied.db") == [(number, number) for number in range(COUNT)]
    names["rows"] = names["changes"].selectExpr("table AS body")
    exec(page.block("query = (\n    rows.writeStream"), names)
    sending: StreamingQuery = names["query"]
    sending.processAllAvailable()
    sending.stop()
    with stomp_broker.client() as reader:
        reader.subscribe("/queue/out")
        assert {frame.body for frame in reader.receive_many(COUNT)} == {b"orders"}
