"""A selector as the rest of the broker knows it: a text, and a question to ask of headers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from weakref import WeakValueDictionary

from stompkit.server.selectors.parser import Parser
from stompkit.server.selectors.values import Read
from stompkit.server.selectors.words import HYPHENATED, words_of

__all__ = ["Selector", "with_hyphens"]


class _Condition:
    """What a text was compiled to, shared by all selectors with that text."""

    __slots__ = ("__weakref__", "cost", "read")

    def __init__(self, text: str) -> None:
        parser = Parser(text)
        self.read: Read = parser.condition()
        self.cost = parser.cost


#: Conditions in use, by their texts.
_conditions: Final[WeakValueDictionary[str, _Condition]] = WeakValueDictionary()


class Selector:
    """A condition that a message's headers meet or don't; ``text`` is as it was written."""

    __slots__ = ("_condition", "cost", "text")

    def __init__(self, text: str) -> None:
        """Read a selector; raises :class:`SelectorError`, also for one that is empty."""
        self.text = text
        condition = _conditions.get(text)
        if condition is None:
            condition = _conditions[text] = _Condition(text)
        self._condition = condition
        #: About how long an evaluation takes: the number of words, more for patterns.
        self.cost = condition.cost

    @property
    def condition(self) -> object:
        """The same object for all selectors that are equal."""
        return self._condition

    def takes(self, headers: Mapping[str, str]) -> bool:
        """Whether the condition is true, neither false nor unknown; raises nothing."""
        return self._condition.read(headers) is True


def with_hyphens(text: str) -> str:
    """A selector whose names can have hyphens, as the text that means so everywhere.

    One without such names stays as it is. Raises :class:`SelectorError` for none at all.
    """
    if not text or text.startswith(HYPHENATED):
        return text
    marked = HYPHENATED + text
    with_and_without = [[word.text for word in words_of(each)] for each in (marked, text)]
    return marked if with_and_without[0] != with_and_without[1] else text
