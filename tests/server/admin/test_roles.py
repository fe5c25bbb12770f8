"""Readers of the admin port, who change nothing; and the users and rights that it shows."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from stompkit.server.admin.routes import ROUTES
from stompkit.server.login.password_files import Cost, hash_passcode
from stompkit.server.settings.reading import SettingsError, parse_settings
from tests.server.admin.asking import Answer, Asker
from tests.server.processes import LOOPBACK, TWIST, Client, Process, announced, processes

OPERATOR = "the-token-of-an-operator"
READER = "the-token-of-a-reader"
JSON = {"content-type": "application/json"}
PASSCODE = "sesame"
CHANGES = sorted(path for path, routes in ROUTES.items() if "POST" in routes)


class Served(NamedTuple):
    """A broker with two tokens, users and rights."""

    process: Process
    ask: Asker
    endpoint: dict[str, object]
    settings: Path

    def request(self, path: str, token: str, body: bytes | None = None) -> Answer:
        """Send a request with a token; with a body it is a change."""
        headers = {**JSON, "authorization": f"Bearer {token}"}
        return self.ask.request("GET" if body is None else "POST", path, body, headers)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A broker as a process."""
    folder = tmp_path_factory.mktemp("broker")
    names = ("settings.toml", "operator", "reader", "users", "announce")
    settings, operator, reader, users, announce = (folder / name for name in names)
    operator.write_text(OPERATOR)
    reader.write_text(READER)
    cheap = Cost(log2_n=1, r=1, p=1)
    users.write_text(f"ann:{hash_passcode(PASSCODE, cheap)}:staff\n")
    settings.write_text(
        f'[admin]\nendpoints = ["{LOOPBACK}"]\n'
        f'token_file = "{operator}"\nread_token_file = "{reader}"\n'
        f'[auth]\ncheckers = ["stompkit:{users}", "memory:bob:{PASSCODE}"]\n'
        '[auth.groups]\nnight = ["eve"]\n'
        '[[rights]]\ndestination = ">"\nallow = ["read", "write", "create"]\nusers = ["ann"]\n'
        '[[rights]]\ndestination = "/queue/{user}"\nallow = ["read"]\ngroups = ["night"]\n'
    )
    with processes(folder) as start:
        options = ["--endpoint", LOOPBACK, "--announce", str(announce)]
        process = start(TWIST, "--config", str(settings), *options)
        [endpoint] = announced(process, announce)
        [admin] = json.loads(announce.read_text())["admin"]
        ask = Asker(f"http://{admin['host']}:{admin['port']}/")
        yield Served(process, ask, endpoint, settings)


def test_each_token_has_its_role(guarded: Served) -> None:
    assert guarded.request("/api/v1/me", OPERATOR).json == {"role": "operator"}
    assert guarded.request("/api/v1/me", READER).json == {"role": "reader"}
    assert guarded.request("/api/v1/me", "a-token-of-nobody-at-all").code == "unauthorised"


@pytest.mark.parametrize("path", CHANGES)
def test_readers_change_nothing(guarded: Served, path: str) -> None:
    """The refusal comes before the body is looked at, so no body gets past it."""
    for body in (b'{"name": "/queue/a"}', b"", b"[" * 1000):
        answer = guarded.request(path, READER, body)
        assert (answer.status, answer.code) == (403, "read-only")
    assert guarded.request(path, OPERATOR, b'{"none": 1}').code == "bad-body"


def test_refused_changes_are_logged(guarded: Served) -> None:
    guarded.request("/api/v1/purge", READER, b"{}")
    guarded.process.wait_for("the operation purge was refused to 127.0.0.1:")
    origin = {**JSON, "authorization": f"Bearer {OPERATOR}", "origin": "http://evil.example"}
    guarded.ask.request("POST", "/api/v1/move", b"{}", origin)
    guarded.process.wait_for("the operation move was refused to 127.0.0.1:")


@pytest.mark.parametrize(
    "path",
    [
        *("/api/v1/overview", "/api/v1/connections", "/api/v1/access", "/api/v1/durables"),
        *("/api/v1/destinations", "/metrics"),
    ],
)
def test_readers_read_everything(guarded: Served, path: str) -> None:
    assert guarded.request(path, READER).status == 200


def test_changed_tokens_are_in_force_at_once(guarded: Served) -> None:
    """A token that has leaked ends without a restart, which would end all clients, too."""
    operator, reader = (guarded.settings.with_name(name) for name in ("operator", "reader"))
    try:
        operator.write_text(f"{OPERATOR}-2\n")
        reader.write_text(f"{READER}-2\n")
        for token in (OPERATOR, READER):
            assert guarded.request("/api/v1/me", token).code == "unauthorised"
        assert guarded.request("/api/v1/me", f"{OPERATOR}-2").json == {"role": "operator"}
        assert guarded.request("/api/v1/me", f"{READER}-2").json == {"role": "reader"}
        for text in ("short", f"{OPERATOR}-2"):
            reader.write_text(text)
            assert guarded.request("/api/v1/me", f"{READER}-2").json == {"role": "reader"}
        guarded.process.wait_for("must not have the token of")
    finally:
        operator.write_text(OPERATOR)
        reader.write_text(READER)
    assert guarded.request("/api/v1/me", OPERATOR).json == {"role": "operator"}


def test_a_broker_without_tokens_has_operators_only(ask: Asker) -> None:
    assert ask.get("me") == {"role": "operator"}


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        ("read_token_file = {reader}", "read_token_file: has no effect without token_file"),
        (
            "token_file = {reader}\nread_token_file = {reader}",
            "read_token_file: must not have the token of token_file",
        ),
        ('token_file = {reader}\nread_token_file = "/none"', "read_token_file: /none: No such"),
    ],
)
def test_tokens_that_would_protect_nothing_are_refused(
    lines: str, says: str, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text(READER)
    text = lines.replace("{reader}", json.dumps(str(token)))
    with pytest.raises(SettingsError, match=says):
        parse_settings(f"[admin]\n{text}\n", "x.toml")


def test_users_and_rights_are_shown_without_secrets(guarded: Served) -> None:
    with Client(guarded.endpoint, f"bob:{PASSCODE}") as client:
        assert client.first.startswith(b"CONNECTED")
        answer = guarded.request("/api/v1/access", READER)
    found = answer.json
    assert PASSCODE not in answer.body.decode()
    assert "scrypt" not in answer.body.decode()
    assert found["is_checked"] and not found["is_anonymous_allowed"]
    assert found["checkers"][1] == "memory"
    assert found["checkers"][0].startswith("stompkit:/")
    assert found["users"] == [
        {"name": "ann", "groups": ["staff"], "connections": 0},
        {"name": "bob", "groups": [], "connections": 1},
        {"name": "eve", "groups": ["night"], "connections": 0},
    ]
    assert found["total"] == 3
    assert found["rights"][1] == {
        "destination": "/queue/{user}",
        "allow": ["read"],
        "users": [],
        "groups": ["night"],
        "hosts": [],
    }


def test_shown_rights_are_those_in_force(guarded: Served) -> None:
    text = guarded.settings.read_text()
    guarded.settings.write_text(text.replace('"/queue/{user}"', '"/queue/other"'))
    guarded.process.popen.send_signal(1)

    def is_new() -> bool:
        rights = guarded.request("/api/v1/access", OPERATOR).json["rights"]
        return bool(rights[1]["destination"] == "/queue/other")

    guarded.process.wait_until(is_new)


def test_without_logins_everybody_may_do_everything(ask: Asker) -> None:
    found = ask.get("access")
    assert not found["is_checked"] and found["is_anonymous_allowed"]
    assert (found["users"], found["rights"], found["checkers"]) == ([], [], [])
