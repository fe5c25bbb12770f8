"""What goes into an engine, and what it says of itself."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

from stompkit.replica.messages import Message
from stompkit.replica.nodes import Lineage
from stompkit.replication.frames import Packet

__all__ = ["Bootstrap", "Direction", "EngineSettings", "Outgoing", "Peer", "PeerStatus", "Status"]

#: ``send``: takes nothing of others. ``receive``: refuses changes of its own.
Direction = Literal["both", "send", "receive"]
#: Whether a node that fell behind what others keep takes their state by itself, or when it is told.
Bootstrap = Literal["auto", "ask"]


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """How a replica talks to others; times are seconds, sizes octets."""

    trunk_id: str
    #: What each port's channel is called: a name, or a whole destination.
    channels: tuple[str, ...]
    branch_id: str | None = None
    direction: Direction = "both"
    #: The selection of tables, as something that two nodes can compare.
    selection: str = ""
    #: How often it says what it has though nothing is new; 0 for never.
    digest_interval_s: float = 300.0
    #: How long a gap may be one of frames that are still on their way.
    request_delay_s: float = 0.2
    #: How long a request waits for an answer before another node is asked.
    request_timeout_s: float = 10.0
    #: How long after a change others are told what this node has now.
    announce_delay_s: float = 0.5
    #: The first wait before a node that does not answer is asked again, and the longest.
    repeat_s: float = 2.0
    repeat_max_s: float = 300.0
    #: How much one request asks for.
    window: int = 1000
    window_bytes: int = 4 * 1024 * 1024
    max_body_bytes: int = 256 * 1024
    bootstrap: Bootstrap = "auto"


@dataclass(frozen=True, slots=True)
class Outgoing:
    """Frames for one destination of a port's broker."""

    port: int
    destination: str
    packets: list[Packet]


@dataclass(slots=True)
class Peer:
    """What is known of another node."""

    origin: str
    vector: dict[str, int] = field(default_factory=dict)
    #: The number of the last message by which it said so.
    counter: int = 0
    #: When that came, in seconds since 1970.
    heard_at: float = 0.0
    #: Where it is heard without a relay between.
    ports: set[int] = field(default_factory=set)
    #: The last number of ours that it has seen.
    seen: int = 0
    #: The last number of it that anybody else is known to have heard.
    told: int = 0
    facts: dict[str, Any] = field(default_factory=dict)
    #: Not asked for changesets before that time, having given no answer.
    useless_until_s: float = 0.0
    #: It does not keep what is missing here any more.
    is_gone: bool = False

    @property
    def sessions(self) -> Lineage:
        """Its sessions, as it has told them."""
        return [(name, start) for name, start in self.facts.get("sessions", [])]

    @property
    def only_sends(self) -> bool:
        """Whether it takes nothing of others."""
        return self.facts.get("direction") == "send"


class PeerStatus(msgspec.Struct, kw_only=True):
    """Another node, as this one sees it."""

    origin: str
    vector: dict[str, int]
    #: Changesets that it lacks and this node has, and the age of the oldest of them in seconds.
    behind: int
    behind_s: float
    #: Changesets that it has and this node lacks.
    ahead: int
    #: Seconds since 1970; 0 where it was only heard of.
    heard_at: float
    #: Ports on which it is heard without a relay between.
    ports: list[int]
    direction: str


class Status(msgspec.Struct, kw_only=True):
    """A replica, as it is now."""

    origin: str
    branch: str
    trunk: str
    session: str
    vector: dict[str, int]
    heads: list[str]
    #: By port: the channel, and whether its broker is connected.
    channels: list[tuple[str, bool]]
    peers: list[PeerStatus]
    #: Changesets that wait for others before them, with their octets.
    held: int
    held_bytes: int
    #: Changesets that could not be applied: number, reason.
    quarantined: list[tuple[str, str]]
    skipped: list[tuple[str, str]]
    #: Rows with losers of a conflict; rows that the tables refuse: table, key, reason.
    conflicts: int
    problems: list[tuple[str, dict[str, Any], str]]
    #: By table: digest in hexadecimal, rows.
    digests: dict[str, tuple[str, int]]
    #: By node with the same changesets: tables whose rows are not the same.
    diverged: dict[str, list[str]]
    #: What is wrong with the set-up: clashes of identity, other rules, other trunks.
    warnings: list[str]
    #: Whether a snapshot is being taken, or has to be.
    bootstrap: str
    #: What this process has done so far.
    counts: dict[str, int]


#: A message that came by a port.
Heard = tuple[int, Message]
