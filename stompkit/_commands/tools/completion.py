"""``stompkit completion``."""

from __future__ import annotations

import argparse
from typing import Final

from stompkit._common.arguments import Parser

__all__ = ["main", "parser"]

_EPILOG: Final = """\
The script contains the commands of the installed version. Generate it again after an update.

  bash   stompkit completion bash > ~/.local/share/bash-completion/completions/stompkit
  zsh    stompkit completion zsh > ~/.zfunc/_stompkit        with fpath+=~/.zfunc before compinit
  fish   stompkit completion fish > ~/.config/fish/completions/stompkit.fish

To load it into the current shell: source <(stompkit completion bash), in zsh after compinit; in
fish: stompkit completion fish | source

exit status: 0 success; 2 wrong command line
"""


def parser() -> argparse.ArgumentParser:
    """Return the command's parser."""
    parser = Parser(
        prog="stompkit completion",
        description="Print a completion script for bash, zsh or fish.",
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
