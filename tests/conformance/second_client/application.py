"""The application of the client, which executes messages until one tells it to quit."""

from __future__ import annotations

import contextlib
import html
import re
import time
from typing import Final

from tests.conformance.second_client.escapes import Lost
from tests.conformance.second_client.frames import Headers, Pairs
from tests.conformance.second_client.session import Session

_OUT: Final = b"/queue/out"
#: Time in seconds to wait for the RECEIPT of DISCONNECT.
_GOODBYE_S: Final = 1.0


class Application:
    """Executes the messages of one session."""

    def __init__(self, session: Session) -> None:
        """Start with a connected session."""
        self.session = session
        self.stream, self.has = session.stream, session.has
        self.transaction_is_over: Pairs = []
        self.messages = 0

    def run(self) -> None:
        """Execute messages until one tells the client to quit."""
        while True:
            command, headers, body = self.stream.receive()
            if command == b"ERROR":
                raise Lost("ERROR")
            if command == b"MESSAGE" and self.is_mine(headers):
                if body == b"quit":
                    self.quit()
                    return
                self.handle(headers, body)

    def is_mine(self, headers: Headers) -> bool:
        """Return True if a message belongs to a subscription."""
        if not self.has("routes messages by destination"):
            return True
        return headers.get(b"destination") in self.session.subscriptions.values()

    def handle(self, headers: Headers, body: bytes) -> None:
        """Execute a message, and acknowledge it."""
        own = [(name, value) for name, value in headers.items() if name.startswith(b"x-")]
        word, _, rest = body.partition(b" ")
        if word == b"nack":
            self.nack(headers)
            return
        if word == b"subscribe":
            self.session.subscribe(rest)
        elif word == b"describe":
            self.reply(b"=".join(own[0] if own else (b"nothing", b"")), [])
        elif word == b"header":
            name, _, value = rest.partition(b"=")
            self.reply(b"", [(name, value)])
        elif word in (b"commit", b"abort"):
            self.use_transaction(word.upper(), body)
        else:
            types = [(name, value) for name, value in headers.items() if name == b"content-type"]
            self.reply(self.kept(body, dict(types)), [*own, *types, *self.transaction_is_over])
        self.acknowledge(b"ACK", headers)

    def kept(self, body: bytes, types: Headers) -> bytes:
        """Return a body as the application processes it."""
        if self.has("strips line feeds at the end of bodies"):
            return body.rstrip(b"\n")
        if self.has("changes CR LF in bodies"):
            return body.replace(b"\r\n", b"\n")
        if self.has("damages bodies that are not UTF-8"):
            return body.decode("utf-8", "replace").encode()
        if self.has("unescapes bodies"):
            sequences = {rb"\n": b"\n", rb"\c": b":", rb"\\": b"\\"}
            return re.sub(rb"\\[nc\\]", lambda found: sequences[found[0]], body)
        if self.has("changes markup in bodies"):
            return html.unescape(body.decode("latin-1")).encode("latin-1", "replace")
        if self.has("drops byte order marks"):
            return body.removeprefix(b"\xef\xbb\xbf")
        charset = types.get(b"content-type", b"").partition(b"charset=")[2].decode()
        if charset and self.has("sends text in UTF-8"):
            return body.decode(charset).encode()
        return body

    def reply(self, body: bytes, headers: Pairs) -> None:
        """Send a message."""
        self.session.ask(b"SEND", [(b"destination", _OUT), *headers], body)

    def use_transaction(self, last: bytes, body: bytes) -> None:
        """Send a message in a transaction, and end the transaction."""
        is_one = self.has("begins all transactions by one name")
        name = (b"transaction", b"t" if is_one else b"t%d" % next(self.session.numbers))
        self.session.ask(b"BEGIN", [name])
        self.reply(body, [] if self.has("forgets the transaction of SEND") else [name])
        self.session.ask(last, [name])
        if self.has("names a transaction that is over"):
            self.transaction_is_over = [name]

    # Acknowledgements.

    def nack(self, headers: Headers) -> None:
        """Refuse a message."""
        if self.session.version == b"1.0" and not self.has("sends NACK on 1.0"):
            raise Lost("STOMP 1.0 has no NACK")
        self.acknowledge(b"NACK", headers)
        if self.has("acknowledges what it refuses"):
            self.acknowledge(b"ACK", headers)

    def acknowledge(self, command: bytes, headers: Headers) -> None:
        """Send ACK or NACK."""
        self.messages += 1
        if self.messages % 2 == 0 and self.has("acknowledges every second message"):
            return
        if self.has("acknowledges the newest message"):
            headers = self.stream.newest
        headers = {name: self.renamed(value) for name, value in headers.items()}
        version = self.session.version
        if version == b"1.2" and not self.has("acknowledges by message-id on 1.2"):
            is_other = self.has("names the ack of MESSAGE ack")
            named = [(b"ack" if is_other else b"id", headers[b"ack"])]
            if self.has("acknowledges in all ways on 1.2"):
                more = (b"message-id", b"subscription")
                named += [(name, headers.get(name, b"")) for name in more]
        else:
            named = [(b"message-id", headers[b"message-id"])]
        if version == b"1.1" and not self.has("acknowledges without subscription on 1.1"):
            id = headers.get(b"subscription", b"")
            is_first = command == b"ACK" and self.has("names the first subscription in ACK")
            is_first |= command == b"NACK" and self.has("names the first subscription in NACK")
            if is_first:
                id = next(iter(self.session.subscriptions))
            named.append((b"subscription", id))
        self.session.ask(command, [*named, *self.transaction_is_over])

    def renamed(self, value: bytes) -> bytes:
        """Return a name of a message as some switches change it."""
        if self.has("trims what it acknowledges"):
            return value.strip(b" ")
        if self.has("normalises numbers that it acknowledges") and value.isdigit():
            return b"%d" % int(value)
        return value

    # The end.

    def quit(self) -> None:
        """Unsubscribe, disconnect, and wait for the RECEIPT until a deadline."""
        self.session.unsubscribe()
        if self.has("closes without DISCONNECT"):
            return
        if self.has("disconnects without receipt"):
            self.stream.send(b"DISCONNECT", [])
            return
        receipt = self.session.ask(b"DISCONNECT", [])
        until = time.monotonic() + _GOODBYE_S
        with contextlib.suppress(Lost, TimeoutError):
            while not self.has("does not wait for the RECEIPT"):
                command, headers, _ = self.stream.receive(until)
                if command == b"MESSAGE" and self.has("acknowledges after DISCONNECT"):
                    self.acknowledge(b"ACK", headers)
                if self.is_answer(command, headers, receipt):
                    return

    def is_answer(self, command: bytes, headers: Headers, receipt: bytes) -> bool:
        """Return True if a frame confirms this receipt."""
        id = headers.get(b"receipt-id")
        if command == b"RECEIPT" and self.has("takes any RECEIPT for that of DISCONNECT"):
            return True
        if id is not None and self.has("takes receipts by their beginning"):
            return receipt.startswith(id)
        return id == receipt
