"""Work of tasks in files of the target, from where the driver reads it one part at a time.

Otherwise it would pass through the driver's Java, all of a batch at once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple
from uuid import uuid4

from pyarrow import fs as pa_fs

from stompkit.replication.sinks.sql import SinkUnavailableError
from stompkit.spark.fence import Fence
from stompkit.spark.targets.base import StagingLostError
from stompkit.spark.targets.database.staging_tables import owner_of

__all__ = ["FOLDER", "LEAST_BYTES", "Epoch", "StagedFiles"]

#: Folder of the files; readers of tables ignore names that begin so.
FOLDER: Final = "_stompkit_staged"
#: Minimum size in bytes of work that is written to a file.
LEAST_BYTES: Final = 256 * 1024
_COMPRESSION: Final = "zstd"
#: Age after which work is considered abandoned.
_ORPHAN: Final = timedelta(hours=6)


class Epoch(NamedTuple):
    """A position of a pipeline's fence. Work can only be committed in the epoch of its staging."""

    #: Hexadecimal digits for the pipeline and for the position.
    owner: str
    fence: str

    @staticmethod
    def of(pipeline: str, spool: str, fence: Fence) -> Epoch:
        """Return the epoch of a fence."""
        digest = hashlib.sha256(repr(sorted(fence.items())).encode())
        return Epoch(owner_of(pipeline, spool), digest.hexdigest()[:12])


class StagedFiles:
    """A folder with a file for the work of each task, while a batch is applied."""

    def __init__(self, store: pa_fs.FileSystem) -> None:
        """Use a file system whose root is the folder; it need not exist."""
        self._store = store

    def put(self, octets: bytes, epoch: Epoch) -> str:
        """Write the work of a task; return its name."""
        name = "_".join((*epoch, uuid4().hex[:16]))
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

    def drop_past(self, now: Epoch) -> None:
        """Remove the work of the same pipeline from other epochs, which nobody can commit."""
        names = [each.base_name for each in self._found()]
        own = (name for name in names if name.startswith(f"{now.owner}_"))
        self.drop(name for name in own if not name.startswith(f"{now.owner}_{now.fence}_"))

    def sweep(self) -> None:
        """Remove work left by crashes, of any pipeline."""
        before = datetime.now(UTC) - _ORPHAN
        self.drop(each.base_name for each in self._found() if each.mtime and each.mtime < before)

    def _found(self) -> list[pa_fs.FileInfo]:
        try:
            return list(self._store.get_file_info(pa_fs.FileSelector("", allow_not_found=True)))
        except OSError:
            return []
