"""The file that says where a broker listens."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

from stompkit._common.files import reason_of
from stompkit.server.process.activation import StartError

__all__ = ["AnnounceFile"]


class AnnounceFile:
    """A JSON file that exists while a broker listens; readers never see a part of it."""

    def __init__(self, path: Path) -> None:
        """Describe the file."""
        self._path = path
        self._partial = path.with_name(f".{path.name}.{os.getpid()}")

    def prepare(self, content: Mapping[str, object]) -> None:
        """Write the content beside the file. Raises StartError."""
        try:
            self._partial.write_text(json.dumps(content) + "\n", encoding="utf-8")
        except OSError as error:
            raise StartError(self._problem(error)) from error

    def publish(self) -> None:
        """Give the file the content that was written last. Raises StartError."""
        try:
            self._partial.replace(self._path)
        except OSError as error:
            raise StartError(self._problem(error)) from error

    def withdraw(self) -> None:
        """Remove the file. Raises OSError."""
        self._path.unlink(missing_ok=True)

    def remove(self) -> None:
        """Remove the file, and content that was not published. Raises OSError."""
        self.withdraw()
        self._partial.unlink(missing_ok=True)

    def _problem(self, error: OSError) -> str:
        # The path in the error may be that of the partial file.
        return f"cannot write the announce file {self._path}: {reason_of(error)}"
