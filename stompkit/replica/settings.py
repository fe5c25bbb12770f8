"""Settings of a replica: those of Vesper by the same names, and additional ones."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, Final, Literal, Self, get_args

from stompkit._common.moved import renamed
from stompkit._common.spelling import closest

# Programs import Channel under its old name, Port.
from stompkit.replica._channels.channel import Channel, ChannelSettingsError, Hosts, read_port
from stompkit.replica._channels.channel import Channel as Port
from stompkit.replica.compaction import Retention
from stompkit.replica.engine import EngineSettings
from stompkit.replica.identity import check_branch_id
from stompkit.replication.model.tables import Tables

__all__ = ["Channel", "ChannelSettingsError", "Direction", "Hosts", "Port", "ReplicaSettings"]

#: Direction of replication: ``send`` accepts no changesets of others, ``receive`` makes none.
Direction = Literal["both", "send", "receive"]
#: Handling of bulk statements outside the unit of work; see the session publisher.
Bulk = Literal["expand", "refuse", "ignore"]
#: Reaction of a node that is too far behind: take a snapshot automatically, or wait for a request.
Bootstrap = Literal["auto", "ask"]

#: Settings that a relay can override.
_OF_PORTS: Final = (
    "replication_hosts",
    "replication_channel",
    "send_stomp_ack",
    "receipts",
    "durable",
)


@dataclass(frozen=True, kw_only=True)
class ReplicaSettings:
    """Settings of a replica, from keywords or from a mapping (:meth:`of`).

    Unknown names raise TypeError, invalid values raise :class:`ChannelSettingsError`.
    """

    save_history: bool = True
    """Keep all changesets for :meth:`Replica.history` and other queries.

    Otherwise, only changesets that other nodes may still need are kept. Vesper's ``"combined"``
    means the same; its ``"split"`` is not supported.
    """

    branch_id: str | None = None
    """Unique name of this node; by default a random name, which is kept in the database.

    The name is used unchanged, without padding.
    """

    trunk_id: str = "0A"
    """Name that all replicas of one system share; changesets of another trunk are refused."""

    replication_hosts: Hosts | None = field(default=None, repr=False)
    """The broker, or several for failover."""

    replication_channel: str | None = None
    """Topic that all nodes share: ``/topic/NAME``, or a destination that begins with ``/``."""

    send_stomp_ack: bool = True
    """Acknowledge messages after they were stored.

    Turn it off for brokers without acknowledgements; lost messages are then requested again.
    """

    receipts: bool = True
    """Request receipts for what is sent.

    Turn it off for brokers without receipts; messages may then get lost and are requested again.
    """

    durable: bool = False
    """Use durable subscriptions, so that the broker keeps messages for this node; optional."""

    relays: Sequence[Mapping[str, Any]] = field(default=(), repr=False)
    """Additional channels, on this or other brokers, to forward all changesets to and from.

    Each has ``replication_hosts`` and ``replication_channel``, and may override ``send_stomp_ack``,
    ``receipts`` and ``durable``.
    """

    direction: Direction = "both"

    signing_key: str | os.PathLike[str] | None = None
    """File with the private key that signs changesets."""

    trusted_keys: Mapping[str, str | Sequence[str]] | None = None
    """Public keys of nodes, one or several by branch id.

    If set, anything that none of these nodes has signed is refused.
    """

    digest_interval_s: float = 300.0
    """Interval in seconds between comparisons of table digests with other nodes; 0: never."""

    request_delay_s: float = 0.2
    """Delay in seconds before missing changesets are requested."""

    request_timeout_s: float = 10.0
    """Timeout in seconds of a request, after which another node is asked."""

    announce_delay_s: float = 0.5
    """Delay in seconds before new changesets are announced to other nodes."""

    repeat_s: float = 2.0
    repeat_max_s: float = 300.0
    """First and maximum interval in seconds between requests for announcements.

    They are repeated while another node may not know what this node has; the interval doubles.
    """

    window: int = 1000
    window_bytes: int = 4 * 1024 * 1024
    """Maximum number of changesets in a request, and their size in bytes."""

    hold_max: int = 10_000
    hold_max_bytes: int = 64 * 1024 * 1024
    """Maximum number of changesets held for their predecessors, and their size in bytes."""

    retention: str = "for ever"
    """History to keep, as in :meth:`~.compaction.Retention.parse`.

    Examples: ``"30 days"``, ``"100000 changesets"``. If ``save_history`` is off, changesets that
    all known nodes have are removed anyway.
    """

    keep_unseen: bool = True
    """Keep changesets that a known node still lacks, whatever ``retention`` says.

    If it is off, a node that is away for longer has to take a snapshot.
    """

    compact_interval_s: float = 3600.0
    """Interval in seconds between compactions; 0: only by ``Replica.compact``."""

    bootstrap: Bootstrap = "auto"
    """Reaction of a node that lacks changesets that others have removed.

    It takes a snapshot automatically, or waits for a request.
    """

    include: Sequence[str] = ()
    exclude: Sequence[str] = ()
    """Patterns of replicated tables, as in :class:`~stompkit.replication.model.tables.Tables`.

    Excluded changes are not applied here; changesets are still stored and forwarded whole.
    """

    max_body_bytes: int = 256 * 1024
    """Maximum size in bytes of a frame's body; larger messages are split."""

    max_ahead_s: float = 86_400.0
    """Maximum time in seconds by which another node's clock may be ahead of the local one."""

    bulk: Bulk = "expand"

    poll_s: float = 1.0
    """Poll interval in seconds for commits by other processes."""

    lease_s: float = 30.0
    """Time in seconds for which an engine that died unnoticed still locks the database."""

    def __new__(cls, **settings: Any) -> Self:
        """Reject unknown names, and suggest the nearest known one."""
        _refuse_unknown(settings, _KNOWN, "setting")
        return super().__new__(cls)

    @classmethod
    def of(cls, settings: Mapping[str, Any], /, **more: Any) -> Self:
        """Return settings from a mapping, such as a file, overridden by keywords."""
        return cls(**{**settings, **more})

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """Return all names of settings."""
        return _KNOWN

    def __post_init__(self) -> None:
        """Validate the values."""
        _set(self, "save_history", _history(self.save_history))
        for name in ("send_stomp_ack", "receipts", "durable", "keep_unseen"):
            _want(isinstance(getattr(self, name), bool), name, "is True or False")
        _check_id("trunk_id", self.trunk_id)
        if self.branch_id is not None:
            _check_id("branch_id", self.branch_id)
        _check_choice("direction", self.direction, get_args(Direction))
        _check_choice("bootstrap", self.bootstrap, get_args(Bootstrap))
        _check_choice("bulk", self.bulk, get_args(Bulk))
        for name in ("window", "window_bytes", "hold_max", "hold_max_bytes", "max_body_bytes"):
            value = getattr(self, name)
            _want(_is_number(value, int) and value >= 1, name, "is a whole number from 1 on")
        for name in _ABOVE_ZERO:
            value = getattr(self, name)
            _want(_is_number(value) and value > 0, name, "is a number of seconds above 0")
        for name in _FROM_ZERO:
            value = getattr(self, name)
            _want(_is_number(value) and value >= 0, name, "is a number of seconds, or 0")
        self._check_retention()
        self._check_keys()
        for name in ("include", "exclude"):
            try:
                Tables(getattr(self, name))
            except (TypeError, ValueError) as problem:
                raise ChannelSettingsError(
                    f"{name} is a list of patterns of tables: {problem}"
                ) from None
        places = [(port.broker.hosts, port.destination) for port in self.ports]
        if len(set(places)) < len(places):
            raise ChannelSettingsError(
                "a relay has the hosts and the channel of another: all would come twice"
            )

    def _check_retention(self) -> None:
        _want(isinstance(self.retention, str), "retention", "is text, such as '30 days'")
        try:
            Retention.parse(self.retention)
        except ValueError as problem:
            raise ChannelSettingsError(f"retention: {problem}") from None

    def _check_keys(self) -> None:
        if self.trusted_keys is None:
            return
        is_mapping = isinstance(self.trusted_keys, Mapping)
        _want(is_mapping, "trusted_keys", "has public keys by branch ids")
        for branch in self.trusted_keys:
            _check_id("trusted_keys", branch)
        if self.branch_id is None:
            raise ChannelSettingsError(
                "trusted_keys are by branch ids, and this node has no branch_id: give it one"
            )

    @cached_property
    def ports(self) -> tuple[Channel, ...]:
        """Channels that the replica connects to; its own channel is the first, if it has one."""
        own = {name: getattr(self, name) for name in _OF_PORTS}
        ports = [read_port("", own)]
        is_list = isinstance(self.relays, Sequence) and not isinstance(self.relays, str)
        _want(is_list, "relays", "is a list of mappings")
        for number, relay in enumerate(self.relays):
            name = f"relays[{number}]"
            _want(isinstance(relay, Mapping), name, "is a mapping")
            _refuse_unknown(relay, _OF_PORTS, f"setting of {name}")
            inherited = {"send_stomp_ack": self.send_stomp_ack, "receipts": self.receipts}
            port = read_port(f"{name}: ", {**inherited, "durable": self.durable, **relay})
            _want(port is not None, name, "names replication_hosts and replication_channel")
            ports.append(port)
        return tuple(port for port in ports if port is not None)

    @property
    def is_read_only(self) -> bool:
        """True if no local changes are allowed."""
        return self.direction == "receive"

    @property
    def selection(self) -> Tables:
        """Selection of the replicated tables."""
        return Tables(self.include, self.exclude)

    @property
    def kept(self) -> Retention:
        """Retention of changesets."""
        retention = Retention.parse(self.retention, keep_unseen=self.keep_unseen)
        if retention.is_for_ever and not self.save_history:
            return Retention(max_age_s=0.0)
        return retention

    def for_engine(self) -> EngineSettings:
        """Return the settings of the engine."""
        same = {name: getattr(self, name) for name in _OF_ENGINES}
        patterns = [sorted(self.include), sorted(self.exclude)]
        return EngineSettings(
            channels=tuple(port.channel for port in self.ports),
            selection=repr(patterns) if any(patterns) else "",
            **same,
        )


#: Settings in seconds that must be positive, and settings that can be 0.
_ABOVE_ZERO: Final = (
    "request_timeout_s",
    "repeat_s",
    "repeat_max_s",
    "max_ahead_s",
    "poll_s",
    "lease_s",
)
_FROM_ZERO: Final = (
    "digest_interval_s",
    "request_delay_s",
    "announce_delay_s",
    "compact_interval_s",
)
#: Settings that the engine has under the same names.
_OF_ENGINES: Final = (
    "trunk_id",
    "branch_id",
    "direction",
    "digest_interval_s",
    "request_delay_s",
    "request_timeout_s",
    "announce_delay_s",
    "repeat_s",
    "repeat_max_s",
    "window",
    "window_bytes",
    "max_body_bytes",
    "bootstrap",
)
_KNOWN: Final = tuple(each.name for each in fields(ReplicaSettings))


def _refuse_unknown(given: Iterable[str], known: Sequence[str], what: str) -> None:
    """Raise TypeError for the first unknown name, with the nearest known one."""
    plain = {_plain(name): name for name in known}
    for name in given:
        if name not in known:
            near = closest(_plain(name), plain)
            advice = f"is {plain[near]} meant?" if near else f"known are {', '.join(known)}"
            raise TypeError(f"unknown {what} {name!r}: {advice}")


def _plain(name: object) -> str:
    """Normalise the spelling of a name: Vesper's manual writes ``branchId`` for ``branch_id``."""
    return str(name).replace("_", "").replace("-", "").lower()


def _set(settings: ReplicaSettings, name: str, value: object) -> None:
    object.__setattr__(settings, name, value)


def _want(is_so: object, name: str, rule: str) -> None:
    if not is_so:
        raise ChannelSettingsError(f"{name} {rule}")


def _is_number(value: object, kind: type | tuple[type, ...] = (int, float)) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)


def _check_choice(name: str, value: object, choices: tuple[str, ...]) -> None:
    _want(value in choices, name, f"is one of {', '.join(choices)}, not {value!r}")


def _check_id(name: str, value: object) -> None:
    _want(isinstance(value, str), name, f"is text, not {value!r}")
    try:
        check_branch_id(str(value))
    except ValueError as problem:
        raise ChannelSettingsError(f"{name}: {problem}") from None


def _history(value: object) -> bool:
    """Return True if history is saved; accepts Vesper's values, too."""
    if value == "split":
        raise ChannelSettingsError(
            "save_history='split': history is kept beside the data, so that both are committed in"
            " one transaction; save_history=True does that"
        )
    _want(isinstance(value, bool) or value == "combined", "save_history", "is True or False")
    return bool(value)


renamed(
    __name__,
    SettingsProblem="ChannelSettingsError",
)
