"""Settings and results of an engine."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

from stompkit.replica.messages import Message
from stompkit.replica.nodes import Lineage
from stompkit.replication.model.frames import Packet

__all__ = ["Bootstrap", "Direction", "EngineSettings", "Outgoing", "Peer", "PeerStatus", "Status"]

#: ``send``: accepts no changesets of others. ``receive``: refuses local changes.
Direction = Literal["both", "send", "receive"]
#: Reaction of a node that is too far behind: take a snapshot, or wait for a request.
Bootstrap = Literal["auto", "ask"]


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """Settings of an engine; times are in seconds, sizes in bytes."""

    trunk_id: str
    #: Channel names or complete destinations.
    channels: tuple[str, ...]
    branch_id: str | None = None
    direction: Direction = "both"
    #: Selection of tables, in a form that two nodes can compare.
    selection: str = ""
    #: Interval between announcements without news; 0 for never.
    digest_interval_s: float = 300.0
    #: Delay before a gap is requested, because its frames may be in transit.
    request_delay_s: float = 0.2
    #: Timeout of a request, after which another node is asked.
    request_timeout_s: float = 10.0
    #: Delay between a change and its announcement.
    announce_delay_s: float = 0.5
    #: First and maximum back-off before an unanswered request for announcements is repeated.
    repeat_s: float = 2.0
    repeat_max_s: float = 300.0
    #: Limits of one request, in changesets and bytes.
    window: int = 1000
    window_bytes: int = 4 * 1024 * 1024
    max_body_bytes: int = 256 * 1024
    bootstrap: Bootstrap = "auto"


@dataclass(frozen=True, slots=True)
class Outgoing:
    """Frames for one destination of a channel's broker."""

    port: int
    destination: str
    packets: list[Packet]


@dataclass(slots=True)
class Peer:
    """The state of another node, as far as known."""

    origin: str
    vector: dict[str, int] = field(default_factory=dict)
    #: Number of its last announcement.
    counter: int = 0
    #: Time of its last announcement, in seconds since 1970.
    heard_at: float = 0.0
    #: Channels on which it is heard without a relay.
    ports: set[int] = field(default_factory=set)
    #: Number of the last message of this node that it has seen.
    seen: int = 0
    #: Highest message number of it that another node is known to have received.
    reported: int = 0
    facts: dict[str, Any] = field(default_factory=dict)
    #: Time until which it is not asked for changesets, because it did not answer.
    useless_until_s: float = 0.0
    #: True if it no longer keeps what is missing here.
    is_gone: bool = False

    @property
    def sessions(self) -> Lineage:
        """Sessions that it has announced."""
        return [(name, start) for name, start in self.facts.get("sessions", [])]

    @property
    def only_sends(self) -> bool:
        """True if it accepts no changesets of others."""
        return self.facts.get("direction") == "send"


class PeerStatus(msgspec.Struct, kw_only=True):
    """The status of another node, as seen by this one."""

    origin: str
    vector: dict[str, int]
    #: Changesets that it lacks and this node has, and the age of the oldest one in seconds.
    behind: int
    behind_s: float
    #: Changesets that it has and this node lacks.
    ahead: int
    #: Time of its last message in seconds since 1970; 0 if it is known only from others.
    heard_at: float
    #: Channels on which it is heard without a relay.
    ports: list[int]
    direction: str


class Status(msgspec.Struct, kw_only=True):
    """The current status of a replica."""

    origin: str
    branch: str
    trunk: str
    session: str
    vector: dict[str, int]
    heads: list[str]
    #: Name of each channel, and whether its broker is connected.
    channels: list[tuple[str, bool]]
    peers: list[PeerStatus]
    #: Changesets held for their predecessors, and their bytes.
    held: int
    held_bytes: int
    #: Changesets that cannot be applied: number, reason.
    quarantined: list[tuple[str, str]]
    skipped: list[tuple[str, str]]
    #: Number of rows with conflicts. Rows that the tables refuse, or for which a rule has failed:
    #: table, key, reason.
    conflicts: int
    problems: list[tuple[str, dict[str, Any], str]]
    #: Digest in hexadecimal and number of rows, by table.
    digests: dict[str, tuple[str, int]]
    #: Tables with different rows, by node with the same changesets.
    diverged: dict[str, list[str]]
    #: Configuration problems: identity clashes, other rules, other trunks.
    warnings: list[str]
    #: State of a snapshot that is in progress or required; empty otherwise.
    bootstrap: str
    #: Counters of this process.
    counts: dict[str, int]


#: A message with the number of its channel.
Heard = tuple[int, Message]
