"""``stompkit completion``."""

from __future__ import annotations

import argparse
from typing import Final

from stompkit._common.arguments import Parser

__all__ = ["main", "parser"]

_EPILOG: Final = """\
What is printed is a file for the shell, made of the commands that are installed; make it anew
after an update.

  bash   stompkit completion bash > ~/.local/share/bash-completion/completions/stompkit
  zsh    stompkit completion zsh > ~/.zfunc/_stompkit        with fpath+=~/.zfunc before compinit
  fish   stompkit completion fish > ~/.config/fish/completions/stompkit.fish

For the shell that runs already: source <(stompkit completion bash), with zsh after compinit; in
fish: stompkit completion fish | source

exit status: 0; 2 the command line is wrong
"""


def parser() -> argparse.ArgumentParser:
    """Return the command's parser."""
    parser = Parser(
        prog="stompkit completion",
        description="Print what makes a shell complete commands and options.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "shell", metavar="SHELL", choices=("bash", "zsh", "fish"), help="bash, zsh or fish"
    )
    return parser


def main(arguments: list[str]) -> int:
    """Print a script."""
    options = parser().parse_args(arguments)
    from stompkit._commands.tools.completing import script

    print(script(options.shell), end="")
    return 0
