"""The Java process with Debezium's embedded engine."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from benchmarks._report import broken
from tests import maven

__all__ = ["Engine", "application"]

#: Lines of the log that an error shows.
_LOG_LINES: Final = 20


def application() -> Path:
    """Return the folder with the program's archives, built by Maven; raises BuildMissing."""
    return maven.build(Path(__file__).parent, "application")


class Engine:
    """A Java virtual machine that runs the engine when it is called."""

    def __init__(self, application: Path, log: Path, options: list[str]) -> None:
        """Start it with ``options`` of Java; the engine does not run yet."""
        self._log = log
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                [
                    "java",
                    *options,
                    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
                    "-cp",
                    f"{application}/*",
                    "stompkit.debezium.Driver",
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )

    def run(
        self, settings: Mapping[str, str], rows: int, broker: Mapping[str, object] | None
    ) -> dict[str, Any]:
        """Run the engine until it has delivered all rows; return the answer of the driver."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(json.dumps({"settings": settings, "rows": rows, "broker": broker}) + "\n")
        stdin.flush()
        answer: dict[str, Any] = json.loads(stdout.readline() or '{"error": "it has ended"}')
        if "error" in answer:
            lines = self._log.read_text(encoding="utf-8", errors="replace").splitlines()
            shown = "\n".join(lines[-_LOG_LINES:])
            raise broken(f"the engine has failed: {answer['error']}\n{shown}")
        return answer

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End the process."""
        self._process.kill()
        self._process.communicate()
