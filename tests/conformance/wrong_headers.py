"""Clients with faults in reading or writing headers."""

from __future__ import annotations

import re

from tests.conformance.minimal_frames import Lost
from tests.conformance.wrong_clients import Fault


class EscapesIn10(Fault):
    """Writes escapes that 1.0 does not have."""

    found_by = ("client/1.0/escape/left-alone", "client/1.0/ack/escapes")

    def escape(self, text: str) -> str:
        """Escape by the rules of 1.1."""
        if self.version != "1.0":
            return super().escape(text)
        return text.replace("\\", "\\\\").replace(":", "\\c")


class KnowsNoColon(Fault):
    r"""Reads ``\c`` as a ``c``."""

    found_by = ("client/1.[12]/escape/reads", "client/1.[12]/ack/escapes")

    def unescape(self, text: str) -> str:
        """Drop the backslash."""
        return super().unescape(text.replace("\\c", "c"))


class KnowsNoReturn(Fault):
    r"""Treats ``\r`` as an error."""

    found_by = ("client/1.2/escape/reads",)

    def unescape(self, text: str) -> str:
        """Raise an error."""
        if "\\r" in text:
            raise Lost("undefined")
        return super().unescape(text)


class UnescapesInTheWrongOrder(Fault):
    """Unescapes backslashes after all other sequences."""

    found_by = ("client/escape/reads-backslash",)

    def unescape(self, text: str) -> str:
        """Replace one sequence after the other."""
        for sequence, plain in (("\\n", "\n"), ("\\c", ":"), ("\\r", "\r"), ("\\\\", "\\")):
            text = text.replace(sequence, plain)
        if "\t" in text or "\\t" in text:
            raise Lost("undefined")
        return text


class WritesRawColons(Fault):
    """Does not escape colons."""

    found_by = ("client/1.[12]/escape/writes", "client/1.[12]/ack/escapes")

    def escape(self, text: str) -> str:
        """Escape all other characters."""
        return super().escape(text).replace("\\c", ":")


class WritesRawBackslashes(Fault):
    """Does not escape backslashes."""

    found_by = (
        "client/escape/writes-backslash",
        "client/escape/names",
        "client/1.[12]/ack/escapes",
    )

    def escape(self, text: str) -> str:
        """Escape all other characters."""
        return super().escape(text).replace("\\\\", "\\")


class ReadsNamesAsTheyAre(Fault):
    """Unescapes values of headers, but not their names."""

    found_by = ("client/escape/names",)

    def headers(self, command: str, lines: list[str]) -> dict[str, str]:
        """Escape the names again."""
        return {self.escape(n): value for n, value in super().headers(command, lines).items()}


class KeepsUndefinedEscapes(Fault):
    """Keeps undefined escapes unchanged."""

    found_by = ("client/escape/undefined",)

    def undefined(self, piece: str) -> str:
        """Restore the backslash."""
        return "\\" + piece


class ReadsLatin1(Fault):
    """Decodes headers as Latin-1."""

    found_by = ("client/header/utf8",)

    def text(self, octets: bytes) -> str:
        """Decode as Latin-1."""
        return octets.decode("latin-1")


class Trims(Fault):
    """Strips spaces from values."""

    found_by = ("client/1.[12]/ack/escapes", "client/header/spaces")

    def headers(self, command: str, lines: list[str]) -> dict[str, str]:
        """Strip all values."""
        return {n: value.strip(" ") for n, value in super().headers(command, lines).items()}


class Pads(Fault):
    """Writes a space after each colon."""

    found_by = ("client/header/spaces",)

    def line(self, command: str, name: str, value: str) -> str:
        """Pad user headers only: others would be another fault."""
        line = super().line(command, name, value)
        return line.replace(":", ": ", 1) if name == "x-a" and value.strip() != value else line


class DropsEmptyHeaders(Fault):
    """Drops empty headers."""

    found_by = ("client/header/empty",)

    def headers(self, command: str, lines: list[str]) -> dict[str, str]:
        """Keep the other headers."""
        return {n: value for n, value in super().headers(command, lines).items() if value}


class TakesTheLast(Fault):
    """Uses the last of repeated headers."""

    found_by = ("client/header/repeated",)

    def headers(self, command: str, lines: list[str]) -> dict[str, str]:
        """Read the lines in reverse order."""
        return super().headers(command, lines[::-1])


class KnowsAllHeaders(Fault):
    """Treats an unknown header as an error."""

    found_by = ("client/header/unknown",)

    def headers(self, command: str, lines: list[str]) -> dict[str, str]:
        """Look for unknown headers."""
        if any(line.startswith(("client-limits:", "priority:")) for line in lines):
            raise Lost("an unknown header")
        return super().headers(command, lines)


class IgnoresCase(Fault):
    """Converts names of headers to lower case when reading."""

    found_by = ("client/header/case",)

    def headers(self, command: str, lines: list[str]) -> dict[str, str]:
        """Convert all names."""
        lowered = [
            ":".join([line.partition(":")[0].lower(), line.partition(":")[2]]) for line in lines
        ]
        return super().headers(command, lowered)


class DropsCarriageReturns(Fault):
    """Drops carriage returns in all versions."""

    found_by = ("client/1.1/header/carriage-return",)

    def lines(self, head: bytes) -> list[str]:
        """Remove carriage returns."""
        return super().lines(head.replace(b"\r", b""))


class LowersNamesThatItReads(Fault):
    """Converts names of user headers to lower case when reading."""

    found_by = ("client/header/letter-case",)

    def headers(self, command: str, lines: list[str]) -> dict[str, str]:
        """Convert user headers only: others would be another fault."""
        read = super().headers(command, lines)
        return {n.lower() if n.startswith("x-") else n: value for n, value in read.items()}


class LowersNamesThatItWrites(Fault):
    """Converts names of headers to lower case when writing."""

    found_by = ("client/header/letter-case",)

    def line(self, command: str, name: str, value: str) -> str:
        """Convert all names."""
        return super().line(command, name.lower(), value)


class LowersValues(Fault):
    """Converts values of user headers to lower case when reading."""

    found_by = ("client/header/letter-case", "client/header/utf8")

    def headers(self, command: str, lines: list[str]) -> dict[str, str]:
        """Convert user headers only: others would be another fault."""
        read = super().headers(command, lines)
        return {n: value.lower() if n.startswith("x-") else value for n, value in read.items()}


class CutsValuesThatItReads(Fault):
    """Truncates values to 255 characters when reading."""

    found_by = ("client/header/long",)

    def headers(self, command: str, lines: list[str]) -> dict[str, str]:
        """Truncate all values."""
        return {n: value[:255] for n, value in super().headers(command, lines).items()}


class CutsValuesThatItWrites(Fault):
    """Truncates header lines to 1,024 bytes when writing."""

    found_by = ("client/header/long",)

    def line(self, command: str, name: str, value: str) -> str:
        """Truncate the line."""
        return super().line(command, name, value)[:1_024]


class ReplacesTabs(Fault):
    """Replaces tabs by spaces."""

    found_by = ("client/header/blanks-inside",)

    def headers(self, command: str, lines: list[str]) -> dict[str, str]:
        """Replace tabs."""
        return {n: v.replace("\t", " ") for n, v in super().headers(command, lines).items()}


class FoldsBlanks(Fault):
    """Replaces several spaces by one."""

    found_by = ("client/header/blanks-inside", "client/header/spaces")

    def headers(self, command: str, lines: list[str]) -> dict[str, str]:
        """Replace repeated spaces."""
        read = super().headers(command, lines)
        return {n: re.sub(" +", " ", value) for n, value in read.items()}
