"""Clients that are wrong about bodies, and where frames begin and end."""

from __future__ import annotations

from tests.conformance.minimal_client import OUT
from tests.conformance.minimal_frames import Headers, Lost
from tests.conformance.wrong_clients import Fault


class IgnoresLengths(Fault):
    """Reads each body to the first NUL."""

    found_by = ("client/body/nul", "client/body/large", "client/frame/octet-by-octet")

    def body_size(self, headers: dict[str, str]) -> int | None:
        """Never know."""
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
        """Never say."""
        return None


class SaysLengthsForNulOnly(Fault):
    """Sends a content-length where there is no way around it."""

    found_by = ("client/send/content-length",)

    def length(self, body: bytes) -> int | None:
        """Say it there."""
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
        """Count them, where the body is text."""
        return len(body.decode("utf-8", "surrogateescape"))


class TakesBodiesForText(Fault):
    """Takes each body for UTF-8."""

    found_by = ("client/body/binary", "client/body/large")

    def body(self, body: bytes) -> bytes:
        """Decode it somehow."""
        return body.decode("utf-8", "replace").encode()


class NeedsLengths(Fault):
    """Takes a frame without content-length for one without a body."""

    found_by = ("client/body/without-length",)

    def body_size(self, headers: dict[str, str]) -> int | None:
        """Take it for 0."""
        return super().body_size(headers) or 0


class DropsEmptyMessages(Fault):
    """Does nothing about messages without a body."""

    found_by = ("client/body/empty",)

    def message(self, headers: dict[str, str], body: bytes) -> None:
        """Pass over them."""
        if body:
            super().message(headers, body)


class TakesZeroForNothing(Fault):
    """Takes a body of ``0`` for none."""

    found_by = ("client/body/unchanged",)

    def body(self, body: bytes) -> bytes:
        """Drop it."""
        return b"" if body == b"0" else body


class TakesNoLargeBodies(Fault):
    """Gives up at messages of more than 64 KiB."""

    found_by = ("client/body/large",)

    def body_size(self, headers: dict[str, str]) -> int | None:
        """Look how long it is."""
        size = super().body_size(headers)
        if size is not None and size > 65_536:
            raise Lost("too large")
        return size


class SendsElsewhere(Fault):
    """Sends to another destination than it was told."""

    found_by = ("client/send/destination",)

    def ask(self, command: str, headers: Headers, body: bytes = b"") -> str:
        """Change the name."""
        changed = [(name, f"{OUT}/") if name == "destination" else (name, v) for name, v in headers]
        return super().ask(command, changed if command == "SEND" else headers, body)


class SaysNoTypes(Fault):
    """Sends no content-type."""

    found_by = ("client/send/content-type",)

    def reply(self, body: bytes, headers: Headers | None = None) -> None:
        """Leave it out."""
        super().reply(body, [pair for pair in headers or [] if pair[0] != "content-type"])


class EndsWithTwoNuls(Fault):
    """Sends another NUL behind DISCONNECT."""

    found_by = ("client/1.?/frame/grammar",)

    def ask(self, command: str, headers: Headers, body: bytes = b"") -> str:
        """Send it at once, before the answer can come."""
        receipt = super().ask(command, headers, body)
        if command == "DISCONNECT":
            self.write(b"\0")
        return receipt


class NoLineEndsBetween(Fault):
    """Takes a line end between frames for a mistake."""

    found_by = (
        "client/frame/line-ends-between",
        "client/1.2/frame/crlf",
        "client/heartbeat/slower-server",
    )

    def skip_line_ends(self, until: float | None) -> None:
        """Skip none."""
        while not self.pending:
            self.fill(until)
        if self.pending[0] in b"\r\n":
            raise Lost("no frame begins so")


class KnowsNoCrLf(Fault):
    """Takes the carriage return of CR LF for a part of the line."""

    found_by = ("client/1.2/frame/crlf",)

    def lines(self, head: bytes) -> list[str]:
        """Leave it there."""
        return self.text(head).split("\n")


class TakesPiecesForFrames(Fault):
    """Takes what arrives at once for whole frames, and forgets what is not."""

    found_by = (
        "client/frame/octet-by-octet",
        "client/frame/many-at-once",
        "client/body/large",
    )

    def fill(self, until: float | None) -> None:
        """Begin with every piece anew."""
        if not self.pending.endswith(b"\0"):
            self.pending = b""
        super().fill(until)


class StripsLineFeeds(Fault):
    """Takes line feeds at the end of a body for the end of the frame."""

    found_by = ("client/body/unchanged",)

    def body(self, body: bytes) -> bytes:
        """Strip them."""
        return body.rstrip(b"\n")


class ChangesLineEnds(Fault):
    """Reads bodies as text files are read."""

    found_by = ("client/body/unchanged",)

    def body(self, body: bytes) -> bytes:
        """Have each line end in LF."""
        return body.replace(b"\r\n", b"\n")
