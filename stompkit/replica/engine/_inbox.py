"""Received messages: unpacked, decoded, and refused if they are malformed or untrusted."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from stompkit.replica.applier import Incoming
from stompkit.replica.engine._core import Core
from stompkit.replica.messages import Message, MessageError, Unpacker
from stompkit.replica.signed import SignedChangeset
from stompkit.replica.signing import Verifier
from stompkit.replication.model.events import EventError

__all__ = ["RELAY", "Inbox"]

_log: Final = logging.getLogger(__name__)

#: Header of a forwarded message: its receiver does not receive from the sender directly.
RELAY: Final = "stompkit-relay"


class Inbox:
    """Unpacks the frames of all channels."""

    def __init__(self, core: Core, verifier: Verifier | None) -> None:
        """Start empty."""
        self._core = core
        self._unpackers = [Unpacker(verifier) for _ in core.settings.channels]
        self.refused: dict[str, str] = {}
        """Reasons of refused messages."""

    def unpack(
        self, port: int, frames: Sequence[tuple[Mapping[str, str], bytes]]
    ) -> list[tuple[Message, bool]]:
        """Return the completed messages; each with True if it came from its sender directly."""
        core = self._core
        found = []
        for headers, body in frames:
            core.counts["received"] += 1
            try:
                message = self._unpackers[port].add(headers, body)
            except MessageError as problem:
                self.refuse(str(problem))
                continue
            if message is None:
                continue
            is_own = message.sender == core.origin
            if not is_own or message.kind == "have":
                found.append((message, RELAY not in headers))
        return found

    def changesets(self, message: Message) -> Iterator[Incoming]:
        """Yield the changesets of a message, without malformed ones."""
        if self._core.settings.direction == "send":
            return
        for item in message.items:
            try:
                yield Incoming(SignedChangeset.decode(item), message.sender)
            except (MessageError, EventError) as problem:
                self.refuse(f"{message.sender}: {problem}")

    def refuse(self, reason: str) -> None:
        """Count a refused message, and log each reason once."""
        self._core.counts["refused"] += 1
        if reason not in self.refused and len(self.refused) < 100:
            self.refused[reason] = reason
            _log.warning("a message of another replica is refused: %s", reason)
