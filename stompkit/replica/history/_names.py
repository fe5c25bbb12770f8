"""Resolution of revision names to changesets."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from difflib import get_close_matches
from typing import Final

from stompkit.replica.history._entries import RevisionError
from stompkit.replica.identity import branch_of, is_origin
from stompkit.replica.store import ChangesetRecord, OriginRecord, Reader
from stompkit.replica.vectors import dot_text

__all__ = ["HEAD", "heads_of", "resolve"]

#: Name of the current state of this replica.
HEAD: Final = "head"
#: Minimum number of digits of an id in a name.
_LEAST_DIGITS: Final = 6
_MOST_NAMED: Final = 5
_IS_ID: Final = re.compile("[0-9a-f]+").fullmatch
_IS_NUMBER: Final = re.compile("[1-9][0-9]{0,18}").fullmatch


def resolve(reader: Reader, revision: str) -> ChangesetRecord:
    """Return the changeset of a name; raises :class:`RevisionError`, with advice.

    A name is origin and number (``A~1f2e3d4c:17``), or the first six or more digits of an id. It
    can also be branch and number (``A:17``), if only one origin of that branch is known. ``head``
    is the head, if there is only one.
    """
    origins = reader.origins()
    name = revision.strip()
    if name == HEAD:
        return _only_head(reader, origins)
    if ":" in name:
        return _by_number(reader, origins, name)
    digits = name.lower()
    if _IS_ID(digits) and name not in {branch_of(origin) for origin in origins}:
        return _by_id(reader, digits)
    raise RevisionError(_not_a_name(origins, name))


def heads_of(origins: Mapping[str, OriginRecord]) -> set[str]:
    """Return the origins whose last changeset is a head: no other was made on top of it."""
    return {
        name
        for name, each in origins.items()
        if each.sequence
        and not any(
            other.clock.get(name, 0) >= each.sequence
            for other in origins.values()
            if other.origin != name
        )
    }


def _only_head(reader: Reader, origins: Mapping[str, OriginRecord]) -> ChangesetRecord:
    heads = sorted(heads_of(origins))
    if not heads:
        raise RevisionError("there is no head yet: nothing was ever written here")
    names = [dot_text((name, origins[name].sequence)) for name in heads]
    if len(heads) > 1:
        raise RevisionError(
            f"there are {len(heads)} heads, which did not know of each other: {_listed(names)}."
            " Name one of them"
        )
    found = reader.changeset(heads[0], origins[heads[0]].sequence)
    if found is None:
        raise RevisionError(f"the head, {names[0]}, is compacted: no history is kept")
    return found


def _by_number(reader: Reader, origins: Mapping[str, OriginRecord], name: str) -> ChangesetRecord:
    who, _, number = name.rpartition(":")
    origin = _origin(origins, who)
    if not _IS_NUMBER(number):
        raise RevisionError(f"{name!r}: what follows the colon is the number of a changeset")
    sequence = int(number)
    found = reader.changeset(origin, sequence)
    if found is not None:
        return found
    known = origins[origin]
    last = dot_text((origin, known.sequence))
    if sequence > known.sequence:
        raise RevisionError(f"{dot_text((origin, sequence))} is not known here: the last is {last}")
    first = max(known.floor, sequence) + 1
    kept = (
        f"from {dot_text((origin, first))} on they are kept"
        if first <= known.sequence
        else "none of this origin is kept"
    )
    raise RevisionError(f"{dot_text((origin, sequence))} is compacted: {kept}")


def _origin(origins: Mapping[str, OriginRecord], who: str) -> str:
    """Return the origin for a name or a branch."""
    if who in origins:
        return who
    written = [name for name, each in origins.items() if each.sequence]
    if not is_origin(who):
        found = sorted(name for name in written if branch_of(name) == who)
        if len(found) == 1:
            return found[0]
        if found:
            raise RevisionError(
                f"{len(found)} stores have written as {who!r}: name one of {_listed(found)}"
            )
    near = _near(who, written)
    raise RevisionError(f"nothing that {who!r} has written is known here{near}")


def _by_id(reader: Reader, digits: str) -> ChangesetRecord:
    if not _LEAST_DIGITS <= len(digits) <= 64:
        raise RevisionError(
            f"{digits!r}: an id is named by its first {_LEAST_DIGITS} digits or more, up to 64"
        )
    found = reader.by_id(digits)
    if len(found) == 1:
        return found[0]
    if found:
        names = [f"{each.id[: len(digits) + 6]}" for each in found]
        raise RevisionError(f"{len(found)} ids begin with {digits!r}: {_listed(names)}")
    raise RevisionError(
        f"no changeset is kept here whose id begins with {digits!r}: it has not come yet, or is"
        " compacted"
    )


def _not_a_name(origins: Mapping[str, OriginRecord], name: str) -> str:
    for origin, known in sorted(origins.items()):
        if known.sequence and name in (origin, branch_of(origin)):
            last = dot_text((origin, known.sequence))
            return f"{name!r} is who has written: add the number of a changeset, as in {last!r}"
    return (
        f"{name[:80]!r} is no revision: that is origin and number ('A~1f2e3d4c:17'), branch and"
        f" number ('A:17'), {_LEAST_DIGITS} or more digits of an id, or {HEAD!r}"
    )


def _near(who: str, origins: Collection[str]) -> str:
    names = set(origins) if is_origin(who) else {branch_of(origin) for origin in origins}
    found = get_close_matches(who, sorted(names), _MOST_NAMED, 0.5)
    if found:
        return f"; is it {_listed(found)}?"
    return f"; known are {_listed(sorted(origins))}" if origins else ": there is no history yet"


def _listed(names: Collection[str]) -> str:
    shown = list(names)[:_MOST_NAMED]
    more = len(names) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")
