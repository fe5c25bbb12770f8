"""Writes the reference of all commands, ``commands.rst``, from the parsers of their options.

Run it after a change of a command or of its help; ``--check`` changes nothing, and exits with 1
where the file differs from the parsers.
"""

from __future__ import annotations

import argparse
import re
import sys
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from stompkit._commands import COMMANDS
from stompkit._commands.tools.outline import parsers

__all__ = ["main"]

_NAME: Final = "commands.rst"
_STATUS: Final = "exit status:"
_WIDTH: Final = 92
#: Column where the description of an option starts.
_COLUMN: Final = 26
_INTRODUCTION: Final = """\
.. Made by docs/make_commands.py from the parsers of the commands: change those instead.

The commands
============

``stompkit COMMAND --help`` says what stands here, too; ``python -m stompkit`` is the same as
``stompkit``. In the background Twisted runs the broker: ``twistd stompkit --help``, `The broker
<broker.rst>`__.

::

    stompkit send /queue/orders hello                   # any broker: $STOMPKIT_URL, or --mq URL
    stompkit receive /queue/orders --json
    stompkit tap --to mq.example:61613                  # see every frame
    stompkit queues --admin localhost:15613 --watch     # a stompkit broker with --admin
    source <(stompkit completion bash)                  # or zsh, or fish

``--json``, where a command has it, is for programs: one document, or one in each line. Progress and
colours are for terminals only; ``NO_COLOR`` in the environment means no colours.

.. contents::
   :local:
   :depth: 1
"""
_STATUSES: Final = """\
Exit statuses
-------------

In general 0 means that all is well, 1 that something is wrong, which was said on standard error, 2
that the command line is, and 130 that the command was interrupted. One that was ended because
nobody reads its output any more has 141.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the file, or check it; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing, compare")
    parser.add_argument(
        "--into",
        type=Path,
        default=Path(__file__).parent / "reference",
        metavar="DIR",
        help="where it is",
    )
    options = parser.parse_args(arguments)
    path = options.into / _NAME
    text = page()
    if not options.check:
        path.write_text(text, encoding="utf-8")
    elif not path.exists() or path.read_text(encoding="utf-8") != text:
        print(f"{path} is not what make_commands.py makes of the parsers", file=sys.stderr)
        return 1
    return 0


def page() -> str:
    """Return the page of the manual."""
    made = [(name, parser) for name, parser in parsers() if parser is not None]
    lines = [_INTRODUCTION]
    for name, parser in made:
        lines += _section(name, parser)
    lines += _statuses(made)
    return "\n".join(lines).rstrip("\n") + "\n"


def _section(name: str, parser: argparse.ArgumentParser) -> Iterator[str]:
    title = f"``stompkit {name}``"
    yield f"{title}\n{'-' * len(title)}\n"
    what = COMMANDS[name].description
    yield f"{what[:1].upper()}{what[1:]}. ::\n"
    yield _help(parser)
    for inner in _inner(parser):
        yield f"``{inner.prog}`` ::\n"
        yield _help(inner)


def _help(parser: argparse.ArgumentParser) -> str:
    """Return the output of --help, in a form that does not depend on the version of Python."""
    lines = [f"{' '.join([parser.prog, *_arguments(parser)])}", ""]
    for action in parser._actions:
        if action.help == argparse.SUPPRESS or isinstance(action, argparse._HelpAction):
            continue
        if isinstance(action, argparse._SubParsersAction):
            lines += [_option(each.dest, each.help or "") for each in action._choices_actions]
            continue
        expanded = parser._get_formatter()._expand_help(action) if action.help else ""
        lines.append(_option(_called(action), expanded))
    if lines[-1]:
        lines.append("")
    lines += (parser.epilog or "").splitlines()
    return "\n".join(f"    {line}".rstrip() for line in "\n".join(lines).splitlines()) + "\n"


def _arguments(parser: argparse.ArgumentParser) -> Iterator[str]:
    """Yield the arguments after the name of a command."""
    if any(action.option_strings for action in parser._actions):
        yield "[options]"
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            yield "COMMAND ..."
        elif not action.option_strings and action.help != argparse.SUPPRESS:
            yield _value(action)


def _called(action: argparse.Action) -> str:
    """Return an option with its names and the placeholder of its value, or an argument."""
    value = "" if action.nargs == 0 else _value(action)
    return " ".join(filter(None, [", ".join(action.option_strings), value]))


def _value(action: argparse.Action) -> str:
    said = action.metavar
    if said is None:
        choices = "|".join(str(each) for each in action.choices or ())
        said = choices or (action.dest.upper() if action.option_strings else action.dest)
    text = said if isinstance(said, str) else " ".join(said)
    if action.nargs in ("?", "*"):
        return f"[{text}{' ...' if action.nargs == '*' else ''}]"
    return f"{text} ..." if action.nargs == "+" else text


def _option(name: str, text: str) -> str:
    """Return an entry: its name, and its description to the right or below."""
    blanks = " " * _COLUMN
    filled = textwrap.fill(
        " ".join(text.split()),
        _WIDTH,
        initial_indent=blanks,
        subsequent_indent=blanks,
        break_long_words=False,
        break_on_hyphens=False,
    )
    if len(name) + 4 <= _COLUMN:
        return f"  {name}".ljust(_COLUMN) + filled[_COLUMN:]
    return f"  {name}\n{filled}" if text else f"  {name}"


def _inner(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """Yield the parsers of all subcommands, recursively."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for each in action.choices.values():
                yield each
                yield from _inner(each)


def _statuses(made: Sequence[tuple[str, argparse.ArgumentParser]]) -> Iterator[str]:
    """Return a table of the exit statuses of each command."""
    yield _STATUSES
    yield ".. list-table::\n   :header-rows: 1\n   :widths: 20 80\n"
    yield "   * - Command\n     - Exit status"
    for name, parser in made:
        for each in (parser, *_inner(parser)):
            said = _status(each.epilog or "")
            if said:
                called = each.prog.removeprefix("stompkit ") if each is not parser else name
                yield f"   * - ``{called}``"
                filled = textwrap.fill(
                    said,
                    _WIDTH,
                    break_long_words=False,
                    break_on_hyphens=False,
                )
                yield "     - " + filled.replace("\n", "\n       ")
    yield ""


def _status(epilog: str) -> str:
    """Return the text after ``exit status:``, up to the end of the paragraph."""
    _, found, rest = epilog.partition(_STATUS)
    if not found:
        return ""
    text = rest.strip("\n").partition("\n\n")[0]
    if ";" not in text:  # each on a separate line
        text = re.sub(r"\n *(?=\d)", "; ", text.strip())
    text = " ".join(text.split())
    return text.replace("`", "").replace("*", "\\*").replace("|", "\\|")


if __name__ == "__main__":
    sys.exit(main())
