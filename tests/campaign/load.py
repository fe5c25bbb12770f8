"""Drive all clients of a run in one thread."""

from __future__ import annotations

import select
import selectors
import time
from collections.abc import Callable

from tests.campaign.clients import Client, Producer
from tests.campaign.plan import LATE, Plan, clients
from tests.campaign.recorder import Recorder
from tests.campaign.wire import Address

__all__ = ["Load"]

#: Longest wait for input in one iteration, in seconds.
_TURN_S = 0.01
#: Longest time that an iteration counts, in seconds; more is a pause of this process.
_LONGEST_TURN_S = 1.0
#: Longest time for clients to disconnect, in seconds.
_LEAVING_S = 3.0
#: Longest time until the output of an ended broker has arrived, in seconds.
_ENDING_S = 1.0


class Load:
    """The clients, and the sockets that they read."""

    def __init__(
        self,
        plan: Plan,
        recorder: Recorder,
        addresses: Callable[[], list[Address]],
        life: Callable[[Address, str], int] | None = None,
    ) -> None:
        """Start without connections.

        ``life`` returns the life of the broker with an address and a session; by default it is
        that of the recorder.
        """
        self.recorder = recorder
        self._quota = plan.quota
        self._addresses = addresses
        self._life = life
        self._chance = plan.chance("load")
        self._selector = selectors.DefaultSelector()
        self._is_over = False
        self.clients = clients(plan, self)
        self._late = next(client for client in self.clients if client.name == LATE)
        self._late.has_ended = True

    # Requests of clients.

    def address(self) -> Address:
        """Return one of the addresses."""
        return self._chance.choice(self._addresses())

    def life(self, address: Address, session: str) -> int:
        """Return the life of the broker that has accepted this session at this address."""
        return self.recorder.life if self._life is None else self._life(address, session)

    def wants_more(self) -> bool:
        """Return True if the quota has not been reached."""
        return not self._is_over and self.recorder.receipted < self._quota

    def watch(self, client: Client) -> None:
        """Poll a client's connection for input."""
        assert client.wire is not None
        self._selector.register(client.wire.socket, selectors.EVENT_READ, client)

    def unwatch(self, client: Client) -> None:
        """Stop polling a client's connection."""
        assert client.wire is not None
        self._selector.unregister(client.wire.socket)

    # Iterations.

    def turn(self) -> None:
        """Wait a little for input, and run the due actions of all clients."""
        for key, _ in self._selector.select(_TURN_S):
            if key.data.wire is not None:
                key.data.wire.read()
        now = time.monotonic()
        for client in self.clients:
            client.work(now)

    def turn_until(self, is_enough: Callable[[], bool], timeout_s: float) -> bool:
        """Iterate until the condition holds; return False after the timeout."""
        spent_s, now = 0.0, time.monotonic()
        while not is_enough():
            if spent_s > timeout_s:
                return False
            self.turn()
            before, now = now, time.monotonic()
            # A pause of the whole process does not count as waiting time.
            spent_s += min(now - before, _LONGEST_TURN_S)
        return True

    def let_late_one_try(self) -> None:
        """Allow the late subscriber to start."""
        self._late.has_ended = False

    def stop_sending(self) -> None:
        """Stop the producers."""
        self._is_over = True

    def leave(self, *, all_of_them: bool) -> None:
        """Disconnect all or some clients gracefully, after the producers have their receipts."""
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
        """Read all output of a broker that has ended, and drop all connections."""
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
        """Close all connections and the selector."""
        for client in self.clients:
            client.lose(0.0)
        self._selector.close()
