"""Brokers and the channel that a replica connects to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from stompkit.client.blocking import BrokerUrl, Link

__all__ = ["Channel", "ChannelSettingsError", "Hosts", "read_port"]

#: A list of ``(host, port)`` or ``"host:port"``; a text ``"host:port,host:port"``; or a URL as in
#: :class:`~stompkit.client.blocking.BrokerUrl`, with login, TLS and virtual host.
Hosts = str | Sequence[str | tuple[str, int]]

#: Characters that a host name cannot contain because they have another meaning in a URL.
_NOT_OF_HOSTS: Final = frozenset("/?@,# \t\r\n")


class ChannelSettingsError(ValueError):
    """An invalid setting; ``str()`` names it and says what to do."""


@dataclass(frozen=True, kw_only=True)
class Channel:
    """A channel on a broker, or on several brokers for failover."""

    broker: BrokerUrl
    channel: str
    """Name of the channel as given in the settings."""
    send_stomp_ack: bool = True
    receipts: bool = True
    durable: bool = False

    @property
    def destination(self) -> str:
        """Destination of the channel: a topic, unless the channel already names a destination."""
        return self.channel if self.channel.startswith("/") else f"/topic/{self.channel}"

    def link(self, **settings: Any) -> Link:
        """Connect; ``settings`` are further ones of :class:`~stompkit.client.blocking.Link`."""
        return self.broker.link(receipts=self.receipts, **settings)


def read_port(place: str, said: Mapping[str, Any]) -> Channel | None:
    """Return the channel that the settings describe; ``None`` if hosts and channel are missing."""
    hosts, channel = said.get("replication_hosts"), said.get("replication_channel")
    if not hosts and not channel:
        return None
    if not hosts:
        raise ChannelSettingsError(
            f"{place}replication_channel is {channel!r}, and there are no replication_hosts: name"
            " the broker, or leave both out to replicate with nobody"
        )
    try:
        broker = BrokerUrl.parse(_url(hosts))
    except ValueError as problem:
        raise ChannelSettingsError(f"{place}replication_hosts: {problem}") from None
    if broker.destination and channel:
        raise ChannelSettingsError(
            f"{place}replication_hosts names the destination {broker.destination!r}, and"
            f" replication_channel another one, {channel!r}: leave one of them out"
        )
    channel = channel or broker.destination
    if not channel:
        raise ChannelSettingsError(
            f"{place}there are replication_hosts, and no replication_channel: name the topic that"
            " all nodes share"
        )
    if not isinstance(channel, str) or not channel.isprintable() or " " in channel:
        raise ChannelSettingsError(
            f"{place}replication_channel {channel!r} cannot be the name of a topic"
        )
    flags = {name: said[name] for name in ("send_stomp_ack", "receipts", "durable")}
    for name, value in flags.items():
        if not isinstance(value, bool):
            raise ChannelSettingsError(f"{place}{name} is True or False, not {value!r}")
    return Channel(broker=broker, channel=channel, **flags)


def _url(hosts: Hosts) -> str:
    if isinstance(hosts, str):
        return hosts if "://" in hosts else f"stomp://{_plain_hosts(hosts.split(','))}"
    return f"stomp://{_plain_hosts(hosts)}"


def _plain_hosts(hosts: Iterable[str | Sequence[Any]]) -> str:
    """Return the hosts in URL notation; raises ValueError."""
    texts = []
    for each in hosts:
        text = ""
        if isinstance(each, str):
            text = each.strip()
        elif isinstance(each, Sequence) and len(each) == 2:
            name, port = str(each[0]), each[1]
            text = f"[{name}]:{port}" if ":" in name else f"{name}:{port}"
        if not text or _NOT_OF_HOSTS & set(text):
            raise ValueError("it is a list of (host, port), or 'host:port,host:port', or a URL")
        texts.append(text)
    return ",".join(texts)
