"""The command ``stompkit spool``."""

from __future__ import annotations

import json
import os
import pty
import re
import resource
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any
from urllib.request import urlopen

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from stompkit._commands.spool.command import main
from stompkit._commands.spool.maintenance import Maintenance
from stompkit._commands.spool.metrics import Appends, SpoolMetrics
from stompkit._commands.spool.options import SpoolUsageError, age, brokers, size
from stompkit._common.metrics import Address
from stompkit.replication.model.frames import Packet
from stompkit.spool import Record, ServerAccess, SpoolReader, SpoolWriter
from stompkit.spool.readers import listed, progress, register
from stompkit.spool.serving.server import spool_server
from stompkit.testing import LaunchConfig, RunningBroker, launch
from stompkit.testing.launching.polling import wait_until
from tests.namespaces import unshared
from tests.replication.brokers import broker_url, connect

LONG_S = 60.0
RECEIVED_S = 1_700_000_000.0
PROGRAM = (
    "import sys; from stompkit._commands.spool.command import main; sys.exit(main(sys.argv[1:]))"
)

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """A function that runs the command here; it returns its status, output and errors."""

    def run(*arguments: object) -> tuple[int, str, str]:
        try:
            status = main([*map(str, arguments)])
        except SystemExit as error:
            status = int(error.code or 0)
        output = capsys.readouterr()
        return status, output.out, output.err

    return run


def record(number: int, body: bytes | None = None) -> Record:
    return Record(
        int(RECEIVED_S * 1e6) + number,
        "/queue/a",
        f"m{number}",
        f"e{number}",
        "text/plain",
        (("content-type", "text/plain"), ("event-id", f"e{number}")),
        f"body {number}".encode() if body is None else body,
    )


@pytest.fixture
def spool(tmp_path: Path) -> Path:
    """A spool with messages 0 to 9, in several segments of 3."""
    folder = tmp_path / "spool"
    with SpoolWriter(folder, segment_bytes=1) as writer:
        for first in (0, 3, 6):
            writer.append([record(number) for number in range(first, first + 3)])
        writer.append([record(9)])
    return folder


# The command line.


def test_ages_and_sizes_are_read() -> None:
    assert [age(text) for text in ("90s", "1.5m", "12h", "7d", "2w")] == [
        90,
        90,
        43_200,
        604_800,
        1_209_600,
    ]
    assert [size(text) for text in ("500", "2 kB", "200MB", "1.5KiB", "10GiB", "1t")] == [
        500,
        2000,
        200_000_000,
        1536,
        10 * 1024**3,
        10**12,
    ]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ((), "DIR"),
        (("spool",), "--from"),
        (("spool", "--from", "http://mq/queue/a"), "URL of a broker"),
        (("spool", "--from", "stomp://me:s3cr3t@mq"), "names no destination"),
        (("spool", "--from", "stomp://mq/queue/a", "--from", "stomp://mq/queue/a"), "twice"),
        (("spool", "--from", "stomp://mq/queue/a", "--durable", "d"), "is for topics"),
        (("spool", "--from", "stomp://mq/queue/a", "--retain-age", "7"), "such as 7d"),
        (("spool", "--from", "stomp://mq/queue/a", "--retain-bytes", "much"), "a size in bytes"),
        (("spool", "--from", "stomp://mq/queue/a", "--partitions", "0"), "1 or more"),
        (("spool", "--from", "stomp://mq/queue/a", "--serve", "7"), "--token-file is missing"),
        (("spool", "--from", "stomp://mq/queue/a", "--serve", "mq:x"), "HOST:PORT"),
        (("spool", "--from", "stomp://mq/queue/a", "--token-file", "t"), "are for --serve"),
        (("spool", "--from", "env:STOMPKIT_NOT_THERE"), "no STOMPKIT_NOT_THERE"),
        (("spool", "--from", "file:/nowhere/at/all"), "No such file"),
    ],
)
def test_a_command_line_that_is_wrong_is_told_in_words(
    run: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    complaint: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    status, _, errors = run("run", *arguments)
    assert status == 2
    assert complaint in errors
    assert "s3cr3t" not in errors
    assert not (tmp_path / "spool").exists()


def test_urls_can_be_kept_off_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "url").write_text("stomp://me:s3cr3t@mq:1/queue/a\nmore\n")
    monkeypatch.setenv("SHOP_URL", "stomp://me:s3cr3t@mq:1/queue/b")
    found = brokers([f"file:{tmp_path}/url", "env:SHOP_URL", "stomp://other/topic/c"])
    assert [destinations for destinations in found.values()] == [
        ["/queue/a", "/queue/b"],
        ["/topic/c"],
    ]
    assert "s3cr3t" not in str(found)
    with pytest.raises(SpoolUsageError):
        brokers(["stomp://mq"])


@pytest.mark.parametrize("command", ["", "run", "status", "readers", "show", "verify"])
def test_each_command_explains_itself(run: Run, command: str) -> None:
    status, output, _ = run(*filter(None, [command]), "--help")
    assert status == 0
    assert "usage: stompkit spool" in output


# Listing a spool.


def test_status_tells_what_is_there(run: Run, spool: Path) -> None:
    register(spool, "shop", (4,), clock=lambda: RECEIVED_S)
    status, output, _ = run("status", spool)
    assert status == 0
    assert "nobody receives" in output
    assert re.search(r"^  10 messages, 0\.0 MiB$", output, re.MULTILINE)
    assert re.search(r"^  0 +0 +10 +0\.0 +\d+ d.* ago$", output, re.MULTILINE)
    assert re.search(r"^  shop +6 messages +\d+ d.* 2023-11-14 22:13:20$", output, re.MULTILINE)
    told = json.loads(run("status", spool, "--json")[1])
    assert told["id"] == SpoolReader(spool).id
    assert (told["messages"], told["is_receiving"]) == (10, False)
    [partition] = told["partitions"]
    assert (partition["floor"], partition["head"]) == (0, 10)
    assert partition["oldest_s"] == RECEIVED_S
    assert partition["octets"] == told["octets"] > 0
    [reader] = told["readers"]
    assert (reader["name"], reader["positions"], reader["lag_messages"]) == ("shop", [4], 6)
    assert reader["lag_s"] == pytest.approx(time.time() - RECEIVED_S, abs=LONG_S)


def test_status_tells_whether_somebody_receives(run: Run, spool: Path) -> None:
    with SpoolWriter(spool):
        assert "a process receives" in run("status", spool)[1]
    assert "nobody receives" in run("status", spool)[1]


def test_an_empty_spool_is_told_of(run: Run, tmp_path: Path) -> None:
    SpoolWriter(tmp_path / "empty", partitions=2).close()
    status, output, _ = run("status", tmp_path / "empty")
    assert status == 0
    assert "0 messages" in output
    assert "no reader is registered" in output
    assert run("show", tmp_path / "empty") == (0, "", "")
    assert run("verify", tmp_path / "empty")[0] == 0


@pytest.mark.parametrize("command", ["status", "readers", "show", "verify"])
def test_where_there_is_no_spool_that_is_told(run: Run, tmp_path: Path, command: str) -> None:
    status, output, errors = run(command, tmp_path / "nothing")
    assert (status, output) == (1, "")
    assert "there is no spool in" in errors


def test_readers_are_listed_and_forgotten(run: Run, spool: Path) -> None:
    register(spool, "shop", (10,))
    register(spool, "old", (1,))
    told = json.loads(run("readers", spool, "--json")[1])
    assert [(each["name"], each["lag_messages"]) for each in told] == [("old", 9), ("shop", 0)]
    status, output, _ = run("readers", spool, "--forget", "old")
    assert (status, output) == (0, "old: forgotten\n")
    assert list(listed(spool)) == ["shop"]
    status, _, errors = run("readers", spool, "--forget", "old")
    assert status == 2
    assert "there are: shop" in errors
    assert "shop" in run("readers", spool)[1]


def test_messages_are_shown(run: Run, spool: Path) -> None:
    status, output, _ = run("show", spool, "--from", 4, "--to", 6)
    assert status == 0
    assert output == (
        "0:4  2023-11-14 22:13:20.000  /queue/a  e4\n"
        "  content-type:text/plain\n  event-id:e4\n  body 4\n\n"
        "0:5  2023-11-14 22:13:20.000  /queue/a  e5\n"
        "  content-type:text/plain\n  event-id:e5\n  body 5\n\n"
    )
    lines = run("show", spool, "--json")[1].splitlines()
    assert [json.loads(line)["ordinal"] for line in lines] == list(range(10))
    first = json.loads(lines[0])
    assert first == {
        "partition": 0,
        "ordinal": 0,
        "received": "2023-11-14T22:13:20Z",
        "destination": "/queue/a",
        "message_id": "m0",
        "event_id": "e0",
        "content_type": "text/plain",
        "headers": {"content-type": "text/plain", "event-id": "e0"},
        "body": "body 0",
    }
    assert run("show", spool, "--partition", 1)[0] == 2


def test_what_is_shown_can_not_command_a_terminal(run: Run, tmp_path: Path) -> None:
    with SpoolWriter(tmp_path / "spool") as writer:
        writer.append([record(0, b"\x1b[2Jgone"), record(1, b"\xff\xfe" * 100)])
    output = run("show", tmp_path / "spool")[1]
    assert "\\u001b[2Jgone" in output
    assert "\x1b" not in output
    assert "200 octets: fffefffe" in output
    told = [json.loads(line) for line in run("show", tmp_path / "spool", "--json")[1].splitlines()]
    assert told[0]["body"] == "\x1b[2Jgone"
    assert told[1]["body_base64"].startswith("//7//")


def test_damage_is_found(run: Run, spool: Path) -> None:
    assert run("verify", spool) == (0, f"{spool}: 10 messages: OK\n", "")
    path = sorted((spool / "p0").glob("*.log"))[1]
    octets = bytearray(path.read_bytes())
    octets[-20] ^= 1
    path.write_bytes(octets)
    status, output, _ = run("verify", spool)
    assert status == 1
    assert f"partition 0: ordinals 3 to 5: {path} is damaged at octet 0" in output


@pytest.mark.parametrize("segment_bytes", [1, 1 << 20])
def test_all_damage_is_found(run: Run, tmp_path: Path, segment_bytes: int) -> None:
    """Blocks are in separate segments, and in one."""
    folder = tmp_path / "spool"
    with SpoolWriter(folder, segment_bytes=segment_bytes) as writer:
        for first in range(0, 15, 3):
            marked = (
                record(number, f"body of {number}.".encode()) for number in range(first, first + 3)
            )
            writer.append(list(marked))
    for path in (folder / "p0").glob("*.log"):
        octets = path.read_bytes()
        for number in (4, 10, 13):
            octets = octets.replace(f"body of {number}.".encode(), f"BODY of {number}.".encode())
        path.write_bytes(octets)
    status, output, _ = run("verify", folder)
    assert status == 1
    assert re.findall(r"partition 0: ordinals (\d+) to (\d+): .* is damaged", output) == [
        ("3", "5"),
        ("9", "11"),
        ("12", "14"),
    ]


# Receiving.


@contextmanager
def running(*arguments: object, **more: Any) -> Iterator[subprocess.Popen[bytes]]:
    """Run the command in a child process."""
    command = [sys.executable, "-c", PROGRAM, "run", *map(str, arguments)]
    with subprocess.Popen(command, **{"stderr": subprocess.PIPE, **more}) as process:
        try:
            yield process
        finally:
            process.kill()


def ended(process: subprocess.Popen[bytes], number: int = signal.SIGTERM) -> tuple[int, str]:
    """Terminate it; return its status and its standard error."""
    process.send_signal(number)
    errors = process.communicate(timeout=LONG_S)[1]
    return process.returncode, (errors or b"").decode()


def modes(broker: RunningBroker) -> list[str]:
    """Return the options for the capabilities of a broker."""
    known = broker.capabilities
    found = [] if "ack" in known and "client-individual" in known else ["--no-ack"]
    return found if "receipt" in known else [*found, "--no-receipts"]


def publish(broker: RunningBroker, destination: str, numbers: range) -> None:
    with connect(broker, receipts="receipt" in broker.capabilities) as link:
        made = [Packet({"event-id": f"e{n}"}, f"{n}".encode().ljust(200)) for n in numbers]
        link.send(destination, made).result(LONG_S)


def count(folder: Path) -> int:
    return sum(SpoolReader(folder).head()) if (folder / "spool.json").exists() else 0


#: Copies a spool to a small file system, fills that, and runs a command.
FILLED = """
mount -t tmpfs -o size=1m full "$1" && cp -r "$2" "$1/spool" && {
  cat /dev/zero > "$1/rest" 2>/dev/null; shift 2; exec "$@"
}
"""


@pytest.mark.parametrize("retains", [True, False])
def test_it_starts_on_a_full_disk(
    tmp_path: Path,
    stomp_broker: RunningBroker,
    retains: bool,  # noqa: FBT001
) -> None:
    spool, disk = tmp_path / "spool", tmp_path / "disk"
    disk.mkdir()
    with SpoolWriter(spool, segment_bytes=1) as writer:
        for number in range(8):
            writer.append([record(number, bytes(100_000))])
    command = unshared("-rm", FILLED, str(disk), str(spool))
    command += [sys.executable, "-c", PROGRAM, "run", str(disk / "spool"), *modes(stomp_broker)]
    command += ["--from", broker_url(stomp_broker, stomp_broker.queue("full"))]
    command += ["--retain-bytes", "300000"] if retains else []
    with subprocess.Popen(command, stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        said: list[bytes] = []
        while not said or (b"connected" if retains else b"cannot be written") not in said[-1]:
            said.append(process.stderr.readline())
            assert said[-1], b"".join(said).decode()
        assert b"the spool cannot be written" in b"".join(said)
        assert ended(process)[0] == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_receives_until_a_signal_comes(
    run: Run, tmp_path: Path, stomp_broker: RunningBroker, number: int
) -> None:
    folder = tmp_path / "spool"
    queues = [stomp_broker.queue("one"), stomp_broker.queue("two")]
    sources = [part for each in queues for part in ("--from", broker_url(stomp_broker, each))]
    publish(stomp_broker, queues[0], range(100))
    publish(stomp_broker, queues[1], range(100, 150))
    with running(folder, *sources, *modes(stomp_broker), "--partitions", 2) as process:
        assert wait_until(lambda: count(folder) == 150, LONG_S)
        assert json.loads(run("status", folder, "--json")[1])["is_receiving"]
        status, errors = ended(process, number)
    assert status == 0
    assert "150 messages" in errors
    assert f"into {folder}" in errors
    assert SpoolReader(folder).partitions == 2
    lines = run("show", folder, "--json")[1].splitlines()
    assert sorted(int(json.loads(line)["body"]) for line in lines) == list(range(150))


def test_it_serves_readers_while_it_receives(tmp_path: Path, stomp_broker: RunningBroker) -> None:
    queue = stomp_broker.queue("served")
    token = tmp_path / "token"
    token.write_text("a-token-of-readers\n")
    arguments = ("--from", broker_url(stomp_broker, queue), *modes(stomp_broker))
    serving = ("--serve", "127.0.0.1:0", "--token-file", token)
    with running(tmp_path / "spool", *arguments, *serving) as process:
        assert process.stderr is not None
        url = next(
            found[1].decode()
            for line in process.stderr
            if (found := re.search(rb"serves readers at (http://\S+)", line))
        )
        reader = SpoolReader(url, access=ServerAccess("a-token-of-readers"))
        publish(stomp_broker, queue, range(50))
        assert wait_until(lambda: reader.head() == (50,), LONG_S)
        bodies = [int(each.body) for block in reader.blocks(0, 0, 50) for each in block.records()]
        assert ended(process)[0] == 0
    assert sorted(bodies) == list(range(50))


def test_a_spool_that_cannot_be_served_is_told(run: Run, spool: Path, tmp_path: Path) -> None:
    token = tmp_path / "token"
    status, _, errors = run("serve", spool, "--listen", "0")
    assert (status, "--token-file is missing" in errors) == (2, True)
    status, _, errors = run("serve", spool, "--listen", "0", "--token-file", token)
    assert (status, "the token file cannot be read" in errors) == (1, True)
    token.write_text("a-token-of-readers\n")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        status, _, errors = run("serve", spool, "--listen", port, "--token-file", token)
    assert (status, "something listens there already" in errors) == (1, True)
    status, _, errors = run("serve", tmp_path, "--listen", "0", "--token-file", token)
    assert (status, "there is no spool" in errors) == (1, True)


def test_spool_of_a_server_is_inspected(run: Run, spool: Path, tmp_path: Path) -> None:
    register(spool, "shop", (4,))
    token = tmp_path / "token"
    token.write_text("a-token-of-readers\n")
    local = {command: run(command, spool) for command in ("readers", "show", "verify")}
    status = json.loads(run("status", spool, "--json")[1])
    with spool_server(spool, Address("127.0.0.1", 0), token_file=token) as server:
        url = f"http://{server}"
        for command, (code, output, _) in local.items():
            found = run(command, url, "--token-file", token)
            # Times of inactivity grow meanwhile.
            assert found[0] == code, found
            assert found[1].split()[:4] == output.replace(str(spool), url).split()[:4]
        served = json.loads(run("status", url, "--token-file", token, "--json")[1])
        assert served.pop("is_receiving") is None
        assert served["id"] == status["id"]
        assert served["partitions"] == status["partitions"]
        assert [each["name"] for each in served["readers"]] == ["shop"]
        code, _, errors = run("status", url)
        assert (code, "--token-file is missing" in errors) == (2, True)
        code, _, errors = run("readers", url, "--token-file", token, "--forget", "shop")
        assert (code, "is a server, which only reads" in errors) == (2, True)
    code, _, errors = run("verify", url, "--token-file", token)
    assert (code, "127.0.0.1" in errors) == (1, True)
    code, _, errors = run("verify", spool, "--token-file", token)
    assert (code, "are for the URL of a server" in errors) == (2, True)


@pytest.mark.parametrize("url", ["s3://bucket/spool", "memory://spool", "file:///var/spool/shop"])
@pytest.mark.parametrize("command", ["status", "readers", "show", "verify"])
def test_url_that_is_no_spool_is_refused_with_what_to_do(run: Run, command: str, url: str) -> None:
    status, output, errors = run(command, url)
    assert (status, output) == (1, "")
    assert f"{url!r} is no spool: a spool is a folder on this machine" in errors
    assert "`stompkit spool serve`" in errors


def metrics_of(errors: IO[bytes]) -> Callable[[], dict[tuple[str, str], float]]:
    """Return a function that fetches the metrics at the address in the output."""
    for line in errors:
        if found := re.search(rb"metrics at (http://127\.0\.0\.1:\d+/metrics)", line):
            break
    else:
        pytest.fail("it does not say where")
    url = found[1].decode()

    def ask() -> dict[tuple[str, str], float]:
        with urlopen(url, timeout=LONG_S) as answer:
            text = answer.read().decode()
        families = text_string_to_metric_families(text)
        samples = [each for family in families for each in family.samples]
        return {(each.name, ",".join(each.labels.values())): each.value for each in samples}

    return ask


def test_metrics_tell_of_receiving_and_of_readers(
    tmp_path: Path, stomp_broker: RunningBroker
) -> None:
    folder = tmp_path / "spool"
    queue = stomp_broker.queue("metrics")
    publish(stomp_broker, queue, range(100))
    options = ["--from", broker_url(stomp_broker, queue), *modes(stomp_broker)]
    with running(folder, *options, "--metrics", "0") as process:
        assert process.stderr is not None
        ask = metrics_of(process.stderr)
        name = "stompkit_spool"
        assert wait_until(lambda: ask()[f"{name}_received_total", ""] == 100, LONG_S)
        publish(stomp_broker, queue, range(90, 110))
        assert wait_until(lambda: ask()[f"{name}_duplicates_total", ""] == 10, LONG_S)
        assert wait_until(lambda: ask()[f"{name}_received_total", ""] == 110, LONG_S)
        progress(folder, "shop", (40,))
        found = ask()
        assert ended(process)[0] == 0
    assert found[f"{name}_head", "0"] == 110
    assert found[f"{name}_floor", "0"] == 0
    assert found[f"{name}_octets", "0"] > 110 * 200
    assert found[f"{name}_reader_lag_messages", "shop"] == 70
    assert found[f"{name}_reader_lag_seconds", "shop"] > 0
    assert found[f"{name}_reader_lost_messages", "shop"] == 0
    assert found[f"{name}_brokers", ""] == found[f"{name}_connected", ""] == 1
    assert found[f"{name}_waiting", ""] == found[f"{name}_append_failures_total", ""] == 0
    groups = found[f"{name}_group_seconds_count", ""]
    assert 2 <= groups == found[f"{name}_group_seconds_bucket", "+Inf"]
    assert found[f"{name}_group_seconds_sum", ""] > 0


def test_metrics_count_what_could_not_be_written(spool: Path) -> None:
    with SpoolWriter(spool) as writer:
        appends = Appends(writer)
        registry = CollectorRegistry()
        registry.register(SpoolMetrics(spool, appends, list))
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
        try:
            with pytest.raises(OSError, match="File too large"):
                appends.append([record(10, bytes(200_000))])
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
            signal.signal(signal.SIGXFSZ, ignored)
        assert appends.append([record(10)]) == 1
    get = registry.get_sample_value
    assert get("stompkit_spool_append_failures_total") == 1
    assert get("stompkit_spool_group_seconds_count") == 1
    assert get("stompkit_spool_head", {"partition": "0"}) == 11


def test_metrics_that_can_not_be_served_say_what_to_do(
    run: Run, spool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ("run", spool, "--from", "stomp://mq.invalid/queue/a", "--metrics")
    assert "HOST:PORT" in run(*arguments, "nowhere")[2]
    with socket.create_server(("127.0.0.1", 0)) as taken:
        status, _, errors = run(*arguments, taken.getsockname()[1])
    assert status == 2
    assert "end that, or name another port" in errors
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    status, _, errors = run(*arguments, "0")
    assert status == 2
    assert "pip install 'stompkit[metrics]'" in errors


def test_two_brokers_share_a_spool(tmp_path: Path) -> None:
    folder = tmp_path / "spool"
    with launch(LaunchConfig()) as one, launch(LaunchConfig()) as other:
        publish(one, "/queue/a", range(50))
        publish(other, "/queue/a", range(50, 100))
        sources = [part for each in (one, other) for part in ("--from", f"{each.url}/queue/a")]
        with running(folder, *sources, "--ack", "client") as process:
            assert wait_until(lambda: count(folder) == 100, LONG_S)
            assert ended(process)[0] == 0
    found = [each for block in SpoolReader(folder).blocks(0, 0, 100) for each in block.records()]
    assert sorted(int(each.body) for each in found) == list(range(100))


def test_a_second_receiver_is_refused_and_told_of_the_first(
    run: Run, tmp_path: Path, stomp_broker: RunningBroker
) -> None:
    folder = tmp_path / "spool"
    url = broker_url(stomp_broker, stomp_broker.queue("one"))
    with running(folder, "--from", url, *modes(stomp_broker), "--quiet") as process:
        assert wait_until(lambda: (folder / "spool.json").exists(), LONG_S)
        status, _, errors = run("run", folder, "--from", url)
        assert status == 1
        assert f"is written to by process {process.pid} on " in errors
        assert "stompkit spool status" in errors
        assert ended(process) == (0, "")


def test_another_number_of_partitions_is_refused(run: Run, spool: Path) -> None:
    status, _, errors = run("run", spool, "--from", "stomp://mq/queue/a", "--partitions", 4)
    assert status == 2
    assert "has 1 partitions, not 4" in errors


def test_a_refused_login_is_told_without_the_passcode(run: Run, tmp_path: Path) -> None:
    with launch(LaunchConfig(login="me", passcode="right")) as broker:
        url = f"stomp://me:s3cr3t@{broker.host}:{broker.port}/queue/a"
        status, _, errors = run("run", tmp_path / "spool", "--from", url)
    assert status == 1
    assert "stompkit spool: " in errors
    assert "s3cr3t" not in errors


def test_a_terminal_has_one_line_that_changes(tmp_path: Path, stomp_broker: RunningBroker) -> None:
    folder = tmp_path / "spool"
    queue = stomp_broker.queue("terminal")
    publish(stomp_broker, queue, range(100))
    controller, terminal = pty.openpty()
    url = broker_url(stomp_broker, queue)
    try:
        with running(folder, "--from", url, *modes(stomp_broker), stderr=terminal) as process:
            seen = b""
            while not re.search(rb"\r\x1b\[K100 messages", seen):
                assert select.select([controller], [], [], LONG_S)[0], seen
                seen += os.read(controller, 10_000)
            assert ended(process)[0] == 0
    finally:
        os.close(controller)
        os.close(terminal)


# Removal of old messages.


def test_old_messages_are_removed_but_not_those_that_a_reader_needs(spool: Path) -> None:
    now_s = [0.0]
    register(spool, "shop", (4,))
    with SpoolWriter(spool) as writer:
        maintenance = Maintenance(
            writer,
            max_age_s=60.0,
            max_bytes=None,
            readers_expire_s=None,
            form=None,
            clock=lambda: now_s[0],
        )
        maintenance.run_if_due()
        assert SpoolReader(spool).floor() == (3,)
        progress(spool, "shop", (10,))
        maintenance.run_if_due()
        assert SpoolReader(spool).floor() == (3,), "it is not looked at all the time"
        now_s[0] = 100.0
        maintenance.run_if_due()
        assert SpoolReader(spool).floor() == (9,)
        assert writer.append([record(10)]) == 1


def test_what_is_complete_is_sealed(run: Run, spool: Path) -> None:
    pytest.importorskip("pyarrow")
    with SpoolWriter(spool) as writer:
        Maintenance(
            writer, max_age_s=None, max_bytes=None, readers_expire_s=None, form="arrow"
        ).run_if_due()
    assert len(list((spool / "p0").glob("*.arrow"))) == 3
    assert len(run("show", spool, "--json")[1].splitlines()) == 10
    assert run("verify", spool)[0] == 0
