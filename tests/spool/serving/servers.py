"""Servers of spools, in this process or in one of their own."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from stompkit._common.metrics import Address
from stompkit.spool import ServerAccess, SpoolReader
from stompkit.spool.serving.server import spool_server
from stompkit.testing.launching.polling import wait_until
from stompkit.testing.launching.processes.process import GuardedProcess

__all__ = ["LOOPBACK", "TOKEN", "ServerProcess", "access", "served", "token_file"]

LOOPBACK: Final = "127.0.0.1"
TOKEN: Final = "a-token-of-readers-0123456789"
_START_S: Final = 120.0
_PROGRAM: Final = (
    "import sys; from stompkit._commands.spool.command import main; sys.exit(main(sys.argv[1:]))"
)


def token_file(folder: Path, *tokens: str) -> Path:
    """Return a file with tokens, by default the one of the tests."""
    file = folder / "token"
    file.write_text("".join(f"{each}\n" for each in tokens or (TOKEN,)))
    return file


def access(*, patience_s: float = 60.0, token: str = TOKEN, authorities: str = "") -> ServerAccess:
    return ServerAccess(token, authorities, patience_s)


@contextmanager
def served(spool: Path, **more: Any) -> Iterator[str]:
    """Serve a spool here; yields the URL."""
    file = token_file(spool.parent)
    with spool_server(spool, Address(LOOPBACK, 0), token_file=file, **more) as address:
        yield f"{'https' if more.get('certificate') else 'http'}://{address}"


class ServerProcess:
    """The command ``stompkit spool serve``, which can be killed and started again."""

    def __init__(self, spool: Path, port: int, folder: Path) -> None:
        """Describe the command; nothing runs yet."""
        self.url: Final = f"http://{LOOPBACK}:{port}"
        self._command: Final = (
            *(sys.executable, "-c", _PROGRAM, "serve", str(spool)),
            *("--listen", f"{LOOPBACK}:{port}", "--token-file", str(token_file(folder))),
        )
        self.folder: Final = folder
        self._process: GuardedProcess | None = None

    def start(self) -> None:
        """Start it, and wait until it answers."""
        self._process = process = GuardedProcess(self._command, dict(_path()), self.folder, 5.0)
        assert wait_until(lambda: f"at {self.url}" in process.log(), _START_S), process.log()

    def kill(self) -> None:
        """Kill it with SIGKILL."""
        assert self._process is not None
        self._process.kill()
        self._process.stop()

    def stop(self) -> None:
        """End it."""
        if self._process is not None:
            self._process.stop()

    def reader(self, **more: Any) -> SpoolReader:
        """Return a reader."""
        return SpoolReader(self.url, access=access(**more))


def _path() -> Iterator[tuple[str, str]]:
    yield "PYTHONPATH", ":".join(sys.path)
