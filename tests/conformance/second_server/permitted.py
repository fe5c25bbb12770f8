"""Cases that behave otherwise on a server that uses a liberty."""

from __future__ import annotations

#: Patterns of cases that are NON-STRICT, by the switch: recommendations of the suite. The
#: specifications require the id of a subscription from clients; a server may generate it.
PERMITTED = {
    # What to do about COMMIT of an unknown transaction is left open.
    "ignores COMMIT and ABORT of what has not begun": (
        "1.[12]/abort/names-transaction",
        "1.[12]/commit/names-transaction",
    ),
    # From 1.1 on a server MAY redeliver.
    "redelivers nothing": (
        "1.[12]/ack-mode/client-unacked-on-failure",
        "1.[12]/ack/transaction-part-of",
        "1.[12]/begin/covers-ack",
        "behaviour/1.[12]/nack/in-transaction",
        "behaviour/1.[12]/redelivery/after-disconnect",
        "behaviour/1.[12]/redelivery/after-unsubscribe",
        "behaviour/1.[12]/redelivery/to-waiting-subscriber",
        "behaviour/1.[12]/transaction/ack-and-disconnect",
        "behaviour/ack/cumulative-reused-id",
        "behaviour/redelivery/consumer-dies",
        "behaviour/transaction/ack-cumulative",
        "behaviour/transaction/move-undone",
        "robustness/closing/half-open",
    ),
    # Whether names of what has ended can be used again is disputed.
    "refuses names that were used before": (
        "behaviour/ack/cumulative-reused-id",
        "behaviour/transaction/name-again",
    ),
    "takes COMMIT and ABORT of what has not begun": (
        "1.[12]/abort/names-transaction",
        "1.[12]/commit/names-transaction",
        "1.[12]/receipt-frame/after-success",
    ),
    "takes SUBSCRIBE without id": ("1.[12]/subscribe/id-required",),
}
#: The profile of such a server, by the switch: the case, the subject and the text.
PROFILES = {
    "takes BEGIN twice": ("1.2/begin/id-unique", "BEGIN of a transaction that is open", "RECEIPT"),
    "takes the last version offered": (
        "1.2/negotiation/accept-version-format",
        "version chosen for accept-version:1.2,1.1,1.0",
        "1.0",
    ),
    "gives messages back in reverse order": (
        "behaviour/1.2/redelivery/rest-after-reset",
        "order of redelivered messages",
        "changed",
    ),
}
#: Why a case is UNSUPPORTED that relies on what such a server lacks, by the switch.
LACKING = {
    "keeps no messages for later subscribers": (
        "1.2/receipt-frame/means-processed",
        "the target keeps no message for a subscription that comes later"
        " (the message is not in the queue)",
    ),
    "serves five sessions at a time": (
        "1.2/connected/session-unique",
        "the target refuses sessions while others are open: --jobs 1 needs the fewest"
        " (expected CONNECTED, got ERROR 'refused')",
    ),
    "takes one consumer of a queue": (
        "behaviour/redelivery/consumer-dies",
        "the target takes one connection that subscribes to a queue"
        " (expected RECEIPT with {'receipt-id': 'r2-1'}, got ERROR 'refused')",
    ),
}
