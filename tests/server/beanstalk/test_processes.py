"""The front end in a real process, with a public beanstalkd client."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import greenstalk
import pytest

from stompkit.server.settings.reading import SettingsError, parse_settings
from tests.server.processes import (
    LOOPBACK,
    TWIST,
    Client,
    Process,
    Start,
    announced,
    processes,
    talk,
    tcp,
)

DEADLINE_S = 20


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    with processes(tmp_path) as start:
        yield start


def run(start: Start, directory: Path, *arguments: str) -> tuple[Process, dict[str, Any]]:
    """Start a broker with the front end; return it with its announcement."""
    announce = directory / f"announce.{len(list(directory.iterdir()))}"
    process = start(
        TWIST,
        *("--endpoint", LOOPBACK, "--beanstalk", LOOPBACK, "--announce", str(announce)),
        *arguments,
    )
    announced(process, announce)
    document: dict[str, Any] = json.loads(announce.read_text())
    return process, document


def client_of(document: dict[str, Any], **settings: Any) -> greenstalk.Client[bytes]:
    [endpoint] = document["beanstalk"]
    return greenstalk.Client((endpoint["host"], endpoint["port"]), encoding=None, **settings)


def test_greenstalk_works(start: Start, tmp_path: Path) -> None:
    _, document = run(start, tmp_path)
    with client_of(document, use="mail", watch=["mail"]) as client:
        job_id = client.put(b"hello", priority=10, ttr=30)
        job = client.reserve(timeout=DEADLINE_S)
        assert (job.id, job.body) == (job_id, b"hello")
        with pytest.raises(greenstalk.TimedOutError):
            client.reserve(timeout=0)
        client.touch(job)
        client.release(job, priority=20, delay=1)
        assert client.peek_delayed().id == job_id
        assert client.stats_job(job)["pri"] == 20
        again = client.reserve(timeout=DEADLINE_S)
        client.bury(again, priority=3)
        assert client.peek_buried().id == job_id
        client.kick_job(job)
        assert client.peek_ready().id == job_id
        assert client.reserve_job(job_id).id == job_id
        client.bury(job)
        assert client.kick(5) == 1
        client.delete(job)
        with pytest.raises(greenstalk.NotFoundError):
            client.peek(job_id)
        with pytest.raises(greenstalk.JobTooBigError):
            client.put(b"x" * 65_536)
        client.pause_tube("mail", 0)
        client.watch("other")
        client.ignore("mail")
        with pytest.raises(greenstalk.NotIgnoredError):
            client.ignore("other")
        assert client.watching() == ["other"]
        assert client.using() == "mail"
        assert set(client.tubes()) == {"default", "mail", "other"}
        assert client.stats_tube("mail")["cmd-delete"] == 1
        assert client.stats()["cmd-put"] == 1


def test_jobs_survive_kill_9(start: Start, tmp_path: Path) -> None:
    data = str(tmp_path / "data")
    process, document = run(start, tmp_path, "--data", data)
    with client_of(document) as client:
        ids = [client.put(b"%d" % at, priority=at) for at in range(200)]
        late = client.put(b"late", delay=3_000)
        gone = client.reserve(timeout=DEADLINE_S)
        client.delete(gone)
        buried = client.reserve(timeout=DEADLINE_S)
        client.bury(buried)
        held = client.reserve(timeout=DEADLINE_S)
        process.kill()
    _, document = run(start, tmp_path, "--data", data)
    with client_of(document) as client:
        assert client.stats_job(late)["state"] == "delayed"
        assert client.peek_buried().id == buried.id
        taken = []
        for _ in range(198):
            job = client.reserve(timeout=DEADLINE_S)
            client.delete(job)
            taken.append(job.id)
        assert taken == ids[2:]
        assert held.id == taken[0]
        with pytest.raises(greenstalk.TimedOutError):
            client.reserve(timeout=0)


def test_workers_and_stomp_share_a_queue(start: Start, tmp_path: Path) -> None:
    _, document = run(start, tmp_path)
    found: list[greenstalk.Job[bytes]] = []

    def work() -> None:
        with client_of(document, watch="mail") as worker:
            found.append(worker.reserve(timeout=DEADLINE_S))
            worker.delete(found[0])

    thread = threading.Thread(target=work)
    thread.start()
    [endpoint] = document["endpoints"]
    with Client(endpoint) as stomp, client_of(document, use="mail") as producer:
        assert stomp.send("/queue/mail", "from stomp").startswith(b"RECEIPT")
        thread.join(DEADLINE_S)
        assert [job.body for job in found] == [b"from stomp"]
        producer.put(b"from beanstalk")
        assert stomp.subscribe("/queue/mail").endswith(b"\n\nfrom beanstalk")


@pytest.mark.parametrize(
    "request_",
    [b"POST / HTTP/1.1\r\nhost: x\r\n\r\nput 0 0 1 1\r\nx\r\n", b"\x16\x03\x01\x02\x00\x01"],
    ids=["browser", "tls"],
)
def test_who_speaks_something_else_is_closed(start: Start, tmp_path: Path, request_: bytes) -> None:
    _, document = run(start, tmp_path)
    assert talk(tcp(document["beanstalk"][0]), request_) == b""
    with client_of(document) as client:
        assert client.stats()["total-jobs"] == 0


@pytest.mark.parametrize(
    "endpoint",
    ["tcp:11300", "tcp:11300:interface=0.0.0.0", "tcp6:11300", "tcp:11300:interface=192.0.2.1"],
)
def test_other_machines_are_kept_out(endpoint: str) -> None:
    text = f'[beanstalk]\nendpoints = ["{endpoint}"]\n'
    with pytest.raises(SettingsError, match="allow_remote = true"):
        parse_settings(text, "x.toml")
    parse_settings(text + "allow_remote = true\n", "x.toml")


@pytest.mark.parametrize(
    "endpoint",
    [
        "tcp:11300:interface=127.0.0.1",
        r"tcp6:11300:interface=\\:\\:1",
        "tcp:11300:interface=localhost",
        "unix:/run/beanstalk.sock",
    ],
)
def test_this_machine_is_let_in(endpoint: str) -> None:
    parse_settings(f'[beanstalk]\nendpoints = ["{endpoint}"]\n', "x.toml")


def test_tubes_have_to_be_listed_where_rights_are_checked() -> None:
    text = '[[rights]]\ndestination = "/queue/>"\nusers = ["a"]\nallow = ["read"]\n'
    text += '[beanstalk]\nendpoints = ["tcp:11300:interface=127.0.0.1"]\n'
    with pytest.raises(SettingsError, match=r"tubes = \["):
        parse_settings(text, "x.toml")
    parse_settings(text + 'tubes = ["jobs.>"]\n', "x.toml")
