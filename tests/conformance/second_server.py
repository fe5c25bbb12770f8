"""A STOMP server written from the specifications alone, with switches for faults and variants.

It shares no code with the package, so that a misinterpretation of the specifications in the package
does not appear on both sides. ``DEVIATIONS`` are switches that violate a statement; ``LIBERTIES``
are those that the specifications permit. A server has at most one switch.
"""

from __future__ import annotations

import asyncio
import itertools
import re
import threading
import unicodedata
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final, Protocol, cast
from urllib.parse import unquote_to_bytes

Headers = dict[bytes, bytes]

#: Switches that violate a statement of the specifications.
DEVIATIONS: Final = frozenset(
    {
        "acknowledges by UNSUBSCRIBE",
        "acknowledges in all subscriptions of a connection",
        "acknowledges messages of other connections",
        "acknowledges outside of transactions",
        "beats 1.6 times late",
        "beats by CR LF on 1.1",
        "beats inside frames",
        "beats only to clients that speak",
        "beats though nobody asks",
        "changes CR LF in bodies",
        "combines accents in values",
        "commits in reverse order",
        "commits what is open at the end",
        "confirms each SEND that it refuses",
        "counts characters",
        "cuts bodies at 64 KiB",
        "cuts values at 255",
        "damages bodies that are not UTF-8",
        "decodes percent signs in values",
        "delivers after UNSUBSCRIBE",
        "delivers at most a hundred waiting messages",
        "delivers to one subscription of a connection",
        "drops byte order marks",
        "drops empty bodies",
        "drops empty values",
        "drops long values",
        "drops names that start with underscores",
        "drops names with blanks",
        "drops quotes around values",
        "drops the content-type",
        "drops the twenty-first header",
        "drops unacknowledged messages on DISCONNECT",
        "ends all subscriptions to the destination",
        "ends bodies at the end of a packet",
        "ends bodies at the first NUL",
        "ends without ERROR",
        "escapes on 1.0",
        "escapes receipts twice",
        "expects beats sooner than agreed",
        "folds blanks in values",
        "goes on after ERROR",
        "handles one frame of each packet",
        "has one list of transactions for all connections",
        "ignores the case of subscription ids",
        "ignores the case of transactions",
        "keeps messages of topics for later subscribers",
        "keeps the content-length of the SEND before",
        "keeps the destination of an id that is used again",
        "keeps undefined escapes",
        "lets the sender set ack",
        "lets the sender set message-id",
        "lets the sender set subscription",
        "lowers destinations",
        "lowers header names",
        "lowers receipts",
        "lowers values",
        "names the ack id of MESSAGE id",
        "normalises numbers in values",
        "numbers messages by destination",
        "redelivers without user headers",
        "refuses an unknown version among others",
        "replaces signs in names",
        "replaces tabs in values",
        "sends each receipt twice",
        "sends the last message of what is aborted",
        "splits headers at the last colon on 1.0",
        "stays after DISCONNECT",
        "strips line feeds at the end of bodies",
        "strips line feeds at the start of bodies",
        "swaps the numbers of heart-beat",
        "takes 1.10 for 1.1",
        "takes CR LF on 1.1",
        "takes client for client-individual",
        "takes client-individual for client",
        "takes commands in lower case",
        "takes only line ends for signs of life",
        "takes the body 0 for none",
        "takes the last of repeated headers",
        "takes the lowest version",
        "trims values",
        "unescapes CONNECT",
        "unescapes lines before it splits them",
        "unescapes twice",
        "unescapes values only",
    }
)
#: Switches that the specifications permit.
LIBERTIES: Final = frozenset(
    {
        "gives messages back in reverse order",
        "refuses client-id",
        "refuses lines of more than 512 octets",
        "refuses more than 16 headers",
        "takes BEGIN twice",
        "takes SUBSCRIBE without id",
        "takes the last version offered",
    }
)

#: Escape sequences of each version, by the bytes that they represent.
_ESCAPES: Final = {
    b"1.0": {},
    b"1.1": {b"\\": rb"\\", b"\n": rb"\n", b":": rb"\c"},
    b"1.2": {b"\\": rb"\\", b"\n": rb"\n", b":": rb"\c", b"\r": rb"\r"},
}
_VERSIONS: Final = (b"1.0", b"1.1", b"1.2")
#: Headers of SEND that are about the request, or that the server sets in MESSAGE.
_NOT_PASSED_ON: Final = (
    *(b"destination", b"receipt", b"transaction", b"content-length"),
    *(b"message-id", b"subscription", b"ack"),
)
_MOST_HEADERS, _LONGEST_LINE, _LONGEST_BODY = 1_000, 65_536, 16 * 1024 * 1024
#: Interval in seconds of heart-beats that the server offers and wants.
_BEAT_S = 0.2
#: Time in seconds that the client has to close after the end of the server's stream.
_LINGER_S = 10.0
#: Number of bytes after which one of the switches inserts a heart-beat.
_PIECE = 60_000


class Refusal(Exception):
    """A frame that is refused with ERROR."""


class Handle(Protocol):
    """A scheduled call."""

    def cancel(self) -> None:
        """Cancel the call."""


class Clock(Protocol):
    """The part of an event loop that the server needs."""

    def time(self) -> float:
        """Return the time in seconds."""

    def call_later(self, delay: float, callback: Callable[..., object], *args: object) -> Handle:
        """Schedule a call after *delay* seconds."""


class Transport(Protocol):
    """The part of asyncio's transport that the server needs."""

    def write(self, octets: bytes) -> None:
        """Send bytes."""

    def write_eof(self) -> None:
        """End the stream."""

    def abort(self) -> None:
        """Reset the connection."""


@dataclass
class Message:
    """A message sent to a destination."""

    destination: bytes
    headers: Headers
    body: bytes


@dataclass(eq=False)
class Subscription:
    """A subscription, with its unacknowledged messages by message-id."""

    client: Client
    id: bytes
    destination: bytes
    mode: bytes
    pending: dict[bytes, Message] = field(default_factory=dict)


class Client(asyncio.Protocol):
    """One connection."""

    transport: Transport

    def __init__(self, server: Server) -> None:
        """Start without data."""
        self.server = server
        self.has = server.has
        self.buffer = b""
        self.version = b""
        self.is_over = False
        self.is_lost = False
        self.subscriptions: dict[bytes, Subscription] = {}
        self.transactions: dict[bytes, list[Callable[[], None]]] = {}
        self.timers: list[Handle] = []
        #: The last content-length of SEND, for one of the switches.
        self.length: bytes | None = None
        #: First destination of each id, for one of the switches.
        self.former: Headers = {}
        self.last_heard = 0.0
        self.is_beating = False

    # Reading frames.

    def connection_made(self, transport: object) -> None:
        """Store the transport."""
        self.transport = cast("Transport", transport)
        self.server.clients.add(self)

    def connection_lost(self, error: Exception | None) -> None:
        """Release everything that belongs to the connection."""
        self.is_lost = True
        self.end()
        self.server.clients.discard(self)
        for timer in self.timers:
            timer.cancel()

    def data_received(self, octets: bytes) -> None:
        """Handle the complete frames."""
        if octets.strip(b"\n") == b"" or not self.has("takes only line ends for signs of life"):
            self.last_heard = self.server.loop.time()
        if self.is_over:
            return
        self.buffer += octets
        receipt = b""
        try:
            while not self.is_over and (frame := self.next_frame()) is not None:
                command, headers, body = frame
                receipt = headers.get(b"receipt", b"")
                self.handle(command, headers, body)
                if self.has("handles one frame of each packet"):
                    break
        except Refusal as error:
            self.refuse(str(error), receipt)

    def next_frame(self) -> tuple[bytes, Headers, bytes] | None:
        """Take the next complete frame from the buffer."""
        takes_cr = self.version in (b"", b"1.2") or self.has("takes CR LF on 1.1")
        self.buffer = self.buffer.lstrip(b"\r\n" if takes_cr else b"\n")
        gap = re.search(rb"\n\r?\n" if takes_cr else rb"\n\n", self.buffer)
        head = self.buffer[: gap.start()] if gap else self.buffer
        self.check_head(head)
        if gap is None:
            return None
        if head != head.decode("utf-8", "ignore").encode():
            raise Refusal("the head of a frame is not UTF-8")
        command, *lines = (
            line.removesuffix(b"\r") if takes_cr else line for line in head.split(b"\n")
        )
        headers = self.parse_headers(command, lines)
        length = headers.get(b"content-length")
        if command == b"SEND" and self.has("keeps the content-length of the SEND before"):
            length = self.length = length or self.length
        if length is not None and not length.isdigit():
            raise Refusal("content-length is no number")
        if length is None or self.has("ends bodies at the first NUL"):
            end = self.buffer.find(b"\0", gap.end())
        else:
            end = gap.end() + int(length)
        most = _LONGEST_BODY if self.version else _LONGEST_LINE
        if end < 0 and length is None and self.has("ends bodies at the end of a packet"):
            end, self.buffer = len(self.buffer), self.buffer + b"\0"
        if max(end, len(self.buffer)) - gap.end() > most:
            raise Refusal("the body is too long")
        if end < 0 or end >= len(self.buffer):
            return None
        if self.buffer[end] != 0:
            raise Refusal("no NUL follows the body")
        body, self.buffer = self.buffer[gap.end() : end], self.buffer[end + 1 :]
        return command, headers, body

    def check_head(self, head: bytes) -> None:
        """Refuse a head that is too large, or not valid text."""
        if b"\0" in head:
            raise Refusal("the head of a frame has a NUL")
        lines = head.split(b"\n")
        most = 16 if self.has("refuses more than 16 headers") else _MOST_HEADERS
        longest = 512 if self.has("refuses lines of more than 512 octets") else _LONGEST_LINE
        if len(lines) - 1 > most or max(map(len, lines)) > longest:
            raise Refusal("too many headers, or a line that is too long")

    def parse_headers(self, command: bytes, lines: list[bytes]) -> Headers:
        """Parse header lines into a dictionary, with the first of repeated headers."""
        headers: Headers = {}
        is_escaped = self.version and command not in (b"CONNECT", b"STOMP")
        for line in lines:
            is_early = is_escaped and self.has("unescapes lines before it splits them")
            name, colon, value = (self.unescape(line) if is_early else line).partition(b":")
            if self.has("splits headers at the last colon on 1.0") and self.version == b"1.0":
                name, colon, value = line.rpartition(b":")
            if not colon or not name:
                raise Refusal("a header line without a name or a colon")
            if is_escaped and not is_early:
                name = name if self.has("unescapes values only") else self.unescape(name)
                value = self.unescape(value)
                if self.has("unescapes twice"):
                    value = self.unescape(value) if re.search(rb"\\[\\cn]", value) else value
            elif self.has("unescapes CONNECT") and command == b"CONNECT":
                value = re.sub(rb"\\.?", self.known, value)
            if self.has("lowers header names"):
                name = name.lower()
            if self.has("trims values"):
                value = value.strip()
            if self.has("replaces tabs in values"):
                value = value.replace(b"\t", b" ")
            if self.has("folds blanks in values"):
                value = re.sub(rb" +", b" ", value)
            if self.has("cuts values at 255"):
                value = value[:255]
            if self.has("takes the last of repeated headers"):
                headers[name] = value
            headers.setdefault(name, value)
        return headers

    def unescape(self, text: bytes) -> bytes:
        """Unescape a text by the rules of the version."""
        plain = {sequence: octet for octet, sequence in _ESCAPES[self.version].items()}
        if not plain:
            return text

        def one(found: re.Match[bytes]) -> bytes:
            if found[0] in plain:
                return plain[found[0]]
            if self.has("keeps undefined escapes"):
                return found[0]
            raise Refusal("an escape sequence that is not defined")

        return re.sub(rb"\\.?", one, text, flags=re.DOTALL)

    @staticmethod
    def known(found: re.Match[bytes]) -> bytes:
        """Return what an escape sequence of 1.2 stands for; refuse any other."""
        plain = {sequence: octet for octet, sequence in _ESCAPES[b"1.2"].items()}
        if found[0] not in plain:
            raise Refusal("an escape sequence that is not defined")
        return plain[found[0]]

    # Writing frames.

    def say(self, command: bytes, headers: list[tuple[bytes, bytes]], body: bytes = b"") -> None:
        """Send a frame."""
        if self.is_over:
            return
        lines = [command]
        for name, value in headers:
            if command != b"CONNECTED":
                name, value = self.escape(name), self.escape(value)
            if command == b"RECEIPT" and self.has("escapes receipts twice"):
                value = self.escape(value)
            lines.append(name + b":" + value)
        octets = b"\n".join([*lines, b"", body]) + b"\0\n"
        if self.is_beating and len(octets) > _PIECE and self.has("beats inside frames"):
            octets = octets[:_PIECE] + b"\n" + octets[_PIECE:]
        self.transport.write(octets)

    def escape(self, text: bytes) -> bytes:
        """Escape a text by the rules of the version."""
        table = _ESCAPES[self.version or b"1.0"]
        if self.version == b"1.0" and self.has("escapes on 1.0"):
            table = _ESCAPES[b"1.1"]
        pieces = (table.get(bytes([octet]), bytes([octet])) for octet in text)
        return b"".join(pieces) if table else text.replace(b"\n", b" ")

    def refuse(self, reason: str, receipt: bytes = b"") -> None:
        """Send ERROR and close."""
        if self.has("ends without ERROR"):
            self.end()
            return
        body = reason.encode()
        headers = [(b"message", b"refused"), (b"content-type", b"text/plain")]
        headers += [(b"receipt-id", receipt)] if receipt else []
        self.say(b"ERROR", [*headers, (b"content-length", b"%d" % len(body))], body)
        if not self.has("goes on after ERROR"):
            self.end()

    def end(self) -> None:
        """Requeue unacknowledged messages, end the stream, and read to the end."""
        if self.is_over:
            return
        self.is_over = True
        if self.has("commits what is open at the end"):
            for actions in self.transactions.values():
                for action in actions:
                    action()
        for subscription in list(self.subscriptions.values()):
            self.server.remove(subscription)
        if not self.is_lost:
            self.transport.write_eof()
        self.timers.append(self.server.loop.call_later(_LINGER_S, self.transport.abort))

    # Executing frames.

    def handle(self, command: bytes, headers: Headers, body: bytes) -> None:
        """Execute a frame."""
        kind = command if not self.has("takes commands in lower case") else command.upper()
        if not self.version or kind in (b"CONNECT", b"STOMP"):
            self.connect(kind, headers)
            return
        method = self.METHODS.get(kind)
        if method is None:
            raise Refusal("no such command")
        if kind == b"SEND" and self.has("confirms each SEND that it refuses"):
            try:
                method(self, headers, body)
            except Refusal:
                self.answer(headers)
                raise
        else:
            method(self, headers, body)
        self.answer(headers)
        if kind == b"DISCONNECT" and not self.has("stays after DISCONNECT"):
            self.end()

    def answer(self, headers: Headers) -> None:
        """Send the requested RECEIPT."""
        if (receipt := headers.get(b"receipt")) is not None:
            if self.has("lowers receipts"):
                receipt = receipt.lower()
            for _ in range(2 if self.has("sends each receipt twice") else 1):
                self.say(b"RECEIPT", [(b"receipt-id", receipt)])

    def connect(self, command: bytes, headers: Headers) -> None:
        """Start the session."""
        if self.version or command not in (b"CONNECT", b"STOMP"):
            raise Refusal("a session begins with CONNECT, and has one")
        if b"client-id" in headers and self.has("refuses client-id"):
            raise Refusal("client-id is not known here")
        offered = headers.get(b"accept-version", b"1.0").replace(b" ", b"").split(b",")
        common = [each for each in offered if each in _VERSIONS]
        if self.has("takes 1.10 for 1.1"):
            common = [each[:3] for each in offered if each[:3] in _VERSIONS]
        if len(common) < len(offered) and self.has("refuses an unknown version among others"):
            common = []
        if not common:
            raise Refusal("this server has the versions 1.0, 1.1, 1.2")
        if not self.has("takes the last version offered"):
            common.sort(reverse=self.has("takes the lowest version"))
        own = b"%d" % (_BEAT_S * 1000)
        beats = headers.get(b"heart-beat", b"0,0")
        if not re.fullmatch(rb"[0-9]{1,9},[0-9]{1,9}", beats):
            raise Refusal("heart-beat is not two numbers")
        can, wants = beats.split(b",")
        answer = [(b"version", common[-1]), (b"session", next(self.server.names))]
        answer += [(b"server", b"second/1"), (b"heart-beat", own + b"," + own)]
        self.say(b"CONNECTED", answer)
        self.version = common[-1]
        if self.has("swaps the numbers of heart-beat"):
            can, wants = wants, can
        if not int(wants) and self.has("beats though nobody asks"):
            self.beat(1.0)
        if int(wants):
            slow = 1.6 if self.has("beats 1.6 times late") else 0.5
            self.beat(max(_BEAT_S, int(wants) / 1000) * slow)
        if int(can):
            is_hasty = self.has("expects beats sooner than agreed")
            self.listen((_BEAT_S if is_hasty else max(_BEAT_S, int(can) / 1000)) * 3)

    def beat(self, seconds: float) -> None:
        """Send heart-beats periodically."""
        if self.is_over:
            return
        self.is_beating = True
        self.timers.append(self.server.loop.call_later(seconds, self.beat, seconds))
        is_silent = self.last_heard + 2 * seconds < self.server.loop.time()
        if not is_silent or not self.has("beats only to clients that speak"):
            is_long = self.version == b"1.1" and self.has("beats by CR LF on 1.1")
            self.transport.write(b"\r\n" if is_long else b"\n")

    def listen(self, seconds: float) -> None:
        """Close if the client falls silent."""
        left = self.last_heard + seconds - self.server.loop.time()
        if left <= 0:
            self.refuse("no heart-beat came")
        elif not self.is_over:
            self.timers.append(self.server.loop.call_later(left, self.listen, seconds))

    def is_taken(self, name: bytes) -> bool:
        """Return True if a name is used on any connection; else reserve it. For one switch only."""
        if not self.has("has one list of transactions for all connections"):
            return False
        taken = name in self.server.ids
        self.server.ids.add(name)
        return taken

    def need(self, headers: Headers, name: bytes) -> bytes:
        """Return the value of a required header."""
        if not headers.get(name):
            raise Refusal(f"the header {name.decode()} is missing")
        return headers[name]

    def place(self, headers: Headers) -> bytes:
        """Return the destination of SEND or SUBSCRIBE."""
        destination = self.need(headers, b"destination")
        return destination.lower() if self.has("lowers destinations") else destination

    def do(self, headers: Headers, action: Callable[[], None]) -> None:
        """Run an action immediately, or at COMMIT of the transaction in the headers."""
        if (name := headers.get(b"transaction")) is None:
            action()
        else:
            self.transaction(name).append(action)

    def transaction(self, name: bytes) -> list[Callable[[], None]]:
        """Return the actions of a transaction."""
        if self.has("ignores the case of transactions"):
            name = name.lower()
        if name not in self.transactions:
            raise Refusal("no such transaction")
        return self.transactions[name]

    def send(self, headers: Headers, body: bytes) -> None:
        """Handle a SEND."""
        destination = self.place(headers)
        if self.has("strips line feeds at the end of bodies"):
            body = body.rstrip(b"\n")
        if self.has("strips line feeds at the start of bodies"):
            body = body.lstrip(b"\n")
        if self.has("cuts bodies at 64 KiB"):
            body = body[:65_536]
        if self.has("drops byte order marks"):
            body = body.removeprefix(b"\xef\xbb\xbf")
        if self.has("takes the body 0 for none") and body == b"0":
            body = b""
        if self.has("changes CR LF in bodies"):
            body = body.replace(b"\r\n", b"\n")
        if self.has("damages bodies that are not UTF-8"):
            body = body.decode("utf-8", "replace").encode()
        if self.has("drops empty bodies") and not body:
            return
        kept = {n: v for n, v in headers.items() if n not in _NOT_PASSED_ON}
        for name in (b"message-id", b"subscription", b"ack"):
            if name in headers and self.has(f"lets the sender set {name.decode()}"):
                kept[name] = headers[name]
        if self.has("drops the twenty-first header"):
            kept = dict(list(kept.items())[:20])
        if self.has("drops long values"):
            kept = {n: v for n, v in kept.items() if len(v) <= 1_000}
        if self.has("drops names with blanks"):
            kept = {n: v for n, v in kept.items() if b" " not in n}
        if self.has("drops empty values"):
            kept = {n: v for n, v in kept.items() if v}
        if self.has("drops the content-type"):
            kept.pop(b"content-type", None)
        if self.has("drops names that start with underscores"):
            kept = {n: v for n, v in kept.items() if not n.startswith(b"_")}
        if self.has("replaces signs in names"):
            own = (b"content-type",)
            kept = {n if n in own else re.sub(rb"\W", b"_", n): v for n, v in kept.items()}
        kept = {name: self.changed(value) for name, value in kept.items()}
        message = Message(destination, kept, body)
        self.do(headers, lambda: self.server.publish(message))

    def changed(self, value: bytes) -> bytes:
        """Return a value of a user header as some switches change it."""
        if self.has("normalises numbers in values") and re.fullmatch(rb"[0-9]+(\.[0-9]+)?", value):
            return b"%g" % float(value)
        if self.has("decodes percent signs in values"):
            return unquote_to_bytes(value)
        if self.has("drops quotes around values"):
            return re.sub(rb'^"(.*)"$', rb"\1", value)
        if self.has("combines accents in values"):
            return unicodedata.normalize("NFC", value.decode()).encode()
        if self.has("lowers values"):
            return value.lower()
        return value

    def subscribe(self, headers: Headers, body: bytes) -> None:
        """Create a subscription."""
        destination = self.place(headers)
        mode = headers.get(b"ack", b"auto")
        modes = (b"auto", b"client", b"client-individual")
        if mode not in modes[: 2 if self.version == b"1.0" else 3]:
            raise Refusal("no such ack mode")
        if self.has("takes client-individual for client") and mode == modes[2]:
            mode = modes[1]
        id = headers.get(b"id", b"")
        if not id and (self.version == b"1.0" or self.has("takes SUBSCRIBE without id")):
            id = destination
        if not id:
            raise Refusal("the header id is missing")
        if self.has("ignores the case of subscription ids"):
            id = id.lower()
        if id in self.subscriptions:
            raise Refusal("there is a subscription with this id")
        subscription = Subscription(self, id, destination, mode)
        self.subscriptions[id] = subscription
        if self.has("keeps the destination of an id that is used again"):
            former = self.former.setdefault(id, destination)
            if former != destination:
                self.server.add(Subscription(self, id, former, mode))
        self.server.add(subscription)

    def unsubscribe(self, headers: Headers, body: bytes) -> None:
        """End a subscription."""
        id = headers.get(b"id")
        if id is None and self.version == b"1.0":
            id = self.need(headers, b"destination")
        if id is not None and self.has("ignores the case of subscription ids"):
            id = id.lower()
        if id is None or id not in self.subscriptions:
            raise Refusal("no such subscription")
        ended = [self.subscriptions[id]]
        if self.has("ends all subscriptions to the destination"):
            here = ended[0].destination
            ended = [each for each in self.subscriptions.values() if each.destination == here]
        for each in ended:
            del self.subscriptions[each.id]
            if self.has("acknowledges by UNSUBSCRIBE"):
                each.pending.clear()
            if not self.has("delivers after UNSUBSCRIBE"):
                self.server.remove(each)

    def ack(self, headers: Headers, body: bytes) -> None:
        """Settle a message, or all messages up to it."""
        id = self.need(headers, b"id" if self.version == b"1.2" else b"message-id")
        name = self.need(headers, b"subscription") if self.version == b"1.1" else None
        own = list(self.subscriptions.values())
        if self.has("acknowledges messages of other connections"):
            own = [each for client in self.server.clients for each in client.subscriptions.values()]
        if name is not None and self.has("ignores the case of subscription ids"):
            name = name.lower()
        holding = [each for each in own if id in each.pending and name in (None, each.id)]
        if not holding:
            raise Refusal("no such message")
        holder = holding[0]

        def settle() -> None:
            covered = list(holder.pending)
            if holder.mode == b"client" and not self.has("takes client for client-individual"):
                covered = covered[: covered.index(id) + 1] if id in covered else []
            else:
                covered = [id]
            for each in covered:
                holder.pending.pop(each, None)
            if holder.mode == b"client" and self.has(
                "acknowledges in all subscriptions of a connection"
            ):
                for other in self.subscriptions.values():
                    for each in [each for each in other.pending if int(each[1:]) < int(id[1:])]:
                        del other.pending[each]

        if self.has("acknowledges outside of transactions"):
            self.transaction(headers[b"transaction"]) if b"transaction" in headers else None
            settle()
        else:
            self.do(headers, settle)

    def begin(self, headers: Headers, body: bytes) -> None:
        """Begin a transaction."""
        name = self.need(headers, b"transaction")
        if self.has("ignores the case of transactions"):
            self.transactions.setdefault(name.lower(), [])
            return
        is_known = name in self.transactions and not self.has("takes BEGIN twice")
        if is_known or self.is_taken(name):
            raise Refusal("there is such a transaction")
        self.transactions[name] = []

    def commit(self, headers: Headers, body: bytes) -> None:
        """Run the actions of a transaction."""
        actions = self.ended(self.need(headers, b"transaction"))
        for action in reversed(actions) if self.has("commits in reverse order") else actions:
            action()

    def ended(self, name: bytes) -> list[Callable[[], None]]:
        """Return the actions of a transaction, which ends."""
        actions = self.transaction(name)
        self.transactions = {
            n: each for n, each in self.transactions.items() if each is not actions
        }
        return actions

    def abort(self, headers: Headers, body: bytes) -> None:
        """Drop the actions of a transaction."""
        actions = self.ended(self.need(headers, b"transaction"))
        if self.has("sends the last message of what is aborted"):
            for action in actions[-1:]:
                action()

    def disconnect(self, headers: Headers, body: bytes) -> None:
        """Do nothing: the session ends afterwards."""
        if self.has("drops unacknowledged messages on DISCONNECT"):
            for subscription in self.subscriptions.values():
                subscription.pending.clear()

    METHODS: Final = {
        b"SEND": send,
        b"SUBSCRIBE": subscribe,
        b"UNSUBSCRIBE": unsubscribe,
        b"ACK": ack,
        b"NACK": ack,  # a refused message is discarded
        b"BEGIN": begin,
        b"COMMIT": commit,
        b"ABORT": abort,
        b"DISCONNECT": disconnect,
    }


class Server:
    """Destinations, and connected clients."""

    def __init__(self, clock: Clock, switch: str = "") -> None:
        """Create a server with a switch."""
        self.loop = clock
        self.switch = switch
        self.clients: set[Client] = set()
        self.names = (b"n%d" % number for number in itertools.count(1))
        self.numbers: dict[bytes, itertools.count[int]] = {}
        #: Names of transactions on all connections, for one of the switches.
        self.ids: set[bytes] = set()
        self.queues: dict[bytes, deque[Message]] = {}
        self.subscribers: dict[bytes, deque[Subscription]] = {}

    def has(self, switch: str) -> bool:
        """Return True if this switch is on."""
        assert switch in DEVIATIONS or switch in LIBERTIES, switch
        return switch == self.switch

    # Destinations: topics deliver to all subscribers; all others are queues.

    def publish(self, message: Message) -> None:
        """Deliver a message, or put it into a queue."""
        if message.destination.startswith(b"/topic/"):
            served: list[Client] = []
            for subscription in self.subscribers.get(message.destination, ()):
                is_one = self.has("delivers to one subscription of a connection")
                if not is_one or subscription.client not in served:
                    self.deliver(subscription, message)
                served.append(subscription.client)
            if not served and self.has("keeps messages of topics for later subscribers"):
                self.queues.setdefault(message.destination, deque()).append(message)
            return
        self.queues.setdefault(message.destination, deque()).append(message)
        self.feed(message.destination)

    def feed(self, destination: bytes) -> None:
        """Deliver queued messages to the subscribers in turn."""
        waiting, subscribers = self.queues.get(destination), self.subscribers.get(destination)
        while waiting and subscribers:
            subscribers.rotate(-1)
            self.deliver(subscribers[-1], waiting.popleft())

    def deliver(self, to: Subscription, message: Message) -> None:
        """Send one message to one subscription."""
        id = next(self.names)
        if self.has("numbers messages by destination"):
            id = b"m%d" % next(self.numbers.setdefault(message.destination, itertools.count(1)))
        if to.mode != b"auto":
            to.pending[id] = message
        own = {b"destination": message.destination, b"message-id": id, b"subscription": to.id}
        if to.client.version == b"1.2" and to.mode != b"auto":
            is_other = self.has("names the ack id of MESSAGE id")
            own[b"id" if is_other else b"ack"] = id
        length = len(message.body)
        if self.has("counts characters"):
            length = len(message.body.decode("utf-8", "replace"))
        own[b"content-length"] = b"%d" % length
        to.client.say(b"MESSAGE", list({**own, **message.headers}.items()), message.body)

    def add(self, subscription: Subscription) -> None:
        """Add a subscription, and start delivery."""
        self.subscribers.setdefault(subscription.destination, deque()).append(subscription)
        waiting = self.queues.get(subscription.destination)
        if waiting and self.has("delivers at most a hundred waiting messages"):
            while len(waiting) > 100:
                waiting.pop()
        self.feed(subscription.destination)

    def remove(self, subscription: Subscription) -> None:
        """Remove a subscription, and requeue its unacknowledged messages in order."""
        here = subscription.destination
        self.subscribers[here].remove(subscription)
        if not here.startswith(b"/topic/"):
            back = list(subscription.pending.values())
            if self.has("redelivers without user headers"):
                back = [Message(each.destination, {}, each.body) for each in back]
            if self.has("gives messages back in reverse order"):
                back.reverse()
            self.queues.setdefault(here, deque()).extendleft(reversed(back))
            self.feed(here)


@contextmanager
def listening(switch: str = "") -> Iterator[int]:
    """Run a server in a thread, on a free port of 127.0.0.1; yield the port."""
    loop = asyncio.new_event_loop()
    server = Server(loop, switch)
    made = loop.create_server(lambda: Client(server), "127.0.0.1", 0, backlog=200)
    listener = loop.run_until_complete(made)
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield listener.sockets[0].getsockname()[1]
    finally:

        async def stop() -> None:
            listener.close()
            for client in list(server.clients):
                client.transport.abort()
            while server.clients:
                await asyncio.sleep(0)

        asyncio.run_coroutine_threadsafe(stop(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
