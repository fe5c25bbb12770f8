"""Select the durable subscriptions that receive a message, before any of them gets it.

Selectors may need more time than one reactor iteration allows. The copies of a message are stored
together, before its sender gets a receipt.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence

from stompkit.server.domain.deliveries import ConnectionBase
from stompkit.server.domain.destinations import HostBase
from stompkit.server.domain.messages import Message
from stompkit.server.domain.queues.durables import DurableQueue

__all__ = ["Choice", "ChoiceWork", "ChoosingHost"]


class ChoosingHost(HostBase):
    """A virtual host with durable subscriptions."""

    #: Incremented when a durable subscription is added or collects other messages.
    durable_changes: int

    def durables_of(self, name: str) -> Iterable[DurableQueue]:
        """Return the durable subscriptions that collect messages sent to a name."""
        raise NotImplementedError


class Choice:
    """Results of the selectors of durable subscriptions for one message."""

    __slots__ = ("_verdicts", "message")

    def __init__(self, message: Message) -> None:
        """Start without results."""
        self.message = message
        self._verdicts: dict[DurableQueue, bool] = {}

    def unasked(self, durables: Iterable[DurableQueue]) -> list[DurableQueue]:
        """Return the durable subscriptions whose selectors have not been evaluated yet."""
        return [
            each for each in durables if each.selector is not None and each not in self._verdicts
        ]

    def ask(self, durable: DurableQueue) -> None:
        """Evaluate the selector of a durable subscription, within the time limit of selectors."""
        self._verdicts[durable] = durable.selects(self.message)

    def takes(self, durable: DurableQueue) -> bool:
        """Return True if a durable subscription takes the message, as evaluated before."""
        return durable.selector is None or self._verdicts[durable]


class _Work:
    """Messages of one sender for which selectors are to be evaluated."""

    __slots__ = ("changes", "choices", "done", "left", "maker", "unasked")

    def __init__(
        self, choices: Sequence[Choice], maker: ConnectionBase | None, done: Callable[[None], None]
    ) -> None:
        """Start with the first message."""
        self.choices = choices
        self.maker = maker
        self.done = done
        self.left: deque[Choice] = deque()
        #: Durable subscriptions still to be evaluated for the first remaining message.
        self.unasked: list[DurableQueue] = []
        #: Version of the set of durable subscriptions when the first message was started.
        self.changes = -1


class ChoiceWork:
    """Evaluates the selectors of durable subscriptions, within the time limit of each iteration.

    Clients are served in rotation, so that one message does not wait for a large transaction.
    Together they have the time limit of one consumer.
    """

    def __init__(self, host: ChoosingHost) -> None:
        """Start without work."""
        self._host = host
        self._works: deque[_Work] = deque()
        self._is_busy = False

    def begin(
        self, choices: Sequence[Choice], maker: ConnectionBase | None, done: Callable[[None], None]
    ) -> None:
        """Evaluate all selectors; ``done`` is called when every message has all results.

        It is not called if the client, if there is one, ends meanwhile.
        """
        self._works.append(_Work(choices, maker, done))
        if not self._is_busy:
            self._is_busy = True
            self._go_on()

    def _go_on(self) -> None:
        time = self._host.broker.selector_time
        time.begin()
        while self._works:
            if not time.is_left_for(self):
                time.wait(self._go_on)
                return
            work = self._works.popleft()
            if work.maker is not None and work.maker.is_closing:
                continue
            if self._has_more(work):
                self._works.append(work)
            else:
                work.done(None)
                time.begin()
        self._is_busy = False

    def _has_more(self, work: _Work) -> bool:
        """Evaluate one selector, or find the next one to evaluate; return False at the end."""
        host = self._host
        if work.unasked:
            durable = work.unasked.pop()
            work.left[0].ask(durable)
            assert durable.selector is not None  # others are not to be asked
            host.broker.selector_time.charge(self, durable.selector.cost)
        elif work.left:
            work.left.popleft()
        elif work.changes == host.durable_changes:
            return False
        else:
            work.changes = host.durable_changes
            work.left.extend(work.choices)
        if work.left and not work.unasked:
            first = work.left[0]
            work.unasked = first.unasked(host.durables_of(first.message.destination))
        return True
