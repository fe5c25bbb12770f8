"""The downloadable servers, by name."""

from __future__ import annotations

from pathlib import Path
from typing import Final, Protocol

from stompkit.testing.launching.fetched import Fetched
from tests.fetch_servers._commands import Say
from tests.fetch_servers._debian import DebianServer
from tests.fetch_servers._maven import JarServer, TarServer

__all__ = ["CATALOGUE", "Source"]


class Source(Protocol):
    """A server and its origin."""

    @property
    def name(self) -> str:
        """Name of the server here."""

    @property
    def server(self) -> str:
        """The kind of server."""

    @property
    def about(self) -> str:
        """Description of its origin."""

    def obstacle(self) -> str | None:
        """Return the reason why it cannot be downloaded, with the remedy; ``None`` if it can."""

    def is_current(self, there: Fetched) -> bool:
        """Return True if the existing download is current."""

    def fetch(self, cache: Path, say: Say, *, newest: bool = False) -> Fetched:
        """Download it, or the rest after an interrupted run; raise FetchError.

        With ``newest`` newer packages are requested, unless the version is fixed.
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
