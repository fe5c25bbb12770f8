"""PHP's extension ``stomp`` reads complete messages from the broker.

It supports 1.0 only, and reads all data after a frame as a part of the next one. Without the line
feed after the NUL it loses messages silently.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from stompkit.testing import LaunchConfig, RunningBroker, launch
from tests.optional import report_missing

PROGRAM: Final = Path(__file__).parent / "clients" / "php_stomp.php"
DEADLINE_S: Final = 60.0
SIZES: Final = (1, 0, 9, 255, 256, 1_023, 8_191, 8_192, 8_193, 70_000, 1_000_000, 2)
BURST: Final = tuple(n * 37 % 5_000 for n in range(500))


def line(size: int) -> str:
    """Return the line that the program prints for a body of that size."""
    body = (bytes(range(256)) * (size // 256 + 1))[:size]
    return f"{size} {hashlib.md5(body, usedforsecurity=False).hexdigest()}"


@pytest.fixture(scope="session")
def php(pytestconfig: pytest.Config) -> str:
    """The interpreter with the extension."""
    path = shutil.which("php")
    if path is None:
        report_missing(pytestconfig, "PHP is missing: apt-get install php-cli", "php-cli")
    found = subprocess.run([path, "-m"], capture_output=True, text=True, check=True)
    if "stomp" not in found.stdout.lower().split():
        report_missing(
            pytestconfig,
            "PHP has no extension 'stomp': apt-get install php-stomp",
            "php-stomp",
        )
    return path


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    """One broker for all tests of this file."""
    running = launch(LaunchConfig(name="stompkit"))
    yield running
    running.stop()
    assert "Traceback" not in running.log


@pytest.mark.parametrize("sizes", [SIZES, BURST], ids=["sizes", "burst"])
@pytest.mark.parametrize("way", ["burst", "echo", "ack", "leave", "commit"])
def test_messages_arrive_complete(
    php: str, broker: RunningBroker, way: str, sizes: tuple[int, ...]
) -> None:
    if way == "echo" and sizes is BURST:
        sizes = BURST[:50]
    queue = f"/queue/php.{way}.{len(sizes)}"
    uri = f"tcp://{broker.host}:{broker.port}"
    found = subprocess.run(
        [php, str(PROGRAM), uri, queue, way, *map(str, sizes)],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    lines = [line(size) for size in sizes]
    if way == "leave":
        lines += lines
    if way in ("ack", "leave"):
        lines.append(line(3))
    assert found.stdout.splitlines() == lines, found.stderr
    assert found.returncode == 0
