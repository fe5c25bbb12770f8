"""Backups of a broker at work."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

from stompkit.testing import LaunchConfig, launch
from tests.effort import effort

QUEUE = "/queue/numbers"
LONG_S = 60
BACKUPS = effort(3, 50)


def run(*arguments: str) -> None:
    subprocess.run([sys.executable, "-m", "stompkit", *arguments], check=True, timeout=LONG_S)


def bodies(data: Path) -> list[int]:
    """Return the numbers that a broker on a data directory delivers, in order."""
    with (
        launch(LaunchConfig(arguments=("--data", str(data)))) as broker,
        broker.client() as client,
    ):
        client.subscribe(QUEUE, ack="auto", receipt=True)
        client.send("/queue/numbers", "-1", receipt=True)
        found: list[int] = []
        while (number := int(client.receive(LONG_S).body)) >= 0:
            found.append(number)
        return found


def test_a_backup_has_all_messages_confirmed_before(tmp_path: Path) -> None:
    """Each backup has a prefix of the messages, and what was confirmed before it began."""
    data = tmp_path / "data"
    confirmed = 0
    is_over = threading.Event()
    with launch(LaunchConfig(arguments=("--data", str(data)))) as broker:

        def send() -> None:
            nonlocal confirmed
            with broker.client() as client:
                while not is_over.is_set():
                    # Large messages go into the database at once, small ones into the log first.
                    padding = " " * (300_000 if confirmed % 50 == 49 else 10)
                    client.send(QUEUE, f"{confirmed}{padding}", receipt=True)
                    confirmed += 1

        sender = threading.Thread(target=send)
        sender.start()
        try:
            least = []
            for number in range(BACKUPS):
                least.append(confirmed)
                run("store", "backup", str(data), str(tmp_path / f"backup-{number}"))
        finally:
            is_over.set()
            sender.join()
    for number, before in enumerate(least):
        target = tmp_path / f"backup-{number}"
        run("store", "check", str(target))
        found = bodies(target)
        assert found == list(range(len(found)))
        assert before <= len(found) <= confirmed
    assert least[-1] > 0
