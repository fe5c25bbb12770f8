"""Validation of the numbers and words in rules."""

from __future__ import annotations

import math

__all__ = ["check_number", "check_whole", "check_word"]


def check_whole(least: int, **values: int | None) -> None:
    """Raise ValueError for a number below ``least``, TypeError for a value of another type."""
    for name, value in values.items():
        if value is None:
            continue
        if type(value) is not int:
            raise TypeError(f"{name} is {value!r}, not a whole number")
        if value < least:
            raise ValueError(f"{name} is {value}, not {least} or more")


def check_number(least: float, most: float | None, **values: float | None) -> None:
    """Raise ValueError for a number out of range, TypeError for a value that is not a number."""
    for name, value in values.items():
        if value is None:
            continue
        if type(value) not in (int, float):
            raise TypeError(f"{name} is {value!r}, not a number")
        if not (least <= value < math.inf) or (most is not None and value > most):
            range_ = f"{least:g} or more" if most is None else f"{least:g} to {most:g}"
            raise ValueError(f"{name} is {value}, not {range_}")


def check_word(words: tuple[str, ...], **values: str) -> None:
    """Raise ValueError for an unknown word."""
    for name, value in values.items():
        if value not in words:
            raise ValueError(f"{name} is {value!r}, not {' or '.join(words)}")
