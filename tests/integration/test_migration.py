"""Move messages from other brokers to ours, with the commands of the pages on migration."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from stompkit.testing import LaunchConfig, launch
from tests.testing.launched import require

PAGES = Path(__file__).parents[2] / "docs" / "howto"
QUEUES = ("/queue/orders", "/queue/invoices")
COUNT = 20


def commands(page: str, name: str) -> list[list[str]]:
    """Return the commands ``stompkit NAME`` of a page, each as words."""
    text = (PAGES / f"migration-{page}.rst").read_text(encoding="utf-8")
    joined = re.sub(r" \\\n +", " ", text)
    return [shlex.split(line) for line in re.findall(rf"^ +(stompkit {name} .*)", joined, re.M)]


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
    _, bridge = commands(page, "bridge")
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
