"""``stompkit conformance``: the same as ``python -m stompkit.conformance``."""

from __future__ import annotations

import argparse
import sys

__all__ = ["main", "parser"]


def parser() -> argparse.ArgumentParser:
    """Return the command's parser; raises ModuleNotFoundError without pytest."""
    from stompkit.conformance.__main__ import parser as made

    return made()


def main(arguments: list[str]) -> int:
    """Pass the arguments to the test suite."""
    try:
        from stompkit.conformance.__main__ import main as run
    except ModuleNotFoundError as error:
        if error.name != "pytest":
            raise
        print(error, file=sys.stderr)
        return 4
    return run(arguments)
