"""A session with a server: its start, subscriptions and receipts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from tests.conformance.second_client.escapes import Lost
from tests.conformance.second_client.frames import Frame, Pairs
from tests.conformance.second_client.stream import Stream
from tests.conformance.second_client.switches import Switch

_VERSIONS: Final = (b"1.0", b"1.1", b"1.2")
_IN: Final = b"/queue/in"
_BEAT_MS: Final = 500


class Session:
    """Connects, and subscribes to destinations."""

    def __init__(self, stream: Stream, switch: Switch, numbers: Iterator[int]) -> None:
        """Create a session that makes receipts of these numbers."""
        self.stream = stream
        self.has = switch.has
        self.numbers = numbers
        #: Destinations by the ids of subscriptions.
        self.subscriptions: dict[bytes, bytes] = {}

    @property
    def version(self) -> bytes:
        """The version of the protocol; empty before CONNECTED."""
        return self.stream.version

    # The start.

    def start(self, host: bytes) -> None:
        """Connect, and subscribe."""
        self.connect(host)
        if not self.has("does not wait for CONNECTED"):
            self.subscribe(_IN)

    def connect(self, host: bytes) -> None:
        """Send CONNECT, and wait for CONNECTED."""
        command = b"STOMP" if self.has("begins with STOMP") else b"CONNECT"
        self.stream.send(command, self.offer(host))
        if self.has("does not wait for CONNECTED"):
            self.subscriptions[b"s0"] = _IN
            own = [(b"destination", _IN), (b"id", b"s0"), (b"ack", b"client-individual")]
            self.stream.send(b"SUBSCRIBE", own)
        command, connected, _ = self.stream.receive()
        if command != b"CONNECTED":
            raise Lost(command.decode())
        if b"session" not in connected and self.has("needs the session of CONNECTED"):
            raise Lost("no session")
        version = connected.get(b"version", b"1.0")
        if self.has("speaks 1.2 whatever CONNECTED says"):
            version = b"1.2"
        if version not in _VERSIONS:
            if not self.has("takes a version that it has not offered"):
                raise Lost("a version that was not offered")
            version = b"1.2"
        self.stream.version = version
        self.agree(connected.get(b"heart-beat"))

    def offer(self, host: bytes) -> Pairs:
        """Return the headers of CONNECT."""
        versions: Sequence[bytes] = _VERSIONS
        if self.has("offers no 1.0"):
            versions = _VERSIONS[1:]
        if self.has("offers only the newest version"):
            versions = _VERSIONS[-1:]
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
            own = b"0" if self.has("wants heart-beats and sends none") else beat
            headers.append((b"heart-beat", own + b"," + beat))
        if self.has("asks for a receipt of CONNECT"):
            headers.append((b"receipt", b"connect"))
        return headers

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
        if self.has("wants heart-beats and sends none"):
            wants = 0
        if self.has("has one interval for both directions"):
            can = wants = max(can, wants)
        if wants and not self.has("sends no heart-beats"):
            self.stream.send_s = max(_BEAT_MS, wants) / 1000
        if can:
            is_hasty = self.has("expects beats sooner than agreed")
            self.stream.receive_s = (_BEAT_MS if is_hasty else max(_BEAT_MS, can)) / 1000

    # Subscriptions.

    def subscribe(self, destination: bytes) -> None:
        """Subscribe to a destination."""
        id = b"s%d" % len(self.subscriptions)
        if self.has("makes ids of destinations"):
            id = destination
        if self.has("uses unusual ids"):
            id = b" %b:\\ " % id if self.version != b"1.0" else id + b":"
        self.subscriptions[id] = destination
        mode = b"client-individual"
        if self.version == b"1.0" and not self.has("wants client-individual on 1.0"):
            mode = b"client"
        headers = [(b"destination", destination), (b"ack", mode)]
        is_old = self.version == b"1.0" and self.has("subscribes without id on 1.0")
        if not is_old and not self.has("subscribes without id"):
            headers.append((b"id", id))
        self.ask(b"SUBSCRIBE", headers, b"x" if self.has("sends a body with SUBSCRIBE") else b"")

    def unsubscribe(self) -> None:
        """End the first subscription."""
        id, destination = next(iter(self.subscriptions.items()))
        named = (b"id", id)
        if self.has("unsubscribes by destination") or self.has("subscribes without id"):
            named = (b"destination", destination)
        if self.version == b"1.0" and self.has("subscribes without id on 1.0"):
            named = (b"destination", destination)
        names = [named]
        if self.has("names the destination in UNSUBSCRIBE as well"):
            names.append((b"destination", destination))
        for _ in range(2 if self.has("unsubscribes twice") else 1):
            self.ask(b"UNSUBSCRIBE", names)

    # Receipts.

    def ask(self, command: bytes, headers: Pairs, body: bytes = b"") -> bytes:
        """Send a frame with a receipt; return the receipt."""
        receipt = b"r%d" % next(self.numbers)
        if self.has("uses unusual ids"):
            receipt = b" %b:\\ " % receipt if self.version != b"1.0" else receipt + b":"
        asks = not self.has("asks for no receipts but that of DISCONNECT")
        if asks or command == b"DISCONNECT":
            headers = [*headers, (b"receipt", receipt)]
        self.stream.send(command, headers, body)
        waits = self.has("waits for each receipt")
        if command == b"SUBSCRIBE" and self.has("loses messages that come before its receipts"):
            waits = True
        if waits and command != b"DISCONNECT":
            self.wait_for(receipt)
        return receipt

    def wait_for(self, receipt: bytes) -> None:
        """Wait for a RECEIPT, and keep other frames for later."""
        earlier: list[Frame] = []
        while (frame := self.stream.receive())[1].get(b"receipt-id") != receipt:
            if not self.has("loses messages that come before its receipts"):
                earlier.append(frame)
            if frame[0] == b"ERROR":
                raise Lost("ERROR")
        self.stream.frames.extendleft(reversed(earlier))
