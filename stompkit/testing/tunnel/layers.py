"""Layers between STOMP and the bytes on the wire, without I/O: none, or TLS."""

from __future__ import annotations

import contextlib
import ssl

__all__ = ["READ_BYTES", "Layer", "Tls"]

#: Maximum number of bytes per read.
READ_BYTES = 65_536


class Layer:
    """Converts STOMP bytes to bytes on the wire, and back; this base changes nothing."""

    def wrap(self, octets: bytes) -> bytes:
        """Return the bytes for the wire."""
        return octets

    def unwrap(self, octets: bytes) -> tuple[bytes, bool]:
        """Decode bytes; return the result, and True at the end. Empty input is the end of file."""
        return octets, not octets

    def answers(self) -> bytes:
        """Return the bytes that the layer itself has to send now."""
        return b""

    def last(self) -> bytes:
        """Return the bytes that signal the end of the stream."""
        return b""


class Tls(Layer):
    """The client's side of TLS."""

    def __init__(self, context: ssl.SSLContext, host: str) -> None:
        """Prepare a handshake with a server of this name."""
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._in, self._out, server_hostname=host)

    def shake_hands(self) -> bool:
        """Continue the handshake; return True if it is complete."""
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        return True

    def feed(self, octets: bytes) -> None:
        """Take bytes from the wire; empty ones are the end of file."""
        if octets:
            self._in.write(octets)
        else:
            self._in.write_eof()

    def wrap(self, octets: bytes) -> bytes:
        """Encrypt bytes."""
        self._tls.write(octets)
        return self._out.read()

    def unwrap(self, octets: bytes) -> tuple[bytes, bool]:
        """Decrypt bytes; return the result, and True at the end."""
        self.feed(octets)
        found = bytearray()
        while True:
            try:
                read = self._tls.read(READ_BYTES)
            except ssl.SSLWantReadError:
                return bytes(found), False
            except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
                read = b""
            if not read:
                return bytes(found), True
            found += read

    def answers(self) -> bytes:
        """Return the bytes of TLS itself that have to be sent now."""
        return self._out.read()

    def last(self) -> bytes:
        """Return the bytes that end TLS."""
        with contextlib.suppress(ssl.SSLError):
            self._tls.unwrap()
        return self._out.read()
