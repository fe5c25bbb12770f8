"""Outline of commands and options, for completion and documentation."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass, field

from stompkit._commands import COMMANDS, command_of
from stompkit._common.arguments import is_path

__all__ = ["Option", "Outline", "outline", "parsers"]


@dataclass(frozen=True)
class Option:
    """An option, or a positional argument."""

    names: tuple[str, ...]
    """Names with their dashes; empty for a positional argument."""
    help: str
    metavar: str
    """Placeholder of the value; empty for an option without a value."""
    choices: tuple[str, ...]
    is_file: bool


@dataclass(frozen=True)
class Outline:
    """A command or a subcommand."""

    words: tuple[str, ...]
    """Words of the command, such as ``("store", "check")``; empty for ``stompkit`` itself."""
    help: str
    options: tuple[Option, ...] = ()
    arguments: tuple[Option, ...] = ()
    commands: tuple[Outline, ...] = field(default=())

    def all(self) -> Iterator[Outline]:
        """Yield the command and all of its subcommands."""
        yield self
        for each in self.commands:
            yield from each.all()


def parsers() -> Iterator[tuple[str, argparse.ArgumentParser | None]]:
    """Yield all commands with their parsers; ``None`` if a required package is missing."""
    for name in COMMANDS:
        try:
            yield name, command_of(name).parser()
        except ModuleNotFoundError:
            yield name, None


def outline() -> Outline:
    """Return the outline of all commands."""
    general = (
        Option(("--help", "-h"), "show a help message and exit", "", (), is_file=False),
        Option(("--version",), "the same as the command version", "", (), is_file=False),
    )
    commands = tuple(
        Outline((name,), COMMANDS[name].description)
        if parser is None
        else _outline((name,), COMMANDS[name].description, parser)
        for name, parser in parsers()
    )
    return Outline((), "STOMP for Python", general, (), commands)


def _outline(words: tuple[str, ...], text: str, parser: argparse.ArgumentParser) -> Outline:
    options: list[Option] = []
    arguments: list[Option] = []
    commands: list[Outline] = []
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            helps = {each.dest: each.help or "" for each in action._choices_actions}
            commands += [
                _outline((*words, name), helps.get(name, ""), inner)
                for name, inner in action.choices.items()
            ]
        elif action.option_strings:
            if action.help != argparse.SUPPRESS:
                options.append(_option(action))
        else:
            arguments.append(_option(action))
    return Outline(words, text, tuple(options), tuple(arguments), tuple(commands))


def _option(action: argparse.Action) -> Option:
    metavar = ""
    if action.nargs != 0:
        words = action.metavar
        metavar = words if isinstance(words, str) else " ".join(words or ()) or action.dest.upper()
    return Option(
        tuple(sorted(action.option_strings, key=len, reverse=True)),
        "" if action.help in (None, argparse.SUPPRESS) else str(action.help).replace("%%", "%"),
        metavar,
        tuple(str(each) for each in action.choices or ()),
        is_file=is_path(action),
    )
