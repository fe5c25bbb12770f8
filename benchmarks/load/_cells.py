"""The measured cells, each a kind of load."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Final

__all__ = ["CELLS", "HALF", "Cell", "choose"]

#: Messages in flight, and the bytes of their bodies.
_OUTSTANDING: Final = 10_000
_OUTSTANDING_BYTES: Final = 8 << 20
#: Bytes of frames in one write of a client that has many to send.
_WRITE_BYTES: Final = 64 << 10
#: Stands for the rate in the description of a cell with half of a broker's maximum.
HALF: Final = "at half of what the slowest broker takes"


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
    is_varied: bool = True
    """True if heads differ from message to message; else all have the same short head."""
    write_bytes: int = _WRITE_BYTES
    """Most bytes of frames in a write of a client; 1: each frame is a write of its own."""

    @property
    def is_persistent(self) -> bool:
        """True if messages are persistent."""
        return self.window > 0 and self.survives

    @property
    def outstanding(self) -> int:
        """Most messages in flight."""
        return max(1, min(_OUTSTANDING, _OUTSTANDING_BYTES // self.body_bytes))

    @property
    def is_headline(self) -> bool:
        """True if this is the form of its cell to publish first: that of most applications."""
        return self.is_varied and self.write_bytes > 1


def _size(octets: int) -> str:
    if octets >= 1 << 20:
        return f"{octets >> 20} MiB"
    return f"{octets >> 10} KiB" if octets >= 1_024 else f"{octets} bytes"


def _end(octets: int) -> str:
    """Return the end of a cell's name for a size of bodies."""
    if octets >= 1 << 20:
        return f"-{octets >> 20}m"
    return f"-{octets >> 10}k" if octets >= 1_024 else ""


def _queue(many: int, ack: str, body_bytes: int = 100) -> Cell:
    mode = {"auto": "auto", "ind": "client-individual"}[ack]
    end = _end(body_bytes)
    about = f"one queue, {many} to {many} clients, ack {mode}, {_size(body_bytes)}"
    name = f"queue-{many}-{many}-{ack}{end}"
    return Cell(name, about, "queue", many, many, mode, body_bytes)


def _queues(many: int, ack: str) -> Cell:
    mode = {"auto": "auto", "ind": "client-individual"}[ack]
    about = f"{many} queues, each from one client to one, ack {mode}, 100 bytes"
    return Cell(f"queues-{many}-{ack}", about, "queue", many, many, mode, destinations=many)


def _topic(many: int, body_bytes: int = 100) -> Cell:
    end = _end(body_bytes)
    about = f"a topic with {many} subscribers, {_size(body_bytes)}; deliveries"
    return Cell(f"topic-1-{many}{end}", about, "topic", 1, many, body_bytes=body_bytes)


def _persistent(window: int, consumers: int = 0) -> Cell:
    about = f"persistent, a receipt each, {window} without it at a time"
    end = "-consumer" if consumers else ""
    about += ", acknowledged by a consumer at once" if consumers else ", nobody consumes"
    mode = "client-individual"
    return Cell(f"persistent-{window}{end}", about, "queue", 1, consumers, mode, window=window)


def _single(cell: Cell) -> Cell:
    """Return the form of a cell in which clients write each frame on its own, as stomp.py does."""
    about = f"{cell.about}, each frame in a separate write"
    return replace(cell, name=f"{cell.name}-single", about=about, write_bytes=1)


def _forms(cells: tuple[Cell, ...]) -> Iterator[Cell]:
    """Yield each cell as it is, and with equal heads if it has messages."""
    for cell in cells:
        yield cell
        if cell.kind != "idle":
            about = f"{cell.about}, equal heads"
            yield replace(cell, name=f"{cell.name}-equal", about=about, is_varied=False)


_LARGER: Final = (1 << 10, 16 << 10, 64 << 10, 1 << 20)
_CELLS: Final = (
    *(_queue(many, ack) for many in (1, 4, 16) for ack in ("auto", "ind")),
    *(_single(_queue(1, ack)) for ack in ("auto", "ind")),
    *(_queue(1, ack, size) for size in _LARGER for ack in ("auto", "ind")),
    *(_queues(4, ack) for ack in ("auto", "ind")),
    *(_topic(many) for many in (10, 100)),
    _single(_topic(10)),
    *(_topic(10, size) for size in _LARGER),
    *(_persistent(window) for window in (1, 100, 1_000)),
    _single(_persistent(100)),
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
        f"one queue, 1 to 1 clients, {HALF}",
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
CELLS: Final = tuple(_forms(_CELLS))


def choose(patterns: list[str]) -> list[Cell]:
    """Return the cells that match any of ``patterns``; raise ValueError for one without a match."""
    for pattern in patterns:
        if not any(fnmatchcase(cell.name, pattern) for cell in CELLS):
            raise ValueError(f"no cell is called {pattern}; --list tells them")
    return [cell for cell in CELLS if any(fnmatchcase(cell.name, each) for each in patterns)]
