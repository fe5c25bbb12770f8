"""Access to the admin port, and limits on requests of clients without access."""

from __future__ import annotations

import json
import socket
import sys
from pathlib import Path

import pytest

from stompkit.server.admin.routes import ROUTES
from stompkit.server.settings.reading import SettingsError, parse_settings
from stompkit.testing import LaunchConfig, launch
from stompkit.testing.client import BrokerSaidError
from tests.server.admin.asking import DEADLINE_S, Asker
from tests.server.processes import LOOPBACK, TWIST, announced, processes

JSON = {"content-type": "application/json"}
TOKEN = "a-token-of-many-characters"
BODY = b'{"name": "/queue/none"}'
CHANGES = sorted(path for path, routes in ROUTES.items() if "POST" in routes)


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "", "[::ffff:0:0]"])
def test_other_names_are_refused(ask: Asker, host: str) -> None:
    answer = ask.request("GET", "/api/v1/overview", headers={"host": host})
    assert (answer.status, answer.code) == (421, "wrong-host")


@pytest.mark.parametrize(
    "host",
    [
        "evil.example@localhost",
        "user:pass@127.0.0.1",
        "localhost#evil.example",
        "localhost\\evil.example",
        "localhost/evil.example",
        "localhost?evil.example",
        "localhost evil.example",
        "localhost:80:80",
        "localhost:x",
        "[::1",
        "[::1]evil.example",
    ],
)
def test_what_is_more_than_a_name_is_refused(ask: Asker, host: str) -> None:
    answer = ask.request("GET", "/api/v1/overview", headers={"host": host})
    assert (answer.status, answer.code) == (421, "wrong-host")


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1234", "127.0.0.1", "[::1]:80"])
def test_names_of_loopback(ask: Asker, host: str) -> None:
    assert ask.request("GET", "/api/v1/overview", headers={"host": host}).status == 200


@pytest.mark.parametrize(
    "said",
    [
        "text/plain",
        "application/x-www-form-urlencoded",
        "",
        "multipart/form-data",
        "a\x0bb",
        "a\x0cb",
    ],
)
def test_forms_of_other_pages_are_refused(ask: Asker, said: str) -> None:
    answer = ask.request("POST", "/api/v1/purge", BODY, {"content-type": said})
    assert (answer.status, answer.code) == (415, "wrong-content-type")


@pytest.mark.parametrize("path", CHANGES)
def test_no_change_can_come_from_a_page_of_another_site(ask: Asker, path: str) -> None:
    """A form has no JSON, and a script of another page has another origin."""
    for said in ("text/plain", "application/x-www-form-urlencoded"):
        answer = ask.request("POST", path, BODY, {"content-type": said})
        assert (answer.status, answer.code) == (415, "wrong-content-type")
    answer = ask.request("POST", path, BODY, {**JSON, "origin": "http://evil.example"})
    assert (answer.status, answer.code) == (403, "wrong-origin")
    answer = ask.request("POST", path, BODY, {**JSON, "host": "evil.example"})
    assert (answer.status, answer.code) == (421, "wrong-host")
    # Nor can an image or a link, which send GET.
    assert ask.request("GET", path).status == 405


@pytest.mark.parametrize("name", ["host", "origin", "content-type"])
def test_headers_that_are_no_utf_8(ask: Asker, name: str) -> None:
    answer = ask.request("POST", "/api/v1/purge", BODY, {**JSON, name: "caf\xe9"})
    assert answer.status in (403, 415, 421)


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://[", ""])
def test_other_pages_are_refused(ask: Asker, origin: str) -> None:
    answer = ask.request("POST", "/api/v1/purge", BODY, {**JSON, "origin": origin})
    assert (answer.status, answer.code) == (403, "wrong-origin")


def test_a_page_of_another_scheme_or_port_is_refused(ask: Asker) -> None:
    host, _, port = ask.where.rpartition(":")
    for origin in (
        f"https://{ask.where}",
        f"ftp://{ask.where}",
        f"http://{host}",
        f"http://{host}:{int(port) + 1}",
        f"http://x@{ask.where}",
        f"http://{ask.where}/",
        f"http://{ask.where}#x",
        ask.where,
    ):
        answer = ask.request("POST", "/api/v1/purge", BODY, {**JSON, "origin": origin})
        assert (answer.status, answer.code) == (403, "wrong-origin"), origin


def test_its_own_page_may_ask(ask: Asker) -> None:
    answer = ask.request("POST", "/api/v1/purge", BODY, {**JSON, "origin": f"http://{ask.where}"})
    assert (answer.status, answer.code) == (404, "no-such-destination")


@pytest.mark.parametrize("path", ["/health", "/api/v1/overview", "/none", "/metrics"])
def test_headers_of_every_answer(ask: Asker, path: str) -> None:
    headers = ask.request("GET", path).headers
    assert headers["content-security-policy"].startswith("default-src 'self'")
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["x-frame-options"] == "DENY"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["cache-control"] == "no-store"


@pytest.mark.parametrize(
    "path", ["/../__init__.py", "/console/index.html", "/%2e%2e/x.html", "/..%2fx.js"]
)
def test_no_file_but_the_consoles(ask: Asker, path: str) -> None:
    assert ask.request("GET", path).status == 404


@pytest.mark.parametrize("body", [b"", b"[", b"\xff", b"[" * 100_000, b'{"name": 1}', b"null"])
def test_bodies_that_are_none(ask: Asker, body: bytes) -> None:
    answer = ask.request("POST", "/api/v1/purge", body, JSON)
    assert (answer.status, answer.code) == (400, "bad-body")


@pytest.mark.parametrize("head", [b"content-length: 99999999", b"transfer-encoding: chunked"])
def test_long_bodies_are_cut_off(ask: Asker, head: bytes) -> None:
    host, _, port = ask.where.rpartition(":")
    with socket.create_connection((host, int(port)), DEADLINE_S) as stream:
        stream.sendall(
            b"POST /api/v1/purge HTTP/1.1\r\nhost: localhost\r\n"
            b"content-type: application/json\r\n" + head + b"\r\n\r\n"
        )
        piece = b"%x\r\n%s\r\n" % (100_000, b" " * 100_000)
        received = b""
        try:
            for _ in range(100):
                stream.sendall(piece)
            while some := stream.recv(65_536):
                received += some
        except ConnectionError:
            # The broker closes while bytes are in transit, so the response may be lost.
            pass
    assert b" 200 " not in received


def test_more_connections_than_may_be_are_closed(ask: Asker) -> None:
    host, _, port = ask.where.rpartition(":")
    streams = [socket.create_connection((host, int(port)), DEADLINE_S) for _ in range(120)]
    try:
        ends = 0
        for stream in streams[100:]:
            try:
                ends += stream.recv(1) == b""
            except ConnectionError:
                ends += 1
        assert ends == 20
    finally:
        for stream in streams:
            stream.close()


# The token.


def test_with_a_token(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    config = tmp_path / "stompkit.toml"
    config.write_text(f'[admin]\nendpoints = ["{LOOPBACK}"]\ntoken_file = "{file}"\n')
    announce = tmp_path / "announce.json"
    with processes(tmp_path) as start:
        process = start(
            TWIST, "--endpoint", LOOPBACK, "--config", str(config), "--announce", str(announce)
        )
        announced(process, announce)
        [where] = json.loads(announce.read_text())["admin"]
        ask = Asker(f"http://{where['host']}:{where['port']}")
        right = {"authorization": f"Bearer {TOKEN}"}
        for path in ("/health", "/ready", "/openapi.json"):
            assert ask.request("GET", path).status == 200
        for path in ("/api/v1/overview", "/metrics"):
            assert ask.request("GET", path, headers=right).status == 200
            for said in ("", f"Bearer {TOKEN}x", TOKEN, "Bearer caf\xe9"):
                wrong = {"authorization": said} if said else {}
                answer = ask.request("GET", path, headers=wrong)
                assert (answer.status, answer.code) == (401, "unauthorised")
                assert answer.headers["www-authenticate"].startswith("Bearer")
        assert ask.request("GET", "/api/v1/overview", headers={**right, "host": "x"}).status == 200
        assert TOKEN not in process.log


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        ('endpoints = ["tcp:0"]', "other machines can reach"),
        ('endpoints = ["tcp:0:interface=0.0.0.0"]', "other machines can reach"),
        ('endpoints = ["systemd:domain=INET:index=0"]', "other machines can reach"),
        ('endpoints = ["nonsense:1"]', "cannot listen on nonsense:1"),
        ('token_file = "/none/token"', "/none/token"),
    ],
)
def test_what_would_be_open_is_refused(lines: str, says: str) -> None:
    with pytest.raises(SettingsError, match=says):
        parse_settings(f"[admin]\n{lines}\n", "x.toml")


@pytest.mark.parametrize("token", ["", "short", "with a blank in it it is"])
def test_tokens_that_are_none(tmp_path: Path, token: str) -> None:
    file = tmp_path / "token"
    file.write_text(token)
    with pytest.raises(SettingsError, match="16 printable"):
        parse_settings(f'[admin]\ntoken_file = "{file}"\n', "x.toml")


@pytest.mark.parametrize(
    "endpoint", ["tcp:0:interface=127.0.0.1", "tcp:0:interface=\\\\:\\\\:1", "unix:/tmp/x.sock"]
)
def test_what_only_this_machine_reaches(endpoint: str) -> None:
    settings = parse_settings(f'[admin]\nendpoints = ["{endpoint}"]\n', "x.toml")
    assert len(settings.admin.endpoints) == 1


# Readiness.


def test_a_broker_that_stands_by_is_not_ready(tmp_path: Path) -> None:
    with launch(LaunchConfig(persistent=True, directory=tmp_path / "first")) as first:
        (tmp_path / "second").mkdir()
        with processes(tmp_path / "second") as start:
            process = start(
                TWIST,
                "--endpoint",
                LOOPBACK,
                "--admin",
                f"unix:{tmp_path / 'admin'}",
                "--data",
                str(tmp_path / "first" / "data"),
            )
            process.wait_for("waiting for")
            status, body = by_socket(tmp_path / "admin", "/ready")
            assert status == 503 and "stands by" in body["reason"]
            assert by_socket(tmp_path / "admin", "/health")[0] == 200
            first.stop()
            process.wait_until(lambda: by_socket(tmp_path / "admin", "/ready")[0] == 200)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux can bound another's files")
def test_a_broker_whose_store_fails_is_not_ready(tmp_path: Path) -> None:
    config = LaunchConfig(persistent=True, admin=True, frames=False, directory=tmp_path)
    with launch(config) as broker:
        ask = Asker(broker.admin_url)
        assert ask.request("GET", "/ready").status == 200
        broker.fill_disk()
        with broker.client() as client, pytest.raises(BrokerSaidError):
            client.send("/queue/full", "x", persistent="true")
        answer = ask.request("GET", "/ready")
        assert answer.status == 503 and "store has failed" in answer.json["reason"]
        assert ask.request("GET", "/health").status == 200
        broker.free_disk()
        with broker.client() as client:
            client.send("/queue/full", "x", persistent="true")
        assert ask.request("GET", "/ready").status == 200


def by_socket(path: Path, what: str) -> tuple[int, dict[str, str]]:
    """Send a request over a Unix socket."""
    with socket.socket(socket.AF_UNIX) as stream:
        stream.settimeout(DEADLINE_S)
        stream.connect(str(path))
        stream.sendall(
            f"GET {what} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n".encode()
        )
        data = b""
        while piece := stream.recv(65_536):
            data += piece
    head, _, body = data.partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body)
