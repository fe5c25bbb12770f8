"""Parsers of command lines that report a mistake in one line."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from shlex import quote as quoted
from typing import Final, NoReturn, TypeVar

from stompkit._common.addresses import has_scheme
from stompkit._common.secrets import mask_url
from stompkit._common.spelling import did_you_mean

__all__ = ["Parser", "Subcommands", "argument_type", "is_path", "positive"]

_Value = TypeVar("_Value")

#: The start of argparse's message about missing arguments.
_REQUIRED: Final = "the following arguments are required: "
#: Names of arguments that are paths, beside those of the type Path.
_PATHS: Final = frozenset({"DIR", "DIRECTORY", "FILE", "FOLDER", "SPOOL", "STORE"})
#: Those of them that can also be URLs.
_URLS: Final = frozenset({"SPOOL", "STORE"})


def is_path(action: argparse.Action) -> bool:
    """Return True if the value of an argument is the path of a file or a directory."""
    return action.type is Path or action.metavar in _PATHS


def positive(text: str) -> int:
    """Parse a positive integer."""
    if not (text.isascii() and text.isdecimal() and 0 < int(text) < 2**31):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of 1 or more")
    return int(text)


def argument_type(
    parse: Callable[[str], _Value], problem: type[Exception] = ValueError
) -> Callable[[str], _Value]:
    """Return a type of argument that reports the text of an error (default: ValueError)."""

    def value(text: str) -> _Value:
        try:
            return parse(text)
        except problem as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return value


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are one line, with the closest name for a misspelt one."""

    #: Options that users of similar programs expect, with what to write instead.
    others: Mapping[str, str] = {}
    #: What to write instead of an argument too many; ``{}`` stands for that argument.
    spare = ""
    #: What to do if the URL of a database is given where a path is needed.
    instead_of_url = ""
    _given: Sequence[str] = ()

    def error(self, message: str) -> NoReturn:
        """Print the mistake, and where help is; exit with the status 2."""
        message = re.sub(r"^argument (\S+): ", lambda found: f"{self._name(found[1])}: ", message)
        if message.startswith(_REQUIRED):
            names = message.removeprefix(_REQUIRED).split(", ")
            message = f"missing: {', '.join(map(self._with_value, names))}"
        end = "" if message.endswith((".", "?")) else "."
        self.exit(2, f"{self.prog}: {message}{end} See {self.prog} --help\n")

    def _with_value(self, name: str) -> str:
        """Return the name of an option with that of its value, if it is an option."""
        for action in self._actions:
            if name in action.option_strings and isinstance(action.metavar, str):
                return f"{name} {action.metavar}"
        return name

    def _name(self, names: str) -> str:
        """Return that of an option's names that was given, or the first long one."""
        every = names.split("/")
        given = {each.partition("=")[0] for each in self._given}
        long = [each for each in every if not re.fullmatch(r"-\w", each)]
        return next((each for each in every if each in given), (long or every)[0])

    def parse_known_args(  # type: ignore[override]  # as below
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Parse arguments; also return those that are unknown."""
        self._given = sys.argv[1:] if args is None else args
        return super().parse_known_args(args, namespace)

    def parse_args(  # type: ignore[override]  # argparse has overloads, and the same result
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> argparse.Namespace:
        """Parse arguments; an unknown one is an error that names the closest option."""
        found, unknown = self.parse_known_args(args, namespace)
        self._refuse(unknown, args)
        return found

    def parse_intermixed_args(  # type: ignore[override]  # as above
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> argparse.Namespace:
        """Parse arguments like :meth:`parse_args`, with options among the others."""
        found, unknown = self.parse_known_intermixed_args(args, namespace)
        self._refuse(unknown, args)
        return found

    def _refuse(self, unknown: Sequence[str], args: Sequence[str] | None) -> None:
        if unknown:
            parser = self._chosen(sys.argv[1:] if args is None else args)
            parser.error(parser._unknown(unknown[0]))

    def _chosen(self, arguments: Sequence[str]) -> Parser:
        """Return the parser of the subcommand that the arguments name, or this one."""
        for action in self._actions:
            if isinstance(action, argparse._SubParsersAction):
                for argument in arguments:
                    if argument in action.choices:
                        chosen: Parser = action.choices[argument]
                        return chosen
        return self

    def _unknown(self, argument: str) -> str:
        if not argument.startswith("-"):
            hint = ""
            if self.spare and not has_scheme(argument):
                hint = f"; write {self.spare.format(quoted(argument))}"
            return f"there is one argument too many: {argument!r}{hint}"
        name = argument.partition("=")[0]
        if name in self.others:
            return f"there is no option {name}; write {self.others[name]}"
        return f"there is no option {name}{did_you_mean(name, list(self._options()))}"

    def _get_values(self, action: argparse.Action, arg_strings: list[str]) -> object:
        """Return the values of an argument; an empty path is not the current directory."""
        if is_path(action):
            if "" in arg_strings:
                raise argparse.ArgumentError(action, "the path is empty")
            for text in filter(has_scheme, arg_strings if action.metavar not in _URLS else ()):
                problem = f"{mask_url(text)!r} is a URL, but a path on this machine is needed"
                if self.instead_of_url:
                    problem += f". {self.instead_of_url}"
                raise argparse.ArgumentError(action, problem)
        return super()._get_values(action, arg_strings)

    def _options(self) -> Iterator[str]:
        for action in self._actions:
            if action.help != argparse.SUPPRESS:
                yield from action.option_strings

    def _check_value(self, action: argparse.Action, value: object) -> None:
        """Raise ArgumentError for a value that is not among the choices of an argument."""
        if action.choices is None or value in action.choices:
            return
        choices = [str(each) for each in action.choices]
        advice = did_you_mean(str(value), choices)
        problem = f"{str(value)!r} is not one of {', '.join(choices)}{advice}"
        raise argparse.ArgumentError(action, problem)


class Subcommands:
    """Adds commands below a command, each with a help of its own."""

    def __init__(self, parser: argparse.ArgumentParser) -> None:
        """Add commands to this parser: an argument chooses one."""
        self._commands: Final = parser.add_subparsers(metavar="COMMAND", required=True)

    def add(
        self, name: str, what: str, *, epilog: str | None = None, **defaults: object
    ) -> argparse.ArgumentParser:
        """Add a command, and return its parser; ``defaults`` become attributes of the options."""
        command = self._commands.add_parser(
            name,
            help=what,
            description=f"{what[:1].upper()}{what[1:]}.",
            epilog=epilog,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        command.set_defaults(**defaults)
        return command
