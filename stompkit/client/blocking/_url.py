"""Broker URLs: brokers and a destination in one string."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Self
from urllib.parse import parse_qsl, unquote

from stompkit._common.addresses import host_port, parse_url_host, separate_urls
from stompkit._common.certificates import TlsFiles
from stompkit.client._hosts import Place, tls_description
from stompkit.client.blocking._link import Link

__all__ = ["BrokerUrl"]


@dataclass(frozen=True, kw_only=True)
class BrokerUrl:
    """Brokers and a destination in one URL."""

    hosts: tuple[str, ...]
    """``host:port`` of each broker; several for failover."""
    destination: str = ""
    """Name of the destination at the broker; empty if the URL has none."""
    login: str | None = None
    passcode: str | None = field(default=None, repr=False)
    virtual_host: str | None = None
    tls: bool = False
    ca: str = ""
    """File or directory of CA certificates, for TLS."""
    cert: str = ""
    """File with the client's certificate, for TLS."""
    key: str = ""
    """File with the private key of ``cert``, unless that has it."""

    @classmethod
    def parse(cls, url: str) -> Self:
        """Parse ``stomp://login:passcode@a:61613,b:61613/topic/x?vhost=/``.

        ``stomps`` is STOMP over TLS; ``?ca=PATH`` names a file or directory of CA certificates,
        ``cert=FILE`` the client's certificate, and ``key=FILE`` its key, unless ``cert`` has both.
        The path is the destination, including its slash; login, passcode and destination are
        percent-encoded. ``failover:(URL,URL)`` has several URLs, without a login. Raises
        ``ValueError``; the message quotes no part of the URL that may be a passcode.
        """
        first, *others = map(cls._parse_one, separate_urls(url))
        hosts = (*first.hosts, *(host for each in others for host in each.hosts))
        if any(replace(each, hosts=first.hosts) != first for each in others):
            raise ValueError("the URLs of a broker differ in more than their hosts")
        return replace(first, hosts=hosts)

    @classmethod
    def _parse_one(cls, url: str) -> Self:
        scheme, found, rest = url.partition("://")
        if not found or scheme not in ("stomp", "stomps"):
            raise ValueError(
                "the URL of a broker begins with stomp:// or stomps://: stomp://HOST:PORT"
            )
        rest, _, query = rest.partition("?")
        authority, slash, path = rest.partition("/")
        user, at, hosts = authority.rpartition("@")
        login, colon, passcode = user.partition(":")
        options = dict(parse_qsl(query, keep_blank_values=True))
        unknown = options.keys() - {"vhost", *TlsFiles._fields}
        if unknown:
            # The name is not quoted either: the passcode may contain a question mark.
            raise ValueError(
                "the URL of a broker has the options vhost, ca, cert and key, and no others; "
                "elsewhere, as in a passcode, ? is percent-encoded"
            )
        files = TlsFiles.of(options)
        if files.cert and scheme == "stomp":
            raise ValueError("the option cert of a broker's URL goes with stomps://, that is TLS")
        return cls(
            # With a login, the text may be part of a passcode that contains a slash.
            hosts=tuple(_host(each, quoting="@" not in url) for each in hosts.split(",")),
            destination=slash + unquote(path) if path else "",
            login=unquote(login) if at else None,
            passcode=unquote(passcode) if colon else None,
            virtual_host=options.get("vhost"),
            tls=scheme == "stomps",
            **files._asdict(),
        )

    @property
    def files(self) -> TlsFiles:
        """The files for TLS."""
        return TlsFiles(self.ca, self.cert, self.key)

    def link(self, **settings: Any) -> Link:
        """Return a new link; ``settings`` are further arguments of :class:`Link`."""
        return Link(
            self.endpoints(),
            login=self.login,
            passcode=self.passcode,
            virtual_host=self.virtual_host,
            **settings,
        )

    def endpoints(self) -> list[str]:
        """Return the hosts as :class:`Link` and :class:`stompkit.client.Client` accept them."""
        return [self._endpoint(each) for each in self.hosts] if self.tls else [*self.hosts]

    def _endpoint(self, host: str) -> str:
        name, _, port = host.rpartition(":")
        return tls_description(Place(name.strip("[]"), int(port), True, self.files))


def _host(text: str, *, quoting: bool) -> str:
    try:
        return host_port(*parse_url_host(text))
    except ValueError:
        if quoting:
            raise
        raise ValueError(
            "the URL of a broker has HOST:PORT, and in front of that LOGIN:PASSCODE@, in which "
            "/ ? @ , and % are percent-encoded"
        ) from None
