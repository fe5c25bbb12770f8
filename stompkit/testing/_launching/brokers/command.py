"""Launch any broker by its command."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from string import Formatter
from typing import Final

from stompkit.testing._launching.brokers._launcher import Prepared, inherited_environment
from stompkit.testing._launching.config import LaunchConfig
from stompkit.testing._launching.errors import BrokerError

__all__ = ["PREFIX", "Command"]

#: What the name of a broker begins with that is given by its command.
PREFIX: Final = "command:"
_EXAMPLE: Final = f"as in {PREFIX}/opt/mq/bin/mq --port {{port}}"


class Command:
    """A broker by a command that stays in the foreground, run where the tests are."""

    chooses_port = False
    versions = "1.0,1.1,1.2"
    start_timeout_s = 60.0
    login: str | None = None
    passcode: str | None = None
    # Nobody can tell, so it is taken for granted.
    features = frozenset({"persistent"})

    def __init__(self, command: str) -> None:
        """Take a command with placeholders; raises BrokerError for one that makes no sense."""
        try:
            self._words = shlex.split(command)
        except ValueError as error:
            raise BrokerError(f"{PREFIX}{command}: {error}") from error
        if not any("{port}" in word for word in self._words):
            raise BrokerError(
                f"{PREFIX} takes a command that tells its broker where to listen, {_EXAMPLE}"
            )
        # It may be run again when the tests have gone elsewhere.
        self._directory = Path.cwd()

    @property
    def name(self) -> str:
        """What to call the broker: its program."""
        return Path(self._words[0]).name

    def vhost(self, config: LaunchConfig) -> str:
        """The address, which is what most brokers go by, if they do."""
        return config.host

    def missing(self) -> str | None:
        """Nothing: a program that is named and is not there is a mistake."""
        return None

    def prepare(
        self, config: LaunchConfig, directory: Path, take_port: Callable[[], int]
    ) -> Prepared:
        """Put the settings in."""
        settings = {
            "port": str(config.port),
            "host": config.host,
            "directory": str(directory),
            "login": config.login or "",
            "passcode": config.passcode or "",
        }
        program, *arguments = (self._filled(word, settings) for word in self._words)
        # Without a slash it is looked for on PATH, as a shell does.
        found = shutil.which(self._directory / program if "/" in program else program)
        if found is None:
            raise BrokerError(f"there is no program {program!r} to run")
        command = [found, *arguments, *config.arguments]
        return Prepared(command, inherited_environment(), working_directory=self._directory)

    @staticmethod
    def _filled(word: str, settings: dict[str, str]) -> str:
        """One word of the command with the settings in it."""
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
