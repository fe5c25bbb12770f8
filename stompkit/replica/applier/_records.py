"""Conversion of changesets to stored records."""

from __future__ import annotations

from stompkit.replica.signed import SignedChangeset
from stompkit.replica.store import ChangesetRecord
from stompkit.replication.model.events import Changeset

__all__ = ["record_of"]


def record_of(
    signed: SignedChangeset, changeset: Changeset, position: int, via: str
) -> ChangesetRecord:
    """Return the record of a changeset."""
    revision = changeset.revision
    assert revision is not None
    return ChangesetRecord(
        position=position,
        origin=changeset.origin,
        sequence=changeset.sequence,
        id=signed.id,
        hlc=revision.hlc,
        time=changeset.timestamp.timestamp(),
        author=revision.author,
        comment=revision.comment,
        body=signed.body,
        signature=signed.signature,
        size=len(signed.body),
        via=via,
        changes=len(changeset.changes),
    )
