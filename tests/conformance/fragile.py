"""A simple server that dies of a certain input; run as a script with its port.

It runs in a separate process, so that it can be restarted. It uses only the standard library, so
that it starts fast.
"""

from __future__ import annotations

import os
import re
import socketserver
import sys
import threading
from typing import Final

#: The deadly input: a length of eighteen digits or more, in any place.
DEADLY: Final = re.compile(rb"content-length:\d{18}")
_READ_BYTES: Final = 65_536


class Session(socketserver.BaseRequestHandler):
    """One connection: CONNECT, SUBSCRIBE and SEND, without content-length or escapes."""

    #: Subscribers by destination, each with the id of the subscription.
    subscribers: Final[dict[bytes, list[tuple[Session, bytes]]]] = {}
    lock: Final = threading.Lock()

    def handle(self) -> None:
        """Read frames until the connection ends."""
        heard = pending = b""
        try:
            while octets := self.request.recv(_READ_BYTES):
                heard = heard[-100:] + octets
                if DEADLY.search(heard):
                    os._exit(1)
                *frames, pending = (pending + octets).split(b"\0")
                for frame in frames:
                    self.deal_with(frame.lstrip(b"\r\n"))
        except OSError:
            pass  # the client has gone

    def finish(self) -> None:
        """Remove the subscriptions of this client."""
        with self.lock:
            for there in self.subscribers.values():
                there[:] = [each for each in there if each[0] is not self]

    def deal_with(self, frame: bytes) -> None:
        """Execute a frame, if it is valid."""
        head, _, body = frame.partition(b"\n\n")
        command, *lines = head.split(b"\n")
        headers = {name: value for name, _, value in (line.partition(b":") for line in lines)}
        destination = headers.get(b"destination", b"")
        if command == b"CONNECT":
            version = headers.get(b"accept-version", b"1.0")[-3:]
            self.say(b"CONNECTED\nversion:%b\n\n\0" % version)
        with self.lock:
            there = self.subscribers.setdefault(destination, [])
            if command == b"SUBSCRIBE":
                there.append((self, headers.get(b"id", b"")))
            elif command == b"SEND":
                for session, name in there:
                    lines = [b"subscription:" + name, b"destination:" + destination]
                    session.say(b"MESSAGE\nmessage-id:1\n%b\n\n%b\0" % (b"\n".join(lines), body))
        if receipt := headers.get(b"receipt"):
            self.say(b"RECEIPT\nreceipt-id:%b\n\n\0" % receipt)

    def say(self, octets: bytes) -> None:
        """Send to this client, if it is still connected."""
        try:
            self.request.sendall(octets)
        except OSError:
            pass  # the thread that reads from it notices the end


class Server(socketserver.ThreadingTCPServer):
    """Listens on an address that another process has just used."""

    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 100


if __name__ == "__main__":
    with Server(("127.0.0.1", int(sys.argv[1])), Session) as server:
        server.serve_forever()
