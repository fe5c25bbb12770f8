"""Switches of the client: faults, and variants that the specifications permit."""

from __future__ import annotations

from typing import Final

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


class Switch:
    """The switch of a client, or none."""

    def __init__(self, name: str = "") -> None:
        """Turn this switch on."""
        self._name = name

    def has(self, name: str) -> bool:
        """Return True if this switch is on."""
        assert name in DEVIATIONS or name in LIBERTIES, name
        return name == self._name
