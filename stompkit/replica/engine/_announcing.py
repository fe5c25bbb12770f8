"""When a node says what it has: whenever that has changed, when asked, and while nobody answers."""

from __future__ import annotations

from typing import Final

import stompkit
from stompkit._common.retry import Backoff
from stompkit.replica.engine._core import Core
from stompkit.replica.engine._facts import Have
from stompkit.replica.engine._peers import Peers
from stompkit.replica.nodes import Lineage
from stompkit.replica.store import Reader, Tx
from stompkit.replica.vectors import dominates

__all__ = ["Announcing"]

#: Numbers of messages that are reserved in the store at a time.
_RESERVED: Final = 1_000_000
#: More tables than that are told by no digests.
_MOST_DIGESTS: Final = 500
_COUNTER: Final = "counter"


class Announcing:
    """See the module."""

    def __init__(self, core: Core, peers: Peers) -> None:
        """Nothing was said yet."""
        self._core = core
        self._peers = peers
        #: The last number of a message, and the end of those reserved.
        self._counter = self._reserved = 0
        #: The first number by which was told what the node has now.
        self._announced: int | None = None
        #: When it is due, because of a change, a question, the interval, and nobody's answer.
        self._announce_at: float | None = None
        self._answer_at: float | None = None
        self._digest_at: float | None = None
        self._ask_at: float | None = None
        #: Whether others are asked though all seem to know, who may have more since.
        self._asks_anyway = False
        self._backoff = Backoff(core.settings.repeat_s, core.settings.repeat_max_s)

    @property
    def counter(self) -> int:
        """The last number of a message."""
        return self._counter

    def reserve(self, tx: Tx) -> None:
        """Take numbers that no process of this node has used, or will."""
        self._counter = max(self._counter, tx.meta(_COUNTER) or 0)
        self._reserved = self._counter + _RESERVED
        tx.set_meta(_COUNTER, self._reserved)

    def outnumber(self, counter: int) -> None:
        """Others take this node for one that is gone, or for an earlier one: go on behind that."""
        self._counter = max(self._counter, counter)
        self.changed()

    def look(self, reader: Reader) -> None:
        """See whether the node has more than it has told."""
        vector = reader.vector()
        if vector == self._core.vector:
            return
        self._core.vector = vector
        self.changed()

    def changed(self) -> None:
        """There is something that others don't know."""
        settings = self._core.settings
        now = self._core.monotonic()
        self._announced = None
        if self._announce_at is None:
            self._announce_at = now + settings.announce_delay_s
        self._backoff.reset()
        self._ask_at = now + self._backoff.delay_s

    def connected(self) -> None:
        """There are others to talk to now."""
        self._backoff.reset()
        self._ask_at = self._core.monotonic()
        self._asks_anyway = True
        # What was told before may have been told to nobody.
        self._announced = None

    def is_known_to(self, have: Have) -> bool:
        """Whether somebody knows what this node has, and lacks no answer of it.

        What this node has said may have been lost on its way through relays, which do not repeat
        it.
        """
        core = self._core
        if self._announced is None or have.seen.get(core.origin, 0) < self._announced:
            return False
        return dominates(core.vector, have.vector)

    def asked(self) -> None:
        """Somebody wants to know; others who heard the question need not all answer at once."""
        spread = self._core.settings.announce_delay_s / 5
        due = self._core.monotonic() + self._core.chance.random() * spread
        self._answer_at = due if self._answer_at is None else min(self._answer_at, due)

    def heard(self) -> None:
        """Somebody has said what he has, and may lack something."""
        if self._ask_at is None and self._peers.unsatisfied(self._announced):
            self._ask_at = self._core.monotonic() + self._backoff.delay_s

    def poll(self, now: float, lineage: Lineage) -> None:
        """Say it where that is due, and ask where nobody has answered."""
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
        """Say it now, where it was not said: there is no later."""
        if self._announced is None:
            for port in sorted(self._core.connected):
                self._core.say(port, self._have(lineage, is_asking=False))

    def _is_asking(self, now: float) -> bool:
        """Whether others are to say what they have; the time for that is then the next one."""
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
            selection=core.settings.selection,
            direction=core.settings.direction,
            digests={table: (f"{digest:032x}", rows) for table, (digest, rows) in digests.items()},
            version=stompkit.__version__,
        )

    def deadlines(self) -> list[float | None]:
        """When :meth:`poll` may have something to do."""
        return [self._announce_at, self._answer_at, self._digest_at, self._ask_at]
