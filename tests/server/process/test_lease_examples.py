"""The settings of the examples for Compose and Kubernetes, with real brokers and a database."""

from __future__ import annotations

import re
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from stompkit.testing.launching.polling import wait_until
from tests.server.process.lease_cluster import WITHIN_S, Member
from tests.server.processes import TWIST, Client, Start, processes
from tests.servers import SqlServer, postgresql

__all__ = ["postgresql"]

pytestmark = pytest.mark.matrix

PACKAGING = Path(__file__).parents[3] / "packaging"
SECRETS = "/run/stompkit/secrets"


def settings_of(kind: str) -> str:
    if kind == "compose":
        return (PACKAGING / "docker" / "lease.toml").read_text()
    file = PACKAGING / "kubernetes" / "stompkit.yaml"
    [settings] = [each for each in yaml.safe_load_all(file.read_text()) if "data" in each]
    return str(settings["data"]["stompkit.toml"])


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    with processes(tmp_path) as start:
        yield start


def status(member: Member, path: str, host: str) -> int:
    """Ask for a path at an address, without a token."""
    port = member.admin.rpartition(":")[2]
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers={"Host": host})
    try:
        with urllib.request.urlopen(request, timeout=WITHIN_S) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


# A kubelet asks by the address of the pod; the health check of the container, by that of loopback.
@pytest.mark.parametrize(
    ("kind", "host"), [("compose", "127.0.0.1:15613"), ("kubernetes", "10.1.2.3:15613")]
)
def test_the_passive_broker_of_the_example_takes_over(
    kind: str,
    host: str,
    start: Start,
    postgresql: SqlServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    secrets = {
        "store-url": postgresql.url(postgresql.new_database()),
        "admin-token": "t" * 32,
        "users": "",
    }
    for name, text in secrets.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o600)
    monkeypatch.setenv("STOMPKIT_STORE_URL", secrets["store-url"])
    text = settings_of(kind).replace(SECRETS, str(tmp_path))
    # As the containers have it, but for the numbers of ports, and for the names of the machines.
    text = re.sub(r'"tcp:\d+[^"]*"', '"tcp:0:interface=127.0.0.1"', text)
    members = []
    for name in ("mq-1", "mq-2"):
        file, announce = tmp_path / f"{name}.toml", tmp_path / f"{name}.json"
        own = f'[high_availability]\nname = "{name}"\nlease_s = 2.0'
        file.write_text(text.replace("[high_availability]", own))
        member = Member(start(TWIST, "--config", str(file), "--announce", str(announce)), announce)
        member.running()
        members.append(member)
    assert wait_until(lambda: any(each.announce.exists() for each in members), WITHIN_S)
    active, passive = sorted(members, key=lambda each: not each.announce.exists())
    assert wait_until(lambda: status(active, "/ready", host) == 200, WITHIN_S)
    assert status(passive, "/ready", host) == 503
    assert [status(each, "/health", host) for each in members] == [200, 200]
    active.process.kill()
    assert wait_until(lambda: status(passive, "/ready", host) == 200, WITHIN_S)
    if kind == "compose":
        with Client(passive.active()) as client:
            assert client.send("/queue/a", "x").startswith(b"RECEIPT\n")
