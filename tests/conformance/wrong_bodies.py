"""Clients with faults in bodies, and in the boundaries of frames."""

from __future__ import annotations

from tests.conformance.minimal_client import OUT
from tests.conformance.minimal_frames import Headers, Lost
from tests.conformance.wrong_clients import Fault


class IgnoresLengths(Fault):
    """Ends each body at the first NUL."""

    found_by = ("client/body/nul", "client/body/large", "client/frame/octet-by-octet")

    def body_size(self, headers: dict[str, str]) -> int | None:
        """Return None."""
        return None


class SaysNoLengths(Fault):
    """Sends no content-length."""

    found_by = (
        "client/body/nul",
        "client/body/large",
        "client/frame/octet-by-octet",
        "client/send/content-length",
    )

    def length(self, body: bytes) -> int | None:
        """Return None."""
        return None


class SaysLengthsForNulOnly(Fault):
    """Sends a content-length only if it is inevitable."""

    found_by = ("client/send/content-length",)

    def length(self, body: bytes) -> int | None:
        """Return the length for a body with NUL only."""
        return len(body) if b"\0" in body else None


class CountsCharacters(Fault):
    """Counts characters for content-length."""

    found_by = (
        "client/send/length-in-octets",
        "client/frame/octet-by-octet",
        "client/header/utf8",
        "client/body/unchanged",
    )

    def length(self, body: bytes) -> int | None:
        """Return the number of characters, if the body is text."""
        return len(body.decode("utf-8", "surrogateescape"))


class TakesBodiesForText(Fault):
    """Decodes each body as UTF-8."""

    found_by = ("client/body/binary", "client/body/large")

    def body(self, body: bytes) -> bytes:
        """Decode the body with replacement characters."""
        return body.decode("utf-8", "replace").encode()


class NeedsLengths(Fault):
    """Treats a frame without content-length as one without a body."""

    found_by = ("client/body/without-length",)

    def body_size(self, headers: dict[str, str]) -> int | None:
        """Return 0 if there is no content-length."""
        return super().body_size(headers) or 0


class DropsEmptyMessages(Fault):
    """Ignores messages without a body."""

    found_by = ("client/body/empty",)

    def message(self, headers: dict[str, str], body: bytes) -> None:
        """Ignore empty messages."""
        if body:
            super().message(headers, body)


class TakesZeroForNothing(Fault):
    """Treats a body of ``0`` as empty."""

    found_by = ("client/body/unchanged",)

    def body(self, body: bytes) -> bytes:
        """Drop the body ``0``."""
        return b"" if body == b"0" else body


class TakesNoLargeBodies(Fault):
    """Fails on messages of more than 64 KiB."""

    found_by = ("client/body/large",)

    def body_size(self, headers: dict[str, str]) -> int | None:
        """Check the length."""
        size = super().body_size(headers)
        if size is not None and size > 65_536:
            raise Lost("too large")
        return size


class SendsElsewhere(Fault):
    """Sends to another destination than required."""

    found_by = ("client/send/destination",)

    def ask(self, command: str, headers: Headers, body: bytes = b"") -> str:
        """Change the destination."""
        changed = [(name, f"{OUT}/") if name == "destination" else (name, v) for name, v in headers]
        return super().ask(command, changed if command == "SEND" else headers, body)


class SaysNoTypes(Fault):
    """Sends no content-type."""

    found_by = ("client/send/content-type",)

    def reply(self, body: bytes, headers: Headers | None = None) -> None:
        """Omit content-type."""
        super().reply(body, [pair for pair in headers or [] if pair[0] != "content-type"])


class EndsWithTwoNuls(Fault):
    """Sends another NUL after DISCONNECT."""

    found_by = ("client/1.?/frame/grammar",)

    def ask(self, command: str, headers: Headers, body: bytes = b"") -> str:
        """Send the NUL immediately, before the reply can arrive."""
        receipt = super().ask(command, headers, body)
        if command == "DISCONNECT":
            self.write(b"\0")
        return receipt


class NoLineEndsBetween(Fault):
    """Treats a line end between frames as an error."""

    found_by = (
        "client/frame/line-ends-between",
        "client/1.2/frame/crlf",
        "client/heartbeat/slower-server",
    )

    def skip_line_ends(self, until: float | None) -> None:
        """Do not skip any line end."""
        while not self.pending:
            self.fill(until)
        if self.pending[0] in b"\r\n":
            raise Lost("no frame begins so")


class KnowsNoCrLf(Fault):
    """Treats the carriage return of CR LF as part of the line."""

    found_by = ("client/1.2/frame/crlf",)

    def lines(self, head: bytes) -> list[str]:
        """Keep carriage returns."""
        return self.text(head).split("\n")


class TakesPiecesForFrames(Fault):
    """Treats each read as whole frames, and drops incomplete ones."""

    found_by = (
        "client/frame/octet-by-octet",
        "client/frame/many-at-once",
        "client/body/large",
    )

    def fill(self, until: float | None) -> None:
        """Drop earlier bytes."""
        if not self.pending.endswith(b"\0"):
            self.pending = b""
        super().fill(until)


class StripsLineFeeds(Fault):
    """Strips line feeds at the end of a body."""

    found_by = ("client/body/unchanged",)

    def body(self, body: bytes) -> bytes:
        """Strip line feeds."""
        return body.rstrip(b"\n")


class ChangesLineEnds(Fault):
    """Converts line ends in bodies, like in text files."""

    found_by = ("client/body/unchanged",)

    def body(self, body: bytes) -> bytes:
        """Convert CR LF to LF."""
        return body.replace(b"\r\n", b"\n")
