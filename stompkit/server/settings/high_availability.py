"""The settings of brokers that share a store, of which one is active at a time."""

from __future__ import annotations

import re
import socket
from typing import Annotated, Final, Literal

from msgspec import Meta, Struct

__all__ = ["HighAvailabilitySettings"]

#: Maximum length of the name of a broker, and the characters that it cannot have.
_LONGEST: Final = 100
_OTHERS: Final = re.compile(r"[^A-Za-z0-9._-]")


class HighAvailabilitySettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Several brokers on different machines with one store, of which one is active at a time.

    docs/howto/high-availability.rst describes it.
    """

    lease: Literal["database"] | None = None
    """``database``: the broker that has the lease in the store's database is active; the others
    are passive, and one of them takes over when the lease expires. It needs a store in PostgreSQL,
    and all brokers of the store need it. Without it, a broker uses the lock of ``path`` only."""
    name: str | None = None
    """Name of this broker, different for each: letters, digits, ``.``, ``_`` and ``-``. By default
    it is the name of the machine."""
    lease_s: Annotated[float, Meta(ge=1, le=3600)] = 10.0
    """Seconds for which the lease is acquired. It is renewed after a third of them. A passive
    broker takes over at most this long after the active one has failed."""
    passive: Literal["close", "refuse"] = "close"
    """Ports of a passive broker for clients. ``close``: they are closed, so that clients go on to
    the next address at once. ``refuse``: they accept connections, and answer with an ERROR with
    the code ``not-active``."""

    @property
    def effective_name(self) -> str:
        """The name, also where it is not given."""
        return self.name or _OTHERS.sub("-", socket.gethostname())[:_LONGEST] or "broker"

    @property
    def refuses(self) -> bool:
        """True if a passive broker accepts connections, to refuse them."""
        return self.lease is not None and self.passive == "refuse"

    @property
    def is_named_well(self) -> bool:
        """True if the name can be that of a broker, or none is given."""
        name = self.name
        return name is None or (0 < len(name) <= _LONGEST and not _OTHERS.search(name))
