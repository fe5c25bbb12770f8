"""Migrate a store that another version of stompkit has created."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from stompkit.server.interfaces import StoreError

__all__ = ["upgrade"]

_T = TypeVar("_T")


def upgrade(
    place: str,
    found: int,
    wanted: int,
    migrations: Mapping[int, Callable[[_T], None]],
    store: _T,
) -> None:
    """Migrate a store from the version ``found`` to the version ``wanted``, step by step.

    ``migrations`` maps a version to the function that upgrades it to the next one. The caller runs
    this within one transaction, and stores the new version in it. ``place`` names the store in
    messages. Raises :class:`StoreError` if no migration path exists, before any change.
    """
    if found > wanted:
        raise StoreError(
            f"{place} is of version {found}, made by a newer stompkit; this one knows versions"
            f" up to {wanted}. Use the newer one; to go back, export the store with it and import"
            " that here into an empty one"
        )
    missing = [version for version in range(found, wanted) if version not in migrations]
    if missing:
        raise StoreError(
            f"{place} is of version {found}, which this stompkit cannot bring to version {wanted}."
            " Export it with the stompkit that made it, and import that here into an empty one"
        )
    for version in range(found, wanted):
        migrations[version](store)
