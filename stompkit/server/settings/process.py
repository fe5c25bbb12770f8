"""The settings of a broker process: a TOML file with overrides of the command line."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from msgspec import Meta, Struct, field

from stompkit._common.secrets import resolve
from stompkit.server.login.rights import Rights
from stompkit.server.settings.admin import AdminSettings
from stompkit.server.settings.beanstalk import BeanstalkSettings
from stompkit.server.settings.broker import BrokerConfig, DestinationConfig
from stompkit.server.settings.high_availability import HighAvailabilitySettings
from stompkit.server.settings.http_service import HttpService
from stompkit.server.settings.login_limiter import ThrottleSettings
from stompkit.server.settings.websocket import WebSocketListener

__all__ = [
    "DEFAULT_ENDPOINT",
    "AuthSettings",
    "Endpoint",
    "LogSettings",
    "Settings",
    "StoreSettings",
]

#: Default endpoint: only this machine can connect to it.
DEFAULT_ENDPOINT: Final = "tcp:61613:interface=127.0.0.1"

StoreKind = Literal["lmdb", "sqlalchemy", "none"]
LogFormat = Literal["text", "json"]


class StoreSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Storage of messages, so that they survive the process."""

    kind: StoreKind | None = None
    """``lmdb`` for a directory of the broker's own, ``sqlalchemy`` for an SQL database, ``none``
    to keep everything in memory only. Where it is not said it follows from ``path`` and ``url``;
    with neither of them nothing is kept."""
    path: str | None = None
    """The directory for the data, made if necessary. Only one broker at a time works on it, and
    another one that is started waits until the first has ended. With ``sqlalchemy`` it holds
    nothing but the lock that sees to that."""
    url: str | None = None
    """The database, as SQLAlchemy has it: ``sqlite:////var/lib/stompkit/messages.sqlite``. It may
    hold a password; let nobody else read the file then. ``env:NAME`` is a variable of the
    environment that holds it, ``file:PATH`` a file with it in its first line."""
    sync: str = "always"
    """Guarantee of a receipt. ``always``: the message is on the disk, and survives a loss of
    power. ``interval:MS``: it survives the end of the process at once, and a loss of power after
    that many milliseconds. ``never``: as before, but after whatever time the operating system
    takes."""
    max_octets: Annotated[int, Meta(ge=1024 * 1024)] = 64 * 1024 * 1024 * 1024
    """Bytes that the file of ``lmdb`` may grow to; then it is full, and persistent messages are
    refused until others have been consumed."""
    lock_timeout_s: Annotated[float, Meta(ge=0)] | None = None
    """Seconds to wait for a directory that another broker works on before this one gives up; 0
    for not at all. Where it is not said, it stands by for as long as it takes."""

    @property
    def has_store(self) -> bool:
        """True if messages are kept anywhere but in memory."""
        return self.effective_kind != "none"

    @property
    def effective_kind(self) -> StoreKind:
        """The kind, also where it is not said."""
        if self.kind is not None:
            return self.kind
        return "sqlalchemy" if self.url is not None else "lmdb" if self.path is not None else "none"

    @property
    def database_url(self) -> str | None:
        """The URL of the database, read from its source; raises SecretError."""
        return None if self.url is None else resolve(self.url)

    @property
    def is_synchronous(self) -> bool:
        """True if a commit is on the disk before its receipt is sent."""
        return self.sync == "always"

    @property
    def sync_interval_s(self) -> float | None:
        """Seconds between two calls that bring everything to the disk, if there are any."""
        word, _, milliseconds = self.sync.partition(":")
        return int(milliseconds) / 1000 if word == "interval" else None


class Endpoint(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Endpoint to listen on. Without any: port 61613 of the loopback interface."""

    endpoint: str
    """Server endpoint description of Twisted: ``tcp:61613``,
    ``tcp:61613:interface=127.0.0.1``, ``unix:/run/stompkit.sock``, or ``stomps:61614`` with
    ``:certificate=FILE`` for TLS. ``:backlog=100`` says how many connections may wait to be
    accepted: 4096 where it is left out, and never more than the kernel's ``somaxconn``.
    ``haproxy:`` in front of any of these is for clients that come by a load balancer: each
    connection has to begin with a header of the PROXY protocol."""
    proxies: tuple[str, ...] = ()
    """The load balancers in front of a ``haproxy:`` endpoint, as addresses or networks,
    ``"10.0.0.0/24"``. Nobody else is let in there. Without any, everybody who can connect is
    believed."""


class AuthSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Access of clients. Without checkers, certificates and service: everybody, without a name."""

    checkers: tuple[str, ...] = ()
    """Checkers of logins and passcodes, asked one after the other: ``stompkit:FILE`` for a file
    that ``stompkit passwd`` makes, or any other that ``twistd stompkit --help-auth`` lists."""
    anonymous: bool | None = None
    """``true`` lets clients in that send no login, as nobody. Where nobody's login is checked,
    ``true`` says that this is meant, and is not warned of."""
    certificate_users: bool = False
    """``true`` if a client that has shown a TLS certificate, and sends no login, is the user that
    the certificate names: its common name."""
    groups: dict[str, tuple[str, ...]] = {}
    """Groups, for ``[[rights]]``: the users in each."""
    http: HttpService | None = None
    """A service that is asked about logins, and about what users do."""
    throttle: ThrottleSettings = field(default_factory=ThrottleSettings)
    """Limits on how often passcodes, and tokens of the admin's HTTP, may be wrong; past that,
    logins are refused without a look at the passcode, with the same ERROR, after a while."""

    @property
    def is_checked(self) -> bool:
        """True if the identity of clients is checked."""
        return bool(self.checkers) or self.certificate_users or self.http is not None


class LogSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Logging. The destination is up to ``twistd`` and ``twist``, unless there is a file."""

    format: LogFormat | None = None
    """``text``, or ``json`` for one object in each line. Where it is not said, the log looks as
    ``twistd`` or ``twist`` has it by default; to change it from or to that takes a restart."""
    file: Annotated[str, Meta(min_length=1)] | None = None
    """A file that the log is appended to, in place of where ``twistd`` or ``twist`` write it. It is
    never rotated by the broker, and opened again at SIGUSR1, as ``logrotate`` needs it. To change
    it takes a restart."""
    frames: bool = False
    """``true`` logs each frame, passcodes masked and bodies left out. Meant for looking into
    a problem: it slows the broker down."""


class Settings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All settings of a broker process."""

    broker: BrokerConfig = field(default_factory=BrokerConfig)
    destinations: tuple[DestinationConfig, ...] = field(default=(), name="destination")
    store: StoreSettings = field(default_factory=StoreSettings)
    high_availability: HighAvailabilitySettings = field(default_factory=HighAvailabilitySettings)
    endpoints: tuple[Endpoint, ...] = field(default=(), name="listen")
    websockets: tuple[WebSocketListener, ...] = field(default=(), name="websocket")
    auth: AuthSettings = field(default_factory=AuthSettings)
    rights: tuple[Rights, ...] = ()
    log: LogSettings = field(default_factory=LogSettings)
    admin: AdminSettings = field(default_factory=AdminSettings)
    beanstalk: BeanstalkSettings = field(default_factory=BeanstalkSettings)

    @property
    def config(self) -> BrokerConfig:
        """The settings of the broker, including those of single destinations."""
        return self.broker.changed(destinations=self.destinations)

    @property
    def listening(self) -> tuple[Endpoint, ...]:
        """All endpoints to listen on."""
        return self.endpoints or (Endpoint(endpoint=DEFAULT_ENDPOINT),)

    @property
    def descriptions(self) -> list[str]:
        """The descriptions of all endpoints to listen on."""
        return [each.endpoint for each in self.listening]
