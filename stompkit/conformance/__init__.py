"""A conformance suite for STOMP 1.0, 1.1 and 1.2: any broker, from raw sockets.

``python -m stompkit.conformance --mq HOST:PORT`` runs it.  The names here are for cases.
"""

import sys

from stompkit._common.moved import moved, renamed

try:
    from stompkit.conformance.case import case, trial
except ModuleNotFoundError as error:
    if error.name != "pytest":
        raise
    advice = "the conformance suite needs pytest: pip install 'stompkit[conformance]'"
    # Python imports this package for ``python -m stompkit.conformance`` before the command can
    # handle the error. The first argument is -m until then.
    if sys.argv[:1] == ["-m"]:
        print(advice, file=sys.stderr)
        raise SystemExit(4) from None
    raise ModuleNotFoundError(advice, name="pytest") from None
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
