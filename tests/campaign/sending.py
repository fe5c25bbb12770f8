"""Sends numbered messages, until it is killed, and goes on then: ``python -m`` this.

A message that was not confirmed when it was killed is sent again, under the same ``event-id``.
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

from stompkit.link import Link
from stompkit.replication.frames import Packet
from tests.campaign.recorder import body_of, message_of

__all__ = ["QUEUES", "confirmed", "destination_of", "event_of", "message_in"]

QUEUES: Final = ("/queue/a", "/queue/b")
_MANY: Final = 1_000_000


def destination_of(sender: int, number: int) -> str:
    """Where a message goes."""
    return QUEUES[(sender + number * 7_919 // 13) % len(QUEUES)]


def event_of(sender: int, number: int) -> str:
    """The header by which a message is known when it comes again."""
    return f"{sender}-{number}"


def message_in(body: bytes) -> tuple[int, int] | None:
    """The sender and number of the message with this body; None where nobody sends such a one."""
    message = message_of(body)
    return divmod(message, _MANY) if message >= 0 else None


def confirmed(path: Path) -> set[int]:
    """The numbers that the broker has confirmed, as far as it was written down."""
    lines = path.read_bytes().split(b"\n") if path.exists() else []
    # The last one may have been cut off.
    return {int(line) for line in lines[:-1]}


def main() -> None:
    """Send what is not confirmed yet."""
    port, sender, quota, window, pause_ms = map(int, sys.argv[1:6])
    path = Path(sys.argv[6])
    done = confirmed(path)
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    if done or os.fstat(file).st_size:
        # So that a line that was cut off does not make another number.
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
            # So that there is something left to be done when something happens.
            never.wait(pause_ms / 1000)
        for each in waiting:
            each.result()


def _note(file: int, number: int, sent: Future[None]) -> None:
    if sent.exception() is None:
        os.write(file, b"%d\n" % number)


if __name__ == "__main__":
    main()
