"""A selector: its text, and a test of headers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from weakref import WeakValueDictionary

from stompkit.server.selectors.parser import Parser
from stompkit.server.selectors.values import Read
from stompkit.server.selectors.words import HYPHENATED, words_of

__all__ = ["Selector", "with_hyphens"]


class _Condition:
    """The compiled form of a text, shared by all selectors with that text."""

    __slots__ = ("__weakref__", "cost", "read")

    def __init__(self, text: str) -> None:
        parser = Parser(text)
        self.read: Read = parser.condition()
        self.cost = parser.cost


#: Compiled conditions in use, by their texts.
_conditions: Final[WeakValueDictionary[str, _Condition]] = WeakValueDictionary()


class Selector:
    """A condition on a message's headers; ``text`` is the original text."""

    __slots__ = ("_condition", "cost", "text")

    def __init__(self, text: str) -> None:
        """Parse a selector; raises :class:`SelectorError`, also for an empty text."""
        self.text = text
        condition = _conditions.get(text)
        if condition is None:
            condition = _conditions[text] = _Condition(text)
        self._condition = condition
        #: Approximate evaluation cost: the number of words, higher for patterns.
        self.cost = condition.cost

    @property
    def condition(self) -> object:
        """The same object for all equal selectors."""
        return self._condition

    def takes(self, headers: Mapping[str, str]) -> bool:
        """Return True if the condition is true, neither false nor unknown; raises nothing."""
        return self._condition.read(headers) is True


def with_hyphens(text: str) -> str:
    """Return an equivalent selector that allows hyphens in names.

    Without such names the text is unchanged. Raises :class:`SelectorError` for an invalid one.
    """
    if not text or text.startswith(HYPHENATED):
        return text
    marked = HYPHENATED + text
    with_and_without = [[word.text for word in words_of(each)] for each in (marked, text)]
    return marked if with_and_without[0] != with_and_without[1] else text
