"""``stompkit pause``."""

from __future__ import annotations

import argparse

from stompkit._commands.queues.pausing import pausing, pausing_parser

__all__ = ["main", "parser"]


def parser() -> argparse.ArgumentParser:
    """Return the command's parser."""
    return pausing_parser("pause", "Stop the deliveries of queues of a stompkit broker.")


def main(arguments: list[str]) -> int:
    """Pause queues."""
    return pausing("pause", parser().parse_args(arguments))
