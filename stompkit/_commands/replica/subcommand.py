"""The contract of a subcommand of ``stompkit replica``; importing it needs no library."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Literal, NamedTuple

from stompkit._common.secrets import mask

__all__ = ["Command", "ReplicaUsageError", "hide"]


class ReplicaUsageError(Exception):
    """An invalid command line or file; ``str()`` says what to change."""


class Command(NamedTuple):
    """A command of ``stompkit replica``."""

    arguments: Callable[[argparse.ArgumentParser], object]
    """Function that adds the command's arguments to a parser."""
    work: Callable[[argparse.Namespace], int]
    """Function that runs the command; returns the exit status."""
    more: str
    """End of the help text, with at least one example."""
    shared: Literal["settings", "database", "nothing"] = "database"
    """Additional options: all settings, or those that locate the database."""


def hide(text: str, options: argparse.Namespace) -> str:
    """Return a text with the secrets of the command's URLs masked; libraries may quote them."""
    return mask(text, vars(options).get("secrets", ()))
