"""The log of a command on standard error."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from stompkit._common.text import shown_lines

__all__ = ["start_log"]

_FORMAT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class _Formatter(logging.Formatter):
    """Formats records without secrets, since libraries may quote a URL.

    Control characters are escaped: a server may have sent the text.
    """

    def __init__(self, without_secrets: Callable[[str], str]) -> None:
        super().__init__(_FORMAT)
        self._without_secrets = without_secrets

    def format(self, record: logging.LogRecord) -> str:
        return shown_lines(self._without_secrets(super().format(record)))


def start_log(level: int, without_secrets: Callable[[str], str] = str) -> None:
    """Log to standard error from a level on; ``without_secrets`` masks secrets in a text."""
    handler = logging.StreamHandler()
    handler.setFormatter(_Formatter(without_secrets))
    logging.basicConfig(level=level, handlers=[handler])
