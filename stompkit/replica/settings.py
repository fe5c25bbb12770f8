"""How a replica is set up: Vesper's settings, by their names, and what it had none for."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, Final, Literal, Self, get_args

from stompkit._common.spelling import closest

# Programs import Channel by its old name, Port.
from stompkit.replica._channel import Channel, Hosts, SettingsProblem, read_port
from stompkit.replica._channel import Channel as Port
from stompkit.replica.compaction import Retention
from stompkit.replica.engine import EngineSettings
from stompkit.replica.identity import check_branch_id
from stompkit.replication.tables import Tables

__all__ = ["Channel", "Direction", "Hosts", "Port", "ReplicaSettings", "SettingsProblem"]

#: What a replica does: ``send`` takes no changesets of others, ``receive`` makes none.
Direction = Literal["both", "send", "receive"]
#: What becomes of statements that are not the unit of work's; see the session publisher.
Bulk = Literal["expand", "refuse", "ignore"]
#: Whether a node that is too far behind takes all rows from another by itself.
Bootstrap = Literal["auto", "ask"]

#: What a relay may say of its own.
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

    Names that are not known raise TypeError, values that can't be :class:`SettingsProblem`.
    """

    save_history: bool = True
    """Keep all changesets, for :meth:`Replica.history` and the like, and not only those that others
    may still want. Vesper's ``"combined"`` is the same; its ``"split"`` there is not."""

    branch_id: str | None = None
    """What this node is called, other than all others; by default a random name, which is kept in
    the database. It is taken as it is: nothing is padded."""

    trunk_id: str = "0A"
    """What all replicas of one thing share: changesets of another trunk are refused."""

    replication_hosts: Hosts | None = field(default=None, repr=False)
    """The broker; more than one are tried in turn."""

    replication_channel: str | None = None
    """The topic that all nodes share: ``/topic/NAME``, or a destination that begins with ``/``."""

    send_stomp_ack: bool = True
    """Acknowledge what was stored. Without, for brokers that have no acknowledgements, what is lost
    is asked for again."""

    receipts: bool = True
    """Have the broker confirm what is sent; without, for those that don't, it may get lost, and is
    asked for again."""

    durable: bool = False
    """Have the broker keep what comes for this node while it is away. Nothing depends on it."""

    relays: Sequence[Mapping[str, Any]] = field(default=(), repr=False)
    """More channels, here or on other brokers, to which and from which all is carried: each with
    ``replication_hosts``, ``replication_channel``, and ``send_stomp_ack``, ``receipts`` or
    ``durable`` where these are others than here."""

    direction: Direction = "both"

    signing_key: str | os.PathLike[str] | None = None
    """The file with the key that changesets are signed with."""

    trusted_keys: Mapping[str, str | Sequence[str]] | None = None
    """Public keys of nodes by their branch ids, one or several each; with them, whatever no such
    node has signed is refused."""

    digest_interval_s: float = 300.0
    """How often nodes compare what is in their tables, in seconds; 0: never."""

    request_delay_s: float = 0.2
    """For how long what has not come yet is waited for before it is asked for."""

    request_timeout_s: float = 10.0
    """After what time without an answer another node is asked."""

    announce_delay_s: float = 0.5
    """After what time others are told what this node has now."""

    repeat_s: float = 2.0
    repeat_max_s: float = 300.0
    """After what time others are asked again what they have, while one of them may not know what
    this node has; twice as long each time, up to the second."""

    window: int = 1000
    window_bytes: int = 4 * 1024 * 1024
    """How many changesets are asked for at a time, and octets of them."""

    hold_max: int = 10_000
    hold_max_bytes: int = 64 * 1024 * 1024
    """How many changesets are kept that wait for others, and octets of them."""

    retention: str = "for ever"
    """What is kept of history, as of :meth:`~.compaction.Retention.parse`: ``"30 days"``,
    ``"100000 changesets"``. Where no history is saved, what all known nodes have goes anyway."""

    keep_unseen: bool = True
    """Keep what some known node has not taken yet, whatever ``retention`` says. Without, who is
    away for longer than that has to take all rows anew."""

    compact_interval_s: float = 3600.0
    """How often what need not be kept is removed, in seconds; 0: only by ``Replica.compact``."""

    bootstrap: Bootstrap = "auto"
    """What a node does that is behind what others keep: take all rows anew, or wait until it is
    told to."""

    include: Sequence[str] = ()
    exclude: Sequence[str] = ()
    """Patterns of tables, as of :class:`~stompkit.replication.tables.Tables`: what is replicated
    here, and what is not. Changesets are kept and carried whole all the same."""

    max_body_bytes: int = 256 * 1024
    """Octets of a frame's body; what is larger goes in parts."""

    max_ahead_s: float = 86_400.0
    """How far the clock of another node may be ahead of ours, in seconds."""

    bulk: Bulk = "expand"

    poll_s: float = 1.0
    """How often the engine looks for what other processes have committed, in seconds."""

    lease_s: float = 30.0
    """For how long an engine that has died without a word keeps others from the database."""

    def __new__(cls, **settings: Any) -> Self:
        """Refuse names that are not known, and say which may be meant."""
        _refuse_unknown(settings, _KNOWN, "setting")
        return super().__new__(cls)

    @classmethod
    def of(cls, settings: Mapping[str, Any], /, **more: Any) -> Self:
        """Settings from a mapping, as of a file, and keywords that go before it."""
        return cls(**{**settings, **more})

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """All names of settings."""
        return _KNOWN

    def __post_init__(self) -> None:
        """Refuse what can't be."""
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
                raise SettingsProblem(
                    f"{name} is a list of patterns of tables: {problem}"
                ) from None
        places = [(port.broker.hosts, port.destination) for port in self.ports]
        if len(set(places)) < len(places):
            raise SettingsProblem(
                "a relay has the hosts and the channel of another: all would come twice"
            )

    def _check_retention(self) -> None:
        _want(isinstance(self.retention, str), "retention", "is text, such as '30 days'")
        try:
            Retention.parse(self.retention)
        except ValueError as problem:
            raise SettingsProblem(f"retention: {problem}") from None

    def _check_keys(self) -> None:
        if self.trusted_keys is None:
            return
        is_mapping = isinstance(self.trusted_keys, Mapping)
        _want(is_mapping, "trusted_keys", "has public keys by branch ids")
        for branch in self.trusted_keys:
            _check_id("trusted_keys", branch)
        if self.branch_id is None:
            raise SettingsProblem(
                "trusted_keys are by branch ids, and this node has no branch_id: give it one"
            )

    @cached_property
    def ports(self) -> tuple[Channel, ...]:
        """Where the replica is connected to: its own channel first, if it has one."""
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
        """Whether no local changes are made."""
        return self.direction == "receive"

    @property
    def selection(self) -> Tables:
        """Which tables are replicated here."""
        return Tables(self.include, self.exclude)

    @property
    def kept(self) -> Retention:
        """What is kept of changesets."""
        retention = Retention.parse(self.retention, keep_unseen=self.keep_unseen)
        if retention.is_for_ever and not self.save_history:
            return Retention(max_age_s=0.0)
        return retention

    def for_engine(self) -> EngineSettings:
        """What an engine has to know of it."""
        same = {name: getattr(self, name) for name in _OF_ENGINES}
        patterns = [sorted(self.include), sorted(self.exclude)]
        return EngineSettings(
            channels=tuple(port.channel for port in self.ports),
            selection=repr(patterns) if any(patterns) else "",
            **same,
        )


#: Numbers of seconds that can't be 0, and that can.
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
#: What engines have by the same names.
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
    """Raise TypeError for the first name that is not known, with the one that is nearest."""
    plain = {_plain(name): name for name in known}
    for name in given:
        if name not in known:
            near = closest(_plain(name), plain)
            advice = f"is {plain[near]} meant?" if near else f"known are {', '.join(known)}"
            raise TypeError(f"unknown {what} {name!r}: {advice}")


def _plain(name: object) -> str:
    """A name however it is spelt: Vesper's manual has ``branchId`` for what is ``branch_id``."""
    return str(name).replace("_", "").replace("-", "").lower()


def _set(settings: ReplicaSettings, name: str, value: object) -> None:
    object.__setattr__(settings, name, value)


def _want(is_so: object, name: str, rule: str) -> None:
    if not is_so:
        raise SettingsProblem(f"{name} {rule}")


def _is_number(value: object, kind: type | tuple[type, ...] = (int, float)) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)


def _check_choice(name: str, value: object, choices: tuple[str, ...]) -> None:
    _want(value in choices, name, f"is one of {', '.join(choices)}, not {value!r}")


def _check_id(name: str, value: object) -> None:
    _want(isinstance(value, str), name, f"is text, not {value!r}")
    try:
        check_branch_id(str(value))
    except ValueError as problem:
        raise SettingsProblem(f"{name}: {problem}") from None


def _history(value: object) -> bool:
    """Whether history is saved, said as Vesper has it, too."""
    if value == "split":
        raise SettingsProblem(
            "save_history='split': history is kept beside the data, so that both are committed in"
            " one transaction; save_history=True does that"
        )
    _want(isinstance(value, bool) or value == "combined", "save_history", "is True or False")
    return bool(value)
