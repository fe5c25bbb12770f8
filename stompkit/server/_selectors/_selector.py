"""A selector as the rest of the broker knows it: a text, and a question to ask of headers."""

from __future__ import annotations

from collections.abc import Mapping

from stompkit.server._selectors._parser import Parser

__all__ = ["Selector"]


class Selector:
    """A condition that a message's headers meet or don't; ``text`` is as it was written."""

    __slots__ = ("_read", "text")

    def __init__(self, text: str) -> None:
        """Read a selector; raises :class:`SelectorError`, also for one that is empty."""
        self.text = text
        self._read = Parser(text).condition()

    def takes(self, headers: Mapping[str, str]) -> bool:
        """Whether the condition is true, neither false nor unknown; raises nothing."""
        return self._read(headers) is True
