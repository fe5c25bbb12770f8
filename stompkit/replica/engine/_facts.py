"""Facts of the messages between replicas, beside the changesets."""

from __future__ import annotations

from typing import Annotated, Any, Final, TypeVar

import msgspec

from stompkit.replica.messages import Message, MessageError

__all__ = ["Gone", "Have", "Page", "PageWant", "Parted", "Sent", "Want", "facts_of", "read"]

_Natural = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
_Name = Annotated[str, msgspec.Meta(max_length=200)]
_Origin = Annotated[str, msgspec.Meta(pattern="^[A-Za-z0-9._-]{1,64}~[0-9a-f]{8}$")]
_Vector = dict[_Origin, _Natural]
#: Id of a row in hexadecimal, or empty; id of a changeset, or a prefix of it.
_Row = Annotated[str, msgspec.Meta(pattern="^([0-9a-f]{32})?$")]
_Id = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{0,64}$")]


class _Facts(msgspec.Struct, kw_only=True, omit_defaults=True, forbid_unknown_fields=False):
    """Facts of one kind of message."""


class Have(_Facts, tag_field="kind", tag="have"):
    """An announcement of a node's vector, sent to all after each change and on request."""

    trunk: _Name
    #: Message number of this announcement.
    counter: _Natural
    vector: _Vector
    #: Last message number that the sender has seen of each other node.
    seen: _Vector = {}
    #: Nodes no longer waited for, with the last message number received from each.
    forgotten: _Vector = {}
    #: Id of the node's own last changeset.
    last_id: _Id = ""
    #: True to request announcements of the receivers.
    ask: bool = False
    #: Sessions of the node, oldest first, with the number of its last changeset before each.
    sessions: list[tuple[_Name, _Natural]] = []
    rules: _Name = ""
    selection: _Name = ""
    direction: _Name = "both"
    #: Digest in hexadecimal and number of rows, by table.
    digests: dict[str, tuple[_Name, _Natural]] = {}
    version: _Name = ""


class Want(_Facts, tag_field="kind", tag="want"):
    """A request for changesets, to the named node."""

    to: _Name
    number: _Natural
    #: First and last number requested, by origin.
    ranges: dict[_Origin, tuple[_Natural, _Natural]]
    most: _Natural
    most_bytes: _Natural


class Sent(_Facts, tag_field="kind", tag="sent"):
    """The end of the answer to a request."""

    number: _Natural
    count: _Natural


class Gone(_Facts, tag_field="kind", tag="gone"):
    """The answer to a request for changesets that are no longer kept."""

    number: _Natural
    floor: _Vector


class PageWant(_Facts, tag_field="kind", tag="page_want"):
    """A request for a page of a snapshot, to the named node."""

    to: _Name
    number: _Natural
    #: Id of the last row of the previous page, in hexadecimal; empty for the first page.
    after: _Row
    most_bytes: _Natural


class Page(_Facts, tag_field="kind", tag="page"):
    """Rows in the order of their ids, as of ``vector``."""

    number: _Natural
    after: _Row
    #: Id of the last row that this page covers; empty for the last page.
    upto: _Row
    vector: _Vector
    #: Clock of the last changeset of each origin.
    clocks: dict[_Origin, _Vector]
    heads: list[_Id]
    hlc: _Natural


class Parted(_Facts, tag_field="kind", tag="parted"):
    """A notice to a node that other changesets are known under its numbers."""

    origin: _Name
    #: Numbers, and the ids of their changesets at the sender.
    ids: list[tuple[_Natural, _Id]]


_Kind = TypeVar("_Kind", bound=_Facts)
_KINDS: Final[tuple[type[_Facts], ...]] = (Have, Want, Sent, Gone, PageWant, Page, Parted)
_BY_NAME: Final = {str(kind.__struct_config__.tag): kind for kind in _KINDS}


def read(message: Message) -> _Facts | None:
    """Return the facts of a message; ``None`` for an unknown kind.

    Raises :class:`~stompkit.replica.messages.MessageError`.
    """
    kind = _BY_NAME.get(message.kind)
    if kind is None:
        return None
    try:
        return msgspec.convert({**message.facts, "kind": message.kind}, kind)
    except msgspec.ValidationError as error:
        raise MessageError(f"a message {message.kind!r} is malformed: {error}") from None


def facts_of(facts: _Facts) -> tuple[str, dict[str, Any]]:
    """Return the kind of a message, and its facts in packed form."""
    made: dict[str, Any] = msgspec.to_builtins(facts)
    kind = made.pop("kind")
    return kind, made
