"""Switches of the server: faults, and variants that the specifications permit."""

from __future__ import annotations

from typing import Final

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


class Switch:
    """The switch of a server, or none."""

    def __init__(self, name: str = "") -> None:
        """Turn this switch on."""
        self._name = name

    def has(self, name: str) -> bool:
        """Return True if this switch is on."""
        assert name in DEVIATIONS or name in LIBERTIES, name
        return name == self._name
