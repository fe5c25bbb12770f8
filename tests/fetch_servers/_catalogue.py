"""The servers that are fetched, by name."""

from __future__ import annotations

from pathlib import Path
from typing import Final, Protocol

from stompkit.testing._launching.fetched import Fetched
from tests.fetch_servers._commands import Say
from tests.fetch_servers._debian import DebianServer
from tests.fetch_servers._maven import JarServer, TarServer

__all__ = ["CATALOGUE", "Source"]


class Source(Protocol):
    """A server and where it comes from."""

    @property
    def name(self) -> str:
        """What it is called here."""

    @property
    def server(self) -> str:
        """The kind of server."""

    @property
    def about(self) -> str:
        """Where it comes from."""

    def obstacle(self) -> str | None:
        """Why it can't be fetched on this machine, and what to do; ``None`` where it can."""

    def is_current(self, there: Fetched) -> bool:
        """Whether what is there need not be fetched again."""

    def fetch(self, cache: Path, say: Say, *, newest: bool = False) -> Fetched:
        """Fetch it, or what an earlier run has left to fetch; raises FetchError.

        With ``newest`` newer packages are looked for, where the version is not fixed.
        """


_APACHE: Final = "org.apache.activemq"
_SOURCES: Final[tuple[Source, ...]] = (
    TarServer("artemis", "artemis", "2.40.0", f"{_APACHE}:apache-artemis"),
    JarServer(
        "activemq-6",
        "activemq",
        "6.3.1",
        _APACHE,
        "activemq-parent",
        (
            *("activemq-stomp", "activemq-kahadb-store", "activemq-console", "activemq-spring"),
            *("activemq-jaas", "org.springframework:spring-context"),
            "org.slf4j:slf4j-simple:2.0.17",
        ),
    ),
    DebianServer("rabbitmq-4", "rabbitmq", "sid", ("rabbitmq-server",)),
    DebianServer("postgresql-18", "postgresql", "sid", ("postgresql-18",)),
    DebianServer(
        "mariadb-11.8", "mariadb", "trixie", ("mariadb-server-core", "mariadb-client-core")
    ),
    DebianServer("mysql-9", "mysql", "sid", ("mysql-server-core", "mysql-client-core")),
)
CATALOGUE: Final = {source.name: source for source in _SOURCES}
