"""What the broker of the test harness costs a test: to start, to reset, to stop, to be recorded.

A broker is started and stopped several times, as the fixture ``stomp_broker`` does it, and the
time is taken until it is ready: until CONNECT has been answered. Then one broker is reset again
and again, each time with clients that have subscribed and messages that nobody has read. At last
round trips are made with the broker, with the relay that records frames in between and without.

To try::

    python -m benchmarks.harness --starts 3 --resets 20
"""

from __future__ import annotations

import sys
import time
from contextlib import ExitStack
from statistics import median
from typing import Final

from benchmarks._report import Bound, Figure, make_parser, positive, progress, report
from stompkit.testing import BrokerError, RunningBroker, broker

#: Guaranteed time in seconds until a broker is ready.
READY_S: Final = 1.0
RESET_MS: Final = 5.0
#: State that a reset removes.
CLIENTS: Final = 3
MESSAGES: Final = 20


def starts(count: int) -> tuple[list[float], list[float]]:
    """Start and stop brokers; return the seconds until each was ready, and until each had ended."""
    ready_s, gone_s = [], []
    for number in range(count):
        progress(f"starting: {number} of {count}")
        began = time.perf_counter()
        with broker() as running:
            ready_s.append(time.perf_counter() - began)
            running.client().close()
            began = time.perf_counter()
        gone_s.append(time.perf_counter() - began)
    return ready_s, gone_s


def resets(running: RunningBroker, count: int) -> list[float]:
    """Reset a broker with clients and messages; return milliseconds."""
    times_ms = []
    for number in range(count):
        progress(f"resetting: {number} of {count}")
        with ExitStack() as stack:
            for each in range(CLIENTS):
                client = stack.enter_context(running.client())
                client.subscribe(running.topic(str(each)))
            for _ in range(MESSAGES):
                client.send(running.queue(), b"x" * 100)
            began = time.perf_counter()
            running.reset()
            times_ms.append((time.perf_counter() - began) * 1_000)
    return times_ms


def round_trips(running: RunningBroker, count: int) -> list[float]:
    """Send messages, each after the receipt of the last one; return microseconds."""
    times_us = []
    with running.client() as client:
        for number in range(count):
            progress(f"sending: {number} of {count}")
            began = time.perf_counter()
            client.send(running.topic(), b"x" * 100)
            times_us.append((time.perf_counter() - began) * 1_000_000)
    return times_us


def main() -> int:
    """Measure; return the exit status."""
    text, _, _ = (__doc__ or "").partition("\n\nTo try")
    parser = make_parser("harness", text)
    parser.add_argument("--starts", type=positive, default=15, help="brokers (default: 15)")
    parser.add_argument("--resets", type=positive, default=200, help="(default: 200)")
    parser.add_argument("--messages", type=positive, default=1_000, help="(default: 1000)")
    options = parser.parse_args()
    try:
        ready_s, gone_s = starts(options.starts)
        with broker() as recorded, broker(frames=False) as plain:
            resets_ms = resets(recorded, options.resets)
            through_us = round_trips(recorded, options.messages)
            direct_us = round_trips(plain, options.messages)
    except BrokerError as error:
        progress()
        print(error, file=sys.stderr)
        return 2
    ready = Figure("ready_s", "ready after, s (median)", median(ready_s), ".3f")
    reset = Figure("reset_ms", "reset, ms (median)", median(resets_ms), ".2f")
    return report(
        parser,
        options.json,
        [
            ready,
            Figure("ready_max_s", "ready after, s (longest)", max(ready_s), ".3f"),
            Figure("gone_s", "stopped after, s (median)", median(gone_s), ".3f"),
            reset,
            Figure("reset_max_ms", "reset, ms (longest)", max(resets_ms), ".2f"),
            Figure("direct_us", "SEND to RECEIPT, us (median)", median(direct_us)),
            Figure("recorded_us", "the same, recorded, us (median)", median(through_us)),
        ],
        [Bound(ready, READY_S), Bound(reset, RESET_MS)],
    )


if __name__ == "__main__":
    sys.exit(main())
