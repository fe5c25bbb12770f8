"""Non-negative numbers in the values of headers."""

from __future__ import annotations

__all__ = ["parse_number"]


def parse_number(text: str, most_digits: int) -> int | None:
    """Return the number that ASCII digits represent; ``None`` for any other text.

    Leading zeros do not count. A number with more than ``most_digits`` other digits also gives
    ``None``, so that the length of the text does not determine the run time.
    """
    if not (text.isdigit() and text.isascii()):
        return None
    if len(text) > most_digits:
        text = text.lstrip("0")
        if len(text) > most_digits:
            return None
    return int(text or "0")
