"""Message selectors: the conditions of the JMS specification, over the headers of a message.

The language is that of JMS 1.1, section 3.8.1.1, itself a subset of SQL-92's conditions:
comparisons, arithmetic, ``BETWEEN``, ``IN``, ``LIKE``, ``IS NULL``, ``AND``, ``OR`` and ``NOT``.
Keywords are the same in any case, names of headers are not.

*Names* are letters, digits, ``_`` and ``$``. ``a-b`` is a difference, as in JMS; any other header
is named in double quotes: ``"content-type" = 'text/plain'``, with ``""`` for a quote in it.
ActiveMQ's prefix ``hyphenated_props:`` is not known. JMS's own names stand for STOMP's headers,
see :data:`_STANDS_FOR`.

*Types.* Headers are text, and what they are compared with says how they are read: as a number
beside a number or arithmetic, as ``true`` or ``false`` in any case beside a condition or where a
condition is expected, as they are beside a string or another header. ``<``, ``<=``, ``>``, ``>=``
and ``BETWEEN`` are for numbers only, so there two headers are numbers. Numbers are decimal; two
integers have an integer quotient, rounded towards zero, as in Java.

*Unknown* is a comparison with a header that is missing, or that can't be read as it has to be;
one of different types, or of the order of strings (false in JMS); what a division by zero or
too large a number takes part in. ``NOT``, ``AND`` and ``OR`` go on with three values, and only a
message for which the whole is true is taken.
"""

from __future__ import annotations

import json
import operator
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any, Final, Literal, NamedTuple, NoReturn, TypeAlias

__all__ = ["Selector", "SelectorError"]

#: Octets of a selector, and names and values in it.
_MOST_OCTETS: Final = 8_192
_MOST_VALUES: Final = 1_000
#: Expressions in each other, whether by parentheses, NOT, signs or precedence. Reading takes three
#: of the interpreter's frames for each, evaluation about as many; it has 1,000.
_MOST_NESTED: Final = 100
#: Characters of a number.
_MOST_DIGITS: Final = 40
#: Characters of all patterns together. The time that they take grows with their length times that
#: of the header, at worst: with one of 64 KiB this is a fifth of a second.
_MOST_PATTERN_CHARACTERS: Final = 512
#: No number is larger, so an integer can always be added to an approximate number.
_LARGEST: Final = sys.float_info.max
#: Characters of a selector that the text of an error repeats on each side of the place.
_QUOTED_AROUND: Final = 60

#: What a header or an expression is for a message; ``None`` for a missing one, or unknown.
_Value: TypeAlias = str | float | None
_Read: TypeAlias = Callable[[Mapping[str, str]], _Value]


class SelectorError(ValueError):
    """A text that is no selector.

    ``message`` says why not, ``position`` where, as the characters before the place.
    """

    def __init__(self, message: str, position: int, text: str) -> None:
        """Keep what is wrong, and where in ``text``."""
        start, end = max(0, position - _QUOTED_AROUND), position + _QUOTED_AROUND
        excerpt = "..." * (start > 0) + text[start:end] + "..." * (end < len(text))
        super().__init__(f"{message} at offset {position} of {json.dumps(excerpt)}")
        self.message = message
        self.position = position


class Selector:
    """A condition that a message's headers meet or don't; ``text`` is as it was written."""

    __slots__ = ("_read", "text")

    def __init__(self, text: str) -> None:
        """Read a selector; raises :class:`SelectorError`, also for one that is empty."""
        self.text = text
        self._read = _Parser(text).condition()

    def takes(self, headers: Mapping[str, str]) -> bool:
        """Whether the condition is true, neither false nor unknown; raises nothing."""
        return self._read(headers) is True


# Words.

_UNSIGNED: Final = r"(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
_NUMBER: Final = re.compile(rf"[+-]?{_UNSIGNED}")
_WORD: Final = re.compile(
    rf"""(?P<blank>[ \t\r\n\f]+)
    |(?P<number>{_UNSIGNED})
    |(?P<name>(?:[A-Za-z0-9_$]|[^\x00-\x7f])+)
    |(?P<string>'(?:[^']|'')*'(?!'))
    |(?P<quoted>"(?:[^"]|"")*"(?!"))
    |(?P<mark><>|<=|>=|[-+*/=<>(),])""",
    re.VERBOSE,
)
_KEYWORDS: Final = frozenset("AND BETWEEN ESCAPE FALSE IN IS LIKE NOT NULL OR TRUE".split())
_UNFINISHED: Final = {"'": "string without its last quote", '"': "name without its last quote"}


class _Word(NamedTuple):
    sort: Literal["name", "number", "string", "mark", "end"]
    #: Without quotes; keywords are marks in capitals.
    text: str
    at: int


def _words(text: str) -> list[_Word]:
    """All words of a selector and the end, or the error of the first that is none."""
    if len(text) > _MOST_OCTETS or len(text.encode("utf-8", "surrogatepass")) > _MOST_OCTETS:
        raise SelectorError(f"selector of more than {_MOST_OCTETS} octets", 0, text)
    words: list[_Word] = []
    values = at = 0
    while at < len(text):
        match = _WORD.match(text, at)
        if match is None:
            raise SelectorError(_UNFINISHED.get(text[at], "unexpected character"), at, text)
        found = match[0]
        if match["string"]:
            words.append(_Word("string", found[1:-1].replace("''", "'"), at))
        elif match["quoted"]:
            words.append(_Word("name", found[1:-1].replace('""', '"'), at))
        elif match["number"]:
            words.append(_Word("number", found, at))
        elif match["name"]:
            words.append(_name(found, at, text))
        elif match["mark"]:
            words.append(_Word("mark", found, at))
        if not match["blank"] and words[-1].sort != "mark":
            values += 1
            if values > _MOST_VALUES:
                raise SelectorError(f"more than {_MOST_VALUES} names and values", at, text)
        at = match.end()
    words.append(_Word("end", "", at))
    return words


def _name(found: str, at: int, text: str) -> _Word:
    # Only of ASCII: the capitals of some other letters are ASCII, as that of a dotless i.
    if found.isascii() and found.upper() in _KEYWORDS:
        return _Word("mark", found.upper(), at)
    if not found.replace("$", "_").isidentifier():
        raise SelectorError("name that needs double quotes", at, text)
    return _Word("name", found, at)


# What the parts of a selector are for a message.


class _Kind(Enum):
    HEADER = "the name of a header"
    TEXT = "a string"
    NUMBER = "a number"
    TRUTH = "a condition"


class _Part(NamedTuple):
    kind: _Kind
    at: int
    read: _Read


def _number(text: str) -> float | None:
    if len(text) > _MOST_DIGITS or not _NUMBER.fullmatch(text):
        return None
    if "." not in text and "e" not in text and "E" not in text:
        return int(text)
    number = float(text)
    return number if -_LARGEST <= number <= _LARGEST else None


_TRUTHS: Final = {"true": True, "false": False}
_LONGEST_TRUTH: Final = max(map(len, _TRUTHS))


def _truth(text: str) -> bool | None:
    return _TRUTHS.get(text.lower()) if len(text) <= _LONGEST_TRUTH else None


def _delivery_mode(text: str) -> str:
    return "PERSISTENT" if text == "true" else "NON_PERSISTENT"


#: The names that JMS has for headers of STOMP, and what a message without the header has: two of
#: them are never NULL. They count only where no header has JMS's name itself.
_STANDS_FOR: Final[dict[str, tuple[str, str | None]]] = {
    "JMSPriority": ("priority", "4"),
    "JMSMessageID": ("message-id", None),
    "JMSTimestamp": ("timestamp", None),
    "JMSCorrelationID": ("correlation-id", None),
    "JMSType": ("type", None),
    "JMSDeliveryMode": ("persistent", "false"),
}


def _header(name: str) -> _Read:
    if name not in _STANDS_FOR:
        return lambda headers: headers.get(name)
    other, default = _STANDS_FOR[name]

    def read(headers: Mapping[str, str]) -> str | None:
        text = headers.get(name)
        if text is not None:
            return text
        text = headers.get(other, default)
        return _delivery_mode(text) if text is not None and other == "persistent" else text

    return read


_CONVERSIONS: Final[dict[_Kind, Callable[[str], _Value]]] = {
    _Kind.NUMBER: _number,
    _Kind.TRUTH: _truth,
}


def _as(part: _Part, kind: _Kind) -> _Read | None:
    """A part as one of another kind, which headers alone can be."""
    read = part.read
    if part.kind is kind:
        return read
    if part.kind is not _Kind.HEADER:
        return None
    if kind not in _CONVERSIONS:
        return read
    convert = _CONVERSIONS[kind]

    def converted(headers: Mapping[str, str]) -> _Value:
        text = read(headers)
        return convert(text) if isinstance(text, str) else None

    return converted


def _constant(value: _Value) -> _Read:
    return lambda headers: value


_EQUALITIES: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "=": operator.eq,
    "<>": operator.ne,
}
_COMPARISONS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    **_EQUALITIES,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def _compared(left: _Part, mark: str, right: _Part) -> _Read:
    kinds = (left.kind, right.kind)
    kind = _Kind.TEXT
    if mark not in _EQUALITIES or _Kind.NUMBER in kinds:
        kind = _Kind.NUMBER
    elif _Kind.TRUTH in kinds:
        kind = _Kind.TRUTH
    one, other = _as(left, kind), _as(right, kind)
    if one is None or other is None:
        return _constant(None)
    compare = _COMPARISONS[mark]

    def compared(headers: Mapping[str, str]) -> bool | None:
        a = one(headers)
        if a is None:
            return None
        b = other(headers)
        return None if b is None else compare(a, b)

    return compared


def _among(read: _Read, texts: frozenset[str], numbers: frozenset[float]) -> _Read:
    def among(headers: Mapping[str, str]) -> bool | None:
        text = read(headers)
        if not isinstance(text, str):
            return None
        if text in texts:
            return True
        if not numbers:
            return False
        number = _number(text)
        return None if number is None else number in numbers

    return among


def _like(read: _Read, pattern: re.Pattern[str]) -> _Read:
    def like(headers: Mapping[str, str]) -> bool | None:
        text = read(headers)
        return pattern.fullmatch(text) is not None if isinstance(text, str) else None

    return like


def _missing(read: _Read) -> _Read:
    return lambda headers: read(headers) is None


def _opposite(read: _Read) -> _Read:
    def opposite(headers: Mapping[str, str]) -> bool | None:
        truth = read(headers)
        return None if truth is None else not truth

    return opposite


def _joined(reads: Sequence[_Read], *, decisive: bool) -> _Read:
    """What AND gives, where false decides, or OR, where true does."""

    def joined(headers: Mapping[str, str]) -> bool | None:
        result: bool | None = not decisive
        for read in reads:
            truth = read(headers)
            if truth == decisive:
                return decisive
            if truth is None:
                result = None
        return result

    return joined


def _quotient(a: float, b: float) -> float:
    if b == 0:
        return float("nan")  # which no range has in it
    if isinstance(a, int) and isinstance(b, int):
        quotient = abs(a) // abs(b)
        return quotient if (a < 0) == (b < 0) else -quotient
    return a / b


_ARITHMETIC: Final[dict[str, Callable[[Any, Any], float]]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": _quotient,
}


def _calculated(first: _Read, steps: Sequence[tuple[str, _Read]]) -> _Read:
    """What operators of one precedence make of numbers, from left to right."""
    operations = [(_ARITHMETIC[mark], read) for mark, read in steps]

    def calculated(headers: Mapping[str, str]) -> _Value:
        result = first(headers)
        for operate, read in operations:
            operand = read(headers)
            if result is None or operand is None:
                return None
            result = operate(result, operand)
            if not -_LARGEST <= result <= _LARGEST:
                return None
        return result

    return calculated


def _pattern(text: str, escape: str | None) -> re.Pattern[str] | None:
    """A pattern of LIKE, or ``None`` where it ends in its escape character.

    What is between two ``%`` is found where it occurs first, and never looked for again: that is
    what atomic groups say, and it keeps the time to the product of both lengths.
    """
    pieces = [""]
    characters = iter(text)
    for character in characters:
        if character == escape:
            follower = next(characters, None)
            if follower is None:
                return None
            pieces[-1] += re.escape(follower)
        elif character == "%":
            pieces.append("")
        else:
            pieces[-1] += "." if character == "_" else re.escape(character)
    first, *others = pieces
    if others:
        *middle, last = others
        first += "".join(f"(?>.*?{piece})" for piece in middle if piece) + ".*" + last
    return re.compile(first, re.DOTALL)


# From words to parts.

#: Precedences, loosest first, as places in the parser's list of extensions; NOT is that of
#: predicates.
_OR, _AND, _PREDICATE, _SUM, _PRODUCT, _OPERAND = range(6)


class _Parser:
    """Reads a selector by precedence.

    Each method that takes a part extends it with the operators of one precedence, as far as they
    follow; with none it gives back the same part.
    """

    def __init__(self, text: str) -> None:
        """Split the text into words; raises :class:`SelectorError`."""
        self._text = text
        self._words = iter(_words(text))
        self._word = next(self._words)
        self._nested = 0
        self._pattern_characters = 0
        self._extensions = (
            self._disjunction,
            self._conjunction,
            self._predicate,
            self._sum,
            self._product,
        )

    def condition(self) -> _Read:
        """The whole selector, as a condition."""
        read = self._as(self._expression(_OR), _Kind.TRUTH)
        if self._word.sort != "end":
            self._refuse("expected AND, OR or the end")
        return read

    def _refuse(self, message: str, at: int | None = None) -> NoReturn:
        raise SelectorError(message, self._word.at if at is None else at, self._text)

    def _next(self) -> _Word:
        word = self._word
        self._word = next(self._words, word)
        return word

    def _took(self, *marks: str) -> str:
        """The word if it is one of some marks, which is then passed; else nothing."""
        if self._word.sort == "mark" and self._word.text in marks:
            return self._next().text
        return ""

    def _need(self, mark: str) -> None:
        if not self._took(mark):
            self._refuse(f"expected {mark}")

    def _as(self, part: _Part, kind: _Kind) -> _Read:
        read = _as(part, kind)
        if read is None:
            self._refuse(f"expected {kind.value}, not {part.kind.value}", part.at)
        return read

    def _expression(self, loosest: int) -> _Part:
        """An operand and what follows it, with operators that bind so tightly or tighter."""
        self._nested += 1
        if self._nested > _MOST_NESTED:
            self._refuse("nested too deeply")
        extensions = self._extensions[loosest:]
        at = self._word.at
        if loosest <= _PREDICATE and self._took("NOT"):
            truth = self._as(self._expression(_PREDICATE), _Kind.TRUTH)
            part = _Part(_Kind.TRUTH, at, _opposite(truth))
            extensions = self._extensions[loosest:_PREDICATE]
        else:
            part = self._operand()
        for extend in reversed(extensions):
            part = extend(part)
        self._nested -= 1
        return part

    def _operand(self) -> _Part:
        at = self._word.at
        if self._took("("):
            part = self._expression(_OR)
            self._need(")")
            return part
        if sign := self._took("+", "-"):
            number = self._as(self._expression(_OPERAND), _Kind.NUMBER)
            signed = number if sign == "+" else _calculated(_constant(0), [("-", number)])
            return _Part(_Kind.NUMBER, at, signed)
        if truth := self._took("TRUE", "FALSE"):
            return _Part(_Kind.TRUTH, at, _constant(truth == "TRUE"))
        sort = self._word.sort
        if sort == "number":
            return _Part(_Kind.NUMBER, at, _constant(self._literal()))
        if sort == "string":
            return _Part(_Kind.TEXT, at, _constant(self._next().text))
        if sort == "name":
            return _Part(_Kind.HEADER, at, _header(self._next().text))
        self._refuse("expected a value")

    def _literal(self) -> float:
        number = _number(self._word.text)
        if number is None:
            self._refuse(f"number too large, or of more than {_MOST_DIGITS} characters")
        self._next()
        return number

    def _disjunction(self, part: _Part) -> _Part:
        return self._logical(part, "OR", _AND, decisive=True)

    def _conjunction(self, part: _Part) -> _Part:
        return self._logical(part, "AND", _PREDICATE, decisive=False)

    def _logical(self, part: _Part, mark: str, tighter: int, *, decisive: bool) -> _Part:
        parts = [part]
        while self._took(mark):
            parts.append(self._expression(tighter))
        if len(parts) == 1:
            return part
        reads = [self._as(each, _Kind.TRUTH) for each in parts]
        return _Part(_Kind.TRUTH, part.at, _joined(reads, decisive=decisive))

    def _sum(self, part: _Part) -> _Part:
        return self._arithmetic(part, ("+", "-"), _PRODUCT)

    def _product(self, part: _Part) -> _Part:
        return self._arithmetic(part, ("*", "/"), _OPERAND)

    def _arithmetic(self, part: _Part, marks: tuple[str, str], tighter: int) -> _Part:
        steps = []
        while mark := self._took(*marks):
            steps.append((mark, self._as(self._expression(tighter), _Kind.NUMBER)))
        if not steps:
            return part
        read = _calculated(self._as(part, _Kind.NUMBER), steps)
        return _Part(_Kind.NUMBER, part.at, read)

    def _predicate(self, part: _Part) -> _Part:
        if mark := self._took(*_COMPARISONS):
            return part._replace(
                kind=_Kind.TRUTH, read=_compared(part, mark, self._expression(_SUM))
            )
        if self._took("IS"):
            negated = self._took("NOT")
            self._need("NULL")
            read = _missing(self._as(part, _Kind.HEADER))
        else:
            negated = self._took("NOT")
            if self._took("BETWEEN"):
                low = self._expression(_SUM)
                self._need("AND")
                high = self._expression(_SUM)
                ends = [_compared(part, ">=", low), _compared(part, "<=", high)]
                read = _joined(ends, decisive=False)
            elif self._took("IN"):
                read = self._list(self._as(part, _Kind.HEADER))
            elif self._took("LIKE"):
                read = _like(self._as(part, _Kind.HEADER), self._like_pattern())
            elif negated:
                self._refuse("expected BETWEEN, IN or LIKE")
            else:
                return part
        return _Part(_Kind.TRUTH, part.at, _opposite(read) if negated else read)

    def _list(self, read: _Read) -> _Read:
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
        return _among(read, frozenset(texts), frozenset(numbers))

    def _string(self, wanted: str) -> str:
        if self._word.sort != "string":
            self._refuse(f"expected {wanted}")
        return self._next().text

    def _like_pattern(self) -> re.Pattern[str]:
        at = self._word.at
        text = self._string("a pattern in quotes")
        self._pattern_characters += len(text)
        if self._pattern_characters > _MOST_PATTERN_CHARACTERS:
            self._refuse(f"patterns of more than {_MOST_PATTERN_CHARACTERS} characters", at)
        escape = None
        if self._took("ESCAPE"):
            escape_at = self._word.at
            escape = self._string("one character in quotes")
            if len(escape) != 1:
                self._refuse("expected one character in quotes", escape_at)
        pattern = _pattern(text, escape)
        if pattern is None:
            self._refuse("pattern with nothing after its last escape character", at)
        return pattern
