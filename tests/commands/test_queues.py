"""The commands on a broker's admin interface, and ``stompkit tap``, on real brokers."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

import stompkit
from stompkit.testing import RunningBroker
from stompkit.testing.launching.polling import wait_until
from stompkit.testing.plugin import BrokerFactory
from tests.commands.test_messages import LONG_S, Commands
from tests.ports import free_ports


@pytest.fixture(scope="module")
def broker(stomp_broker_factory: BrokerFactory) -> Iterator[RunningBroker]:
    """A broker with an admin interface."""
    with stomp_broker_factory("stompkit", admin=True, frames=False) as broker:
        yield broker


@pytest.fixture
def commands(broker: RunningBroker) -> Commands:
    """Commands that are configured for it by their environment."""
    made = Commands(broker)
    made.environment["STOMPKIT_ADMIN"] = broker.admin_url
    return made


@pytest.fixture
def name() -> str:
    """A unique name."""
    return uuid4().hex


def refuse_all(commands: Commands, queue: str, count: int) -> None:
    """Dead-letter the messages of a queue."""
    refuse = [queue, "--count", str(count), "-H", "ack-timeout:0", "--exec", "exit 1"]
    for _ in range(20):
        done = subprocess.run(
            [sys.executable, "-m", "stompkit", "receive", *refuse, "--timeout", "1"],
            env=commands.environment,
            capture_output=True,
            timeout=LONG_S,
            check=False,
        )
        if done.returncode == 3:
            return
    pytest.fail("they don't become dead letters")


# Queues.


def test_queues_are_listed_sorted_and_filtered(commands: Commands, name: str) -> None:
    for suffix, count in (("a", 1), ("b", 3), ("c", 2)):
        commands.run("send", f"/queue/{name}.{suffix}", "--count", str(count), "x")
    lines = commands.run("queues", "--filter", name).decode().splitlines()
    assert lines[0].split()[:3] == ["name", "ready", "in"]
    assert [line.split()[:2] for line in lines[1:]] == [
        [f"/queue/{name}.a", "1"],
        [f"/queue/{name}.b", "3"],
        [f"/queue/{name}.c", "2"],
    ]
    asked = ["queues", "--filter", name, "--sort", "ready", "--limit", "2", "--json"]
    document = json.loads(commands.run(*asked))
    assert document["total"] == 3
    assert [each["name"][-1] for each in document["destinations"]] == ["b", "c"]
    assert commands.run("queues", "--filter", f"no{name}") == b"no destinations\n"
    assert commands.run("queues", "--kind", "topic", "--filter", name) == b"no destinations\n"


def test_queues_can_be_watched(commands: Commands, name: str) -> None:
    arguments = ["queues", "--filter", name, "--watch", "0.1", "--json"]
    with commands.start(*arguments, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline()) == {"total": 0, "destinations": []}
        commands.run("send", f"/queue/{name}", "x")
        for line in process.stdout:
            if json.loads(line)["total"]:
                break
        process.send_signal(signal.SIGINT)
        assert process.wait(LONG_S) == 130


def test_messages_are_looked_at(commands: Commands, name: str) -> None:
    queue = f"/queue/{name}"
    assert commands.both("peek", queue, status=1)[1]
    commands.run("send", queue, "-H", "colour:blue", "one\x1b[2J", "two", "three")
    commands.run("send", queue, said=b"\xff\0")
    lines = commands.run("peek", queue, "--json").splitlines()
    documents = [json.loads(line) for line in lines]
    assert [each.get("body") for each in documents] == ["one\x1b[2J", "two", "three", None]
    assert documents[3]["body_base64"] == "/wA="
    assert {each["state"] for each in documents} == {"ready"}
    shown = commands.run("peek", queue, "--count", "1").decode()
    assert "colour:blue\n" in shown
    assert "one\\u001b[2J" in shown
    assert "ff 00" in commands.run("peek", queue).decode()
    # The listed messages can be sent, and stay in the queue.
    commands.run("send", f"{queue}-copy", "--jsonl", said=b"\n".join(lines))
    assert len(commands.take(f"{queue}-copy", 4)) == 4
    assert len(commands.take(queue, 4)) == 4


def test_messages_move_and_are_purged(commands: Commands, name: str) -> None:
    queue, other = f"/queue/{name}", f"/queue/{name}-2"
    commands.run("send", queue, "--lines", said=b"\n".join(b"%d" % n for n in range(10)))
    assert commands.run("move", queue, other, "--limit", "4") == b"4 messages moved\n"
    assert commands.take(other, 4) == [b"0", b"1", b"2", b"3"]
    said = commands.both("purge", queue, status=2)[1]
    assert f"Remove 6 messages of {queue}? Say --yes" in said
    assert json.loads(commands.run("purge", queue, "--yes", "--json")) == {"purged": 6}
    assert commands.run("receive", queue, "--timeout", "0.5", status=3) == b""


@pytest.mark.parametrize(("answer", "status"), [("n", 1), ("y", 0)])
def test_a_question_is_asked_on_a_terminal(
    commands: Commands, name: str, answer: str, status: int
) -> None:
    queue = f"/queue/{name}"
    commands.run("send", queue, "1", "2")
    ours, theirs = pty.openpty()
    with commands.start("purge", queue, stdin=theirs, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        shown = b""
        while not shown.endswith(b"[y/N] "):
            shown += os.read(ours, 1000)
        os.write(ours, f"{answer}\n".encode())
        assert process.wait(LONG_S) == status
    os.close(ours)
    assert b"Remove 2 messages of " in shown
    left = json.loads(commands.run("queues", "--filter", name, "--json"))["destinations"]
    assert sum(each["ready"] for each in left) == (2 if status else 0)


def test_dead_letters_are_sent_back(commands: Commands, name: str) -> None:
    commands.run("send", f"/queue/{name}", "1", "2")
    refuse_all(commands, f"/queue/{name}", 2)
    letters = commands.run("peek", f"/dlq/{name}", "--json").splitlines()
    assert [json.loads(line)["body"] for line in letters] == ["1", "2"]
    chosen = json.loads(letters[1])["headers"]["message-id"]
    told = commands.run("retry", f"/dlq/{name}", "--id", chosen)
    assert told == b"1 dead letter sent back\n"
    assert commands.take(f"/queue/{name}", 1) == [b"2"]
    assert json.loads(commands.run("retry", f"/dlq/{name}", "--json")) == {"retried": 1}
    assert commands.take(f"/queue/{name}", 1) == [b"1"]


# Errors.


def test_a_sender_that_waits_is_seen_at_both_ends(
    stomp_broker_factory: BrokerFactory, tmp_path: Path
) -> None:
    """It would otherwise wait for ever, and nobody would know why."""
    config = tmp_path / "stompkit.toml"
    config.write_text(
        '[[destination]]\nname = "/queue/full"\nmax_queue_messages = 2\nwhen_full = "block"\n',
        encoding="utf-8",
    )
    arguments = ("--config", str(config))
    with stomp_broker_factory("stompkit", admin=True, arguments=arguments) as broker:
        commands = Commands(broker)
        commands.environment["STOMPKIT_ADMIN"] = broker.admin_url
        sending = commands.start("send", "/queue/full", "x", "--count", "5", stderr=subprocess.PIPE)
        assert sending.stderr is not None
        line = sending.stderr.readline().decode()
        assert line.startswith("stompkit send: waiting: ")
        assert "`stompkit connections` of the broker shows `blocked`" in line
        [_, shown] = commands.run("connections").decode().splitlines()
        assert shown.endswith("blocked")
        commands.take("/queue/full", 5)
        assert sending.wait(LONG_S) == 0
        assert sending.stderr.read() == b""
        sending.stderr.close()
        commands.run("send", "/queue/full", "x", "--count", "2")
        assert "blocked" not in commands.run("connections").decode()


def test_a_dead_letter_that_does_not_exist_is_no_success(commands: Commands, name: str) -> None:
    commands.run("send", f"/queue/{name}", "1")
    refuse_all(commands, f"/queue/{name}", 1)
    said = commands.both("retry", f"/dlq/{name}", "--id", "none-such", status=1)[1]
    assert f"/dlq/{name} has no message with the id none-such" in said


def test_tls_to_an_interface_without_it_fails_at_once(commands: Commands) -> None:
    """The server would wait for the end of a request, and the client for an answer."""
    url = commands.environment["STOMPKIT_ADMIN"].replace("http://", "https://")
    began = time.monotonic()
    said = commands.both("queues", "--admin", url, status=1)[1]
    assert time.monotonic() - began < LONG_S / 3
    assert said.endswith(". Write http:// if the interface has no TLS.\n")


def test_a_refusal_is_told_with_its_code(commands: Commands) -> None:
    said = commands.both("move", "/queue/none-such", "/queue/b", status=1)[1]
    assert said.startswith("stompkit move: ")
    assert said.endswith("(no-such-destination)\n")


def test_a_failover_without_a_lease_says_how_a_standby_takes_over(commands: Commands) -> None:
    for options in (["--show"], ["--to", "b"]):
        said = commands.both("failover", *options, status=1)[1]
        assert said.endswith("takes over when the active broker is stopped (no-lease)\n")


def test_who_does_not_say_where_is_told_how(commands: Commands) -> None:
    del commands.environment["STOMPKIT_ADMIN"]
    for command in (["queues"], ["purge", "/queue/a"], ["tap"], ["retry", "/dlq/a"]):
        assert "give --admin HOST:PORT" in commands.both(*command, status=2)[1]
    for url in ("ftp://x", "http://x/path", "http://:1", "localhost:x"):
        said = commands.both("queues", "--admin", url, status=2)[1]
        assert f"{url} is not the address of an admin interface" in said
    with free_ports() as [port]:
        said = commands.both("queues", "--admin", f"localhost:{port}", status=1)[1]
        assert f"cannot connect to the admin interface at localhost:{port}: " in said
    # A broker's STOMP port does not support HTTP.
    where = f"127.0.0.1:{commands.broker.port}"
    assert (
        "cannot connect to the admin interface"
        in commands.both("queues", "--admin", where, status=1)[1]
    )


def test_an_interface_with_a_token_in_the_file_system(
    stomp_broker_factory: BrokerFactory, tmp_path: Path
) -> None:
    token, path = tmp_path / "token", tmp_path / "admin"
    token.write_text("a-long-secret-token-of-the-operators\n")
    token.chmod(0o600)
    config = tmp_path / "stompkit.toml"
    config.write_text(
        f'[admin]\nendpoints = ["unix:{path}:mode=600"]\ntoken_file = "{token}"\n'
        "max_followed = 1\n",
        encoding="utf-8",
    )
    arguments = ("--config", str(config))
    with stomp_broker_factory("stompkit", arguments=arguments, frames=False) as broker:
        commands = Commands(broker)
        commands.environment["STOMPKIT_ADMIN"] = f"unix:{path}"
        assert "--token-file" in commands.both("queues", status=1)[1]
        commands.run("send", "/queue/a", "x")
        given = ["--token-file", str(token)]
        assert b"/queue/a" in commands.run("queues", *given)
        commands.environment["STOMPKIT_ADMIN_TOKEN"] = token.read_text().strip()
        assert b"/queue/a" in commands.run("queues")
        # One of these has no rates yet.
        commands.run("send", "/queue/b", "x")
        lines = commands.run("queues", "--sort", "in").decode().splitlines()
        assert sorted(line.split()[0] for line in lines[1:]) == ["/queue/a", "/queue/b"]
        assert any(line.split()[-2:] == ["-", "-"] for line in lines[1:])


# Tap.


def first_of(process: subprocess.Popen[bytes]) -> str:
    """Return the first line, which contains the address of the tap."""
    assert process.stdout is not None
    return process.stdout.readline().decode()


def test_frames_both_ways_are_seen_before_any_broker(commands: Commands, name: str) -> None:
    to = f"127.0.0.1:{commands.broker.port}"
    with commands.start("tap", "--to", to, stdout=subprocess.PIPE) as process:
        found = re.match(r"(stomp://127\.0\.0\.1:\d+) to ", first_of(process))
        assert found is not None
        login = ["--mq", f"stomp://me:secret@{found[1].removeprefix('stomp://')}"]
        commands.run("send", f"/queue/{name}", *login, "long " * 100)
        commands.run("send", f"/queue/{name}", *login, said=b"\xff\0\1")
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=LONG_S)
        assert process.returncode == 0
    text = output.decode()
    assert "secret" not in text
    assert "\x1b" not in text
    assert "passcode:***" in text
    for command in ("< CONNECT", "> CONNECTED", "< SEND", "> RECEIPT", "< DISCONNECT"):
        assert command in text
    assert " ... (500 octets)" in text
    assert "hex ff 00 01" in text


def test_only_frames_that_are_wanted_are_seen(commands: Commands, name: str) -> None:
    to = f"127.0.0.1:{commands.broker.port}"
    wanted = ["--command", "send", "--destination", f"/queue/{name}*", "--json"]
    with commands.start("tap", "--to", to, *wanted, stdout=subprocess.PIPE) as process:
        url = json.loads(first_of(process))["url"]
        commands.run("send", f"/queue/{name}", "--mq", url, "text")
        commands.run("send", f"/queue/no{name}", "--mq", url, "other")
        commands.run("send", f"/queue/{name}-2", "--mq", url, said=b"\xff")
        process.terminate()
        output, _ = process.communicate(timeout=LONG_S)
        assert process.returncode == 0
    frames = [each for each in map(json.loads, output.splitlines()) if "command" in each]
    assert [each["command"] for each in frames] == ["SEND", "SEND"]
    assert [each["direction"] for each in frames] == ["received", "received"]
    assert frames[0]["body"] == "text"
    assert frames[1]["body_base64"] == "/w=="
    assert ["destination", f"/queue/{name}"] in frames[0]["headers"]


def test_a_broker_of_ours_tells_of_its_frames(commands: Commands, name: str) -> None:
    destination = ["--destination", f"/queue/{name}", "--json"]
    with commands.start("tap", *destination, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        # Only received frames show that the tap is active.
        os.set_blocking(process.stdout.fileno(), False)
        seen = b""

        def tells() -> bool:
            nonlocal seen
            commands.run("send", f"/queue/{name}", "four")
            seen += process.stdout.read() or b"" if process.stdout is not None else b""
            return b"SEND" in seen

        assert wait_until(tells, LONG_S)
        process.send_signal(signal.SIGINT)
        assert process.wait(LONG_S) == 0
    frame = json.loads(seen.splitlines()[0])
    assert (frame["command"], frame["direction"]) == ("SEND", "received")
    assert frame["body_octets"] == 4
    assert "body" not in frame


def test_a_tap_that_cannot_listen_says_so(commands: Commands) -> None:
    there = f"127.0.0.1:{commands.broker.port}"
    said = commands.both("tap", "--to", there, "--listen", there, status=1)[1]
    assert said.startswith("stompkit tap: ")


def test_status_shows_the_broker_at_a_glance(stomp_broker_factory: BrokerFactory) -> None:
    # A broker of its own: messages that other tests refused come back after a delay.
    with (
        stomp_broker_factory("stompkit", admin=True, frames=False) as broker,
        broker.client() as client,
    ):
        client.send(broker.queue(), b"x", receipt=True)
        commands = Commands(broker)
        commands.environment["STOMPKIT_ADMIN"] = broker.admin_url

        def found() -> dict[str, Any]:
            return json.loads(commands.run("status", "--json"))  # type: ignore[no-any-return]

        # Its sums are those of the last second.
        assert wait_until(lambda: found()["ready"] == 1, LONG_S)
        text = commands.run("status").decode()
        lease = found()["lease"]
    assert lease is None
    lines = text.splitlines()
    compiled = "compiled" if stompkit.is_compiled() else "not compiled"
    assert lines[0].startswith(f"stompkit {stompkit.__version__} ({compiled}), process ")
    assert lines[1] == "clients      1 connection, 0 subscriptions"
    assert "\nmessages     1 ready, 0 in flight, 0 delayed, in 1 destination\n" in text
    assert "\nstore        in memory\n" in text
