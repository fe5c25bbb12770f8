"""The replication protocol: nodes compare their vectors and request what they lack; sans-I/O.

New changesets go to all subscribers of the channel. Each node announces its vector (``have``) after
each change and on request. A node that lacks something requests it (``want``) from one other node.
A node repeats its announcement with back-off while another may not know it, and is silent
otherwise. The protocol does not depend on broker storage, order or number of deliveries; lost
messages are requested again.

A node with several channels is a relay: it forwards changesets and ``have`` unchanged, once, to the
channels that they did not come from.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from stompkit.replica.applier import Applier, Incoming, Outcome
from stompkit.replica.engine._announcing import Announcing
from stompkit.replica.engine._answers import Answers
from stompkit.replica.engine._core import Core, destination_of
from stompkit.replica.engine._facts import (
    Gone,
    Have,
    Page,
    PageWant,
    Parted,
    Sent,
    Want,
    read,
)
from stompkit.replica.engine._forwarding import Forwarding
from stompkit.replica.engine._identity import Identity
from stompkit.replica.engine._inbox import RELAY, Inbox
from stompkit.replica.engine._peers import Peers
from stompkit.replica.engine._requests import Requests
from stompkit.replica.engine._snapshots import Snapshots
from stompkit.replica.engine._status import status_of
from stompkit.replica.engine._types import (
    EngineSettings,
    Outgoing,
    PeerStatus,
    Status,
)
from stompkit.replica.messages import Message, MessageError
from stompkit.replica.signing import Signer, Verifier
from stompkit.replica.store import Reader, Store
from stompkit.replica.vectors import dot_text
from stompkit.replication.model.frames import Packet

__all__ = ["Engine", "EngineSettings", "Outgoing", "PeerStatus", "Status"]

_log: Final = logging.getLogger(__name__)


class Engine:
    """The protocol engine of one replica; used by one thread.

    Methods that use the store raise :class:`~stompkit.replica.store.ReplicaStoreError`, and have no
    effect then.
    """

    def __init__(
        self,
        store: Store,
        applier: Applier,
        settings: EngineSettings,
        *,
        wall: Callable[[], float],
        monotonic: Callable[[], float],
        chance: random.Random,
        send: Callable[[Outgoing], None],
        signer: Signer | None = None,
        verifier: Verifier | None = None,
        trace: Callable[[str, dict[str, Any]], None] | None = None,
    ) -> None:
        """Set up the engine.

        ``send`` receives frames for connected channels, and must not block. ``trace`` is called at
        each step with its name and facts; an exception ends the step.
        """
        core = Core(
            store,
            applier,
            settings,
            wall=wall,
            monotonic=monotonic,
            chance=chance,
            send=send,
            signer=signer,
            trace=trace or (lambda step, facts: None),
        )
        self._core = core
        self._peers = Peers(core)
        self._identity = Identity(core, self._peers)
        self._announcing = Announcing(core, self._peers)
        self._requests = Requests(core, self._peers)
        self._answers = Answers(core)
        self._snapshots = Snapshots(core, self._peers)
        self._forwarding = Forwarding(
            core, self._peers, self._announcing, self._snapshots, self._refresh
        )
        self._inbox = Inbox(core, verifier)
        #: Parsed messages that the store could not take yet.
        self._unfinished: tuple[object, list[tuple[Message, bool]]] | None = None

    # Life cycle.

    def open(self) -> None:
        """Load the node's identity from the store, and begin a new session."""
        with self._core.store.transaction() as tx:
            self._identity.open(tx)
            self._announcing.reserve(tx)
            self._peers.load(tx)
            self._snapshots.load(tx.meta("bootstrap"), has_pages=bool(tx.page_vectors()))
            self._forwarding.open(tx)
            self._refresh(tx)

    def _refresh(self, reader: Reader) -> None:
        """Reload the vector and the held changesets from the store."""
        self._announcing.look(reader)
        self._requests.look(reader)

    @property
    def generation(self) -> int:
        """Counter that increases when the destinations change."""
        return self._identity.generation

    @property
    def origin(self) -> str:
        """Origin under which this node numbers its changesets."""
        return self._core.origin

    def destinations(self, port: int) -> list[str]:
        """Return the destinations to subscribe to until ``generation`` changes."""
        channel = destination_of(self._core.settings.channels[port])
        return [channel, self._core.own_destination(port, self._core.origin)]

    def connected(self, port: int) -> None:
        """Announce and ask for vectors after the subscriptions of a channel are ready."""
        self._core.connected.add(port)
        self._announcing.connected()

    def disconnected(self, port: int) -> None:
        """Stop using a channel whose connection is lost."""
        self._core.connected.discard(port)
        self._requests.disconnected(port)
        self._snapshots.disconnected()
        self._answers.forget(port)

    # Receiving.

    def receive(self, port: int, frames: Sequence[tuple[Mapping[str, str], bytes]]) -> None:
        """Process frames of a channel; after it returns they can be acknowledged.

        If it raises, nothing was processed: pass the same list again.
        """
        core = self._core
        if self._unfinished is None or self._unfinished[0] is not frames:
            self._unfinished = (frames, self._inbox.unpack(port, frames))
        messages = self._unfinished[1]
        core.trace("received", {"port": port, "messages": len(messages)})
        self._take(port, messages)
        self._unfinished = None

    def _take(self, port: int, messages: list[tuple[Message, bool]]) -> None:
        core = self._core
        incoming: list[Incoming] = []
        haves: list[tuple[Have, Message, bool]] = []
        pages: list[tuple[Page, Message]] = []
        later: list[tuple[Any, Message]] = []
        for message, is_direct in messages:
            try:
                if message.kind == "changes":
                    incoming += self._inbox.changesets(message)
                    continue
                facts = read(message)
            except MessageError as problem:
                self._inbox.refuse(f"{message.sender}: {problem}")
                continue
            if isinstance(facts, Have):
                if message.sender == core.origin and self._identity.is_echo(
                    facts, self._announcing.counter
                ):
                    continue
                haves.append((facts, message, is_direct))
            elif isinstance(facts, Page):
                pages.append((facts, message))
            elif facts is not None:
                later.append((facts, message))
        if incoming or haves or pages:
            self._store(port, incoming, haves, pages)
        for facts, message in later:
            self._do(port, facts, message)

    def _store(
        self,
        port: int,
        incoming: list[Incoming],
        haves: list[tuple[Have, Message, bool]],
        pages: list[tuple[Page, Message]],
    ) -> None:
        """Apply all changes to the store in one transaction, and then act on the results."""
        core = self._core
        fresh: list[tuple[Have, Message, bool]] = []
        taken: dict[str, Any] | None = None
        is_taken = False
        outcome = Outcome()
        begin = core.store.transaction(core.applier.data.prepare)
        with self._identity.unless_undone(), begin as tx:
            for have, message, is_direct in haves:
                if self._identity.is_other(tx, have, message.sender, port) and self._peers.note(
                    tx, have, message.sender, {port} if is_direct else set()
                ):
                    fresh.append((have, message, is_direct))
                elif have.ask and message.sender != core.origin:
                    # It may only seem outdated, and its sender must learn that.
                    self._announcing.asked()
            for page, message in pages:
                if not is_taken and self._snapshots.expects(page):
                    try:
                        taken = self._snapshots.take(tx, page, list(message.items))
                        is_taken = True
                    except MessageError as problem:
                        self._inbox.refuse(f"{message.sender}: {problem}")
            if incoming or is_taken:
                # After a snapshot, held changesets may be next.
                outcome = core.applier.apply(tx, incoming)
            is_cleared = self._snapshots.clear(tx)
            core.trace("apply", {"changesets": len(outcome.records)})
            self._refresh(tx)
        if is_taken:
            self._snapshots.taken(taken)
            if taken is None:
                self._requests.caught_up()
        if is_cleared:
            self._snapshots.cleared()
        core.trace("applied", {"changesets": len(outcome.records)})
        self._note(port, outcome, came=len(incoming))
        for have, message, is_direct in fresh:
            self._received(port, have, message, is_direct=is_direct)

    def _note(self, port: int, outcome: Outcome, *, came: int) -> None:
        counts = self._core.counts
        counts["applied"] += len(outcome.records)
        counts["duplicates"] += outcome.duplicates
        counts["held"] += outcome.held
        counts["dropped"] += outcome.dropped
        counts["conflicts"] += len(outcome.conflicts)
        self._forwarding.arrived(outcome.records, port)
        for origin, sequence in {origin: number for origin, number in outcome.forks}.items():
            self._core.warnings[f"fork {origin}"] = (
                f"two nodes have made changesets {dot_text((origin, sequence))}: a database is in"
                " use twice, or was put back from a backup"
            )
            with self._core.store.reading() as reader:
                self._identity.report_fork(reader, port, origin)
        for id, reason in outcome.refused:
            self._inbox.refuse(f"changeset {id[:12]}: {reason}")
        for dot, reason in outcome.quarantined:
            _log.error("the changeset %s cannot be applied: %s", dot_text(dot), reason)
        if came:
            self._requests.progress(came, is_of_use=bool(outcome.records or outcome.held))
        outcome.notify(self._core.applier.hooks)

    # Messages without changes to the store.

    def _received(self, port: int, have: Have, message: Message, *, is_direct: bool) -> None:
        core = self._core
        self._peers.received(have, message.sender, port, is_direct=is_direct)
        if have.forgotten.get(core.origin, -1) >= self._announcing.counter:
            self._announcing.outnumber(have.forgotten[core.origin])
        if have.seen.get(core.origin, -1) > self._announcing.counter:
            self._announcing.outnumber(have.seen[core.origin])
        if have.ask and (is_direct or not self._announcing.is_known_to(have)):
            self._announcing.asked()
        self._announcing.received()
        for other in sorted(core.connected - {port}):
            packets = [
                Packet({**packet.headers, RELAY: core.origin}, packet.body)
                for packet in message.packets
            ]
            core.send_packets(other, packets)

    def _do(self, port: int, facts: Any, message: Message) -> None:
        core = self._core
        if isinstance(facts, (Want, PageWant)):
            if facts.to == core.origin:
                self._answers.add(port, message.sender, facts)
                if isinstance(facts, Want) and any(
                    last > core.vector.get(name, 0) for name, (_, last) in facts.ranges.items()
                ):
                    # The last announcement was lost, or it has withdrawn something.
                    self._announcing.asked()
        elif isinstance(facts, Sent):
            self._requests.sent(facts)
        elif isinstance(facts, Gone):
            self._requests.gone(facts)
        elif isinstance(facts, Parted) and self._identity.received(facts):
            with core.store.reading() as reader:
                self._refresh(reader)

    # Due work.

    def wake(self) -> None:
        """Note that there may be commits that this engine has not made."""
        self._forwarding.may_have_more = True

    def poll(self) -> None:
        """Do the work that is due."""
        core = self._core
        if self._forwarding.may_have_more:
            self._forwarding.send_fresh()
        now = core.monotonic()
        if not core.connected:
            return
        self._answers.poll()
        if core.settings.direction != "send":
            if self._snapshots.is_running:
                self._snapshots.poll(now)
            else:
                self._requests.poll(now)
                if self._requests.is_behind_all:
                    self._fall_back()
        self._peers.forget_former()
        self._announcing.poll(now, self._identity.lineage)

    def end(self) -> None:
        """Make the last announcement: there are no further polls."""
        self._forwarding.send_fresh()
        if self._core.connected:
            self._announcing.end(self._identity.lineage)

    def _fall_back(self) -> None:
        """Take a snapshot, or warn, because no node keeps what is missing here."""
        core = self._core
        if core.settings.bootstrap == "auto":
            self.bootstrap()
        else:
            core.warnings["bootstrap"] = (
                "this node fell behind what others keep, and must bootstrap again:"
                " stompkit replica bootstrap"
            )

    def bootstrap(self) -> None:
        """Take a snapshot of another node; changes that only this node has are kept."""
        core = self._core
        with core.store.transaction() as tx:
            state = self._snapshots.begin(tx)
        self._snapshots.load(state, has_pages=True)
        core.warnings.pop("bootstrap", None)
        core.counts["bootstraps"] += 1
        self._snapshots.poll(core.monotonic())

    @property
    def deadline(self) -> float | None:
        """Time at which :meth:`poll` is due, in monotonic seconds; ``None``: after an event."""
        core = self._core
        now = core.monotonic()
        if self._forwarding.may_have_more or (core.connected and self._answers.is_due):
            return now
        if not core.connected:
            return None
        times = self._announcing.deadlines()
        if core.settings.direction != "send":
            times.append(
                self._snapshots.deadline(now)
                if self._snapshots.is_running
                else self._requests.deadline(now)
            )
        return min((each for each in times if each is not None), default=None)

    # Administration.

    def stable(self) -> dict[str, int]:
        """Return the version vector that all known nodes have reached."""
        return self._peers.stable(self._core.vector)

    def forget(self, origin: str) -> None:
        """Stop waiting for a node, on all nodes, unless it sends a message.

        Raises LookupError if the node is unknown.
        """
        with self._core.store.transaction() as tx:
            made = self._peers.forget(tx, origin)
        self._peers.forgot(made)
        self._announcing.changed()

    def status(self) -> Status:
        """Return the current status."""
        return status_of(self._core, self._peers, self._snapshots, list(self._inbox.refused))
