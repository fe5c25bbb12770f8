"""``stompkit resume``."""

from __future__ import annotations

import argparse

from stompkit._commands.queues.pausing import pausing, pausing_parser

__all__ = ["main", "parser"]


def parser() -> argparse.ArgumentParser:
    """Return the command's parser."""
    return pausing_parser("resume", "Resume the deliveries of paused queues of a stompkit broker.")


def main(arguments: list[str]) -> int:
    """Resume queues."""
    return pausing("resume", parser().parse_args(arguments))
