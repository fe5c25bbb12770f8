"""``twist stompkit`` and ``twistd stompkit``: options, and the service as a real process."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from twisted.application.service import IServiceMaker
from twisted.plugin import getPlugins
from twisted.python.usage import UsageError

from stompkit.frames import AFTER_LOGIN
from stompkit.server import BrokerConfig
from stompkit.server.process.lifecycle import Lifecycle
from stompkit.server.process.reload import Reloader
from stompkit.server.settings.process import Settings
from stompkit.server.tap import Options, makeService
from tests.server.processes import (
    CONNECT,
    LOOPBACK,
    TWIST,
    TWISTD,
    Client,
    Start,
    announced,
    processes,
    talk,
    tcp,
)

OPTIONS = (
    "announce=",
    "anonymous ",
    "auth=",
    "config=",
    "data=",
    "endpoint=",
    "heart-beat=",
    "help-auth ",
    "lock-timeout=",
    "log-format=",
    "log-frames ",
    "max-body=",
    "max-connections=",
    "prefetch=",
    "sync=",
)
CHECKERS = ("memory:a:b", "memory:c:d")


def parsed(*arguments: str) -> Options:
    options = Options()
    options.parseOptions(list(arguments))  # type: ignore[no-untyped-call]  # Twisted's
    return options


# Options.


def test_without_options_it_is_the_default_broker_on_loopback() -> None:
    options = parsed()
    assert options["settings"] == Settings()
    assert options["settings"].descriptions == ["tcp:61613:interface=127.0.0.1"]
    assert options["announce"] is None


def test_endpoints_can_be_repeated_and_replace_the_default() -> None:
    options = parsed("--endpoint", "tcp:1", "--endpoint", "unix:/tmp/x")
    assert options["settings"].descriptions == ["tcp:1", "unix:/tmp/x"]


@pytest.mark.parametrize(
    ("arguments", "field", "value"),
    [
        (["--heart-beat", "0,0"], "heart_beat_ms", (0, 0)),
        (["--heart-beat", "500,10000"], "heart_beat_ms", (500, 10_000)),
        (["--max-connections", "1"], "max_connections", 1),
        (["--prefetch", "7"], "prefetch", 7),
    ],
)
def test_an_option_sets_its_field_and_no_other(
    arguments: list[str], field: str, value: object
) -> None:
    config = parsed(*arguments)["settings"].config
    assert getattr(config, field) == value
    assert {name for name in BrokerConfig.__struct_fields__ if differs(config, name)} == {field}


def differs(config: BrokerConfig, name: str) -> bool:
    return bool(getattr(config, name) != getattr(BrokerConfig(), name))


@pytest.mark.parametrize("size", [1, 1_000_000_000])
def test_max_body_leaves_room_for_the_headers(size: int) -> None:
    limits = parsed("--max-body", str(size))["settings"].broker.limits
    assert limits.max_body_bytes == size
    room = AFTER_LOGIN.max_frame_bytes - AFTER_LOGIN.max_body_bytes
    assert limits.max_frame_bytes == size + room
    assert limits.max_headers == AFTER_LOGIN.max_headers


@pytest.mark.parametrize("value", ["", "0", "-1", "1.5", "many", "1e3", "0x10"])
@pytest.mark.parametrize("name", ["max-connections", "max-body", "prefetch"])
def test_a_number_that_is_none_is_a_usage_error_that_names_the_option(
    name: str, value: str
) -> None:
    with pytest.raises(UsageError) as caught:
        parsed(f"--{name}={value}")
    assert f"--{name}" in str(caught.value)
    assert repr(value) in str(caught.value)


@pytest.mark.parametrize("value", ["", "1000", "1000,", "-1,0", "a,b", "1,2,3", "1.5,0"])
def test_a_bad_heart_beat_is_a_usage_error_that_names_the_option(value: str) -> None:
    with pytest.raises(UsageError, match="--heart-beat"):
        parsed(f"--heart-beat={value}")


@pytest.mark.parametrize("arguments", [["--nonsense"], ["stray"], ["--announce"]])
def test_what_is_no_option_is_a_usage_error(arguments: list[str]) -> None:
    with pytest.raises(UsageError):
        parsed(*arguments)


@pytest.mark.parametrize(
    ("arguments", "table", "field", "value"),
    [
        (["--data", "/d"], "store", "path", "/d"),
        (["--data", "/d"], "store", "kind", "lmdb"),
        (["--sync", "interval:5"], "store", "sync", "interval:5"),
        (["--data", "/d", "--lock-timeout", "1.5"], "store", "lock_timeout_s", 1.5),
        (["--data", "/d", "--lock-timeout", "0"], "store", "lock_timeout_s", 0.0),
        (["--auth", "memory:a:b", "--auth", "memory:c:d"], "auth", "checkers", CHECKERS),
        (["--anonymous"], "auth", "anonymous", True),
        (["--log-format", "json"], "log", "format", "json"),
        (["--log-frames"], "log", "frames", True),
    ],
)
def test_an_option_stands_for_a_setting(
    arguments: list[str], table: str, field: str, value: object
) -> None:
    assert getattr(getattr(parsed(*arguments)["settings"], table), field) == value


def test_the_command_line_stands_over_the_file(tmp_path: Path) -> None:
    path = tmp_path / "f.toml"
    path.write_text(
        '[broker]\nprefetch = 1\nmax_connections = 2\n[[listen]]\nendpoint = "tcp:1"\n'
        '[store]\npath = "/d"\nsync = "never"\n[auth]\nanonymous = true'
    )
    assert parsed("--config", str(path))["settings"].broker.prefetch == 1
    arguments = ["--prefetch=3", "--endpoint=tcp:4", "--data=/e", "--auth=memory:a:b"]
    settings = parsed("--config", str(path), *arguments)["settings"]
    assert settings.broker == BrokerConfig(prefetch=3, max_connections=2)
    assert settings.descriptions == ["tcp:4"]
    assert (settings.store.path, settings.store.sync) == ("/e", "never")
    assert (settings.auth.checkers, settings.auth.anonymous) == (("memory:a:b",), True)


def test_a_file_with_mistakes_is_told_with_all_of_them(tmp_path: Path) -> None:
    path = tmp_path / "f.toml"
    path.write_text("[broker]\nprefetch = 0\n[brokr]")
    with pytest.raises(SystemExit) as caught:
        parsed("--config", str(path))
    assert str(caught.value).splitlines() == [
        f"{path}, line 2: [broker] prefetch: must be a whole number of 1 or more, not 0",
        f"{path}, line 3: [brokr]: unknown; did you mean broker?",
    ]


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--sync=sometimes"], "--sync must be"),
        (["--lock-timeout=1"], "[store] lock_timeout_s: needs path"),
        (["--lock-timeout=-1"], "--lock-timeout takes a number of seconds, 0 or more, not '-1'"),
        (["--lock-timeout=inf"], "--lock-timeout takes a number of seconds, 0 or more, not 'inf'"),
        (["--lock-timeout=soon"], "--lock-timeout takes a number of seconds"),
        (["--data="], "--data takes a directory"),
        (["--log-format=xml"], "--log-format takes text or json, not 'xml'"),
        (["--endpoint=nonsense:1"], "--endpoint: cannot listen on nonsense:1"),
        (["--endpoint=tcp:notaport"], "--endpoint: cannot listen on tcp:notaport"),
        (["--auth=ldap:x"], "--auth: there is no kind 'ldap' of authentication"),
        (["--auth=file:/nonexistent"], "--auth: authentication by file: /nonexistent: No such"),
    ],
)
def test_a_value_that_is_none_is_a_usage_error_that_says_why(
    arguments: list[str], problem: str
) -> None:
    with pytest.raises(UsageError) as caught:
        parsed(*arguments)
    assert problem in str(caught.value)


def test_a_service_that_was_never_started_can_be_stopped(tmp_path: Path) -> None:
    service = makeService(parsed("--data", str(tmp_path / "data")))
    ended: list[object] = []
    service.stopService().addBoth(ended.append)
    service.stopService().addBoth(ended.append)
    assert ended == [None, None]
    assert not (tmp_path / "data").exists()


def test_a_handler_of_sighup_that_the_program_has_set_meanwhile_stays() -> None:
    options = parsed()
    reloader = Reloader(Lifecycle(options["settings"], None), None, {}, options["log"])
    before = signal.getsignal(signal.SIGHUP)
    try:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        reloader.install()
        assert signal.getsignal(signal.SIGHUP) is not signal.SIG_DFL
        reloader.remove()
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_DFL
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        reloader.install()
        reloader.remove()
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_the_service_is_made_of_the_options() -> None:
    service = makeService(parsed("--prefetch", "3"))
    assert service.factory.broker.config.prefetch == 3
    assert not service.running


def test_the_plug_in_is_found() -> None:
    [maker] = [maker for maker in getPlugins(IServiceMaker) if maker.tapname == "stompkit"]
    assert maker.options is Options
    assert maker.makeService is makeService


# Processes.


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts commands, and ends all that still run."""
    with processes(tmp_path) as start:
        yield start


@pytest.mark.parametrize("command", [TWIST, TWISTD], ids=["twist", "twistd"])
def test_it_serves_announces_and_stops(start: Start, tmp_path: Path, command: list[str]) -> None:
    announce = tmp_path / "announce"
    endpoint = "tcp:0:interface=127.0.0.1"
    process = start(command, "--endpoint", endpoint, "--announce", str(announce))
    process.wait_until(announce.exists)
    text = announce.read_text(encoding="utf-8")
    assert text.endswith("\n")
    announced = json.loads(text)
    assert announced["pid"] == process.popen.pid
    [where] = announced["endpoints"]
    assert where["host"] == "127.0.0.1"
    assert where["port"] > 0
    answer = talk(tcp(where), CONNECT + b"DISCONNECT\nreceipt:r\n\n\0")
    assert answer.startswith(b"CONNECTED\n")
    assert answer.endswith(b"RECEIPT\nreceipt-id:r\n\n\0\n")
    assert "listening on" in process.log
    assert process.terminate() in (0, -signal.SIGTERM)
    assert not announce.exists()
    assert [path.name for path in tmp_path.iterdir() if "announce" in path.name] == []
    assert "Traceback" not in process.log


def test_it_listens_on_several_endpoints(start: Start, tmp_path: Path) -> None:
    announce, path = tmp_path / "announce", tmp_path / "socket"
    endpoints = ["tcp:0:interface=127.0.0.1", "tcp:0:interface=127.0.0.1", f"unix:{path}"]
    arguments = [word for endpoint in endpoints for word in ("--endpoint", endpoint)]
    process = start(TWIST, *arguments, "--announce", str(announce))
    process.wait_until(announce.exists)
    first, second, third = json.loads(announce.read_text(encoding="utf-8"))["endpoints"]
    assert first["port"] != second["port"]
    assert third == {"path": str(path)}
    unix = socket.socket(socket.AF_UNIX)
    unix.connect(str(path))
    talk(tcp(first), CONNECT + b"SEND\ndestination:/queue/a\n\nhello\0DISCONNECT\n\n\0")
    subscribe = b"SUBSCRIBE\nid:1\ndestination:/queue/a\n\n\0"
    with tcp(second) as client:
        client.sendall(CONNECT + subscribe)
        received = b""
        while b"hello" not in received:
            received += client.recv(65_536)
    assert talk(unix, CONNECT + b"nonsense\n\n\0").count(b"\0") == 2
    process.terminate()
    assert "Traceback" not in process.log


def test_without_announce_no_file_is_written(start: Start, tmp_path: Path) -> None:
    path = tmp_path / "socket"
    process = start(TWIST, "--endpoint", f"unix:{path}")
    process.wait_until(lambda: "listening on" in process.log)
    before = {entry.name for entry in tmp_path.iterdir()}
    client = socket.socket(socket.AF_UNIX)
    client.connect(str(path))
    assert talk(client, CONNECT + b"DISCONNECT\n\n\0").startswith(b"CONNECTED\n")
    assert {entry.name for entry in tmp_path.iterdir()} == before
    process.terminate()
    assert "Traceback" not in process.log


def test_stop_tells_clients_why_and_closes(start: Start, tmp_path: Path) -> None:
    process = start(TWIST, "--endpoint", LOOPBACK, "--announce", str(tmp_path / "announce"))
    [where] = announced(process, tmp_path / "announce")
    with Client(where) as client:
        process.terminate()
        last = client.receive()
        assert last.startswith(b"ERROR\n")
        assert b"stompkit-code:shutting-down\n" in last
        assert client.receive() == b""
    assert "Traceback" not in process.log


@pytest.mark.parametrize("command", [TWIST, TWISTD], ids=["twist", "twistd"])
def test_a_port_in_use_ends_the_start_and_is_told(
    start: Start, tmp_path: Path, command: list[str]
) -> None:
    announce = tmp_path / "announce"
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        endpoint = f"tcp:{port}:interface=127.0.0.1"
        process = start(command, "--endpoint", endpoint, "--announce", str(announce))
        assert process.ended() == 1
    assert f"cannot listen on {endpoint}" in process.log
    assert "in use" in process.log
    assert "Traceback" not in process.log
    assert not announce.exists()


@pytest.mark.parametrize("endpoint", ["nonsense", "nonsense:1", "tcp:notaport", "tcp:0:bad=1"])
def test_a_bad_endpoint_ends_the_start_and_is_told(start: Start, endpoint: str) -> None:
    process = start(TWIST, "--endpoint", endpoint)
    assert process.ended() not in (0, None)
    assert f"cannot listen on {endpoint}" in process.log
    assert "Traceback" not in process.log


def test_an_announce_file_that_cannot_be_written_ends_the_start_and_is_told(
    start: Start, tmp_path: Path
) -> None:
    announce = tmp_path / "missing" / "announce"
    endpoint = "tcp:0:interface=127.0.0.1"
    process = start(TWIST, "--endpoint", endpoint, "--announce", str(announce))
    assert process.ended() == 1
    assert f"cannot write the announce file {announce}: {os.strerror(2)}" in process.log
    assert "Traceback" not in process.log


@pytest.mark.parametrize("command", [TWIST, TWISTD], ids=["twist", "twistd"])
def test_a_mistake_in_the_options_ends_the_start_and_is_told(
    start: Start, command: list[str]
) -> None:
    process = start(command, "--max-body", "none")
    assert process.ended() not in (0, None)
    assert "--max-body takes a positive whole number, not 'none'" in process.log
    assert "Traceback" not in process.log


@pytest.mark.parametrize("command", [TWIST, TWISTD], ids=["twist", "twistd"])
def test_help_tells_every_option_and_its_default(start: Start, command: list[str]) -> None:
    process = start(command, "--help")
    assert process.ended() == 0
    text = " ".join(process.log.split())
    for option in OPTIONS:
        assert f"--{option}" in text
    for default in ("tcp:61613:interface=127.0.0.1", "1000,1000", "10000", "67108864", "100"):
        assert f"[default: {default}]" in text
    assert "/queue/NAME" in text


#: An endpoint that succeeds or fails to listen after a delay.
LATE_PLUG_IN = """
from twisted.internet import endpoints, interfaces, reactor, task
from twisted.plugin import IPlugin
from zope.interface import implementer

@implementer(interfaces.IStreamServerEndpoint)
class Late:
    def __init__(self, word):
        self.word = word
    async def start(self, factory):
        await task.deferLater(reactor, 0)
        if self.word == "never":
            raise OSError("too late")
        endpoint = endpoints.serverFromString(reactor, "tcp:0:interface=127.0.0.1")
        return await endpoint.listen(factory)
    def listen(self, factory):
        from twisted.internet.defer import Deferred
        return Deferred.fromCoroutine(self.start(factory))

@implementer(IPlugin, interfaces.IStreamServerEndpointStringParser)
class Parser:
    prefix = "late"
    def parseStreamServer(self, reactor, word):
        return Late(word)

parser = Parser()
"""


@pytest.fixture
def late(tmp_path: Path) -> str:
    """A directory with the plug-in."""
    plug_ins = tmp_path / "path" / "twisted" / "plugins"
    plug_ins.mkdir(parents=True)
    (plug_ins / "late.py").write_text(LATE_PLUG_IN, encoding="utf-8")
    return str(tmp_path / "path")


@pytest.mark.parametrize("command", [TWIST, TWISTD], ids=["twist", "twistd"])
def test_an_endpoint_that_fails_later_ends_the_process_and_is_told(
    start: Start, late: str, command: list[str]
) -> None:
    process = start(command, "--endpoint", "late:never", path=late)
    assert process.ended() == 1
    assert "cannot listen on late:never: too late" in process.log


@pytest.mark.parametrize("command", [TWIST, TWISTD], ids=["twist", "twistd"])
def test_an_endpoint_that_listens_later_is_used_once(
    start: Start, late: str, tmp_path: Path, command: list[str]
) -> None:
    announce = tmp_path / "announce"
    process = start(command, "--endpoint", "late:soon", "--announce", str(announce), path=late)
    process.wait_until(announce.exists)
    [where] = json.loads(announce.read_text(encoding="utf-8"))["endpoints"]
    assert talk(tcp(where), CONNECT + b"DISCONNECT\n\n\0")
    process.terminate()
    assert len(re.findall("listening on", process.log)) == 1
