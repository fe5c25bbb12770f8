"""The tokens that a server accepts."""

from __future__ import annotations

import logging
import os
from hmac import compare_digest
from pathlib import Path
from typing import Final

from stompkit._common.files import describe
from stompkit.spool.address import MIN_TOKEN, read_token

__all__ = ["Tokens"]

_log: Final = logging.getLogger(__name__)


class Tokens:
    """The tokens in a file, one a line, which is read again when it has changed.

    With several lines a token can be replaced without an interruption: readers send the first one.
    """

    def __init__(self, path: Path) -> None:
        """Read the file; raises ValueError if its first line is not a token."""
        self._path: Final = path
        read_token(path)
        self._state = self._stat()
        self._tokens = self._read()

    def accept(self, header: bytes) -> bool:
        """Return True for the value of a header ``Authorization`` with one of the tokens."""
        self._reload()
        kind, _, token = header.partition(b" ")
        # All are always compared, so that timing reveals nothing.
        found = [compare_digest(token.strip(), each) for each in self._tokens]
        return any(found) and kind.lower() == b"bearer"

    def _reload(self) -> None:
        try:
            state = self._stat()
            if state == self._state:
                return
            read_token(self._path)
            self._tokens = self._read()
        except (OSError, ValueError) as error:
            state = None
            if self._state is not None:
                _log.warning("the former tokens stay in use: %s", describe(error))
        self._state = state

    def _stat(self) -> tuple[int, ...] | None:
        found = os.stat(self._path)
        return found.st_ino, found.st_size, found.st_mtime_ns

    def _read(self) -> list[bytes]:
        lines = self._path.read_bytes().splitlines()
        return [line.strip() for line in lines if len(line.strip()) >= MIN_TOKEN]
