"""Names of destinations: kinds, levels, wildcards, and the spellings of other brokers.

A name is a prefix that says the kind, and levels with dots between them: ``/queue/orders.eu``.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from itertools import takewhile
from typing import Final
from urllib.parse import quote, unquote

from stompkit.server.domain.errors import Refused
from stompkit.server.settings.broker import Dialect

__all__ = [
    "DEAD_LETTERS",
    "DURABLES",
    "Kind",
    "Pattern",
    "below_level",
    "canonical",
    "dead_letter_source",
    "dead_letters_of",
    "is_pattern",
    "kind_of",
    "level_itself",
]

DEAD_LETTERS: Final = "/dlq/"
#: The prefix of the queues of durable subscriptions; no client can name a destination like this.
DURABLES: Final = "/durable/"


class Kind(Enum):
    """The kinds of destinations, by the prefix of their names."""

    QUEUE = "/queue/"
    TOPIC = "/topic/"
    FANOUT = "/fanout/"
    TEMP_QUEUE = "/temp-queue/"
    TEMP_TOPIC = "/temp-topic/"
    DEAD_LETTERS = DEAD_LETTERS


_WILDCARDS: Final = frozenset("*>#")
_PREFIXES: Final = tuple(kind.value for kind in Kind)
#: What the names of dead-letter queues of durable subscriptions begin with, behind the prefix.
_DURABLE: Final = DURABLES[1:]
#: All printable characters of ASCII but the wildcards and the percent sign.
_NOT_QUOTED: Final = "".join(
    chr(each) for each in range(33, 127) if chr(each) not in _WILDCARDS | {"%"}
)


def kind_of(name: str) -> Kind:
    """The kind of destination that a name stands for; raises :class:`Refused` for none."""
    for kind in Kind:
        prefix = kind.value
        if name.startswith(prefix) and len(name) > len(prefix):
            return kind
    raise Refused(
        f"destination {name[:100]!a} is unknown: names begin with {' or '.join(_PREFIXES)}",
        "unknown-destination",
    )


def dead_letters_of(name: str) -> str:
    """Return the dead-letter queue of a queue or durable subscription; no two share one.

    ``/dlq/durable/...`` belongs to durable subscriptions alone. Queues whose names would lead
    there get a ``~`` in front, and so do those that begin with that already.
    """
    own = name.removeprefix(DURABLES)
    if own != name:
        client, _, rest = own.partition("/")
        if is_pattern(DEAD_LETTERS + own):
            # A colon is quoted in every client's part, so that this is nobody else's name.
            client, rest = f":{client}", quote(rest, safe=_NOT_QUOTED, errors="surrogateescape")
        return f"{DEAD_LETTERS}{_DURABLE}{client}/{rest}"
    own = name.removeprefix(Kind.QUEUE.value)
    return DEAD_LETTERS + ("~" + own if _is_like_durable(own) else own)


def dead_letter_source(name: str) -> str:
    """Return the queue or durable subscription whose dead letters are in the queue *name*."""
    own = name.removeprefix(DEAD_LETTERS)
    if own.startswith(_DURABLE):
        client, _, rest = own.removeprefix(_DURABLE).partition("/")
        if client.startswith(":"):
            client, rest = client[1:], unquote(rest, errors="surrogateescape")
        return f"{DURABLES}{client}/{rest}"
    return Kind.QUEUE.value + (own[1:] if _is_like_durable(own) else own)


def _is_like_durable(name: str) -> bool:
    return name.lstrip("~").startswith(_DURABLE)


def is_pattern(name: str) -> bool:
    """Whether a name has a level that is a wildcard."""
    if _WILDCARDS.isdisjoint(name):
        return False
    return not _WILDCARDS.isdisjoint(_levels(name))


def _levels(name: str) -> list[str]:
    kind = kind_of(name)
    return name[len(kind.value) :].split(".")


class Pattern:
    """A name with wildcards.

    ``*`` stands for one level; ``>`` as the last one for one level or more, ``#`` for any number
    of them or none. The wildcards stand for nothing but whole levels.
    """

    __slots__ = ("_begin", "_fixed", "_least", "_open", "kind", "text")

    def __init__(self, text: str, *, like_activemq: bool = False) -> None:
        """Read a pattern; raises :class:`Refused` for ``>`` or ``#`` before the last level.

        With ``like_activemq``, ``>`` means what ``#`` does: ``a.>`` matches ``a`` as well.
        """
        self.text = text
        self.kind = kind_of(text)
        levels = _levels(text)
        if any(level in (">", "#") for level in levels[:-1]):
            raise Refused(
                f"pattern {text[:100]!a}: > and # can be the last level only", "bad-destination"
            )
        #: Whether further levels are taken after the fixed ones, and how many there must be.
        self._open = levels[-1] in (">", "#")
        self._least = 1 if levels[-1] == ">" and not like_activemq else 0
        self._fixed = levels[:-1] if self._open else levels
        #: What every name that matches begins with: it tells most others apart at once.
        self._begin = self.kind.value + ".".join(takewhile(lambda level: level != "*", self._fixed))

    @property
    def levels(self) -> list[str]:
        """Its levels, wildcards and all; ``#`` for a ``>`` that means the same."""
        levels = _levels(self.text)
        return [*self._fixed, "#"] if self._open and not self._least else levels

    def matches(self, name: str) -> bool:
        """Whether a destination's name, without wildcards, is one of those meant."""
        if not name.startswith(self._begin):
            return False
        levels = name[len(self.kind.value) :].split(".")
        more = len(levels) - len(self._fixed)
        if more < self._least if self._open else more != 0:
            return False
        return all(
            wanted in ("*", level) for wanted, level in zip(self._fixed, levels, strict=False)
        )

    def covers(self, other: Pattern) -> bool:
        """Whether this pattern matches every name that the other one matches."""
        if self.kind is not other.kind:
            return False
        mine, theirs = self._fixed, other._fixed
        if other._open and not self._open:
            return False
        # Names have a level at least, whatever a pattern says.
        if max(1, len(theirs) + other._least) < len(mine) + self._least:
            return False
        if not self._open and len(mine) != len(theirs):
            return False
        # Where the other one has no fixed level any more, anything can stand in its name.
        theirs = theirs + [">"] * (len(mine) - len(theirs))
        return all(wanted in ("*", level) for wanted, level in zip(mine, theirs, strict=False))


def level_itself(name: str) -> str | None:
    """Return what a pattern that ends in ``>`` matches in ActiveMQ's dialect only.

    That is ``/queue/a`` for ``/queue/a.>``, and ``None`` for a name of another form.
    """
    return name[:-2] if name.endswith(".>") and kind_of(name).value + ">" != name else None


def below_level(name: str) -> str:
    """Return a pattern for what one that ends in ``>`` matches in every dialect."""
    return name[:-1] + "*.#"


def canonical(name: str, headers: Mapping[str, str], dialect: Dialect) -> str:
    """Our name for a destination that is spelled as another broker's clients spell it.

    ``headers`` are those of the frame; Artemis's clients say the kind in one of them. A name
    that is ours already stays as it is in every dialect.
    """
    if dialect == "activemq":
        name = name.strip()
    if dialect == "stompkit" or name.startswith(_PREFIXES):
        return name
    if dialect == "rabbitmq":
        return _rabbitmq(name)
    if dialect == "artemis":
        return _artemis(name, headers)
    if dialect == "activemq":
        for prefix, kind in _ACTIVEMQ.items():
            if name.startswith(prefix):
                return kind.value + name[len(prefix) :]
    return name if name.startswith("/") or not name else Kind.QUEUE.value + name


#: What ActiveMQ's clients write besides the prefixes that are ours as well.
_ACTIVEMQ: Final = {
    "queue://": Kind.QUEUE,
    "topic://": Kind.TOPIC,
    "queue/": Kind.QUEUE,
    "topic/": Kind.TOPIC,
    "temp-queue://": Kind.TEMP_QUEUE,
    "temp-topic://": Kind.TEMP_TOPIC,
    "/remote-temp-queue/": Kind.TEMP_QUEUE,
    "/remote-temp-topic/": Kind.TEMP_TOPIC,
}


def _artemis(name: str, headers: Mapping[str, str]) -> str:
    for prefix, kind in (("jms.queue.", Kind.QUEUE), ("jms.topic.", Kind.TOPIC)):
        if name.startswith(prefix):
            return kind.value + name[len(prefix) :]
    for prefix, kind in _ACTIVEMQ.items():
        if name.startswith(prefix):
            return kind.value + name[len(prefix) :]
    routing = headers.get("destination-type", headers.get("subscription-type", "ANYCAST"))
    kind = Kind.TOPIC if routing.upper() == "MULTICAST" else Kind.QUEUE
    return kind.value + name.removeprefix("/")


def _rabbitmq(name: str) -> str:
    if name.startswith("/amq/queue/"):
        return Kind.QUEUE.value + name.removeprefix("/amq/queue/")
    if name.startswith("/reply-queue/"):
        return Kind.TEMP_QUEUE.value + name.removeprefix("/reply-queue/")
    if name.startswith("/exchange/"):
        exchange, _, key = name.removeprefix("/exchange/").partition("/")
        levels = [level for level in (exchange, key) if level]
        if exchange == "amq.topic" and key:
            levels = [key]
        return Kind.TOPIC.value + ".".join(levels)
    # RabbitMQ knows no other name without a prefix than that of a queue, without any slash.
    return name if "/" in name or not name else Kind.QUEUE.value + name
