"""``stompkit ping``: brokers that answer, that do not, and that answer with invalid data."""

from __future__ import annotations

import json
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from stompkit.testing import RunningBroker
from tests.commands.test_commands import run, run_process
from tests.ports import free_ports
from tests.server.certificates import Authority
from tests.server.processes import LOOPBACK, TWIST, Start, announced, processes
from tests.server.secured import secured


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """A function that starts commands, and ends all that still run."""
    (tmp_path / "run").mkdir()
    with processes(tmp_path / "run") as start:
        yield start


def target(broker: RunningBroker) -> str:
    return f"{broker.host}:{broker.port}"


def test_a_broker_that_works_answers(stomp_broker: RunningBroker) -> None:
    told = run("ping", target(stomp_broker))
    assert told.startswith(f"{target(stomp_broker)}: ")
    assert "STOMP 1.2, CONNECTED after" in told
    assert run("ping", "--quiet", target(stomp_broker)) == ""
    assert run("ping", "--quiet", "--mq", target(stomp_broker)) == ""
    assert "give one of them" in run("ping", "--mq", "a:1", "b:1", status=2)


def test_ping_finds_the_broker_of_run() -> None:
    """Its address, login and passcode come from the environment, and not from the command line."""
    ping = [sys.executable, "-m", "stompkit", "ping", "--round-trip", "--json"]
    login = ("--login", "me", "--passcode", "a:b")
    told = run_process("run", *login, "--", *ping).splitlines()
    assert any(json.loads(line)["answers"] for line in told if line.startswith("{")), told


@pytest.mark.parametrize("arguments", [[], ["/queue/ping"]])
def test_a_message_goes_there_and_back(stomp_broker: RunningBroker, arguments: list[str]) -> None:
    told = json.loads(run("ping", target(stomp_broker), "--json", "--round-trip", *arguments))
    assert told["answers"] is True
    assert 0 < told["round_trip_s"]
    assert told["version"] == "1.2"


def test_messages_of_others_are_not_taken_for_its_own(stomp_broker: RunningBroker) -> None:
    for _ in range(2):
        # The first one has left nothing for the second one.
        run("ping", target(stomp_broker), "--round-trip", "/topic/ping")
    told = run("ping", target(stomp_broker), "--round-trip", "/nonsense/ping", status=1)
    assert "ERROR: " in told
    assert "(unknown-destination)" in told


def test_nobody_there_is_told() -> None:
    with free_ports(2) as (one, two):
        told = run("ping", f"127.0.0.1:{one},127.0.0.1:{two}", status=1)
        lines = told.splitlines()
        assert lines == [
            f"stompkit ping: 127.0.0.1:{port}: Connection refused. Is a broker running there?"
            for port in (one, two)
        ]
        [line] = run("ping", f"127.0.0.1:{one}", "--json", status=1).splitlines()
        assert json.loads(line) == {
            "host": f"127.0.0.1:{one}",
            "answers": False,
            "problem": "Connection refused. Is a broker running there?",
        }


def test_a_port_that_closes_without_an_answer_may_expect_tls() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def close() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(1)
                connection.shutdown(socket.SHUT_WR)
                while connection.recv(65_536):
                    pass

        thread = threading.Thread(target=close)
        thread.start()
        told = run("ping", f"127.0.0.1:{server.getsockname()[1]}", status=1)
        thread.join()
    assert "closed before an answer. Does the port expect TLS? Then write stomps://" in told


def test_of_several_one_has_to_answer(stomp_broker: RunningBroker) -> None:
    with free_ports() as [nobody]:
        told = run("ping", f"stomp://127.0.0.1:{nobody},{target(stomp_broker)}")
    assert told.startswith(target(stomp_broker))


def test_a_wrong_passcode_is_told_and_never_shown(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    announce = tmp_path / "announce"
    arguments = ["--endpoint", LOOPBACK, "--auth", "memory:joe:sesame"]
    process = start(TWIST, *arguments, "--announce", str(announce))
    [where] = announced(process, announce)
    host = f"{where['host']}:{where['port']}"
    told = run("ping", host, status=1)
    assert "(not-authenticated). No login was sent: write stomp://LOGIN@HOST:PORT" in told
    monkeypatch.setenv("STOMPKIT_PASSCODE", "tahini")
    told = run("ping", f"stomp://joe@{host}", status=1)
    assert "(not-authenticated)" in told
    assert "No login" not in told
    assert "tahini" not in told
    monkeypatch.setenv("STOMPKIT_PASSCODE", "sesame")
    run("ping", f"stomp://joe@{host}")
    monkeypatch.delenv("STOMPKIT_PASSCODE")
    monkeypatch.setenv("BROKER", f"stomp://joe:sesame@{host}")
    run("ping", "env:BROKER")
    (tmp_path / "url").write_text(f"stomp://joe:sesame@{host}\n")
    run("ping", f"file:{tmp_path / 'url'}")


def test_a_broker_with_tls_is_asked_by_it(tmp_path: Path) -> None:
    with secured(tmp_path) as broker:
        host = f"{broker.host}:{broker.port}"
        for ca in (broker.authorities, next(Path(broker.authorities).glob("*.pem"))):
            run("ping", f"stomps://{host}?ca={ca}", "--round-trip")
        told = run("ping", f"stomps://{host}", status=1)
        assert "its certificate is not trusted" in told
        assert "with ?ca=FILE behind the address" in told
        told = run("ping", f"stomps://{host}?ca={tmp_path / 'none.pem'}", status=2)
        assert "none.pem: No such file or directory" in told
        assert "stompkit ping: " in run("ping", f"stomp://{host}", status=1)


def test_a_broker_that_requires_a_certificate_gets_it(tmp_path: Path) -> None:
    with secured(tmp_path, asks_for_certificates=True) as broker:
        url = f"stomps://{broker.host}:{broker.port}?ca={broker.authority}"
        run("ping", f"{url}&cert={broker.client}", "--round-trip")
        told = run("ping", url, status=1)
        assert "requires a client certificate, and got none: name one with ?cert=FILE" in told
        foreign = Authority(tmp_path, "other").client("mallory")
        told = run("ping", f"{url}&cert={foreign}", status=1)
        assert "does not know the authority of the client certificate" in told
        told = run("ping", f"{url}&cert={broker.authority}", status=2)
        assert f"{broker.authority} has no private key" in told


@contextmanager
def answering(octets: bytes) -> Iterator[str]:
    """Run a server that answers each connection with these bytes, and nothing else."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(20)

        def answer() -> None:
            client, _ = listener.accept()
            with client:
                client.settimeout(20)
                client.sendall(octets)
                while client.recv(65_536):
                    pass

        thread = threading.Thread(target=answer)
        thread.start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        thread.join(20)


@pytest.mark.parametrize(
    ("octets", "problem"),
    [
        (b"", "no answer in time"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n\0", "stompkit ping: "),
        (b"ERROR\nmessage:go away\n\n\0", "ERROR: go away"),
        (
            b"ERROR\nmessage:no\nstompkit-code:unknown-host\n\n\0",
            "ERROR: no (unknown-host). Add ?vhost=NAME to the URL, or set STOMPKIT_VHOST.",
        ),
        (
            b"CONNECTED\nversion:1.2\n\n\0MESSAGE\nsubscription:1\nmessage-id:1\ndestination:/a\n\n\0"
            b"RECEIPT\nreceipt-id:other\n\n\0",
            "the broker sent a RECEIPT, but not for DISCONNECT",
        ),
    ],
)
def test_what_answers_something_else_is_not_well(octets: bytes, problem: str) -> None:
    with answering(octets) as host:
        assert problem in run("ping", host, "--timeout", "1", status=1)


def test_it_can_wait_for_a_broker(start: Start, tmp_path: Path) -> None:
    with free_ports() as [port]:
        waiting: list[str] = []

        def ping() -> None:
            waiting.append(run("ping", f"127.0.0.1:{port}", "--wait", "60", "--quiet"))

        announce = tmp_path / "announce"
        thread = threading.Thread(target=ping)
        thread.start()
        endpoint = f"tcp:{port}:interface=127.0.0.1"
        announced(start(TWIST, "--endpoint", endpoint, "--announce", str(announce)), announce)
        thread.join(60)
    assert waiting == [""]


@pytest.mark.parametrize(
    "arguments",
    [
        ["--timeout", "0", "localhost:1"],
        ["--wait", "-1", "localhost:1"],
        ["localhost:notaport"],
        ["http://localhost:1"],
        ["env:STOMPKIT_NO_SUCH_THING"],
        ["file:/nonexistent"],
    ],
)
def test_a_command_line_that_makes_no_sense_is_told(arguments: list[str]) -> None:
    assert "See stompkit ping --help" in run("ping", *arguments, status=2)
