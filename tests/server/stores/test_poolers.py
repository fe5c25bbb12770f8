"""The store in PostgreSQL behind PgBouncer."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from stompkit.server.interfaces import CreateLane, Put, StoreError
from stompkit.server.lease.table import LeaseTable
from stompkit.server.stores.postgresql.store import PostgresStore
from stompkit.testing.launching.polling import wait_until
from tests.servers import SqlServer

PORT = 6432
REFUSED = "is behind a pooler in transaction mode: connect to PostgreSQL directly"
PATH = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin"

Pooler = Callable[[str], str]


@contextmanager
def _pgbouncer(program: str, server: SqlServer, mode: str) -> Iterator[Path]:
    """Run PgBouncer in a mode; yield the directory of its Unix socket."""
    directory = Path(tempfile.mkdtemp(prefix="stompkit-pgbouncer-"))
    file = directory / "pgbouncer.ini"
    file.write_text(
        f"[databases]\n* = host={server.directory} port=5432 user=postgres\n"
        f"[pgbouncer]\nlisten_port = {PORT}\nunix_socket_dir = {directory}\n"
        f"auth_type = any\npool_mode = {mode}\n",
        encoding="utf-8",
    )
    command = [program, str(file)]
    if os.geteuid() == 0:
        # It refuses to run as root.
        nobody = pwd.getpwnam("nobody")
        os.chown(directory, nobody.pw_uid, nobody.pw_gid)
        ids = [f"--reuid={nobody.pw_uid}", f"--regid={nobody.pw_gid}", "--clear-groups"]
        command = ["setpriv", *ids, "--pdeathsig=KILL", "--", *command]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def answers() -> bool:
        assert process.poll() is None, "PgBouncer has ended"
        with socket.socket(socket.AF_UNIX) as probe:
            return probe.connect_ex(str(directory / f".s.PGSQL.{PORT}")) == 0

    try:
        assert wait_until(answers, 60.0)
        yield directory
    finally:
        process.kill()
        process.wait()
        shutil.rmtree(directory)


@pytest.fixture
def pooler(postgresql: SqlServer) -> Iterator[Pooler]:
    """Return a function that starts a pooler in a mode, and returns the URL of a new database."""
    program = shutil.which("pgbouncer", path=PATH)
    if program is None:
        pytest.skip("PgBouncer is missing: apt-get install pgbouncer")
    with ExitStack() as stack:

        def start(mode: str) -> str:
            directory = stack.enter_context(_pgbouncer(program, postgresql, mode))
            return (
                f"postgresql://postgres@/{postgresql.new_database()}?host={directory}&port={PORT}"
            )

        yield start


def test_a_pooler_in_transaction_mode_is_refused(pooler: Pooler) -> None:
    url = pooler("transaction")
    with pytest.raises(StoreError, match=REFUSED):
        PostgresStore(url).open()
    table = LeaseTable(url, "a", "1", 10.0)
    with pytest.raises(StoreError, match=REFUSED):
        table.prepare()
    table.close()


def test_a_pooler_in_session_mode_can_be_used(pooler: Pooler) -> None:
    url = pooler("session")
    store = PostgresStore(url)
    store.open()
    store.apply([CreateLane(1, "/queue/a", 4), Put(1, 1, 10, 0, 0, "id", b"", b"x")])
    assert [each.place for each in store.read(1, 0, 10, 1_000)] == [1]
    store.close()
    table = LeaseTable(url, "a", "1", 10.0)
    table.prepare()
    assert table.look("passive").state.owner == ""
    table.close()
