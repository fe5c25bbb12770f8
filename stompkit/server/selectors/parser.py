"""Parse the words of a selector into an evaluation function."""

from __future__ import annotations

import re
from typing import Final, NoReturn

from stompkit.server.selectors.errors import SelectorError
from stompkit.server.selectors.like import pattern_of
from stompkit.server.selectors.operators import (
    COMPARISONS,
    absence,
    calculation,
    comparison,
    junction,
    likeness,
    membership,
    negation,
)
from stompkit.server.selectors.values import (
    MOST_DIGITS,
    Kind,
    Part,
    Read,
    as_kind,
    as_number,
    constant,
    header,
)
from stompkit.server.selectors.words import Word, words_of

__all__ = ["Parser"]

#: Maximum nesting depth, by parentheses, NOT, signs or precedence. Parsing uses three interpreter
#: frames for each level, and evaluation about as many; the limit is 1,000 frames.
_MOST_NESTED: Final = 100
#: Maximum number of characters of all patterns together. In the worst case, matching time is
#: proportional to their length times that of the header: a fifth of a second for a header of 64
#: KiB.
_MOST_PATTERN_CHARACTERS: Final = 512

#: Cost of a pattern, in words; its evaluation time depends on the header.
_PATTERN_COST: Final = 50

#: Precedences, lowest first, as indices into the parser's list of extensions; NOT has that of
#: predicates.
_OR, _AND, _PREDICATE, _SUM, _PRODUCT, _OPERAND = range(6)


class Parser:
    """Parses a selector by operator precedence.

    Each method that takes a part extends it with the operators of one precedence that follow.
    Without any it returns the same part.
    """

    def __init__(self, text: str) -> None:
        """Split the text into words; raises :class:`SelectorError`."""
        self._text = text
        self._words = iter(words_of(text))
        self._word = next(self._words)
        self._nested = 0
        #: Number of words read, plus the cost of patterns.
        self.cost = 0
        self._pattern_characters = 0
        self._extensions = (
            self._disjunction,
            self._conjunction,
            self._predicate,
            self._sum,
            self._product,
        )

    def condition(self) -> Read:
        """Return the whole selector as a condition."""
        read = self._as(self._expression(_OR), Kind.TRUTH)
        if self._word.sort != "end":
            self._refuse("expected AND, OR or the end")
        return read

    def _refuse(self, message: str, at: int | None = None) -> NoReturn:
        raise SelectorError(message, self._word.at if at is None else at, self._text)

    def _next(self) -> Word:
        word = self._word
        self.cost += 1
        self._word = next(self._words, word)
        return word

    def _took(self, *marks: str) -> str:
        """Consume and return the word if it is one of *marks*, else return an empty text."""
        if self._word.sort == "mark" and self._word.text in marks:
            return self._next().text
        return ""

    def _need(self, mark: str) -> None:
        if not self._took(mark):
            self._refuse(f"expected {mark}")

    def _as(self, part: Part, kind: Kind) -> Read:
        read = as_kind(part, kind)
        if read is None:
            self._refuse(f"expected {kind.value}, not {part.kind.value}", part.at)
        return read

    def _expression(self, loosest: int) -> Part:
        """Parse an operand with all following operators of at least this precedence."""
        self._nested += 1
        if self._nested > _MOST_NESTED:
            self._refuse("nested too deeply")
        extensions = self._extensions[loosest:]
        at = self._word.at
        if loosest <= _PREDICATE and self._took("NOT"):
            truth = self._as(self._expression(_PREDICATE), Kind.TRUTH)
            part = Part(Kind.TRUTH, at, negation(truth))
            extensions = self._extensions[loosest:_PREDICATE]
        else:
            part = self._operand()
        for extend in reversed(extensions):
            part = extend(part)
        self._nested -= 1
        return part

    def _operand(self) -> Part:
        at = self._word.at
        if self._took("("):
            part = self._expression(_OR)
            self._need(")")
            return part
        if sign := self._took("+", "-"):
            number = self._as(self._expression(_OPERAND), Kind.NUMBER)
            signed = number if sign == "+" else calculation(constant(0), [("-", number)])
            return Part(Kind.NUMBER, at, signed)
        if truth := self._took("TRUE", "FALSE"):
            return Part(Kind.TRUTH, at, constant(truth == "TRUE"))
        sort = self._word.sort
        if sort == "number":
            return Part(Kind.NUMBER, at, constant(self._literal()))
        if sort == "string":
            return Part(Kind.TEXT, at, constant(self._next().text))
        if sort == "name":
            return Part(Kind.HEADER, at, header(self._next().text))
        self._refuse("expected a value")

    def _literal(self) -> float:
        number = as_number(self._word.text)
        if number is None:
            self._refuse(f"number too large, or of more than {MOST_DIGITS} characters")
        self._next()
        return number

    def _disjunction(self, part: Part) -> Part:
        return self._logical(part, "OR", _AND, decisive=True)

    def _conjunction(self, part: Part) -> Part:
        return self._logical(part, "AND", _PREDICATE, decisive=False)

    def _logical(self, part: Part, mark: str, tighter: int, *, decisive: bool) -> Part:
        parts = [part]
        while self._took(mark):
            parts.append(self._expression(tighter))
        if len(parts) == 1:
            return part
        reads = [self._as(each, Kind.TRUTH) for each in parts]
        return Part(Kind.TRUTH, part.at, junction(reads, decisive=decisive))

    def _sum(self, part: Part) -> Part:
        return self._arithmetic(part, ("+", "-"), _PRODUCT)

    def _product(self, part: Part) -> Part:
        return self._arithmetic(part, ("*", "/"), _OPERAND)

    def _arithmetic(self, part: Part, marks: tuple[str, str], tighter: int) -> Part:
        steps = []
        while mark := self._took(*marks):
            steps.append((mark, self._as(self._expression(tighter), Kind.NUMBER)))
        if not steps:
            return part
        read = calculation(self._as(part, Kind.NUMBER), steps)
        return Part(Kind.NUMBER, part.at, read)

    def _predicate(self, part: Part) -> Part:
        if mark := self._took(*COMPARISONS):
            return part._replace(
                kind=Kind.TRUTH, read=comparison(part, mark, self._expression(_SUM))
            )
        if self._took("IS"):
            negated = self._took("NOT")
            self._need("NULL")
            read = absence(self._as(part, Kind.HEADER))
        else:
            negated = self._took("NOT")
            if self._took("BETWEEN"):
                low = self._expression(_SUM)
                self._need("AND")
                high = self._expression(_SUM)
                ends = [comparison(part, ">=", low), comparison(part, "<=", high)]
                read = junction(ends, decisive=False)
            elif self._took("IN"):
                read = self._list(self._as(part, Kind.HEADER))
            elif self._took("LIKE"):
                read = likeness(self._as(part, Kind.HEADER), self._like_pattern())
            elif negated:
                self._refuse("expected BETWEEN, IN or LIKE")
            else:
                return part
        return Part(Kind.TRUTH, part.at, negation(read) if negated else read)

    def _list(self, read: Read) -> Read:
        texts: set[str] = set()
        numbers: set[float] = set()
        self._need("(")
        while True:
            sign = self._took("+", "-")
            if self._word.sort == "number":
                number = self._literal()
                numbers.add(-number if sign == "-" else number)
            elif sign:
                self._refuse("expected a number")
            else:
                texts.add(self._string("a string or a number"))
            if not self._took(","):
                break
        self._need(")")
        return membership(read, frozenset(texts), frozenset(numbers))

    def _string(self, wanted: str) -> str:
        if self._word.sort != "string":
            self._refuse(f"expected {wanted}")
        return self._next().text

    def _like_pattern(self) -> re.Pattern[str]:
        at = self._word.at
        text = self._string("a pattern in quotes")
        self._pattern_characters += len(text)
        self.cost += _PATTERN_COST
        if self._pattern_characters > _MOST_PATTERN_CHARACTERS:
            self._refuse(f"patterns of more than {_MOST_PATTERN_CHARACTERS} characters", at)
        escape = None
        if self._took("ESCAPE"):
            escape_at = self._word.at
            escape = self._string("one character in quotes")
            if len(escape) != 1:
                self._refuse("expected one character in quotes", escape_at)
        pattern = pattern_of(text, escape)
        if pattern is None:
            self._refuse("pattern with nothing after its last escape character", at)
        return pattern
