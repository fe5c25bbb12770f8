"""Check the settings of brokers that share a store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stompkit._common.secrets import SecretError
from stompkit.server.stores.sql import is_postgresql

if TYPE_CHECKING:
    from stompkit.server.settings.process import Settings, StoreSettings
    from stompkit.server.settings.toml import Document

__all__ = ["check_high_availability"]

_TABLE: Final = "high_availability"


def check_high_availability(settings: Settings, document: Document) -> None:
    """Add all problems to the document."""
    own, store = settings.high_availability, settings.store
    if own.lease is None:
        for name in ("name", "lease_s", "passive"):
            if document.has((_TABLE, name)):
                document.add(
                    (_TABLE, name), 'has no effect without lease = "database": add that line'
                )
        return
    if not own.is_named_well:
        document.add((_TABLE, "name"), "must be 1 to 100 letters, digits, dots, _ and - of ASCII")
    if not _is_in_postgresql(store):
        document.add(
            (_TABLE, "lease"),
            '"database" needs a store in PostgreSQL: set url = "postgresql://..." in [store]',
        )
    if document.has(("store", "path")):
        document.add(
            ("store", "path"),
            'has no effect with lease = "database", which takes the place of the lock: leave this'
            " line out",
        )
    for index, each in enumerate(settings.endpoints):
        if each.endpoint.removeprefix("haproxy:").startswith("systemd:"):
            document.add(
                ("listen", index, "endpoint"),
                'a socket of systemd can\'t be opened again, as lease = "database" requires: use'
                " tcp:PORT",
            )


def _is_in_postgresql(store: StoreSettings) -> bool:
    try:
        url = store.database_url
    except SecretError:
        # The check of the store reports it.
        return True
    return url is not None and store.effective_kind == "sqlalchemy" and is_postgresql(url)
