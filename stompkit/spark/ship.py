"""Takes stompkit to where Spark runs Python, and it is not installed."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipfile import ZIP_DEFLATED, ZipFile

import stompkit
from stompkit.spark._java import cache_folder, put

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from stompkit.spark.source import StompDataSource

__all__ = ["archive", "is_remote", "ship"]


def ship(spark: SparkSession) -> None:
    """Have the workers of a session, and the processes of its sources, import this stompkit.

    The same on a cluster and through Spark Connect, whose server need not have it either. What
    stompkit needs itself (Twisted, msgspec, pyarrow) has to be installed where it is taken to:
    that is compiled for a machine. Where that can be installed stompkit can, too, which is better;
    this is for a version that is not released. Call it before the first query.

    One thing is not reached: a function for ``foreachBatch`` of Spark Connect runs in a process of
    the server that takes no files, so what it imports has to be installed there.
    """
    made = archive()
    if is_remote(spark):
        spark.addArtifacts(str(made), pyfile=True)
    else:
        spark.sparkContext.addPyFile(str(made))
    # A source takes with it the files that there are when it is registered.
    spark.dataSource.register(_shipped(made.name))


def archive() -> Path:
    """The package as a zip file, which Python imports from: also for ``--py-files``."""
    package = Path(stompkit.__file__).parent
    octets = BytesIO()
    with ZipFile(octets, "w", ZIP_DEFLATED) as file:
        for path in sorted(package.rglob("*")):
            if path.is_file() and path.suffix != ".pyc":
                file.write(path, Path(package.name) / path.relative_to(package))
        finder = package.parent / "pyspark_stompkit.py"
        file.write(finder, finder.name)
    content = octets.getvalue()
    # Executors fetch it for as long as the session lives: no other version may take its place.
    digest = hashlib.sha256(content).hexdigest()[:16]
    made = cache_folder() / f"stompkit-{stompkit.__version__}-{digest}.zip"
    put(made, content)
    return made


def _shipped(name: str) -> type[StompDataSource]:
    """The format ``stomp`` for processes that have not been told where a shipped file is.

    Spark takes the file to all machines, but the process of a streaming source looks into another
    folder than the file is in, and so do the tasks of a stream of Spark Connect. What is defined
    in a function is sent as it is, and not as the name of something to import, so it can look
    around before anything is imported.
    """
    from stompkit.spark.source import StompDataSource

    def restore(options: dict[str, str]) -> StompDataSource:
        """Make a source where it has been sent to."""
        import sys
        from pathlib import Path

        from pyspark import SparkFiles

        # Beside the folder that is looked into, above it, or in one that a session has in it.
        root = Path(SparkFiles.getRootDirectory()).resolve()
        for place in (root, root.parent):
            for path in (*place.glob(name), *place.glob(f"*/{name}")):
                if str(path) not in sys.path:
                    sys.path.insert(1, str(path))
        from stompkit.spark.ship import _shipped as shipped

        return shipped(name)(options)

    class Shipped(StompDataSource):
        """Is restored by the function above."""

        def __reduce__(self) -> tuple[Callable[[dict[str, str]], StompDataSource], tuple[Any]]:
            return restore, (self.options,)

    return Shipped


def is_remote(spark: object) -> bool:
    """Whether a session is one of Spark Connect, which has no context."""
    return type(spark).__module__.startswith("pyspark.sql.connect")
