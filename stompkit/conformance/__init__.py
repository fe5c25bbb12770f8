"""A conformance suite for STOMP 1.0, 1.1 and 1.2: any broker, from raw sockets.

``python -m stompkit.conformance --mq HOST:PORT`` runs it.  The names here are for cases.
"""

from stompkit._common.moved import moved, renamed
from stompkit.conformance.case import case, trial
from stompkit.conformance.peer import Peer, frame_octets, raw_value
from stompkit.conformance.target import Target
from stompkit.conformance.timing import tried_again
from stompkit.conformance.verdict import FailedError, Outcome, UnsupportedError

__all__ = [
    "FailedError",
    "Outcome",
    "Peer",
    "Target",
    "UnsupportedError",
    "case",
    "frame_octets",
    "raw_value",
    "trial",
    "tried_again",
]

renamed(
    __name__,
    Failed="FailedError",
    Unsupported="UnsupportedError",
)
moved(
    __name__,
    {
        "expectations": "stompkit.conformance.report.expectations",
        "runner": "stompkit.conformance.run.runner",
    },
)
