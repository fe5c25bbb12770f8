"""Which durable subscriptions take a message: known before any of them has it.

Selectors may need more time than there is in one turn of the reactor, and the copies of a message
are kept together, before its sender has a receipt.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from stompkit.server.domain.messages import Message

if TYPE_CHECKING:
    from stompkit.server.domain.hosts import VirtualHost
    from stompkit.server.domain.queues.durables import DurableQueue
    from stompkit.server.domain.session.connection import Connection

__all__ = ["Choice", "ChoiceWork"]


class Choice:
    """What the selectors of durable subscriptions say of a message."""

    __slots__ = ("_verdicts", "message")

    def __init__(self, message: Message) -> None:
        """Begin with none that was asked."""
        self.message = message
        self._verdicts: dict[DurableQueue, bool] = {}

    def unasked(self, durables: Iterable[DurableQueue]) -> list[DurableQueue]:
        """Return those of durable subscriptions whose selectors have yet to be asked."""
        return [
            each for each in durables if each.selector is not None and each not in self._verdicts
        ]

    def ask(self, durable: DurableQueue) -> None:
        """Ask the selector of a durable subscription; takes time of all selectors."""
        self._verdicts[durable] = durable.selects(self.message)

    def takes(self, durable: DurableQueue) -> bool:
        """Return whether a durable subscription takes the message; it was asked, if need be."""
        return durable.selector is None or self._verdicts[durable]


class _Work:
    """Messages of one client, for which durable subscriptions are asked."""

    __slots__ = ("changes", "choices", "done", "left", "maker", "unasked")

    def __init__(
        self, choices: Sequence[Choice], maker: Connection, done: Callable[[None], None]
    ) -> None:
        """Begin with the first message."""
        self.choices = choices
        self.maker = maker
        self.done = done
        self.left: deque[Choice] = deque()
        #: Those that the first message that is left has yet to ask.
        self.unasked: list[DurableQueue] = []
        #: How often durable subscriptions had changed when it began with the first message.
        self.changes = -1


class ChoiceWork:
    """Asks the selectors of durable subscriptions, as far as these have time in each turn.

    Clients take turns, so that one message does not wait for a transaction of many. All of them
    have what one consumer has of that time.
    """

    def __init__(self, host: VirtualHost) -> None:
        """Begin with nothing to do."""
        self._host = host
        self._works: deque[_Work] = deque()
        self._is_busy = False

    def begin(
        self, choices: Sequence[Choice], maker: Connection, done: Callable[[None], None]
    ) -> None:
        """Ask all; ``done`` is called when all that there are have been asked for each message.

        It is not called if the client ends meanwhile.
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
            if work.maker.is_closing:
                continue
            if self._has_more(work):
                self._works.append(work)
            else:
                work.done(None)
                time.begin()
        self._is_busy = False

    def _has_more(self, work: _Work) -> bool:
        """Ask one selector, or look for the next that is to be asked; False at the end."""
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
