"""A STOMP client written from the specifications alone, with switches for faults and variants.

It behaves as ``docs/howto/conformance-clients.rst`` requires of a program, and shares no code with
the package. ``DEVIATIONS`` are switches that violate a statement; ``LIBERTIES`` are those that the
specifications permit. A client has at most one switch.
"""

from __future__ import annotations

import contextlib
import itertools
import re
import select
import socket
import sys
import threading
import time
import unicodedata
from collections import deque
from collections.abc import Sequence
from typing import Final

Headers = dict[bytes, bytes]
Pairs = list[tuple[bytes, bytes]]
Frame = tuple[bytes, Headers, bytes]

#: Switches that violate a statement of the specifications.
DEVIATIONS: Final = frozenset(
    {
        "acknowledges after DISCONNECT",
        "acknowledges by message-id on 1.2",
        "acknowledges every second message",
        "acknowledges the newest message",
        "acknowledges what it refuses",
        "acknowledges without subscription on 1.1",
        "asks for a receipt of CONNECT",
        "beats 1.6 times late",
        "beats by CR LF on 1.1",
        "beats only while it hears nothing",
        "begins all transactions by one name",
        "changes CR LF in bodies",
        "closes without DISCONNECT",
        "combines accents in headers",
        "counts characters",
        "cuts values at 255",
        "damages bodies that are not UTF-8",
        "decides by the first line end",
        "disconnects without receipt",
        "does not escape destinations",
        "does not escape",
        "does not wait for CONNECTED",
        "does not wait for the RECEIPT",
        "drops byte order marks",
        "drops empty values",
        "drops names with blanks",
        "drops the twenty-first header",
        "ends bodies at the end of a packet",
        "ends well after ERROR",
        "escapes CONNECT",
        "escapes carriage returns on 1.1",
        "escapes on 1.0",
        "escapes twice",
        "expects beats sooner than agreed",
        "forgets the transaction of SEND",
        "forgives no late beat",
        "has one interval for both directions",
        "ignores content-length on 1.0",
        "ignores content-length",
        "keeps a backslash at the end",
        "keeps escapes",
        "keeps the content-length of the MESSAGE before",
        "keeps undefined escapes",
        "lets line ends into headers of 1.0",
        "loses messages that come before its receipts",
        "lowers destinations",
        "lowers header names that it writes",
        "lowers header names",
        "makes ids of destinations",
        "names a transaction that is over",
        "names no host",
        "names the ack of MESSAGE ack",
        "names the first subscription in ACK",
        "names the first subscription in NACK",
        "needs headers in each frame",
        "needs heart-beat in CONNECTED",
        "needs the session of CONNECTED",
        "offers versions in falling order",
        "reads CONNECTED in one piece",
        "replaces tabs in values",
        "routes messages by destination",
        "sends NACK on 1.0",
        "sends a body with SUBSCRIBE",
        "sends no content-length",
        "sends no heart-beats",
        "sends text in UTF-8",
        "separates versions by blanks",
        "skips one line end between frames",
        "speaks 1.2 whatever CONNECTED says",
        "strips line feeds at the end of bodies",
        "subscribes without id",
        "swaps the numbers of heart-beat",
        "takes CR LF on 1.1",
        "takes a missing heart-beat for its own",
        "takes any RECEIPT for that of DISCONNECT",
        "takes bodies without content-length for text",
        "takes carriage returns for escapes on 1.1",
        "takes escapes in capitals",
        "takes no CR LF on 1.2",
        "takes only line ends for signs of life",
        "takes only whole frames for signs of life",
        "takes receipts by their beginning",
        "takes the last of repeated headers",
        "trims values",
        "unescapes CONNECTED",
        "unescapes lines before it splits them",
        "unescapes on 1.0",
        "unescapes values only",
        "unsubscribes by destination",
        "unsubscribes twice",
        "wants client-individual on 1.0",
        "writes heart-beat with decimals",
    }
)
#: Switches that the specifications permit.
LIBERTIES: Final = frozenset(
    {
        "acknowledges in all ways on 1.2",
        "adds headers of its own",
        "asks for no receipts but that of DISCONNECT",
        "beats by CR LF on 1.2",
        "beats five times as often",
        "ends each frame with a line end",
        "has no heart-beats",
        "offers no 1.0",
        "refuses lines of more than 512 octets",
        "refuses more than 16 headers",
        "repeats headers",
        "says content-length in each frame of 1.2",
        "subscribes without id on 1.0",
        "takes a version that it has not offered",
        "trims values on 1.0",
        "waits for each receipt",
        "writes CR LF on 1.2",
        "writes in small pieces",
    }
)

#: Escape sequences of each version, with their meaning.
_SEQUENCES: Final = {
    b"1.0": {},
    b"1.1": {rb"\\": b"\\", rb"\n": b"\n", rb"\c": b":"},
    b"1.2": {rb"\\": b"\\", rb"\n": b"\n", rb"\c": b":", rb"\r": b"\r"},
}
_VERSIONS: Final = (b"1.0", b"1.1", b"1.2")
_IN, _OUT = b"/queue/in", b"/queue/out"
_BEAT_MS: Final = 500
#: Time in seconds to wait for the RECEIPT of DISCONNECT.
_GOODBYE_S: Final = 1.0


class Lost(Exception):
    """The session has ended with an error."""


class Client:
    """Runs sessions with one server after the other, until a message tells it to quit."""

    connection: socket.socket

    def __init__(self, nodes: Sequence[tuple[str, int]], switch: str = "") -> None:
        """Create a client for servers at these addresses, with a switch."""
        self.nodes = nodes
        self.switch = switch
        self.is_aborted = threading.Event()
        self.numbers = itertools.count(1)

    def has(self, switch: str) -> bool:
        """Return True if this switch is on."""
        assert switch in DEVIATIONS or switch in LIBERTIES, switch
        return switch == self.switch

    def run(self) -> int:
        """Run all sessions; return the exit status."""
        for host, port in itertools.cycle(self.nodes):
            try:
                with socket.create_connection((host, port)) as self.connection:
                    self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    self.begin()
                    self.connect(host.encode())
                    if not self.has("does not wait for CONNECTED"):
                        self.subscribe(_IN)
                    self.work()
                return 0
            except (Lost, OSError) as error:
                if str(error) == "ERROR" and self.has("ends well after ERROR"):
                    return 0
                if len(self.nodes) == 1 or self.is_aborted.is_set():
                    return 1
        raise AssertionError("there are no addresses")

    def abort(self) -> None:
        """Abort the connection; from any thread."""
        self.is_aborted.set()
        with contextlib.suppress(OSError, AttributeError):  # there may be no connection yet
            self.connection.shutdown(socket.SHUT_RDWR)

    def begin(self) -> None:
        """Reset the state of the session."""
        if self.is_aborted.is_set():
            raise Lost("aborted")
        self.buffer = b""
        self.version = b""
        #: Frames read ahead, and the headers of the last MESSAGE among them.
        self.frames: deque[Frame] = deque()
        self.newest: Headers = {}
        #: The last content-length of MESSAGE, for one of the switches.
        self.length: bytes | None = None
        self.subscriptions: dict[bytes, bytes] = {}
        self.transaction_is_over: Pairs = []
        self.messages = 0
        #: Interval in seconds of heart-beats to the server and from it; 0 for none.
        self.send_s = self.receive_s = 0.0
        self.last_sent = self.last_heard = time.monotonic()

    # Bytes.

    def write(self, octets: bytes) -> None:
        """Send bytes."""
        size = 3 if self.has("writes in small pieces") else len(octets)
        for place in range(0, len(octets), size):
            self.connection.sendall(octets[place : place + size])
        self.last_sent = time.monotonic()

    def fill(self, until: float | None = None) -> None:
        """Wait for bytes, and send heart-beats meanwhile."""
        pace = 1.6 if self.has("beats 1.6 times late") else 0.5
        if self.has("beats five times as often"):
            pace = 0.2
        beat = self.last_sent + self.send_s * pace if self.send_s else None
        if beat is not None and self.has("beats only while it hears nothing"):
            beat = max(beat, self.last_heard + self.send_s * pace)
        patience = 2.0 if self.has("expects beats sooner than agreed") else 4.0
        # With short intervals, a busy machine would cause missed heart-beats.
        if self.receive_s > 1.0 and self.has("forgives no late beat"):
            patience = 1.0
        dead = self.last_heard + self.receive_s * patience if self.receive_s else None
        times = [each for each in (beat, dead, until) if each is not None]
        wait_s = max(0.0, min(times) - time.monotonic()) if times else None
        if select.select([self.connection], [], [], wait_s)[0]:
            octets = self.connection.recv(65_536)
            if not octets:
                raise Lost("the server has closed the connection")
            is_text = any(octet not in b"\r\n" for octet in octets)
            if not is_text or not self.switch.startswith("takes only"):
                self.last_heard = time.monotonic()
            self.buffer += octets
            return
        now = time.monotonic()
        if beat is not None and now >= beat:
            is_cr = self.has("beats by CR LF on 1.1") and self.version == b"1.1"
            is_cr = is_cr or (self.has("beats by CR LF on 1.2") and self.version == b"1.2")
            self.write(b"\r\n" if is_cr else b"\n")
        if dead is not None and now >= dead:
            raise Lost("no heart-beat came")
        if until is not None and now >= until:
            raise TimeoutError

    # Reading frames.

    def receive(self, until: float | None = None) -> Frame:
        """Wait for a frame; complete frames after it are read as well."""
        while not self.frames:
            self.read_ahead()
            if not self.frames:
                self.fill(until)
        return self.frames.popleft()

    def read_ahead(self) -> None:
        """Read all complete frames, or only one before CONNECTED."""
        while frame := self.next_frame():
            if self.has("takes only whole frames for signs of life"):
                self.last_heard = time.monotonic()
            self.frames.append(frame)
            if frame[0] == b"MESSAGE":
                self.newest = frame[1]
            if not self.version:
                return

    def next_frame(self) -> Frame | None:
        """Take the next complete frame from the buffer."""
        takes_cr = self.version in (b"", b"1.2") and not self.has("takes no CR LF on 1.2")
        if self.version == b"1.1" and self.has("takes CR LF on 1.1"):
            takes_cr = True
        if self.has("skips one line end between frames"):
            self.buffer = self.buffer.removeprefix(b"\n")
        else:
            self.buffer = self.buffer.lstrip(b"\r\n" if takes_cr else b"\n")
        if self.has("decides by the first line end") and takes_cr:
            takes_cr = self.buffer.partition(b"\n")[0].endswith(b"\r")
        gap = re.search(rb"\n\r?\n" if takes_cr else rb"\n\n", self.buffer)
        if not self.version and self.buffer and self.has("reads CONNECTED in one piece"):
            gap = gap or re.search(rb"$", self.buffer)
        if gap is None:
            return None
        lines = self.buffer[: gap.start()].split(b"\n")
        command, *lines = (line.removesuffix(b"\r") if takes_cr else line for line in lines)
        headers = self.parse(command, lines)
        if not headers and self.has("needs headers in each frame"):
            raise Lost("a frame without headers")
        length = headers.get(b"content-length")
        if self.has("ignores content-length"):
            length = None
        if self.has("ignores content-length on 1.0") and self.version == b"1.0":
            length = None
        if command == b"MESSAGE" and self.has("keeps the content-length of the MESSAGE before"):
            length = self.length = length or self.length
        if length is None:
            end = self.buffer.find(b"\0", gap.end())
            if end < 0 and self.has("ends bodies at the end of a packet"):
                end, self.buffer = len(self.buffer), self.buffer + b"\0"
        else:
            end = gap.end() + int(length)
        if end < 0 or end >= len(self.buffer):
            return None
        if self.buffer[end] != 0:
            raise Lost("no NUL follows the body")
        body, self.buffer = self.buffer[gap.end() : end], self.buffer[end + 1 :]
        if length is None and self.has("takes bodies without content-length for text"):
            body = body.decode("utf-8", "replace").encode()
        return command, headers, body

    def parse(self, command: bytes, lines: list[bytes]) -> Headers:
        """Parse header lines into a dictionary, with the first of repeated headers."""
        headers: Headers = {}
        if len(lines) > 16 and self.has("refuses more than 16 headers"):
            raise Lost("too many headers")
        for line in lines:
            if len(line) > 512 and self.has("refuses lines of more than 512 octets"):
                raise Lost("a line is too long")
            is_early = command != b"CONNECTED" and self.has("unescapes lines before it splits them")
            name, colon, value = (self.unescape(line) if is_early else line).partition(b":")
            if not colon or not name:
                raise Lost(f"no header: {line!r}")
            if is_early:
                pass
            elif command != b"CONNECTED" or self.has("unescapes CONNECTED"):
                if not self.has("unescapes values only"):
                    name = self.unescape(name)
                value = self.unescape(value)
            if self.has("lowers header names"):
                name = name.lower()
            if self.has("trims values"):
                value = value.strip(b" ")
            if self.has("trims values on 1.0") and self.version == b"1.0":
                value = value.strip(b" ")
            if self.has("replaces tabs in values"):
                value = value.replace(b"\t", b" ")
            if self.has("cuts values at 255"):
                value = value[:255]
            if self.has("combines accents in headers"):
                value = unicodedata.normalize("NFC", value.decode()).encode()
            if self.has("drops names with blanks") and b" " in name:
                continue
            if self.has("drops empty values") and not value:
                continue
            is_further = len(headers) >= 20 and name.startswith(b"x-")
            if is_further and self.has("drops the twenty-first header"):
                continue
            if self.has("takes the last of repeated headers"):
                headers[name] = value
            headers.setdefault(name, value)
        return headers

    def unescape(self, text: bytes) -> bytes:
        """Unescape a text by the rules of the version."""
        version = self.version or b"1.2"
        if version == b"1.0" and self.has("unescapes on 1.0"):
            version = b"1.1"
        if version == b"1.1" and self.has("takes carriage returns for escapes on 1.1"):
            version = b"1.2"
        plain = _SEQUENCES[version]
        if not plain or self.has("keeps escapes"):
            return text

        def one(found: re.Match[bytes]) -> bytes:
            sequence = found[0]
            if self.has("takes escapes in capitals"):
                sequence = sequence.lower()
            if sequence in plain:
                return plain[sequence]
            if self.has("keeps a backslash at the end") and sequence == b"\\":
                return sequence
            if self.has("keeps undefined escapes"):
                return sequence
            raise Lost("an escape sequence that is not defined")

        return re.sub(rb"\\.?", one, text, flags=re.DOTALL)

    # Writing frames.

    def send(self, command: bytes, headers: Pairs, body: bytes = b"") -> None:
        """Send a frame."""
        length = len(body)
        if self.has("counts characters"):
            length = len(body.decode("utf-8", "replace"))
        says_length = command == b"SEND" and not self.has("sends no content-length")
        if self.has("says content-length in each frame of 1.2") and self.version == b"1.2":
            says_length = True
        if command == b"SEND" and self.has("repeats headers") and self.version != b"1.0":
            headers = [*headers, *((name, b"earlier") for name, _ in headers)]
        if self.has("adds headers of its own"):
            headers = [*headers, (b"x-client", b"second/1"), (b"client-lang", b"Python")]
        if says_length:
            headers = [*headers, (b"content-length", b"%d" % length)]
        lines = [command]
        for name, value in headers:
            if self.has("lowers destinations") and name == b"destination":
                value = value.lower()
            is_raw = name == b"destination" and self.has("does not escape destinations")
            if not is_raw and (command != b"CONNECT" or self.has("escapes CONNECT")):
                name, value = self.escape(name), self.escape(value)
                value = self.escape(value) if self.has("escapes twice") else value
            if self.has("lowers header names that it writes"):
                name = name.lower()
            lines.append(name + b":" + value)
        is_cr = self.version == b"1.2" and self.has("writes CR LF on 1.2")
        head = (b"\r\n" if is_cr else b"\n").join([*lines, b"", b""])
        tail = b"\n" if self.has("ends each frame with a line end") else b""
        self.write(head + body + b"\0" + tail)

    def escape(self, text: bytes) -> bytes:
        """Escape a text by the rules of the version; raises :class:`Lost` if there is no escape."""
        version = self.version or b"1.2"
        if self.has("does not escape"):
            return text
        if version == b"1.0" and self.has("escapes on 1.0"):
            version = b"1.1"
        if version == b"1.1" and self.has("escapes carriage returns on 1.1"):
            version = b"1.2"
        sequences = {plain: sequence for sequence, plain in _SEQUENCES[version].items()}
        is_free = sequences or self.has("lets line ends into headers of 1.0")
        if b"\n" in text and not is_free:
            raise Lost("STOMP 1.0 has no line ends in headers")
        return b"".join(sequences.get(bytes([octet]), bytes([octet])) for octet in text)

    def ask(self, command: bytes, headers: Pairs, body: bytes = b"") -> bytes:
        """Send a frame with a receipt; return the receipt."""
        receipt = b"r%d" % next(self.numbers)
        asks = not self.has("asks for no receipts but that of DISCONNECT")
        if asks or command == b"DISCONNECT":
            headers = [*headers, (b"receipt", receipt)]
        self.send(command, headers, body)
        waits = self.has("waits for each receipt")
        if command == b"SUBSCRIBE" and self.has("loses messages that come before its receipts"):
            waits = True
        if waits and command != b"DISCONNECT":
            self.wait_for(receipt)
        return receipt

    def wait_for(self, receipt: bytes) -> None:
        """Wait for a RECEIPT, and keep other frames for later."""
        earlier: list[Frame] = []
        while (frame := self.receive())[1].get(b"receipt-id") != receipt:
            if not self.has("loses messages that come before its receipts"):
                earlier.append(frame)
            if frame[0] == b"ERROR":
                raise Lost("ERROR")
        self.frames.extendleft(reversed(earlier))

    # The session.

    def connect(self, host: bytes) -> None:
        """Send CONNECT, and wait for CONNECTED."""
        versions = _VERSIONS[1:] if self.has("offers no 1.0") else _VERSIONS
        if self.has("offers versions in falling order"):
            versions = versions[::-1]
        comma = b", " if self.has("separates versions by blanks") else b","
        headers = [(b"accept-version", comma.join(versions))]
        if not self.has("names no host"):
            headers.append((b"host", host))
        headers += [(b"login", b"guest"), (b"passcode", rb"gu:e\st")]
        if not self.has("has no heart-beats"):
            beat = b"%d" % _BEAT_MS
            beat += b".0" if self.has("writes heart-beat with decimals") else b""
            headers.append((b"heart-beat", beat + b"," + beat))
        if self.has("asks for a receipt of CONNECT"):
            headers.append((b"receipt", b"connect"))
        self.send(b"CONNECT", headers)
        if self.has("does not wait for CONNECTED"):
            self.subscriptions[b"s0"] = _IN
            own = [(b"destination", _IN), (b"id", b"s0"), (b"ack", b"client-individual")]
            self.send(b"SUBSCRIBE", own)
        command, connected, _ = self.receive()
        if command != b"CONNECTED":
            raise Lost(command.decode())
        if b"session" not in connected and self.has("needs the session of CONNECTED"):
            raise Lost("no session")
        self.version = connected.get(b"version", b"1.0")
        if self.has("speaks 1.2 whatever CONNECTED says"):
            self.version = b"1.2"
        if self.version not in _VERSIONS:
            if not self.has("takes a version that it has not offered"):
                raise Lost("a version that was not offered")
            self.version = b"1.2"
        self.agree(connected.get(b"heart-beat"))

    def agree(self, beats: bytes | None) -> None:
        """Store the negotiated heart-beats."""
        if beats is None and self.has("needs heart-beat in CONNECTED"):
            raise Lost("no heart-beat")
        missing = b"500,500" if self.has("takes a missing heart-beat for its own") else b"0,0"
        can, wants = map(int, (beats or missing).split(b","))
        if self.has("swaps the numbers of heart-beat"):
            can, wants = wants, can
        if self.has("has no heart-beats"):
            can = wants = 0
        if self.has("has one interval for both directions"):
            can = wants = max(can, wants)
        if wants and not self.has("sends no heart-beats"):
            self.send_s = max(_BEAT_MS, wants) / 1000
        if can:
            is_hasty = self.has("expects beats sooner than agreed")
            self.receive_s = (_BEAT_MS if is_hasty else max(_BEAT_MS, can)) / 1000

    def subscribe(self, destination: bytes) -> None:
        """Subscribe to a destination."""
        id = b"s%d" % len(self.subscriptions)
        if self.has("makes ids of destinations"):
            id = destination
        self.subscriptions[id] = destination
        mode = b"client-individual"
        if self.version == b"1.0" and not self.has("wants client-individual on 1.0"):
            mode = b"client"
        headers = [(b"destination", destination), (b"ack", mode)]
        is_old = self.version == b"1.0" and self.has("subscribes without id on 1.0")
        if not is_old and not self.has("subscribes without id"):
            headers.append((b"id", id))
        self.ask(b"SUBSCRIBE", headers, b"x" if self.has("sends a body with SUBSCRIBE") else b"")

    def work(self) -> None:
        """Execute messages until one tells the client to quit."""
        while True:
            command, headers, body = self.receive()
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
        return headers.get(b"destination") in self.subscriptions.values()

    def handle(self, headers: Headers, body: bytes) -> None:
        """Execute a message, and acknowledge it."""
        own = [(name, value) for name, value in headers.items() if name.startswith(b"x-")]
        word, _, rest = body.partition(b" ")
        if word == b"nack":
            if self.version == b"1.0" and not self.has("sends NACK on 1.0"):
                raise Lost("STOMP 1.0 has no NACK")
            self.acknowledge(b"NACK", headers)
            if self.has("acknowledges what it refuses"):
                self.acknowledge(b"ACK", headers)
            return
        if word == b"subscribe":
            self.subscribe(rest)
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
        if self.has("drops byte order marks"):
            return body.removeprefix(b"\xef\xbb\xbf")
        charset = types.get(b"content-type", b"").partition(b"charset=")[2].decode()
        if charset and self.has("sends text in UTF-8"):
            return body.decode(charset).encode()
        return body

    def reply(self, body: bytes, headers: Pairs) -> None:
        """Send a message."""
        self.ask(b"SEND", [(b"destination", _OUT), *headers], body)

    def use_transaction(self, last: bytes, body: bytes) -> None:
        """Send a message in a transaction, and end the transaction."""
        is_one = self.has("begins all transactions by one name")
        name = (b"transaction", b"t" if is_one else b"t%d" % next(self.numbers))
        self.ask(b"BEGIN", [name])
        self.reply(body, [] if self.has("forgets the transaction of SEND") else [name])
        self.ask(last, [name])
        if self.has("names a transaction that is over"):
            self.transaction_is_over = [name]

    def acknowledge(self, command: bytes, headers: Headers) -> None:
        """Send ACK or NACK."""
        self.messages += 1
        if self.messages % 2 == 0 and self.has("acknowledges every second message"):
            return
        if self.has("acknowledges the newest message"):
            headers = self.newest
        if self.version == b"1.2" and not self.has("acknowledges by message-id on 1.2"):
            is_other = self.has("names the ack of MESSAGE ack")
            named = [(b"ack" if is_other else b"id", headers[b"ack"])]
            if self.has("acknowledges in all ways on 1.2"):
                more = (b"message-id", b"subscription")
                named += [(name, headers.get(name, b"")) for name in more]
        else:
            named = [(b"message-id", headers[b"message-id"])]
        if self.version == b"1.1" and not self.has("acknowledges without subscription on 1.1"):
            id = headers.get(b"subscription", b"")
            if self.has(f"names the first subscription in {command.decode()}"):
                id = next(iter(self.subscriptions))
            named.append((b"subscription", id))
        self.ask(command, [*named, *self.transaction_is_over])

    def quit(self) -> None:
        """Unsubscribe, disconnect, and wait for the RECEIPT until a deadline."""
        id, destination = next(iter(self.subscriptions.items()))
        named = (b"id", id)
        if self.has("unsubscribes by destination") or self.has("subscribes without id"):
            named = (b"destination", destination)
        if self.version == b"1.0" and self.has("subscribes without id on 1.0"):
            named = (b"destination", destination)
        self.ask(b"UNSUBSCRIBE", [named])
        if self.has("unsubscribes twice"):
            self.ask(b"UNSUBSCRIBE", [named])
        if self.has("closes without DISCONNECT"):
            return
        if self.has("disconnects without receipt"):
            self.send(b"DISCONNECT", [])
            return
        receipt = self.ask(b"DISCONNECT", [])
        until = time.monotonic() + _GOODBYE_S
        with contextlib.suppress(Lost, TimeoutError):
            while not self.has("does not wait for the RECEIPT"):
                command, headers, _ = self.receive(until)
                if command == b"MESSAGE" and self.has("acknowledges after DISCONNECT"):
                    self.acknowledge(b"ACK", headers)
                is_any = command == b"RECEIPT" and self.has(
                    "takes any RECEIPT for that of DISCONNECT"
                )
                is_like = self.has("takes receipts by their beginning")
                is_any = is_any or (
                    is_like and receipt.startswith(headers.get(b"receipt-id", b"-"))
                )
                if is_any or headers.get(b"receipt-id") == receipt:
                    return


if __name__ == "__main__":
    sys.exit(Client([(sys.argv[1], int(sys.argv[2]))], *sys.argv[3:]).run())
