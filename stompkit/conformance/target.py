"""The broker under test, as seen by the cases."""

from __future__ import annotations

import contextlib
import itertools
import secrets
import time
from collections.abc import Mapping
from functools import cached_property
from typing import Final

from stompkit._common.moved import renamed
from stompkit.conformance.address import Address
from stompkit.conformance.control import Control
from stompkit.conformance.peer import Peer, Recorder
from stompkit.conformance.verdict import Ending, FailedError, UnsupportedError
from stompkit.conformance.wire.probe import (
    Capabilities,
    UnreachableError,
    comes_alive,
    connect_headers,
    dial,
    is_alive,
    probe,
    probe_within,
)
from stompkit.conformance.wire.rules import MUST_CLOSE
from stompkit.conformance.wire.uses import Uses
from stompkit.frames import Version

__all__ = [
    "Capabilities",
    "Target",
    "UnreachableError",
    "comes_alive",
    "is_alive",
    "probe",
    "probe_within",
]

#: Number of characters shown of a value that a target has changed.
_SHOWN_CHARACTERS: Final = 40


class Target:
    """The target during one case: opens connections and names destinations."""

    def __init__(
        self,
        address: Address,
        capabilities: Capabilities,
        version: Version,
        recorder: Recorder,
        control: Control | None = None,
    ) -> None:
        """Start a case on ``version``; its deadline starts now."""
        self.address = address
        self.version = version
        self.recorder = recorder
        self.quiet_s = address.quiet_s
        self.timeout_s = address.timeout_s
        #: Observations for the reader of the report.
        self.notes: list[str] = []
        #: Recommendations (SHOULD) that the target has violated.
        self.lapses: list[str] = []
        #: Behaviour of the target where it has a choice; see :meth:`profile`.
        self.chosen: dict[str, str] = {}
        #: Statements that frames have violated, whatever the case is about, with observations.
        self.violations: dict[str, str] = {}
        #: False for a case that sends malformed frames: a server is free what to make of them, and
        #: may pass them on as they came.
        self.has_valid_frames = True
        #: False if the target is known not to close the connection after an ERROR: once is enough,
        #: and to wait takes time.
        self.awaits_close = True
        #: What the case relies on besides its subject.
        self.uses = Uses()
        self.peers: list[Peer] = []
        #: Number of connections before the case started over.
        self._left_behind = 0
        #: True if the target has refused a connection.
        self._is_turned_away = False
        self._capabilities = capabilities
        self._control = control
        self._deadline = time.monotonic() + address.case_s
        # Destinations unused by any other case, run or client.
        self._names = (f"stompkit-{secrets.token_hex(5)}-{n}" for n in itertools.count(1))

    @property
    def versions(self) -> tuple[Version, ...]:
        """The versions that the target supports, oldest first."""
        return self._capabilities.versions

    def open(self, *, node: int = 0) -> Peer:
        """Open a TCP connection to a node; nothing has been sent on it."""
        if self.version not in self.versions:
            raise UnsupportedError(f"the target does not speak STOMP {self.version}")
        address = self.address.node(node)
        number = self._left_behind + len(self.peers) + 1
        number_open = sum(each.is_open for each in self.peers) + 1
        self.uses.most_open = max(self.uses.most_open, number_open)
        try:
            peer = dial(address, number, self.recorder, self._deadline)
        except FailedError:
            self._is_turned_away = True
            raise
        peer.version = self.version
        peer.uses = self.uses
        peer.has_ack = self.address.has_ack
        if not self.address.has_receipts:
            peer.barrier = self.queue()
        self.peers.append(peer)
        return peer

    def connect(self, headers: Mapping[str, str] | None = None, *, node: int = 0) -> Peer:
        """Open a session on the version under test; ``headers`` are added to CONNECT's."""
        peer = self.open(node=node)
        peer.send("CONNECT", {**self.connect_headers(), **(headers or {})})
        connected = peer.expect("CONNECTED")
        # A target without a version header is known to support it: see connected/version-required.
        version = connected.headers.get("version", self.version)
        if version != self.version:
            raise FailedError(f"offered {self.version}, the target chose {version}")
        peer.switch(self.version)
        return peer

    def connect_headers(self, accept_version: str | None = None) -> dict[str, str]:
        """Return CONNECT's headers for the version under test, with the login if there is one."""
        return connect_headers(self.address, accept_version or self.version)

    def queue(self) -> str:
        """Return the name of a queue that was not used before."""
        name = self.address.queue_template.format(next(self._names))
        self.uses.queues.add(name)
        return name

    def topic(self, word: str | None = None) -> str:
        """Return the name of a topic that was not used before, or the one made of a word.

        Raises :class:`UnsupportedError` if the target has no topics.
        """
        if not self.has_topics:
            name = self.address.topic_template.format("NAME")
            raise UnsupportedError(f"the target refuses SUBSCRIBE to {name}: see --topic-template")
        return self._new_topic() if word is None else self.address.topic_template.format(word)

    @cached_property
    def has_topics(self) -> bool:
        """True unless the target refuses a subscription to a topic; this opens a session."""
        peer = self.connect()
        with contextlib.suppress(FailedError):
            self.subscribe(peer, self._new_topic())
        peer.close()
        return not peer.is_refused

    @property
    def is_turned_away(self) -> bool:
        """True if the target has refused a connection or a session of the case."""
        return self._is_turned_away or any(peer.is_turned_away for peer in self.peers)

    def again(self) -> Target:
        """Return the target as if another case on the same version began."""
        return Target(self.address, self._capabilities, self.version, Recorder(self.address.secret))

    def _new_topic(self) -> str:
        return self.address.topic_template.format(next(self._names))

    def sink(self) -> str:
        """Return the name of a destination for messages that nobody reads: a topic, if possible."""
        return self._new_topic() if self.has_topics else self.queue()

    def subscribe(
        self,
        peer: Peer,
        destination: str,
        *,
        ack: str | None = None,
        id: str = "s1",
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Subscribe and wait for the RECEIPT; ``headers`` are added."""
        added = {"destination": destination, "id": id, **(headers or {})}
        if ack is not None:
            added["ack"] = ack
        peer.call("SUBSCRIBE", added)

    def leftovers(self, queue: str, number: int = 0) -> list[bytes]:
        """Return the bodies of the messages that a new subscriber gets from a queue.

        Waits for ``number`` of them up to the answer timeout, and then briefly for more.
        """
        self.uses.is_kept = True
        peer = self.connect()
        self.subscribe(peer, queue, id="leftovers")
        frames = peer.gather_messages(number) + peer.collect(self.quiet_s)
        peer.close()
        return [frame.body for frame in frames if frame.command == "MESSAGE"]

    def shown(self, value: str | bytes) -> str:
        """Return the beginning of a value that the target has sent, with the passcode masked."""
        text = value if isinstance(value, str) else value.decode("utf-8", "backslashreplace")
        return repr(self.recorder.hide(text)[:_SHOWN_CHARACTERS])

    def note(self, text: str) -> None:
        """Record something for the report."""
        self.notes.append(text)

    def profile(self, about: str, does: str) -> None:
        """Record the target's behaviour where a specification leaves a choice.

        The report has one table of these. ``about`` is the same for all versions; ``does`` is a
        short text that can be compared between targets: ``profile("NACK", "dead letter")``.
        """
        self.chosen[about] = does

    def extend_deadline(self, seconds: float) -> None:
        """Extend the deadline of the case, because it does something slow."""
        self._deadline += seconds
        for peer in self.peers:
            peer.extend_deadline(seconds)

    def restart(self) -> None:
        """Stop the target and start it; this ends all connections of the case.

        Raises :class:`UnsupportedError` if the suite cannot do that, and :class:`FailedError` if
        the target does not come back.
        """
        if self._control is None:
            raise UnsupportedError(
                "the suite cannot restart the target: see --restart and --broker"
            )
        self.recorder.say(0, "the suite restarts the target")
        began = time.monotonic()
        self._control.restart()
        self.extend_deadline(time.monotonic() - began)

    def start_over(self) -> None:
        """Close all connections; their endings no longer count."""
        self.finish()
        self._left_behind += len(self.peers)
        self._is_turned_away = self.is_turned_away
        self.peers.clear()

    def should(self, holds: bool, text: str) -> None:  # noqa: FBT001 (reads like assert)
        """Record a violated recommendation if ``holds`` is false; ``text`` is the observation."""
        if not holds:
            self.lapses.append(text)

    def finish(self) -> Ending:
        """Check what they have received, and close all connections; return their worst ending."""
        for peer in self.peers:
            found = peer.broken_rules(
                with_grammar=self.has_valid_frames,
                with_close=self.awaits_close and MUST_CLOSE not in self.violations,
            )
            self.violations = {**found, **self.violations}
            peer.close()
        return max((peer.ending for peer in self.peers), key=lambda e: e.rank, default=Ending.CLEAN)


renamed(
    __name__,
    Unreachable="UnreachableError",
)
