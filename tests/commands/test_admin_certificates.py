"""Commands for an admin interface over TLS, with authorities and certificates in its address."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.ports import free_ports
from tests.server.certificates import Authority
from tests.server.processes import TWIST, announced, processes

ANY_PORT = "tcp:0:interface=127.0.0.1"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("certificates")


@pytest.fixture(scope="module")
def authority(folder: Path) -> Authority:
    return Authority(folder)


@pytest.fixture(scope="module")
def url(folder: Path, authority: Authority) -> Iterator[str]:
    """Address of an interface that requires a client certificate."""
    with free_ports() as (port,), processes(folder) as start:
        endpoint = (
            f"stomps:{port}:interface=127.0.0.1:certificate={authority.server()}"
            f":clientCAs={authority.file}"
        )
        file = folder / "announced"
        broker = start(TWIST, "--endpoint", ANY_PORT, "--admin", endpoint, "--announce", str(file))
        announced(broker, file)
        yield f"https://127.0.0.1:{port}"


def queues(url: str, *, status: int) -> str:
    """Run a command, and return its standard error."""
    done = subprocess.run(
        [sys.executable, "-m", "stompkit", "queues", "--admin", url],
        capture_output=True,
        text=True,
        check=False,
        timeout=60.0,
    )
    assert done.returncode == status, done.stderr
    return done.stderr


def test_a_command_shows_the_certificate_of_its_address(url: str, authority: Authority) -> None:
    queues(f"{url}?ca={authority.file}&cert={authority.client('ann')}", status=0)


def test_what_is_missing_is_told(url: str, folder: Path, authority: Authority) -> None:
    assert "with ?ca=FILE behind the address" in queues(url, status=1)
    said = queues(f"{url}?ca={authority.file}", status=1)
    assert "name one with ?cert=FILE&key=FILE behind the address" in said
    said = queues(f"{url}?ca={authority.file}&cert={folder / 'none'}", status=2)
    assert "none" in said
    assert "goes with cert=FILE" in queues(f"{url}?key={folder / 'none'}", status=2)


@pytest.mark.parametrize("address", ["http://a:1?ca=x", "https://a:1?vhost=x", "a:1?cert=x"])
def test_an_address_with_other_options_is_refused(address: str) -> None:
    assert "https://" in queues(address, status=2)
