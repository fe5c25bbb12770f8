"""Announcements of the node's vector: after a change, on request, and until others answer."""

from __future__ import annotations

from typing import Final

import stompkit
from stompkit._common.retry import Backoff
from stompkit.replica.engine._core import Core
from stompkit.replica.engine._facts import Have
from stompkit.replica.engine._peers import Peers
from stompkit.replica.engine._selection import announced
from stompkit.replica.nodes import Lineage
from stompkit.replica.store import Reader, Tx
from stompkit.replica.vectors import dominates

__all__ = ["Announcing"]

#: Number of message numbers that are reserved in the store at a time.
_RESERVED: Final = 1_000_000
#: Maximum number of tables for which digests are announced.
_MOST_DIGESTS: Final = 500
_COUNTER: Final = "counter"


class Announcing:
    """Schedules the announcements."""

    def __init__(self, core: Core, peers: Peers) -> None:
        """Start without any announcement."""
        self._core = core
        self._peers = peers
        #: Last message number, and the end of the reserved ones.
        self._counter = self._reserved = 0
        #: Number of the first announcement of the current vector; ``None`` if it is not announced.
        self._announced: int | None = None
        #: Due times: after a change, on request, at the interval, and for a missing answer.
        self._announce_at: float | None = None
        self._answer_at: float | None = None
        self._digest_at: float | None = None
        self._ask_at: float | None = None
        #: True to ask others even if all seem up to date, because they may have more since.
        self._asks_anyway = False
        self._backoff = Backoff(core.settings.repeat_s, core.settings.repeat_max_s)

    @property
    def counter(self) -> int:
        """Number of the last message."""
        return self._counter

    def reserve(self, tx: Tx) -> None:
        """Reserve message numbers that no process of this node has used or will use."""
        self._counter = max(self._counter, tx.meta(_COUNTER) or 0)
        self._reserved = self._counter + _RESERVED
        tx.set_meta(_COUNTER, self._reserved)

    def outnumber(self, counter: int) -> None:
        """Continue after a number that others know: they take this node for an earlier one."""
        self._counter = max(self._counter, counter)
        self.changed()

    def look(self, reader: Reader) -> None:
        """Schedule an announcement if the vector has changed."""
        vector = reader.vector()
        if vector == self._core.vector:
            return
        self._core.vector = vector
        self.changed()

    def changed(self) -> None:
        """Schedule an announcement."""
        settings = self._core.settings
        now = self._core.monotonic()
        self._announced = None
        if self._announce_at is None:
            self._announce_at = now + settings.announce_delay_s
        self._backoff.reset()
        self._ask_at = now + self._backoff.delay_s

    def connected(self) -> None:
        """Reset the back-off and ask others, after a channel was connected."""
        self._backoff.reset()
        self._ask_at = self._core.monotonic()
        self._asks_anyway = True
        # Earlier announcements may have reached nobody.
        self._announced = None

    def is_known_to(self, have: Have) -> bool:
        """Return True if a node knows this node's vector and has nothing that is missing here.

        Relays do not repeat announcements, so one may have been lost on its way.
        """
        core = self._core
        if self._announced is None or have.seen.get(core.origin, 0) < self._announced:
            return False
        return dominates(core.vector, have.vector)

    def asked(self) -> None:
        """Schedule an answer after a random delay, so that not all nodes answer at once."""
        spread = self._core.settings.announce_delay_s / 5
        due = self._core.monotonic() + self._core.chance.random() * spread
        self._answer_at = due if self._answer_at is None else min(self._answer_at, due)

    def received(self) -> None:
        """Schedule a repetition if a node may lack something."""
        if self._ask_at is None and self._peers.unsatisfied(self._announced):
            self._ask_at = self._core.monotonic() + self._backoff.delay_s

    def poll(self, now: float, lineage: Lineage) -> None:
        """Announce if it is due, and ask if others have not answered."""
        core = self._core
        is_asking = self._is_asking(now)
        times = (self._announce_at, self._answer_at, self._digest_at)
        if not is_asking and not any(each is not None and now >= each for each in times):
            return
        if core.settings.digest_interval_s:
            jitter = 1 + core.chance.random() / 4
            self._digest_at = now + core.settings.digest_interval_s * jitter
        self._announce_at = self._answer_at = None
        have = self._have(lineage, is_asking=is_asking)
        if self._announced is None:
            self._announced = have.counter
        for port in sorted(core.connected):
            core.say(port, have)

    def end(self, lineage: Lineage) -> None:
        """Announce now if it was not done: there is no later opportunity."""
        if self._announced is None:
            for port in sorted(self._core.connected):
                self._core.say(port, self._have(lineage, is_asking=False))

    def _is_asking(self, now: float) -> bool:
        """Return True if it is time to ask others, and schedule the next time."""
        if self._ask_at is None or now < self._ask_at:
            return False
        is_asking = (
            self._asks_anyway
            or bool(self._peers.unsatisfied(self._announced))
            or any(self._peers.is_alone(port) for port in self._core.connected)
        )
        self._ask_at = None
        self._asks_anyway = False
        if is_asking:
            self._ask_at = now + self._backoff.fail() * (1 + self._core.chance.random() / 4)
        return is_asking

    def _have(self, lineage: Lineage, *, is_asking: bool) -> Have:
        core = self._core
        if self._counter + 1 >= self._reserved:
            with core.store.transaction() as tx:
                self.reserve(tx)
        with core.store.reading() as reader:
            self.look(reader)
            own = reader.origins().get(core.origin)
            digests = reader.digests() if len(reader.tables()) <= _MOST_DIGESTS else {}
        self._counter += 1
        return Have(
            trunk=core.node.trunk,
            counter=self._counter,
            vector=dict(core.vector),
            seen=self._peers.seen(),
            forgotten=self._peers.forgotten,
            ask=is_asking,
            last_id="" if own is None else own.last_id,
            sessions=list(lineage),
            rules=core.applier.rules.fingerprint,
            selection=announced(core.settings.selection),
            direction=core.settings.direction,
            digests={table: (f"{digest:032x}", rows) for table, (digest, rows) in digests.items()},
            version=stompkit.__version__,
        )

    def deadlines(self) -> list[float | None]:
        """Return the times at which :meth:`poll` may have work."""
        return [self._announce_at, self._answer_at, self._digest_at, self._ask_at]
