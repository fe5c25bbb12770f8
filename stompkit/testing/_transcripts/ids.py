"""Which headers hold ids, and how ids of a recording become those of a replay."""

from __future__ import annotations

from typing import Final

from stompkit.frames import Frame

__all__ = ["Ids", "id_kind"]

#: What the value of a header names, whatever the command.
_KINDS: Final = {
    "message-id": "message-id",
    "receipt": "receipt",
    "receipt-id": "receipt",
    "session": "session",
    "subscription": "subscription",
    "transaction": "transaction",
}
#: What a header names that depends on the command.
_KINDS_BY_COMMAND: Final = {
    ("SUBSCRIBE", "id"): "subscription",
    ("UNSUBSCRIBE", "id"): "subscription",
    ("ACK", "id"): "ack",
    ("NACK", "id"): "ack",
    ("MESSAGE", "ack"): "ack",
}
#: Where the broker makes up a destination, and where clients use it.
_DESTINATIONS: Final = frozenset({("MESSAGE", "reply-to"), ("SEND", "destination")})
#: Where an id is given; everywhere else it is used.
_GIVEN: Final = frozenset(
    {("SUBSCRIBE", "id"), ("BEGIN", "transaction"), ("CONNECTED", "session")}
    | {("MESSAGE", name) for name in ("message-id", "ack", "subscription", "reply-to")}
)


def id_kind(command: str, name: str) -> str | None:
    """What the value of a header is an id of; ``None`` for a header that holds no id."""
    return _KINDS_BY_COMMAND.get((command, name)) or _KINDS.get(name)


class Ids:
    """The ids that one connection of a recording had, and what they are in its replay."""

    def __init__(self) -> None:
        """Begin without any."""
        self._new: dict[tuple[str, str], str] = {}

    def learn(self, recorded: Frame, actual: Frame) -> None:
        """Learn from a frame that somebody else has sent in the place of a recorded one."""
        for name, old in recorded.headers.items():
            kind = _kind(recorded.command, name)
            new = actual.headers.get(name)
            if kind is None or new is None:
                continue
            if name == "receipt" or (recorded.command, name) in _GIVEN:
                self._new[kind, old] = new

    def translated(self, recorded: Frame) -> Frame:
        """A frame of the recording with the ids of the replay."""
        headers = {
            name: self.value(recorded.command, name, old) for name, old in recorded.headers.items()
        }
        return Frame(recorded.command, headers, recorded.body, recorded.repeated)

    def value(self, command: str, name: str, old: str) -> str:
        """The value of one header of the recording with the ids of the replay."""
        kind = _kind(command, name)
        if kind is None:
            return old
        new = self._new.get((kind, old))
        if new is None and kind == "ack":
            # Some brokers take the message-id for an ack id.
            new = self._new.get(("message-id", old))
        return old if new is None else new


def _kind(command: str, name: str) -> str | None:
    return "destination" if (command, name) in _DESTINATIONS else id_kind(command, name)
