"""Messages from senders over a broker, a bridge and its buffer to a broker, all of it killed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from signal import SIGTERM
from typing import Final

from msgspec import Struct

from stompkit.link import Link
from stompkit.replication.frames import Packet
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
    """A run of ``stompkit bridge`` with a buffer, from queues of a broker to others that it has."""

    def __init__(self, plan: Plan, directory: Path, report: Path) -> None:
        """Prepare; nothing runs yet."""
        super().__init__(plan, directory, report)
        self._window = plan.chance("options").choice(_WINDOWS)
        self._came: list[Came] = []

    def command(self) -> Sequence[str]:
        """The program, and what it is told."""
        queues = [word for queue in QUEUES for word in ("--queue", queue)]
        # One broker is as good as two: it has two names.
        ends = ["--from", self.chain.url(""), "--from-site", "here"]
        ends += ["--to", self.chain.url(""), "--to-site", "there"]
        options = ("--buffer", str(self.folder), "--window", str(self._window), "--quiet")
        return ("bridge", *ends, *queues, "--destination", f"/queue/{{name}}{_OUT}", *options)

    def look(self, *, anew: bool = False) -> int:
        """How much the broker has taken: who would read what comes out would take it away."""
        return len(self.confirmed())

    def finish(self) -> None:
        """Read all that comes, until all has come that has to, and the bridge has ended."""
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

            # Whether it is, says the checker.
            until(is_all_there, self.patience_s)
            # One that has just been started does not know of signals yet.
            assert self.receiver.stop() in (0, -SIGTERM), self.receiver.log
            # What comes twice may be behind it.
            for queue in QUEUES:
                link.send(f"{queue}{_OUT}", [Packet({}, _END)])
            assert until(is_over, self.patience_s), "queues do not end"

    def seen(self) -> Sequence[Struct]:
        """What came out."""
        return self._came

    def check(self) -> Finding:
        """Judge it."""
        # Each misfortune breaks a connection or two, or a process.
        most_twice = self._window * 2 * (len(self.chain.notes) + 1)
        return check_bridge(self.confirmed(), self._came, self.sent(), most_twice)
