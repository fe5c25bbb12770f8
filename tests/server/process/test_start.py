"""The start of the broker: unused modules are not imported, and early clients can wait."""

from __future__ import annotations

import re
import select
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from stompkit.server.listen.endpoints import BACKLOG, described_with_backlog
from tests.server.processes import (
    CONNECT,
    DEADLINE_S,
    LOOPBACK,
    TWIST,
    TWISTD,
    Client,
    Process,
    Start,
    announced,
    processes,
)

both = pytest.mark.parametrize("command", [TWIST, TWISTD], ids=["twist", "twistd"])

#: Modules that cost time or memory, and are not needed without settings for them. OpenSSL is not
#: among them: Twisted's sockets import it if it is installed. Trial is not either: Twisted's list
#: of plug-ins imports the interfaces of Trial's plug-ins.
UNUSED = {
    "_pytest",
    "h11",
    "pytest",
    "sqlalchemy",
    "stompkit._commands",
    "stompkit.client",
    "stompkit.conformance",
    "stompkit.client.blocking",
    "stompkit.replication",
    "stompkit.server.login.http_authoriser",
    "stompkit.server.login.http_service",
    "stompkit.server.login.password_files",
    "stompkit.server.stores.maintenance",
    "stompkit.server.beanstalk",
    "stompkit.server.stores.sqlalchemy",
    "stompkit.server.listen.tls_endpoint",
    "stompkit.server.websocket.handshake",
    "stompkit.server.websocket",
    "stompkit.spool",
    "stompkit.testing",
    "twisted.conch",
    "twisted.mail",
    "twisted.names",
    "twisted.trial.reporter",
    "twisted.trial.unittest",
    "twisted.web",
    "wsproto",
}
#: Clients that connect at the same time, more than Twisted's default backlog.
CLIENTS = 200


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts commands, and ends all that still run."""
    with processes(tmp_path) as start:
        yield start


def imported(process: Process) -> set[str]:
    """Return the modules that a process run with ``-v`` has imported so far."""
    return set(re.findall(r"^import '(\S+)' # ", process.log, re.MULTILINE))


@both
def test_what_the_settings_do_not_ask_for_is_not_imported(
    start: Start, tmp_path: Path, command: list[str]
) -> None:
    announce = tmp_path / "announce"
    python, *rest = command
    options = ("--endpoint", LOOPBACK, "--announce", str(announce), "--data", str(tmp_path / "d"))
    process = start([python, "-v", *rest], *options)
    [where] = announced(process, announce)
    with Client(where) as client:
        assert client.send("/queue/a").startswith(b"RECEIPT")
    process.terminate()
    modules = imported(process)
    assert {"stompkit.server.tap", "stompkit.server.stores.lmdb"} <= modules
    assert modules & UNUSED == set()


def test_what_the_settings_ask_for_is_seen_to_be_imported(start: Start, tmp_path: Path) -> None:
    announce, users = tmp_path / "announce", tmp_path / "users"
    users.write_text("", encoding="utf-8")
    users.chmod(0o600)
    python, *rest = TWIST
    options = ("--endpoint", LOOPBACK, "--announce", str(announce), "--auth", f"stompkit:{users}")
    process = start([python, "-v", *rest], *options)
    announced(process, announce)
    process.terminate()
    assert imported(process) & UNUSED == {"stompkit.server.login.password_files"}


@pytest.mark.skipif(sys.platform != "linux", reason="how much may wait is read from Linux's /proc")
@both
def test_many_clients_can_connect_before_the_first_is_accepted(
    start: Start, tmp_path: Path, command: list[str]
) -> None:
    most = int(Path("/proc/sys/net/core/somaxconn").read_text(encoding="ascii"))
    if most < CLIENTS:
        pytest.skip(f"net.core.somaxconn is {most}")
    announce = tmp_path / "announce"
    process = start(command, "--endpoint", LOOPBACK, "--announce", str(announce))
    [where] = announced(process, announce)
    with ExitStack() as stack:
        # A stopped process accepts no connections: all have to fit into the backlog.
        process.popen.send_signal(signal.SIGSTOP)
        clients = [stack.enter_context(socket.socket()) for _ in range(CLIENTS)]
        for client in clients:
            client.setblocking(False)
            client.connect_ex((where["host"], where["port"]))
        for client in clients:
            # Not select: other tests have files open, and it fails for descriptors above 1,023.
            ready = select.poll()
            ready.register(client, select.POLLOUT)
            assert ready.poll(DEADLINE_S * 1_000), "one does not get in"
            assert client.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0
        process.popen.send_signal(signal.SIGCONT)
        for client in clients:
            client.settimeout(DEADLINE_S)
            client.sendall(CONNECT)
        for client in clients:
            assert client.recv(1_024).startswith(b"CONNECTED\n")


@pytest.mark.parametrize(
    "description",
    [
        "tcp:61613",
        "tcp:61613:interface=127.0.0.1",
        "tcp:61613:127.0.0.1",
        r"tcp6:61613:interface=\:\:1",
        "unix:/run/stompkit.sock:mode=600",
        "unix:/run/stompkit.sock:600",
        r"unix:/run/backlog\=5",
        "ssl:61614:certKey=a:privateKey=b",
        "stomps:61614:certificate=a",
    ],
)
def test_a_backlog_is_added_where_there_is_none(description: str) -> None:
    assert described_with_backlog(description) == f"{description}:backlog={BACKLOG}"


@pytest.mark.parametrize(
    "description",
    [
        "tcp:61613:backlog=7",
        "tcp:61613:127.0.0.1:7",
        r"tcp6:61613:7:\:\:1",
        r"unix:/run/a\=b:600:7",
        "ssl:61614:a:b:TLSv1_METHOD:127.0.0.1:7",
        "stomps:backlog=7:port=61614",
        "systemd:domain=INET:index=0",
        "haproxy:tcp:61613",
        "61613",
        "",
    ],
)
def test_a_description_that_says_it_or_has_none_stays_as_it_is(description: str) -> None:
    assert described_with_backlog(description) == description
