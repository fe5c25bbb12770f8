"""Launch any broker by its command."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from string import Formatter
from typing import Final

from stompkit.testing.launching.brokers.launcher import Prepared, inherited_environment
from stompkit.testing.launching.config import LaunchConfig
from stompkit.testing.launching.errors import BrokerError

__all__ = ["PREFIX", "Command"]

#: Prefix of the name of a broker that is given by its command.
PREFIX: Final = "command:"
_EXAMPLE: Final = f"as in {PREFIX}/opt/mq/bin/mq --port {{port}}"


class Command:
    """A broker given by a command that stays in the foreground and runs on the test machine."""

    chooses_port = False
    versions = "1.0,1.1,1.2"
    start_timeout_s = 60.0
    login: str | None = None
    passcode: str | None = None
    # Unknown for a command, so persistence is assumed.
    features = frozenset({"persistent"})

    def __init__(self, command: str) -> None:
        """Parse a command with placeholders; raises BrokerError for an invalid one."""
        try:
            self._words = shlex.split(command)
        except ValueError as error:
            raise BrokerError(f"{PREFIX}{command}: {error}") from error
        if not any("{port}" in word for word in self._words):
            raise BrokerError(
                f"{PREFIX} takes a command that tells its broker where to listen, {_EXAMPLE}"
            )
        # A restart may happen after the tests have changed their directory.
        self._directory = Path.cwd()

    @property
    def name(self) -> str:
        """The name of the broker: its program."""
        return Path(self._words[0]).name

    def vhost(self, config: LaunchConfig) -> str:
        """Return the address, which most brokers with virtual hosts accept."""
        return config.host

    def missing(self) -> str | None:
        """Return None: a missing program is an error in the command."""
        return None

    def prepare(
        self, config: LaunchConfig, directory: Path, take_port: Callable[[], int]
    ) -> Prepared:
        """Replace the placeholders."""
        settings = {
            "port": str(config.port),
            "host": config.host,
            "directory": str(directory),
            "login": config.login or "",
            "passcode": config.passcode or "",
        }
        program, *arguments = (self._filled(word, settings) for word in self._words)
        # A name without a slash is searched on PATH, as by a shell.
        found = shutil.which(str(self._directory / program) if "/" in program else program)
        if found is None:
            raise BrokerError(
                f"there is no program {program!r} on PATH: correct the command in --mq-broker or"
                " LaunchConfig(name=...)"
            )
        command = [found, *arguments, *config.arguments]
        return Prepared(command, inherited_environment(), working_directory=self._directory)

    @staticmethod
    def _filled(word: str, settings: dict[str, str]) -> str:
        """Return one word of the command with its placeholders replaced."""
        try:
            fields = [field for _, field, _, _ in Formatter().parse(word) if field is not None]
        except ValueError as error:
            raise BrokerError(
                f"{word!r} is no word of a command: {error}; a brace is written twice"
            ) from error
        for field in fields:
            if field not in settings:
                known = ", ".join(f"{{{name}}}" for name in settings)
                raise BrokerError(
                    f"{word!r} has {{{field}}}, which stands for nothing; there are {known}, and a "
                    "brace of the command's own is written twice"
                )
        return word.format_map(settings)
