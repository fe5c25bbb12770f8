"""The measured cells, each a kind of load."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

__all__ = ["CELLS", "Cell", "choose"]

#: Messages in flight, and the bytes of their bodies.
_OUTSTANDING: Final = 10_000
_OUTSTANDING_BYTES: Final = 8 << 20


@dataclass(frozen=True)
class Cell:
    """A kind of load."""

    name: str
    about: str
    """Description for ``--list``."""
    kind: str
    """``queue``, ``topic``, ``churn``, ``backlog`` or ``idle``."""
    producers: int = 1
    consumers: int = 1
    ack: str = "auto"
    body_bytes: int = 100
    window: int = 0
    """Messages of a producer without receipt; 0: no receipts and no persistence."""
    survives: bool = True
    """True if messages with receipts are persistent."""
    rate: int = 0
    """Messages per second; 0: as fast as possible."""
    is_half: bool = False
    """True if the rate is half of the slowest broker's maximum, which is measured first."""
    destinations: int = 1
    parallel: int = 1
    """Concurrent connections, for ``churn`` and ``idle``."""
    count: int = 0
    """Most messages or connections; 0: as many as fit into the time of a run."""

    @property
    def is_persistent(self) -> bool:
        """True if messages are persistent."""
        return self.window > 0 and self.survives

    @property
    def outstanding(self) -> int:
        """Most messages in flight."""
        return max(1, min(_OUTSTANDING, _OUTSTANDING_BYTES // self.body_bytes))


def _size(octets: int) -> str:
    return f"{octets >> 10} KiB" if octets >= 1_024 else f"{octets} octets"


def _queue(many: int, ack: str, body_bytes: int = 100) -> Cell:
    mode = {"auto": "auto", "ind": "client-individual"}[ack]
    end = f"-{body_bytes >> 10}k" if body_bytes >= 1_024 else ""
    about = f"one queue, {many} to {many} clients, ack {mode}, {_size(body_bytes)}"
    name = f"queue-{many}-{many}-{ack}{end}"
    return Cell(name, about, "queue", many, many, mode, body_bytes)


def _queues(many: int, ack: str) -> Cell:
    mode = {"auto": "auto", "ind": "client-individual"}[ack]
    about = f"{many} queues, each from one client to one, ack {mode}, 100 octets"
    return Cell(f"queues-{many}-{ack}", about, "queue", many, many, mode, destinations=many)


def _topic(many: int, body_bytes: int = 100) -> Cell:
    end = f"-{body_bytes >> 10}k" if body_bytes >= 1_024 else ""
    about = f"a topic with {many} subscribers, {_size(body_bytes)}; deliveries"
    return Cell(f"topic-1-{many}{end}", about, "topic", 1, many, body_bytes=body_bytes)


def _persistent(window: int, consumers: int = 0) -> Cell:
    about = f"persistent, a receipt each, {window} without it at a time"
    end = "-consumer" if consumers else ""
    about += ", acknowledged by a consumer at once" if consumers else ", nobody consumes"
    mode = "client-individual"
    return Cell(f"persistent-{window}{end}", about, "queue", 1, consumers, mode, window=window)


CELLS: Final = (
    *(_queue(many, ack) for many in (1, 4, 16) for ack in ("auto", "ind")),
    *(_queue(1, ack, size) for size in (1 << 10, 64 << 10) for ack in ("auto", "ind")),
    *(_queues(4, ack) for ack in ("auto", "ind")),
    *(_topic(many) for many in (10, 100)),
    *(_topic(10, size) for size in (1 << 10, 64 << 10)),
    *(_persistent(window) for window in (1, 100, 1_000)),
    _persistent(1_000, 1),
    Cell(
        "memory-1",
        "in memory, a receipt each, 1 without it at a time, nobody consumes",
        "queue",
        consumers=0,
        ack="client-individual",
        window=1,
        survives=False,
    ),
    Cell("latency-1000", "one queue, 1 to 1 clients, 1,000 messages a second", "queue", rate=1_000),
    Cell(
        "latency-half",
        "one queue, 1 to 1 clients, at half of what the slowest broker takes",
        "queue",
        is_half=True,
    ),
    Cell("churn", "connect, SEND to a queue, DISCONNECT, eight at a time", "churn", parallel=8),
    Cell("idle", "10,000 connections that do nothing", "idle", parallel=32, count=10_000),
    Cell(
        "backlog",
        "1,000,000 persistent messages, a receipt each; kill -9, a start, all out again",
        "backlog",
        consumers=0,
        ack="client-individual",
        window=1_000,
        count=1_000_000,
    ),
)


def choose(patterns: list[str]) -> list[Cell]:
    """Return the cells that match any of ``patterns``; raise ValueError for one without a match."""
    for pattern in patterns:
        if not any(fnmatchcase(cell.name, pattern) for cell in CELLS):
            raise ValueError(f"no cell is called {pattern}; --list tells them")
    return [cell for cell in CELLS if any(fnmatchcase(cell.name, each) for each in patterns)]
