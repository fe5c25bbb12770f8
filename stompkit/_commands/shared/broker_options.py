"""Shared options for the address and the login of a broker."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from stompkit._common.arguments import positive
from stompkit._common.secrets import SecretError, first_line, resolve

if TYPE_CHECKING:  # --help must work without Twisted
    from twisted.internet.interfaces import IReactorTime

    from stompkit.client import Client
    from stompkit.client.blocking import BrokerUrl

__all__ = [
    "BROKER_HELP",
    "Broker",
    "BrokerUsageError",
    "add_broker_options",
    "add_quiet_time",
    "seconds",
]

#: Default address of the broker.
_DEFAULT: Final = "stomp://localhost:61613"
#: Default number of connection attempts for each host.
_ATTEMPTS: Final = 5

#: Text for the end of a command's --help.
BROKER_HELP: Final = """\
--mq is HOST:PORT or stomp://LOGIN@HOST:PORT; use stomps:// for TLS. Add ?vhost=NAME for a virtual
host, and ?ca=FILE for the certificate of a private authority; FILE may be a directory of .pem
files. ?cert=FILE&key=FILE names the client's certificate and its key, for a broker that requires
one; without key, FILE has both. Several hosts, as in stomp://a:61613,b:61613, are used for
failover. env:NAME takes the URL from an environment variable, file:PATH from the first line of a
file, so that other users of the machine cannot read a passcode. Without options, the environment
variables STOMPKIT_URL, STOMPKIT_LOGIN, STOMPKIT_PASSCODE and STOMPKIT_VHOST apply, which `stompkit
run` sets.
"""


class BrokerUsageError(Exception):
    """An error in the command line, or in something that it names."""


def add_broker_options(parser: argparse.ArgumentParser) -> None:
    """Add the options for the broker's address and the login."""
    add = parser.add_argument_group("the broker").add_argument
    add(
        "--mq",
        metavar="URL",
        help=f"address of the broker (default: $STOMPKIT_URL, else {_DEFAULT})",
    )
    add("--login", metavar="NAME", help="user name (default: from the URL, else $STOMPKIT_LOGIN)")
    add(
        "--passcode-file",
        type=Path,
        metavar="FILE",
        help="file whose first line is the passcode (default: $STOMPKIT_PASSCODE)",
    )
    add("--vhost", metavar="NAME", help="virtual host (default: $STOMPKIT_VHOST)")
    add(
        "--attempts",
        type=_attempts,
        default=_ATTEMPTS,
        metavar="N",
        help="failed connection attempts in a row, for each host, before the command "
        f"fails; 0: unlimited (default: {_ATTEMPTS})",
    )


def add_quiet_time(parser: argparse.ArgumentParser) -> None:
    """Add the option for the time after which a queue counts as empty."""
    parser.add_argument(
        "--quiet-time",
        type=seconds,
        default=2.0,
        metavar="SECONDS",
        help="with --mq: stop after this many seconds without a message (default: 2)",
    )


def seconds(text: str) -> float:
    """Parse a positive time in seconds."""
    try:
        found = float(text)
    except ValueError:
        found = 0.0
    if not 0 < found < 1e9:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds, such as 2.5")
    return found


def _attempts(text: str) -> int:
    return 0 if text == "0" else positive(text)


@dataclass(frozen=True)
class Broker:
    """The address of a broker, and the login."""

    url: BrokerUrl
    attempts: int

    @classmethod
    def of(cls, options: argparse.Namespace) -> Broker:
        """Return the broker of the options and the environment; raises BrokerUsageError."""
        from stompkit.client.blocking import BrokerUrl

        given = options.mq or os.environ.get("STOMPKIT_URL") or _DEFAULT
        source = "--mq" if options.mq else "STOMPKIT_URL"
        try:
            text = resolve(given)
            url = BrokerUrl.parse(text if "://" in text else f"stomp://{text}")
        except ValueError as error:
            raise BrokerUsageError(f"{source}: {error}") from None
        if url.destination:
            raise BrokerUsageError(f"{source}: the URL of a broker has no destination here")
        login, passcode = _user(options, url)
        vhost = options.vhost
        if vhost is None:
            vhost = url.virtual_host or os.environ.get("STOMPKIT_VHOST") or None
        return cls(
            replace(url, login=login, passcode=passcode, virtual_host=vhost), options.attempts
        )

    @property
    def label(self) -> str:
        """Addresses of the broker, for messages."""
        return ",".join(self.url.hosts)

    def client(
        self,
        reactor: IReactorTime,
        connect_headers: Mapping[str, str] | None = None,
        **settings: Any,
    ) -> Client:
        """Return a client; ``settings`` are arguments of :class:`stompkit.client.Client`."""
        from stompkit.client import Client, ReconnectPolicy

        url = self.url
        return Client(
            url.endpoints(),
            login=url.login,
            passcode=url.passcode,
            virtual_host=url.virtual_host,
            connect_headers=connect_headers,
            reconnect=ReconnectPolicy(
                max_s=2.0, max_attempts=self.attempts * len(url.hosts) or None
            ),
            reactor=reactor,
            **settings,
        )


def _user(options: argparse.Namespace, url: BrokerUrl) -> tuple[str | None, str | None]:
    """Return login and passcode, each from the most specific source."""
    login, passcode = url.login, url.passcode
    if options.login is not None:
        # The passcode belongs to another user.
        passcode = passcode if login == options.login else None
        login = options.login
    environment = os.environ.get("STOMPKIT_LOGIN")
    if login is None:
        login = environment or None
    if options.passcode_file is not None:
        try:
            passcode = first_line(options.passcode_file)
        except SecretError as error:
            raise BrokerUsageError(f"--passcode-file: {error}") from None
    elif passcode is None and login is not None and environment in (None, "", login):
        passcode = os.environ.get("STOMPKIT_PASSCODE") or None
    return login, passcode
