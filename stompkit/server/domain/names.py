"""Names of destinations: kinds, levels, wildcards, and the spellings of other brokers.

A name is a prefix that says the kind, and levels with dots between them: ``/queue/orders.eu``.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from itertools import takewhile
from typing import Final
from urllib.parse import quote, unquote

from stompkit.server.domain.errors import RefusedError
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
#: The prefix of the queues of durable subscriptions; clients cannot use it for a destination.
DURABLES: Final = "/durable/"


class Kind(Enum):
    """The kinds of destinations, with the prefix of their names."""

    QUEUE = "/queue/"
    TOPIC = "/topic/"
    FANOUT = "/fanout/"
    TEMP_QUEUE = "/temp-queue/"
    TEMP_TOPIC = "/temp-topic/"
    DEAD_LETTERS = DEAD_LETTERS


_WILDCARDS: Final = frozenset("*>#")
_PREFIXES: Final = tuple(kind.value for kind in Kind)
#: Prefix of the dead-letter queues of durable subscriptions, after the common prefix.
_DURABLE: Final = DURABLES[1:]
#: All printable characters of ASCII except the wildcards and the percent sign.
_NOT_QUOTED: Final = "".join(
    chr(each) for each in range(33, 127) if chr(each) not in _WILDCARDS | {"%"}
)


def kind_of(name: str) -> Kind:
    """Return the kind of a destination's name; raises :class:`RefusedError` if it has none."""
    for kind in Kind:
        prefix = kind.value
        if name.startswith(prefix) and len(name) > len(prefix):
            return kind
    raise RefusedError(
        f"destination {name[:100]!a} is unknown: names begin with {' or '.join(_PREFIXES)}",
        "unknown-destination",
    )


def dead_letters_of(name: str) -> str:
    """Return the dead-letter queue of a queue or durable subscription; no two share one.

    ``/dlq/durable/...`` is reserved for durable subscriptions. Queue names that would map to it get
    a ``~`` in front, and so do names that already begin with ``~``.
    """
    own = name.removeprefix(DURABLES)
    if own != name:
        client, _, rest = own.partition("/")
        if is_pattern(DEAD_LETTERS + own):
            # A colon is quoted in every part that clients choose, so that this name is unique.
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
    """Return True if a name has a wildcard level."""
    if _WILDCARDS.isdisjoint(name):
        return False
    return not _WILDCARDS.isdisjoint(_levels(name))


def _levels(name: str) -> list[str]:
    kind = kind_of(name)
    return name[len(kind.value) :].split(".")


class Pattern:
    """A name with wildcards.

    ``*`` matches one level. As the last level, ``>`` matches one or more levels, and ``#`` any
    number of them or none. A wildcard always replaces a whole level.
    """

    __slots__ = ("_begin", "_fixed", "_least", "_open", "kind", "text")

    def __init__(self, text: str, *, like_activemq: bool = False) -> None:
        """Parse a pattern; raises :class:`RefusedError` for ``>`` or ``#`` before the last level.

        With ``like_activemq``, ``>`` means the same as ``#``: ``a.>`` matches ``a`` as well.
        """
        self.text = text
        self.kind = kind_of(text)
        levels = _levels(text)
        if any(level in (">", "#") for level in levels[:-1]):
            raise RefusedError(
                f"pattern {text[:100]!a}: > and # can be the last level only", "bad-destination"
            )
        #: True if more levels may follow the fixed ones; the minimum number of them follows.
        self._open = levels[-1] in (">", "#")
        self._least = 1 if levels[-1] == ">" and not like_activemq else 0
        self._fixed = levels[:-1] if self._open else levels
        #: Common prefix of all matching names: it excludes most other names at once.
        self._begin = self.kind.value + ".".join(takewhile(lambda level: level != "*", self._fixed))

    @property
    def levels(self) -> list[str]:
        """The levels including wildcards; ``#`` replaces a ``>`` with the same meaning."""
        levels = _levels(self.text)
        return [*self._fixed, "#"] if self._open and not self._least else levels

    def matches(self, name: str) -> bool:
        """Return True if the pattern matches a name, which has no wildcards."""
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
        """Return True if this pattern matches every name that *other* matches."""
        if self.kind is not other.kind:
            return False
        mine, theirs = self._fixed, other._fixed
        if other._open and not self._open:
            return False
        # Names have at least one level, whatever a pattern says.
        if max(1, len(theirs) + other._least) < len(mine) + self._least:
            return False
        if not self._open and len(mine) != len(theirs):
            return False
        # After the fixed levels of *other*, its names can contain anything.
        theirs = theirs + [">"] * (len(mine) - len(theirs))
        return all(wanted in ("*", level) for wanted, level in zip(mine, theirs, strict=False))


def level_itself(name: str) -> str | None:
    """Return the level that a pattern with ``>`` matches in ActiveMQ's dialect only.

    That is ``/queue/a`` for ``/queue/a.>``, and ``None`` for a name of another form.
    """
    return name[:-2] if name.endswith(".>") and kind_of(name).value + ">" != name else None


def below_level(name: str) -> str:
    """Return a pattern for the names that one with a final ``>`` matches in every dialect."""
    return name[:-1] + "*.#"


def canonical(name: str, headers: Mapping[str, str], dialect: Dialect) -> str:
    """Return the broker's name for a destination in the dialect of another broker.

    ``headers`` are those of the frame; clients of Artemis give the kind in one of them. The
    broker's own names stay unchanged in every dialect.
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


#: Further prefixes that ActiveMQ's clients use.
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
    # In RabbitMQ only a queue has a name without prefix, and no slash in it.
    return name if "/" in name or not name else Kind.QUEUE.value + name
