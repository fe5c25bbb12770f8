"""Move messages from other brokers to ours, with the commands of the pages on migration."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

from stompkit.server.interfaces import Action, Decision, Request, User
from stompkit.server.login.rights import RightsAuthoriser
from stompkit.server.settings.reading import parse_settings
from stompkit.testing import LaunchConfig, launch
from tests.testing.launched import require

PAGES = Path(__file__).parents[2] / "docs" / "howto"
QUEUES = ("/queue/orders", "/queue/invoices")
COUNT = 20


def commands(page: str, name: str) -> list[list[str]]:
    """Return the commands ``stompkit NAME`` of a page, each as words."""
    file = "migration.rst" if page == "coilmq" else f"migration-{page}.rst"
    text = (PAGES / file).read_text(encoding="utf-8")
    joined = re.sub(r" \\\n +", " ", text)
    return [shlex.split(line) for line in re.findall(rf"^ +(stompkit {name} .*)", joined, re.M)]


def is_allowed(page: str, user: User, action: Action, destination: str) -> bool:
    """Return True if the settings of a page allow it."""
    text = (PAGES / f"{page}.rst").read_text(encoding="utf-8")
    blocks = re.findall(r"code-block:: toml\n\n((?:    .*\n|\n)+)", text)
    [example] = [dedent(block) for block in blocks if "[[rights]]" in block]
    settings = parse_settings(re.sub(r"checkers = .*", 'checkers = ["memory:x:x"]', example), page)
    answers: list[Decision] = []
    request = Request(user, "", action, destination, {}, b"")
    RightsAuthoriser(settings.rights).authorise(request, answers.append)
    return answers[0].allowed


@pytest.mark.parametrize("queue", [*QUEUES, "/queue/orders.dead", "/queue/ActiveMQ.DLQ"])
@pytest.mark.parametrize("action", [Action.CREATE, Action.WRITE, Action.READ])
@pytest.mark.parametrize("page", ["migration-activemq", "migration-rabbitmq"])
def test_the_rights_of_the_page_allow_its_bridge(page: str, action: Action, queue: str) -> None:
    assert is_allowed(page, User("bridge"), action, queue)


@pytest.mark.parametrize(
    ("page", "user", "destination"),
    [
        ("migration-activemq", User("berlin", frozenset({"shops"})), "/queue/orders"),
        ("migration-activemq", User("berlin", frozenset({"shops"})), "/queue/orders.berlin"),
        ("migration-rabbitmq", User("shop"), "/queue/orders"),
        ("migration-rabbitmq", User("shop"), "/queue/orders.dead"),
        ("migration", User("ann", frozenset({"site"})), "/fanout/news"),
    ],
)
def test_the_rights_of_the_page_allow_what_its_users_do(
    page: str, user: User, destination: str
) -> None:
    assert is_allowed(page, user, Action.WRITE, destination)
    assert not is_allowed(page, User("somebody"), Action.WRITE, destination)


@pytest.mark.parametrize("page", ["activemq", "rabbitmq"])
def test_the_commands_of_the_page_move_messages_there_and_back(page: str, tmp_path: Path) -> None:
    _, there, back = commands(page, "bridge")
    bodies = [b"%d" % number for number in range(COUNT)]
    with launch(LaunchConfig()) as old, launch(LaunchConfig()) as new:
        urls = {**os.environ, "OLD": old.url, "NEW": new.url}
        with old.client() as client:
            for body in bodies:
                client.send(QUEUES[0], body, receipt=True)
        for bridge, into in ((there, new), (back, old)):
            bridge[bridge.index("--buffer") + 1] = str(tmp_path / bridge[3])
            with subprocess.Popen([sys.executable, "-m", *bridge], env=urls) as process:
                try:
                    with into.client() as client:
                        # Without acknowledgements, so that they stay for the way back.
                        client.subscribe(QUEUES[0], ack="client-individual")
                        found = client.receive_many(COUNT, 60.0)
                finally:
                    process.terminate()
            assert process.returncode == 0
            assert [message.body for message in found] == bodies


@pytest.mark.matrix
@pytest.mark.parametrize(
    ("page", "broker", "virtual_host"),
    [
        ("activemq", "activemq", ""),
        ("activemq", "activemq:6", ""),
        ("rabbitmq", "rabbitmq", "?vhost=/"),
        ("rabbitmq", "rabbitmq:4", "?vhost=/"),
    ],
)
def test_the_commands_of_the_page_move_all_messages_in_order(
    page: str, broker: str, virtual_host: str, tmp_path: Path
) -> None:
    _, bridge, _ = commands(page, "bridge")
    [move] = commands(page, "move")
    bodies = [b"%d" % number for number in range(COUNT)]
    with launch(LaunchConfig(name=require(broker))) as old, launch(LaunchConfig()) as new:
        urls = {**os.environ, "OLD": old.url + virtual_host, "NEW": new.url}
        source = move[2]
        with old.client() as client:
            for queue in (*QUEUES, source):
                for body in bodies:
                    client.send(queue, body, receipt=True, persistent="true")
        done = subprocess.run(
            [sys.executable, "-m", *move], env=urls, check=True, capture_output=True, text=True
        )
        assert done.stdout == f"{COUNT} messages moved\n"
        bridge[bridge.index("--buffer") + 1] = str(tmp_path / "buffer")
        with subprocess.Popen([sys.executable, "-m", *bridge], env=urls) as process:
            try:
                for queue in QUEUES:
                    with new.client() as client:
                        client.subscribe(queue)
                        expected = bodies * 2 if queue == move[3] else bodies
                        found = client.receive_many(len(expected), 60.0)
                        assert [message.body for message in found] == expected
            finally:
                process.terminate()
        assert process.returncode == 0


def test_the_commands_of_the_page_move_the_messages_of_coilmq() -> None:
    [bridge] = commands("coilmq", "bridge")
    bodies = [b"%d" % number for number in range(COUNT)]
    with launch(LaunchConfig(name=require("coilmq"))) as old, launch(LaunchConfig()) as new:
        host = f"?vhost={old.vhost}"
        urls = {**os.environ, "OLD": old.url + host, "NEW": new.url}
        with old.client() as client:
            for body in bodies:
                client.send("/queue/dead", body, receipt=True)
        moved = ["stompkit", "move", "/queue/dead", QUEUES[0], "--mq", "env:OLD"]
        received = ["stompkit", "receive", "/queue/dead", "--mq", "env:OLD", "--timeout", "0.5"]
        for command, status, said in (
            (moved, 0, f"{COUNT} messages moved\n"),
            (received, 3, ""),
        ):
            done = subprocess.run(
                [sys.executable, "-m", *command], env=urls, capture_output=True, text=True
            )
            assert (done.returncode, done.stdout, done.stderr) == (status, said, "")
        with subprocess.Popen([sys.executable, "-m", *bridge], env=urls) as process:
            try:
                with new.client() as client:
                    client.subscribe(QUEUES[0])
                    found = client.receive_many(COUNT, 60.0)
            finally:
                process.terminate()
        assert process.returncode == 0
        assert sorted(message.body for message in found) == sorted(bodies)
