"""Sending stompkit to Spark workers on which it is not installed."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipfile import ZIP_DEFLATED, ZipFile

import stompkit
from stompkit._common.files import user_caches
from stompkit.spark.java import put

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from stompkit.spark.source import StompDataSource

__all__ = ["archive", "is_remote", "ship"]


def ship(spark: SparkSession) -> None:
    """Make the workers of a session, and the processes of its sources, import this stompkit.

    This works on a cluster and through Spark Connect, whose server need not have stompkit either.
    The dependencies of stompkit (Twisted, msgspec, pyarrow) must be installed there, since they
    contain compiled code. A machine that can install them can also install stompkit, which is
    better; this function is for unreleased versions. Call it before the first query.

    There is one exception: a ``foreachBatch`` function of Spark Connect runs in a server process
    that accepts no files. The packages that it imports must be installed there.
    """
    made = archive()
    if is_remote(spark):
        spark.addArtifacts(str(made), pyfile=True)
    else:
        spark.sparkContext.addPyFile(str(made))
    # A source includes the files that exist when it is registered.
    spark.dataSource.register(_shipped(made.name))


def archive() -> Path:
    """Return the package as a zip file that Python can import, also for ``--py-files``."""
    package = Path(stompkit.__file__).parent
    octets = BytesIO()
    with ZipFile(octets, "w", ZIP_DEFLATED) as file:
        for path in sorted(package.rglob("*")):
            if path.is_file() and path.suffix != ".pyc":
                file.write(path, Path(package.name) / path.relative_to(package))
        finder = package.parent / "pyspark_stompkit.py"
        file.write(finder, finder.name)
    content = octets.getvalue()
    # Executors fetch it throughout the session: no other version may replace it.
    digest = hashlib.sha256(content).hexdigest()[:16]
    made = user_caches() / f"stompkit-{stompkit.__version__}-{digest}.zip"
    put(made, content)
    return made


def _shipped(name: str) -> type[StompDataSource]:
    """Return the format ``stomp`` for processes that do not find a shipped file.

    Spark copies the file to all machines. But the process of a streaming source looks in another
    folder, and so do the tasks of a Spark Connect stream. A class defined in a function is pickled
    by value, not as an import, so it can search for the file before any import.
    """
    from stompkit.spark.source import StompDataSource

    def restore(options: dict[str, str]) -> StompDataSource:
        """Create a source in the process that receives it."""
        import sys
        from pathlib import Path

        from pyspark import SparkFiles

        # The file is beside the search folder, above it, or in a session's subfolder.
        root = Path(SparkFiles.getRootDirectory()).resolve()
        for place in (root, root.parent):
            for path in (*place.glob(name), *place.glob(f"*/{name}")):
                if str(path) not in sys.path:
                    sys.path.insert(1, str(path))
        from stompkit.spark.ship import _shipped as shipped

        return shipped(name)(options)

    class Shipped(StompDataSource):
        """A data source that the function above restores."""

        def __reduce__(self) -> tuple[Callable[[dict[str, str]], StompDataSource], tuple[Any]]:
            return restore, (self.options,)

    return Shipped


def is_remote(spark: object) -> bool:
    """Return True if the session is one of Spark Connect, which has no context."""
    return type(spark).__module__.startswith("pyspark.sql.connect")
