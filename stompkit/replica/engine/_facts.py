"""What messages between replicas say beside the changesets in them."""

from __future__ import annotations

from typing import Annotated, Any, Final, TypeVar

import msgspec

from stompkit.replica.messages import Message, MessageProblem

__all__ = ["Gone", "Have", "Page", "PageWant", "Parted", "Sent", "Want", "facts_of", "read"]

_Natural = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
_Name = Annotated[str, msgspec.Meta(max_length=200)]
_Origin = Annotated[str, msgspec.Meta(pattern="^[A-Za-z0-9._-]{1,64}~[0-9a-f]{8}$")]
_Vector = dict[_Origin, _Natural]
#: The id of a row in hexadecimal, or nothing; that of a changeset, or the first digits of it.
_Row = Annotated[str, msgspec.Meta(pattern="^([0-9a-f]{32})?$")]
_Id = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{0,64}$")]


class _Facts(msgspec.Struct, kw_only=True, omit_defaults=True, forbid_unknown_fields=False):
    """Facts of one kind of message."""


class Have(_Facts, tag_field="kind", tag="have"):
    """What a node has: to all, whenever that has changed, and whenever it is asked."""

    trunk: _Name
    #: Numbers the messages of this kind that a node sends.
    counter: _Natural
    vector: _Vector
    #: The last numbers that it has seen of others.
    seen: _Vector = {}
    #: Nodes that are not waited for any more, with the last numbers that were heard of them.
    forgotten: _Vector = {}
    #: The id of the node's own last changeset.
    last_id: _Id = ""
    #: Whether whoever hears this is to say what he has.
    ask: bool = False
    #: The node's sessions and the number of its last changeset before each, the oldest first.
    sessions: list[tuple[_Name, _Natural]] = []
    rules: _Name = ""
    selection: _Name = ""
    direction: _Name = "both"
    #: By table: the digest of its rows in hexadecimal, and how many there are.
    digests: dict[str, tuple[_Name, _Natural]] = {}
    version: _Name = ""


class Want(_Facts, tag_field="kind", tag="want"):
    """A request for changesets, to the node that is named."""

    to: _Name
    number: _Natural
    #: By origin: the first and the last that are wanted.
    ranges: dict[_Origin, tuple[_Natural, _Natural]]
    most: _Natural
    most_bytes: _Natural


class Sent(_Facts, tag_field="kind", tag="sent"):
    """The end of the answer to a request."""

    number: _Natural
    count: _Natural


class Gone(_Facts, tag_field="kind", tag="gone"):
    """The answer where changesets are wanted that are not kept any more."""

    number: _Natural
    floor: _Vector


class PageWant(_Facts, tag_field="kind", tag="page_want"):
    """A request for a page of the node's state, to the node that is named."""

    to: _Name
    number: _Natural
    #: The last row that the one before had, in hexadecimal; empty for the first page.
    after: _Row
    most_bytes: _Natural


class Page(_Facts, tag_field="kind", tag="page"):
    """Rows in the order of their ids, as they were when the node had ``vector``."""

    number: _Natural
    after: _Row
    #: The last row that this page speaks of; empty for the end of all.
    upto: _Row
    vector: _Vector
    #: The clock of each origin's last changeset.
    clocks: dict[_Origin, _Vector]
    heads: list[_Id]
    hlc: _Natural


class Parted(_Facts, tag_field="kind", tag="parted"):
    """Tells a node which changesets with its numbers are known, as some are not what it says."""

    origin: _Name
    #: Numbers, and the ids of the changesets that have them at the sender.
    ids: list[tuple[_Natural, _Id]]


_Kind = TypeVar("_Kind", bound=_Facts)
_KINDS: Final[tuple[type[_Facts], ...]] = (Have, Want, Sent, Gone, PageWant, Page, Parted)
_BY_NAME: Final = {str(kind.__struct_config__.tag): kind for kind in _KINDS}


def read(message: Message) -> _Facts | None:
    """The facts of a message; ``None`` for a kind that this version does not know.

    Raises :class:`~stompkit.replica.messages.MessageProblem`.
    """
    kind = _BY_NAME.get(message.kind)
    if kind is None:
        return None
    try:
        return msgspec.convert({**message.facts, "kind": message.kind}, kind)
    except msgspec.ValidationError as error:
        raise MessageProblem(f"a message {message.kind!r} is malformed: {error}") from None


def facts_of(facts: _Facts) -> tuple[str, dict[str, Any]]:
    """The kind of a message, and its facts, as they are packed."""
    made: dict[str, Any] = msgspec.to_builtins(facts)
    kind = made.pop("kind")
    return kind, made
