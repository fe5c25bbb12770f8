"""Send numbered messages until killed, and resume after a restart: run it with ``python -m``.

A message that was not confirmed before the kill is sent again, under the same ``event-id``.
"""

from __future__ import annotations

import os
import sys
from collections import deque
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from threading import Event
from typing import Final

from stompkit.client.blocking import Link
from stompkit.replication.model.frames import Packet
from tests.campaign.recorder import body_of, message_of

__all__ = ["QUEUES", "confirmed", "destination_of", "event_of", "message_in"]

QUEUES: Final = ("/queue/a", "/queue/b")
_MANY: Final = 1_000_000


def destination_of(sender: int, number: int) -> str:
    """Return the destination of a message."""
    return QUEUES[(sender + number * 7_919 // 13) % len(QUEUES)]


def event_of(sender: int, number: int) -> str:
    """Return the header that identifies a message when it is sent again."""
    return f"{sender}-{number}"


def message_in(body: bytes) -> tuple[int, int] | None:
    """Return the sender and number of the message with this body, or None if no sender sends it."""
    message = message_of(body)
    return divmod(message, _MANY) if message >= 0 else None


def confirmed(path: Path) -> set[int]:
    """Return the numbers that the file records as confirmed by the broker."""
    lines = path.read_bytes().split(b"\n") if path.exists() else []
    # The last line may be incomplete.
    return {int(line) for line in lines[:-1]}


def main() -> None:
    """Send the messages that are not confirmed yet."""
    port, sender, quota, window, pause_ms = map(int, sys.argv[1:6])
    path = Path(sys.argv[6])
    done = confirmed(path)
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    if done or os.fstat(file).st_size:
        # An incomplete line must not combine with the next number.
        os.ftruncate(file, path.read_bytes().rfind(b"\n") + 1)
    waiting: deque[Future[None]] = deque()
    never = Event()
    with Link([f"127.0.0.1:{port}"]) as link:
        for number in (each for each in range(quota) if each not in done):
            if len(waiting) >= window:
                waiting.popleft().result()
            headers = {"event-id": event_of(sender, number), "persistent": "true"}
            packet = Packet(headers, body_of(sender * _MANY + number))
            sent = link.send(destination_of(sender, number), [packet])
            sent.add_done_callback(partial(_note, file, number))
            waiting.append(sent)
            # Slow down, so that faults happen while work remains.
            never.wait(pause_ms / 1000)
        for each in waiting:
            each.result()


def _note(file: int, number: int, sent: Future[None]) -> None:
    if sent.exception() is None:
        os.write(file, b"%d\n" % number)


if __name__ == "__main__":
    main()
