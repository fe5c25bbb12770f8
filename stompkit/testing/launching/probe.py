"""Readiness check of a broker: one CONNECT, one answer."""

from __future__ import annotations

import errno
import socket
from dataclasses import dataclass

from stompkit._common.clock import monotonic
from stompkit.frames import AFTER_LOGIN, Frame, FrameDecoder, ProtocolError, Tolerance, encode
from stompkit.testing.launching.brokers import Access

__all__ = ["NotReadyError", "Probe"]

_RECEIVE_BYTES = 65_536
#: Errors of the system that say nothing about the broker.
_NO_DESCRIPTORS = (errno.EMFILE, errno.ENFILE)


class NotReadyError(Exception):
    """The broker did not answer CONNECTED; the message is the end of a sentence.

    ``refused`` is true if it answered with something else.
    """

    def __init__(self, reason: str, *, refused: bool = False) -> None:
        """Store the reason."""
        super().__init__(reason)
        self.refused = refused


@dataclass(frozen=True)
class Probe:
    """Parameters of the CONNECT that checks if a broker is ready."""

    versions: str
    """The value of CONNECT's ``accept-version`` header."""
    access: Access
    """The user and the virtual host."""

    def run(self, host: str, port: int, timeout_s: float) -> Frame:
        """Connect, and return the CONNECTED frame within ``timeout_s`` seconds.

        Raises NotReadyError if there is none, LocalProtocolError if a setting cannot be encoded in
        a frame, and OSError if this process cannot open another connection.
        """
        connect = encode(self._connect(), None)
        deadline = monotonic() + timeout_s
        try:
            with socket.create_connection((host, port), timeout_s) as connection:
                # One write of one plain frame, without heart-beats or line ends around it: CoilMQ
                # stops reading after anything else.
                connection.sendall(connect)
                answer = _answer(connection, deadline)
                if answer.command == "CONNECTED":
                    connection.sendall(encode(Frame("DISCONNECT"), None))
        except TimeoutError:
            raise NotReadyError(f"gave no answer to CONNECT in {timeout_s:.1f} s") from None
        except (OSError, ProtocolError) as error:
            if isinstance(error, OSError) and error.errno in _NO_DESCRIPTORS:
                raise
            raise NotReadyError(f"could not be asked ({error})") from error
        if answer.command != "CONNECTED":
            said = answer.headers.get("message") or answer.body.decode("utf-8", "replace")
            raise NotReadyError(f"answered CONNECT with {answer.command}: {said}", refused=True)
        return answer

    def _connect(self) -> Frame:
        """Create the CONNECT frame."""
        access = self.access
        headers = {"accept-version": self.versions, "host": access.vhost}
        if access.login is not None:
            headers["login"] = access.login
        if access.passcode is not None:
            headers["passcode"] = access.passcode
        return Frame("CONNECT", headers)


def _answer(connection: socket.socket, deadline: float) -> Frame:
    """Return the first frame that the broker sends."""
    # An ERROR has a body; a partial body is better than no reason at all.
    decoder = FrameDecoder(None, limits=AFTER_LOGIN, tolerance=Tolerance.LENIENT)
    while True:
        remaining_s = deadline - monotonic()
        if remaining_s <= 0:
            raise TimeoutError
        connection.settimeout(remaining_s)
        data = connection.recv(_RECEIVE_BYTES)
        if not data:
            raise NotReadyError("closed the connection instead of answering CONNECT")
        frames = decoder.feed(data)
        if frames:
            return frames[0]
