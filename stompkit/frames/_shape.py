"""The command and the header names that several heads have in common."""

from __future__ import annotations

from typing import final

__all__ = ["Shape"]


@final
class Shape:
    """A command with header names in their order, each of which occurs once.

    ``note`` is for the owner of the decoder, to keep what follows from the names.
    """

    __slots__ = ("colons", "command", "note", "places", "prefixes")

    def __init__(self, command: str, names: list[str]) -> None:
        """Create a shape from names without escape sequences."""
        self.command = command
        #: The beginning of each line.
        self.prefixes = [command, *[f"{name}:" for name in names]]
        #: Number of colons in a head without escape sequences in its names.
        self.colons = len(names)
        #: The line number of each header; the command is line 0.
        self.places = {name: index for index, name in enumerate(names, 1)}
        self.note: object = None

    def fits(self, lines: list[str]) -> bool:
        """Return True if the lines of a head have this command and these names."""
        prefixes = self.prefixes
        if len(lines) != len(prefixes) or lines[0] != self.command:
            return False
        # When compiled, this loop is faster than a comparison of lists.
        for index in range(1, len(prefixes)):
            if not lines[index].startswith(prefixes[index]):
                return False
        return True
