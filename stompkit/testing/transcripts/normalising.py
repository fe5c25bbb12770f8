"""Normalisation: removes values from a transcript that differ between runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Final

from stompkit.frames import Frame
from stompkit.testing.frames.events import Closed, Event, SeenFrame
from stompkit.testing.transcripts.ids import id_kind

__all__ = ["normalised", "replaced"]

#: Kinds of ids that are shared by all connections; the others belong to one connection.
_GLOBAL: Final = frozenset({"message-id", "session"})
#: Headers whose value no test can predict.
_PLACEHOLDERS: Final = {"server": "server", "timestamp": "time", "expires": "time"}


def replaced(events: Iterable[Event], replacements: Mapping[str, str]) -> tuple[Event, ...]:
    """Replace texts in the values of headers and in bodies."""
    # The longest first: a text may be a part of another.
    ordered = sorted(replacements.items(), key=lambda pair: (-len(pair[0]), pair))
    texts = [(old, new) for old, new in ordered if old]
    octets = [(_octets(old), _octets(new)) for old, new in texts]

    def value_of(_: str, value: str) -> str:
        for old, new in texts:
            value = value.replace(old, new)
        return value

    changed = []
    for event in events:
        if isinstance(event, SeenFrame):
            body = event.body
            for old, new in octets:
                body = body.replace(old, new)
            frame = _changed(event.frame, value_of, body)
            if frame.headers.get("content-length") == str(len(event.body)):
                frame.headers["content-length"] = str(len(body))
            event = replace(event, frame=frame)
        changed.append(event)
    return tuple(changed)


def normalised(events: Iterable[Event]) -> tuple[Event, ...]:
    """Replace ids by placeholders, number connections from 1, and remove times and reasons."""
    events = list(events)
    # A log counts all connections of a broker, also those of earlier tests.
    connections = sorted({event.connection for event in events})
    numbers = {connection: number for number, connection in enumerate(connections, 1)}
    placeholders = _Placeholders()
    disconnected = set()
    changed: list[Event] = []
    for event in events:
        event = replace(event, at_s=0.0, connection=numbers[event.connection])
        if isinstance(event, SeenFrame):
            if event.command == "DISCONNECT":
                disconnected.add(event.connection)
            event = replace(event, frame=placeholders.put_into(event.connection, event.frame))
        elif isinstance(event, Closed):
            # After a DISCONNECT both ends close, in random order.
            by = None if event.connection in disconnected else event.by
            event = replace(event, by=by, reason="")
        changed.append(event)
    return tuple(changed)


class _Placeholders:
    """Placeholders of the ids seen so far."""

    def __init__(self) -> None:
        self._names: dict[tuple[str, int, str], str] = {}
        self._counts: dict[str, int] = {}

    def put_into(self, connection: int, frame: Frame) -> Frame:
        """Return a frame with placeholders."""

        def value_of(name: str, value: str) -> str:
            kind = id_kind(frame.command, name)
            if kind is not None:
                return self._name(connection, kind, value)
            return _PLACEHOLDERS.get(name, value)

        return _changed(frame, value_of, frame.body)

    def _name(self, connection: int, kind: str, value: str) -> str:
        key = kind, 0 if kind in _GLOBAL else connection, value
        if kind == "ack" and key not in self._names:
            # Some brokers accept the message-id as an ack id.
            other = "message-id", 0, value
            if other in self._names:
                return self._names[other]
        if key not in self._names:
            self._counts[kind] = self._counts.get(kind, 0) + 1
            self._names[key] = f"{kind}-{self._counts[kind]}"
        return self._names[key]


def _changed(frame: Frame, value_of: Callable[[str, str], str], body: bytes) -> Frame:
    """Return a frame with another body, and with header values from ``value_of(name, value)``."""
    headers = {name: value_of(name, value) for name, value in frame.headers.items()}
    repeated = tuple((name, value_of(name, value)) for name, value in frame.repeated)
    return Frame(frame.command, headers, body, repeated)


def _octets(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
