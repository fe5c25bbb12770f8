"""The measured peers: brokers, relays, and the ways to start and use each."""

from __future__ import annotations

import shutil
import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from benchmarks._process import open_files
from benchmarks.load._cells import Cell
from benchmarks.load._generator import generator
from benchmarks.load._running import Broker, BrokerOnServer, Running, start_program
from stompkit.testing import BrokerError, LaunchConfig, launch
from stompkit.testing.launching.brokers import launcher_for
from tests.servers import PostgreSql, ServerMissing

__all__ = ["PEERS", "SPARE_FILES", "Missing", "Peer", "Relay"]

#: Open files of a broker besides connections.
SPARE_FILES: Final = 500
_MOST_JOB_BYTES: Final = 1 << 20
#: Most open connections at a time.
_IDLE: Final = 10_000
#: Unacknowledged messages of a consumer.
_PREFETCH: Final = 100
#: Size in bytes of a head, at most: one that differs from message to message, and a short one.
_VARIED_HEAD_BYTES: Final = 400
_EQUAL_HEAD_BYTES: Final = 100


class Missing(Exception):
    """A peer is not installed; the message says how to get it."""


@dataclass(frozen=True)
class Peer(ABC):
    """A program that transports messages."""

    name: str
    about: str

    def in_version(self, version: str) -> Peer:
        """Return the same peer in another version; raise BrokerError if it has no versions."""
        raise BrokerError(f"{self.name}:{version}: {self.name} has no versions to choose from")

    @abstractmethod
    def lacks(self, cell: Cell) -> str:
        """Return the reason why it cannot run a cell; empty if it can."""

    @abstractmethod
    def variant(self, cell: Cell) -> str:
        """Return the variant of its start for a cell; cells of one variant share the process."""

    @abstractmethod
    def start(self, variant: str) -> Running:
        """Start it; raise :class:`Missing`, or BrokerError if it does not start."""

    @abstractmethod
    def arguments(self, running: Running, cell: Cell, name: str) -> list[str]:
        """Return the generator's arguments, except the number of messages; ``name`` is new."""


def _shape(cell: Cell, destinations: int) -> list[str]:
    """Return the part of the generator's arguments that all protocols share."""
    shape = {
        "--producers": cell.producers,
        "--consumers": cell.consumers,
        "--destinations": destinations,
        "--body": cell.body_bytes,
        "--rate": cell.rate,
        "--phase": "both" if cell.consumers else "fill",
        "--write-octets": cell.write_bytes,
    }
    given = [str(word) for pair in shape.items() for word in pair]
    return [*given, "--topic"] if cell.kind == "topic" else given


@dataclass(frozen=True)
class StompPeer(Peer):
    """A broker that stompkit.testing can launch."""

    version: str = "1.2"
    prefetch_header: str = "prefetch-count"
    has_data: bool = False
    """True if it is started with other options for persistent messages."""
    read_bytes: int = 0
    """The most bytes in flight to the broker; 0 for no limit."""
    has_individual: bool = True
    """True if it supports acknowledgements of single messages."""
    for_many: tuple[str, ...] = ()
    """Arguments of its command for the number of connections of the cell ``idle``."""
    message_octets: int = 0
    """Overhead of a message in its accounting, if its prefetch is in bytes."""

    def in_version(self, version: str) -> Peer:
        """Return the same peer in another version; raise BrokerError if it cannot be launched."""
        made = replace(
            self, name=f"{self.name}:{version}", about=f"{self.about}, version {version}"
        )
        launcher_for(made.name)
        return made

    def lacks(self, cell: Cell) -> str:
        if self.has_individual or cell.ack == "auto" or not cell.consumers:
            return ""
        return "it has no acknowledgement of single messages"

    def variant(self, cell: Cell) -> str:
        # Memory is that of a broker that has done nothing else.
        if cell.kind in ("backlog", "idle"):
            return cell.kind
        return "persistent" if cell.is_persistent and self.has_data else "memory"

    def start(self, variant: str) -> Running:
        keeps = self.has_data and variant in ("persistent", "backlog")
        arguments: tuple[str, ...] = ()
        if variant == "idle":
            open_files(_IDLE + SPARE_FILES)
            arguments = self.for_many
        return Broker(launch(LaunchConfig(name=self.name, persistent=keeps, arguments=arguments)))

    def arguments(self, running: Running, cell: Cell, name: str) -> list[str]:
        assert isinstance(running, Broker)
        broker = running.broker
        given = ["stomp", "--port", str(broker.port), "--host", broker.vhost]
        given += ["--version", self.version]
        if broker.login is not None:
            given += ["--login", broker.login, "--passcode", broker.passcode or ""]
        if cell.kind == "idle":
            return [*given[1:], "--parallel", str(cell.parallel)]
        template = broker.topic_template if cell.kind == "topic" else broker.queue_template
        ack = cell.ack if self.has_individual and cell.consumers else "auto"
        given += ["--destination", template.format(name), "--ack", ack]
        if cell.is_varied:
            given.append("--varied")
        if cell.kind == "churn":
            return ["churn", *given[1:], "--parallel", str(cell.parallel)]
        message_bytes = cell.body_bytes
        message_bytes += _VARIED_HEAD_BYTES if cell.is_varied else _EQUAL_HEAD_BYTES
        if ack != "auto":
            size = message_bytes + self.message_octets if self.message_octets else 1
            given += ["--subscribe-header", f"{self.prefetch_header}:{_PREFETCH * size}"]
        outstanding, window = cell.outstanding, cell.window
        if self.read_bytes:
            most = max(1, self.read_bytes // message_bytes // cell.producers)
            outstanding, window = min(outstanding, most), min(window, most)
        given += ["--outstanding", str(outstanding)]
        if cell.window:
            given += ["--window", str(window)]
        if cell.is_persistent:
            given += ["--send-header", "persistent:true"]
        return given + _shape(cell, cell.destinations)


class _DurablePostgreSql(PostgreSql):
    """A PostgreSQL server that writes commits to the disk, unlike those of tests."""

    def _command(self) -> Sequence[str]:
        # The last setting of a name is in effect.
        return [*super()._command(), "-c", "fsync=on"]


@dataclass(frozen=True)
class OnPostgreSql(StompPeer):
    """stompkit with its messages in a PostgreSQL server on the same machine."""

    def lacks(self, cell: Cell) -> str:
        return "" if cell.is_persistent else "only persistent messages are in its database"

    def variant(self, cell: Cell) -> str:
        return cell.kind if cell.kind == "backlog" else "persistent"

    def start(self, variant: str) -> Running:
        try:
            server = _DurablePostgreSql()
        except ServerMissing as error:
            raise Missing(str(error)) from None
        try:
            server.start()
            config = server.directory / "stompkit.toml"
            config.write_text(f'[store]\nurl = "{server.url(server.new_database())}"\n', "utf-8")
            broker = launch(LaunchConfig(name="stompkit", arguments=("--config", str(config))))
        except BaseException:
            server.remove()
            raise
        return BrokerOnServer(broker, server)


@dataclass(frozen=True)
class Relay(Peer):
    """A relay that does not parse messages: the cost of moving bytes only."""

    command: tuple[str, ...] = ()
    """The command, with the port appended; without it the generator itself."""

    def lacks(self, cell: Cell) -> str:
        if cell.kind not in ("queue", "topic"):
            return "it knows nothing of messages or sessions"
        return "" if cell.ack == "auto" else "it has no acknowledgements"

    def variant(self, cell: Cell) -> str:
        return ""

    def start(self, variant: str) -> Running:
        command = self.command or (str(generator()), "relay", "--port")
        return start_program(lambda port, _: [*command, str(port)])

    def arguments(self, running: Running, cell: Cell, name: str) -> list[str]:
        given = ["raw", "--port", str(running.port), "--outstanding", str(cell.outstanding)]
        # It does not distribute messages: each pair is separate.
        return given + _shape(cell, 1 if cell.kind == "topic" else cell.producers)


@dataclass(frozen=True)
class Beanstalkd(Peer):
    """beanstalkd: not STOMP, but the same job, by put, reserve and delete."""

    def lacks(self, cell: Cell) -> str:
        if cell.kind == "topic":
            return "it has no topics"
        if cell.kind in ("churn", "idle"):
            return "it has no sessions: there is no login"
        return "" if cell.ack != "auto" else "it delivers nothing that need not be deleted"

    def variant(self, cell: Cell) -> str:
        if cell.kind == "backlog":
            return cell.kind
        return "persistent" if cell.is_persistent else "memory"

    def start(self, variant: str) -> Running:
        program = shutil.which("beanstalkd")
        if program is None:
            raise Missing("beanstalkd is not installed: apt-get install beanstalkd")
        common = [program, "-l", "127.0.0.1", "-z", str(_MOST_JOB_BYTES)]

        def make(port: int, directory: Path) -> list[str]:
            log = [] if variant == "memory" else ["-b", str(directory), "-f", "0"]
            return [*common, "-p", str(port), *log]

        return start_program(make)

    def arguments(self, running: Running, cell: Cell, name: str) -> list[str]:
        given = ["beanstalk", "--port", str(running.port), "--destination", name]
        given += ["--outstanding", str(cell.outstanding), "--window", str(cell.window or 1_000)]
        return given + _shape(cell, cell.destinations)


PEERS: Final = (
    StompPeer(
        "stompkit",
        "this package's broker, as twist stompkit starts it",
        has_data=True,
        for_many=("--max-connections", str(_IDLE + SPARE_FILES)),
    ),
    OnPostgreSql("stompkit-postgresql", "the same with its messages in a PostgreSQL server"),
    StompPeer("activemq", "Apache ActiveMQ", prefetch_header="activemq.prefetchSize"),
    StompPeer(
        "artemis",
        "Apache ActiveMQ Artemis; its prefetch is one of octets",
        prefetch_header="consumer-window-size",
        message_octets=300,
    ),
    StompPeer("rabbitmq", "RabbitMQ with its STOMP plug-in"),
    StompPeer(
        "coilmq",
        "CoilMQ; it loses frames that it does not read whole, and is sent few at a time",
        version="1.1",
        has_data=True,
        read_bytes=4_096,
        has_individual=False,
    ),
    Beanstalkd("beanstalkd", "beanstalkd by its own protocol; -b -f 0 where messages survive"),
    Relay("relay-c", "forwards octets without looking, in C"),
    Relay(
        "relay-twisted",
        "forwards octets without looking, on Twisted",
        (sys.executable, "-m", "benchmarks.load.relay"),
    ),
)
