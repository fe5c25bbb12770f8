"""Has all clients of a run do what they do, in one thread."""

from __future__ import annotations

import select
import selectors
import time
from collections.abc import Callable

from tests.campaign.clients import Client, Producer
from tests.campaign.plan import LATE, Plan, clients
from tests.campaign.recorder import Recorder

__all__ = ["Load"]

#: How long to wait for something to come in, at most, in seconds.
_TURN_S = 0.01
#: What a turn can take, in seconds; a longer one is not the doing of any broker.
_LONGEST_TURN_S = 1.0
#: How long clients may take to leave, in seconds.
_LEAVING_S = 3.0
#: How long it may take until what a broker has written is there, once it has ended, in seconds.
_ENDING_S = 1.0


class Load:
    """The clients, and the sockets that they read."""

    def __init__(self, plan: Plan, recorder: Recorder, ports: Callable[[], list[int]]) -> None:
        """Begin; nobody has connected."""
        self.recorder = recorder
        self._quota = plan.quota
        self._ports = ports
        self._chance = plan.chance("load")
        self._selector = selectors.DefaultSelector()
        self._is_over = False
        self.clients = clients(plan, self)
        self._late = next(client for client in self.clients if client.name == LATE)
        self._late.has_ended = True

    # What clients ask for.

    def port(self) -> int:
        """One of the ports."""
        return self._chance.choice(self._ports())

    def wants_more(self) -> bool:
        """Whether the quota is not full."""
        return not self._is_over and self.recorder.receipted < self._quota

    def watch(self, client: Client) -> None:
        """Read what comes for a client."""
        assert client.wire is not None
        self._selector.register(client.wire.socket, selectors.EVENT_READ, client)

    def unwatch(self, client: Client) -> None:
        """Stop that."""
        assert client.wire is not None
        self._selector.unregister(client.wire.socket)

    # Turns.

    def turn(self) -> None:
        """Wait a little for something to come, and have everybody do what there is to do."""
        for key, _ in self._selector.select(_TURN_S):
            if key.data.wire is not None:
                key.data.wire.read()
        now = time.monotonic()
        for client in self.clients:
            client.work(now)

    def turn_until(self, is_enough: Callable[[], bool], timeout_s: float) -> bool:
        """Take turns; says whether it was enough before the time was over."""
        spent_s, now = 0.0, time.monotonic()
        while not is_enough():
            if spent_s > timeout_s:
                return False
            self.turn()
            before, now = now, time.monotonic()
            # All of this may have been stopped meanwhile, which is no time for anybody.
            spent_s += min(now - before, _LONGEST_TURN_S)
        return True

    def let_late_one_try(self) -> None:
        """Have the late subscriber begin."""
        self._late.has_ended = False

    def stop_sending(self) -> None:
        """Have producers send no more."""
        self._is_over = True

    def leave(self, *, all_of_them: bool) -> None:
        """Have clients leave in good order: all, or by chance; those who send wait for receipts."""
        self.stop_sending()
        self.turn_until(
            lambda: (
                not any(
                    isinstance(client, Producer) and client.open_requests for client in self.clients
                )
            ),
            _LEAVING_S,
        )
        leaving = [each for each in self.clients if all_of_them or self._chance.random() < 0.5]
        for client in leaving:
            client.has_ended = True
            client.leave()
        self.turn_until(lambda: not any(each.is_leaving for each in leaving), _LEAVING_S)

    def drop_all(self) -> None:
        """Read all that a broker has written that has ended, and have nobody connected."""
        deadline = time.monotonic() + _ENDING_S
        for client in self.clients:
            while client.wire is not None and not client.wire.is_over:
                left = deadline - time.monotonic()
                if left <= 0 or not select.select([client.wire.socket], [], [], left)[0]:
                    break
                client.wire.read()
            now = time.monotonic()
            client.hear(now)
            client.lose(now)

    def close(self) -> None:
        """Let go of everything."""
        for client in self.clients:
            client.lose(0.0)
        self._selector.close()
