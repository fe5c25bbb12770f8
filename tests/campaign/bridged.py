"""Messages over a broker, a bridge with a buffer and a second broker; each process is killed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from signal import SIGTERM
from typing import Final

from msgspec import Struct

from stompkit.client.blocking import Link
from stompkit.replication.model.frames import Packet
from tests.campaign.chain import until
from tests.campaign.checker import Finding
from tests.campaign.keeping import Came, check_bridge
from tests.campaign.plan import Plan
from tests.campaign.posted import Posted, kept
from tests.campaign.sending import QUEUES

__all__ = ["Bridged"]

_OUT: Final = ".out"
#: Marks the end of a queue.
_END: Final = b"the end"
_WINDOWS: Final = (1, 10, 100)


class Bridged(Posted):
    """A run of ``stompkit bridge`` with a buffer, from queues of a broker to other queues of it."""

    def __init__(self, plan: Plan, directory: Path, report: Path) -> None:
        """Prepare without starting anything."""
        super().__init__(plan, directory, report)
        self._window = plan.chance("options").choice(_WINDOWS)
        self._came: list[Came] = []

    def command(self) -> Sequence[str]:
        """Return the program and its arguments."""
        queues = [word for queue in QUEUES for word in ("--queue", queue)]
        # One broker is enough, as it has two names.
        ends = ["--from", self.chain.url(""), "--from-site", "here"]
        ends += ["--to", self.chain.url(""), "--to-site", "there"]
        options = ("--buffer", str(self.folder), "--window", str(self._window), "--quiet")
        return ("bridge", *ends, *queues, "--destination", f"/queue/{{name}}{_OUT}", *options)

    def look(self, *, anew: bool = False) -> int:
        """Return the number of messages that the broker has confirmed.

        Reading the destination would consume the messages.
        """
        return len(self.confirmed())

    def finish(self) -> None:
        """Read until all expected messages have arrived and the bridge has ended."""
        wanted = {(each.sender, each.number) for each in self.confirmed()}
        with Link([f"127.0.0.1:{self.chain.brokers.active.port}"]) as link:
            inboxes = {queue: link.subscribe(f"{queue}{_OUT}") for queue in QUEUES}
            known: set[tuple[int, int]] = set()
            over: set[str] = set()

            def take() -> None:
                for queue, inbox in inboxes.items():
                    for each in inbox.take(1_000):
                        each.ack()
                        if each.body == _END:
                            over.add(queue)
                            continue
                        event = each.headers.get("event-id", "")
                        what = kept(queue, event, each.body)
                        mark = each.headers.get("stompkit-bridge-id", "")
                        self._came.append(Came(what, mark))
                        known.add((what.sender, what.number))

            def is_all_there() -> bool:
                self.receiver.check()
                take()
                return wanted <= known

            def is_over() -> bool:
                take()
                return len(over) == len(inboxes)

            # The checker decides whether all messages arrived.
            until(is_all_there, self.patience_s)
            # A process that has just been started does not handle signals yet.
            assert self.receiver.stop() in (0, -SIGTERM), self.receiver.log
            # Duplicates may be behind the end mark.
            for queue in QUEUES:
                link.send(f"{queue}{_OUT}", [Packet({}, _END)])
            assert until(is_over, self.patience_s), "queues do not end"

    def seen(self) -> Sequence[Struct]:
        """Return the messages that came out of the bridge."""
        return self._came

    def check(self) -> Finding:
        """Check the messages that came out of the bridge."""
        # Each fault breaks a connection or two, or a process.
        most_twice = self._window * 2 * (len(self.chain.notes) + 1)
        return check_bridge(self.confirmed(), self._came, self.sent(), most_twice)
