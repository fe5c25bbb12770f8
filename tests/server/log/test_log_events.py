"""Every event of the log, caused by a broker, in JSON that its schema describes."""

from __future__ import annotations

import ast
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest
from pytest_twisted import ensureDeferred  # type: ignore[import-untyped]  # it ships no types
from twisted.cred.credentials import IUsernamePassword
from twisted.internet.address import IPv4Address, IPv6Address, UNIXAddress
from twisted.internet.defer import Deferred, fail
from twisted.internet.interfaces import IReactorTime
from twisted.internet.protocol import Factory
from twisted.internet.task import Clock

import stompkit.server
from docs import make_log_events
from stompkit._common.addresses import address_text
from stompkit._pure import slowness
from stompkit.server import BrokerConfig, BrokerFactory
from stompkit.server.admin.routes import ROUTES
from stompkit.server.beanstalk.commands import COMMANDS
from stompkit.server.beanstalk.session import Handler
from stompkit.server.interfaces import Clock as DomainClock
from stompkit.server.interfaces import CreateLane, Credentials, Put, Remove, StoreError, User
from stompkit.server.listen.proxied import MOST_WAITING, HeaderFactory
from stompkit.server.log import lease_events
from stompkit.server.log.event import EVENTS
from stompkit.server.log.rate_limited_log import MOST_PER_S
from stompkit.server.log.schema import FIELDS
from stompkit.server.login import scrypt
from stompkit.server.login.auth import CredAuthenticator
from stompkit.server.login.http_authoriser import HttpAuthenticator
from stompkit.server.login.limited_authenticator import Decided, LimitedAuthenticator
from stompkit.server.login.login_limiter import LoginLimiter
from stompkit.server.login.password_files import Cost, HashedPasswordFile, hash_passcode
from stompkit.server.process.assembly import Access, access
from stompkit.server.process.lifecycle import Lifecycle
from stompkit.server.process.notify import Notifier
from stompkit.server.settings.login_limiter import ThrottleSettings
from stompkit.server.settings.reading import parse_settings
from stompkit.server.stores import LmdbStore
from stompkit.server.stores.environment import Environment
from stompkit.server.stores.memory import MemoryStore
from stompkit.server.stores.record import NUMBER
from stompkit.testing.memory import MemoryBroker, MemoryClient
from tests.server.admin.asking import Asker
from tests.server.admin.in_memory import admin_connection
from tests.server.beanstalk import peers
from tests.server.certificates import Authority
from tests.server.failing import FailingStore, everything
from tests.server.log.log_lines import DRIVEN, LogLines, logged_lines, logs
from tests.server.login.services import ended, logs_in, started
from tests.server.processes import (
    CONNECT,
    LOOPBACK,
    TWIST,
    Client,
    announced,
    processes,
    talk,
    tcp,
)
from tests.server.system_clock import SystemClock

Test = Callable[..., Coroutine[Any, Any, None]]
#: For tests that wait for the reactor.
in_reactor: Callable[[Test], Test] = ensureDeferred


@pytest.fixture(autouse=True)
def lines(request: pytest.FixtureRequest) -> Iterator[LogLines]:
    """The events that are logged meanwhile; those of ``logs`` have to be among them."""
    with logged_lines() as found:
        yield found
        names = {each["event"] for each in found.events()}
        assert set(getattr(request.function, "logs", ())) <= names


# A process.


SETTINGS = """
[log]
format = "json"
frames = true
[broker]
max_deliveries = 1
[[listen]]
endpoint = "tcp:0"
[[listen]]
endpoint = "haproxy:tcp:0"
[[listen]]
endpoint = "haproxy:tcp:0:interface=127.0.0.1"
proxies = ["192.0.2.1"]
[[listen]]
endpoint = "stomps:0:interface=127.0.0.1:certificate={certificate}"
[[websocket]]
endpoint = "tcp:0:interface=127.0.0.1"
[beanstalk]
endpoints = ["tcp:0:interface=127.0.0.1"]
[admin]
endpoints = ["tcp:0:interface=127.0.0.1"]
"""


@logs(
    *("listening", "messages-in-memory", "open-endpoint", "trusting-endpoint", "notify-failed"),
    *("client-refused", "frame", "tls-failed", "websocket-refused", "proxy-untrusted"),
    *("proxy-header-invalid", "settings-reloaded", "setting-invalid", "settings-invalid"),
    *("restart-needed", "queue-paused", "queue-resumed", "messages-purged", "messages-deleted"),
    *("messages-moved", "letters-retried", "destination-deleted", "durable-deleted"),
    *("connection-closed", "message-published", "durable-handed-over"),
)
def test_a_process_from_start_to_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: LogLines
) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "missing"))
    keys = tmp_path / "keys"
    keys.mkdir()
    file = tmp_path / "settings.toml"
    settings = SETTINGS.format(certificate=Authority(keys, "ca").server())
    file.write_text(settings)
    announce = tmp_path / "announce"
    with processes(tmp_path) as start:
        process = start(TWIST, "--config", str(file), "--announce", str(announce))
        plain, believing, guarded, secret = (
            {**each, "host": "127.0.0.1"} for each in announced(process, announce)
        )
        document = json.loads(announce.read_text())
        for where in (believing, guarded, secret):
            talk_and_lose(where, b"NONSENSE" * 1_000)
        talk_and_lose(document["websocket"][0], b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
        assert b"unknown-destination" in talk(
            tcp(plain), CONNECT + b"SEND\ndestination:/none/a\n\nx\0"
        )
        admin = document["admin"][0]
        operate(plain, Asker(f"http://{admin['host']}:{admin['port']}/"))
        for text, result in (
            (settings.replace("tcp:0:interface", "tcp:1:interface", 1), "was reloaded"),
            (f"{settings}[brokr]", "stay in force"),
        ):
            file.write_text(text)
            process.popen.send_signal(signal.SIGHUP)
            process.wait_for(result)
        process.wait_for('"tls-failed"')
        process.terminate()
        lines.add(process.log)
    check_process(lines, plain)


def check_process(lines: LogLines, plain: dict[str, Any]) -> None:
    protocols = [each["protocol"] for each in lines.events("listening")]
    assert sorted(protocols) == ["HTTP", *["STOMP"] * 4, "WebSocket", "beanstalk"]
    assert f"0.0.0.0:{plain['port']}" in [each["address"] for each in lines.events("listening")]
    [refused] = (
        each for each in lines.events("client-refused") if each["code"] == "unknown-destination"
    )
    assert refused["destination"] == "/none/a"
    assert re.fullmatch(r"127\.0\.0\.1:\d+", refused["peer"])
    assert lines.events("library")
    assert bool(lines.events("not-compiled")) is (slowness() is not None)
    for name in ("queue-paused", "messages-moved", "connection-closed"):
        [event] = lines.events(name)
        assert re.fullmatch(r"127\.0\.0\.1:\d+", event["peer"]), "whose browser it was"
    [moved] = lines.events("messages-moved")
    assert (moved["destination"], moved["target"], moved["count"]) == ("/queue/a", "/queue/b", 3)
    frames = [each for each in lines.events("frame") if each["command"] == "SEND"]
    assert json.loads(frames[-1]["headers"])["destination"] == frames[-1]["destination"]


def talk_and_lose(where: dict[str, Any], octets: bytes) -> None:
    """Send bytes that end the connection, perhaps by a reset."""
    try:
        talk(tcp(where), octets)
    except ConnectionError:
        pass


def operate(where: dict[str, Any], ask: Asker) -> None:
    """Change queues in all ways."""
    with Client(where) as client:
        for _ in range(3):
            client.send("/queue/a")
        client.send("/dlq/a")
        client.ask(
            b"SUBSCRIBE\nid:d\ndestination:/topic/a\ndurable:true\nauto-delete:false\n"
            b"receipt:s\n\n\0"
        )
    [durable] = ask.get("durables")["durables"]
    first = ask.get("messages", name="/queue/a")["messages"][0]["id"]
    for path, fields in (
        ("publish", {"destination": "/queue/a", "body": "x"}),
        ("pause", {"name": "/queue/a"}),
        ("resume", {"name": "/queue/a"}),
        ("delete-messages", {"name": "/queue/a", "ids": [first]}),
        ("move", {"from": "/queue/a", "to": "/queue/b"}),
        ("purge", {"name": "/queue/b"}),
        ("retry", {"name": "/dlq/a"}),
        ("delete", {"name": "/dlq/a"}),
    ):
        assert ask.post(path, **cast("dict[str, Any]", fields)).status in (200, 404), path
    ask.wait_for(durable["name"], consumers=0)
    assert ask.post("durables/hand-over", name=durable["name"], user="ann").status == 200
    assert ask.post("durables/delete", name=durable["name"]).status == 200
    with Client(where):
        [connection] = ask.get("connections")["connections"]
        assert ask.post("close", connection=connection["id"]).status == 200


@logs("client-refused", "file-reloaded", "file-invalid")
def test_users_and_their_file(tmp_path: Path, lines: LogLines) -> None:
    users, file, announce = (tmp_path / name for name in ("users", "settings.toml", "announce"))
    cheap = Cost(log2_n=1, r=1, p=1)
    users.write_text(f"ann:{hash_passcode('sesame', cheap)}\n")
    file.write_text(
        f'[log]\nformat = "json"\n[auth]\ncheckers = ["stompkit:{users}"]\n'
        '[[rights]]\nusers = ["ann"]\ndestination = "/queue/a"\nallow = ["read"]\n'
    )
    with processes(tmp_path) as start:
        options = ["--endpoint", LOOPBACK, "--announce", str(announce)]
        process = start(TWIST, "--config", str(file), *options)
        [where] = announced(process, announce)
        with Client(where, "bob:sesame") as client:
            assert b"not-authenticated" in client.first
        with Client(where, "ann:sesame") as client:
            assert b"not-authorised" in client.send("/queue/b")
        for text, event in ((users.read_text() + "\n", "file-reloaded"), ("?", "file-invalid")):
            users.write_text(text)
            with Client(where, "ann:sesame") as client:
                assert client.first.startswith(b"CONNECTED")
            process.wait_for(f'"{event}"')
        process.terminate()
        lines.add(process.log)
        assert "sesame" not in process.log
    by_code = {each["code"]: each for each in lines.events("client-refused")}
    assert by_code["not-authenticated"]["user"] == "bob"
    denied = by_code["not-authorised"]
    assert (denied["user"], denied["destination"]) == ("ann", "/queue/b")
    assert "(user 'ann') refused: not-authorised: " in denied["message"]


@logs("standing-by", "taking-over", "fatal")
def test_a_standby(tmp_path: Path, lines: LogLines) -> None:
    options = ["--data", str(tmp_path / "data"), "--endpoint", LOOPBACK, "--log-format", "json"]
    with processes(tmp_path) as start:
        first = start(TWIST, *options)
        first.wait_for('"listening"')
        second = start(TWIST, *options)
        second.wait_for('"standing-by"')
        third = start(TWIST, *options, "--lock-timeout", "0.1")
        assert third.ended() == 1
        first.kill()
        second.wait_for('"listening"')
        second.terminate()
        lines.add(second.log)
        lines.add(third.log)
    [waiting, _] = lines.events("standing-by")
    assert str(first.popen.pid) in waiting["holder"]


@logs("no-settings-file")
def test_a_signal_to_reload_without_a_file(tmp_path: Path, lines: LogLines) -> None:
    options = ["--endpoint", LOOPBACK, "--log-format", "json"]
    with processes(tmp_path) as start:
        process = start(TWIST, *options)
        process.wait_for('"listening"')
        process.popen.send_signal(signal.SIGHUP)
        process.wait_for('"no-settings-file"')
        process.terminate()
        lines.add(process.log)


@logs("log-file-failed")
def test_a_log_file_that_cannot_be_opened_again(tmp_path: Path, lines: LogLines) -> None:
    file, settings = tmp_path / "the.log", tmp_path / "settings.toml"
    settings.write_text(f'[log]\nformat = "json"\nfile = "{file}"\n')
    announce = tmp_path / "announce"
    options = ["--endpoint", LOOPBACK, "--announce", str(announce)]
    with processes(tmp_path) as start:
        process = start(TWIST, "--config", str(settings), *options)
        announced(process, announce)
        moved = file.rename(tmp_path / "moved")
        file.mkdir()
        process.popen.send_signal(signal.SIGUSR1)
        process.wait_until(lambda: '"log-file-failed"' in moved.read_text())
        process.terminate()
        lines.add(moved.read_text())


@logs("notify-socket-invalid")
def test_an_invalid_notify_socket() -> None:
    Notifier(cast("IReactorTime", Clock()), {"NOTIFY_SOCKET": "name\nof nothing"})


@logs("cleanup-failed")
def test_a_service_that_cannot_be_closed(tmp_path: Path) -> None:
    lifecycle = Lifecycle(parse_settings("", "none", {}))
    lifecycle.access = Access(None, None, (lambda: fail(OSError("stuck")),))
    lifecycle.change_access(Access(None, None))


# Stores.


def publish(client: MemoryClient, name: str = "/queue/a") -> None:
    client.publish(name, b"x", receipt="r")


@logs("store-failed", "store-recovered")
def test_a_store_that_fails_for_a_time() -> None:
    store = FailingStore()
    broker = MemoryBroker(store=store)
    store.fails = everything
    publish(broker.client())
    store.fails = lambda _: False
    publish(broker.client())


@logs("store-read-failed")
def test_a_store_that_cannot_be_read() -> None:
    store = FailingStore()
    broker = MemoryBroker(BrokerConfig(window_messages=2), store=store)
    client = broker.client()
    for _ in range(10):
        publish(client)
    store.reads_fail = True
    broker.client().subscribe("/queue/a")


class Unwilling(FailingStore):
    """A store that can be told to fail at the end, and that does not sync by itself."""

    def sync(self) -> None:
        """Fail."""
        raise StoreError("no sync")

    def close(self) -> None:
        """Fail."""
        raise StoreError("no end")


@logs("store-sync-failed", "store-empty-failed", "store-close-failed")
def test_a_store_that_cannot_sync_be_emptied_or_closed() -> None:
    store = Unwilling()
    broker = MemoryBroker(store=store, make=partial(BrokerFactory, sync_interval_s=1))
    publish(broker.client())
    broker.clock.advance(2)
    store.fails = everything
    broker.broker.reset(lambda _: None)
    broker.broker.close()


class Defective(FailingStore):
    """A store with a defect."""

    def apply(self, operations: object) -> None:
        """Fail in an unforeseen way."""
        raise ZeroDivisionError


@logs("store-call-failed")
def test_a_store_with_a_defect(lines: LogLines) -> None:
    publish(MemoryBroker(store=Defective()).client())
    [event, *_] = lines.events("store-call-failed")
    assert "ZeroDivisionError" in event["traceback"]


def one(place: int) -> Put:
    return Put(1, place, 1_000, 0, 0, f"id-{place}", b"", b"x" * 1_000)


@logs("store-log-missing")
def test_a_store_whose_log_cannot_be_opened(tmp_path: Path) -> None:
    (tmp_path / "messages.lmdb").mkdir()
    (tmp_path / "messages.lmdb" / "changes.log").symlink_to(tmp_path / "missing" / "file")
    store = LmdbStore(tmp_path)
    store.open()
    store.apply([CreateLane(1, "/queue/a", 4)])
    store.close()


@pytest.mark.skipif(sys.platform != "linux", reason="it reads /proc")
@logs("store-log-failed")
def test_a_store_whose_log_cannot_be_written(tmp_path: Path) -> None:
    store = LmdbStore(tmp_path)
    store.open()
    store.apply([CreateLane(1, "/queue/a", 4)])
    store.apply([one(1)])
    for each in Path("/proc/self/fd").iterdir():
        if os.path.realpath(each).startswith(str(tmp_path)) and "changes.log" in os.readlink(each):
            read_only = os.open(os.readlink(each), os.O_RDONLY)
            os.dup2(read_only, int(each.name))
            os.close(read_only)
    store.apply([one(2)])
    assert len(store.read(1, 0, 10, 1_000_000)) == 2
    store.close()


@logs("store-change-dropped")
def test_a_damaged_change(tmp_path: Path) -> None:
    store = LmdbStore(tmp_path)
    store.open()
    store.apply([CreateLane(1, "/queue/a", 4)])
    store.apply([one(1)])
    store.close()
    store.open()
    store.apply([Remove(1, 1)])
    copy = tmp_path / "copy"
    (copy / "messages.lmdb").mkdir(parents=True)
    for each in (tmp_path / "messages.lmdb").iterdir():
        (copy / "messages.lmdb" / each.name).write_bytes(each.read_bytes())
    store.close()
    environment = Environment(copy, max_octets=1024 * 1024)
    environment.open()
    with environment.transaction(write=True) as (txn, databases):
        txn.put(NUMBER.pack(1), b"?", db=databases.lanes)
    environment.close()
    damaged = LmdbStore(copy)
    damaged.open()
    damaged.close()


#: Fills a disk, and closes a store whose log has changes that no longer fit into its database.
FULL_DISK = """
import resource, signal, sys
from pathlib import Path
from twisted.logger import globalLogPublisher
from stompkit.server.interfaces import CreateLane, Put
from stompkit.server.log.observer import LogObserver, LogSwitch
from stompkit.server.stores import LmdbStore
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
globalLogPublisher.addObserver(LogObserver(sys.stdout, LogSwitch("json")))
store = LmdbStore(Path(sys.argv[1]))
store.open()
store.apply([CreateLane(1, "/queue/a", 4)])
store.apply([Put(1, 1, 1000, 0, 0, "id", b"", b"x" * 1000)])
# Not even the space reserved for this can be used.
resource.setrlimit(resource.RLIMIT_FSIZE, (8192, resource.RLIM_INFINITY))
store.close()
"""


@logs("store-log-kept")
def test_a_full_disk(tmp_path: Path, lines: LogLines) -> None:
    command = [sys.executable, "-c", FULL_DISK, str(tmp_path)]
    lines.add(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


#: Logs before the disk is full, meanwhile and later. A file of limited size stands for the disk.
FULL_LOG = """
import resource, signal, sys
from twisted.logger import Logger, globalLogPublisher
from stompkit.server.log.observer import LogObserver, LogSwitch
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
globalLogPublisher.addObserver(LogObserver(sys.stdout, LogSwitch("json")))
logger = Logger()
for size, count, when in ((1_000, 20, "full"), (resource.RLIM_INFINITY, 2, "later")):
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
    for number in range(count):
        logger.info("{when} {number}", when=when, number=number)
"""


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_no_line_of_a_log_is_cut_where_the_disk_was_full(tmp_path: Path, unbuffered: str) -> None:
    log = tmp_path / "log"
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    with log.open("a") as stream:
        subprocess.run([sys.executable, "-c", FULL_LOG], check=True, stdout=stream, env=environment)
    messages = [json.loads(line)["message"] for line in log.read_text("utf-8").splitlines()]
    assert messages[0] == "full 0"
    assert messages[-2:] == ["later 0", "later 1"]


# Clients.


RIGHTS = """
[[rights]]
destination = "/topic/news.>"
allow = ["create", "read"]
"""


@logs("slow-reader", "level-not-readable", "no-local-ignored", "warnings-omitted")
def test_warnings_about_destinations(lines: LogLines) -> None:
    broker = MemoryBroker(BrokerConfig(max_topic_backlog=1, max_subscriptions=2_000))
    reader = broker.client()
    reader.subscribe("/topic/slow")
    reader.stop_reading()
    for _ in range(10):
        publish(broker.client(), "/topic/slow")
    client = broker.client()
    for number in range(1_000):
        client.subscribe(f"/topic/{number}", id=f"{number}", no_local="true")
    settings = parse_settings(RIGHTS, "rights", {})
    decided_by = access(settings, cast("DomainClock", Clock()))
    limited = MemoryBroker(BrokerConfig(dialect="activemq"), authoriser=decided_by.authoriser)
    limited.client().subscribe("/topic/news.>")
    [slow] = lines.events("slow-reader")
    assert slow["destination"] == "/topic/slow"


@logs("slow-reader")
def test_a_slow_subscriber_is_named_once_for_each_address(lines: LogLines) -> None:
    broker = MemoryBroker(BrokerConfig(max_topic_backlog=1))
    for address in ("10.0.0.1", "10.0.0.2", "10.0.0.1"):
        reader = broker.connect(address)
        reader.send("CONNECT", {"accept-version": "1.2", "host": "memory"})
        reader.subscribe("/topic/slow")
        reader.stop_reading()
    for _ in range(10):
        publish(broker.client(), "/topic/slow")
    first, second = lines.events("slow-reader")
    assert first["peer"].startswith("10.0.0.1:")
    assert second["peer"].startswith("10.0.0.2:")
    assert first["message"].startswith(f"{first['peer']} reads '/topic/slow' too slowly")


@logs("repetition-ignored")
def test_a_message_that_would_be_repeated() -> None:
    client = MemoryBroker().client()
    client.send("SEND", {"destination": "/queue/a", "AMQ_SCHEDULED_PERIOD": "1000"}, b"x")


@logs("hosts-not-configured")
def test_a_virtual_host_that_is_gone(lines: LogLines) -> None:
    store = MemoryStore()
    broker = MemoryBroker(BrokerConfig(hosts=("one", "two")), store=store)
    publish(broker.client(host="two"), "/queue/a")
    broker.broker.close()
    MemoryBroker(BrokerConfig(hosts=("one",)), store=store, clock=broker.clock)
    [event] = lines.events("hosts-not-configured")
    assert event["hosts"] == "'two'"


@logs("slots-in-transaction")
def test_a_transaction_without_slots() -> None:
    client = MemoryBroker(BrokerConfig(flow="one-in-flight")).client()
    client.publish("/queue/a", b"x")
    client.subscribe("/queue/a", ack="client")
    [message] = client.take("MESSAGE")
    client.send("BEGIN", transaction="t")
    client.ack(message, transaction="t")


@logs("refusals-omitted")
def test_a_flood_of_refused_clients() -> None:
    broker = MemoryBroker(BrokerConfig(max_connections=1))
    broker.connect()
    for _ in range(100):
        broker.connect()
    broker.clock.advance(1)


@logs("proxy-headers-late")
def test_too_many_connections_without_a_header(lines: LogLines) -> None:
    factory = HeaderFactory(Factory(), (), cast("IReactorTime", Clock()))
    factory.waiting = MOST_WAITING
    assert factory.buildProtocol(IPv6Address("TCP", "2001:db8::7", 1)) is None
    [event] = lines.events("proxy-headers-late")
    assert event["peer"] == "[2001:db8::7]:1"


@logs("beanstalk-command-failed")
def test_a_defect_of_a_beanstalk_command(monkeypatch: pytest.MonkeyPatch) -> None:
    async def defect(*_: object) -> bytes:
        raise ZeroDivisionError

    monkeypatch.setitem(COMMANDS, "peek", cast("Handler", defect))
    assert peers.Front(MemoryBroker()).worker().ask(b"peek 1\r\n") == b"INTERNAL_ERROR\r\n"


# Operators.


@logs("admin-error")
def test_a_defect_of_the_admin_interface(monkeypatch: pytest.MonkeyPatch, lines: LogLines) -> None:
    def defect(*_: object) -> None:
        raise ZeroDivisionError

    route = ROUTES["/api/v1/durables"]["GET"]._replace(call=defect)
    monkeypatch.setitem(ROUTES["/api/v1/durables"], "GET", route)
    transport = admin_connection(MemoryBroker())
    transport.deliver(b"GET /api/v1/durables HTTP/1.1\r\nhost: localhost\r\n\r\n")
    assert transport.take().startswith(b"HTTP/1.1 500 ")
    [event] = lines.events("admin-error")
    assert "ZeroDivisionError" in event["traceback"]


@logs("change-refused", "refusals-omitted")
def test_changes_that_are_refused(lines: LogLines) -> None:
    """A reader is not trusted with the size of the log."""
    broker = MemoryBroker()
    transport = admin_connection(broker, read_token=b"a-token-of-readers")
    for _ in range(3 * MOST_PER_S):
        transport.deliver(
            b"POST /api/v1/purge HTTP/1.1\r\nhost: localhost\r\ncontent-length: 2\r\n"
            b"authorization: Bearer a-token-of-readers\r\n\r\n{}"
        )
        assert transport.take().startswith(b"HTTP/1.1 403 ")
    broker.clock.advance(1.0)
    logged = lines.events("change-refused")
    assert len(logged) == MOST_PER_S
    assert (logged[0]["operation"], logged[0]["code"]) == ("purge", "read-only")
    [omitted] = lines.events("refusals-omitted")
    assert omitted["count"] == 2 * MOST_PER_S


@logs("token-refused")
def test_a_wrong_token_is_logged_and_locks_out_nobody(lines: LogLines) -> None:
    broker = MemoryBroker()
    transport = admin_connection(broker, read_token=b"a-token-of-readers")

    def status(token: str) -> str:
        transport.deliver(
            b"GET /api/v1/me HTTP/1.1\r\nhost: localhost\r\n"
            b"authorization: Bearer %b\r\n\r\n" % token.encode()
        )
        broker.clock.advance(1.0)
        return transport.take().split(b" ", 2)[1].decode()

    most = ThrottleSettings().wrong_passcodes
    assert {status(f"another-wrong-token-{number}") for number in range(2 * most)} == {"401"}
    assert {status(each) for each in ("the-token-of-operators", "a-token-of-readers")} == {"200"}
    logged = lines.events("token-refused")
    assert len(logged) == 2 * most
    assert "another" not in lines.stream.getvalue()


# Logins.


class Broken:
    """A checker with a defect."""

    credentialInterfaces = (IUsernamePassword,)

    def requestAvatarId(self, credentials: object) -> Deferred[bytes]:
        """Fail in an unforeseen way."""
        raise ZeroDivisionError("sesame")


class Late:
    """A decider that fails before it has decided."""

    def decide(self, credentials: Credentials, answer: Callable[[Decided], None]) -> None:
        """Fail in an unforeseen way."""
        raise ZeroDivisionError


class Denying:
    """A decider that refuses everybody."""

    def decide(self, credentials: Credentials, answer: Callable[[Decided], None]) -> None:
        """Refuse."""
        answer(Decided(None))


ANN = Credentials("ann", "sesame", "", "192.0.2.7")


@logs("login-check-failed", "login-error", "login-repeated", "logins-limited")
def test_logins_that_cannot_be_checked(lines: LogLines) -> None:
    answers: list[User | None] = []
    CredAuthenticator([cast("Any", Broken())]).authenticate(ANN, answers.append)
    for decider in (Late(), Denying()):
        clock = cast("DomainClock", Clock())
        limiter = LoginLimiter(ThrottleSettings(wrong_passcodes=1))
        authenticator = LimitedAuthenticator(decider, limiter, clock, login_timeout_s=10)
        for passcode in ("a", "a", "b", "c"):
            authenticator.authenticate(ANN._replace(passcode=passcode), answers.append)
    assert not any(answers)
    [failed] = lines.events("login-check-failed")
    assert failed["error"] == "ZeroDivisionError"
    assert "sesame" not in lines.stream.getvalue()


@logs("passcode-checks-busy")
@in_reactor
async def test_too_many_logins(tmp_path: Path) -> None:
    users = tmp_path / "users"
    users.write_text(f"ann:{hash_passcode('sesame', Cost(log2_n=1, r=1, p=1))}\n")
    waiting: list[Deferred[bytes]] = []

    def compute(work: object) -> Deferred[bytes]:
        waiting.append(Deferred())
        return waiting[-1]

    checker = HashedPasswordFile(users, max_concurrent=1, max_waiting=1, compute=compute)
    authenticator = CredAuthenticator([checker])
    for _ in range(3):
        authenticator.authenticate(ANN, lambda _: None)
    while waiting:
        waiting.pop().callback(b"")


@logs("scrypt-without-process")
@in_reactor
async def test_no_process_for_scrypt(monkeypatch: pytest.MonkeyPatch) -> None:
    work = scrypt.Scrypt(b"sesame", b"salt", 1, 1, 1, 32)
    scrypt.end_all()
    with monkeypatch.context() as patch:
        patch.setattr(sys, "executable", "")
        assert await scrypt.compute_beside(work) == work()


@logs("login-service-failed", "login-service-recovered", "question-not-utf8")
@in_reactor
async def test_an_http_service(lines: LogLines) -> None:
    running = await started()
    authenticator = HttpAuthenticator(running.settings())
    running.service.status = 500
    assert await logs_in(authenticator, ANN) is None
    running.service.status = 200
    assert await logs_in(authenticator, ANN) is not None
    assert await logs_in(authenticator, ANN._replace(login="\udcff")) is None
    await ended(running, authenticator)
    [failed] = lines.events("login-service-failed")
    assert failed["url"] == running.url


# The system's time.


@logs("time-changed")
def test_the_system_time_is_set(lines: LogLines) -> None:
    clock = SystemClock()
    MemoryBroker(clock=clock).client().publish("/queue/a", b"x", delay="5000")
    clock.ahead -= 3600.0
    clock.advance(2.0)
    [changed] = lines.events("time-changed")
    assert changed["seconds"] == -3600.0


# All of them.


def test_every_event_is_caused_by_a_test() -> None:
    # The first is from MariaDB and MySQL only, see tests/server/stores/test_sqlalchemy.py; the
    # second depends on the installation, see check_process. Those of leases are caused in
    # tests/server/process/test_lease_brokers.py.
    leases = {name.replace("_", "-") for name in lease_events.__all__}
    elsewhere = {"store-without-sync", "not-compiled", *leases}
    assert EVENTS.keys() == DRIVEN.keys() | elsewhere


def test_every_field_is_described_and_used() -> None:
    used = {field for event in EVENTS.values() for field in event.fields}
    assert used | {"logger", "traceback"} == FIELDS.keys()


def test_the_page_and_the_schema_are_current() -> None:
    assert make_log_events.main(["--check"]) == 0


def test_no_module_of_the_broker_logs_anything_else() -> None:
    """Events have a name and a place in the documentation only if they are of these kinds."""
    package = Path(stompkit.server.__file__).parent
    own = package / "log" / "event.py"
    for path in package.rglob("*.py"):
        if path != own:
            tree = ast.parse(path.read_text(encoding="utf-8"))
            names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
            assert not names & {"Logger", "getLogger"}, path


@pytest.mark.parametrize(
    ("address", "text"),
    [
        (IPv4Address("TCP", "192.0.2.7", 1), "192.0.2.7:1"),
        (IPv6Address("TCP", "2001:db8::7", 1), "[2001:db8::7]:1"),
        (UNIXAddress(b"/run/a.sock"), "unix:/run/a.sock"),
        (UNIXAddress(None), "unix"),
        (None, ""),
    ],
)
def test_addresses_are_readable(address: object, text: str) -> None:
    assert address_text(address) == text
