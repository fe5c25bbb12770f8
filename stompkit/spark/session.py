"""A Spark session that requires only installed Python packages."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Literal

import pyspark
from pyspark.sql import SparkSession

from stompkit._common.files import make_directory, user_caches
from stompkit._common.moved import renamed
from stompkit.spark.class_archive import archive_options, writes_archive
from stompkit.spark.java import SparkError, find_java_home, put

__all__ = ["SparkError", "spark_session", "writes_archive"]

#: Configuration of every session; ``config`` overrides it.
_CONFIG: Final = {
    # Times in changesets have a zone; the zone of this machine must have no effect.
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # The default manager takes half of the time of a small batch, since it starts processes for
    # permissions; this one also writes files by renaming.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing"
        ".FileSystemBasedCheckpointFileManager"
    ),
}
#: Setting with options for the JVM of the driver; ``extraJavaOptions`` is left to users.
_DRIVER_JAVA: Final = "spark.driver.defaultJavaOptions"
#: Java options that halve the start time of the JVM, and reduce its speed later.
_QUICK_JAVA: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_TEST_CONFIG: Final = {
    "spark.driver.extraJavaOptions": _QUICK_JAVA,
    "spark.executor.extraJavaOptions": _QUICK_JAVA,
    "spark.log.level": "ERROR",
}
#: Spark's default configuration logs its setup and missing optional features at each start.
_LOGGING: Final = """\
rootLogger.level = warn
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{yyyy-MM-dd HH:mm:ss} %p %c{1}: %m%n%ex
logger.native.name = org.apache.hadoop.util.NativeCodeLoader
logger.native.level = error
"""
_LOGGING_PATH: Final = Path("conf", "log4j2.properties")
_LOOPBACK: Final = "127.0.0.1"
#: Variables for the start of the JVM. A ``spark-submit`` of this process must not have them.
_VARIABLES: Final = ("SPARK_CONF_DIR", "SPARK_HOME", "SPARK_LOCAL_IP")


def spark_session(
    name: str = "stompkit",
    *,
    master: str | None = None,
    config: Mapping[str, str] | None = None,
    remote: str | None = None,
    profile: Literal["default", "test"] = "default",
    archives_classes: bool = False,
) -> SparkSession:
    """Return the existing session or a new one.

    ``master`` is the Spark master, by default ``local[*]`` or the choice of ``spark-submit``;
    ``remote`` is the URL of a Spark Connect server instead. ``config`` overrides all other
    settings. The profile ``test`` halves the start time, and is slower later. With
    ``archives_classes`` the end of this process waits for the JVM to write an archive of its
    classes, once for each Java and version of Spark: later sessions start in half of the time.

    A new session also sets up the environment of this process: Python for the workers, and a Java
    (see :class:`SparkError`). Spark's own variables, such as the loopback interface of a local
    session, are for its JVM only: programs that this process starts do not inherit them. The time
    zone is UTC. Raises :class:`SparkError` if there is no Java.
    """
    with _environment_kept():
        return _session(name, master, config, remote, profile, archives_classes=archives_classes)


@contextmanager
def _environment_kept() -> Iterator[None]:
    """Restore the variables that the start of a JVM reads."""
    before = {name: os.environ.get(name) for name in _VARIABLES}
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _session(
    name: str,
    master: str | None,
    config: Mapping[str, str] | None,
    remote: str | None,
    profile: Literal["default", "test"],
    *,
    archives_classes: bool,
) -> SparkSession:
    settings = dict(_CONFIG)
    builder: SparkSession.Builder = SparkSession.builder
    builder = builder.appName(name)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    is_submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    options = ""
    if remote is not None:
        if remote.startswith("local"):
            options = _prepare_process(archives_classes=archives_classes)
        builder = builder.remote(remote)
    else:
        if not is_submitted:
            master = master or "local[*]"
            options = _prepare_process(archives_classes=archives_classes)
        if master is not None:
            builder = builder.master(master)
            if master.startswith("local"):
                # Otherwise Spark listens on the address of the host name, open to all.
                os.environ.setdefault("SPARK_LOCAL_IP", _LOOPBACK)
                settings |= {
                    "spark.driver.host": _LOOPBACK,
                    "spark.driver.bindAddress": _LOOPBACK,
                }
                # The default is 200 tasks for each shuffle.
                settings["spark.sql.shuffle.partitions"] = str(_cores(master))
    if profile == "test":
        settings |= _TEST_CONFIG
    if remote is not None and not remote.startswith("local"):
        # All other settings belong to the server's start; it would warn of each.
        settings = {key: value for key, value in settings.items() if key.startswith("spark.sql.")}
    settings |= config or {}
    if options:
        settings[_DRIVER_JAVA] = f"{options} {settings.get(_DRIVER_JAVA, '')}".rstrip()
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def _cores(master: str) -> int:
    """Return the number of concurrent tasks: that in ``local[N]``, or one for each processor."""
    inside = master.partition("[")[2].partition("]")[0].split(",")
    if all(each.isdecimal() for each in inside):
        # local[tasks,failures], or local-cluster[workers,cores,memory]
        is_cluster = master.startswith("local-cluster")
        return int(inside[0]) * int(inside[1]) if is_cluster else int(inside[0])
    return os.cpu_count() or 1 if "*" in inside[0] else 1


def _prepare_process(*, archives_classes: bool) -> str:
    """Set the environment for the JVM, and return options for it."""
    java_home = find_java_home()
    os.environ["JAVA_HOME"] = str(java_home)
    home = _spark_home()
    if os.environ.setdefault("SPARK_HOME", str(home)) != str(home):
        return ""
    # A class path with a folder has no archive of classes: the one with Spark's settings, which is
    # there for logging only, is replaced by a folder that does not exist.
    settings = str(home / "none")
    if os.environ.setdefault("SPARK_CONF_DIR", settings) != settings:
        return ""
    logging = (home / _LOGGING_PATH).as_uri()
    archived = archive_options(home, java_home, writes=archives_classes)
    return f"-Dlog4j2.configurationFile={logging} {archived}".rstrip()


def _spark_home() -> Path:
    """Return a home for Spark without its copy of PySpark, which workers would recompile each time.

    They import the installed package instead, which is identical and compiled.
    """
    package = Path(pyspark.__file__).parent
    digest = hashlib.sha256(str(package).encode()).hexdigest()[:16]
    home = user_caches() / f"spark-{pyspark.__version__}-{digest}"
    make_directory(home)
    for name in ("bin", "jars"):
        link = home / name
        if not link.exists():
            made = home / f"{name}.{os.getpid()}"
            made.unlink(missing_ok=True)
            made.symlink_to(package / name, target_is_directory=True)
            made.replace(link)
    put(home / _LOGGING_PATH, _LOGGING.encode())
    return home


renamed(
    __name__,
    SparkProblem="SparkError",
)
