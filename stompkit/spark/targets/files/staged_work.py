"""Work of tasks in files of the target, from where the driver reads it one part at a time.

Otherwise it would pass through the driver's Java, all of a batch at once.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Final
from uuid import uuid4

from pyarrow import fs as pa_fs

from stompkit.replication.sinks.sql import SinkUnavailableError
from stompkit.spark.targets.base import StagingLostError

__all__ = ["FOLDER", "LEAST_BYTES", "StagedFiles"]

#: Folder of the files; readers of tables ignore names that begin so.
FOLDER: Final = "_stompkit_staged"
#: Minimum size in bytes of work that is written to a file.
LEAST_BYTES: Final = 256 * 1024
_COMPRESSION: Final = "zstd"
#: Age after which work is considered abandoned.
_ORPHAN: Final = timedelta(hours=6)


class StagedFiles:
    """A folder with a file for the work of each task, while a batch is applied."""

    def __init__(self, store: pa_fs.FileSystem) -> None:
        """Use a file system whose root is the folder; it need not exist."""
        self._store = store

    def put(self, octets: bytes) -> str:
        """Write the work of a task; return its name."""
        name = uuid4().hex
        try:
            self._store.create_dir(".", recursive=True)
            with self._store.open_output_stream(name, compression=_COMPRESSION) as out:
                out.write(octets)
        except OSError as error:
            raise SinkUnavailableError(str(error)) from error
        return name

    def get(self, name: str, size: int) -> bytes:
        """Return the work of a task; raises :class:`StagingLostError` if it is missing."""
        try:
            with self._store.open_input_stream(name, compression=_COMPRESSION) as file:
                found: bytes = file.read()
        except FileNotFoundError:
            found = b""
        except OSError as error:
            raise SinkUnavailableError(str(error)) from error
        if len(found) != size:
            raise StagingLostError(
                f"the work of a task in {FOLDER}/{name} is lost: there were {size} bytes, and"
                f" there are {len(found)}"
            )
        return found

    def drop(self, names: Iterable[str]) -> None:
        """Remove the work of some tasks; what cannot be removed now is removed later."""
        for name in names:
            with suppress(OSError):
                self._store.delete_file(name)

    def sweep(self) -> None:
        """Remove work left by crashes."""
        before = datetime.now(UTC) - _ORPHAN
        with suppress(OSError):
            found = self._store.get_file_info(pa_fs.FileSelector("", allow_not_found=True))
            self.drop(each.base_name for each in found if each.mtime and each.mtime < before)
