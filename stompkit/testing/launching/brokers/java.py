"""Facts and the command that launchers of Java programs share: ActiveMQ and Artemis."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

from stompkit.testing.launching.config import LaunchConfig

__all__ = ["JavaLauncher", "java_command"]


class JavaLauncher:
    """The facts that are the same for these brokers."""

    chooses_port = False
    versions = "1.0,1.1,1.2"
    start_timeout_s = 60.0
    login: str | None = None
    passcode: str | None = None
    features = frozenset({"persistent"})

    def __init__(self, version: str = "") -> None:
        """Launch this version; by default the installed one, else the newest that was fetched."""
        self._version = version

    def vhost(self, config: LaunchConfig) -> str:
        """Return the default: these brokers have no virtual hosts."""
        return config.host


def java_command(
    config: LaunchConfig, directory: Path, properties: Mapping[str, object]
) -> list[str]:
    """Return the beginning of a command: Java, its options, and system properties.

    Java's temporary files are in *directory*. The class path and the main class have to follow.
    """
    temporary = directory / "tmp"
    temporary.mkdir(exist_ok=True)
    # Otherwise the JVM writes a file to the system's temporary directory.
    command = [shutil.which("java") or "java", "-Xmx512m", "-XX:-UsePerfData", *config.arguments]
    all_properties = {**properties, "java.io.tmpdir": temporary}
    return command + [f"-D{name}={value}" for name, value in all_properties.items()]
