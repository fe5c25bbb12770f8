"""Clients that read or write headers in a wrong way."""

from __future__ import annotations

import re

from tests.conformance.minimal_frames import Lost
from tests.conformance.wrong_clients import Fault


class EscapesIn10(Fault):
    """Writes escapes that 1.0 does not have."""

    found_by = ("client/1.0/escape/left-alone", "client/1.0/ack/escapes")

    def escape(self, text: str) -> str:
        """Escape as 1.1 does."""
        if self.version != "1.0":
            return super().escape(text)
        return text.replace("\\", "\\\\").replace(":", "\\c")


class KnowsNoColon(Fault):
    r"""Takes ``\c`` for a ``c``."""

    found_by = ("client/1.[12]/escape/reads", "client/1.[12]/ack/escapes")

    def unescape(self, text: str) -> str:
        """Drop the backslash."""
        return super().unescape(text.replace("\\c", "c"))


class KnowsNoReturn(Fault):
    r"""Takes ``\r`` for a mistake."""

    found_by = ("client/1.2/escape/reads",)

    def unescape(self, text: str) -> str:
        """Stumble over it."""
        if "\\r" in text:
            raise Lost("undefined")
        return super().unescape(text)


class UnescapesInTheWrongOrder(Fault):
    """Undoes the escapes of backslashes when it has undone the others."""

    found_by = ("client/escape/reads-backslash",)

    def unescape(self, text: str) -> str:
        """Replace one after the other."""
        for sequence, plain in (("\\n", "\n"), ("\\c", ":"), ("\\r", "\r"), ("\\\\", "\\")):
            text = text.replace(sequence, plain)
        if "\t" in text or "\\t" in text:
            raise Lost("undefined")
        return text


class WritesRawColons(Fault):
    """Leaves colons as they are."""

    found_by = ("client/1.[12]/escape/writes", "client/1.[12]/ack/escapes")

    def escape(self, text: str) -> str:
        """Escape all the rest."""
        return super().escape(text).replace("\\c", ":")


class WritesRawBackslashes(Fault):
    """Leaves backslashes as they are."""

    found_by = (
        "client/escape/writes-backslash",
        "client/escape/names",
        "client/1.[12]/ack/escapes",
    )

    def escape(self, text: str) -> str:
        """Escape all the rest."""
        return super().escape(text).replace("\\\\", "\\")


class ReadsNamesAsTheyAre(Fault):
    """Undoes escapes in the values of headers, but not in their names."""

    found_by = ("client/escape/names",)

    def headers(self, command: str, lines: list[str]) -> dict[str, str]:
        """Escape the names once more, to have them as they were."""
        return {self.escape(n): value for n, value in super().headers(command, lines).items()}


class KeepsUndefinedEscapes(Fault):
    """Leaves what it does not know as it is."""

    found_by = ("client/escape/undefined",)

    def undefined(self, piece: str) -> str:
        """Put the backslash back."""
        return "\\" + piece


class ReadsLatin1(Fault):
    """Takes headers for Latin-1."""

    found_by = ("client/header/utf8",)

    def text(self, octets: bytes) -> str:
        """Read them so."""
        return octets.decode("latin-1")


class Trims(Fault):
    """Takes spaces off values."""

    found_by = ("client/header/spaces",)

    def headers(self, command: str, lines: list[str]) -> dict[str, str]:
        """Strip all values."""
        return {n: value.strip(" ") for n, value in super().headers(command, lines).items()}


class Pads(Fault):
    """Puts a space behind each colon, for the eye."""

    found_by = ("client/header/spaces",)

    def line(self, command: str, name: str, value: str) -> str:
        """Only where it is the user's header: all else would be another fault."""
        line = super().line(command, name, value)
        return line.replace(":", ": ", 1) if name == "x-a" and value.strip() != value else line


class DropsEmptyHeaders(Fault):
    """Leaves headers out that are empty."""

    found_by = ("client/header/empty",)

    def headers(self, command: str, lines: list[str]) -> dict[str, str]:
        """Keep those that are not."""
        return {n: value for n, value in super().headers(command, lines).items() if value}


class TakesTheLast(Fault):
    """Takes the last of repeated headers."""

    found_by = ("client/header/repeated",)

    def headers(self, command: str, lines: list[str]) -> dict[str, str]:
        """Read them the other way round."""
        return super().headers(command, lines[::-1])


class KnowsAllHeaders(Fault):
    """Takes a header that it does not know for a mistake."""

    found_by = ("client/header/unknown",)

    def headers(self, command: str, lines: list[str]) -> dict[str, str]:
        """Look for one."""
        if any(line.startswith(("client-limits:", "priority:")) for line in lines):
            raise Lost("an unknown header")
        return super().headers(command, lines)


class IgnoresCase(Fault):
    """Reads names of headers in lower case."""

    found_by = ("client/header/case",)

    def headers(self, command: str, lines: list[str]) -> dict[str, str]:
        """Make them so."""
        lowered = [
            ":".join([line.partition(":")[0].lower(), line.partition(":")[2]]) for line in lines
        ]
        return super().headers(command, lowered)


class DropsCarriageReturns(Fault):
    """Drops carriage returns in all versions."""

    found_by = ("client/1.1/header/carriage-return",)

    def lines(self, head: bytes) -> list[str]:
        """Take them away."""
        return super().lines(head.replace(b"\r", b""))


class LowersNamesThatItReads(Fault):
    """Reads names of the user's headers in lower case."""

    found_by = ("client/header/letter-case",)

    def headers(self, command: str, lines: list[str]) -> dict[str, str]:
        """Only those, which have no other meaning."""
        read = super().headers(command, lines)
        return {n.lower() if n.startswith("x-") else n: value for n, value in read.items()}


class LowersNamesThatItWrites(Fault):
    """Writes names of headers in lower case."""

    found_by = ("client/header/letter-case",)

    def line(self, command: str, name: str, value: str) -> str:
        """All of them."""
        return super().line(command, name.lower(), value)


class LowersValues(Fault):
    """Reads values of the user's headers in lower case."""

    found_by = ("client/header/letter-case", "client/header/utf8")

    def headers(self, command: str, lines: list[str]) -> dict[str, str]:
        """Only those, which have no other meaning."""
        read = super().headers(command, lines)
        return {n: value.lower() if n.startswith("x-") else value for n, value in read.items()}


class CutsValuesThatItReads(Fault):
    """Has room for 255 characters of a value."""

    found_by = ("client/header/long",)

    def headers(self, command: str, lines: list[str]) -> dict[str, str]:
        """Cut them."""
        return {n: value[:255] for n, value in super().headers(command, lines).items()}


class CutsValuesThatItWrites(Fault):
    """Has room for 1,024 octets in a header line."""

    found_by = ("client/header/long",)

    def line(self, command: str, name: str, value: str) -> str:
        """Cut it."""
        return super().line(command, name, value)[:1_024]


class ReplacesTabs(Fault):
    """Takes a tab for a blank."""

    found_by = ("client/header/blanks-inside",)

    def headers(self, command: str, lines: list[str]) -> dict[str, str]:
        """Replace them."""
        return {n: v.replace("\t", " ") for n, v in super().headers(command, lines).items()}


class FoldsBlanks(Fault):
    """Takes several blanks for one."""

    found_by = ("client/header/blanks-inside", "client/header/spaces")

    def headers(self, command: str, lines: list[str]) -> dict[str, str]:
        """Fold them."""
        read = super().headers(command, lines)
        return {n: re.sub(" +", " ", value) for n, value in read.items()}
