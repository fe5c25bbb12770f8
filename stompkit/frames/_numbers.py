"""Non-negative numbers in the values of headers."""

from __future__ import annotations

__all__ = ["parse_number"]


def parse_number(text: str, most_digits: int) -> int | None:
    """The number that ASCII digits stand for; ``None`` for any other text.

    Leading zeros do not count. A number of more than ``most_digits`` other digits is ``None``,
    too, so that the length of the text does not decide how long this takes.
    """
    if not (text.isascii() and text.isdigit()):
        return None
    digits = text.lstrip("0")
    if len(digits) > most_digits:
        return None
    return int(digits or "0")
